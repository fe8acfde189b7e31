"""Offsets that groups commit: OffsetCommit, OffsetFetch, OffsetDelete."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias
from uuid import UUID

from kio.schema.errors import ErrorCode

from pyclient.codec.apis import Api
from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.consumer_group import ConsumerGroup
from pyclient.testing.fake.model.coordinator import AnyGroup, Coordinator
from pyclient.testing.fake.model.group import Committed, Group, State
from pyclient.testing.fake.model.heartbeats import NEW_EPOCHS_SINCE
from pyclient.testing.fake.model.membership import Membership, current
from pyclient.testing.fake.model.kafka import Kafka, Topic
from pyclient.testing.fake.model.reconciliation import Place
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.subscription import reads

EPOCHS_SINCE: Final = 9
"""From this version on members of groups of the next generation commit, with their epochs."""
IDS_SINCE: Final = 10
NOT_FOUND_SINCE: Final = 9
TOP_LEVEL_SINCE: Final = 2
GROUPS_SINCE: Final = 8
NOTHING: Final = -1
UNSTABLE: Final = Committed(NOTHING, NOTHING, "")
"""In place of an offset that an open transaction has committed."""
Offsets: TypeAlias = dict[tuple[str, int], Committed]


# ---- committing ------------------------------------------------------------------------------------------------------


def offset_commit(kafka: Kafka, request: Request) -> Fields:
    """Members of the current generation commit, and anybody while the group has no members."""
    try:
        group = _committer(kafka, request)
    except RefusalError as refused:
        code = refused.code
        return commit_answer(every_partition(kafka, request, lambda *_: code))
    return commit_answer(every_partition(kafka, request, lambda topic, part: _commit(kafka, group, topic, part, request)))


def refuse_offset_commit(request: Request, code: int) -> Fields:
    """The error for every partition."""
    return {"throttle_time": 0, "topics": [
        {"name": getattr(topic, "name", None), "topic_id": getattr(topic, "topic_id", None),
         "partitions": [{"partition_index": each.partition_index, "error_code": code} for each in topic.partitions]}
        for topic in request.body.topics]}


def _committer(kafka: Kafka, request: Request) -> AnyGroup:
    """The group, if the sender may commit to it."""
    body = request.body
    generation = body.generation_id_or_member_epoch
    group = kafka.part(Coordinator).find(request.broker, body.group_id)
    if group is None:
        if generation >= 0:
            raise RefusalError(ErrorCode.group_id_not_found if request.version >= NOT_FOUND_SINCE else ErrorCode.illegal_generation)
        return kafka.part(Membership).made(body.group_id)
    if generation >= 0 or not group.is_empty:
        if isinstance(group, ConsumerGroup):
            _check_epoch(kafka, group, request)
        else:
            _check_generation(kafka, group, request)
    return group


def _check_generation(kafka: Kafka, group: Group, request: Request) -> None:
    body, instance = request.body, getattr(request.body, "group_instance_id", None)
    if body.generation_id_or_member_epoch < 0 and not body.member_id and instance is None:
        raise RefusalError(ErrorCode.unknown_member_id)  # its members alone may commit
    member = current(group, body.member_id, instance, body.generation_id_or_member_epoch)
    if group.state is State.COMPLETING:
        raise RefusalError(ErrorCode.rebalance_in_progress)
    kafka.part(Membership).alive(group, member)


def _check_epoch(kafka: Kafka, group: ConsumerGroup, request: Request) -> None:
    if group.member(request.body.member_id).classic is None and request.version < EPOCHS_SINCE:
        raise RefusalError(ErrorCode.unsupported_version)
    check_epoch(kafka, group, request, request.body.generation_id_or_member_epoch)


def check_epoch(kafka: Kafka, group: ConsumerGroup, request: Request, epoch: int) -> None:
    """Whether a member may commit in this epoch.

    Raises:
        RefusalError: it may not, or is no member.
    """
    if kafka.profile.is_since(NEW_EPOCHS_SINCE):
        group.check_commit(request.body.member_id, epoch, _places(kafka, request))
    else:
        group.check_epoch(request.body.member_id, epoch)


def _places(kafka: Kafka, request: Request) -> list[Place]:
    """The partitions that the request would commit."""
    return [(found.id, part.partition_index) for topic, found in _topics(kafka, request) if found is not None for part in topic.partitions
            if 0 <= part.partition_index < len(found.partitions) and not is_too_large(kafka, part)]


def is_too_large(kafka: Kafka, part: Any) -> bool:
    """Whether the metadata of an offset are."""
    return len(part.committed_metadata or "") > kafka.settings.offset_metadata_max_bytes


def every_partition(kafka: Kafka, request: Request, judge: Callable[[str, Any], int]) -> Iterator[tuple[Any, Fields]]:
    """The answer for each partition: unknown ones first, as a real broker answers; *judge* gives the others' codes."""
    known: list[tuple[Any, Topic, Any]] = []
    for topic, found in _topics(kafka, request):
        for part in topic.partitions:
            if found is None or not 0 <= part.partition_index < len(found.partitions):
                by_id = found is None and request.api is Api.OFFSET_COMMIT and request.version >= IDS_SINCE
                missing = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
                yield topic, {"partition_index": part.partition_index, "error_code": missing}
            else:
                known.append((topic, found, part))
    for topic, found, part in known:
        yield topic, {"partition_index": part.partition_index, "error_code": judge(found.name, part)}


