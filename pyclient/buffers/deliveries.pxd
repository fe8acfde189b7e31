# C interface: the Accumulator notes the batches of a bulk's records without a Python call.
cimport cython
from libc.stdint cimport int32_t, int64_t

from pyclient.buffers.delivery cimport BatchResult


# Records of a bulk that follow each other in one batch; they end where the next run begins.
cdef struct Run:
    int64_t row       # the first record's index in the bulk
    int64_t stamp     # of all of them, ms; unused when the bulk has explicit timestamps
    int32_t part      # index of the batch in `_parts`
    int32_t index     # the first record's index in its batch


@cython.final
cdef class Deliveries:
    cdef object _observer
    cdef list _parts              # a BatchResult for each batch, and for each rejected record
    cdef Run* _runs
    cdef Py_ssize_t _used
    cdef Py_ssize_t _room
    cdef int64_t _end             # the index after the last run's records
    cdef int64_t _length
    cdef bint _unsorted
    cdef int64_t* _stamps         # NULL unless the bulk has explicit timestamps
    cdef Py_ssize_t _stamp_room
    cdef BatchResult _all         # done when every part is
    cdef Py_ssize_t _left
    cdef cython.pymutex _lock

    cdef int32_t add_part(self, BatchResult result)
    cdef int put_run(self, int64_t row, int32_t count, int32_t part, int32_t index, int64_t stamp) except -1
    cdef int keep_stamp(self, int64_t row, int64_t stamp) except -1

    cdef object finish(self, int64_t length)

    # Private.
    cdef object one_done(self)
    cdef Run* run_of(self, int64_t row) noexcept
    cdef int64_t end_of(self, Py_ssize_t number) noexcept
    cdef int64_t stamp_of(self, Run* run, int64_t row) noexcept


@cython.final
cdef class _PartDone:
    cdef Deliveries _deliveries


# Whether interpreted code may run when *result* is done.


@cython.final
cdef class DeliveredRecords:
    cdef Deliveries _deliveries
