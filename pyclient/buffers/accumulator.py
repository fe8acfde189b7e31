# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Where records become batches: appended by user threads, drained by the client's loop.

Knows records, partitions, memory and the linger; knows no brokers, requests or sockets.
Rules: one lock, never held while compressing or calling user code. A partition's queue leaves only from its head. A buffer goes
back to the pool only through `release`, by whoever knows that nothing reads it any more (P07).
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_GET_SIZE
from cython.cimports.libc.math import INFINITY
from cython.cimports.pyclient.buffers.batch import DONE, IN_FLIGHT, OPEN, SEALED, SEALING, Batch, half_of, opened
from cython.cimports.pyclient.buffers.clock import now_ms
from cython.cimports.pyclient.buffers.delivery import Delivery
from cython.cimports.pyclient.buffers.queues import PartitionMemory, PartitionQueue, TopicQueues
from cython.cimports.pyclient.buffers.rows import Row, Rows, bound_of
from cython.cimports.pyclient.codec.encode import record_bound

from collections import OrderedDict

from pyclient.buffers.topic_compression import Codecs
from pyclient.buffers.delivery import BatchResult
from pyclient.buffers.pool import Pool, WaitStats
from pyclient.buffers.batch_split import halves
from pyclient.codec.compression import Compression
from pyclient.codec.crc import crc32c
from pyclient.codec.encode import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from pyclient.errors import BufferExhaustedError, ClientClosedError, RecordTooLargeError, raisable


NO_BATCH = cython.declare(cython.int, 0)
NONE_LEFT = cython.declare(cython.int, 1)
ENOUGH = cython.declare(cython.int, 2)
NO_MEMORY = cython.declare(cython.int, 3)


