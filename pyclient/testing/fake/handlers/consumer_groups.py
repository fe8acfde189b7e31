"""Consumer groups of the next generation (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe.

The rules are in `consumer_group` and `reconciliation`; here is what a request must look like, and how an answer does.
"""
from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.consumer_group import JOINS, LEAVES, LEAVES_FOR_NOW, HeartbeatRequest, ConsumerGroup
from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.handlers.groups import ALL_OPERATIONS, NO_OPERATIONS
from pyclient.testing.fake.model.heartbeats import NEW_EPOCHS_SINCE, ConsumerMembership
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.reconciliation import ConsumerMember, Place
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.server_assignors import ASSIGNORS

OWN_ID_SINCE: Final = 1
"""From this version on members make their ids themselves (KIP-1082)."""
MILLISECOND: Final = timedelta(milliseconds=1)
FEATURE: Final = "group.version"
CLASSIC: Final = 0
CONSUMER: Final = 1
"""What kind of member is described."""


def is_enabled(kafka: Kafka) -> bool:
    """Whether the release has this protocol on: 3.9 offers the APIs, and answers that it has not."""
    return kafka.profile.features.get(FEATURE, (0, 0, 0))[2] > 0


# ---- heartbeats ------------------------------------------------------------------------------------------------------


def consumer_group_heartbeat(kafka: Kafka, request: Request) -> Fields:
    """Joining, staying and leaving are one request; the member's epoch says which."""
    try:
        return _handled(kafka, request)
    except RefusalError as refused:
        return _answer(refused.code, refused.message)


def refuse_consumer_group_heartbeat(_request: Request, code: int) -> Fields:
    """The code alone."""
    return _answer(code, None)


def _answer(code: int, message: str | None, member_id: str | None = None, epoch: int = 0, interval_ms: int = 0,
            assignment: tuple[Place, ...] | None = None) -> Fields:
    return {"throttle_time": 0, "error_code": code, "error_message": message, "member_id": member_id, "member_epoch": epoch,
            "heartbeat_interval": interval_ms, "assignment": None if assignment is None else {"topic_partitions": _by_topic(assignment)}}


def _handled(kafka: Kafka, request: Request) -> Fields:
    if not is_enabled(kafka):
        raise RefusalError(ErrorCode.unsupported_version)
    body = request.body
    _check(request)
    group = kafka.part(Coordinator).find(request.broker, body.group_id)
    members = kafka.part(ConsumerMembership)
    if body.member_epoch in (LEAVES, LEAVES_FOR_NOW):
        members.leave(group, body.group_id, _heartbeat(request))
        return _answer(0, None, body.member_id, body.member_epoch)
    heartbeat = _heartbeat(request)
    response = members.heartbeat(group, body.group_id, heartbeat if heartbeat.member_id else attrs.evolve(heartbeat, member_id=members.new_id()))
    return _answer(0, None, response.member.id, response.member.epoch, kafka.settings.group_consumer_heartbeat_interval_ms, response.assignment)


def _heartbeat(request: Request) -> HeartbeatRequest:
    body = request.body
    owned, topics = body.topic_partitions, body.subscribed_topic_names
    return HeartbeatRequest(
        member_id=body.member_id, epoch=body.member_epoch, instance=body.instance_id, rack=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout // MILLISECOND, topics=None if topics is None else tuple(dict.fromkeys(topics)),
        pattern=getattr(body, "subscribed_topic_regex", None), assignor=body.server_assignor,
        owned=None if owned is None else tuple((each.topic_id, index) for each in owned for index in each.partitions),
        client_id=request.client_id or "", host=f"/{request.peer}")


