"""Access control: create, find and delete ACLs."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from pyclient.admin.calls import AsyncCalls, BlockingCalls, outcomes, raise_failed
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.acls import create_acls_call, delete_acls_call, describe_acls_call
from pyclient.descriptions.acls import ALL_ACLS, Acl, AclFilter

T = TypeVar("T")
FOR_FILTERS = ("UNKNOWN", "ANY", "MATCH")


class AsyncAclCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern access control."""

    async def create_acls(self, acls: Iterable[Acl], *, timeout: float | None = OPTION) -> None:
        """Create the entries *acls*; one that exists is not created twice. Brokers learn of them a little later.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, SecurityDisabledError (the cluster has no authorizer), InvalidRequestError, …:
                for a single entry; PartialFailureError: for several.
        """
        if isinstance(acls, Acl):
            raise TypeError(f"expected a list of ACLs, got one: write [{acls!r}]")
        wanted = list(dict.fromkeys(_entry(acl) for acl in acls))
        if wanted:
            answers = await self._core.call(lambda finish, deadline: create_acls_call(wanted, finish=finish, deadline=deadline), self._limit(timeout))
            raise_failed(wanted, answers, what="ACL")

    async def describe_acls(self, matching: AclFilter = ALL_ACLS, *, timeout: float | None = OPTION) -> list[Acl]:
        """The entries that the filter *matching* finds, in order; without one: all.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, SecurityDisabledError, …
        """
        wanted = _of(matching, AclFilter)
        found: list[Acl] = await self._core.call(lambda finish, deadline: describe_acls_call(wanted, finish=finish, deadline=deadline), self._limit(timeout))
        return sorted(found)

    async def delete_acls(self, matching: Iterable[AclFilter], *, timeout: float | None = OPTION) -> dict[AclFilter, list[Acl]]:
        """Delete the entries that the filters *matching* find; returns those of each. ``AclFilter()`` finds all there
        are.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, SecurityDisabledError, …: for a single filter; PartialFailureError: for several.
        """
        if isinstance(matching, AclFilter):
            raise TypeError(f"expected a list of filters, got one: write [{matching}]")
        wanted = list(dict.fromkeys(_of(each, AclFilter) for each in matching))
        if not wanted:
            return {}
        answers = await self._core.call(lambda finish, deadline: delete_acls_call(wanted, finish=finish, deadline=deadline), self._limit(timeout))
        return outcomes(wanted, answers, what="filter")


class AclCalls(BlockingCalls):
    """Calls of `Admin` that concern access control."""

    _admin: AsyncAclCalls

    def create_acls(self, acls: Iterable[Acl], *, timeout: float | None = OPTION) -> None:
        """Create the entries *acls*; one that exists is not created twice. Brokers learn of them a little later.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, SecurityDisabledError (the cluster has no authorizer), InvalidRequestError, …:
                for a single entry; PartialFailureError: for several.
        """
        self._call(lambda: self._admin.create_acls(acls, timeout=timeout))

    def describe_acls(self, matching: AclFilter = ALL_ACLS, *, timeout: float | None = OPTION) -> list[Acl]:
        """The entries that the filter *matching* finds, in order; without one: all.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, SecurityDisabledError, …
        """
        return self._call(lambda: self._admin.describe_acls(matching, timeout=timeout))

    def delete_acls(self, matching: Iterable[AclFilter], *, timeout: float | None = OPTION) -> dict[AclFilter, list[Acl]]:
        """Delete the entries that the filters *matching* find; returns those of each. ``AclFilter()`` finds all there
        are.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, SecurityDisabledError, …: for a single filter; PartialFailureError: for several.
        """
        return self._call(lambda: self._admin.delete_acls(matching, timeout=timeout))


def _of(given: Any, kind: type[T]) -> T:
    if not isinstance(given, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(given).__name__}: {given!r}")
    return given


def _entry(given: object) -> Acl:
    acl = _of(given, Acl)
    wrong = next((each for each in (acl.resource_type, acl.operation, acl.permission, acl.pattern) if each.name in FOR_FILTERS), None)
    if wrong is not None:
        raise ValueError(f"{acl}: {type(wrong).__name__}.{wrong.name} is for filters; an entry needs one that it is about")
    if ":" not in acl.principal:
        raise ValueError(f"{acl.principal!r} is no principal: write 'User:{acl.principal}'")
    return acl
