# C interface: the Accumulator opens, fills and seals batches without a Python call.
cimport cython
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t

from pyclient.buffers.deliveries cimport Deliveries
from pyclient.buffers.delivery cimport BatchResult, Delivery
from pyclient.buffers.queues cimport PartitionQueue
from pyclient.buffers.rows cimport Rows


# The values of BatchState.
cdef enum:
    OPEN = 0
    SEALING = 1
    SEALED = 2
    IN_FLIGHT = 3
    DONE = 4


cdef class Link


@cython.final
@cython.no_gc
cdef class Batch:
    cdef readonly PartitionQueue queue
    cdef readonly BatchResult result
    cdef readonly double created           # seconds, the Accumulator's clock
    cdef readonly int count
    cdef readonly long long max_timestamp
    cdef readonly Py_ssize_t largest       # bytes of its largest record
    cdef readonly object payload           # the bytes after the header, once sealed
    cdef public int attempts
    cdef public object last_error          # why the last attempt failed
    cdef public bint in_doubt              # an attempt may have stored it, but its response was lost
    cdef readonly long long producer_id    # its stamp, if it is `stamped`
    cdef readonly int epoch
    cdef readonly int sequence             # of its first record
    cdef readonly bint stamped             # it has a producer id, epoch and sequence, which every attempt repeats (P16)
    cdef readonly bint transactional       # it belongs to a transaction of its producer id and epoch
    cdef bytearray _buffer
    cdef Py_ssize_t _at
    cdef Py_ssize_t _limit
    cdef int _state
    cdef Py_ssize_t _charged
    cdef bint _dropped                     # given up while its buffer is being read; released afterwards
    cdef object _crc
    cdef object _codec
    cdef Deliveries _bulk                  # the last bulk with records in it, as its part number _part
    cdef int32_t _part
    cdef Link _age                         # its places in lists of batches, or None
    cdef Link _linger

    cpdef object stamp(self, long long producer_id, int epoch, int sequence, bint transactional=*)
    cpdef bint is_sealing(self)
    cpdef bint is_sealed(self)
    cdef Delivery put(self, long long timestamp, bytes key, Py_ssize_t key_size, bytes value, Py_ssize_t value_size,
                      bytes headers, Py_ssize_t headers_size)
    cdef Py_ssize_t put_rows(self, Rows rows, Py_ssize_t budget, object on_outcome) except -1

    cpdef list pieces(self)
    cdef bint reaches(self, long long timestamp) except -1
    cdef bytearray move(self, bytearray larger, Py_ssize_t limit)

    # Private.
    cdef object _add_listeners(self, Rows rows, Py_ssize_t after, object on_outcome)


@cython.final
@cython.no_gc
cdef class Link:
    cdef readonly Batch batch
    cdef Link before
    cdef Link after


@cython.final
cdef class BatchList:
    cdef Link first
    cdef Link last

    cdef Link append(self, Batch batch)
    cdef object remove(self, Link link)
    cdef Link replace(self, Link link, list batches)


# Whether a record fits into an open batch as it is. Inline: `send` decides it without a call.
cdef inline bint fits(Batch batch, Py_ssize_t need, long long timestamp) noexcept:
    if batch is None or batch._at + need > batch._limit or batch.count == INT32_MAX:
        return False
    return INT32_MIN <= timestamp - batch.result.base_timestamp <= INT32_MAX


cdef Batch opened(PartitionQueue queue, BatchResult result, bytearray buffer, Py_ssize_t limit, long long timestamp, double now)
cdef Batch half_of(Batch batch, object part, BatchResult result, Py_ssize_t share)
