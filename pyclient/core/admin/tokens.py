"""Delegation tokens as calls (KIP-48). Each broker answers them; a controller carries them out."""
from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.admin.items import refused
from pyclient.core.calls import Anywhere, Call, CallOutcome, Done, Finish
from pyclient.descriptions.tokens import DelegationToken

DEFAULT: Final = -1
"""The brokers' own lifetime or period; to end a token with it ends it at once."""
OTHERS_SINCE: Final = 3
"""Since this version (KIP-373) a token can be created for another user, and responses name who did."""
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)


def create_token_call(owner: str | None, renewers: Sequence[str], lifetime_ms: int, *, finish: Finish, deadline: float | None) -> Call:
    """Create a token for *owner*; None: for the user that is logged in. The result is the token."""
    def fields(version: int) -> dict[str, object]:
        made: dict[str, object] = {"renewers": [_principal(each) for each in renewers], "max_lifetime": lifetime_ms}
        if version >= OTHERS_SINCE:
            kind, name = (None, None) if owner is None else _parts(owner)
            made |= {"owner_principal_type": kind, "owner_principal_name": name}
        return made

    def classify(message: Any) -> CallOutcome:
        return refused(Api.CREATE_DELEGATION_TOKEN, message, user=owner or "") or Done(DelegationToken(
            message.token_id, _shown(message.principal_type, message.principal_name), _requester(message), tuple(renewers),
            _ms(message.issue_timestamp), _ms(message.expiry_timestamp), _ms(message.max_timestamp), message.hmac))

    versions = None if owner is None else VersionRange(OTHERS_SINCE, SPOKEN[Api.CREATE_DELEGATION_TOKEN].high)
    return Call(what="creating a delegation token", api=Api.CREATE_DELEGATION_TOKEN, target=Anywhere.ANY_NODE, classify=classify, finish=finish,
                deadline=deadline, fields=fields, versions=versions)


def describe_tokens_call(owners: Sequence[str] | None, *, finish: Finish, deadline: float | None) -> Call:
    """The tokens of *owners* (None: of all) that the user may see."""
    wanted = None if owners is None else [_principal(each) for each in owners]

    def classify(message: Any) -> CallOutcome:
        return refused(Api.DESCRIBE_DELEGATION_TOKEN, message) or Done([DelegationToken(
            each.token_id, _shown(each.principal_type, each.principal_name), _requester(each),
            tuple(_shown(one.principal_type, one.principal_name) for one in each.renewers),
            each.issue_timestamp, each.expiry_timestamp, each.max_timestamp, each.hmac) for each in message.tokens])

    return Call(what="describing delegation tokens", api=Api.DESCRIBE_DELEGATION_TOKEN, target=Anywhere.ANY_NODE, classify=classify, finish=finish,
                deadline=deadline, fields=lambda version: {"owners": wanted})


def renew_token_call(hmac: bytes, period_ms: int, *, finish: Finish, deadline: float | None) -> Call:
    """Renew a token; the result is when it expires, in ms since the epoch."""
    return _period_call(Api.RENEW_DELEGATION_TOKEN, "renewing", {"hmac": hmac, "renew_period": period_ms}, finish, deadline)


def expire_token_call(hmac: bytes, period_ms: int, *, finish: Finish, deadline: float | None) -> Call:
    """Let a token expire; the result is when it does."""
    return _period_call(Api.EXPIRE_DELEGATION_TOKEN, "expiring", {"hmac": hmac, "expiry_time_period": period_ms}, finish, deadline)


def _period_call(api: Api, verb: str, fields: dict[str, object], finish: Finish, deadline: float | None) -> Call:
    def classify(message: Any) -> CallOutcome:
        return refused(api, message) or Done(_ms(message.expiry_timestamp))

    return Call(what=f"{verb} a delegation token", api=api, target=Anywhere.ANY_NODE, classify=classify, finish=finish, deadline=deadline,
                fields=lambda version: fields)


def _principal(text: str) -> dict[str, object]:
    kind, name = _parts(text)
    return {"principal_type": kind, "principal_name": name}


def _parts(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    return kind, name


def _requester(message: Any) -> str:
    """Before version 3 only the owner could create a token."""
    kind = getattr(message, "token_requester_principal_type", None)
    return _shown(message.principal_type, message.principal_name) if kind is None else _shown(kind, message.token_requester_principal_name)


def _shown(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def _ms(time: datetime.datetime) -> int:
    return (time - EPOCH) // MILLISECOND
