"""Committed offsets of a group: the requests, and what their responses mean (C20, C24, C25)."""
from __future__ import annotations

import datetime
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.core.calls import Again, Call, CallOutcome, Coordinator, Done, Finish
from pyclient.core.group.coordinator import Identity, refusal
from pyclient.errors import UnknownServerError, UnknownTopicIdError, UnknownTopicOrPartitionError
from pyclient.records import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition

NOTHING_COMMITTED: Final = -1
NOT_A_MEMBER: Final = Identity()
_TOPIC_IS_GONE: Final = (UnknownTopicOrPartitionError.code, UnknownTopicIdError.code)
_BROKER_RETENTION: Final = datetime.timedelta(milliseconds=-1)


def commit_call(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], finish: Finish, deadline: float | None, *,
    identity: Identity = NOT_A_MEMBER, instance_id: str | None = None, automatic: bool = False,
) -> Call:
    """Store *offsets* for *group*, as the member that *identity* names; the result is None.

    An *automatic* commit has no waiter, so it is not retried for a topic that brokers do not know: it fails once the
    other offsets are stored.
    """

    def fields(version: int) -> dict[str, object]:
        return {
            "group_id": group, "generation_id_or_member_epoch": identity.generation,
            "member_id": identity.member_id, "group_instance_id": instance_id, "retention_time": _BROKER_RETENTION,
            "topics": commit_topics(offsets),
        }

    def classify(message: Any) -> CallOutcome:
        return _read_commit(group, offsets, message.topics, _TOPIC_IS_GONE if automatic else ())

    return Call(what=f"committing {len(offsets)} offsets of group {group!r}", api=Api.OFFSET_COMMIT,
                target=Coordinator(group), fields=fields, classify=classify, finish=finish, deadline=deadline)


def _read_commit(group: str, offsets: Iterable[TopicPartition], topics: Any, final: Container[int | None]) -> CallOutcome:
    """*final*: codes that are not retried, and that count only if there is no other error."""
    codes = {TopicPartition(topic.name, partition.partition_index): partition.error_code for topic in topics for partition in topic.partitions}
    for tp, code in codes.items():
        if code and code not in final:
            return refusal(Api.OFFSET_COMMIT, code, group, tp)
    for tp in offsets:
        if tp not in codes:
            return UnknownServerError(f"group {group!r}: the response has no entry for {tp}: its offset may or may not be stored",
                                      topic_partition=tp)
    return next((error_of(Api.OFFSET_COMMIT, code, f"group {group!r}", group=group, tp=tp) for tp, code in codes.items() if code), Done(None))


def committed_call(group: str, partitions: Iterable[TopicPartition], finish: Finish, deadline: float | None, *, stable: bool = True) -> Call:
    """Look up what *group* has committed; the result maps each partition to `OffsetAndMetadata`, or None where nothing
    is committed. *stable*: wait for transactions that have sent offsets (KIP-447).
    """
    wanted = list(dict.fromkeys(partitions))

    def fields(version: int) -> dict[str, object]:
        topics = [{"name": name, "partition_indexes": numbers} for name, numbers in _by_topic(wanted).items()]
        if version >= 8:
            return {"groups": [{"group_id": group, "topics": topics}], "require_stable": stable}
        return {"group_id": group, "topics": topics, "require_stable": stable}

    def classify(message: Any) -> CallOutcome:
        responses = getattr(message, "groups", (message,))  # since version 8 the response has several groups
        if not responses:
            return Again(UnknownServerError(f"the response has no entry for group {group!r}"))
        response = responses[0]
        if getattr(response, "error_code", 0):
            return refusal(Api.OFFSET_FETCH, response.error_code, group)
        return _read_committed(group, wanted, response.topics)

    return Call(what=f"looking up the committed offsets of group {group!r}", api=Api.OFFSET_FETCH,
                target=Coordinator(group), fields=fields, classify=classify, finish=finish, deadline=deadline)


def _read_committed(group: str, wanted: list[TopicPartition], topics: Any) -> CallOutcome:
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                return refusal(Api.OFFSET_FETCH, partition.error_code, group, tp)
            found[tp] = _committed(partition)
    for tp in wanted:
        # A missing entry does not mean that nothing is committed: reading must not begin at another position.
        if tp not in found:
            return Again(UnknownServerError(f"group {group!r}: the response has no entry for {tp}", topic_partition=tp))
    return Done({tp: found[tp] for tp in wanted})


def read_all_committed(group: str, message: Any) -> CallOutcome:
    """Every partition with a committed offset, of a response to a request for all."""
    responses = getattr(message, "groups", (message,))
    if not responses:
        return Again(UnknownServerError(f"the response has no entry for group {group!r}"))
    response = responses[0]
    if getattr(response, "error_code", 0):
        return refusal(Api.OFFSET_FETCH, response.error_code, group)
    wanted = [TopicPartition(topic.name, part.partition_index) for topic in response.topics for part in topic.partitions]
    found = _read_committed(group, wanted, response.topics)
    return Done({tp: position for tp, position in found.result.items() if position is not None}) if isinstance(found, Done) else found


def _committed(partition: Any) -> OffsetAndMetadata | None:
    if partition.committed_offset <= NOTHING_COMMITTED:
        return None
    epoch = getattr(partition, "committed_leader_epoch", NO_LEADER_EPOCH)
    return OffsetAndMetadata(partition.committed_offset, partition.metadata or "", epoch if epoch > NO_LEADER_EPOCH else None)


def commit_topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[dict[str, object]]:
    topics: dict[str, list[dict[str, object]]] = {}
    for tp, position in offsets.items():
        topics.setdefault(tp.topic, []).append({
            "partition_index": tp.partition, "committed_offset": position.offset,
            "committed_leader_epoch": NO_LEADER_EPOCH if position.leader_epoch is None else position.leader_epoch,
            "committed_metadata": position.metadata})
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
