# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Records of one partition on their way: written into a buffer, sealed, sent with a fresh header each time.

Knows records and bytes; knows neither memory, lines nor brokers. Written to under the Accumulator's lock, by whoever appends.
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.libc.stdint import INT32_MAX, INT32_MIN, int32_t
from cython.cimports.pyclient.buffers.delivery import BatchResult, Delivery, new_delivery
from cython.cimports.pyclient.buffers.queues import PartitionQueue
from cython.cimports.pyclient.buffers.rows import Filling, Row, Rows, fill
from cython.cimports.pyclient.codec.encode import put_record

import enum

from pyclient.codec.encode import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, batch_header


class BatchState(enum.IntEnum):
    """The life of a batch; it only moves forward, save back from IN_FLIGHT to SEALED for a retry."""

    OPEN = 0
    SEALING = 1
    SEALED = 2
    IN_FLIGHT = 3
    DONE = 4


STATES = cython.declare(tuple, tuple(BatchState))


@cython.final
@cython.no_gc
@cython.cclass
class Batch:
    """Records of one partition that travel, and succeed or fail, together. The fields are declared in batch.pxd.

    Not the garbage collector's business: its queue lets go of it when it is released, and so ends every circle that it is in.
    """

    @property
    def state(self):
        """Its `BatchState`."""
        return STATES[self._state]

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

    @cython.cfunc
    def put(self, timestamp: cython.longlong, key: bytes | None, key_size: cython.Py_ssize_t, value: bytes | None,
            value_size: cython.Py_ssize_t, headers: bytes | None, headers_size: cython.Py_ssize_t) -> Delivery:
        """Write a record, which must fit."""
        start: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._buffer))
        delta: cython.longlong = timestamp - self.result.base_timestamp
        end: cython.p_uchar = put_record(
            start + self._at, delta, self.count,
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(key)) if key is not None else cython.NULL, key_size,
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(value)) if value is not None else cython.NULL, value_size,
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(headers)) if headers is not None else cython.NULL, headers_size)
        self.largest = max(self.largest, end - start - self._at)
        self._at = end - start
        self.max_timestamp = max(self.max_timestamp, timestamp)
        delivery: Delivery = new_delivery(self.result, self.count, cython.cast(cython.int, delta))
        self.count += 1
        self.result.count = self.count
        return delivery

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_rows(self, rows: Rows, budget: cython.Py_ssize_t, on_outcome: object) -> cython.Py_ssize_t:
        """Write the rows that go here, as long as they fit; gives their bytes. The first one fits."""
        into: Filling
        row: cython.pointer(Row) = cython.address(rows.rows[rows.at])
        start: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._buffer))
        into.at, into.limit = start + self._at, start + self._limit
        into.base_timestamp, into.latest = self.result.base_timestamp, self.max_timestamp
        into.count, into.largest = self.count, self.largest
        into.budget = budget
        after: cython.Py_ssize_t = fill(rows.rows, rows.at, rows.end, cython.address(into))
        if self._bulk is not rows.deliveries:
            self._part = rows.deliveries.add_part(self.result)
            self._bulk = rows.deliveries
        rows.deliveries.put_run(rows.first + row.number, cython.cast(int32_t, after - rows.at), self._part, self.count, row.timestamp)
        rows.decided += after - rows.at
        if on_outcome is not None:
            self._tell_outcomes(rows, after, on_outcome)
        self._at = into.at - start
        self.max_timestamp, self.largest = into.latest, into.largest
        self.count = self.result.count = into.count
        rows.at = after
        return into.written

    @cython.cfunc
    def _tell_outcomes(self, rows: Rows, after: cython.Py_ssize_t, on_outcome: object) -> object:
        """Of each of the rows before *after*, which follow what the batch holds."""
        at: cython.Py_ssize_t
        for at in range(rows.at, after):
            new_delivery(self.result, cython.cast(cython.int, self.count + at - rows.at),
                         cython.cast(cython.int, rows.rows[at].timestamp - self.result.base_timestamp)).tell(on_outcome)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reaches(self, timestamp: cython.longlong) -> cython.bint:
        """Whether one more record of this time can be told from the first one's time and number."""
        delta: cython.longlong = timestamp - self.result.base_timestamp
        return INT32_MIN <= delta <= INT32_MAX and self.count < INT32_MAX

    @cython.cfunc
    def move(self, larger: bytearray, limit: cython.Py_ssize_t) -> bytearray:
        """Go on in a larger buffer; gives the one before."""
        smaller: bytearray = self._buffer
        larger[:self._at] = memoryview(smaller)[:self._at]
        self._buffer, self._limit = larger, limit
        return smaller

    def __repr__(self):
        return f"<Batch {self.queue.topic}-{self.queue.partition} {self.count} records {self.size} B {self.state.name}>"


@cython.cfunc
def opened(queue: PartitionQueue, result: BatchResult, buffer: bytearray, limit: cython.Py_ssize_t, timestamp: cython.longlong,
           now: cython.double) -> Batch:
    """A batch of *queue* that takes records, the first one's *timestamp* being the base of all."""
    batch: Batch = Batch.__new__(Batch)
    batch.queue, batch.result = queue, result
    result.base_timestamp = batch.max_timestamp = timestamp
    batch.created = now
    batch._buffer, batch._limit = buffer, limit
    batch.stamp(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    return batch


@cython.cfunc
def half_of(batch: Batch, part: object, result: BatchResult, share: cython.Py_ssize_t) -> Batch:
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
