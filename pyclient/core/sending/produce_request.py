# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Batches to one Produce request, and its answer to one outcome for each batch (P25)."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from pyclient.buffers.batch import Batch
from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.messages import Buffer, decode_response
from pyclient.codec.produce import TOPIC_IDS_SINCE, StoredResponse, encode_produce, stored_response
from pyclient.core.manager import Frame, Manager, NotSent, Outcome, Reply, Request, Unknown, Use
from pyclient.core.sending.produce_outcome import GiveUp, ProduceOutcome, Stored, TryAgain, produce_outcome, stored_outcome
from pyclient.errors import CorruptRecordError

BatchOutcomes: TypeAlias = Iterable[tuple[Batch, ProduceOutcome]]
TopicKey: TypeAlias = str | bytes
"""What names a topic in a request: the bytes of its id from v13 on, else its name."""
_TOPIC_IDS_SINCE: Final = TOPIC_IDS_SINCE
BY_NAME: Final = VersionRange(0, TOPIC_IDS_SINCE - 1)
PRODUCE: Final = Use.PRODUCE
PRODUCE_API: Final = Api.PRODUCE


class Owner(Manager):
    """Who sends Produce requests."""

    def ended(self, now: float, outcomes: BatchOutcomes) -> bool:
        """A request has ended. True: no manager has anything to do because of it."""
        raise NotImplementedError


class ProduceRequest(Request):
    """The batches of one request: its bytes, and the outcome of each batch. `produce_request` makes it."""

    batches: list[Batch]
    ids: list[bytes | None]
    """The ids of their topics. Request and answer use this one look at them (P25)."""
    acks: int
    owner: Owner
    """It is notified once, of the end."""
    transactional_id: str | None

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        """As `Request.encode`."""
        return encode_produce(version, correlation_id, client_id, self.acks, int(self.timeout * 1000 + 0.5), self._topics(version), self.transactional_id)

    def _topics(self, version: int) -> dict[TopicKey, list[tuple[int, list[Buffer]]]]:
        topics: dict[TopicKey, list[tuple[int, list[Buffer]]]] = {}
        for at, batch in enumerate(self.batches):
            key = self._key(at, batch, version)
            partition = (batch.queue.partition, batch.pieces())
            if key in topics:
                topics[key].append(partition)
            else:
                topics[key] = [partition]
        return topics

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

    def _key(self, at: int, batch: Batch, version: int) -> TopicKey:
        if version < _TOPIC_IDS_SINCE:
            return batch.queue.topic
        found = self.ids[at]
        assert found is not None  # `versions` leaves out those that need it
        return found

    def _outcomes(self, outcome: Outcome) -> list[tuple[Batch, ProduceOutcome]]:
        if not isinstance(outcome, Reply):
            return [(batch, _unanswered(batch, outcome)) for batch in self.batches]
        reply = outcome
        if reply.message is None:
            return [(batch, Stored(-1)) for batch in self.batches]  # acks=0: it is written, and there will be no answer
        if isinstance(reply.message, StoredResponse):
            batch = self.batches[0]
            return [(batch, self._stored(batch, reply.version, reply.message))]
        answers = _answers(reply.message)
        return [(batch, _answered(batch, answers.get((self._key(at, batch, reply.version), batch.queue.partition))))
                for at, batch in enumerate(self.batches)]

    def _stored(self, batch: Batch, version: int, answer: StoredResponse) -> ProduceOutcome:
        if answer.partition != batch.queue.partition or answer.topic != self._key(0, batch, version):
            return _answered(batch, None)
        return stored_outcome(answer.base_offset, answer.append_time)


def produce_request(node: int, batches: list[Batch], ids: list[bytes | None], acks: int, timeout: float, owner: Owner,
                    transactional_id: str | None = None, versions: VersionRange | None = None) -> ProduceRequest:
    """A request for *node*; *timeout* is in seconds, *versions* are those of the transaction's protocol."""
    made: ProduceRequest = ProduceRequest.__new__(ProduceRequest)
    made.batches = batches
    made.ids = ids
    made.acks = acks
    made.owner = owner
    made.transactional_id = transactional_id
    made.node = node
    made.use = PRODUCE
    made.api = PRODUCE_API
    made.timeout = timeout
    made.held = 0.0
    made.silence_timeout_s = made.fields = made._done = None
    made.versions = produce_versions(versions, by_id=False) if None in ids else versions
    made.answered = acks != 0
    return made


def produce_versions(versions: VersionRange | None, *, by_id: bool) -> VersionRange | None:
    """Of the transaction's protocol, or of any, those that can name the topic: without its id not from v13 on."""
    return versions if by_id else BY_NAME.common(versions or BY_NAME)


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


def _unanswered(batch: Batch, outcome: NotSent | Unknown) -> ProduceOutcome:
    in_doubt = isinstance(outcome, Unknown)
    if not outcome.cause.retriable:
        return GiveUp(outcome.cause, in_doubt)
    if isinstance(outcome, NotSent):
        batch.attempts -= 1  # nothing was tried
    return TryAgain(outcome.cause, moved=True, in_doubt=in_doubt)
