"""ACLs and passwords of a running cluster, set through Kafka's own protocol on a plaintext listener.

A change is made by a controller and seen by each broker a little later: each function returns when all brokers that
answer have it. Names are Kafka's; its numbers stand here only.
"""
from __future__ import annotations

import contextlib
import functools
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from kio.schema.alter_user_scram_credentials.v0 import request as alter_request
from kio.schema.alter_user_scram_credentials.v0 import response as alter_response
from kio.schema.create_acls.v3 import request as create_request
from kio.schema.create_acls.v3 import response as create_response
from kio.schema.delete_acls.v3 import request as delete_request
from kio.schema.delete_acls.v3 import response as delete_response
from kio.schema.describe_acls.v3 import request as describe_request
from kio.schema.describe_acls.v3 import response as describe_response
from kio.schema.describe_user_scram_credentials.v0 import request as known_request
from kio.schema.describe_user_scram_credentials.v0 import response as known_response
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i32

from pyclient.testing.common.errors import LocalClusterError
from pyclient.testing.probe import Address, Alive, NotReadyError, ask, check, poll

Operation: TypeAlias = Literal[
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
]
Step: TypeAlias = Callable[[Address, float], None]
"""A request to the broker at an address, with a time limit in seconds. Raises OSError or NotReadyError."""

ANSWER_TIMEOUT_S: Final = 5.0
_OPERATIONS: Final[Mapping[str, int]] = {
    "ALL": 2, "READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7, "DESCRIBE": 8, "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11, "IDEMPOTENT_WRITE": 12,
}
_RESOURCES: Final = {"topic": 2, "group": 3, "cluster": 4, "transactional_id": 5}
_LITERAL, _PREFIXED, _ALLOW, _ANYWHERE = i8(3), i8(4), i8(3), "*"
_CLUSTER_NAME: Final = "kafka-cluster"
_SCRAM: Final = {1: "sha256", 2: "sha512"}
FEWEST_ITERATIONS: Final = 4096


class Resource(NamedTuple):
    """The resource of an ACL."""

    kind: str
    name: str
    prefixed: bool = False

    @property
    def code(self) -> i8:
        return i8(_RESOURCES[self.kind])

    @property
    def pattern(self) -> i8:
        return _PREFIXED if self.prefixed else _LITERAL


class Brokers(NamedTuple):
    """The brokers' plaintext addresses by node id, a timeout, and a check that the brokers are alive."""

    addresses: Mapping[int, Address]
    timeout_s: float
    alive: Alive

    def change(self, make: Step, seen: Step) -> None:
        """Request a change from any broker by *make*, and return when *seen* succeeds at all that answer.

        Raises:
            TimeoutError: it was not made, or not seen, in time; the text has a broker's last answer.
        """
        deadline = time.monotonic() + self.timeout_s
        poll(lambda limit_s: self._by_any(make, limit_s), deadline, self.alive)
        for address in self.addresses.values():
            poll(functools.partial(_unless_gone, seen, address), deadline, self.alive)

    def _by_any(self, make: Step, limit_s: float) -> None:
        failures = []
        for address in self.addresses.values():
            try:
                return make(address, min(limit_s, ANSWER_TIMEOUT_S))
            except OSError as failed:
                failures.append(f"{address[0]}:{address[1]}: {failed}")
        raise NotReadyError("; ".join(failures))


def _unless_gone(seen: Step, address: Address, limit_s: float) -> None:
    with contextlib.suppress(OSError):
        seen(address, min(limit_s, ANSWER_TIMEOUT_S))


def resource(*, topic: str | None, group: str | None, transactional_id: str | None, cluster: bool, prefixed: bool) -> Resource:
    """The one named resource.

    Raises:
        ValueError: none or several are named.
    """
    given = {"topic": topic, "group": group, "transactional_id": transactional_id, "cluster": _CLUSTER_NAME if cluster else None}
    named = [Resource(kind, name, prefixed) for kind, name in given.items() if name is not None]
    if len(named) != 1:
        raise ValueError(f"name one of topic=, group=, transactional_id=, cluster=True; {len(named)} are named")
    return named[0]


def grant(brokers: Brokers, user: str, operations: Sequence[Operation], about: Resource) -> None:
    """Allow *user* the *operations*."""
    wanted = _codes(operations)
    request = create_request.CreateAclsRequest(creations=tuple(
        create_request.AclCreation(
            resource_type=about.code, resource_name=about.name, resource_pattern_type=about.pattern,
            principal=_principal(user), host=_ANYWHERE, operation=code, permission_type=_ALLOW)
        for code in wanted))

    def make(address: Address, limit_s: float) -> None:
        for result in ask(address, request, create_response.CreateAclsResponse, limit_s).results:
            _done(result.error_code, "creating an ACL", result.error_message)

    def seen(address: Address, limit_s: float) -> None:
        if missing := set(wanted) - _allowed(address, user, about, limit_s):
            raise NotReadyError(f"{address[0]}:{address[1]} does not have {len(missing)} of the ACLs yet")

    brokers.change(make, seen)


