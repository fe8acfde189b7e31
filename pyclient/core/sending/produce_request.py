# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Batches to one Produce request, and its answer to one outcome for each batch (P25)."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeAlias

from pyclient.buffers.batch import Batch
from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.messages import Buffer, decode_response
from pyclient.codec.produce import TOPIC_IDS_SINCE, StoredResponse, encode_produce, stored_response
from pyclient.core.cluster import Cluster
from pyclient.core.manager import Frame, NotSent, Outcome, Reply, Request, Unknown, Use
from pyclient.core.sending.produce_outcome import GiveUp, ProduceOutcome, Stored, TryAgain, produce_outcome
from pyclient.errors import CorruptRecordError

BatchOutcomes: TypeAlias = Iterable[tuple[Batch, ProduceOutcome]]
TopicKey: TypeAlias = str | bytes
"""What names a topic in a request: the bytes of its id from v13 on, else its name."""
BY_NAME: Final = VersionRange(0, TOPIC_IDS_SINCE - 1)
PRODUCE: Final = Use.PRODUCE
PRODUCE_API: Final = Api.PRODUCE


class Owner(Protocol):
    """Who sends Produce requests."""

    def ended(self, now: float, outcomes: BatchOutcomes) -> bool:
        """A request has ended. True: no manager has anything to do because of it."""


class ProduceRequest(Request):
    """The batches of one request: its bytes, and the outcome of each batch. *owner* is notified once, of its end.

    *timeout* is in seconds, *versions* are those of the transaction's protocol.
    """

    def __init__(self, node: int, batches: list[Batch], cluster: Cluster, acks: int, timeout: float, owner: Owner,
                 transactional_id: str | None = None, versions: VersionRange | None = None) -> None:
        self.batches = batches
        self.ids = topic_ids(batches, cluster)
        self.acks = acks
        self.owner = owner
        self.transactional_id = transactional_id
        self.node = node
        self.use = PRODUCE
        self.api = PRODUCE_API
        self.timeout = timeout
        self.held = 0.0
        self.patience = None
        self.fields = None
        self.versions = versions if self.ids is not None else produce_versions(versions, by_id=False)
        self.answered = acks != 0
        self._done = None

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        """As `Request.encode`."""
        topics: dict[TopicKey, list[tuple[int, list[Buffer]]]] = {}
        for batch in self.batches:
            key = self._key(batch, version)
            partition = (batch.queue.partition, batch.pieces())
            if key in topics:
                topics[key].append(partition)
            else:
                topics[key] = [partition]
        return encode_produce(version, correlation_id, client_id, self.acks, round(self.timeout * 1000), topics, self.transactional_id)

    def decode(self, version: int, frame: Frame) -> Any:
        """As `Request.decode`; a `StoredResponse` if its one batch is stored."""
        if isinstance(frame, bytes) and len(self.batches) == 1:
            stored = stored_response(version, frame)
            if stored is not None:
                return stored
        return decode_response(PRODUCE_API, version, memoryview(frame))

    def done(self, now: float, outcome: Outcome) -> bool:
        """As `Request.done`."""
        return self.owner.ended(now, self._outcomes(outcome))

    def _key(self, batch: Batch, version: int) -> TopicKey:
        return batch.queue.topic if version < TOPIC_IDS_SINCE or self.ids is None else self.ids[batch.queue.topic]

    def _outcomes(self, outcome: Outcome) -> list[tuple[Batch, ProduceOutcome]]:
        if not isinstance(outcome, Reply) or outcome.message is None:
            return [(batch, _unanswered(batch, outcome)) for batch in self.batches]
        if isinstance(outcome.message, StoredResponse):
            batch = self.batches[0]
            return [(batch, self._stored(batch, outcome.version, outcome.message))]
        answers = _answers(outcome.message)
        return [(batch, _answered(batch, answers.get((self._key(batch, outcome.version), batch.queue.partition)))) for batch in self.batches]

    def _stored(self, batch: Batch, version: int, answer: StoredResponse) -> ProduceOutcome:
        if answer.partition != batch.queue.partition or answer.topic != self._key(batch, version):
            return _answered(batch, None)
        return Stored(answer.base_offset, answer.append_time)


def produce_versions(versions: VersionRange | None, *, by_id: bool) -> VersionRange | None:
    """Of the transaction's protocol, or of any, those that can name the topic: without its id not from v13 on."""
    return versions if by_id else BY_NAME.common(versions or BY_NAME)


def topic_ids(batches: list[Batch], cluster: Cluster) -> dict[str, bytes] | None:
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


def _answers(message: Any) -> dict[tuple[TopicKey, int], Any]:
    return {(_key_of(topic), partition.index): partition for topic in message.responses for partition in topic.partition_responses}


def _key_of(topic: Any) -> TopicKey:
    if hasattr(topic, "name"):
        return str(topic.name)
    return b"" if topic.topic_id is None else bytes(topic.topic_id.bytes)


def _answered(batch: Batch, answer: Any) -> ProduceOutcome:
    tp = batch.queue.topic_partition
    if answer is None:
        return TryAgain(CorruptRecordError(f"the answer to Produce leaves out {tp}"), in_doubt=True)
    return produce_outcome(tp, answer)


def _unanswered(batch: Batch, outcome: Outcome) -> ProduceOutcome:
    if isinstance(outcome, Reply):
        return Stored(-1)  # acks=0: it is written, and there will be no answer
    in_doubt = isinstance(outcome, Unknown)
    if not outcome.cause.retriable:
        return GiveUp(outcome.cause, in_doubt)
    if isinstance(outcome, NotSent):
        batch.attempts -= 1  # nothing was tried
    return TryAgain(outcome.cause, moved=True, in_doubt=in_doubt)
