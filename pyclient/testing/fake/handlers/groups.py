"""Classic groups: joining and leaving them, and what admins see of them. The rules are in `membership` and `group`."""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.consumer_group import ConsumerGroup
from pyclient.testing.fake.model.coordinator import AnyGroup, Coordinator
from pyclient.testing.fake.model.group import Group, Member, State
from pyclient.testing.fake.model.classic_members import ClassicMembers
from pyclient.testing.fake.model.heartbeats import ConsumerMembership
from pyclient.testing.fake.model.membership import Joining, Membership, Pending, current, join_error, sync_error
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.refusal import RefusalError

MILLISECOND: Final = timedelta(milliseconds=1)
KNOWN_ID_SINCE: Final = 4
NAMES_SINCE: Final = 5
NULLABLE_NAME_SINCE: Final = 7
SKIP_SINCE: Final = 9
LEAVE_BATCHED_SINCE: Final = 3
NOT_FOUND_SINCE: Final = 6
NO_OPERATIONS: Final = -(2**31)
ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: there is no authorizer."""


# ---- members ---------------------------------------------------------------------------------------------------------


def join_group(kafka: Kafka, request: Request) -> Fields | Awaitable[Fields]:
    """Waits until the group has rebalanced."""
    body = request.body
    try:
        group = _named(kafka, request)
        _check_session_timeout(kafka, body.session_timeout // MILLISECOND)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return _join_answer(request, _joined_as_classic_member(kafka, group, request))
        joined = kafka.part(Membership).join(_classic(kafka, group), body.group_id, _joining(request))
    except RefusalError as refused:
        return _join_answer(request, join_error(refused.code, body.member_id))
    if isinstance(joined, asyncio.Future):
        return joined if request.version >= NULLABLE_NAME_SINCE else _later(request, joined)
    return _join_answer(request, joined)


def _joined_as_classic_member(kafka: Kafka, group: ConsumerGroup, request: Request) -> Fields:
    """A rejected member does not get its id."""
    try:
        return kafka.part(ClassicMembers).join(group, _joining(request))
    except RefusalError as refused:
        return join_error(refused.code)


async def _later(request: Request, joined: Pending) -> Fields:
    return _join_answer(request, await joined)


def refuse_join_group(request: Request, code: int) -> Fields:
    """An error, and the id the client gave."""
    return _join_answer(request, join_error(code, request.body.member_id))


def _join_answer(request: Request, fields: Fields) -> Fields:
    if request.version < NULLABLE_NAME_SINCE and fields["protocol_name"] is None:
        return {**fields, "protocol_name": ""}
    return fields


def _joining(request: Request) -> Joining:
    body = request.body
    return Joining(
        client_id=request.client_id or "", host=f"/{request.peer}", member_id=body.member_id,
        instance=getattr(body, "group_instance_id", None), session_timeout_ms=body.session_timeout // MILLISECOND,
        rebalance_timeout_ms=getattr(body, "rebalance_timeout", body.session_timeout) // MILLISECOND,
        protocol_type=body.protocol_type, protocols=tuple((each.name, bytes(each.metadata)) for each in body.protocols),
        needs_known_id=request.version >= KNOWN_ID_SINCE, may_skip_assignment=request.version >= SKIP_SINCE)


def _check_session_timeout(kafka: Kafka, session_timeout_ms: int) -> None:
    settings = kafka.settings
    if not settings.group_min_session_timeout_ms <= session_timeout_ms <= settings.group_max_session_timeout_ms:
        raise RefusalError(ErrorCode.invalid_session_timeout)


def sync_group(kafka: Kafka, request: Request) -> Fields | Pending:
    """Waits until the leader has sent the assignment."""
    body = request.body
    theirs = getattr(body, "protocol_type", None), getattr(body, "protocol_name", None)
    if request.version >= NAMES_SINCE and None in theirs:
        return sync_error(ErrorCode.inconsistent_group_protocol)
    try:
        group = _named(kafka, request)
        if isinstance(group, ConsumerGroup):
            return kafka.part(ClassicMembers).sync(group, body.member_id, getattr(body, "group_instance_id", None), body.generation_id, theirs)
        group, member = _current(group, body)
        if theirs[0] not in (None, group.protocol_type) or theirs[1] not in (None, group.protocol):
            raise RefusalError(ErrorCode.inconsistent_group_protocol)
        return kafka.part(Membership).sync(group, member, {each.member_id: each.assignment for each in body.assignments})
    except RefusalError as refused:
        return sync_error(refused.code)


def refuse_sync_group(_request: Request, code: int) -> Fields:
    """An error, without assignment."""
    return sync_error(code)


def heartbeat(kafka: Kafka, request: Request) -> Fields:
    """A coordinator that is still loading says yes to everybody."""
    body = request.body
    try:
        group = _named(kafka, request)
        if isinstance(group, ConsumerGroup):
            kafka.part(ClassicMembers).heartbeat(group, body.member_id, getattr(body, "group_instance_id", None), body.generation_id)
        else:
            kafka.part(Membership).heartbeat(*_current(group, body))
    except RefusalError as refused:
        return refuse_heartbeat(request, 0 if refused.code == ErrorCode.coordinator_load_in_progress else refused.code)
    return refuse_heartbeat(request, 0)


def refuse_heartbeat(_request: Request, code: int) -> Fields:
    """The code alone."""
    return {"throttle_time": 0, "error_code": code}


def _classic(kafka: Kafka, group: AnyGroup | None) -> Group | None:
    """A classic group takes the place of an empty one of the next generation."""
    return kafka.part(Membership).made(group.id, group.offsets) if isinstance(group, ConsumerGroup) else group


def _named(kafka: Kafka, request: Request) -> AnyGroup | None:
    if not request.body.group_id:
        raise RefusalError(ErrorCode.invalid_group_id)
    return kafka.part(Coordinator).find(request.broker, request.body.group_id)


def _current(group: Group | None, body: Any) -> tuple[Group, Member]:
    if group is None:
        raise RefusalError(ErrorCode.unknown_member_id)
    return group, current(group, body.member_id, getattr(body, "group_instance_id", None), body.generation_id)


def leave_group(kafka: Kafka, request: Request) -> Fields:
    """One member, or since version 3 any number; the remaining ones rebalance."""
    try:
        group = _named(kafka, request)
    except RefusalError as refused:
        return refuse_leave_group(request, refused.code)
    codes = _left(kafka, group, _leaving(request))
    only = codes[0] if request.version < LEAVE_BATCHED_SINCE else 0
    return {"throttle_time": 0, "error_code": only, "members": [
        {"member_id": member_id, "group_instance_id": instance, "error_code": code}
        for (member_id, instance), code in zip(_leaving(request), codes, strict=True)]}


def _left(kafka: Kafka, group: AnyGroup | None, leaving: list[tuple[str, str | None]]) -> list[int]:
    match group:
        case Group():
            return kafka.part(Membership).leave_all(group, leaving)
        case ConsumerGroup():
            return kafka.part(ConsumerMembership).leave_all(group, leaving)
    return [ErrorCode.unknown_member_id] * len(leaving)


def refuse_leave_group(_request: Request, code: int) -> Fields:
    """An error for all of them."""
    return {"throttle_time": 0, "error_code": code, "members": []}


def _leaving(request: Request) -> list[tuple[str, str | None]]:
    if request.version < LEAVE_BATCHED_SINCE:
        return [(request.body.member_id, None)]
    return [(each.member_id, each.group_instance_id) for each in request.body.members]


# ---- admins ----------------------------------------------------------------------------------------------------------


def describe_groups(kafka: Kafka, request: Request) -> Fields:
    """State and members; what they said and have is shown while the group is stable."""
    return {"throttle_time": 0, "groups": [_described(kafka, request, each) for each in request.body.groups]}


def refuse_describe_groups(request: Request, code: int) -> Fields:
    """The error for every group."""
    return {"throttle_time": 0, "groups": [_unseen(request, each, code, None) for each in request.body.groups]}


def _described(kafka: Kafka, request: Request, group_id: str) -> Fields:
    try:
        group = kafka.part(Coordinator).find(request.broker, group_id)
    except RefusalError as refused:
        return _unseen(request, group_id, refused.code, None)
    if not isinstance(group, Group):
        has_error = request.version >= NOT_FOUND_SINCE
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        return {**_unseen(request, group_id, ErrorCode.group_id_not_found if has_error else 0, message if has_error else None), "group_state": State.DEAD.value}
    stable = group.state is State.STABLE
    return {**_unseen(request, group_id, 0, None), "group_state": group.state.value, "protocol_type": group.protocol_type or "",
            "protocol_data": group.protocol if stable else "",
            "members": [_member(each, group.protocol if stable else None) for each in group.members.values()]}


def _unseen(request: Request, group_id: str, code: int, message: str | None) -> dict[str, object]:
    operations = ALL_OPERATIONS if getattr(request.body, "include_authorized_operations", False) and code == 0 else NO_OPERATIONS
    return {"error_code": code, "error_message": message, "group_id": group_id, "group_state": "", "protocol_type": "", "protocol_data": "",
            "members": [], "authorized_operations": operations}


def _member(member: Member, protocol: str | None) -> Fields:
    return {"member_id": member.id, "group_instance_id": member.instance, "client_id": member.client_id, "client_host": member.host,
            "member_metadata": member.metadata(protocol), "member_assignment": member.assignment}


def list_groups(kafka: Kafka, request: Request) -> Fields:
    """The groups of the broker that was asked."""
    coordinator = kafka.part(Coordinator)
    groups = coordinator.of(request.broker)
    if any(coordinator.homes.loading(each.id) for each in groups):
        return refuse_list_groups(request, ErrorCode.coordinator_load_in_progress)
    return {"throttle_time": 0, "error_code": 0, "groups": [_listed(each) for each in groups if _wanted(request.body, each)]}


def refuse_list_groups(_request: Request, code: int) -> Fields:
    """An error, without groups."""
    return {"throttle_time": 0, "error_code": code, "groups": []}


def _wanted(body: Any, group: AnyGroup) -> bool:
    states = [each.lower() for each in getattr(body, "states_filter", ())]
    types = [each.lower() for each in getattr(body, "types_filter", ())]
    return (not states or group.state.value.lower() in states) and (not types or group.kind in types)


def _listed(group: AnyGroup) -> Fields:
    return {"group_id": group.id, "protocol_type": group.protocol_type or "", "group_state": group.state.value, "group_type": group.kind}


def delete_groups(kafka: Kafka, request: Request) -> Fields:
    """Empty ones only; their offsets go with them."""
    return {"throttle_time": 0, "results": [{"group_id": each, "error_code": _deleted(kafka, request.broker, each)}
                                            for each in dict.fromkeys(request.body.groups_names)]}


def refuse_delete_groups(request: Request, code: int) -> Fields:
    """The error for every group."""
    return {"throttle_time": 0, "results": [{"group_id": each, "error_code": code} for each in request.body.groups_names]}


def _deleted(kafka: Kafka, broker: int, group_id: str) -> int:
    coordinator = kafka.part(Coordinator)
    try:
        group = coordinator.find(broker, group_id)
    except RefusalError as refused:
        return refused.code
    if group is None:
        return ErrorCode.group_id_not_found
    if not group.is_empty:
        return ErrorCode.non_empty_group
    coordinator.delete(group)
    return 0
