"""Batches to Produce requests and answers to outcomes (P11–P14, P17, P18, P22).

Knows queues, leaders and deadlines; how many batches of a partition may be under way, and their sequences, is its lane's
matter. Ready partitions stand in queues; nothing is scanned.
Rule: a batch's memory goes back only when its request has ended, never on a timeout (P07).
"""
from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final, Protocol, TypeAlias

import attrs

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch, BatchState
from pyclient.buffers.queues import PartitionQueue
from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.produce import TOPIC_IDS_SINCE, Buffer, PartitionRecords, encode_produce
from pyclient.core.backoff import WaitPolicy
from pyclient.core.manager import NotSent, Outcome, Ready, Reply, Request, Unknown, Use, earliest
from pyclient.core.metadata import Metadata
from pyclient.core.sending.adaptive_partitioning import Balance
from pyclient.core.sending.sequencing import PartitionSequence, Leader
from pyclient.core.sending.producer_ids import ProducerIds
from pyclient.core.sending.produce_outcome import GiveUp, Split, Stored, TryAgain, Verdict, judge
from pyclient.errors import CorruptRecordError, DeliveryTimeoutError, KafkaError, raisable, sentence
from pyclient.records import TopicPartition

_log = logging.getLogger(__name__)
Topics: TypeAlias = dict[str, list[PartitionRecords]]
MOST_BATCHES: Final = 200
"""In a request: a broker that writes to each of its partitions for the first time takes many milliseconds for each, and one request after the other;
five of these must be done within request_timeout_ms, or they are all sent again."""


@attrs.frozen(kw_only=True)
class SendingLimits:
    """The options that rule sending, in seconds and bytes; ``retries`` counts after the first attempt, ``in_flight`` per partition.

    The last two rule `Balance`.
    """

    acks: int
    in_flight: int
    max_request_size: int
    request_timeout: float
    delivery_timeout: float
    retries: int
    adaptive: bool = True
    availability_timeout: float = 0


class Sealer(Protocol):
    """Seals a batch now or elsewhere; tells `Accumulator` when it is done."""

    def __call__(self, batch: Batch) -> None: ...


class Watcher:
    """Is told of each batch's way; the runtime counts. This one does nothing."""

    def sent(self, batches: list[Batch]) -> None:
        """One request's batches go to the network, each for its ``attempts``-th time."""

    def stored(self, batch: Batch) -> None:
        """The broker has it."""

    def split(self, batch: Batch) -> None:
        """The broker found it too large: it travels on in parts."""


@attrs.frozen
class Rest:
    """A pause after a failure: over at *until*, or when a leader of a later epoch than *epoch* is known."""

    until: float
    epoch: int


