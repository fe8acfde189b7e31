"""Offsets that groups commit: OffsetCommit, OffsetFetch, OffsetDelete."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from pyclient.testing.fake.asking import Asked, Fields
from pyclient.testing.fake.coordinator import Coordinator
from pyclient.testing.fake.families.groups import GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, NON_EMPTY_GROUP
from pyclient.testing.fake.group import Committed, Group, Member, State
from pyclient.testing.fake.membership import ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, Membership, current
from pyclient.testing.fake.model import Kafka, Topic
from pyclient.testing.fake.refused import Refused
from pyclient.testing.fake.subscription import reads

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
OFFSET_METADATA_TOO_LARGE: Final = 12
GROUP_SUBSCRIBED_TO_TOPIC: Final = 86
UNKNOWN_TOPIC_ID: Final = 100
IDS_SINCE: Final = 10
NOT_FOUND_TOLD_SINCE: Final = 9
TOP_LEVEL_SINCE: Final = 2
GROUPS_SINCE: Final = 8
NOTHING: Final = -1


# ---- committing ---------------------------------------------------------------------------------------------------------


def offset_commit(kafka: Kafka, asked: Asked) -> Fields:
    """Members of the current generation commit, and anybody while the group has no members."""
    try:
        group, member = _committer(kafka, asked)
    except Refused as refused:
        return _commit_answer(_every_partition(kafka, asked, refused.code))
    if member is not None:
        kafka.part(Membership).alive(group, member)
    return _commit_answer(_every_partition(kafka, asked, 0, group))


def refuse_offset_commit(asked: Asked, code: int) -> Fields:
    """The error for every partition."""
    return {"throttle_time": 0, "topics": [
        {"name": getattr(topic, "name", None), "topic_id": getattr(topic, "topic_id", None),
         "partitions": [{"partition_index": each.partition_index, "error_code": code} for each in topic.partitions]}
        for topic in asked.body.topics]}


def _committer(kafka: Kafka, asked: Asked) -> tuple[Group, Member | None]:
    body = asked.body
    generation = body.generation_id_or_member_epoch
    instance = getattr(body, "group_instance_id", None)
    group = kafka.part(Coordinator).find(asked.broker, body.group_id)
    if group is None:
        if generation >= 0:
            raise Refused(GROUP_ID_NOT_FOUND if asked.version >= NOT_FOUND_TOLD_SINCE else ILLEGAL_GENERATION)
        return _simple(kafka, body.group_id), None
    if generation < 0 and group.state is State.EMPTY:
        return group, None
    if generation < 0 and not body.member_id and instance is None:
        raise Refused(UNKNOWN_MEMBER_ID)  # its members alone may commit
    member = current(group, body.member_id, instance, generation)
    if group.state is State.COMPLETING:
        raise Refused(REBALANCE_IN_PROGRESS)
    return group, member


def _simple(kafka: Kafka, group_id: str) -> Group:
    group = kafka.part(Coordinator).made(group_id)
    group.save()
    return group


def _every_partition(kafka: Kafka, asked: Asked, code: int, group: Group | None = None) -> Iterator[tuple[Any, Fields]]:
    """Unknown ones first, as a real broker answers; the others get *code*, or are committed."""
    known: list[tuple[Any, Topic, Any]] = []
    for topic, found in _topics(kafka, asked):
        for part in topic.partitions:
            if found is None or not 0 <= part.partition_index < len(found.partitions):
                missing = UNKNOWN_TOPIC_ID if found is None and asked.version >= IDS_SINCE else UNKNOWN_TOPIC_OR_PARTITION
                yield topic, {"partition_index": part.partition_index, "error_code": missing}
            else:
                known.append((topic, found, part))
    for topic, found, part in known:
        answer = code if group is None else _commit(kafka, group, found.name, part)
        yield topic, {"partition_index": part.partition_index, "error_code": answer}


def _topics(kafka: Kafka, asked: Asked) -> Iterator[tuple[Any, Topic | None]]:
    for topic in asked.body.topics:
        yield topic, kafka.topics_by_id.get(topic.topic_id) if asked.version >= IDS_SINCE else kafka.topics.get(topic.name)


def _commit(kafka: Kafka, group: Group, topic: str, part: Any) -> int:
    note = part.committed_metadata or ""
    if len(note) > kafka.settings.offset_metadata_max_bytes:
        return OFFSET_METADATA_TOO_LARGE
    epoch = getattr(part, "committed_leader_epoch", NOTHING)
    group.offsets[topic, part.partition_index] = Committed(part.committed_offset, epoch, note)
    kafka.tell("committed", group=group.id, generation=group.generation, topic=topic, partition=part.partition_index,
               offset=part.committed_offset, epoch=epoch)
    return 0


def _commit_answer(parts: Iterable[tuple[Any, Fields]]) -> Fields:
    topics: dict[object, dict[str, Any]] = {}
    for topic, fields in parts:
        name, topic_id = getattr(topic, "name", None), getattr(topic, "topic_id", None)
        topics.setdefault((name, topic_id), {"name": name, "topic_id": topic_id, "partitions": []})["partitions"].append(fields)
    return {"throttle_time": 0, "topics": list(topics.values())}


# ---- fetching -----------------------------------------------------------------------------------------------------------


def offset_fetch(kafka: Kafka, asked: Asked) -> Fields:
    """One group's offsets, or since version 8 those of many; no topics named means all that it has."""
    answers = [_fetched(kafka, asked, group_id, topics) for group_id, topics in _asked_groups(asked)]
    return {"throttle_time": 0, "groups": answers} if asked.version >= GROUPS_SINCE else {"throttle_time": 0, **answers[0]}


