"""Batches to one Produce request, and its answer to one outcome for each batch (P25)."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import attrs

from pyclient.buffers.batch import Batch
from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.messages import Buffer
from pyclient.codec.produce import TOPIC_IDS_SINCE, StoredResponse, encode_produce
from pyclient.core.cluster import Cluster
from pyclient.core.manager import NotSent, Outcome, Reply, Request, Unknown, Use
from pyclient.core.sending.produce_outcome import GiveUp, ProduceOutcome, Stored, TryAgain, produce_outcome
from pyclient.errors import CorruptRecordError

BatchOutcomes: TypeAlias = Iterator[tuple[Batch, ProduceOutcome]]
TopicKey: TypeAlias = str | bytes
"""What names a topic in a request: the bytes of its id from v13 on, else its name."""
BY_NAME: Final = VersionRange(0, TOPIC_IDS_SINCE - 1)


def produce_request(node: int, batches: list[Batch], cluster: Cluster, *, acks: int, timeout: float,
                    ended: Callable[[float, BatchOutcomes], bool], transactional_id: str | None = None,
                    versions: VersionRange | None = None) -> Request:
    """The request; ``ended(now, outcomes)`` is called once, when it has ended. *timeout* is in seconds.

    *versions* are those of the transaction's protocol.
    """
    ids = _topic_ids(batches, cluster)
    made = BatchesOfRequest(batches, ids, acks, timeout, transactional_id, ended)
    return Request(node=node, use=Use.PRODUCE, api=Api.PRODUCE, done=made.done, timeout=timeout, encode=made.encode,
                   versions=produce_versions(versions, by_id=ids is not None), answered=acks != 0)


def produce_versions(versions: VersionRange | None, *, by_id: bool) -> VersionRange | None:
    """Of the transaction's protocol, or of any, those that can name the topic: without its id not from v13 on."""
    return versions if by_id else BY_NAME.common(versions or BY_NAME)


def _topic_ids(batches: list[Batch], cluster: Cluster) -> dict[str, bytes] | None:
    """The id of each topic, by its name; None if one is not known: from v13 on such a topic cannot be named.

    Request and answer use this one look at the ids (P25).
    """
    ids: dict[str, bytes] = {}
    for batch in batches:
        name = batch.queue.topic
        if name not in ids:
            topic = cluster.topics.get(name)
            if topic is None or topic.id_bytes is None:
                return None
            ids[name] = topic.id_bytes
    return ids


@attrs.define(eq=False)
class BatchesOfRequest:
    """The batches of one request: its bytes, and the outcome of each batch."""

    batches: list[Batch]
    ids: dict[str, bytes] | None
    acks: int
    timeout: float
    transactional_id: str | None
    ended: Callable[[float, BatchOutcomes], bool]

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        """The request's bytes in pieces."""
        topics: dict[TopicKey, list[tuple[int, list[Buffer]]]] = {}
        for batch in self.batches:
            topics.setdefault(self._key(batch.queue.topic, version), []).append((batch.queue.partition, batch.pieces()))
        return encode_produce(version, correlation_id, client_id, acks=self.acks, timeout_ms=round(self.timeout * 1000),
                              topics=topics, transactional_id=self.transactional_id)

    def done(self, now: float, outcome: Outcome) -> bool:
        """The request has ended."""
        return self.ended(now, self._outcomes(outcome))

    def _key(self, topic: str, version: int) -> TopicKey:
        return topic if version < TOPIC_IDS_SINCE or self.ids is None else self.ids[topic]

    def _outcomes(self, outcome: Outcome) -> BatchOutcomes:
        if isinstance(outcome, Reply) and outcome.message is not None:
            answers = _answers(outcome.message)
            for batch in self.batches:
                yield batch, _answered(batch, answers.get((self._key(batch.queue.topic, outcome.version), batch.queue.partition)))
        else:
            for batch in self.batches:
                yield batch, _unanswered(batch, outcome)


def _answers(message: Any) -> dict[tuple[TopicKey, int], Any]:
    if isinstance(message, StoredResponse):
        return {(message.topic, message.partition): Stored(message.base_offset, message.append_time)}
    return {(_key_of(topic), partition.index): partition for topic in message.responses for partition in topic.partition_responses}


def _key_of(topic: Any) -> TopicKey:
    if hasattr(topic, "name"):
        return str(topic.name)
    return b"" if topic.topic_id is None else bytes(topic.topic_id.bytes)


def _answered(batch: Batch, answer: Any) -> ProduceOutcome:
    if isinstance(answer, Stored):
        return answer
    tp = batch.queue.topic_partition
    if answer is None:
        return TryAgain(CorruptRecordError(f"the answer to Produce leaves out {tp}"), in_doubt=True)
    return produce_outcome(tp, answer)


def _unanswered(batch: Batch, outcome: Outcome) -> ProduceOutcome:
    match outcome:
        case Reply():
            return Stored(-1)  # acks=0: it is written, and there will be no answer
        case NotSent(cause) if cause.retriable:
            batch.attempts -= 1  # nothing was tried
            return TryAgain(cause, moved=True)
        case Unknown(cause) if cause.retriable:
            return TryAgain(cause, moved=True, in_doubt=True)
        case NotSent(cause):
            return GiveUp(cause)
        case Unknown(cause):
            return GiveUp(cause, in_doubt=True)
