# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The batches that are not done: opened with their first record, filled, detached, split, dropped, released.

Independent of threads and compression.
Every call is made under the Accumulator's lock.
Rules: a queue's batches leave only from its head. A buffer returns to the pool only through `release`, called when
nothing reads it (P07).
"""
import cython
from cython.cimports.pyclient.buffers.batch import DONE, IN_FLIGHT, OPEN, SEALED, SEALING, Batch, BatchList, Link, half_of, opened
from cython.cimports.pyclient.buffers.batch_memory import BatchMemory
from cython.cimports.pyclient.buffers.pending_batches import FITS, FULL, NO_BATCH, NO_MEMORY
from cython.cimports.pyclient.buffers.queues import PartitionQueue, TopicQueues, TopicTable
from cython.cimports.pyclient.buffers.ready_queues import ReadyQueues
from cython.cimports.pyclient.buffers.rows import Row, Rows, bound_of
from cython.cimports.pyclient.buffers.sealing import SealedRecords
from cython.cimports.pyclient.clocks import seconds_of

from pyclient.buffers.delivery import BatchResult
from pyclient.codec.encode import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

FEW = cython.declare(cython.Py_ssize_t, 16)  # partitions: the rows of a chunk are read for each of them


@cython.final
@cython.cclass
class PendingBatches:
    """Batches from their first record to their release. The fields are declared in pending_batches.pxd."""

    def __init__(self, topics: TopicTable, memory: BatchMemory, ready: ReadyQueues, largest_need: cython.Py_ssize_t, observer, clock):
        self._topics = topics
        self._memory = memory
        self._ready = ready
        self.largest_need = largest_need
        self._observer = observer
        self._clock = clock
        self._by_age = BatchList()

    # ---- appending --------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def room(self, batch: Batch | None, need: cython.Py_ssize_t, timestamp: cython.longlong, waiter: object) -> cython.int:
        """Make room in an open batch for a record, growing it if possible: `NO_BATCH`, `FULL`, `FITS`, `NO_MEMORY`."""
        if batch is None:
            return NO_BATCH
        if not batch.reaches(timestamp):
            return FULL
        if batch._at + need <= batch._limit:
            return FITS
        if batch._at + need > self._memory.batch_limit:
            return FULL
        if self._memory.grow(batch, batch._at + need, waiter):
            return FITS
        return NO_MEMORY if self._memory.worth_waiting(batch._at + need) else FULL

    @cython.cfunc
    def open(self, queue: PartitionQueue, need: cython.Py_ssize_t, timestamp: cython.longlong, waiter: object) -> Batch:
        """A new open batch of *queue* with room for *need* bytes; None without memory."""
        buffer = self._memory.buffer_for(queue, need, waiter)
        if buffer is None:
            return None
        batch: Batch = opened(
            queue, BatchResult(self._observer, queue.topic, queue.partition), buffer,
            len(buffer) if need > self._memory.batch_limit else min(len(buffer), self._memory.batch_limit), timestamp, seconds_of(self._clock))
        queue._open = batch
        queue._due = self._memory.pool.waiting > 0
        batch._age = self._by_age.append(batch)
        if queue._due:
            self._ready.add(queue)
        else:
            self._ready.start_linger(batch)
        return batch

    @cython.cfunc
    def append_rows(self, rows: Rows, granted: cython.Py_ssize_t, waiter: object, opened_queues: list) -> Batch:
        """Append rows until a batch is full or as many bytes as one holds are written.

        A full batch is detached and returned; the caller seals it.

        The waiter's grant is for row *granted*. *opened_queues* collects the queues in which a batch was opened.
        """
        budget: cython.Py_ssize_t = self._memory.batch_limit
        batch: Batch
        first: cython.Py_ssize_t
        size: cython.Py_ssize_t
        while rows.at < rows.end and budget > 0:
            row: cython.pointer(Row) = cython.address(rows.rows[rows.at])
            need: cython.Py_ssize_t = bound_of(row)
            if need > self.largest_need:
                return None
            topic: TopicQueues = rows.topics[row.topic]
            queue: PartitionQueue = self._topics.queue_for(topic, row.partition, 0)
            grant: object = waiter if rows.at == granted else None
            room: cython.int = self.room(queue._open, need, row.timestamp, grant)
            if room == FULL:
                batch = self.detach(queue)
                self._topics.queue_for(topic, row.partition, need)  # a full batch ends the turn of the sticky partition
                return batch
            batch = queue._open if room == FITS else None
            if room == NO_BATCH:
                batch = self.open(queue, self._first_need(rows, row, need), row.timestamp, grant)
                if batch is not None:
                    opened_queues.append(queue)
            if batch is None:
                rows.starved = True
                return None
            first, size = rows.at, batch._at
            budget -= batch.put_rows(rows, budget, self.on_outcome)
            self.unsettled += rows.at - first
            topic._sticky_bytes += batch._at - size if row.partition < 0 else 0
        return None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def need_of_rest(self, rows: Rows, need: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The bytes for a row and the rows of the same partition behind it, at most a batch or a quarter of the memory.

        A larger request might wait without end while others hold a little of the memory, and block every waiter
        behind it.
        """
        return max(need, min(rows.bytes_left(), self._memory.batch_limit, self._memory.pool.total // 4))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _first_need(self, rows: Rows, row: cython.pointer(Row), need: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The bytes for which a row opens a batch. Where the rows behind it follow into the same batch, their bytes
        count: the batch need not grow then, nor leave small when memory is short.
        """
        topic: TopicQueues = rows.topics[row.topic]
        if len(rows.topics) > 1 or (row.partition >= 0 and topic._count > FEW):
            return need
        return self.need_of_rest(rows, need)

    # ---- leaving ----------------------------------------------------------------------------------------------------

    @cython.cfunc
    def detach(self, queue: PartitionQueue) -> Batch:
        """Close the open batch for appends and queue it for sending; the caller seals it."""
        batch: Batch = queue._open
        batch._state = SEALING
        self._ready.end_linger(batch)
        queue._open = None
        queue._due = False
        queue.waiting.append(batch)
        queue._home._busy[queue] = None
        return batch

    @cython.cfunc
    def detach_older(self, before: cython.double) -> list:
        """Close the open batches that were created before this time; the caller seals them."""
        old: list = []
        link: Link = self._by_age.first
        while link is not None and link.batch.created < before:
            if link.batch._state == OPEN:
                old.append(link.batch.queue)
            link = link.after
        queue: PartitionQueue
        return [self.detach(queue) for queue in old]

    @cython.cfunc
    def head(self, queue: PartitionQueue) -> Batch:
        """The batch to send next: SEALED; or SEALING, then the caller seals it first; or None for now."""
        batch: Batch
        for batch in queue.waiting:
            if batch._state != IN_FLIGHT:
                return batch if batch._state == SEALED else None
        if queue._open is not None and queue._due:
            return self.detach(queue)
        return None

    @cython.cfunc
    def seal(self, batch: Batch, sealed: SealedRecords) -> object:
        """The batch may leave with its sealed records. One that failed or was dropped meanwhile is released."""
        batch._codec, batch.payload, batch._crc = sealed.codec, sealed.payload, sealed.crc
        batch._state = SEALED
        self.seal_failures += 1 if sealed.error is not None else 0
        if batch._dropped or sealed.error is not None:
            self.release(batch)
        elif sealed.payload is not sealed.records:
            self._memory.replace_buffer(batch, sealed.records)
        self._ready.add(batch.queue)

    @cython.cfunc
    def give_up_unsealed(self, batch: Batch) -> object:
        """Sealing the batch raised: count and drop it. Nothing reads its buffer any more."""
        self.seal_failures += 1
        if batch._state == SEALING:
            batch._state = SEALED
        self.drop(batch)

    @cython.cfunc
    def unstamp(self, queue: PartitionQueue) -> object:
        """Clear the sequences of the waiting batches."""
        batch: Batch
        for batch in queue.waiting:
            batch.stamp(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)

    @cython.cfunc
    def split(self, batch: Batch, halves: tuple, results: list) -> object:
        """Two halves replace *batch* in its queue and share its memory."""
        queue: PartitionQueue = batch.queue
        at: cython.Py_ssize_t = queue.waiting.index(batch)
        shares = self._memory.share(batch, [len(sealed.payload) for sealed in halves])
        made: list = [half_of(batch, sealed, result, share) for sealed, result, share in zip(halves, results, shares, strict=True)]
        batch._state = DONE
        del queue.waiting[at]
        for half in reversed(made):
            queue.waiting.insert(at, half)
        ages: Link = self._by_age.replace(batch._age, made)  # in its place: a younger batch of the queue may have the same time
        for half in made:
            cython.cast(Batch, half)._age = ages
            ages = ages.after
        self._ready.add(queue)

    @cython.cfunc
    def drop(self, batch: Batch) -> object:
        """Give the batch up; it is released at once unless its buffer is being read."""
        if not batch._dropped and batch._state != DONE:
            self.unsettled -= batch.count
        batch._dropped = True
        if batch._state == OPEN or batch._state == SEALED:
            self.release(batch)

    @cython.cfunc
    def release(self, batch: Batch) -> object:
        """Forget the batch and return its memory: nothing reads it any more."""
        if batch._state == DONE:
            return
        if not batch._dropped:
            self.unsettled -= batch.count
        if batch._state == OPEN:
            self._ready.end_linger(batch)
            batch.queue._open = None
        else:
            _take_out(batch.queue.waiting, batch)
            if not batch.queue.waiting:
                batch.queue._home._busy.pop(batch.queue, None)
        batch._state = DONE
        self._by_age.remove(batch._age)
        self._memory.free(batch)

    # ---- looking ----------------------------------------------------------------------------------------------------

    @cython.cfunc
    def all(self) -> list:
        """Every batch not done, the oldest first."""
        return list(self._by_age)

    @cython.cfunc
    def oldest(self) -> Batch:
        """The batch created first among those without an outcome; None if there is none."""
        link: Link = self._by_age.first
        while link is not None:
            if not link.batch.result._done:
                return link.batch
            link = link.after
        return None


@cython.cfunc
def _take_out(waiting: list, batch: Batch) -> object:
    """Nearly always the first one."""
    if waiting[0] is batch:
        del waiting[0]
    else:
        waiting.remove(batch)