def _topics(kafka: Kafka, request: Request) -> Iterator[tuple[Any, Topic | None]]:
    for topic in request.body.topics:
        yield topic, kafka.topics_by_id.get(topic.topic_id) if hasattr(topic, "topic_id") else kafka.topics.get(topic.name)


def _commit(kafka: Kafka, group: AnyGroup, topic: str, part: Any, request: Request) -> int:
    if is_too_large(kafka, part):
        return ErrorCode.offset_metadata_too_large
    epoch = getattr(part, "committed_leader_epoch", NOTHING)
    place, coordinator = (topic, part.partition_index), kafka.part(Coordinator)
    coordinator.pending.overtake(group.id, place)
    coordinator.commit(group, place, Committed(part.committed_offset, epoch, part.committed_metadata or ""), request.client_id)
    return 0


def commit_answer(parts: Iterable[tuple[Any, Fields]]) -> Fields:
    topics: dict[object, dict[str, Any]] = {}
    for topic, fields in parts:
        name, topic_id = getattr(topic, "name", None), getattr(topic, "topic_id", None)
        topics.setdefault((name, topic_id), {"name": name, "topic_id": topic_id, "partitions": []})["partitions"].append(fields)
    return {"throttle_time": 0, "topics": list(topics.values())}


# ---- fetching --------------------------------------------------------------------------------------------------------


def offset_fetch(kafka: Kafka, request: Request) -> Fields:
    """One group's offsets, or since version 8 those of many; no topics named means all that it has."""
    answers = [_fetched(kafka, request, each) for each in _requested_groups(request)]
    return {"throttle_time": 0, "groups": answers} if request.version >= GROUPS_SINCE else {"throttle_time": 0, **answers[0]}


def refuse_offset_fetch(request: Request, code: int) -> Fields:
    """The error for every group."""
    answers = [_fetch_error(request, each, code) for each in _requested_groups(request)]
    return {"throttle_time": 0, "groups": answers} if request.version >= GROUPS_SINCE else {"throttle_time": 0, **answers[0]}


def _requested_groups(request: Request) -> list[Any]:
    """What is asked of each group; before there could be several it stood in the request itself."""
    return list(request.body.groups) if request.version >= GROUPS_SINCE else [request.body]


def _fetched(kafka: Kafka, request: Request, wanted: Any) -> Mapping[str, object]:
    try:
        group = _fetchable(kafka, request, wanted)
    except RefusalError as refused:
        return _fetch_error(request, wanted, refused.code)
    offsets: Offsets = dict(group.offsets) if group is not None else {}
    if getattr(request.body, "require_stable", False):
        pending = kafka.part(Coordinator).pending.places(wanted.group_id)
        offsets.update(dict.fromkeys(pending if wanted.topics is not None else pending & offsets.keys(), UNSTABLE))
    return {"group_id": wanted.group_id, "error_code": 0, "topics": _all_offsets(kafka, request, offsets) if wanted.topics is None else
            [_offsets(kafka, request, offsets, each) for each in wanted.topics]}


