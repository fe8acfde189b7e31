# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""The results of the records of a bulk: one object for all, which stores runs of records instead of single records.

A run is a sequence of records that went into one batch. A bulk without keys has about one run per batch; when every
record goes to another partition, each is a run of 24 bytes. A rejected record is a failed batch of its own, so all
failures are reported alike.
Independent of buffers, sockets and loops.
"""
import cython
from cython.cimports.cpython.mem import PyMem_RawFree, PyMem_RawRealloc
from cython.cimports.libc.stdint import int32_t, int64_t
from cython.cimports.libc.stdlib import qsort
from cython.cimports.pyclient.buffers.delivery import BatchResult, new_delivery
from cython.cimports.pyclient.buffers.delivery_callbacks import add_callback, remove_callback

from pyclient.buffers.delivery import BatchResult as _BatchResult
from pyclient.errors import BulkDeliveryError, IndexedErrors, KafkaTimeoutError, counted, raisable
from pyclient.records import RecordMetadata

NO_PARTITION = -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _by_row(one: cython.p_const_void, other: cython.p_const_void) -> cython.int:
    left: int64_t = cython.cast(cython.pointer(Run), one).row
    right: int64_t = cython.cast(cython.pointer(Run), other).row
    return (left > right) - (left < right)


@cython.final
@cython.cclass
class _PartDone:
    """What a bulk's batches call when they are done."""

    def __call__(self):
        self._deliveries.one_done()