class Sender:
    """The manager of everything a producer writes."""

    def __init__(self, accumulator: Accumulator, metadata: Metadata, limits: SendingLimits, *, backoff: WaitPolicy,
                 seal: Sealer, ids: ProducerIds | None, watcher: Watcher | None = None) -> None:
        """*ids*: None for a producer that is not idempotent."""
        self._accumulator = accumulator
        self._metadata = metadata
        self._limits = limits
        self._backoff = backoff
        self._seal = seal
        self._ids = ids
        if ids is not None:
            ids.on_failure = self._fail_all
        self._watcher = watcher or Watcher()
        self._unplaced: dict[PartitionQueue, None] = {}
        self._by_leader: dict[int, dict[PartitionQueue, None]] = {}
        self._leaderless: dict[PartitionQueue, None] = {}
        self._resting: dict[PartitionQueue, Rest] = {}  # after a failure
        self._lanes: dict[PartitionQueue, PartitionSequence] = {}
        self._under_way = 0  # batches
        self._view = 0
        self._balance = Balance(accumulator, limits.availability_timeout) if limits.adaptive else None

    # ---- the manager ------------------------------------------------------------------------------------------------

    def poll(self, now: float, ready: Ready) -> Iterator[Request]:
        """Requests as full as ``max_request_size`` allows, as many for each node as it has room for."""
        self._expire(now)
        self._wake_rested(now)
        self._follow_leaders(now)
        self._place_ready(now)
        stuck: list[int] = []
        for node in [node for node, queues in self._by_leader.items() if queues]:
            room = at_first = ready.slots(node, Use.PRODUCE)
            while room and (request := self._drain(node, now)) is not None:
                yield request
                room = min(room - 1, ready.slots(node, Use.PRODUCE))
            if not at_first or (not room and self._has_more(node)):
                stuck.append(node)
        if self._balance is not None:
            self._balance.update(now, stuck, self._metadata.cluster)

    def next_deadline(self) -> float | None:
        """The next linger, end of a pause, expiry, or node to avoid."""
        oldest = self._accumulator.oldest()
        expiry = oldest.created + self._limits.delivery_timeout if oldest is not None else None
        rested = min((rest.until for rest in self._resting.values()), default=None)
        avoiding = self._balance.next_deadline() if self._balance is not None else None
        return earliest(self._accumulator.next_linger(), rested, expiry, avoiding)

    def idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._under_way and self._accumulator.oldest() is None

    def abandon(self, error: KafkaError) -> None:
        """Fail whatever is not settled (the end of ``close``, or of the client); of what is under way the error says that nobody knows."""
        given_up = 0
        for batch in self._accumulator.flush_open():
            batch.in_doubt = _in_doubt(batch)
            self._accumulator.drop(batch)
            given_up += batch.count if batch.result.fail(self._failure(batch, error)) else 0
        if given_up:
            _log.warning("%d records are given up: %s", given_up, error)

    def _fail_all(self, error: KafkaError) -> None:
        """There will be no producer id: whatever waits for one fails, what comes later may try again (I12)."""
        for batch in self._accumulator.flush_open():
            if batch.state is not BatchState.IN_FLIGHT and not batch.result.done:
                self._accumulator.drop(batch)
                self._fail(batch, self._failure(batch, error))

    # ---- where queues stand -----------------------------------------------------------------------------------------

    def _place_ready(self, now: float) -> None:
        """Nobody tells of these again: each must be somewhere, whatever is raised on the way."""
        self._unplaced.update(dict.fromkeys(self._accumulator.take_ready(now)))
        while self._unplaced:
            queue = next(iter(self._unplaced))
            self._place(queue, now)
            del self._unplaced[queue]

    def _place(self, queue: PartitionQueue, now: float) -> None:
        if queue in self._resting:
            return
        self._metadata.want(queue.topic, now)  # also while nothing new is sent: a batch that waits must find its leader
        leader = self._metadata.cluster.leader(queue.topic_partition)
        if leader is None:
            self._leaderless[queue] = None
            self._metadata.request_update()
        else:
            self._by_leader.setdefault(leader, {})[queue] = None

    def _follow_leaders(self, now: float) -> None:
        """After a new view of the cluster, every waiting queue goes to where its leader is now."""
        if self._view == self._metadata.cluster.version:
            return
        self._view = self._metadata.cluster.version
        self._wake_moved()
        waiting = [*self._leaderless, *(queue for queues in self._by_leader.values() for queue in queues)]
        self._leaderless.clear()
        self._by_leader.clear()
        for queue in waiting:
            self._place(queue, now)

    def _wake_rested(self, now: float) -> None:
        for queue in [queue for queue, rest in self._resting.items() if now >= rest.until]:
            del self._resting[queue]
            self._place(queue, now)

    def _wake_moved(self) -> None:
        """A leader that is newer than the failure need not be spared (P13)."""
        for queue, rest in list(self._resting.items()):
            if self._leader_epoch(queue) > rest.epoch:
                del self._resting[queue]
                self._leaderless[queue] = None  # from where it goes to its leader now, with the others

    # ---- draining ---------------------------------------------------------------------------------------------------

    def _drain(self, node: int, now: float) -> Request | None:
        """At most one batch per partition, oldest-served first, at least one batch however large (P14)."""
        batches: list[Batch] = []
        size = 0
        queues = self._by_leader[node]
        if not self._has_id(queues):
            return None
        for queue in list(queues):
            batch = self._sendable(queue, node)
            if batch is None:
                del queues[queue]
                continue
            if batches and (size + batch.size > self._limits.max_request_size or len(batches) == MOST_BATCHES):
                break
            size += batch.size
            batches.append(batch)
        for batch in batches:  # not before all are chosen: choosing may raise
            del queues[batch.queue]
            if self._start(batch, node, now):
                queues[batch.queue] = None  # behind the others: there is more of it, for the next request
        return self._request(node, batches) if batches else None

    def _has_more(self, node: int) -> bool:
        """Whether something waits that is not under way, as far as its first queue tells: those that were served stand behind the others."""
        first = next(iter(self._by_leader[node]), None)
        return first is not None and self._accumulator.still_ready(first)

    def _has_id(self, queues: dict[PartitionQueue, None]) -> bool:
        """Whether there is a producer id, if one is needed. It is asked for only while something waits for it: who was refused asks anew
        with the next record, not at the network's speed (I12).
        """
        if self._ids is None or self._ids.current is not None:
            return True
        for queue in list(queues):
            if self._accumulator.still_ready(queue):
                self._ids.want()
                break
            del queues[queue]
        return False

    def _sendable(self, queue: PartitionQueue, node: int) -> Batch | None:
        """The queue's next batch once it is sealed; None when nothing may leave.

        The queue comes back after its rest, or when what is under way ends, or when whoever seals a batch of it tells.
        """
        lane = self._lane(queue)
        if queue in self._resting or not lane.has_room(self._leader(queue, node)):
            return None
        while True:
            batch = self._accumulator.head(queue)
            if batch is not None and batch.state is BatchState.SEALING:
                self._seal(batch)  # perhaps elsewhere; and what cannot be compressed is gone
            if batch is not None and batch.state is BatchState.SEALED:
                return batch if lane.may_send(batch) else None
            if not self._accumulator.still_ready(queue):
                return None

    def _lane(self, queue: PartitionQueue) -> PartitionSequence:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = PartitionSequence(self._limits.in_flight, stamps=self._ids is not None)
        return lane

    def _leader_epoch(self, queue: PartitionQueue) -> int:
        known = self._metadata.cluster.partition(queue.topic_partition)
        return -1 if known is None else known.epoch

    def _leader(self, queue: PartitionQueue, node: int) -> Leader:
        topic = self._metadata.cluster.topics.get(queue.topic)
        return Leader(node, None if topic is None else topic.id, self._leader_epoch(queue))

    def _start(self, batch: Batch, node: int, now: float) -> bool:
        """The batch goes to the network; whether more of its partition may."""
        lane, leader = self._lane(batch.queue), self._leader(batch.queue, node)
        if self._ids is not None and self._ids.current is not None:
            lane.prepare(now, leader, self._ids.current, lambda: self._accumulator.unstamp(batch.queue))
        lane.sent(batch, leader)
        self._under_way += 1
        return self._accumulator.start(batch)

    def _request(self, node: int, batches: list[Batch]) -> Request:
        self._watcher.sent(batches)
        cluster = self._metadata.cluster
        ids = {batch.queue.topic: topic.id for batch in batches
               if (topic := cluster.topics.get(batch.queue.topic)) is not None}
        # From v13 on a topic without an id cannot be named; request and answer use this one look at the ids (P25).
        by_id = all(ids.get(batch.queue.topic) is not None for batch in batches)
        names = {ids[name]: name for name in ids}

        def encode(version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
            topics: dict[Any, list[PartitionRecords]] = {}
            for batch in batches:
                name = batch.queue.topic
                key = ids[name] if version >= TOPIC_IDS_SINCE else name
                topics.setdefault(key, []).append(PartitionRecords(batch.queue.partition, batch.pieces()))
            return encode_produce(version, correlation_id, client_id, acks=self._limits.acks,
                                  timeout_ms=round(self._limits.request_timeout * 1000), topics=topics)

        def done(now: float, outcome: Outcome) -> bool:
            return self._ended(now, batches, outcome, names)

        return Request(
            node=node, use=Use.PRODUCE, api=Api.PRODUCE, done=done, timeout=self._limits.request_timeout, encode=encode,
            versions=None if by_id else VersionRange(0, TOPIC_IDS_SINCE - 1), answered=self._limits.acks != 0)

    # ---- outcomes ---------------------------------------------------------------------------------------------------

    def _ended(self, now: float, batches: list[Batch], outcome: Outcome, names: dict[Any, str]) -> bool:
        """Whether that was all: everything is stored, and nothing else waits."""
        quiet = True
        for batch, found in self._verdicts(batches, outcome, names):
            lane = self._lane(batch.queue)
            lane.ended(batch, now)
            self._under_way -= 1
            verdict = lane.judged(batch, found, first=batch.queue.waiting[0] is batch)
            self._settle(now, lane, batch, verdict)
            self._retire_id(lane)
            if not isinstance(verdict, Stored) or self._accumulator.still_ready(batch.queue):
                self._place(batch.queue, now)  # what came in meanwhile may leave now
                quiet = False
        return quiet and not any(self._by_leader.values())

    def _verdicts(self, batches: list[Batch], outcome: Outcome, names: dict[Any, str]) -> Iterator[tuple[Batch, Verdict]]:
        answers = _answers(outcome, names)
        for batch in batches:
            where = batch.queue.topic_partition
            match outcome:
                case Reply(message=None):
                    yield batch, Stored(-1)  # acks=0: written, and that is all there is to know
                case Reply() if where in answers:
                    yield batch, judge(where, answers[where])
                case Reply():
                    yield batch, TryAgain(CorruptRecordError(f"the answer to Produce leaves out {where}"), in_doubt=True)
                case NotSent(cause) if cause.retriable:
                    batch.attempts -= 1  # nothing was tried
                    yield batch, TryAgain(cause, moved=True)
                case Unknown(cause) if cause.retriable:
                    yield batch, TryAgain(cause, moved=True, in_doubt=True)
                case NotSent(cause):
                    yield batch, GiveUp(cause)
                case Unknown(cause):
                    yield batch, GiveUp(cause, in_doubt=True)

    def _settle(self, now: float, lane: PartitionSequence, batch: Batch, verdict: Verdict) -> None:
        overdue = batch.result.done  # or abandoned, while it was under way: only now does nobody read its buffer any more
        batch.in_doubt |= verdict.in_doubt
        match verdict:
            case Stored(base_offset, stamped):
                lane.stored()
                if not overdue:
                    self._watcher.stored(batch)
                    batch.result.complete(base_offset, stamped)
                self._accumulator.release(batch)
            case Split() if batch.count > 1 and not overdue:
                batch.in_doubt = False  # what is too large now was too large before
                self._forgo(lane, batch)
                self._watcher.split(batch)
                self._accumulator.split(batch)
            case TryAgain(error, moved=moved) if batch.attempts <= self._limits.retries and not overdue:
                lane.failed()
                self._rest(now, batch, error, moved=moved)
            case TryAgain(error) | GiveUp(error) | Split(error):
                self._forgo(lane, batch)
                if not overdue:
                    self._fail(batch, self._failure(batch, error), self._own_reasons(batch, verdict))
                self._accumulator.release(batch)

    def _forgo(self, lane: PartitionSequence, batch: Batch) -> None:
        """The batch is not sent again: its sequence is used if the broker may have it, else it leaves a gap (I07)."""
        if batch.in_doubt:
            lane.failed()
        elif batch.stamped:
            lane.gap()

    def _retire_id(self, lane: PartitionSequence) -> None:
        if self._ids is not None and lane.producer_id is not None and lane.has_spent_its_id:
            self._ids.spent(lane.producer_id)

    def _own_reasons(self, batch: Batch, verdict: Verdict) -> dict[int, KafkaError] | None:
        """What the broker has against single records (P24)."""
        if not isinstance(verdict, GiveUp):
            return None
        return {index: _worded(verdict.error, f"the broker refuses this record: {reason}") for index, reason in verdict.records.items()} or None

    def _rest(self, now: float, batch: Batch, error: KafkaError, *, moved: bool) -> None:
        batch.last_error = error
        self._accumulator.retry(batch)
        self._resting[batch.queue] = Rest(now + self._backoff.after(batch.attempts, error), self._leader_epoch(batch.queue))
        if moved:
            self._metadata.request_update()

    def _fail(self, batch: Batch, error: KafkaError, records: dict[int, KafkaError] | None = None) -> None:
        """With the one line in the log that a failed batch gets."""
        if batch.result.fail(error, records):
            _log.warning("%s", error)

    def _failure(self, batch: Batch, error: KafkaError) -> KafkaError:
        """The broker's last word, with the partition and what was tried."""
        fate = "may or may not be stored; given up" if batch.in_doubt else "were not stored"
        failure = _worded(error, f"{batch.count} records {fate} after {_tries(batch)}: {error.message}")
        failure.topic_partition = batch.queue.topic_partition
        return failure

    # ---- time runs out ----------------------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        """Batches older than ``delivery_timeout_ms`` fail, wherever they are (P18)."""
        while (batch := self._accumulator.oldest()) is not None:
            if now < batch.created + self._limits.delivery_timeout:
                return
            unsent = batch.state is not BatchState.IN_FLIGHT
            self._accumulator.drop(batch)  # first: an open batch must take no record that would be counted by nobody
            if unsent and batch.stamped:
                lane = self._lane(batch.queue)
                self._forgo(lane, batch)
                self._retire_id(lane)
            self._fail(batch, self._too_late(batch, now))

    def _too_late(self, batch: Batch, now: float) -> KafkaError:
        where = batch.queue.topic_partition
        told = batch.last_error or (self._ids and self._ids.last_error) or self._metadata.last_error
        reason = f"the last error was: {told}" if told is not None else self._why_unsent(where)
        return DeliveryTimeoutError(
            f"{batch.count} records were not acknowledged within delivery_timeout_ms="
            f"{round(self._limits.delivery_timeout * 1000)} ({now - batch.created:.1f} s, {_tries(batch)}); {sentence(reason)} "
            f"They {'may or may not be' if _in_doubt(batch) else 'were not'} stored. Check the brokers, or raise delivery_timeout_ms.", topic_partition=where)

    def _why_unsent(self, where: TopicPartition) -> str:
        leader = self._metadata.cluster.leader(where)
        return "its partition has no leader" if leader is None else f"node {leader}, its leader, gave no answer"


def _worded(error: KafkaError, message: str) -> KafkaError:
    """The same error in other words."""
    other = raisable(error)
    other.args = (message,)
    return other


def _tries(batch: Batch) -> str:
    return "1 attempt" if batch.attempts == 1 else f"{batch.attempts} attempts"


def _in_doubt(batch: Batch) -> bool:
    return batch.in_doubt or batch.state is BatchState.IN_FLIGHT


def _answers(outcome: Outcome, names: dict[Any, str]) -> dict[TopicPartition, Any]:
    if not isinstance(outcome, Reply) or outcome.message is None:
        return {}
    found: dict[TopicPartition, Any] = {}
    for topic in outcome.message.responses:
        name = topic.name if hasattr(topic, "name") else names.get(topic.topic_id)
        for part in topic.partition_responses:
            found[TopicPartition(str(name), part.index)] = part
    return found
