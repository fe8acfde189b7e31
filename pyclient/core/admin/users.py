"""Users and quotas as calls: SCRAM credentials, client quotas."""
from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Final

import attrs

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.core.admin.items import refused, settled
from pyclient.core.calls import Anywhere, Call, CallOutcome, Done, Finish
from pyclient.descriptions.users import QuotaEntity, QuotaName, ScramCredential, ScramDeletion, ScramMechanism, ScramPassword
from pyclient.errors import KafkaError, ResourceNotFoundError

HASHES: Final = {ScramMechanism.SHA_256: "sha256", ScramMechanism.SHA_512: "sha512"}
KINDS: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Field of `QuotaEntity` → Kafka's entity type."""
EXACT, DEFAULT, ANY = range(3)
"""Match types of DescribeClientQuotas."""


@attrs.frozen
class Salted:
    """What is sent of a password."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes = attrs.field(repr=False)
    hashed: bytes = attrs.field(repr=False)


def salted(given: ScramPassword, salt: bytes) -> Salted:
    """The password, salted and hashed as RFC 5802 says; takes some milliseconds."""
    return Salted(given.mechanism, given.iterations, salt,
                  hashlib.pbkdf2_hmac(HASHES[given.mechanism], given.password.encode(), salt, given.iterations))


def describe_scram_call(users: Collection[str] | None, *, finish: Finish, deadline: float | None) -> Call:
    """The credentials of users (None: of all that have any); the result maps each to its credentials, or its error."""
    wanted = None if users is None else [{"name": each} for each in users]

    def classify(message: Any) -> CallOutcome:
        return refused(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, message) or Done({each.user: _credentials(each) for each in message.results})

    return Call(what="describing SCRAM users", api=Api.DESCRIBE_USER_SCRAM_CREDENTIALS, target=Anywhere.ANY_NODE, classify=classify, finish=finish,
                deadline=deadline, fields=lambda version: {"users": wanted})


def _credentials(result: Any) -> tuple[ScramCredential, ...] | KafkaError:
    if result.error_code == ResourceNotFoundError.code:
        return ResourceNotFoundError(f"user {result.user!r} has no SCRAM credential: check the name (describe_scram_users() lists all users that have "
                                     f"one), or give it one with alter_scram_users. [{ResourceNotFoundError.name}]")
    if result.error_code:
        return _error(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, f"user {result.user!r}", result)
    return tuple(ScramCredential(ScramMechanism(each.mechanism), each.iterations) for each in result.credential_infos)


def alter_scram_call(changes: Mapping[str, Salted | ScramDeletion], *, finish: Finish, deadline: float | None) -> Call:
    """Set or delete a credential of each user; the result maps each to None or its error.

    A controller refuses a request that has a user twice (DUPLICATE_RESOURCE).
    """
    upserts = [{"name": user, "mechanism": each.mechanism, "iterations": each.iterations, "salt": each.salt, "salted_password": each.hashed}
               for user, each in changes.items() if isinstance(each, Salted)]
    deletions = [{"name": user, "mechanism": each.mechanism} for user, each in changes.items() if isinstance(each, ScramDeletion)]

    def classify(message: Any) -> CallOutcome:
        return settled({each.user: _error(Api.ALTER_USER_SCRAM_CREDENTIALS, f"user {each.user!r}", each) if each.error_code else None
                         for each in message.results})

    return Call(what=f"altering the SCRAM credentials of {len(changes)} users", api=Api.ALTER_USER_SCRAM_CREDENTIALS, target=Anywhere.CONTROLLER,
                classify=classify, finish=finish, deadline=deadline, fields=lambda version: {"deletions": deletions, "upsertions": upserts})


def describe_quotas_call(matching: QuotaEntity, *, strict: bool, finish: Finish, deadline: float | None) -> Call:
    """The quotas of entities that agree with a filter, by entity. *strict*: of those that have no other part."""
    components = [_component(kind, name) for kind, name in _parts(matching)]

    def classify(message: Any) -> CallOutcome:
        return refused(Api.DESCRIBE_CLIENT_QUOTAS, message) or Done({_entity(each.entity): {value.key: value.value for value in each.values} for each in message.entries or ()})

    return Call(what="describing quotas", api=Api.DESCRIBE_CLIENT_QUOTAS, target=Anywhere.ANY_NODE, classify=classify, finish=finish, deadline=deadline,
                fields=lambda version: {"components": components, "strict": strict})


def alter_quotas_call(changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool, finish: Finish, deadline: float | None) -> Call:
    """Set quotas, or remove those that are None; the result maps each entity to None or its error."""
    entries = [{"entity": _named(entity), "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]}
               for entity, quotas in changes.items()]

    def classify(message: Any) -> CallOutcome:
        return settled({(entity := _entity(each.entity)): _error(Api.ALTER_CLIENT_QUOTAS, str(entity), each) if each.error_code else None
                         for each in message.entries})

    return Call(what=f"altering the quotas of {len(changes)} entities", api=Api.ALTER_CLIENT_QUOTAS, target=Anywhere.CONTROLLER, classify=classify,
                finish=finish, deadline=deadline, fields=lambda version: {"entries": entries, "validate_only": validate_only})


def _error(api: Api, what: str, result: Any) -> KafkaError:
    return error_of(api, result.error_code, what + (f": {result.error_message}" if result.error_message else ""))


def _parts(entity: QuotaEntity) -> list[tuple[str, str | QuotaName]]:
    return [(KINDS[field], name) for field, name in zip(QuotaEntity._fields, entity, strict=True) if name is not None]


def _component(kind: str, name: str | QuotaName) -> dict[str, object]:
    match name:
        case QuotaName.ANY:
            return {"entity_type": kind, "match_type": ANY, "match": None}
        case QuotaName.DEFAULT:
            return {"entity_type": kind, "match_type": DEFAULT, "match": None}
    return {"entity_type": kind, "match_type": EXACT, "match": name}


def _named(entity: QuotaEntity) -> list[dict[str, object]]:
    return [{"entity_type": kind, "entity_name": None if name is QuotaName.DEFAULT else name} for kind, name in _parts(entity)]


def _entity(parts: Collection[Any]) -> QuotaEntity:
    names = {each.entity_type: QuotaName.DEFAULT if each.entity_name is None else each.entity_name for each in parts}
    return QuotaEntity(**{field: names.get(kind) for field, kind in KINDS.items()})
