"""ACLs: the requests in every version, and one outcome for each entry or filter."""
from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyclient import AsyncAdmin
from pyclient.admin import Acl, AclFilter, AclOperation, AclPattern, AclPermission, AclResourceType
from pyclient.codec.apis import Api
from pyclient.core.admin.acls import create_acls_call, delete_acls_call, describe_acls_call
from pyclient.core.calls import Again, Anywhere, Done
from pyclient.errors import ClusterAuthorizationError, InvalidRequestError, NotControllerError, ProtocolError, SecurityDisabledError
from tests.unit.core.test_admin_calls import body, ignore, versions
from tests.unit.core.world import answer

READ = Acl.topic("orders", "User:anna", AclOperation.READ)
DENIED = Acl.group("bill", "User:bob", AclOperation.ALL, AclPermission.DENY, "10.0.0.1", AclPattern.PREFIXED)
ORDERS, EVERYTHING = AclFilter(AclResourceType.TOPIC, "orders"), AclFilter()
NOT_ALLOWED, INVALID, NOT_CONTROLLER, NO_AUTHORIZER = 31, 42, 41, 54
ENTRY = {"principal": "User:anna", "host": "*", "operation": 3, "permission_type": 3}


def creating() -> Any:
    return create_acls_call([READ, DENIED], finish=ignore, deadline=None)


def created(*codes: int) -> Any:
    return creating().classify(answer(Api.CREATE_ACLS, 3, results=[{"error_code": code, "error_message": "why" if code else None} for code in codes]))


@pytest.mark.parametrize("version", versions(Api.CREATE_ACLS))
def test_entries_are_created_with_everything_they_say_in_every_version(version: int) -> None:
    call = creating()
    assert call.target is Anywhere.CONTROLLER
    assert [(each.resource_type, each.resource_name, each.resource_pattern_type, each.principal, each.host, each.operation, each.permission_type)
            for each in body(call, version).creations] == [(2, "orders", 3, "User:anna", "*", 3, 3), (3, "bill", 4, "User:bob", "10.0.0.1", 2, 2)]


def test_each_entry_has_its_own_outcome() -> None:
    assert created(0, 0) == Done({READ: None, DENIED: None})
    found = created(0, INVALID)
    assert isinstance(found, Done)
    assert found.result[READ] is None
    assert isinstance(found.result[DENIED], InvalidRequestError)
    assert "why" in str(found.result[DENIED])


def test_a_missing_right_names_the_operation_and_the_cluster() -> None:
    found = created(NOT_ALLOWED, NOT_ALLOWED)
    assert isinstance(found.result[READ], ClusterAuthorizationError)
    assert "not allowed to ALTER the cluster" in str(found.result[READ])


def test_another_controller_is_asked_when_it_has_moved() -> None:
    moved = created(0, NOT_CONTROLLER)
    assert isinstance(moved, Again)
    assert isinstance(moved.error, NotControllerError)


def test_an_answer_about_fewer_items_is_no_answer() -> None:
    with pytest.raises(ProtocolError, match="asked about 2 items and answered about 1"):
        created(0)


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_ACLS))
def test_a_filter_asks_for_what_it_names_and_finds_entries(version: int) -> None:
    call = describe_acls_call(ORDERS, finish=ignore, deadline=None)
    read = body(call, version)
    assert (read.resource_type_filter, read.resource_name_filter, read.pattern_type_filter, read.principal_filter, read.host_filter,
            read.operation, read.permission_type) == (2, "orders", 1, None, None, 1, 1)
    resources = [{"resource_type": 2, "resource_name": "orders", "pattern_type": 3, "acls": [ENTRY]}]
    assert call.classify(answer(Api.DESCRIBE_ACLS, version, error_code=0, error_message=None, resources=resources)) == Done([READ])


def test_a_cluster_without_an_authorizer_says_so() -> None:
    call = describe_acls_call(EVERYTHING, finish=ignore, deadline=None)
    found = call.classify(answer(Api.DESCRIBE_ACLS, 3, error_code=NO_AUTHORIZER, error_message="No Authorizer is configured.", resources=[]))
    assert isinstance(found, SecurityDisabledError)
    assert "No Authorizer is configured" in str(found)


@pytest.mark.parametrize("version", versions(Api.DELETE_ACLS))
def test_each_filter_returns_what_it_deleted_or_its_error(version: int) -> None:
    call = delete_acls_call([ORDERS, EVERYTHING], finish=ignore, deadline=None)
    assert [each.resource_name_filter for each in body(call, version).filters] == ["orders", None]
    matching = {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "orders", "pattern_type": 3, **ENTRY}
    results = [{"error_code": 0, "error_message": None, "matching_acls": [matching]},
               {"error_code": 0, "error_message": None, "matching_acls": [matching | {"error_code": INVALID, "error_message": "why"}]}]
    found = call.classify(answer(Api.DELETE_ACLS, version, filter_results=results))
    assert isinstance(found, Done)
    assert found.result[ORDERS] == [READ]
    assert isinstance(found.result[EVERYTHING], InvalidRequestError)


def test_a_number_of_a_newer_kafka_is_unknown() -> None:
    assert AclOperation(99) is AclOperation.UNKNOWN
    assert AclResourceType(99) is AclResourceType.UNKNOWN


@pytest.mark.parametrize(("call", "words"), [
    (lambda admin: admin.create_acls([READ._replace(operation=AclOperation.ANY)]), "AclOperation.ANY is for filters"),
    (lambda admin: admin.create_acls([READ._replace(pattern=AclPattern.MATCH)]), "AclPattern.MATCH is for filters"),
    (lambda admin: admin.create_acls([READ._replace(principal="anna")]), "write 'User:anna'"),
    (lambda admin: admin.create_acls([ORDERS]), "expected Acl, got AclFilter"),
    (lambda admin: admin.delete_acls(ORDERS), "expected a list of filters, got one"),
    (lambda admin: admin.describe_acls(READ), "expected AclFilter, got Acl"),
])
def test_wrong_arguments_are_refused_before_a_request(call: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        asyncio.run(call(AsyncAdmin(bootstrap_servers="127.0.0.1:1")))