def _fetchable(kafka: Kafka, request: Request, wanted: Any) -> AnyGroup | None:
    """The group, if the sender may fetch its offsets: KIP-848 members send their epoch, other clients send none."""
    group = kafka.part(Coordinator).find(request.broker, wanted.group_id)
    member_id, epoch = getattr(wanted, "member_id", None), getattr(wanted, "member_epoch", NOTHING)
    if isinstance(group, ConsumerGroup) and (member_id is not None or epoch >= 0):
        group.check_epoch(member_id or "", epoch)
    return group


def _fetch_error(request: Request, wanted: Any, code: int) -> Mapping[str, object]:
    """Version 1 has no place for it but the partitions."""
    topics = [] if request.version >= TOP_LEVEL_SINCE else [
        {"name": topic.name, "partitions": [_offset(index, None, code) for index in topic.partition_indexes]} for topic in wanted.topics]
    return {"group_id": wanted.group_id, "error_code": code, "topics": topics}


def _all_offsets(kafka: Kafka, request: Request, offsets: Offsets) -> list[Fields]:
    by_topic: dict[str, list[Fields]] = {}
    for (topic, index), committed in offsets.items():
        by_topic.setdefault(topic, []).append(_offset(index, committed))
    known = [(name, kafka.topics.get(name), partitions) for name, partitions in by_topic.items()]
    return [{"name": name, "topic_id": topic.id if topic is not None else None, "partitions": partitions}
            for name, topic, partitions in known if topic is not None or request.version < IDS_SINCE]


def _offsets(kafka: Kafka, request: Request, offsets: Offsets, wanted: Any) -> Fields:
    name: str | None = getattr(wanted, "name", None)
    topic_id: UUID | None = getattr(wanted, "topic_id", None)
    code = 0
    if request.version >= IDS_SINCE:
        topic = kafka.topics_by_id.get(topic_id) if topic_id is not None else None
        name, code = (topic.name, 0) if topic is not None else (None, ErrorCode.unknown_topic_id)
    return {"name": name, "topic_id": topic_id,
            "partitions": [_offset(index, offsets.get((name or "", index)), code) for index in wanted.partition_indexes]}


def _offset(index: int, committed: Committed | None, code: int = 0) -> Fields:
    found = committed or Committed(NOTHING, NOTHING, "")
    code = ErrorCode.unstable_offset_commit if committed is UNSTABLE else code
    return {"partition_index": index, "committed_offset": found.offset, "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata, "error_code": code}


# ---- deleting --------------------------------------------------------------------------------------------------------


def offset_delete(kafka: Kafka, request: Request) -> Fields:
    """Offsets of partitions that no member of the group reads."""
    try:
        group = _deletable(kafka, request)
    except RefusalError as refused:
        return refuse_offset_delete(request, refused.code)
    return {"error_code": 0, "throttle_time": 0, "topics": [
        {"name": topic.name, "partitions": _delete_all(kafka, group, topic.name, [each.partition_index for each in topic.partitions])}
        for topic in request.body.topics]}


def refuse_offset_delete(_request: Request, code: int) -> Fields:
    """The error for the group."""
    return {"error_code": code, "throttle_time": 0, "topics": []}


def _deletable(kafka: Kafka, request: Request) -> AnyGroup:
    if not request.body.group_id:
        raise RefusalError(ErrorCode.invalid_group_id)
    group = kafka.part(Coordinator).find(request.broker, request.body.group_id)
    if group is None:
        raise RefusalError(ErrorCode.group_id_not_found)
    if not group.is_empty and group.protocol_type != "consumer":
        raise RefusalError(ErrorCode.non_empty_group)
    return group


def _delete_all(kafka: Kafka, group: AnyGroup, topic: str, indexes: list[int]) -> list[Fields]:
    """Unknown ones first, as a real broker answers."""
    missing = [index for index in indexes if kafka.partition(topic, index) is None]
    return [*({"partition_index": index, "error_code": ErrorCode.unknown_topic_or_partition} for index in missing),
            *({"partition_index": index, "error_code": _delete(kafka, group, topic, index)} for index in indexes if index not in missing)]


def _delete(kafka: Kafka, group: AnyGroup, topic: str, index: int) -> int:
    if reads(group, topic):
        return ErrorCode.group_subscribed_to_topic
    kafka.part(Coordinator).pending.forget(group.id, (topic, index))
    if group.offsets.pop((topic, index), None) is not None:
        kafka.report("offset deleted", group=group.id, topic=topic, partition=index)
    return 0
