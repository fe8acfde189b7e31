"""Users and what they may use: SCRAM credentials, client quotas."""
from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from pyclient.admin.calls import AsyncCalls, BlockingCalls, answer_of, outcomes, raise_failed
from pyclient.admin.given import mapping, names
from pyclient.admin.routing import attempted
from pyclient.client.core import ClientCore
from pyclient.client.facade_base import OPTION
from pyclient.core.calls import Call, Finish
from pyclient.core.admin.users import HASHES, Salted, alter_quotas_call, alter_scram_call, describe_quotas_call, describe_scram_call, salted
from pyclient.descriptions.users import (
    FEWEST_ITERATIONS, MOST_ITERATIONS, QuotaEntity, QuotaName, ScramCredential, ScramDeletion, ScramPassword,
)
from pyclient.errors import KafkaError
from pyclient.runtime.network import in_a_thread

ScramChange: TypeAlias = ScramPassword | ScramDeletion
Quotas: TypeAlias = Mapping[str, float | None]
EVERY_QUOTA: Final = QuotaEntity()
SALT_BYTES: Final = 24


class AsyncUserCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern users and quotas."""

    async def describe_scram_users(self, users: Iterable[str] | None = None, *,
                                   timeout: float | None = OPTION) -> dict[str, tuple[ScramCredential, ...]]:
        """By which mechanisms users can log in (KIP-554); *users* None: all that have a credential.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ResourceNotFoundError (a user has no credential), ClusterAuthorizationError, …: for a single user;
                PartialFailureError: for several.
        """
        wanted = None if users is None else list(dict.fromkeys(names(users, "users")))
        answers: dict[str, Any] = await self._core.call(
            lambda finish, deadline: describe_scram_call(wanted, finish=finish, deadline=deadline), self._limit(timeout))
        return outcomes(sorted(answers) if wanted is None else wanted, answers, what="user")

    async def alter_scram_users(self, changes: Mapping[str, ScramChange | Sequence[ScramChange]], *, timeout: float | None = OPTION) -> None:
        """Make *changes*: set passwords of users, or delete credentials; one change or several for each user, by
        mechanism.

        Passwords are salted and hashed here. Brokers learn of changes a little later. Changes of one user are made in
        their order, for a request may change a user once; the first that is refused ends those of its user.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, ResourceNotFoundError (nothing to delete), UnacceptableCredentialError, …: for a
                single user; PartialFailureError: for several.
        """
        given = mapping(changes, "changes", '{"anna": ScramPassword("…")}')
        wanted = {user: _changes(user, given[user]) for user in names(given, "users")}
        hashed = {user: [await _hashed(self._core, each) for each in those] for user, those in wanted.items()}
        left = self._left_of(timeout)
        outcome: dict[str, KafkaError | None] = dict.fromkeys(hashed)
        for at in range(max(map(len, hashed.values()), default=0)):
            these = {user: those[at] for user, those in hashed.items() if at < len(those) and outcome[user] is None}
            if these:
                answers = await attempted(self._core, partial(_altering, these), left())
                outcome |= {user: answers if isinstance(answers, KafkaError) else answer_of(answers, user, "user") for user in these}
        raise_failed(list(hashed), outcome, what="user")

    async def describe_quotas(self, matching: QuotaEntity = EVERY_QUOTA, *, strict: bool = False,
                              timeout: float | None = OPTION) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas by entity (KIP-546): of those that agree with *matching*, which may have `QuotaName.ANY`.

        With *strict* an entity must not have other parts: ``QuotaEntity(user="anna")`` then leaves out her client ids.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, …
        """
        wanted = _entity(matching)
        found: dict[QuotaEntity, dict[str, float]] = await self._core.call(
            lambda finish, deadline: describe_quotas_call(wanted, strict=strict, finish=finish, deadline=deadline), self._limit(timeout))
        return dict(sorted(found.items(), key=str))

    async def alter_quotas(self, changes: Mapping[QuotaEntity, Quotas], *, validate_only: bool = False, timeout: float | None = OPTION) -> None:
        """Make *changes*: set quotas of entities; None removes one. Those that are not named stay.

        Kafka's keys: ``producer_byte_rate``, ``consumer_byte_rate``, ``request_percentage``,
        ``controller_mutation_rate``, and ``connection_creation_rate`` of addresses.

        With *validate_only* the broker checks them and changes nothing.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, InvalidRequestError (an unknown key or a wrong value), …: for a single entity;
                PartialFailureError: for several.
        """
        given = mapping(changes, "changes", '{QuotaEntity(user="anna"): {"producer_byte_rate": 1000000}}')
        wanted = {_altered(entity): _quotas(entity, quotas) for entity, quotas in given.items()}
        if wanted:
            answers = await self._core.call(lambda finish, deadline: alter_quotas_call(
                wanted, validate_only=validate_only, finish=finish, deadline=deadline), self._limit(timeout))
            raise_failed(list(wanted), answers, what="entity")


