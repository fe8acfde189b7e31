"""The requests of a member of a classic group, one function each, and what their responses mean (G03)."""
from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from pyclient.codec.apis import Api
from pyclient.codec.consumer_protocol import decode_assignment
from pyclient.core.calls import Call, CallOutcome, Coordinator, Done, Finish
from pyclient.core.group.coordinator import HEARTBEATS_IN_A_SESSION, GroupOptions, Identity, refusal, silence_of_a_coordinator
from pyclient.core.manager import Use
from pyclient.core.silence import LATEST, silence_timeout_s
from pyclient.errors import ProtocolError
from pyclient.records import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
JOIN_GRACE: Final = 5.0
"""Seconds added to the rebalance timeout: the broker responds when the rebalance is over (G03)."""
MEMBER_ID_REQUIRED: Final = 79
BATCHED_SINCE: Final = 3  # LeaveGroup
STABLE: Final = "Stable"
REASON_LIMIT: Final = 255


@attrs.frozen
class MemberIdAssigned:
    """The coordinator assigned a member id, with which the member must join again (KIP-394)."""

    member_id: str


@attrs.frozen(kw_only=True)
class Joined:
    """All members have joined. Only the leader receives *members*: id → (instance id, subscription).

    *skips_assignment*: the coordinator keeps the assignments, so the leader makes none (KIP-814).
    """

    identity: Identity
    assignor: str
    leads: bool
    skips_assignment: bool
    members: Mapping[str, tuple[str | None, bytes]]


def join_call(options: GroupOptions, identity: Identity, protocols: Sequence[tuple[str, bytes]], reason: str, finish: Finish) -> Call:
    """Join with these (assignor, subscription) pairs; the result is `MemberIdAssigned` or `Joined`."""

    def fields(version: int) -> dict[str, object]:
        return {
            "group_id": options.group_id, "session_timeout": _span(options.session_timeout),
            "rebalance_timeout": _span(options.rebalance_timeout), "member_id": identity.member_id,
            "group_instance_id": options.instance_id, "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": name, "metadata": subscription} for name, subscription in protocols],
            "reason": reason[:REASON_LIMIT],
        }

    def classify(message: Any) -> CallOutcome:
        if message.error_code == MEMBER_ID_REQUIRED:
            return Done(MemberIdAssigned(message.member_id))
        return refusal(Api.JOIN_GROUP, message.error_code, options.group_id) if message.error_code else Done(_joined(message))

    return _call(options, "joining", Api.JOIN_GROUP, fields, classify, finish, waits=True)


def _joined(message: Any) -> Joined:
    return Joined(
        identity=Identity(message.generation_id, message.member_id), assignor=message.protocol_name or "",
        leads=message.leader == message.member_id, skips_assignment=getattr(message, "skip_assignment", False),
        members={each.member_id: (getattr(each, "group_instance_id", None), bytes(each.metadata)) for each in message.members})


def sync_call(options: GroupOptions, joined: Joined, assignments: Mapping[str, bytes], finish: Finish) -> Call:
    """Get this member's assignment (bytes); the leader sends the *assignments* of all members."""

    def fields(version: int) -> dict[str, object]:
        return {
            **_who(options, joined.identity), "protocol_type": PROTOCOL_TYPE, "protocol_name": joined.assignor,
            "assignments": [{"member_id": member, "assignment": assignment} for member, assignment in assignments.items()],
        }

    def classify(message: Any) -> CallOutcome:
        return refusal(Api.SYNC_GROUP, message.error_code, options.group_id) if message.error_code else Done(bytes(message.assignment))

    return _call(options, "getting the assignment from", Api.SYNC_GROUP, fields, classify, finish, waits=True)


def heartbeat_call(options: GroupOptions, identity: Identity, finish: Finish) -> Call:
    """Show that the member is alive; the result is None."""

    def classify(message: Any) -> CallOutcome:
        return refusal(Api.HEARTBEAT, message.error_code, options.group_id) if message.error_code else Done(None)

    call = _call(options, "a heartbeat to", Api.HEARTBEAT, lambda version: _who(options, identity), classify, finish)
    call.timeout = silence_of_a_coordinator(options.request_timeout, options.session_timeout / HEARTBEATS_IN_A_SESSION)
    call.silence_timeout_s = min(options.heartbeat_interval, LATEST * silence_timeout_s(options.request_timeout))  # the next one is due then: one wake-up less
    return call


def describe_group_call(options: GroupOptions, finish: Finish) -> Call:
    """All partitions assigned to members, a frozenset; None while the group rebalances, or if an assignment cannot be
    decoded.
    """

    def classify(message: Any) -> CallOutcome:
        (group,) = message.groups
        return refusal(Api.DESCRIBE_GROUPS, group.error_code, options.group_id) if group.error_code else Done(_assigned(group))

    return _call(options, "looking up the assignments of", Api.DESCRIBE_GROUPS,
                 lambda version: {"groups": [options.group_id], "include_authorized_operations": False}, classify, finish)


def _assigned(group: Any) -> frozenset[TopicPartition] | None:
    if group.group_state != STABLE:
        return None
    try:
        assignments = [decode_assignment(bytes(each.member_assignment)) for each in group.members if each.member_assignment]
    except ProtocolError:
        return None
    return frozenset(tp for each in assignments for tp in each.partitions)


def leave_call(options: GroupOptions, identity: Identity, reason: str, finish: Finish, deadline: float | None) -> Call:
    """Leave; the result is None."""

    def fields(version: int) -> dict[str, object]:
        if version < BATCHED_SINCE:
            return {"group_id": options.group_id, "member_id": identity.member_id}
        who = {"member_id": identity.member_id, "group_instance_id": options.instance_id, "reason": reason[:REASON_LIMIT]}
        return {"group_id": options.group_id, "members": [who]}

    def classify(message: Any) -> CallOutcome:
        codes = [message.error_code, *(each.error_code for each in getattr(message, "members", ()))]
        code = next((code for code in codes if code), 0)
        return refusal(Api.LEAVE_GROUP, code, options.group_id) if code else Done(None)

    return attrs.evolve(_call(options, "leaving", Api.LEAVE_GROUP, fields, classify, finish), deadline=deadline)


def _who(options: GroupOptions, identity: Identity) -> dict[str, object]:
    return {"group_id": options.group_id, "generation_id": identity.generation, "member_id": identity.member_id,
            "group_instance_id": options.instance_id}


def _call(options: GroupOptions, doing: str, api: Api, fields: Any, classify: Any, finish: Finish, *, waits: bool = False) -> Call:
    """*waits*: the response comes when the other members are ready, so the request gets a connection of its own."""
    join_timeout_s = max(options.request_timeout, options.rebalance_timeout + JOIN_GRACE)
    return Call(
        what=f"{doing} group {options.group_id!r}", api=api, target=Coordinator(options.group_id), fields=fields, classify=classify, finish=finish,
        deadline=None, use=Use.MEMBERSHIP if waits else Use.COORDINATION, timeout=join_timeout_s if waits else options.request_timeout)


def _span(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=seconds)
