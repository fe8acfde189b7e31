# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Decides which batches leave in which Produce request, and what each answer means for its batch.

Covers P11–P14, P17, P18 and P22. Knows queues, deadlines and limits. `LeaderQueues` knows where a queue waits;
`PartitionSequence` decides how many batches of a partition may be in flight, and numbers them. Ready partitions are
queued: no turn scans all of them.
Rule: a batch's memory is released only when its request has ended, never on a timeout (P07).
"""
from __future__ import annotations

import logging
from typing import Final, Protocol

import attrs

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch, BatchState
from pyclient.buffers.queues import PartitionQueue
from pyclient.core.backoff import Backoff
from pyclient.core.manager import Ready, earlier
from pyclient.core.metadata import Metadata
from pyclient.core.sending.adaptive_partitioning import AdaptivePartitioning
from pyclient.core.sending.delivery_errors import expired, given_up, in_doubt, record_errors
from pyclient.core.sending.leader_queues import LeaderQueues, NodeQueues
from pyclient.core.sending.produce_outcome import UNKNOWN, ProduceOutcome, Split, Stored, TryAgain
from pyclient.core.sending.produce_request import PRODUCE, BatchOutcomes, Owner, ProduceRequest, produce_request
from pyclient.core.sending.producer_ids import IdSource
from pyclient.core.sending.sequencing import Leader, PartitionSequence
from pyclient.core.sending.transactional_sequence import TransactionalSequence
from pyclient.core.transactions.manager import Transactions
from pyclient.errors import KafkaError

_log = logging.getLogger(__name__)
MOST_BATCHES: Final = 200
"""In one request.

A broker takes many milliseconds for each partition that it writes to for the first time, and handles one request after
the other; five of them must end within request_timeout_ms, or all are sent again.
"""
_MOST_BATCHES: Final = MOST_BATCHES


@attrs.frozen(kw_only=True)
class SendingLimits:
    """The options for sending, in seconds and bytes.

    ``retries`` counts after the first attempt, ``in_flight`` is per partition.

    ``adaptive`` and ``availability_timeout`` are for `AdaptivePartitioning`.
    """

    acks: int
    in_flight: int
    max_request_size: int
    request_timeout: float
    delivery_timeout: float
    linger: float = 0.0
    retries: int
    adaptive: bool = True
    availability_timeout: float = 0


OLDEST_OPEN: Final = 0.1
"""Part of delivery_timeout_ms after which a batch that could not be sent takes no more records.

A batch expires with its first record; without this, a record sent a moment ago would fail because of one that has
waited for the whole time.
"""


class Sealer(Protocol):
    """Seals a batch, in the call or in another thread; the Accumulator reports the queue as ready when that is done."""

    def __call__(self, batch: Batch) -> None: ...


class BatchListener:
    """Is notified of what happens to batches, for metrics. This one ignores it."""

    def leaves(self, batch: Batch, node: int, sequence: PartitionSequence) -> None:
        """The batch is next for this node; *sequence* has its partition's batches in flight."""

    def sent(self, batches: list[Batch]) -> None:
        """The batches of one request go to the network, each for its ``attempts``-th time."""

    def stored(self, batch: Batch) -> None:
        """The broker has stored it."""

    def split(self, batch: Batch) -> None:
        """The broker refused it as too large; its halves are sent instead."""


