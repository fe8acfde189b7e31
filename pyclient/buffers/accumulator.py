# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Where records become batches: appended by user threads, drained by the client's loop.

Knows records, partitions, memory and the linger; knows no brokers, requests or sockets.
Rules: one lock, never held while compressing or calling user code. A partition's queue leaves only from its head.
Partitions without a leader hold at most half the memory together, so that they stop no other. A buffer goes back to the pool only through `release`, by whoever knows that nothing reads it any more (P07).
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.libc.stdint import INT32_MAX, INT32_MIN
from cython.cimports.libc.stdint import int32_t
from cython.cimports.pyclient.buffers.deliveries import Deliveries
from cython.cimports.pyclient.buffers.delivery import BatchResult, Delivery, new_delivery
from cython.cimports.pyclient.buffers.rows import Filling, Row, Rows, bound_of, fill
from cython.cimports.pyclient.codec.encode import put_record, record_bound

import enum
from bisect import bisect_right
from collections import OrderedDict, deque

from pyclient.buffers.delivery import BatchResult as _BatchResult
from pyclient.buffers.pool import Pool, Waits
from pyclient.buffers.splitting import halves
from pyclient.codec.compression import Compression, compress
from pyclient.codec.crc import crc32c
from pyclient.codec.encode import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, batch_header
from pyclient.errors import BufferExhausted, ClientClosed, KafkaError, RecordTooLargeError
from pyclient.records import TopicPartition


class BatchState(enum.IntEnum):
    """The life of a batch; it only moves forward, save back from IN_FLIGHT to SEALED for a retry."""

    OPEN = 0
    SEALING = 1
    SEALED = 2
    IN_FLIGHT = 3
    DONE = 4


OPEN = cython.declare(cython.int, 0)
SEALING = cython.declare(cython.int, 1)
SEALED = cython.declare(cython.int, 2)
IN_FLIGHT = cython.declare(cython.int, 3)
DONE = cython.declare(cython.int, 4)


@cython.final
@cython.cclass
class PartitionQueue:
    """The batches of one partition: the open one takes records, the others wait in order."""

    topic = cython.declare(str, visibility="readonly")
    partition = cython.declare(cython.int, visibility="readonly")
    waiting = cython.declare(object, visibility="readonly")  # deque of Batch: SEALING, SEALED or IN_FLIGHT
    _open: object
    _due: cython.bint  # the open batch may leave: its linger has passed, or flush or memory pressure wants it
    _listed: cython.bint  # stands in the Accumulator's ready list
    _leaderless: cython.bint
    _held: cython.Py_ssize_t  # bytes of memory that its batches take
    _home: object  # the TopicQueues it belongs to

    def __init__(self, home: object, topic: str, partition: cython.int):
        self._home = home
        self.topic = topic
        self.partition = partition
        self.waiting = deque()

    @property
    def topic_partition(self):
        return TopicPartition(self.topic, self.partition)

    def __repr__(self):
        return f"<PartitionQueue {self.topic}-{self.partition} {len(self.waiting)} waiting>"


@cython.final
@cython.cclass
class TopicQueues:
    """A topic's partitions as senders see them, and the partition keyless records stick to for now (KIP-794)."""

    topic = cython.declare(str, visibility="readonly")
    queues = cython.declare(list, visibility="readonly")
    available = cython.declare(tuple, visibility="readonly")  # partitions with a leader; all of them when none has one
    _count: cython.Py_ssize_t
    shares = cython.declare(object, visibility="readonly")  # of the available ones in what has no key; None: all the same
    _sticky: cython.int
    _sticky_bytes: cython.Py_ssize_t
    _busy: dict  # its queues that hold batches which are closed and not done

    def __init__(self, topic: str):
        self.topic = topic
        self.queues = []
        self.available = ()
        self._sticky = -1
        self._busy = {}

    def update(self, count, available):
        """The topic has *count* partitions now, those of *available* with a leader.

        Fewer than before when it was created anew: the queues of the others take no more records, but keep what they hold.
        """
        for number in range(len(self.queues), count):
            self.queues.append(PartitionQueue(self, self.topic, number))
        self._count = count
        self.shares = None
        self.available = tuple(available) or tuple(range(count))
        if self._sticky not in self.available:
            self._sticky = -1

    def pick(self, draw: cython.double):
        """The partition that *draw*, from 0 up to but not 1, falls on: a binary search in the sums of the shares (P32)."""
        if self.shares is None:
            return self.available[int(draw * len(self.available))]
        total, whole, ends, positions = self.shares
        point: cython.longlong = int(draw * total)
        behind: cython.Py_ssize_t = bisect_right(ends, point)  # so many busy ones lie wholly before the point
        at: cython.longlong = point // whole
        if behind > 0:
            at = positions[behind - 1] + 1 + (point - ends[behind - 1]) // whole
        return self.available[at if behind == len(ends) else min(at, positions[behind])]

    def __len__(self):
        return self._count


