"""ACLs as calls: create, describe, delete by filters."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.core.admin.items import refused, settled
from pyclient.core.calls import Anywhere, Call, CallOutcome, Done, Finish
from pyclient.descriptions.acls import Acl, AclFilter, AclOperation, AclPattern, AclPermission, AclResourceType
from pyclient.errors import KafkaError, ProtocolError

Item = TypeVar("Item", Acl, AclFilter)


def create_acls_call(acls: Sequence[Acl], *, finish: Finish, deadline: float | None) -> Call:
    """Create entries; the result maps each to None or its error."""
    wanted = [{"resource_type": each.resource_type, "resource_name": each.resource_name, "resource_pattern_type": each.pattern,
               "principal": each.principal, "host": each.host, "operation": each.operation, "permission_type": each.permission} for each in acls]

    def classify(message: Any) -> CallOutcome:
        return _of_each(Api.CREATE_ACLS, acls, message.results, lambda result: None)

    return Call(what=f"creating {len(acls)} ACLs", api=Api.CREATE_ACLS, target=Anywhere.CONTROLLER, classify=classify, finish=finish, deadline=deadline,
                fields=lambda version: {"creations": wanted})


def describe_acls_call(wanted: AclFilter, *, finish: Finish, deadline: float | None) -> Call:
    """The entries that a filter finds."""
    def classify(message: Any) -> CallOutcome:
        return refused(Api.DESCRIBE_ACLS, message) or Done([_acl(found, found.pattern_type, acl) for found in message.resources for acl in found.acls])

    return Call(what="describing ACLs", api=Api.DESCRIBE_ACLS, target=Anywhere.ANY_NODE, classify=classify, finish=finish, deadline=deadline,
                fields=lambda version: _filter(wanted))


def delete_acls_call(filters: Sequence[AclFilter], *, finish: Finish, deadline: float | None) -> Call:
    """Delete what filters find; the result maps each to the entries that were deleted, or its error."""
    def classify(message: Any) -> CallOutcome:
        return _of_each(Api.DELETE_ACLS, filters, message.filter_results, _deleted)

    return Call(what=f"deleting ACLs by {len(filters)} filters", api=Api.DELETE_ACLS, target=Anywhere.CONTROLLER, classify=classify, finish=finish,
                deadline=deadline, fields=lambda version: {"filters": [_filter(each) for each in filters]})


def _filter(wanted: AclFilter) -> dict[str, object]:
    return {"resource_type_filter": wanted.resource_type, "resource_name_filter": wanted.resource_name, "pattern_type_filter": wanted.pattern,
            "principal_filter": wanted.principal, "host_filter": wanted.host, "operation": wanted.operation, "permission_type": wanted.permission}


def _of_each(api: Api, asked: Sequence[Item], results: Sequence[Any], value: Any) -> CallOutcome:
    """The outcome of each item; brokers answer in the order of the request."""
    if len(results) != len(asked):
        raise ProtocolError(f"{api.title} was asked about {len(asked)} items and answered about {len(results)}")
    return settled({item: _error(api, item, result) if result.error_code else value(result) for item, result in zip(asked, results, strict=True)})


def _error(api: Api, item: Acl | AclFilter, result: Any) -> KafkaError:
    return error_of(api, result.error_code, f"{item}: {result.error_message}" if result.error_message else str(item))


def _deleted(result: Any) -> Any:
    """The entries, or the first error of one: then it is not known which are left."""
    failed = next((each for each in result.matching_acls if each.error_code), None)
    if failed is not None:
        return error_of(Api.DELETE_ACLS, failed.error_code, failed.error_message)
    return sorted(_acl(each, each.pattern_type, each) for each in result.matching_acls)


def _acl(resource: Any, pattern: int, entry: Any) -> Acl:
    return Acl(AclResourceType(resource.resource_type), resource.resource_name, entry.principal, AclOperation(entry.operation),
               AclPermission(entry.permission_type), entry.host, AclPattern(pattern))