class UserCalls(BlockingCalls):
    """Calls of `Admin` that concern users and quotas."""

    _admin: AsyncUserCalls

    def describe_scram_users(self, users: Iterable[str] | None = None, *, timeout: float | None = OPTION) -> dict[str, tuple[ScramCredential, ...]]:
        """By which mechanisms users can log in (KIP-554); *users* None: all that have a credential.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ResourceNotFoundError (a user has no credential), ClusterAuthorizationError, …: for a single user;
                PartialFailureError: for several.
        """
        return self._call(lambda: self._admin.describe_scram_users(users, timeout=timeout))

    def alter_scram_users(self, changes: Mapping[str, ScramChange | Sequence[ScramChange]], *, timeout: float | None = OPTION) -> None:
        """Make *changes*: set passwords of users, or delete credentials; one change or several for each user, by
        mechanism.

        Passwords are salted and hashed here. Brokers learn of changes a little later. Changes of one user are made in
        their order, for a request may change a user once; the first that is refused ends those of its user.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, ResourceNotFoundError (nothing to delete), UnacceptableCredentialError, …: for a
                single user; PartialFailureError: for several.
        """
        self._call(lambda: self._admin.alter_scram_users(changes, timeout=timeout))

    def describe_quotas(self, matching: QuotaEntity = EVERY_QUOTA, *, strict: bool = False,
                        timeout: float | None = OPTION) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas by entity (KIP-546): of those that agree with *matching*, which may have `QuotaName.ANY`.

        With *strict* an entity must not have other parts: ``QuotaEntity(user="anna")`` then leaves out her client ids.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, …
        """
        return self._call(lambda: self._admin.describe_quotas(matching, strict=strict, timeout=timeout))

    def alter_quotas(self, changes: Mapping[QuotaEntity, Quotas], *, validate_only: bool = False, timeout: float | None = OPTION) -> None:
        """Make *changes*: set quotas of entities; None removes one. Those that are not named stay.

        Kafka's keys: ``producer_byte_rate``, ``consumer_byte_rate``, ``request_percentage``,
        ``controller_mutation_rate``, and ``connection_creation_rate`` of addresses.

        With *validate_only* the broker checks them and changes nothing.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, InvalidRequestError (an unknown key or a wrong value), …: for a single entity;
                PartialFailureError: for several.
        """
        self._call(lambda: self._admin.alter_quotas(changes, validate_only=validate_only, timeout=timeout))


def _altering(changes: Mapping[str, Salted | ScramDeletion], finish: Finish, deadline: float | None) -> Call:
    return alter_scram_call(changes, finish=finish, deadline=deadline)


async def _hashed(core: ClientCore, change: ScramChange) -> Salted | ScramDeletion:
    if not isinstance(change, ScramPassword):
        return change
    return await in_a_thread(core.reactor, lambda: salted(change, secrets.token_bytes(SALT_BYTES)))


def _changes(user: str, given: object) -> list[ScramChange]:
    those = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return [_change(user, each) for each in those]


def _change(user: str, given: object) -> ScramChange:
    if not isinstance(given, ScramPassword | ScramDeletion):
        raise TypeError(f"user {user!r}: expected ScramPassword(...) or ScramDeletion(...), got {type(given).__name__}")
    if given.mechanism not in HASHES:
        raise ValueError(f"user {user!r}: {given.mechanism!r} is no SCRAM mechanism that can be set")
    if isinstance(given, ScramPassword):
        _check(user, given)
    return given


def _check(user: str, change: ScramPassword) -> None:
    if not change.password:
        raise ValueError(f"user {user!r}: the password is empty")
    if not FEWEST_ITERATIONS <= change.iterations <= MOST_ITERATIONS:
        raise ValueError(f"user {user!r}: iterations is {change.iterations}: Kafka takes {FEWEST_ITERATIONS} to {MOST_ITERATIONS}")


def _quotas(entity: QuotaEntity, given: object) -> dict[str, float | None]:
    quotas = mapping(given, f"the quotas of {entity}", '{"producer_byte_rate": 1000000}')
    for key, value in quotas.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"{key} of {entity} is {value!r}: expected a number, or None to remove it")
    return dict(quotas)


def _entity(given: object) -> QuotaEntity:
    if not isinstance(given, QuotaEntity):
        raise TypeError(f'expected QuotaEntity(user="anna"), got {type(given).__name__}: {given!r}')
    return given


def _altered(given: object) -> QuotaEntity:
    entity = _entity(given)
    if QuotaName.ANY in entity or not any(entity):
        raise ValueError(f"{entity}: name a user, a client id or an address, or QuotaName.DEFAULT; ANY is for filters")
    return entity