class Sender(Owner):
    """The manager of everything a producer writes."""

    def __init__(self, accumulator: Accumulator, metadata: Metadata, limits: SendingLimits, *, backoff: Backoff,
                 seal: Sealer, ids: IdSource | None, listener: BatchListener | None = None, transactions: Transactions | None = None) -> None:
        """*ids* is None for a producer that is not idempotent; *transactions* for one that is not transactional."""
        self.needs_poll = True
        self._accumulator = accumulator
        self._metadata = metadata
        self._view = metadata.view
        self._limits = limits
        self._backoff = backoff
        self._seal = seal
        self._ids = ids
        self._transactions = transactions
        self._outside: dict[PartitionQueue, None] = {}  # not yet part of the transaction, or behind a gap in it
        self._admitted = 0
        self._seal_failures = 0
        if ids is not None:
            ids.on_failure = self._fail_unsent
        self._listener = listener or BatchListener()
        self._queues = LeaderQueues(accumulator, metadata)
        self._in_flight = 0  # batches
        self._oldest_open = limits.linger + OLDEST_OPEN * limits.delivery_timeout
        self._close_at = 0.0  # when to look for old open batches again
        self._delivery_timeout = limits.delivery_timeout
        self._request_timeout = limits.request_timeout
        self._max_request_size = limits.max_request_size
        self._acks = limits.acks
        self._adaptive = AdaptivePartitioning(accumulator, limits.availability_timeout) if limits.adaptive else None

    # ---- the manager ------------------------------------------------------------------------------------------------

    def poll(self, now: float, ready: Ready) -> ReadyRequests:
        """Requests as full as ``max_request_size`` allows, as many for each node as it has room for."""
        self._check_ages(now)
        self._admit(now)
        self._queues.update(now)
        return ready_requests(self, ready, now)

    def _polled(self, now: float, stuck: list[int]) -> None:
        """No more can be written now; *stuck* are the nodes that cannot accept what is ready for them."""
        if self._adaptive is not None:
            self._adaptive.update(now, stuck, self._view.cluster)

    def next_deadline(self) -> float | None:
        """The next linger, end of a pause, expiry, or node to avoid."""
        first = earlier(self._accumulator.next_linger(), self._queues.next_deadline())
        if self._adaptive is not None:
            first = earlier(first, self._adaptive.next_deadline())
        oldest = self._accumulator.oldest()
        return first if oldest is None else earlier(first, self._next_check(oldest))

    def idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        idle = not self._in_flight and self._accumulator.oldest() is None
        self._report_unsealed()
        return idle

    def _report_unsealed(self) -> None:
        """A batch that could not be compressed was in no request: its transaction must not be committed without it."""
        if self._accumulator.seal_failures > self._seal_failures:
            self._seal_failures = self._accumulator.seal_failures
            if self._transactions is not None:
                self._transactions.batch_failed(KafkaError("a batch could not be compressed, so its records were not sent"))

    def flush(self) -> None:
        """Let every open batch leave at once."""
        self._accumulator.flush_open()

    def fail_unsent(self, error: KafkaError) -> bool:
        """The transaction is aborted: fail the batches that never left, and those behind a gap.

        Batches that left are sent again until they are answered. Returns whether a failed one had left.
        """
        had_left = False
        for batch in self._accumulator.flush_open():
            if batch.state is not BatchState.IN_FLIGHT and not batch.result.done and not self._goes_on(batch):
                had_left |= batch.stamped
                self._accumulator.drop(batch)
                batch.result.fail(given_up(batch, error))
        self._admitted = -1  # look at their queues again: the reactor holds them
        return had_left

    def _goes_on(self, batch: Batch) -> bool:
        sequence = self._sequence(batch.queue)
        return batch.stamped and not (isinstance(sequence, TransactionalSequence) and sequence.is_broken)

    def abandon(self, error: KafkaError) -> None:
        """Fail everything that is not settled: the end of ``close`` or of the client.

        The error of a batch in flight says that it may be stored.
        """
        count = 0
        for batch in self._accumulator.flush_open():
            batch.in_doubt = in_doubt(batch)
            self._accumulator.drop(batch)
            count += batch.count if batch.result.fail(given_up(batch, error)) else 0
        if count:
            _log.warning("%s given up: %s", "1 record is" if count == 1 else f"{count} records are", error)

    def _fail_unsent(self, error: KafkaError) -> None:
        """The request for a producer id failed: what waits for one fails; a later record requests one again (I12)."""
        for batch in self._accumulator.flush_open():
            if batch.state is not BatchState.IN_FLIGHT and not batch.result.done:
                self._accumulator.drop(batch)
                self._fail(batch, given_up(batch, error))

    # ---- transactions -----------------------------------------------------------------------------------------------

    def _admits(self, batch: Batch, now: float) -> bool:
        """Whether its transaction has room for it; else it waits until it has."""
        if self._transactions is None or self._transactions.admits(batch.queue.topic_partition, now, repeated=batch.stamped):
            return True
        self._outside[batch.queue] = None
        return False

    def _admit(self, now: float) -> None:
        """Place the queues again that waited for their transaction."""
        admitted = 0 if self._transactions is None else self._transactions.admitted(now)
        if self._admitted == admitted:
            return
        self._admitted = admitted
        outside, self._outside = self._outside, {}
        for queue in outside:
            self._queues.place(queue, now)

    # ---- draining ---------------------------------------------------------------------------------------------------

    def _drain(self, at: NodeQueues, now: float) -> ProduceRequest | None:
        """At most one batch per partition, oldest-served first, at least one batch however large (P14)."""
        queues, node = at.queues, at.node
        if not self._has_id(queues):
            return None
        batches: list[Batch] = []
        ids: list[bytes | None] = []
        self._choose(node, now, queues, batches)
        for batch in batches:  # not before all are chosen: choosing may raise
            del queues[batch.queue]
            leader = self._queues.leader(batch.queue, node)
            ids.append(leader.topic_id)
            if self._start(batch, leader, now):
                queues[batch.queue] = None  # behind the others: the rest of it is for the next request
        return self._request(node, batches, ids) if batches else None

    def _choose(self, node: int, now: float, queues: dict[PartitionQueue, None], batches: list[Batch]) -> None:
        """Append what fits into one request to *batches*, and take out of *queues* those of which nothing may leave."""
        size = 0
        blocked: list[PartitionQueue] = []
        for queue in queues:
            batch = self._sendable(queue, node, now)
            if batch is None:
                blocked.append(queue)
                continue
            if batches and (size + batch.size > self._max_request_size or len(batches) == _MOST_BATCHES):
                break
            size += batch.size
            batches.append(batch)
        for queue in blocked:
            del queues[queue]

    def _has_more(self, at: NodeQueues) -> bool:
        """Whether a batch waits for this node that is not in flight.

        The first queue shows it: those that were served are behind the others.
        """
        first = next(iter(at.queues), None)
        return first is not None and self._accumulator.still_ready(first)

    def _has_id(self, queues: dict[PartitionQueue, None]) -> bool:
        """Whether there is a producer id, if one is needed.

        It is requested only while a batch waits for it. After a refusal the next record requests it again, not the next
        turn (I12).
        """
        if self._ids is None or self._ids.current is not None:
            return True
        for queue in list(queues):
            if self._accumulator.still_ready(queue):
                self._ids.want()
                break
            del queues[queue]
        return False

    def _sendable(self, queue: PartitionQueue, node: int, now: float) -> Batch | None:
        """The queue's next batch once it is sealed; None when nothing may leave.

        The queue comes back after its pause, when a batch in flight ends, or when a batch of it has been sealed
        elsewhere.
        """
        sequence = self._sequence(queue)
        if self._queues.is_paused(queue):
            return None
        if not sequence.has_room(self._queues.leader(queue, node)):
            if not sequence.in_flight and self._accumulator.still_ready(queue):
                self._outside[queue] = None  # behind a gap no answer brings it back, only the end of the transaction
            return None
        while True:
            batch = self._accumulator.head(queue)
            if batch is not None and batch.is_sealing():
                self._seal(batch)  # perhaps in another thread; a batch that cannot be compressed has left the queue afterwards
            if batch is not None and batch.is_sealed():
                return batch if sequence.may_send(batch) and self._admits(batch, now) else None
            if not self._accumulator.still_ready(queue):
                return None

    def _sequence(self, queue: PartitionQueue) -> PartitionSequence:
        if queue.sequence is None:
            queue.sequence = self._new_sequence()
        found: PartitionSequence = queue.sequence
        return found

    def _new_sequence(self) -> PartitionSequence:
        if self._transactions is not None:
            return TransactionalSequence(self._limits.in_flight, self._transactions)
        return PartitionSequence(self._limits.in_flight, self._ids is not None)

    def _start(self, batch: Batch, leader: Leader, now: float) -> bool:
        """The batch goes to the network; returns whether more of its partition may."""
        sequence = self._sequence(batch.queue)
        self._listener.leaves(batch, leader.node, sequence)
        producer_id = None if self._ids is None else self._ids.current
        if producer_id is not None and sequence.prepare(now, leader, producer_id):
            self._accumulator.unstamp(batch.queue)
        sequence.sent(batch, leader)
        if self._transactions is not None:
            self._transactions.left(batch.queue.topic_partition, now)
        self._in_flight += 1
        return self._accumulator.start(batch)

    def _request(self, node: int, batches: list[Batch], ids: list[bytes | None]) -> ProduceRequest:
        self._listener.sent(batches)
        transactions = self._transactions
        if transactions is None:
            return produce_request(node, batches, ids, self._acks, self._request_timeout, self)
        return produce_request(node, batches, ids, self._acks, self._request_timeout, self,
                               transactions.transactional_id, transactions.produce_versions)

    # ---- outcomes ---------------------------------------------------------------------------------------------------

    def ended(self, now: float, outcomes: BatchOutcomes) -> bool:
        """As `Owner.ended`: settle each batch; True if everything is stored and nothing else waits."""
        quiet = True
        if self._transactions is not None:
            self._transactions.markers.stored(now)
        for batch, outcome in outcomes:
            if not self._batch_ended(now, batch, outcome):
                quiet = False
        return quiet and not self._queues.waiting() and (self._transactions is None or not self._transactions.is_ending)

    def _batch_ended(self, now: float, batch: Batch, answered: ProduceOutcome) -> bool:
        """Whether it is stored, and nothing else of its partition may leave."""
        sequence = self._sequence(batch.queue)
        sequence.ended(batch, now)
        self._in_flight -= 1
        outcome = sequence.interpret(batch, answered, batch.queue.waiting[0] is batch)
        self._settle(now, sequence, batch, outcome)
        self._retire_id(sequence)
        if isinstance(outcome, Stored) and not self._accumulator.still_ready(batch.queue):
            return True
        self._queues.place(batch.queue, now)  # records that came in meanwhile may leave now
        return False

    def _settle(self, now: float, sequence: PartitionSequence, batch: Batch, outcome: ProduceOutcome) -> None:
        overdue = batch.result.done  # it expired or was abandoned in flight; from now on its buffer is not read any more
        if isinstance(outcome, Stored):
            self._stored(sequence, batch, outcome, overdue)
            return
        if outcome.in_doubt:
            batch.in_doubt = True
        if isinstance(outcome, Split) and batch.count > 1 and not overdue:
            batch.in_doubt = False  # if it is too large now, earlier attempts were too
            self._split(sequence, batch)
        elif isinstance(outcome, TryAgain) and batch.attempts <= self._limits.retries and not overdue:
            sequence.failed()
            self._retry(now, batch, outcome.error, outcome.moved)
        else:
            self._skip(sequence, batch)
            if not overdue:
                self._fail(batch, given_up(batch, outcome.error), record_errors(outcome))
            self._accumulator.release(batch)

    def _stored(self, sequence: PartitionSequence, batch: Batch, outcome: Stored, overdue: bool) -> None:
        sequence.stored()
        if outcome.base_offset == UNKNOWN and self._acks:
            _log.debug("a batch of %s is stored at an unknown offset", batch.queue.topic_partition)
        if not overdue:
            self._listener.stored(batch)
            batch.result.complete(outcome.base_offset, outcome.append_time)
        self._accumulator.release(batch)

    def _split(self, sequence: PartitionSequence, batch: Batch) -> None:
        """Its halves are sent instead; in a transaction they take its sequences."""
        self._listener.split(batch)
        at, first = list(batch.queue.waiting).index(batch), batch.sequence
        if isinstance(sequence, TransactionalSequence):
            sequence.failed()
            self._accumulator.split(batch)
            sequence.renumber(list(batch.queue.waiting)[at:at + 2], first)
        else:
            self._skip(sequence, batch)
            self._accumulator.split(batch)

    def _skip(self, sequence: PartitionSequence, batch: Batch) -> None:
        """The batch is not sent again.

        Its sequence counts as used if the broker may have it, otherwise there is a gap (I07).
        """
        if batch.in_doubt:
            sequence.failed()
        elif batch.stamped:
            sequence.gap()

    def _retire_id(self, sequence: PartitionSequence) -> None:
        if self._ids is not None and sequence.producer_id is not None and sequence.needs_new_id:
            self._ids.retire(sequence.producer_id)

    def _retry(self, now: float, batch: Batch, error: KafkaError, moved: bool) -> None:
        batch.last_error = error
        self._accumulator.retry(batch)
        self._queues.pause(batch.queue, now + self._backoff.after(batch.attempts, error))
        if moved:
            self._metadata.request_update()

    def _fail(self, batch: Batch, error: KafkaError, records: dict[int, KafkaError] | None = None) -> None:
        """Fail its records, and log that once for the batch."""
        if batch.result.fail(error, records):
            _log.warning("%s", error)
            if self._transactions is not None:
                self._transactions.batch_failed(error)

    # ---- age --------------------------------------------------------------------------------------------------------

    def _next_check(self, oldest: Batch) -> float:
        """When the oldest batch expires, or old open ones are to be closed."""
        return min(oldest.created + self._delivery_timeout, max(oldest.created + self._oldest_open, self._close_at))

    def _check_ages(self, now: float) -> None:
        oldest = self._accumulator.oldest()
        if oldest is not None and now >= self._next_check(oldest):
            self._expire(now)
            self._close_old(now)

    def _close_old(self, now: float) -> None:
        oldest = self._accumulator.oldest()
        if oldest is None or now < max(oldest.created + self._oldest_open, self._close_at):
            return
        self._close_at = now + self._oldest_open / 4
        for batch in self._accumulator.close_older(now - self._oldest_open):
            self._seal(batch)

    def _expire(self, now: float) -> None:
        """Batches older than ``delivery_timeout_ms`` fail, wherever they are (P18)."""
        while (batch := self._accumulator.oldest()) is not None:
            if now < batch.created + self._delivery_timeout:
                return
            unsent = batch.state is not BatchState.IN_FLIGHT
            self._accumulator.drop(batch)  # first: a record appended to it from now on would never be settled
            if unsent and batch.stamped:
                sequence = self._sequence(batch.queue)
                self._skip(sequence, batch)
                self._retire_id(sequence)
            last_error = batch.last_error or (self._ids and self._ids.last_error) or self._metadata.last_error
            leader = self._metadata.cluster.leader(batch.queue.topic_partition)
            self._fail(batch, expired(batch, now, self._limits.delivery_timeout, last_error, leader))


