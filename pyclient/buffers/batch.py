# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""A batch of one partition's records: written into a buffer, sealed, sent with a new header at each attempt.

Independent of memory limits, queues and brokers. Threads append to it under the Accumulator's lock.
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.libc.stdint import INT32_MAX, INT32_MIN, int32_t
from cython.cimports.pyclient.buffers.delivery import BatchResult, Delivery, add_outcome_listener, new_delivery
from cython.cimports.pyclient.buffers.queues import PartitionQueue
from cython.cimports.pyclient.buffers.rows import Filling, Row, Rows, fill
from cython.cimports.pyclient.codec.encode import header_of_batch, put_record

import enum

from pyclient.codec.encode import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL_BIT


class BatchState(enum.IntEnum):
    """The states of a batch; they only move forward, except from IN_FLIGHT back to SEALED for a retry."""

    OPEN = 0
    SEALING = 1
    SEALED = 2
    IN_FLIGHT = 3
    DONE = 4


STATES = cython.declare(tuple, tuple(BatchState))
TRANSACTIONAL = cython.declare(cython.int, TRANSACTIONAL_BIT)


@cython.final
@cython.no_gc
@cython.cclass
class Batch:
    """Records of one partition that are sent, and succeed or fail, together. The fields are declared in batch.pxd.

    Not tracked by the garbage collector: its queue drops it on release, which ends every reference cycle it is in.
    """

    @property
    def state(self):
        return STATES[self._state]

    @property
    def size(self):
        """Bytes on the wire once sealed, header included; before that, bytes appended so far."""
        return HEADER_SIZE + (self._at if self.payload is None else len(self.payload))

    @property
    def appended(self):
        """Bytes of its records, before compression."""
        return self._at

    def is_sealing(self):
        """Whether it is closed, and not sealed yet."""
        return self._state == SEALING

    def is_sealed(self):
        """Whether it may be sent."""
        return self._state == SEALED

    def stamp(self, producer_id, epoch, sequence, transactional=False):
        """Set the id, epoch and sequence by which a broker recognises a duplicate, and whether it is transactional."""
        self.producer_id, self.epoch, self.sequence, self.transactional = producer_id, epoch, sequence, transactional
        self.stamped = producer_id >= 0

    def pieces(self):
        """A new header and the sealed records, to be written one after the other."""
        attributes: cython.int = self._codec
        if self.transactional:
            attributes |= TRANSACTIONAL
        return [header_of_batch(self._crc, len(self.payload), self.count, attributes, self.result.base_timestamp, self.max_timestamp,
                                self.producer_id, self.epoch, self.sequence), self.payload]

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
        """Write the next rows of this partition while they fit; returns their bytes. The first one fits."""
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
            self._add_listeners(rows, after, on_outcome)
        self._at = into.at - start
        self.max_timestamp, self.largest = into.latest, into.largest
        self.count = self.result.count = into.count
        rows.at = after
        return into.written

    @cython.cfunc
    def _add_listeners(self, rows: Rows, after: cython.Py_ssize_t, on_outcome: object) -> object:
        """Add *on_outcome* to the rows before *after*, which were just written."""
        at: cython.Py_ssize_t
        for at in range(rows.at, after):
            add_outcome_listener(new_delivery(self.result, cython.cast(cython.int, self.count + at - rows.at),
                                              cython.cast(cython.int, rows.rows[at].timestamp - self.result.base_timestamp)), on_outcome)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reaches(self, timestamp: cython.longlong) -> cython.bint:
        """Whether the timestamp and index of one more record fit into the format's 32-bit deltas."""
        delta: cython.longlong = timestamp - self.result.base_timestamp
        return INT32_MIN <= delta <= INT32_MAX and self.count < INT32_MAX

    @cython.cfunc
    def move(self, larger: bytearray, limit: cython.Py_ssize_t) -> bytearray:
        """Continue in a larger buffer; returns the old one."""
        smaller: bytearray = self._buffer
        larger[:self._at] = memoryview(smaller)[:self._at]
        self._buffer, self._limit = larger, limit
        return smaller

    def __repr__(self):
        return f"<Batch {self.queue.topic}-{self.queue.partition} {self.count} records {self.size} B {self.state.name}>"


@cython.final
@cython.freelist(64)
@cython.no_gc
@cython.cclass
class Link:
    """The place of one batch in a list, from which it leaves in one step. The fields are declared in batch.pxd."""


@cython.final
@cython.no_gc_clear
@cython.cclass
class BatchList:
    """Batches in an order. The fields are declared in batch.pxd."""

    def __dealloc__(self):
        link: Link = self.first
        while link is not None:  # batch and links refer to each other, and are not collected as garbage
            following: Link = link.after
            link.before = link.after = link.batch = None
            link = following

    @cython.cfunc
    def append(self, batch: Batch) -> Link:
        """Put it at the end."""
        link: Link = Link.__new__(Link)
        link.batch, link.before = batch, self.last
        if self.last is None:
            self.first = link
        else:
            self.last.after = link
        self.last = link
        return link

    @cython.cfunc
    def remove(self, link: Link) -> object:
        """Take a batch out, wherever it is."""
        before, after = link.before, link.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        link.before = link.after = link.batch = None

    @cython.cfunc
    def replace(self, link: Link, batches: list) -> Link:
        """Put *batches* in the place of one; their links stand from the result on."""
        batch: Batch
        first: Link = None
        for batch in batches:
            made: Link = Link.__new__(Link)
            made.batch, made.before, made.after = batch, link.before, link
            if link.before is None:
                self.first = made
            else:
                link.before.after = made
            link.before = made
            first = first or made
        self.remove(link)
        return first

    def __iter__(self):
        link: Link = self.first
        while link is not None:
            following: Link = link.after
            yield link.batch
            link = following


@cython.cfunc
def opened(queue: PartitionQueue, result: BatchResult, buffer: bytearray, limit: cython.Py_ssize_t, timestamp: cython.longlong,
           now: cython.double) -> Batch:
    """An open batch of *queue*; *timestamp* is that of its first record, the base of all others."""
    batch: Batch = Batch.__new__(Batch)
    batch.queue, batch.result = queue, result
    result.base_timestamp = batch.max_timestamp = timestamp
    batch.created = now
    batch._buffer, batch._limit = buffer, limit
    batch.stamp(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    return batch


@cython.cfunc
def half_of(batch: Batch, part: object, result: BatchResult, share: cython.Py_ssize_t) -> Batch:
    """One half of *batch*, with its age and attempts."""
    half: Batch = Batch.__new__(Batch)
    half.queue, half.result, half.created = batch.queue, result, batch.created
    half.count, half.max_timestamp = part.count, part.max_timestamp
    half.payload, half._codec, half._crc = part.payload, part.codec, part.crc
    half._at, half.largest = batch._at * part.count // batch.count, batch.largest  # an estimate, used for metrics only
    half.stamp(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    half._state, half._charged = SEALED, share
    half.attempts, half.last_error = batch.attempts - 1, batch.last_error  # the rejected request does not count
    return half