def _check(request: Request) -> None:
    """Raises RefusalError for what no member sends, in a broker's order."""
    body = request.body
    if not body.member_id.strip() and (request.version >= OWN_ID_SINCE or body.member_epoch > JOINS or body.member_epoch == LEAVES):
        raise RefusalError(ErrorCode.invalid_request, "MemberId can't be empty.")
    for name, value in (("GroupId", body.group_id), ("InstanceId", body.instance_id), ("RackId", body.rack_id)):
        if value is not None and not value.strip():
            raise RefusalError(ErrorCode.invalid_request, f"{name} can't be empty.")
    if body.member_epoch == JOINS:
        _check_joining(body)
    elif body.member_epoch == LEAVES_FOR_NOW and body.instance_id is None:
        raise RefusalError(ErrorCode.invalid_request, "InstanceId can't be null.")
    elif body.member_epoch < LEAVES_FOR_NOW:
        raise RefusalError(ErrorCode.invalid_request, "MemberEpoch is invalid.")
    if body.server_assignor is not None and body.server_assignor not in ASSIGNORS:
        raise RefusalError(ErrorCode.unsupported_assignor, f"ServerAssignor {body.server_assignor} is not supported. Supported assignors: "
                                            f"{', '.join(ASSIGNORS)}.")


def _check_joining(body: Any) -> None:
    if body.rebalance_timeout // MILLISECOND == -1:
        raise RefusalError(ErrorCode.invalid_request, "RebalanceTimeoutMs must be provided in first request.")
    if body.topic_partitions is None or body.topic_partitions:
        raise RefusalError(ErrorCode.invalid_request, "TopicPartitions must be empty when (re-)joining.")
    if body.subscribed_topic_names is None and getattr(body, "subscribed_topic_regex", None) is None:
        raise RefusalError(ErrorCode.invalid_request, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _by_topic(places: Iterable[Place]) -> list[dict[str, Any]]:
    topics: dict[UUID, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return [{"topic_id": topic, "partitions": sorted(indexes)} for topic, indexes in topics.items()]


# ---- describing ------------------------------------------------------------------------------------------------------


def consumer_group_describe(kafka: Kafka, request: Request) -> Fields:
    """Epochs, members, what they have and what they are to have."""
    return {"throttle_time": 0, "groups": [_described(kafka, request, each) for each in request.body.group_ids]}


def refuse_consumer_group_describe(request: Request, code: int) -> Fields:
    """The error for every group."""
    return {"throttle_time": 0, "groups": [_unseen(each, code, None) for each in request.body.group_ids]}


def _described(kafka: Kafka, request: Request, group_id: str) -> Fields:
    try:
        group = _group(kafka, request, group_id)
    except RefusalError as refused:
        return _unseen(group_id, refused.code, refused.message)
    return {**_unseen(group_id, 0, None), "group_state": group.state.value, "group_epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch, "assignor_name": group.assignor,
            "members": [_member(kafka, group, each) for each in group.members.values()],
            "authorized_operations": ALL_OPERATIONS if request.body.include_authorized_operations else NO_OPERATIONS}


def _group(kafka: Kafka, request: Request, group_id: str) -> ConsumerGroup:
    if not is_enabled(kafka):
        raise RefusalError(ErrorCode.unsupported_version)
    if not group_id:
        raise RefusalError(ErrorCode.invalid_group_id)
    found = kafka.part(Coordinator).find(request.broker, group_id)
    return kafka.part(ConsumerMembership).existing(found, group_id, "Group")


def _unseen(group_id: str, code: int, message: str | None) -> dict[str, object]:
    return {"error_code": code, "error_message": message, "group_id": group_id, "group_state": "", "group_epoch": 0, "assignment_epoch": 0,
            "assignor_name": "", "members": [], "authorized_operations": NO_OPERATIONS}


def _member(kafka: Kafka, group: ConsumerGroup, member: ConsumerMember) -> Fields:
    """What it has to give up it is still shown with, since 4.3."""
    held = member.holds if kafka.profile.is_since(NEW_EPOCHS_SINCE) else member.assigned
    return {"member_id": member.id, "instance_id": member.instance, "rack_id": member.rack, "member_epoch": member.epoch,
            "client_id": member.client_id, "client_host": member.host, "subscribed_topic_names": member.topics,
            "subscribed_topic_regex": member.pattern, "assignment": {"topic_partitions": _named(kafka, held)},
            "target_assignment": {"topic_partitions": _named(kafka, group.targets.get(member.id, ()))}, "member_type": CONSUMER if member.classic is None else CLASSIC}


def _named(kafka: Kafka, places: Iterable[Place]) -> list[Fields]:
    """By topic, without those that are not there any more."""
    return [{**each, "topic_name": kafka.topics_by_id[each["topic_id"]].name} for each in _by_topic(places)
            if each["topic_id"] in kafka.topics_by_id]