class ReadyRequests:
    """What a sender can write now. Each request is made when it is taken, which is when the one before is written."""

    _sender: Sender
    _ready: Ready
    _now: float
    _nodes: list[NodeQueues]
    _next: int
    """Which of them is next."""
    _room: int
    """Of that one, when the last request was made; -1: none was."""
    _stuck: list[int]

    def __iter__(self) -> ReadyRequests:
        return self

    def __next__(self) -> ProduceRequest:
        while self._next < len(self._nodes):
            at = self._nodes[self._next]
            request = self._of_node(at) if at.queues else None
            if request is not None:
                return request
            self._next += 1
            self._room = -1
        self._sender._polled(self._now, self._stuck)
        raise StopIteration

    def _of_node(self, at: NodeQueues) -> ProduceRequest | None:
        """The next one; None if the node has no room, or nothing more may leave."""
        first, free = self._room < 0, self._ready.slots(at.node, PRODUCE)
        self._room = free if first else min(self._room - 1, free)
        if self._room:
            return self._sender._drain(at, self._now)
        if first or self._sender._has_more(at):
            self._stuck.append(at.node)
        return None


def ready_requests(sender: Sender, ready: Ready, now: float) -> ReadyRequests:
    """What *sender* can write to nodes as far as *ready* allows."""
    made: ReadyRequests = ReadyRequests.__new__(ReadyRequests)
    made._sender = sender
    made._ready = ready
    made._now = now
    made._nodes = sender._queues.nodes()
    made._next = 0
    made._room = -1
    made._stuck = []
    return made
