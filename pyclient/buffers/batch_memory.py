# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The memory of batches: buffers from the pool, bytes per partition, and the senders that wait for memory.

Independent of records and lingers. Every call is made under the Accumulator's lock.
Rule: partitions without a leader hold at most half the memory together, so they cannot block the others.
"""
import cython
from cython.cimports.pyclient.buffers.batch import Batch
from cython.cimports.pyclient.buffers.queues import PartitionQueue

from pyclient.buffers.pool import Pool, WaitStats

PLENTIFUL = cython.declare(cython.Py_ssize_t, 8)
"""While all batches use less than this part of the memory, a new one may take more than it fills at first."""


@cython.final
@cython.cclass
class PartitionMemory:
    """The bytes that each partition holds, and the sum of those without a leader.

    The fields are declared in batch_memory.pxd.
    """

    def __init__(self, memory: cython.Py_ssize_t):
        self._half = memory // 2

    @cython.cfunc
    def account(self, queue: PartitionQueue, size: cython.Py_ssize_t) -> object:
        """Add *size* bytes to what the queue's batches hold."""
        queue._held += size
        if queue._leaderless:
            self._leaderless_bytes += size

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def exceeds(self, queue: PartitionQueue, size: cython.Py_ssize_t) -> cython.bint:
        """Whether *size* bytes more would give partitions without a leader more than half the memory.

        One batch is always allowed.
        """
        return queue._leaderless and self._leaderless_bytes > 0 and self._leaderless_bytes + size > self._half

    @cython.cfunc
    def set_leader(self, queue: PartitionQueue, has_leader: cython.bint) -> object:
        if queue._leaderless == has_leader:
            queue._leaderless = not has_leader
            self._leaderless_bytes += -queue._held if has_leader else queue._held

    def __str__(self):
        """The clause of a BufferExhaustedError about partitions without a leader; empty when every one has a leader."""
        return f", {self._leaderless_bytes} B of them for partitions without a leader, which may take half" if self._leaderless_bytes else ""


@cython.final
@cython.cclass
class BatchMemory:
    """Buffers for batches of at most *batch_limit* bytes of records, within *memory* bytes.

    The fields are declared in batch_memory.pxd.
    """

    def __init__(self, memory: cython.Py_ssize_t, batch_limit: cython.Py_ssize_t):
        self.pool = Pool(memory, batch_limit)
        self.waits = WaitStats()
        self.batch_limit = batch_limit
        self._partitions = PartitionMemory(memory)

    @cython.cfunc
    def buffer_for(self, queue: PartitionQueue, need: cython.Py_ssize_t, waiter: object) -> object:
        """The buffer of a new batch: the waiter's grant, or one from the pool; None without memory."""
        if waiter is not None:
            buffer, waiter.grant = waiter.grant, None
        else:
            size: cython.Py_ssize_t = self.pool.size_for(self._expected(queue, need))
            buffer = None if self._partitions.exceeds(queue, size) else self.pool.take(size)
        if buffer is not None:
            self._partitions.account(queue, len(buffer))
        return buffer

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _expected(self, queue: PartitionQueue, need: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The bytes that a new batch will fill: as many as the last one, where memory is plentiful. To grow costs more
        than many records.
        """
        if queue._filled <= need or queue._leaderless or self.pool.used + queue._filled > self.pool.total // PLENTIFUL:
            return need
        return queue._filled

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def grow(self, batch: Batch, need: cython.Py_ssize_t, waiter: object) -> cython.bint:
        """Move the batch to the next size class; False without memory.

        The waiter's grant is used if it is large enough.
        """
        if waiter is not None and waiter.grant is not None and len(waiter.grant) >= need:
            larger, waiter.grant = waiter.grant, None
        else:
            size: cython.Py_ssize_t = self.pool.size_for(need)
            larger = None if self._partitions.exceeds(batch.queue, size) else self.pool.take(size)
        if larger is None:
            return False
        smaller = batch.move(larger, min(len(larger), self.batch_limit))
        self._partitions.account(batch.queue, len(larger) - len(smaller))
        self.pool.give(smaller)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def worth_waiting(self, need: cython.Py_ssize_t) -> cython.bint:
        """Whether a batch waits for the memory to grow to *need* instead of leaving small: many small batches keep
        brokers so busy that memory stays short. Never for more than a quarter of the memory: such a wait may last as
        long as others hold some.
        """
        return self.pool.size_for(need) <= self.pool.total // 4

    def wait(self, queue: PartitionQueue, need: cython.Py_ssize_t, waiter, now: cython.double):
        """Queue *waiter* for the memory of *need* bytes more in the queue's open batch or in a new one."""
        size: cython.Py_ssize_t = self.pool.size_for(self._wanted(queue._open, need))
        self.waits.begin(waiter, now)
        self.pool.wait(waiter, size, lambda: not self._partitions.exceeds(queue, size))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _wanted(self, batch: Batch | None, need: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The buffer size for *need* more bytes: that of a new batch, or of the open one once grown."""
        if batch is None or need > self.batch_limit:
            return need
        grown: cython.Py_ssize_t = min(batch._at + need, self.batch_limit)
        return grown if self.worth_waiting(grown) else need

    def leave(self, waiter, now):
        """Stop waiting; a grant goes to the next waiter."""
        self.waits.end(waiter, now)
        self.pool.leave(waiter)

    @cython.cfunc
    def replace_buffer(self, batch: Batch, records: object) -> object:
        """The compressed payload replaces the buffer, which returns to the pool. *records* are a view or copy of it."""
        if not isinstance(records, bytes):
            records.release()
        size: cython.Py_ssize_t = len(batch.payload)
        batch._charged = size
        buffer, batch._buffer = batch._buffer, None
        self._partitions.account(batch.queue, size - len(buffer))
        self.pool.swap(buffer, size)

    @cython.cfunc
    def share(self, batch: Batch, sizes: list) -> list:
        """Divide the batch's memory between its two halves, never more than it held: the rest is granted to others."""
        buffer, batch._buffer, batch.payload = batch._buffer, None, None
        held: cython.Py_ssize_t = batch._charged if buffer is None else len(buffer)
        first = min(sizes[0], held)
        shares = [first, min(sizes[1], held - first)]
        self._partitions.account(batch.queue, sum(shares) - held)
        if buffer is None:
            self.pool.discharge(held - sum(shares))
        else:
            self.pool.swap(buffer, sum(shares))
        batch._charged = 0
        return shares

    @cython.cfunc
    def free(self, batch: Batch) -> object:
        """Return all memory of the batch. Waiters of leaderless partitions are checked again if it was held by one."""
        batch.payload = None
        if batch._charged:
            self._partitions.account(batch.queue, -batch._charged)
            self.pool.discharge(batch._charged)
            batch._charged = 0
        if batch._buffer is not None:
            buffer, batch._buffer = batch._buffer, None
            batch.queue._filled = min(batch._at, self.batch_limit)
            self._partitions.account(batch.queue, -len(buffer))
            self.pool.give(buffer)
        if batch.queue._leaderless:
            self.pool.readmit()

    @cython.cfunc
    def set_leader(self, queue: PartitionQueue, has_leader: cython.bint) -> object:
        """Note whether the partition has a leader; `Pool.readmit` then lets its waiters in."""
        self._partitions.set_leader(queue, has_leader)

    def usage(self, batches):
        """How much of the memory is used, for a BufferExhaustedError; *batches* are not done."""
        return f"{self.pool.used} of {self.pool.total} B wait in {batches} unsent batches{self._partitions}"