@cython.final
@cython.cclass
class Deliveries:
    """The results of one `send_many` or `send_arrow`: wait with ``result()``, ``await`` it, or add a callback.

    ``len()`` is their number; ``deliveries[index]`` is the `Delivery` of one. The fields are declared in
    deliveries.pxd.
    """

    def __init__(self, observer: object):
        self._observer = observer
        self._parts = []
        self._all = _BatchResult(observer, "", NO_PARTITION)
        self._left = 1

    def __dealloc__(self):
        PyMem_RawFree(self._runs)
        PyMem_RawFree(self._stamps)

    # ---- while records are queued -------------------------------------------------------------------------------

    @cython.cfunc
    def add_part(self, result: BatchResult) -> int32_t:
        """Add a batch; returns its number."""
        self._parts.append(result)
        return cython.cast(int32_t, len(self._parts) - 1)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_run(self, row: int64_t, count: int32_t, part: int32_t, index: int32_t, stamp: int64_t) -> cython.int:
        """Note that *count* records from *row* on are in batch *part*, from *index* on."""
        last: cython.pointer(Run)
        if self._used > 0:
            last = cython.address(self._runs[self._used - 1])
            if (row == self._end and part == last.part and index - last.index == row - last.row
                    and (stamp == last.stamp or self._stamps != cython.NULL)):
                self._end += count
                return 0
        if self._used == self._room:
            self._room = max(16, 2 * self._room)
            last = cython.cast(cython.pointer(Run), PyMem_RawRealloc(self._runs, self._room * cython.sizeof(Run)))
            if last == cython.NULL:
                raise MemoryError(f"no memory for the partitions and offsets of {count} records")
            self._runs = last
        self._unsorted |= row < self._end
        last = cython.address(self._runs[self._used])
        last.row, last.stamp, last.part, last.index = row, stamp, part, index
        self._used += 1
        self._end = row + count
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def keep_stamp(self, row: int64_t, stamp: int64_t) -> cython.int:
        """Store the timestamp of *row*, for a bulk with explicit timestamps. It is called for every row, in order."""
        if row >= self._stamp_room:
            self._stamp_room = max(64, 2 * row)
            stamps = cython.cast(cython.pointer(int64_t), PyMem_RawRealloc(self._stamps, self._stamp_room * 8))
            if stamps == cython.NULL:
                raise MemoryError(f"no memory for the timestamps of {self._stamp_room} records")
            self._stamps = stamps
        self._stamps[row] = stamp
        return 0

    @cython.cfunc
    def finish(self, length: int64_t) -> object:
        self._length = length
        if self._unsorted:
            qsort(self._runs, self._used, cython.sizeof(Run), _by_row)
        self._left += len(self._parts)
        callback: _PartDone = _PartDone.__new__(_PartDone)  # one for all: thousands would keep the garbage collector busy
        callback._deliveries = self
        part: BatchResult
        for part in self._parts:
            part.when_done(callback)
        self.one_done()

    @cython.cfunc
    def one_done(self) -> object:
        with self._lock:
            self._left -= 1
            done: cython.bint = self._left == 0
        if done:
            self._all._finish(-1, -1, None, None)

    # ---- for users --------------------------------------------------------------------------------------------------

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        """The `Delivery` of the record at *index*."""
        row: int64_t = index
        if row < 0:
            row += self._length
        if not 0 <= row < self._length:
            raise IndexError(f"record {index} of {self._length}")
        run: cython.pointer(Run) = self.run_of(row)
        result: BatchResult = self._parts[run.part]
        delta: cython.int = cython.cast(cython.int, self.stamp_of(run, row) - result.base_timestamp) if result.partition >= 0 else 0
        return new_delivery(result, run.index + cython.cast(cython.int, row - run.row), delta)

    def __iter__(self):
        for index in range(self._length):
            yield self[index]

    def done(self) -> bool:
        """Whether every record was acknowledged or has failed."""
        return self._all._done

    def result(self, timeout=None):
        """Wait until all are decided, and return a `DeliveredRecords`: the metadata of each record, and columns of it.

        ``timeout`` is in seconds; None waits until ``delivery_timeout_ms`` has decided them.

        Raises:
            BulkDeliveryError: some failed; its ``errors`` maps their indexes to the causes.
            KafkaTimeoutError: not all are decided yet; they are still being sent.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        delivered: DeliveredRecords = DeliveredRecords.__new__(DeliveredRecords)
        delivered._deliveries = self
        return delivered

    def exception(self, timeout=None):
        """Wait as `result` does; a `BulkDeliveryError`, or None when all were delivered."""
        if not self._all.wait(timeout):
            unsettled = sum(part.count for part in self._parts if not part.done)
            raise KafkaTimeoutError(
                f"{unsettled} or fewer of {counted(self._length, 'record')} not acknowledged after {timeout} s and still being sent. "
                "Wait longer, or look at flush() and delivery_timeout_ms.")
        failed = self._failed()
        self._see(failed)
        return BulkDeliveryError(self._length, IndexedErrors(_joined(failed))) if failed else None

    def rejected(self):
        """The errors of the records that were not queued, by index (`IndexedErrors`); known at once, without a wait.

        A program may stop here, before it sends more. Errors returned count as seen: `flush` does not raise them again.
        """
        failed = [run for run in self._failed() if run[2].partition == NO_PARTITION]
        self._see(failed)
        return IndexedErrors(_joined(failed))

    def cancelled(self) -> bool:
        """False: queued records cannot be cancelled. `asyncio.wait` asks."""
        return False

    def add_done_callback(self, callback):
        """Call ``callback(self)`` when all are decided: on the producer's callback thread (async: its loop).

        `asyncio.wait` is woken on its own loop.

        Raises:
            TypeError: it cannot be called, or is an ``async def`` function.
        """
        add_callback(self, callback, self._all, 0, self._see_all)

    def remove_done_callback(self, callback) -> int:
        """Remove every ``add_done_callback(callback)`` that was not called yet; returns how many."""
        return remove_callback(self, callback, self._all)

    def __await__(self):
        if not self._all._done:
            yield from self._observer.awaiting(self._all).__await__()
        return self.result(0)

    def __repr__(self):
        state = "pending" if not self._all._done else "failed in part" if self._failed() else "delivered"
        return f"<Deliveries of {counted(self._length, 'record')} in {len(self._parts)} batch{'' if len(self._parts) == 1 else 'es'}, {state}>"

    # ---- inside -------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(check=False)
    def run_of(self, row: int64_t) -> cython.pointer(Run):
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self._used
        middle: cython.Py_ssize_t
        while high - low > 1:
            middle = low + (high - low) // 2
            if self._runs[middle].row <= row:
                low = middle
            else:
                high = middle
        return cython.address(self._runs[low])

    @cython.cfunc
    @cython.exceptval(check=False)
    def end_of(self, number: cython.Py_ssize_t) -> int64_t:
        return self._runs[number + 1].row if number + 1 < self._used else self._length

    @cython.cfunc
    @cython.exceptval(check=False)
    def stamp_of(self, run: cython.pointer(Run), row: int64_t) -> int64_t:
        return run.stamp if self._stamps == cython.NULL else self._stamps[row]

    def _failed(self):
        """(first index, index after the last, part, index in the part) of each run in a batch with a failed record."""
        if all(part.error is None for part in self._parts):
            return []
        number: cython.Py_ssize_t
        found: list = []
        for number in range(self._used):
            part = self._parts[self._runs[number].part]
            if part.error is not None:
                found.append((self._runs[number].row, self.end_of(number), part, self._runs[number].index))
        return found

    def _see(self, failed):
        for start, stop, part, index in failed:
            part.see(index, stop - start)

    def _see_all(self):
        self._see(self._failed())


def reject_rows(deliveries: Deliveries, row: int64_t, count: cython.int, topic: str, error: object):
    """*count* records from *row* on were not queued, because of *error*. No method: users would see it."""
    result: BatchResult = _BatchResult(deliveries._observer, topic, NO_PARTITION)
    result.count = count
    result.fail(error)
    deliveries.put_run(row, count, deliveries.add_part(result), 0, 0)


def finish(deliveries: Deliveries, length: int64_t):
    """All *length* records are queued or rejected: *deliveries*, which is returned, can be waited for from now on."""
    deliveries.finish(length)
    return deliveries


def _joined(failed):
    """Merge adjacent ranges with the same cause."""
    joined: list = []
    begin, end, known = 0, 0, None
    for row, after, part, index in failed:
        for first, stop, cause in part.failures(index, after - row):
            if row + first - index != end or cause is not known:
                joined.append((begin, end, known))
                begin, known = row + first - index, cause
            end = row + stop - index
    joined.append((begin, end, known))
    return [(first, stop, raisable(cause)) for first, stop, cause in joined if cause is not None]


@cython.final
@cython.cclass
class DeliveredRecords:
    """The metadata of a bulk's records: a sequence of `RecordMetadata`, each created on access, and number columns.

    The columns are memoryviews (``numpy.asarray`` accepts them without a copy), created at each call.
    """

    def __len__(self):
        return self._deliveries._length

    def __getitem__(self, index) -> RecordMetadata:
        return self._deliveries[index].result(0)

    def __iter__(self):
        for delivery in self._deliveries:
            yield delivery.result(0)

    def offsets(self):
        """Each record's offset, int64; -1 where the broker returned none (``acks=0``)."""
        return self._column("q", 8, 0)

    def partitions(self):
        """Each record's partition, int32."""
        return self._column("i", 4, 1)

    def timestamps(self):
        """Each record's timestamp in ms since the epoch, int64: its own, or the broker's (``LogAppendTime``)."""
        return self._column("q", 8, 2)

    def __repr__(self):
        return f"<DeliveredRecords of {counted(len(self), 'record')}>"

    def _column(self, kind: object, size: cython.Py_ssize_t, what: cython.int):
        whole = bytearray(self._deliveries._length * size)
        column: cython.p_char = whole
        run: cython.pointer(Run)
        number: cython.Py_ssize_t
        row: int64_t
        index: cython.int
        result: BatchResult
        part: BatchResult
        for number in range(self._deliveries._used):
            run = cython.address(self._deliveries._runs[number])
            result = self._deliveries._parts[run.part]
            for row in range(run.row, self._deliveries.end_of(number)):
                index = cython.cast(cython.int, run.index + row - run.row)
                part = result.of(index)  # the batch may have been split
                if what == 1:
                    cython.cast(cython.pointer(int32_t), column)[row] = part.partition
                elif what == 0:
                    cython.cast(cython.pointer(int64_t), column)[row] = part.base_offset + index - part.first if part.base_offset >= 0 else -1
                else:
                    cython.cast(cython.pointer(int64_t), column)[row] = (
                        part.append_time if part.append_time >= 0 else self._deliveries.stamp_of(run, row))
        return memoryview(whole).toreadonly().cast(kind)
