"""Committed offsets of a group: what is asked, and what each answer means (C20, C24, C25)."""
from __future__ import annotations

import datetime
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from pyclient.codec.apis import Api
from pyclient.core.calls import Again, Call, CallOutcome, Coordinator, Done, Finish
from pyclient.core.group.answers import refused
from pyclient.core.group.membership import Identity
from pyclient.core.acl_errors import error_of
from pyclient.errors import UnknownServerError, UnknownTopicIdError, UnknownTopicOrPartitionError
from pyclient.records import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition

NOTHING_COMMITTED: Final = -1
NOBODY: Final = Identity()
_TOPIC_IS_GONE: Final = (UnknownTopicOrPartitionError.code, UnknownTopicIdError.code)
_BROKERS_RETENTION: Final = datetime.timedelta(milliseconds=-1)


def commit_call(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], finish: Finish, deadline: float | None, *,
    identity: Identity = NOBODY, instance_id: str | None = None, automatic: bool = False,
) -> Call:
    """Store *offsets* for *group*, as the member that *identity* names; the result is None.

    Nobody waits for an *automatic* one: a topic that the brokers do not know fails it, when the others' offsets are stored.
    """

    def fields(version: int) -> dict[str, object]:
        return {
            "group_id": group, "generation_id_or_member_epoch": identity.generation,
            "member_id": identity.member_id, "group_instance_id": instance_id, "retention_time": _BROKERS_RETENTION,
            "topics": _commit_topics(offsets),
        }

    def judge(message: Any) -> CallOutcome:
        return _read_commit(group, offsets, message.topics, _TOPIC_IS_GONE if automatic else ())

    return Call(what=f"committing {len(offsets)} offsets of group {group!r}", api=Api.OFFSET_COMMIT,
                target=Coordinator(group), fields=fields, judge=judge, finish=finish, deadline=deadline)


def _read_commit(group: str, offsets: Iterable[TopicPartition], topics: Any, final: Container[int | None]) -> CallOutcome:
    """*final*: codes that are not worth another try, and count when there is no other."""
    answered = {TopicPartition(topic.name, part.partition_index): part.error_code for topic in topics for part in topic.partitions}
    for where, code in answered.items():
        if code and code not in final:
            return refused(Api.OFFSET_COMMIT, code, group, where)
    for where in offsets:
        if where not in answered:
            return UnknownServerError(f"group {group!r}: the answer leaves out {where}: its offset may or may not be stored",
                                      topic_partition=where)
    return next((error_of(Api.OFFSET_COMMIT, code, f"group {group!r}", group=group, where=where) for where, code in answered.items() if code), Done(None))


def committed_call(group: str, partitions: Iterable[TopicPartition], finish: Finish, deadline: float | None) -> Call:
    """Look up what *group* has committed; the result maps each partition to `OffsetAndMetadata`, or None where nothing is."""
    wanted = list(dict.fromkeys(partitions))

    def fields(version: int) -> dict[str, object]:
        topics = [{"name": name, "partition_indexes": numbers} for name, numbers in _by_topic(wanted).items()]
        if version >= 8:
            return {"groups": [{"group_id": group, "topics": topics}], "require_stable": True}
        return {"group_id": group, "topics": topics, "require_stable": True}

    def judge(message: Any) -> CallOutcome:
        answers = getattr(message, "groups", (message,))  # since version 8 one of several
        if not answers:
            return Again(UnknownServerError(f"the answer leaves out group {group!r}"))
        answer = answers[0]
        if getattr(answer, "error_code", 0):
            return refused(Api.OFFSET_FETCH, answer.error_code, group)
        return _read_committed(group, wanted, answer.topics)

    return Call(what=f"looking up the committed offsets of group {group!r}", api=Api.OFFSET_FETCH,
                target=Coordinator(group), fields=fields, judge=judge, finish=finish, deadline=deadline)


def _read_committed(group: str, wanted: list[TopicPartition], topics: Any) -> CallOutcome:
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in topics:
        for part in topic.partitions:
            where = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                return refused(Api.OFFSET_FETCH, part.error_code, group, where)
            found[where] = _committed(part)
    for where in wanted:
        if where not in found:  # not the same as nothing committed: reading must not begin elsewhere for it
            return Again(UnknownServerError(f"the answer leaves out {where}", topic_partition=where))
    return Done({where: found[where] for where in wanted})


def _committed(part: Any) -> OffsetAndMetadata | None:
    if part.committed_offset <= NOTHING_COMMITTED:
        return None
    epoch = getattr(part, "committed_leader_epoch", NO_LEADER_EPOCH)
    return OffsetAndMetadata(part.committed_offset, part.metadata or "", epoch if epoch > NO_LEADER_EPOCH else None)


def _commit_topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[dict[str, object]]:
    topics: dict[str, list[dict[str, object]]] = {}
    for where, position in offsets.items():
        topics.setdefault(where.topic, []).append({
            "partition_index": where.partition, "committed_offset": position.offset,
            "committed_leader_epoch": NO_LEADER_EPOCH if position.leader_epoch is None else position.leader_epoch,
            "committed_metadata": position.metadata})
    return [{"name": name, "partitions": parts} for name, parts in topics.items()]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for where in partitions:
        topics.setdefault(where.topic, []).append(where.partition)
    return topics