def revoke(brokers: Brokers, user: str, operations: Sequence[Operation], about: Resource) -> None:
    """Delete the ACLs of `grant`; missing ones are ignored."""
    wanted = _codes(operations)
    request = delete_request.DeleteAclsRequest(filters=tuple(
        delete_request.DeleteAclsFilter(
            resource_type_filter=about.code, resource_name_filter=about.name, pattern_type_filter=about.pattern,
            principal_filter=_principal(user), host_filter=_ANYWHERE, operation=code, permission_type=_ALLOW)
        for code in wanted))

    def make(address: Address, limit_s: float) -> None:
        for result in ask(address, request, delete_response.DeleteAclsResponse, limit_s).filter_results:
            _done(result.error_code, "deleting an ACL", result.error_message)

    def seen(address: Address, limit_s: float) -> None:
        if left := set(wanted) & _allowed(address, user, about, limit_s):
            raise NotReadyError(f"{address[0]}:{address[1]} still has {len(left)} of the ACLs")

    brokers.change(make, seen)


def _allowed(address: Address, user: str, about: Resource, limit_s: float) -> set[i8]:
    """The operations that ACLs allow *user*, according to the broker at *address*."""
    request = describe_request.DescribeAclsRequest(
        resource_type_filter=about.code, resource_name_filter=about.name, pattern_type_filter=about.pattern,
        principal_filter=_principal(user), host_filter=_ANYWHERE, operation=i8(1), permission_type=_ALLOW)
    answer = ask(address, request, describe_response.DescribeAclsResponse, limit_s)
    check(answer.error_code, "describing ACLs", answer.error_message)
    return {acl.operation for found in answer.resources for acl in found.acls}


def _done(code: ErrorCode, doing: str, message: str | None) -> None:
    """Raise NotReadyError for a retriable error, LocalClusterError for another one.

    A controller of Kafka 3.9 that has just been elected may not know yet which features are on.
    """
    if code not in (ErrorCode.none, ErrorCode.unsupported_version) and not code.retriable:
        raise LocalClusterError(f"{doing}: {code.name} ({message})")
    check(code, doing, message)


def _codes(operations: Sequence[Operation]) -> list[i8]:
    unknown = [name for name in operations if name not in _OPERATIONS]
    if unknown or not operations:
        raise ValueError(f"operations are {', '.join(_OPERATIONS)}; given: {', '.join(unknown) or 'none'}")
    return [i8(_OPERATIONS[name]) for name in operations]


def _principal(user: str) -> str:
    return user if user.startswith("User:") else f"User:{user}"


def set_passwords(brokers: Brokers, passwords: Mapping[str, str]) -> None:
    """Give each user this password for SCRAM-SHA-256 and SCRAM-SHA-512."""
    # Brokers report only the iterations of a password: a distinct number shows that a broker has the new one.
    iterations = FEWEST_ITERATIONS + secrets.randbelow(FEWEST_ITERATIONS)
    requests = [  # a user may stand once in a request
        alter_request.AlterUserScramCredentialsRequest(deletions=(), upsertions=tuple(
            _upsertion(name, password, mechanism, iterations) for name, password in passwords.items()))
        for mechanism in _SCRAM]

    def make(address: Address, limit_s: float) -> None:
        for request in requests:
            for result in ask(address, request, alter_response.AlterUserScramCredentialsResponse, limit_s).results:
                _done(result.error_code, f"setting the password of {result.user}", result.error_message)

    def seen(address: Address, limit_s: float) -> None:
        if late := sorted(passwords.keys() - _with_iterations(address, iterations, limit_s)):
            raise NotReadyError(f"{address[0]}:{address[1]} does not know the passwords of {', '.join(late)} yet")

    brokers.change(make, seen)


def _upsertion(name: str, password: str, mechanism: int, iterations: int) -> alter_request.ScramCredentialUpsertion:
    salt = secrets.token_bytes(16)
    return alter_request.ScramCredentialUpsertion(
        name=name, mechanism=i8(mechanism), iterations=i32(iterations), salt=salt,
        salted_password=hashlib.pbkdf2_hmac(_SCRAM[mechanism], password.encode(), salt, iterations))


def _with_iterations(address: Address, iterations: int, limit_s: float) -> set[str]:
    """The users all of whose passwords have so many *iterations* at the broker at *address*."""
    answer = ask(address, known_request.DescribeUserScramCredentialsRequest(users=None), known_response.DescribeUserScramCredentialsResponse, limit_s)
    check(answer.error_code, "describing passwords", answer.error_message)
    return {found.user for found in answer.results if {info.iterations for info in found.credential_infos} == {iterations}}
