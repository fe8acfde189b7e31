"""Batches to one Produce request, and its answer to one outcome for each batch (P25)."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from pyclient.buffers.batch import Batch
from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.messages import Buffer
from pyclient.codec.produce import TOPIC_IDS_SINCE, PartitionRecords, StoredResponse, encode_produce
from pyclient.core.cluster import Cluster
from pyclient.core.manager import NotSent, Outcome, Reply, Request, Unknown, Use
from pyclient.core.sending.produce_outcome import GiveUp, ProduceOutcome, Stored, TryAgain, produce_outcome
from pyclient.errors import CorruptRecordError
from pyclient.records import TopicPartition

BatchOutcomes: TypeAlias = Iterator[tuple[Batch, ProduceOutcome]]
BY_NAME: Final = VersionRange(0, TOPIC_IDS_SINCE - 1)


def produce_request(node: int, batches: list[Batch], cluster: Cluster, *, acks: int, timeout: float,
                    ended: Callable[[float, BatchOutcomes], bool], transactional_id: str | None = None,
                    versions: VersionRange | None = None) -> Request:
    """The request; ``ended(now, outcomes)`` is called once, when it has ended. *timeout* is in seconds.

    *versions* are those of the transaction's protocol.
    """
    ids = {batch.queue.topic: topic.id for batch in batches if (topic := cluster.topics.get(batch.queue.topic)) is not None}
    # From v13 on a topic without an id cannot be named; request and answer use this one look at the ids (P25).
    by_id = all(ids.get(batch.queue.topic) is not None for batch in batches)
    names = {ids[name]: name for name in ids}

    def encode(version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        topics: dict[Any, list[PartitionRecords]] = {}
        for batch in batches:
            name = batch.queue.topic
            key = ids[name] if version >= TOPIC_IDS_SINCE else name
            topics.setdefault(key, []).append(PartitionRecords(batch.queue.partition, batch.pieces()))
        return encode_produce(version, correlation_id, client_id, acks=acks, timeout_ms=round(timeout * 1000), topics=topics,
                              transactional_id=transactional_id)

    def done(now: float, outcome: Outcome) -> bool:
        return ended(now, _outcomes(batches, outcome, names))

    return Request(
        node=node, use=Use.PRODUCE, api=Api.PRODUCE, done=done, timeout=timeout, encode=encode,
        versions=versions if by_id else BY_NAME.common(versions or BY_NAME), answered=acks != 0)


def _outcomes(batches: list[Batch], outcome: Outcome, names: dict[Any, str]) -> BatchOutcomes:
    answers = _answers(outcome, names)
    for batch in batches:
        tp = batch.queue.topic_partition
        match outcome:
            case Reply(message=None):
                yield batch, Stored(-1)  # acks=0: it is written, and there will be no answer
            case Reply() if tp in answers:
                answer = answers[tp]
                yield batch, answer if isinstance(answer, Stored) else produce_outcome(tp, answer)
            case Reply():
                yield batch, TryAgain(CorruptRecordError(f"the answer to Produce leaves out {tp}"), in_doubt=True)
            case NotSent(cause) if cause.retriable:
                batch.attempts -= 1  # nothing was tried
                yield batch, TryAgain(cause, moved=True)
            case Unknown(cause) if cause.retriable:
                yield batch, TryAgain(cause, moved=True, in_doubt=True)
            case NotSent(cause):
                yield batch, GiveUp(cause)
            case Unknown(cause):
                yield batch, GiveUp(cause, in_doubt=True)


def _answers(outcome: Outcome, names: dict[Any, str]) -> dict[TopicPartition, Any]:
    if not isinstance(outcome, Reply) or outcome.message is None:
        return {}
    if isinstance(outcome.message, StoredResponse):
        return _stored(outcome.message, names)
    found: dict[TopicPartition, Any] = {}
    for topic in outcome.message.responses:
        name = topic.name if hasattr(topic, "name") else names.get(topic.topic_id)
        for partition in topic.partition_responses:
            found[TopicPartition(str(name), partition.index)] = partition
    return found


def _stored(response: StoredResponse, names: dict[Any, str]) -> dict[TopicPartition, Any]:
    name = response.topic
    if isinstance(name, bytes):
        name = next((names[each] for each in names if each.bytes == name), "")
    return {TopicPartition(name, response.partition): Stored(response.base_offset, response.append_time)}