@cython.final
@cython.cclass
class Batch:
    """Records of one partition that travel, and succeed or fail, together."""

    queue = cython.declare(PartitionQueue, visibility="readonly")
    result = cython.declare(BatchResult, visibility="readonly")
    created = cython.declare(cython.double, visibility="readonly")  # seconds, the Accumulator's clock
    count = cython.declare(cython.int, visibility="readonly")
    max_timestamp = cython.declare(cython.longlong, visibility="readonly")
    largest = cython.declare(cython.Py_ssize_t, visibility="readonly")  # bytes of its largest record
    payload = cython.declare(object, visibility="readonly")  # what is sent after the header, once sealed
    attempts = cython.declare(cython.int, visibility="public")
    last_error = cython.declare(object, visibility="public")  # why the last attempt failed
    in_doubt = cython.declare(cython.bint, visibility="public")  # an attempt may have stored it, though no answer says so
    producer_id = cython.declare(cython.longlong, visibility="readonly")  # its stamp, if it is `stamped`
    epoch = cython.declare(cython.int, visibility="readonly")
    sequence = cython.declare(cython.int, visibility="readonly")  # of its first record
    _buffer: bytearray
    _at: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _state: cython.int
    _charged: cython.Py_ssize_t
    _dropped: cython.bint  # given up while somebody reads its buffer: released when that ends
    _crc: object
    _codec: object
    _bulk: Deliveries  # the last bulk with records in it, which knows it under the number _part
    _part: int32_t

    @property
    def state(self):
        """Its `BatchState`."""
        return BatchState(self._state)

    @property
    def size(self):
        """Bytes on the wire once sealed, header included; before that, bytes appended so far."""
        return HEADER_SIZE + (self._at if self.payload is None else len(self.payload))

    @property
    def appended(self):
        """Bytes of its records, before compression."""
        return self._at

    @property
    def stamped(self):
        """Whether it has a producer id, epoch and sequence, which every attempt repeats (P16)."""
        return self.producer_id >= 0

    def stamp(self, producer_id, epoch, sequence):
        """Give it the name by which a broker knows it again."""
        self.producer_id, self.epoch, self.sequence = producer_id, epoch, sequence

    def pieces(self):
        """A fresh header and the sealed records, to be written one after the other."""
        header = batch_header(
            producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=self.sequence,
            records_crc=self._crc, records_size=len(self.payload), count=self.count, attributes=int(self._codec),
            base_timestamp=self.result.base_timestamp, max_timestamp=self.max_timestamp)
        return [header, self.payload]

    def __repr__(self):
        return f"<Batch {self.queue.topic}-{self.queue.partition} {self.count} records {self.size} B {self.state.name}>"