@cython.final
@cython.cclass
class Accumulator:
    """Batches of every partition, within ``buffer_memory``. `append` is called by any thread, the rest by the loop.

    ``on_ready`` is called (by any thread, outside the lock) when the loop has something new to look at: a queue that it does not hold
    (`take_ready`), or a linger that ends before it looks by itself (`next_linger`). Again with every batch until it has looked. ``on_outcome``, unless
    None, with every record's metadata or error, where callbacks run. ``codecs`` are the topics that are compressed in another
    way than the rest: codec and level of each. ``wall`` gives ms since the epoch; None reads the system's clock, without a call.
    The fields are declared in accumulator.pxd.
    """

    def __init__(self, *, memory, batch_size, max_request_size, linger, compression, level, observer, clock, wall, random, codecs=None):
        limit = max(min(batch_size, max_request_size) - HEADER_SIZE, 1)
        self.pool = Pool(memory, limit)
        self.waits = WaitStats()
        self.on_ready = _nothing
        self._topics = {}
        self._observer = observer
        self._clock = clock
        self._wall = wall
        self._random = random
        self._batch_limit = limit
        self._largest_record = max_request_size
        self._largest_need = min(max_request_size - HEADER_SIZE, memory)
        self._linger = linger
        self._holdings = PartitionMemory(memory)
        self._codecs = Codecs(compression, level, codecs or {})
        self._ready = {}
        self._turned = {}
        self._lingering = OrderedDict()
        self._live = OrderedDict()
        self._looks_at = INFINITY

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
        return self.append_record(topic, partition, timestamp, key, value, headers, waiter, on_delivery)

    @cython.cfunc
    def append_record(self, topic: TopicQueues, partition: cython.Py_ssize_t, timestamp: cython.longlong, key: bytes | None, value: bytes | None,
             headers: bytes | None, waiter: object, on_delivery: object) -> Delivery:
        key_size: cython.Py_ssize_t = -1 if key is None else PyBytes_GET_SIZE(key)
        value_size: cython.Py_ssize_t = -1 if value is None else PyBytes_GET_SIZE(value)
        headers_size: cython.Py_ssize_t = -1 if headers is None else PyBytes_GET_SIZE(headers)
        need: cython.Py_ssize_t = record_bound(key_size, value_size, headers_size)
        full: list = None
        fresh: cython.bint = False
        if need > self._largest_need:
            raise self._too_large(topic, need)
        if timestamp < 0:
            timestamp = now_ms() if self._wall is None else self._wall()
        delivery: Delivery = None
        try:
            with self._lock:
                if self._closed is not None:
                    raise raisable(self._closed)
                queue: PartitionQueue = self._queue_for(topic, partition, 0)
                room: cython.int = self._room(queue._open, need, timestamp, waiter)
                while room == NONE_LEFT:
                    full = full or []
                    full.append(self._detach(queue))
                    queue = self._queue_for(topic, partition, need)  # a full batch ends the turn of the sticky partition
                    room = self._room(queue._open, need, timestamp, waiter)
                batch: Batch = queue._open if room == ENOUGH else None
                if room == NO_BATCH:
                    batch = self._new_batch(queue, need, timestamp, waiter)
                    fresh = batch is not None
                if batch is not None:
                    topic._sticky_bytes -= batch._at if partition < 0 else 0
                    delivery = batch.put(timestamp, key, key_size, value, value_size, headers, headers_size)
                    topic._sticky_bytes += batch._at if partition < 0 else 0
                    self.unsettled += 1
                    if self.on_outcome is not None:
                        delivery.tell(self.on_outcome)
                    if on_delivery is not None:
                        delivery.add_done_callback(on_delivery)
        finally:  # also where no memory is left to begin another: nobody else would seal what was detached here
            if full is not None:
                self._seal_all(full)
        if full is None and fresh:
            self._tell()
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
            if need > self._largest_need:
                rows.refuse(self._too_large(rows.topic, need))
                continue
            full, begun, rows.starved = None, [], False
            try:
                with self._lock:
                    if self._closed is not None:
                        raise raisable(self._closed)
                    full = self._put_rows(rows, first, waiter, begun)
            except IndexError as error:  # the topic was created anew, with fewer partitions
                rows.refuse(error)
            if full is not None:
                self._seal_all([full])
            elif begun:
                self._tell()
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
        """As `wait`, for the next record of *rows* and what those behind it fill too."""
        row: cython.pointer(Row) = cython.address(rows.rows[rows.at])
        if row.partition < len(rows.topic):
            self._line_up(rows.topics[row.topic], row.partition, waiter, self._with_the_next(rows, bound_of(row)))
        else:
            waiter.notify()  # the topic was created anew, with fewer partitions: `append_rows` refuses it

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _with_the_next(self, rows: Rows, need: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """For a record and those behind it that go to the same place, up to a batch or a quarter of the memory.

        Who asked for more might wait for ever while little of it is held elsewhere, and hold up everybody behind.
        """
        return max(need, min(rows.bytes_left(), self._batch_limit, self.pool.total // 4))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _ahead(self, rows: Rows, row: cython.pointer(Row), need: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """For how much a row begins a batch: where those behind it fill it too, for them; it need not grow then, nor leave small when memory is short."""
        if row.partition >= 0 or len(rows.topics) > 1:
            return need
        return self._with_the_next(rows, need)

    def _line_up(self, topic: TopicQueues, partition: cython.Py_ssize_t, waiter, need: cython.Py_ssize_t):
        with self._lock:
            if self._closed is not None:
                raise raisable(self._closed)
            queue: PartitionQueue = self._queue_for(topic, partition, 0)
            size: cython.Py_ssize_t = self.pool.size_for(self._wanted(queue._open, need))
            self.waits.begin(waiter, self._clock())
            self.pool.wait(waiter, size, lambda: not self._holdings.strands(queue, size))
            self._hurry()
        self._tell()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _wanted(self, batch: Batch | None, need: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """How large a buffer for *need* more bytes has to be: for a new batch, or for the open one to grow in."""
        if batch is None or need > self._batch_limit:
            return need
        grown: cython.Py_ssize_t = min(batch._at + need, self._batch_limit)
        return grown if self._worth_waiting(grown) else need

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
            return BufferExhaustedError(
                f"no room for a record of topic {topic.topic} after {waited:.3f} s: {self.pool.used} of {self.pool.total} B "
                f"wait in {batches} unsent batches{self._holdings}. Nothing was queued. Send slower, raise buffer_memory, or "
                "check the brokers.")

    def refuse_behind(self, count: cython.Py_ssize_t):
        """So many records were in one bulk behind one that found no room, and are refused with it."""
        with self._lock:
            self.refused += count

    def codec(self, topic):
        """How batches of a topic are compressed: the codec, and its level or None."""
        return self._codecs.of(topic)

    def seal(self, batch: Batch):
        """Compress and checksum a detached batch, by the calling thread and without the lock. Then call ``on_ready``, unless the loop itself is that thread.

        A batch that cannot be compressed fails with the cause, like one that was dropped meanwhile it is released.
        """
        records = memoryview(batch._buffer)[:batch._at]
        stopped, unsealed = None, False
        try:
            codec, payload = self._codecs.compressed(batch.queue.topic, records)
        except Exception as error:  # noqa: BLE001 the batch is nobody's any more, and its records must learn why
            batch.result.fail(self._codecs.failure(batch.queue.topic_partition, batch.count, error))
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
        if stopped is not None:
            raise stopped

    @cython.cfunc
    def _seal_all(self, detached: list) -> object:
        """Each of them, whatever comes meanwhile (Ctrl-C): nobody else would. That is raised in the end."""
        batch: Batch
        stopped = None
        for batch in detached:
            try:
                self.seal(batch)
            except BaseException as stop:  # noqa: BLE001 it is raised below
                stopped = stopped or stop
        self._tell()
        if stopped is not None:
            raise stopped

    @cython.cfunc
    def _tell(self) -> object:
        """Wake the loop, if there is news for it."""
        if self._news:
            self.on_ready()

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
                self._holdings.lead(queue, queue.partition in led)
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
        """Queues with something that may leave now. The loop holds them from now on, and is not told of them again, until it hears
        that nothing of them may leave: from `start` or `watch`.
        """
        with self._lock:
            while self._lingering:
                batch: Batch = next(iter(self._lingering))
                if now < batch.created + self._linger:
                    break
                self._lingering.popitem(False)
                batch.queue._due = True
                self._list(batch.queue)
            listed, self._ready = self._ready, {}
            self._news, self._looks_at = False, INFINITY
            ready: list = []
            queue: PartitionQueue
            for queue in listed:
                queue._listed = self._may_leave(queue)
                if queue._listed:
                    ready.append(queue)
            return ready

    def watch(self, queue: PartitionQueue) -> bool:
        """Whether something of a queue may leave. If not, the loop holds it no more: whoever gets something ready tells."""
        with self._lock:
            queue._listed = self._may_leave(queue)
            return queue._listed

    def next_linger(self):
        """When the oldest open batch's linger ends, or None. The loop looks then, and is not woken for those that end later."""
        with self._lock:
            self._looks_at = INFINITY
            if not self._lingering:
                return None
            batch: Batch = next(iter(self._lingering))
            self._looks_at = batch.created + self._linger
            return self._looks_at

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

    def start(self, batch: Batch) -> bool:
        """The batch goes to the network. As `watch` for what is behind it."""
        with self._lock:
            batch._state = IN_FLIGHT
            batch.attempts += 1
            batch.queue._listed = self._may_leave(batch.queue)
            return batch.queue._listed

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
                half: Batch = half_of(batch, part, result, share)
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
            self._closed = error or ClientClosedError("this producer is closed; nothing was queued. Open a new one.")
            self.pool.turn_away()

    # ---- under the lock ---------------------------------------------------------------------------------------------

    @cython.cfunc
    def _queue_for(self, topic: TopicQueues, partition: cython.Py_ssize_t, homeless: cython.Py_ssize_t) -> PartitionQueue:
        """*homeless* are the bytes of a record that found no room in the batch of the queue given before."""
        if partition < 0:
            if topic.turn(homeless, self._batch_limit, self._random):
                self._turned[topic] = None
            partition = topic._sticky
        if partition >= topic._count:
            raise IndexError(f"topic {topic.topic} has {topic._count} partitions, numbered from 0; there is no {partition}")
        return topic.queues[partition]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _room(self, batch: Batch | None, need: cython.Py_ssize_t, timestamp: cython.longlong, waiter: object) -> cython.int:
        """What an open batch has for one more record: `ENOUGH`, `NONE_LEFT`, or `NO_MEMORY` to grow with for now. Or there is `NO_BATCH`."""
        if batch is None:
            return NO_BATCH
        if not batch.reaches(timestamp):
            return NONE_LEFT
        if batch._at + need <= batch._limit:
            return ENOUGH
        if batch._at + need > self._batch_limit:
            return NONE_LEFT
        if self._grow(batch, batch._at + need, waiter):
            return ENOUGH
        return NO_MEMORY if self._worth_waiting(batch._at + need) else NONE_LEFT

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _worth_waiting(self, need: cython.Py_ssize_t) -> cython.bint:
        """Whether a batch is to wait for the memory to grow to *need*, rather than leave small: many small batches keep brokers so busy
        that memory stays short. Not for more than a quarter of it: who asked for that might wait as long as others hold some.
        """
        return self.pool.size_for(need) <= self.pool.total // 4

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _grow(self, batch: Batch, need: cython.Py_ssize_t, waiter: object) -> cython.bint:
        """Move the batch to the next size class, if memory allows, or *waiter* was granted enough."""
        if waiter is not None and waiter.grant is not None and len(waiter.grant) >= need:
            larger, waiter.grant = waiter.grant, None
        else:
            size: cython.Py_ssize_t = self.pool.size_for(need)
            larger = None if self._holdings.strands(batch.queue, size) else self.pool.take(size)
        if larger is None:
            return False
        smaller = batch.move(larger, min(len(larger), self._batch_limit))
        self._holdings.account(batch.queue, len(larger) - len(smaller))
        self.pool.give(smaller)
        return True

    @cython.cfunc
    def _new_batch(self, queue: PartitionQueue, need: cython.Py_ssize_t, timestamp: cython.longlong, waiter: object) -> Batch:
        if waiter is not None:
            buffer, waiter.grant = waiter.grant, None
        else:
            size: cython.Py_ssize_t = self.pool.size_for(need)
            buffer = None if self._holdings.strands(queue, size) else self.pool.take(size)
        if buffer is None:
            return None
        self._holdings.account(queue, len(buffer))
        batch: Batch = opened(
            queue, BatchResult(self._observer, queue.topic, queue.partition), buffer,
            len(buffer) if need > self._batch_limit else min(len(buffer), self._batch_limit), timestamp, self._clock())
        queue._open = batch
        queue._due = self.pool.waiting > 0
        self._live[batch] = None
        if queue._due:
            self._list(queue)
        else:
            self._lingering[batch] = None
            self._news = self._news or batch.created + self._linger < self._looks_at
        return batch

    @cython.cfunc
    def _put_rows(self, rows: Rows, granted: cython.Py_ssize_t, waiter: object, begun: list) -> Batch:
        """Append until a batch is full, which is for the caller to seal; or as many bytes were written. The waiter's memory is for row *granted*.

        *begun* takes the queues in which a batch was begun.
        """
        budget: cython.Py_ssize_t = self._batch_limit
        batch: Batch
        at: cython.Py_ssize_t
        placed: cython.Py_ssize_t
        while rows.at < rows.end and budget > 0:
            row: cython.pointer(Row) = cython.address(rows.rows[rows.at])
            need: cython.Py_ssize_t = bound_of(row)
            if need > self._largest_need:
                return None
            topic: TopicQueues = rows.topics[row.topic]
            queue: PartitionQueue = self._queue_for(topic, row.partition, 0)
            grant: object = waiter if rows.at == granted else None
            room: cython.int = self._room(queue._open, need, row.timestamp, grant)
            if room == NONE_LEFT:
                batch = self._detach(queue)
                self._queue_for(topic, row.partition, need)  # a full batch ends the turn of the sticky partition
                return batch
            batch = queue._open if room == ENOUGH else None
            if room == NO_BATCH:
                batch = self._new_batch(queue, self._ahead(rows, row, need), row.timestamp, grant)
                if batch is not None:
                    begun.append(queue)
            if batch is None:
                rows.starved = True
                return None
            at, placed = rows.at, batch._at
            budget -= batch.put_rows(rows, budget, self.on_outcome)
            self.unsettled += rows.at - at
            topic._sticky_bytes += batch._at - placed if row.partition < 0 else 0
        return None

    @cython.cfunc
    def _detach(self, queue: PartitionQueue) -> Batch:
        """Close the open batch for appends and put it in line; whoever detaches also seals."""
        batch: Batch = queue._open
        batch._state = SEALING
        self._lingering.pop(batch, None)
        queue._open = None
        queue._due = False
        queue.waiting.append(batch)
        queue._home._busy[queue] = None
        return batch

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _may_leave(self, queue: PartitionQueue) -> cython.bint:
        """Whether something may: the first batch that is not under way is sealed, or there is none and the open one is due."""
        batch: Batch
        for batch in queue.waiting:
            if batch._state != IN_FLIGHT:
                return batch._state == SEALED
        return queue._due and queue._open is not None

    @cython.cfunc
    def _list(self, queue: PartitionQueue) -> object:
        if not queue._listed:
            queue._listed = self._news = True
            self._ready[queue] = None

    @cython.cfunc
    def _hurry(self) -> object:
        while self._lingering:
            batch: Batch = self._lingering.popitem(False)[0]
            batch.queue._due = True
            self._list(batch.queue)

    @cython.cfunc
    def _swap(self, batch: Batch, size: cython.Py_ssize_t, records: object) -> object:
        """The compressed bytes replace the buffer, which is free again."""
        records.release()
        batch._charged = size
        buffer, batch._buffer = batch._buffer, None
        self._holdings.account(batch.queue, size - len(buffer))
        self.pool.swap(buffer, size)

    @cython.cfunc
    def _share(self, batch: Batch, sizes: list) -> list:
        """What a batch held becomes what its halves hold: never more, or others would lose room that they were promised."""
        buffer, batch._buffer, batch.payload = batch._buffer, None, None
        held: cython.Py_ssize_t = batch._charged if buffer is None else len(buffer)
        first = min(sizes[0], held)
        shares = [first, min(sizes[1], held - first)]
        self._holdings.account(batch.queue, sum(shares) - held)
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
                batch.queue._home._busy.pop(batch.queue, None)
        batch._state = DONE
        self._live.pop(batch, None)
        self._free(batch)

    @cython.cfunc
    def _free(self, batch: Batch) -> object:
        batch.payload = None
        stranded: cython.bint = batch.queue._leaderless
        if batch._charged:
            self._holdings.account(batch.queue, -batch._charged)
            self.pool.discharge(batch._charged)
            batch._charged = 0
        if batch._buffer is not None:
            buffer, batch._buffer = batch._buffer, None
            self._holdings.account(batch.queue, -len(buffer))
            self.pool.give(buffer)
        if stranded:
            self.pool.readmit()

    @cython.cfunc
    def _too_large(self, topic: TopicQueues, need: cython.Py_ssize_t) -> object:
        option, limit = ("max_request_size", self._largest_record)
        if need > self.pool.total:
            option, limit = ("buffer_memory", self.pool.total)
        return RecordTooLargeError(
            f"a record for topic {topic.topic} takes up to {need + HEADER_SIZE} B with its batch header, more than "
            f"{option}={limit}. It can never be sent and was not queued: make it smaller or raise {option}.")


def _created(batch):
    return batch.created


def _nothing():
    """Nobody listens yet."""
