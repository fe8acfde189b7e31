# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Collects records into batches: user threads append, the client's reactor takes batches that are ready.

Independent of brokers, requests and sockets. What it does under its lock
is in `pending_batches` (batches), `batch_memory` (buffers and waiters), `ready_queues` (what may leave) and `queues`
(topics).
Rules: there is one lock, never held while compressing or calling user code. A buffer returns to the pool only when
nothing reads it (P07).
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_GET_SIZE
from cython.cimports.pyclient.buffers.batch import IN_FLIGHT, SEALED, Batch, fits
from cython.cimports.pyclient.buffers.batch_memory import BatchMemory
from cython.cimports.pyclient.buffers.clock import now_ms
from cython.cimports.pyclient.buffers.delivery import Delivery, add_outcome_listener, callback_of
from cython.cimports.pyclient.buffers.delivery_callbacks import checked_callback
from cython.cimports.pyclient.buffers.lock import acquire_lock, free_gate, make_gate, release_lock
from cython.cimports.pyclient.buffers.pending_batches import FITS, FULL, NO_BATCH, PendingBatches
from cython.cimports.pyclient.buffers.queues import PartitionQueue, TopicQueues, TopicTable
from cython.cimports.pyclient.buffers.ready_queues import ReadyQueues
from cython.cimports.pyclient.buffers.rows import Row, Rows, bound_of
from cython.cimports.pyclient.buffers.sealing import SealedRecords, sealed_records
from cython.cimports.pyclient.buffers.topic_compression import Codecs
from cython.cimports.pyclient.clocks import seconds_of
from cython.cimports.pyclient.codec.encode import record_bound

from pyclient.buffers.batch_split import halves
from pyclient.codec.encode import HEADER_SIZE
from pyclient.errors import BufferExhaustedError, ClientClosedError, RecordTooLargeError, raisable


