"""What a member of a group of the next generation tells its coordinator, and what the answers mean (N03, N07): one request does it all."""
from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, Final

import attrs

from pyclient.codec.apis import Api, VersionRange
from pyclient.core.calls import Call, CallOutcome, Coordinator, Done, Finish
from pyclient.core.group.answers import refused
from pyclient.core.group.membership import GroupOptions, Identity
from pyclient.core.group.reconciliation import Place

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_NOW: Final = -2
"""What is said instead of an epoch."""
WITH_PATTERNS: Final = VersionRange(1, 99)
"""The versions in which brokers match regular expressions."""
UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH = 25, 69, 82, 110
_NO_MEMBER: Final = frozenset({UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH})
_UNSAID: Final = datetime.timedelta(milliseconds=-1)


@attrs.frozen
class Wishes:
    """What a member subscribes to; *pattern* is for the brokers, empty for none."""

    topics: tuple[str, ...] = ()
    pattern: str = ""


@attrs.frozen(kw_only=True)
class Saying:
    """What one heartbeat says besides who it is of; None is what has not changed. *full*: all there is to say."""

    full: bool
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    owned: frozenset[Place] | None = None


@attrs.frozen
class Told:
    """What the coordinator answered: the epoch, the seconds to the next heartbeat, and what the member is to have, if that is news."""

    epoch: int
    interval: float
    assignment: frozenset[Place] | None


def say(wishes: Wishes, before: Wishes | None, owned: frozenset[Place], *, owes: bool) -> Saying:
    """What has changed since *before* was heard, everything if that is None; what is owned if that is owed."""
    full = before is None
    return Saying(
        full=full,
        topics=wishes.topics if before is None or wishes.topics != before.topics else None,
        pattern=wishes.pattern if before is None or wishes.pattern != before.pattern else None,
        owned=owned if full or owes else None)


def beat_call(options: GroupOptions, identity: Identity, saying: Saying, finish: Finish) -> Call:
    """Join, or tell that the member lives; the result is `Told`. It is sent once: what it says may not hold any more when it fails."""

    def judge(message: Any) -> CallOutcome:
        if message.error_code:
            return refused(Api.CONSUMER_GROUP_HEARTBEAT, message.error_code, options.group_id, said=message.error_message, topics=sorted(saying.topics or ()))
        return Done(Told(message.member_epoch, message.heartbeat_interval.total_seconds(), _assigned(message.assignment)))

    epoch = identity.generation if identity.joined else JOINS
    call = _call(options, "a heartbeat to", {**_who(options, identity.member_id, epoch), **_what(options, saying)}, judge, finish)
    return attrs.evolve(call, once=True, versions=WITH_PATTERNS if saying.pattern else None)


def leave_call(options: GroupOptions, member_id: str, finish: Finish, deadline: float | None) -> Call:
    """Leave, a static member for now only; the result is None. That the coordinator does not know the member does as well."""

    def judge(message: Any) -> CallOutcome:
        code = message.error_code
        return refused(Api.CONSUMER_GROUP_HEARTBEAT, code, options.group_id, said=message.error_message) if code and code not in _NO_MEMBER else Done(None)

    epoch = LEAVES if options.instance_id is None else LEAVES_FOR_NOW
    nothing = Saying(full=False)
    call = _call(options, "leaving", {**_who(options, member_id, epoch), **_what(options, nothing)}, judge, finish)
    return attrs.evolve(call, deadline=deadline)


def _who(options: GroupOptions, member_id: str, epoch: int) -> dict[str, object]:
    return {"group_id": options.group_id, "member_id": member_id, "member_epoch": epoch, "instance_id": options.instance_id}


def _what(options: GroupOptions, saying: Saying) -> dict[str, object]:
    return {
        "rack_id": options.rack if saying.full else None,
        "rebalance_timeout": datetime.timedelta(seconds=options.rebalance_timeout) if saying.full else _UNSAID,
        "server_assignor": options.remote_assignor if saying.full else None,
        "subscribed_topic_names": saying.topics,
        "subscribed_topic_regex": saying.pattern,
        "topic_partitions": None if saying.owned is None else _by_topic(saying.owned),
    }


def _by_topic(places: Iterable[Place]) -> list[dict[str, object]]:
    topics: dict[object, list[int]] = {}
    for topic, number in sorted(places):
        topics.setdefault(topic, []).append(number)
    return [{"topic_id": topic, "partitions": numbers} for topic, numbers in topics.items()]


def _assigned(assignment: Any) -> frozenset[Place] | None:
    if assignment is None:
        return None
    return frozenset((each.topic_id, number) for each in assignment.topic_partitions for number in each.partitions if each.topic_id is not None)


def _call(options: GroupOptions, doing: str, fields: dict[str, object], judge: Any, finish: Finish) -> Call:
    return Call(
        what=f"{doing} group {options.group_id!r}", api=Api.CONSUMER_GROUP_HEARTBEAT, target=Coordinator(options.group_id),
        fields=lambda version: fields, judge=judge, finish=finish, deadline=None, timeout=options.request_timeout)
