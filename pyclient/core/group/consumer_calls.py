"""The request of the consumer protocol (KIP-848), ConsumerGroupHeartbeat, and what its responses mean (N03, N07)."""
from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, Final

import attrs

from pyclient.codec.apis import Api, VersionRange
from pyclient.core.calls import Call, CallOutcome, Coordinator, Done, Finish
from pyclient.core.group.coordinator import GroupOptions, Identity, refusal
from pyclient.core.group.reconciliation import TopicIdPartition

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member leaves temporarily: the coordinator keeps its partitions for the session timeout."""
WITH_PATTERNS: Final = VersionRange(1, 99)
"""The versions in which brokers match regular expressions."""
UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH = 25, 69, 82, 110
_NOT_A_MEMBER: Final = frozenset({UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH})
_UNCHANGED: Final = datetime.timedelta(milliseconds=-1)


@attrs.frozen
class SubscriptionFields:
    """A subscription as heartbeats state it; *pattern* is matched by the brokers, empty for none."""

    topics: tuple[str, ...] = ()
    pattern: str = ""


@attrs.frozen(kw_only=True)
class HeartbeatFields:
    """What one heartbeat states besides the member's identity; None: unchanged. *full*: it states everything."""

    full: bool
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    owned: frozenset[TopicIdPartition] | None = None


@attrs.frozen
class HeartbeatResponse:
    """The member's epoch, the heartbeat interval in seconds, and the assignment if it has changed."""

    epoch: int
    interval: float
    assignment: frozenset[TopicIdPartition] | None


def heartbeat_call(options: GroupOptions, identity: Identity, heartbeat: HeartbeatFields, finish: Finish) -> Call:
    """Join, or stay a member; the result is a `HeartbeatResponse`.

    It is not retried: after a failure its fields may be outdated.
    """

    def classify(message: Any) -> CallOutcome:
        if message.error_code:
            return refusal(Api.CONSUMER_GROUP_HEARTBEAT, message.error_code, options.group_id, message=message.error_message,
                           topics=sorted(heartbeat.topics or ()))
        return Done(HeartbeatResponse(message.member_epoch, message.heartbeat_interval.total_seconds(), _assigned(message.assignment)))

    epoch = identity.generation if identity.joined else JOIN_EPOCH
    call = _call(options, "a heartbeat to", {**_who(options, identity.member_id, epoch), **_what(options, heartbeat)}, classify, finish)
    call.once, call.versions = True, WITH_PATTERNS if heartbeat.pattern else None
    return call


def leave_call(options: GroupOptions, member_id: str, finish: Finish, deadline: float | None, *, permanently: bool = False) -> Call:
    """Leave, a static member temporarily, unless it is to be *permanently*; the result is None.

    A coordinator that does not know the member counts as success.
    """

    def classify(message: Any) -> CallOutcome:
        code = message.error_code
        if code and code not in _NOT_A_MEMBER:
            return refusal(Api.CONSUMER_GROUP_HEARTBEAT, code, options.group_id, message=message.error_message)
        return Done(None)

    epoch = LEAVE_EPOCH if options.instance_id is None or permanently else STATIC_LEAVE_EPOCH
    nothing = HeartbeatFields(full=False)
    call = _call(options, "leaving", {**_who(options, member_id, epoch), **_what(options, nothing)}, classify, finish)
    return attrs.evolve(call, deadline=deadline)


def _who(options: GroupOptions, member_id: str, epoch: int) -> dict[str, object]:
    return {"group_id": options.group_id, "member_id": member_id, "member_epoch": epoch, "instance_id": options.instance_id}


def _what(options: GroupOptions, heartbeat: HeartbeatFields) -> dict[str, object]:
    return {
        "rack_id": options.rack if heartbeat.full else None,
        "rebalance_timeout": datetime.timedelta(seconds=options.rebalance_timeout) if heartbeat.full else _UNCHANGED,
        "server_assignor": options.remote_assignor if heartbeat.full else None,
        "subscribed_topic_names": heartbeat.topics,
        "subscribed_topic_regex": heartbeat.pattern,
        "topic_partitions": None if heartbeat.owned is None else _by_topic(heartbeat.owned),
    }


def _by_topic(partitions: Iterable[TopicIdPartition]) -> list[dict[str, object]]:
    topics: dict[object, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in topics.items()]


def _assigned(assignment: Any) -> frozenset[TopicIdPartition] | None:
    if assignment is None:
        return None
    return frozenset((each.topic_id, number) for each in assignment.topic_partitions for number in each.partitions if each.topic_id is not None)


def _call(options: GroupOptions, doing: str, fields: dict[str, object], classify: Any, finish: Finish) -> Call:
    return Call(
        what=f"{doing} group {options.group_id!r}", api=Api.CONSUMER_GROUP_HEARTBEAT, target=Coordinator(options.group_id),
        fields=lambda version: fields, classify=classify, finish=finish, deadline=None, timeout=options.request_timeout)