@cython.final
@cython.cclass
class Accumulator:
    """Batches of every partition, within ``buffer_memory``.

    `append` is called by any thread, most other methods by the reactor.
    ``on_ready`` is called (by any thread, outside the lock) when the reactor has to look: a queue that it does not hold
    is ready (`take_ready`), or a linger ends before the reactor wakes (`next_linger`). It is called again with every
    batch until the reactor has looked.
    ``on_outcome``, unless None, gets every record's metadata or error, where callbacks run. ``codecs`` are the codec
    and level of topics that do not use *compression*. ``wall`` returns ms since the epoch; None reads the system's
    clock, without a call.
    The fields are declared in accumulator.pxd.
    """

    def __cinit__(self):
        if make_gate(cython.address(self._lock)):
            raise MemoryError

    def __dealloc__(self):
        free_gate(cython.address(self._lock))

    def __init__(self, *, memory, batch_size, max_request_size, linger, compression, level, observer, clock, wall, random, codecs=None):
        batch_limit = max(min(batch_size, max_request_size) - HEADER_SIZE, 1)
        self.on_ready = _ignore
        self._topics = TopicTable(batch_limit, random)
        self._memory = BatchMemory(memory, batch_limit)
        self._ready = ReadyQueues(linger)
        self._batches = PendingBatches(
            self._topics, self._memory, self._ready, min(max_request_size - HEADER_SIZE, memory), observer, clock)
        self._clock = clock
        self._wall = wall
        self._max_request_size = max_request_size
        self._codecs = Codecs(compression, level, codecs or {})

    @property
    def pool(self):
        return self._memory.pool

    @property
    def waits(self):
        return self._memory.waits

    @property
    def unsettled(self):
        """The number of records in batches neither released nor dropped."""
        return self._batches.unsettled

    @property
    def seal_failures(self):
        """The number of batches that could not be compressed."""
        return self._batches.seal_failures

    @property
    def on_outcome(self):
        return self._batches.on_outcome

    @on_outcome.setter
    def on_outcome(self, listener):
        self._batches.on_outcome = listener

    # ---- any thread -------------------------------------------------------------------------------------------------

    def topic(self, name):
        """The queues of a topic; None while its partitions are unknown."""
        return self._topics.by_name.get(name)

    def append(self, topic: TopicQueues, partition: cython.Py_ssize_t, timestamp: cython.longlong, key: bytes | None, value: bytes | None,
               headers: bytes | None, waiter=None, on_delivery=None):
        """Add a record and return its `Delivery`, or None when there is no memory for it (then `wait` for some).

        ``partition`` -1 is the topic's sticky partition, ``timestamp`` -1 is now. *waiter* is one that `wait` got
        memory for.
        *on_delivery* is added to the delivery under the lock, before a later record can be appended: callbacks run in
        the records' order.
        """
        return self.append_record(topic, partition, timestamp, key, value, headers, waiter, on_delivery)

    @cython.cfunc
    def append_record(self, topic: TopicQueues, partition: cython.Py_ssize_t, timestamp: cython.longlong, key: bytes | None,
                      value: bytes | None, headers: bytes | None, waiter: object, on_delivery: object) -> Delivery:
        key_size: cython.Py_ssize_t = -1 if key is None else PyBytes_GET_SIZE(key)
        value_size: cython.Py_ssize_t = -1 if value is None else PyBytes_GET_SIZE(value)
        headers_size: cython.Py_ssize_t = -1 if headers is None else PyBytes_GET_SIZE(headers)
        need: cython.Py_ssize_t = record_bound(key_size, value_size, headers_size)
        batches: PendingBatches = self._batches
        full: list = None
        opened: cython.bint = False
        if on_delivery is not None:
            checked_callback(on_delivery)
        if need > batches.largest_need:
            raise too_large(topic, need, self._max_request_size, self.pool.total)
        if timestamp < 0:
            timestamp = now_ms() if self._wall is None else self._wall()
        delivery: Delivery = None
        try:
            acquire_lock(cython.address(self._lock))
            try:
                if self._closed is not None:
                    raise raisable(self._closed)
                queue: PartitionQueue = self._topics.queue_for(topic, partition, 0)
                room: cython.int = FITS if fits(queue._open, need, timestamp) else batches.room(queue._open, need, timestamp, waiter)
                while room == FULL:
                    full = full or []
                    full.append(batches.detach(queue))
                    queue = self._topics.queue_for(topic, partition, need)  # a full batch ends the turn of the sticky partition
                    room = batches.room(queue._open, need, timestamp, waiter)
                batch: Batch = queue._open if room == FITS else None
                if room == NO_BATCH:
                    batch = batches.open(queue, need, timestamp, waiter)
                    opened = batch is not None
                if batch is not None:
                    topic._sticky_bytes -= batch._at if partition < 0 else 0
                    delivery = batch.put(timestamp, key, key_size, value, value_size, headers, headers_size)
                    topic._sticky_bytes += batch._at if partition < 0 else 0
                    batches.unsettled += 1
                    if batches.on_outcome is not None:
                        add_outcome_listener(delivery, batches.on_outcome)
                    if on_delivery is not None:
                        delivery._batch.when_done(callback_of(delivery, on_delivery))
            finally:
                release_lock(cython.address(self._lock))
        finally:  # also without memory for another batch: only this call can seal what it detached
            if full is not None:
                self._seal_all(full)
        if full is None and (opened or self._unannounced):
            self._notify_loop()
        if opened and self.on_new_batch is not None:
            self.on_new_batch(queue.topic, queue.partition)
        return delivery

    def append_rows(self, rows: Rows, waiter=None):
        """Add *rows* in their order. Returns True when none is left; False without memory, then `wait_rows`.

        The lock is held no longer than a batch takes to fill. *waiter* is one that `wait_rows` got memory for.
        """
        first: cython.Py_ssize_t = rows.at
        full: Batch
        opened: list
        queue: PartitionQueue
        while rows.at < rows.end:
            need: cython.Py_ssize_t = bound_of(cython.address(rows.rows[rows.at]))
            if need > self._batches.largest_need:
                rows.reject(too_large(rows.topic, need, self._max_request_size, self.pool.total))
                continue
            full, opened, rows.starved = None, [], False
            try:
                acquire_lock(cython.address(self._lock))
                try:
                    if self._closed is not None:
                        raise raisable(self._closed)
                    full = self._batches.append_rows(rows, first, waiter, opened)
                finally:
                    release_lock(cython.address(self._lock))
            except IndexError as error:  # the topic was created again, with fewer partitions
                rows.reject(error)
            if full is not None:
                self._seal_all([full])
            elif opened or self._unannounced:
                self._notify_loop()
            if self.on_new_batch is not None:
                for queue in opened:
                    self.on_new_batch(queue.topic, queue.partition)
            if rows.starved:
                return False
        return True

    def wait(self, topic: TopicQueues, partition: cython.Py_ssize_t, key: bytes | None, value: bytes | None, headers: bytes | None, waiter):
        """Queue *waiter* for the memory of this record and notify it when `append` may use it. Then call `leave`."""
        self._wait(topic, partition, waiter, record_bound(
            -1 if key is None else len(key), -1 if value is None else len(value), -1 if headers is None else len(headers)))

    def wait_rows(self, rows: Rows, waiter):
        """As `wait`, for the next record of *rows* and those behind it that fill the same batch."""
        row: cython.pointer(Row) = cython.address(rows.rows[rows.at])
        if row.partition < len(rows.topic):
            self._wait(rows.topics[row.topic], row.partition, waiter, self._batches.need_of_rest(rows, bound_of(row)))
        else:
            waiter.notify()  # the topic was created again, with fewer partitions: `append_rows` refuses it

    def _wait(self, topic: TopicQueues, partition: cython.Py_ssize_t, waiter, need: cython.Py_ssize_t):
        acquire_lock(cython.address(self._lock))
        try:
            if self._closed is not None:
                raise raisable(self._closed)
            self._memory.wait(self._topics.queue_for(topic, partition, 0), need, waiter, seconds_of(self._clock))
            self._ready.flush_open()
        finally:
            release_lock(cython.address(self._lock))
        self._notify_loop()

    def leave(self, waiter):
        """Stop waiting; a grant goes to the next waiter."""
        acquire_lock(cython.address(self._lock))
        try:
            self._memory.leave(waiter, seconds_of(self._clock))
        finally:
            release_lock(cython.address(self._lock))

    def exhausted(self, topic: TopicQueues, waited):
        """The error for a record for which no memory was free within its time."""
        acquire_lock(cython.address(self._lock))
        try:
            self.rejected += 1
            return BufferExhaustedError(
                f"no room for a record of topic {topic.topic} after {waited:.3f} s: {self._memory.usage(len(self._batches.all()))}. "
                "Nothing was queued. Send slower, raise buffer_memory, or check the brokers.")
        finally:
            release_lock(cython.address(self._lock))

    def reject_rest(self, count: cython.Py_ssize_t):
        """Count *count* records of a bulk that are rejected because one before them found no memory."""
        acquire_lock(cython.address(self._lock))
        try:
            self.rejected += count
        finally:
            release_lock(cython.address(self._lock))

    def codec(self, topic):
        """The codec of a topic's batches, and its level or None."""
        return self._codecs.of(topic)

    def seal(self, batch):
        """Compress and checksum a detached batch in the calling thread, without the lock.

        A thread other than the reactor's then calls ``on_ready``.

        A batch that cannot be compressed is released, like one that was dropped meanwhile, and fails with the cause. It
        is counted before it fails: a transaction is never found settled without it.
        """
        sealed: SealedRecords = sealed_records(batch, self._codecs)
        acquire_lock(cython.address(self._lock))
        try:
            self._batches.seal(batch, sealed)
        finally:
            release_lock(cython.address(self._lock))
        if sealed.error is not None:
            batch.result.fail(sealed.error)
        if sealed.interrupt is not None:
            raise sealed.interrupt

    def give_up_unsealed(self, batch: Batch, error):
        """Sealing the batch raised, so its state is unknown: count it and give it up, then fail it, in this order."""
        acquire_lock(cython.address(self._lock))
        try:
            self._batches.give_up_unsealed(batch)
        finally:
            release_lock(cython.address(self._lock))
        batch.result.fail(error)

    @cython.cfunc
    def _seal_all(self, detached: list) -> object:
        """Seal every batch, even after an interrupt (Ctrl-C), which is raised at the end: no other call seals them."""
        batch: Batch
        stopped = None
        for batch in detached:
            try:
                self.seal(batch)
            except BaseException as stop:  # noqa: BLE001 it is raised below
                stopped = stopped or stop
        self._notify_loop()
        if stopped is not None:
            raise stopped

    @cython.cfunc
    def _notify_loop(self) -> object:
        if self._ready.changed:
            self._unannounced = True  # and it stays so if Ctrl-C ends both calls: the next record announces what is ready
            try:
                self.on_ready()
            except BaseException:  # Ctrl-C: earlier records may have waiters, and perhaps no other record follows
                self.on_ready()
                raise
            self._unannounced = False

    # ---- the reactor ------------------------------------------------------------------------------------------------

    def set_topic(self, name, count, available):
        """Publish a topic's partitions, those of *available* with a leader; senders see them from now on."""
        led = frozenset(available)
        queue: PartitionQueue
        acquire_lock(cython.address(self._lock))
        try:
            topic: TopicQueues = self._topics.update(name, count, led)
            for queue in topic.queues:
                self._memory.set_leader(queue, queue.partition in led)
            self._memory.pool.readmit()
        finally:
            release_lock(cython.address(self._lock))

    def take_changed_topics(self, all_topics=False):
        """Topics whose sticky partition or leaders changed since the last call, or all: compute their shares again."""
        acquire_lock(cython.address(self._lock))
        try:
            return self._topics.take_changed(all_topics)
        finally:
            release_lock(cython.address(self._lock))

    def backlogs(self, topic: TopicQueues) -> list:
        """(partition, number of batches that are closed and not done), by partition, for partitions that have any."""
        acquire_lock(cython.address(self._lock))
        try:
            return topic.backlogs()
        finally:
            release_lock(cython.address(self._lock))

    def set_shares(self, topic: TopicQueues, shares):
        """Draw later sticky partitions of *topic* by these shares."""
        acquire_lock(cython.address(self._lock))
        try:
            topic.shares = shares
        finally:
            release_lock(cython.address(self._lock))

    def take_ready(self, now):
        """Queues of which something may leave now. The reactor holds them, without further calls of ``on_ready`` for
        them, until `start` or `still_ready` returns False.
        """
        acquire_lock(cython.address(self._lock))
        try:
            return self._ready.take(now)
        finally:
            release_lock(cython.address(self._lock))

    def still_ready(self, queue):
        """Whether something of a queue may leave. If not, the reactor lets go of it; a change calls ``on_ready``."""
        acquire_lock(cython.address(self._lock))
        try:
            return self._ready.refresh(queue)
        finally:
            release_lock(cython.address(self._lock))

    def next_linger(self):
        """When the oldest linger ends, or None. The reactor wakes at that time; later ends do not call ``on_ready``."""
        acquire_lock(cython.address(self._lock))
        try:
            return self._ready.next_linger()
        finally:
            release_lock(cython.address(self._lock))

    def wakes_at(self, at: cython.double):
        """The reactor takes its next turn at this time: no linger that ends later calls ``on_ready``."""
        acquire_lock(cython.address(self._lock))
        try:
            self._ready.wakes_at(at)
        finally:
            release_lock(cython.address(self._lock))

    def head(self, queue):
        """The batch of *queue* to send next: SEALED; or SEALING, then the caller seals it first; or None for now.

        Call it only when a batch could be sent: until then the open batch fills.
        """
        acquire_lock(cython.address(self._lock))
        try:
            return self._batches.head(queue)
        finally:
            release_lock(cython.address(self._lock))

    def close_older(self, before: cython.double) -> list:
        """Close the open batches that were created before this time; the caller seals them.

        A batch that cannot be sent would fill, and its last record fail with its first.
        """
        acquire_lock(cython.address(self._lock))
        try:
            return self._batches.detach_older(before)
        finally:
            release_lock(cython.address(self._lock))

    def start(self, batch):
        """Note that the batch goes to the network. Returns `still_ready` of its queue."""
        acquire_lock(cython.address(self._lock))
        try:
            batch._state = IN_FLIGHT
            batch.attempts += 1
            return self._ready.refresh(batch.queue)
        finally:
            release_lock(cython.address(self._lock))

    def retry(self, batch):
        """The batch was not delivered and may leave again; it has kept its place in its queue (P21)."""
        acquire_lock(cython.address(self._lock))
        try:
            batch._state = SEALED
        finally:
            release_lock(cython.address(self._lock))

    def unstamp(self, queue):
        """Clear the sequences of the waiting batches. Call it with nothing in flight, before a new producer epoch."""
        acquire_lock(cython.address(self._lock))
        try:
            self._batches.unstamp(queue)
        finally:
            release_lock(cython.address(self._lock))

    def split(self, batch: Batch):
        """Replace a batch whose request has ended by two halves, which share its memory (P20)."""
        parts = halves(b"".join(batch.pieces()), batch.result.base_timestamp, *self.codec(batch.queue.topic))
        results = batch.result.split([part.count for part in parts])
        acquire_lock(cython.address(self._lock))
        try:
            self._batches.split(batch, parts, results)
        finally:
            release_lock(cython.address(self._lock))

    def release(self, batch):
        """Forget the batch and reuse its memory: nothing reads it any more."""
        acquire_lock(cython.address(self._lock))
        try:
            self._batches.release(batch)
        finally:
            release_lock(cython.address(self._lock))

    def drop(self, batch: Batch):
        """Give the batch up: it takes no more records, and its memory returns to the pool, at once if nothing reads it.

        The caller releases a batch in flight when its request has ended (P07); `seal` releases one that is being
        sealed.
        """
        acquire_lock(cython.address(self._lock))
        try:
            self._batches.drop(batch)
        finally:
            release_lock(cython.address(self._lock))

    def flush_open(self):
        """Let every open batch leave at once, and return all batches not done."""
        acquire_lock(cython.address(self._lock))
        try:
            self._ready.flush_open()
            return self._batches.all()
        finally:
            release_lock(cython.address(self._lock))

    def oldest(self):
        """The batch created first among those without an outcome; None if there is none."""
        acquire_lock(cython.address(self._lock))
        try:
            return self._batches.oldest()
        finally:
            release_lock(cython.address(self._lock))

    def close(self, error=None):
        """Refuse records from now on, and end every wait for memory."""
        acquire_lock(cython.address(self._lock))
        try:
            self._closed = error or ClientClosedError("this producer is closed; nothing was queued. Open a new one.")
            self._shut = True
            self._memory.pool.end_waits()
        finally:
            release_lock(cython.address(self._lock))

    def forked(self, error):
        """In a forked child: also a call that began before the fork is refused. A lost thread may hold the lock."""
        self._closed, self._shut = error, True

    def set_gate(self, error):
        """Refuse records with *error* from now on, and end every wait for memory; None: accept them, unless closed."""
        acquire_lock(cython.address(self._lock))
        try:
            if not self._shut:
                self._closed = error
                if error is not None:
                    self._memory.pool.end_waits()
        finally:
            release_lock(cython.address(self._lock))

    def check_gate(self):
        """Raise if no record is accepted now: for calls that would wait before they queue one."""
        acquire_lock(cython.address(self._lock))
        try:
            if self._closed is not None:
                raise raisable(self._closed)
        finally:
            release_lock(cython.address(self._lock))


@cython.cfunc
def too_large(topic: TopicQueues, need: cython.Py_ssize_t, max_request_size: cython.Py_ssize_t, memory: cython.Py_ssize_t) -> object:
    """The error for a record that can never be sent; *need* is its bound without a batch header."""
    option, limit = ("max_request_size", max_request_size)
    if need > memory:
        option, limit = ("buffer_memory", memory)
    return RecordTooLargeError(
        f"a record for topic {topic.topic} takes up to {need + HEADER_SIZE} B with its batch header, more than "
        f"{option}={limit}. It can never be sent and was not queued: make it smaller or raise {option}.")


def _ignore():
    """The default of ``on_ready``."""