@cython.final
@cython.cclass
class Accumulator:
    """Batches of every partition, within ``buffer_memory``. `append` is called by any thread, the rest by the loop.

    ``on_ready`` is called (by any thread, outside the lock) when the loop has something new to look at; ``on_outcome``, unless
    None, with every record's metadata or error, where callbacks run. ``codecs`` are the topics that are compressed in another
    way than the rest: codec and level of each.
    """

    pool = cython.declare(object, visibility="readonly")
    waits = cython.declare(object, visibility="readonly")
    refused = cython.declare(cython.Py_ssize_t, visibility="readonly")  # records that found no room within their time
    on_ready = cython.declare(object, visibility="public")
    on_outcome = cython.declare(object, visibility="public")
    on_new_batch = cython.declare(object, visibility="public")  # None, or told topic and partition, outside of the lock
    unsettled = cython.declare(cython.Py_ssize_t, visibility="readonly")  # records of batches neither released nor dropped
    _lock: cython.pymutex
    _topics: dict
    _observer: object
    _clock: object
    _wall: object
    _random: object
    _batch_limit: cython.Py_ssize_t
    _largest_record: cython.Py_ssize_t
    _linger: cython.double
    _memory: cython.Py_ssize_t
    _stranded: cython.Py_ssize_t  # bytes of memory that partitions without a leader hold
    _codec: tuple  # and its level
    _codecs: dict
    _closed: object
    _ready: list
    _turned: dict  # topics whose sticky partition has changed since `turned` was asked
    _lingering: object  # open batches in the order in which their linger ends
    _live: object  # batches not done, in the order of their creation

    def __init__(self, *, memory, batch_size, max_request_size, linger, compression, level, observer, clock, wall, random, codecs=None):
        limit = max(min(batch_size, max_request_size) - HEADER_SIZE, 1)
        self.pool = Pool(memory, limit)
        self.waits = Waits()
        self.on_ready = _nothing
        self._topics = {}
        self._observer = observer
        self._clock = clock
        self._wall = wall
        self._random = random
        self._batch_limit = limit
        self._largest_record = max_request_size
        self._linger = linger
        self._memory = memory
        self._codec = (compression, level)
        self._codecs = dict(codecs or {})
        self._ready = []
        self._turned = {}
        self._lingering = OrderedDict()
        self._live = OrderedDict()

    # ---- any thread -------------------------------------------------------------------------------------------------

    def topic(self, name):
        """The queues of a topic; None while its partitions are unknown."""
        return self._topics.get(name)

    def append(self, topic: TopicQueues, partition: cython.Py_ssize_t, timestamp: cython.longlong, key: bytes | None, value: bytes | None,
               headers: bytes | None, waiter=None, on_delivery=None):
        """Add a record and return its `Delivery`, or None when there is no memory for it (then `wait` for some).

        ``partition`` -1 takes the topic's sticky partition, ``timestamp`` -1 is now. *waiter* is one that `wait` got memory for.
        *on_delivery* becomes the delivery's callback, before anybody can append behind it: callbacks run in the records' order.
        """
        key_size: cython.Py_ssize_t = -1 if key is None else PyBytes_GET_SIZE(key)
        value_size: cython.Py_ssize_t = -1 if value is None else PyBytes_GET_SIZE(value)
        headers_size: cython.Py_ssize_t = -1 if headers is None else PyBytes_GET_SIZE(headers)
        need: cython.Py_ssize_t = record_bound(key_size, value_size, headers_size)
        full: list = None
        fresh: cython.bint = False
        if need + HEADER_SIZE > self._largest_record or need > self._memory:
            raise self._too_large(topic, need)
        if timestamp < 0:
            timestamp = self._wall()
        delivery: Delivery = None
        with self._lock:
            if self._closed is not None:
                raise self._closed
            queue: PartitionQueue = self._queue_for(topic, partition, 0)
            while queue._open is not None and not self._fits(queue._open, need, timestamp):
                full = full or []
                full.append(self._detach(queue))
                queue = self._queue_for(topic, partition, need)  # a full batch ends the turn of the sticky partition
            batch: Batch = queue._open
            if batch is None:
                batch = self._new_batch(queue, need, timestamp, waiter)
                fresh = batch is not None
            if batch is not None:
                topic._sticky_bytes -= batch._at if partition < 0 else 0
                delivery = self._put(batch, timestamp, key, key_size, value, value_size, headers, headers_size)
                topic._sticky_bytes += batch._at if partition < 0 else 0
                self.unsettled += 1
                if self.on_outcome is not None:
                    delivery.tell(self.on_outcome)
                if on_delivery is not None:
                    delivery.add_done_callback(on_delivery)
        if full is not None:
            for batch in full:
                self.seal(batch)
        elif fresh:
            self.on_ready()
        if fresh and self.on_new_batch is not None:
            self.on_new_batch(queue.topic, queue.partition)
        return delivery

    def append_rows(self, rows: Rows, waiter=None):
        """Add *rows* in their order until none is left (True) or there is no memory for the next one (False: `wait_rows` for some).

        The lock is held no longer than a batch takes to fill. *waiter* is one that `wait_rows` got memory for.
        """
        first: cython.Py_ssize_t = rows.at
        full: Batch
        begun: list
        queue: PartitionQueue
        while rows.at < rows.end:
            need: cython.Py_ssize_t = bound_of(cython.address(rows.rows[rows.at]))
            if need + HEADER_SIZE > self._largest_record or need > self._memory:
                rows.refuse(self._too_large(rows.topic, need))
                continue
            full, begun, rows.starved = None, [], False
            try:
                with self._lock:
                    if self._closed is not None:
                        raise self._closed
                    full = self._put_rows(rows, first, waiter, begun)
            except IndexError as error:  # the topic was created anew, with fewer partitions
                rows.refuse(error)
            if full is not None:
                self.seal(full)
            elif begun:
                self.on_ready()
            if self.on_new_batch is not None:
                for queue in begun:
                    self.on_new_batch(queue.topic, queue.partition)
            if rows.starved:
                return False
        return True

    def wait(self, topic: TopicQueues, partition: cython.Py_ssize_t, key: bytes | None, value: bytes | None, headers: bytes | None, waiter):
        """Let *waiter* queue for the memory of this record; it is notified when `append` may be tried with it. Always `leave`."""
        self._line_up(topic, partition, waiter, record_bound(
            -1 if key is None else len(key), -1 if value is None else len(value), -1 if headers is None else len(headers)))

    def wait_rows(self, rows: Rows, waiter):
        """As `wait`, for the next record of *rows*; it asks for what those behind it fill too, up to a batch."""
        row: cython.pointer(Row) = cython.address(rows.rows[rows.at])
        if row.partition < len(rows.topic):
            self._line_up(rows.topics[row.topic], row.partition, waiter, max(bound_of(row), min(rows.bytes_left(), self._batch_limit)))
        else:
            waiter.notify()  # the topic was created anew, with fewer partitions: `append_rows` refuses it

    def _line_up(self, topic: TopicQueues, partition: cython.Py_ssize_t, waiter, need: cython.Py_ssize_t):
        with self._lock:
            if self._closed is not None:
                raise self._closed
            queue: PartitionQueue = self._queue_for(topic, partition, 0)
            size: cython.Py_ssize_t = self.pool.size_for(need)
            self.waits.begin(waiter, self._clock())
            self.pool.wait(waiter, size, lambda: not self._strands(queue, size))
            self._hurry()
        self.on_ready()

    def leave(self, waiter):
        """Give up waiting; a grant goes to the next."""
        with self._lock:
            self.waits.end(waiter, self._clock())
            self.pool.leave(waiter)

    def exhausted(self, topic: TopicQueues, waited):
        """The error for a record that found no room within its time."""
        with self._lock:
            self.refused += 1
            batches = len(self._live)
            return BufferExhausted(
                f"no room for a record of topic {topic.topic} after {waited:.3f} s: {self.pool.used} of {self.pool.total} B "
                f"wait in {batches} unsent batches{self._stranded_too()}. Nothing was queued. Send slower, raise buffer_memory, or "
                "check the brokers.")

    def refuse_behind(self, count: cython.Py_ssize_t):
        """So many records were in one bulk behind one that found no room, and are refused with it."""
        with self._lock:
            self.refused += count

    def codec(self, topic):
        """How batches of a topic are compressed: the codec, and its level or None."""
        return self._codecs.get(topic, self._codec)

    def seal(self, batch: Batch):
        """Compress and checksum a detached batch, by the calling thread and without the lock.

        A batch that cannot be compressed fails with the cause, like one that was dropped meanwhile it is released.
        """
        records = memoryview(batch._buffer)[:batch._at]
        stopped, unsealed = None, False
        try:
            codec, payload = self._compressed(batch.queue.topic, records)
        except Exception as error:  # noqa: BLE001 the batch is nobody's any more, and its records must learn why
            batch.result.fail(self._unsealed(batch, error))
            codec, payload, unsealed = Compression.NONE, records, True
        except BaseException as stop:  # noqa: BLE001 Ctrl-C: nobody else would seal it, and its partition would wait for ever
            codec, payload, stopped = Compression.NONE, records, stop
        batch._crc = crc32c(payload)
        with self._lock:
            batch._codec, batch.payload = codec, payload
            batch._state = SEALED
            if batch._dropped or unsealed:
                self._release(batch)
            elif payload is not records:
                self._swap(batch, len(payload), records)
            self._list(batch.queue)
        self.on_ready()
        if stopped is not None:
            raise stopped

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def set_topic(self, name, count, available):
        """Publish a topic's partitions, those of *available* with a leader; senders see it from now on."""
        led = frozenset(available)
        with self._lock:
            topic: TopicQueues = self._topics.get(name)
            if topic is None:
                topic = TopicQueues(name)
            topic.update(count, led)
            queue: PartitionQueue
            for queue in topic.queues:
                self._lead(queue, queue.partition in led)
            self._topics[name] = topic
            if topic._sticky >= 0:
                self._turned[topic] = None
            self.pool.readmit()

    def turned(self, everything: cython.bint = False) -> list:
        """Topics whose shares are worth a new look: another partition has become sticky, or leaders were told. *everything*: all."""
        with self._lock:
            turned, self._turned = self._turned, {}
            return list(self._topics.values() if everything else turned)

    def backlogs(self, topic: TopicQueues) -> list:
        """(partition, batches that are closed and not done) of those that have any, by partition."""
        queue: PartitionQueue
        with self._lock:
            busy: dict = {queue.partition: len(queue.waiting) for queue in topic._busy if queue.partition < topic._count}
            return [(partition, busy[partition]) for partition in sorted(busy)]

    def share_out(self, topic: TopicQueues, shares):
        """From the next turn of the sticky partition on, its successors are picked by these shares."""
        with self._lock:
            topic.shares = shares

    def take_ready(self, now: cython.double) -> list:
        """Queues with something that may leave now which were not given before."""
        with self._lock:
            while self._lingering:
                batch: Batch = next(iter(self._lingering))
                if now < batch.created + self._linger:
                    break
                self._lingering.popitem(False)
                batch.queue._due = True
                self._list(batch.queue)
            ready, self._ready = self._ready, []
            queue: PartitionQueue
            for queue in ready:
                queue._listed = False
            return ready

    def next_linger(self):
        """When the oldest open batch's linger ends, or None."""
        with self._lock:
            if not self._lingering:
                return None
            batch: Batch = next(iter(self._lingering))
            return batch.created + self._linger

    def head(self, queue: PartitionQueue):
        """The batch of *queue* to send next: SEALED; or SEALING, then the caller seals it first; or None for now.

        Asked only when it could be sent: until then an open batch goes on filling.
        """
        with self._lock:
            batch: Batch
            for batch in queue.waiting:
                if batch._state != IN_FLIGHT:
                    return batch if batch._state == SEALED else None
            if queue._open is not None and queue._due:
                return self._detach(queue)
            return None

    def start(self, batch: Batch):
        """The batch goes to the network."""
        with self._lock:
            batch._state = IN_FLIGHT
            batch.attempts += 1

    def retry(self, batch: Batch):
        """The batch came back undelivered and may leave again; it has kept its place in its queue (P21)."""
        with self._lock:
            batch._state = SEALED

    def unstamp(self, queue: PartitionQueue):
        """Nothing of *queue* is under way, and a new epoch begins: what waits gets other sequences."""
        with self._lock:
            batch: Batch
            for batch in queue.waiting:
                batch.stamp(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)

    def split(self, batch: Batch):
        """Two halves take the place of a batch whose request has ended, and share its memory between them (P20)."""
        parts = halves(b"".join(batch.pieces()), batch.result.base_timestamp, *self.codec(batch.queue.topic))
        results = batch.result.split([part.count for part in parts])
        with self._lock:
            queue: PartitionQueue = batch.queue
            at: cython.Py_ssize_t = queue.waiting.index(batch)
            shares = self._share(batch, [len(part.payload) for part in parts])
            del queue.waiting[at]
            for part, result, share in reversed(list(zip(parts, results, shares, strict=True))):
                half: Batch = _half(batch, part, result, share)
                queue.waiting.insert(at, half)
                self._live[half] = None
            self._live.pop(batch)
            self._live = OrderedDict.fromkeys(sorted(self._live, key=_created))
            self._list(queue)

    def release(self, batch: Batch):
        """Nothing reads the batch any more: forget it and reuse its memory."""
        with self._lock:
            self._release(batch)

    def drop(self, batch: Batch):
        """Give the batch up: it takes no record any more, and its memory goes back, at once if nothing reads it.

        A batch under way is released by whoever learns that its request has ended (P07), one that is being sealed after that.
        """
        with self._lock:
            if not batch._dropped and batch._state != DONE:
                self.unsettled -= batch.count
            batch._dropped = True
            if batch._state == OPEN or batch._state == SEALED:
                self._release(batch)

    def hurry(self):
        """Let every open batch leave at once (flush), and give all batches not done yet."""
        with self._lock:
            self._hurry()
            return list(self._live)

    def oldest(self):
        """The unsettled batch created first, or None."""
        with self._lock:
            batch: Batch
            for batch in self._live:
                if not batch.result._done:
                    return batch
            return None

    def close(self, error=None):
        """Refuse records from now on, and whoever waits for memory."""
        with self._lock:
            self._closed = error or ClientClosed("this producer is closed; nothing was queued. Open a new one.")
            self.pool.turn_away()

    # ---- under the lock ---------------------------------------------------------------------------------------------

    @cython.cfunc
    def _queue_for(self, topic: TopicQueues, partition: cython.Py_ssize_t, homeless: cython.Py_ssize_t) -> PartitionQueue:
        """*homeless* are the bytes of a record that found no room in the batch of the queue given before."""
        if partition < 0:
            if topic._sticky < 0 or self._turn_is_over(topic, homeless):
                # Not choice(): interpreted code under the lock would run the handlers of signals there, and theirs may send.
                topic._sticky = topic.pick(self._random.random())
                topic._sticky_bytes = 0
                self._turned[topic] = None
            partition = topic._sticky
        if partition >= topic._count:
            raise IndexError(f"topic {topic.topic} has {topic._count} partitions, numbered from 0; there is no {partition}")
        return topic.queues[partition]

    @cython.cfunc
    def _turn_is_over(self, topic: TopicQueues, homeless: cython.Py_ssize_t) -> cython.bint:
        """A batch's worth of bytes, and no batch to be filled (P31). The gap at a full batch's end counts, or a turn would begin another."""
        queue: PartitionQueue = topic.queues[topic._sticky]
        return queue._open is None and topic._sticky_bytes + homeless >= self._batch_limit

    @cython.cfunc
    def _fits(self, batch: Batch, need: cython.Py_ssize_t, timestamp: cython.longlong) -> cython.bint:
        delta: cython.longlong = timestamp - batch.result.base_timestamp
        if delta > INT32_MAX or delta < INT32_MIN or batch.count == INT32_MAX:
            return False
        if batch._at + need <= batch._limit:
            return True
        return batch._at + need <= self._batch_limit and self._grow(batch, batch._at + need)

    @cython.cfunc
    def _grow(self, batch: Batch, need: cython.Py_ssize_t) -> cython.bint:
        """Move the batch to the next size class, if memory allows."""
        size: cython.Py_ssize_t = self.pool.size_for(need)
        larger = None if self._strands(batch.queue, size) else self.pool.take(size)
        if larger is None:
            return False
        larger[:batch._at] = memoryview(batch._buffer)[:batch._at]
        self._account(batch.queue, len(larger) - len(batch._buffer))
        self.pool.give(batch._buffer)
        batch._buffer = larger
        batch._limit = min(len(larger), self._batch_limit)
        return True

    @cython.cfunc
    def _new_batch(self, queue: PartitionQueue, need: cython.Py_ssize_t, timestamp: cython.longlong, waiter: object) -> Batch:
        if waiter is not None:
            buffer, waiter.grant = waiter.grant, None
        else:
            size: cython.Py_ssize_t = self.pool.size_for(need)
            buffer = None if self._strands(queue, size) else self.pool.take(size)
        if buffer is None:
            return None
        self._account(queue, len(buffer))
        batch: Batch = Batch.__new__(Batch)
        batch.queue = queue
        batch.result = _BatchResult(self._observer, queue.topic, queue.partition)
        batch.result.base_timestamp = timestamp
        batch.max_timestamp = timestamp
        batch.stamp(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
        batch.created = self._clock()
        batch._buffer = buffer
        batch._limit = len(buffer) if need > self._batch_limit else min(len(buffer), self._batch_limit)
        queue._open = batch
        queue._due = self.pool.waiting > 0
        self._live[batch] = None
        if queue._due:
            self._list(queue)
        else:
            self._lingering[batch] = None
        return batch

    @cython.cfunc
    def _put(self, batch: Batch, timestamp: cython.longlong, key: bytes | None, key_size: cython.Py_ssize_t, value: bytes | None,
             value_size: cython.Py_ssize_t, headers: bytes | None, headers_size: cython.Py_ssize_t) -> Delivery:
        start: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(batch._buffer))
        delta: cython.longlong = timestamp - batch.result.base_timestamp
        end: cython.p_uchar = put_record(
            start + batch._at, delta, batch.count,
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(key)) if key is not None else cython.NULL, key_size,
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(value)) if value is not None else cython.NULL, value_size,
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(headers)) if headers is not None else cython.NULL, headers_size)
        batch.largest = max(batch.largest, end - start - batch._at)
        batch._at = end - start
        batch.max_timestamp = max(batch.max_timestamp, timestamp)
        delivery: Delivery = new_delivery(batch.result, batch.count, cython.cast(cython.int, delta))
        batch.count += 1
        batch.result.count = batch.count
        return delivery

    @cython.cfunc
    def _put_rows(self, rows: Rows, granted: cython.Py_ssize_t, waiter: object, begun: list) -> Batch:
        """Append until a batch is full, which is for the caller to seal; or as many bytes were written. The waiter's memory is for row *granted*.

        *begun* takes the queues in which a batch was begun.
        """
        budget: cython.Py_ssize_t = self._batch_limit
        batch: Batch
        while rows.at < rows.end and budget > 0:
            row: cython.pointer(Row) = cython.address(rows.rows[rows.at])
            need: cython.Py_ssize_t = bound_of(row)
            if need + HEADER_SIZE > self._largest_record or need > self._memory:
                return None
            topic: TopicQueues = rows.topics[row.topic]
            queue: PartitionQueue = self._queue_for(topic, row.partition, 0)
            batch = queue._open
            if batch is not None and not self._fits(batch, need, row.timestamp):
                batch = self._detach(queue)
                self._queue_for(topic, row.partition, need)  # a full batch ends the turn of the sticky partition
                return batch
            if batch is None:
                batch = self._new_batch(queue, need, row.timestamp, waiter if rows.at == granted else None)
                if batch is None:
                    rows.starved = True
                    return None
                begun.append(queue)
            budget -= self._fill(batch, topic, rows, budget)
        return None

    @cython.cfunc
    def _fill(self, batch: Batch, topic: TopicQueues, rows: Rows, budget: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Write the rows that go to *batch*, as long as they fit; gives their bytes. The first one fits."""
        into: Filling
        row: cython.pointer(Row) = cython.address(rows.rows[rows.at])
        start: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(batch._buffer))
        into.at, into.limit = start + batch._at, start + batch._limit
        into.base_timestamp, into.latest = batch.result.base_timestamp, batch.max_timestamp
        into.count, into.largest = batch.count, batch.largest
        into.budget = budget
        after: cython.Py_ssize_t = fill(rows.rows, rows.at, rows.end, cython.address(into))
        if batch._bulk is not rows.deliveries:
            batch._part = rows.deliveries.add_part(batch.result)
            batch._bulk = rows.deliveries
        rows.deliveries.put_run(rows.first + row.number, cython.cast(int32_t, after - rows.at), batch._part, batch.count, row.timestamp)
        self.unsettled += after - rows.at
        rows.decided += after - rows.at
        if self.on_outcome is not None:
            self._tell_outcomes(batch, rows, after)
        topic._sticky_bytes += into.at - start - batch._at if row.partition < 0 else 0
        batch._at = into.at - start
        batch.max_timestamp, batch.largest = into.latest, into.largest
        batch.count = batch.result.count = into.count
        rows.at = after
        return into.written

    @cython.cfunc
    def _tell_outcomes(self, batch: Batch, rows: Rows, after: cython.Py_ssize_t) -> object:
        """Of each of the rows before *after*, which follow what the batch holds."""
        at: cython.Py_ssize_t
        for at in range(rows.at, after):
            new_delivery(batch.result, cython.cast(cython.int, batch.count + at - rows.at),
                         cython.cast(cython.int, rows.rows[at].timestamp - batch.result.base_timestamp)).tell(self.on_outcome)

    @cython.cfunc
    def _detach(self, queue: PartitionQueue) -> Batch:
        """Close the open batch for appends and put it in line; whoever detaches also seals."""
        batch: Batch = queue._open
        batch._state = SEALING
        self._lingering.pop(batch, None)
        queue._open = None
        queue._due = False
        queue.waiting.append(batch)
        home: TopicQueues = queue._home
        home._busy[queue] = None
        return batch

    @cython.cfunc
    def _list(self, queue: PartitionQueue) -> object:
        if not queue._listed:
            queue._listed = True
            self._ready.append(queue)

    @cython.cfunc
    def _hurry(self) -> object:
        batch: Batch
        for batch in self._live:
            if batch._state == OPEN:
                batch.queue._due = True
                self._list(batch.queue)

    @cython.cfunc
    def _swap(self, batch: Batch, size: cython.Py_ssize_t, records: object) -> object:
        """The compressed bytes replace the buffer, which is free again."""
        records.release()
        batch._charged = size
        buffer, batch._buffer = batch._buffer, None
        self._account(batch.queue, size - len(buffer))
        self.pool.swap(buffer, size)

    @cython.cfunc
    def _share(self, batch: Batch, sizes: list) -> list:
        """What a batch held becomes what its halves hold: never more, or others would lose room that they were promised."""
        buffer, batch._buffer, batch.payload = batch._buffer, None, None
        held: cython.Py_ssize_t = batch._charged if buffer is None else len(buffer)
        first = min(sizes[0], held)
        shares = [first, min(sizes[1], held - first)]
        self._account(batch.queue, sum(shares) - held)
        if buffer is None:
            self.pool.discharge(held - sum(shares))
        else:
            self.pool.swap(buffer, sum(shares))
        batch._charged = 0
        batch._state = DONE
        return shares

    @cython.cfunc
    def _release(self, batch: Batch) -> object:
        if batch._state == DONE:
            return
        if not batch._dropped:
            self.unsettled -= batch.count
        if batch._state == OPEN:
            self._lingering.pop(batch, None)
            batch.queue._open = None
        else:
            batch.queue.waiting.remove(batch)
            if not batch.queue.waiting:
                home: TopicQueues = batch.queue._home
                home._busy.pop(batch.queue, None)
        batch._state = DONE
        self._live.pop(batch, None)
        self._free(batch)

    @cython.cfunc
    def _free(self, batch: Batch) -> object:
        batch.payload = None
        stranded: cython.bint = batch.queue._leaderless
        if batch._charged:
            self._account(batch.queue, -batch._charged)
            self.pool.discharge(batch._charged)
            batch._charged = 0
        if batch._buffer is not None:
            buffer, batch._buffer = batch._buffer, None
            self._account(batch.queue, -len(buffer))
            self.pool.give(buffer)
        if stranded:
            self.pool.readmit()

    @cython.cfunc
    def _strands(self, queue: PartitionQueue, size: cython.Py_ssize_t) -> cython.bint:
        """Whether *size* bytes more would give partitions without a leader above half the memory. They may always have one batch."""
        return queue._leaderless and self._stranded > 0 and self._stranded + size > self._memory // 2

    @cython.cfunc
    def _account(self, queue: PartitionQueue, size: cython.Py_ssize_t) -> object:
        queue._held += size
        if queue._leaderless:
            self._stranded += size

    @cython.cfunc
    def _lead(self, queue: PartitionQueue, led: cython.bint) -> object:
        """The queue's partition has a leader, or has none."""
        if queue._leaderless == led:
            queue._leaderless = not led
            self._stranded += -queue._held if led else queue._held

    @cython.cfunc
    def _stranded_too(self) -> object:
        return f", {self._stranded} B of them for partitions without a leader, which may take half" if self._stranded else ""

    # ---- without the lock -------------------------------------------------------------------------------------------

    @cython.cfunc
    def _compressed(self, topic: str, records: object) -> tuple:
        codec, level = self.codec(topic)
        if codec == Compression.NONE:
            return Compression.NONE, records
        payload = compress(codec, records, level)
        # What does not pay is sent as it is.
        return (codec, payload) if len(payload) < len(records) else (Compression.NONE, records)

    @cython.cfunc
    def _unsealed(self, batch: Batch, error: object) -> object:
        return KafkaError(f"{batch.count} records could not be compressed with {self.codec(batch.queue.topic)[0].name.lower()}: {error!r}. They were "
                          "not sent.", topic_partition=batch.queue.topic_partition)

    @cython.cfunc
    def _too_large(self, topic: TopicQueues, need: cython.Py_ssize_t) -> object:
        option, limit = ("max_request_size", self._largest_record)
        if need > self.pool.total:
            option, limit = ("buffer_memory", self.pool.total)
        return RecordTooLargeError(
            f"a record for topic {topic.topic} takes up to {need + HEADER_SIZE} B with its batch header, more than "
            f"{option}={limit}. It can never be sent and was not queued: make it smaller or raise {option}.")


@cython.cfunc
def _half(batch: Batch, part: object, result: BatchResult, share: cython.Py_ssize_t) -> Batch:
    """One half of *batch*: as old, and tried as often."""
    half: Batch = Batch.__new__(Batch)
    half.queue, half.result, half.created = batch.queue, result, batch.created
    half.count, half.max_timestamp = part.count, part.max_timestamp
    half.payload, half._codec, half._crc = part.payload, part.codec, part.crc
    half._at, half.largest = batch._at * part.count // batch.count, batch.largest  # nearly; only figures are made of them
    half.stamp(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    half._state, half._charged = SEALED, share
    half.attempts, half.last_error = batch.attempts - 1, batch.last_error  # being too large was no attempt
    return half


def _created(batch):
    return batch.created


def _nothing():
    """Nobody listens yet."""