def refuse_offset_fetch(asked: Asked, code: int) -> Fields:
    """The error for every group."""
    answers = [_fetch_error(asked, group_id, topics, code) for group_id, topics in _asked_groups(asked)]
    return {"throttle_time": 0, "groups": answers} if asked.version >= GROUPS_SINCE else {"throttle_time": 0, **answers[0]}


def _asked_groups(asked: Asked) -> list[tuple[str, Any]]:
    if asked.version >= GROUPS_SINCE:
        return [(each.group_id, each.topics) for each in asked.body.groups]
    return [(asked.body.group_id, asked.body.topics)]


def _fetched(kafka: Kafka, asked: Asked, group_id: str, topics: Any) -> Mapping[str, object]:
    try:
        group = kafka.part(Coordinator).find(asked.broker, group_id)
    except Refused as refused:
        return _fetch_error(asked, group_id, topics, refused.code)
    offsets = group.offsets if group is not None else {}
    return {"group_id": group_id, "error_code": 0,
            "topics": _all_offsets(kafka, asked, offsets) if topics is None else [_offsets(kafka, asked, offsets, each) for each in topics]}


def _fetch_error(asked: Asked, group_id: str, topics: Any, code: int) -> Mapping[str, object]:
    """Version 1 has no place for it but the partitions."""
    told = [] if asked.version >= TOP_LEVEL_SINCE else [
        {"name": topic.name, "partitions": [_offset(index, None, code) for index in topic.partition_indexes]} for topic in topics]
    return {"group_id": group_id, "error_code": code, "topics": told}


def _all_offsets(kafka: Kafka, asked: Asked, offsets: Mapping[tuple[str, int], Committed]) -> list[Fields]:
    by_topic: dict[str, list[Fields]] = {}
    for (topic, index), committed in offsets.items():
        by_topic.setdefault(topic, []).append(_offset(index, committed))
    known = [(name, kafka.topics.get(name), partitions) for name, partitions in by_topic.items()]
    return [{"name": name, "topic_id": topic.id if topic is not None else None, "partitions": partitions}
            for name, topic, partitions in known if topic is not None or asked.version < IDS_SINCE]


def _offsets(kafka: Kafka, asked: Asked, offsets: Mapping[tuple[str, int], Committed], wanted: Any) -> Fields:
    name: str | None = getattr(wanted, "name", None)
    topic_id: UUID | None = getattr(wanted, "topic_id", None)
    code = 0
    if asked.version >= IDS_SINCE:
        topic = kafka.topics_by_id.get(topic_id) if topic_id is not None else None
        name, code = (topic.name, 0) if topic is not None else (None, UNKNOWN_TOPIC_ID)
    return {"name": name, "topic_id": topic_id,
            "partitions": [_offset(index, offsets.get((name or "", index)), code) for index in wanted.partition_indexes]}


def _offset(index: int, committed: Committed | None, code: int = 0) -> Fields:
    found = committed or Committed(NOTHING, NOTHING, "")
    return {"partition_index": index, "committed_offset": found.offset, "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata, "error_code": code}


# ---- deleting -----------------------------------------------------------------------------------------------------------


def offset_delete(kafka: Kafka, asked: Asked) -> Fields:
    """Offsets of partitions that no member of the group reads."""
    try:
        group = _deletable(kafka, asked)
    except Refused as refused:
        return refuse_offset_delete(asked, refused.code)
    return {"error_code": 0, "throttle_time": 0, "topics": [
        {"name": topic.name, "partitions": _delete_all(kafka, group, topic.name, [each.partition_index for each in topic.partitions])}
        for topic in asked.body.topics]}


def refuse_offset_delete(_asked: Asked, code: int) -> Fields:
    """The error for the group."""
    return {"error_code": code, "throttle_time": 0, "topics": []}


def _deletable(kafka: Kafka, asked: Asked) -> Group:
    if not asked.body.group_id:
        raise Refused(INVALID_GROUP_ID)
    group = kafka.part(Coordinator).find(asked.broker, asked.body.group_id)
    if group is None:
        raise Refused(GROUP_ID_NOT_FOUND)
    if group.state is not State.EMPTY and group.protocol_type != "consumer":
        raise Refused(NON_EMPTY_GROUP)
    return group


def _delete_all(kafka: Kafka, group: Group, topic: str, indexes: list[int]) -> list[Fields]:
    """Unknown ones first, as a real broker answers."""
    missing = [index for index in indexes if kafka.partition(topic, index) is None]
    return [*({"partition_index": index, "error_code": UNKNOWN_TOPIC_OR_PARTITION} for index in missing),
            *({"partition_index": index, "error_code": _delete(kafka, group, topic, index)} for index in indexes if index not in missing)]


def _delete(kafka: Kafka, group: Group, topic: str, index: int) -> int:
    if reads(group, topic):
        return GROUP_SUBSCRIBED_TO_TOPIC
    if group.offsets.pop((topic, index), None) is not None:
        kafka.tell("offset deleted", group=group.id, topic=topic, partition=index)
    return 0
