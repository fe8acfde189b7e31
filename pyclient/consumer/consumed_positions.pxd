# C interface: each poll moves positions.
cimport cython

from pyclient.buffers.collect cimport Bounds, Taking, collect
from pyclient.buffers.fetch_buffer cimport FetchBuffer
from pyclient.buffers.record_run cimport RecordRuns
from pyclient.clocks cimport seconds_of
from pyclient.metric_values cimport Total


cdef class ConsumedPositions:
    cdef object _core
    cdef FetchBuffer _buffer
    cdef object _clock
    cdef Total _records_consumed
    cdef Bounds _bounds
    cdef object _decoder
    cdef object _decode
    cdef object _unprepared
    cdef object _interceptors
    cdef CommitState _consumed
    cdef double _auto_commit_interval
    cdef double _next_auto_commit
    cdef RecordRuns _leftover
    cdef RecordRuns _not_intercepted
    cdef Taking _taking
    cdef RecordRuns _iterated
    cdef object _cursor
    cdef public RecordRuns in_transit
    cdef public dict returned
    cdef public bint auto_commits

    cpdef RecordRuns take(self, Py_ssize_t limit)
    cpdef object preparation(self)
    cpdef dict returned_with(self, RecordRuns records)
    cpdef object move_on(self, RecordRuns records)
    cpdef object settle(self)
    cpdef object stop_iteration(self)
    cpdef bint auto_commit_is_due(self) except -1
    cpdef dict begin_auto_commit(self)
    cpdef object auto_commit_in(self)

    # Private.
    cdef RecordRuns _take_leftover_first(self, Py_ssize_t limit, object withheld)
    cdef RecordRuns _collect(self, Py_ssize_t limit, Bounds bounds)
    cpdef object _begin(self, Taking taking)
    cdef RecordRuns _collect_in_transit(self, Py_ssize_t limit, Bounds bounds)
    cdef object _recover(self)
    cdef object _consume_returned(self)
    cdef object _put_back(self)


cdef class CommitState:
    cdef dict _positions
    cdef dict _uncommitted
    cdef dict _committed

    cpdef object update(self, object positions)
    cpdef object taken(self, RecordRuns records)

    # Private.
    cdef object _compare(self, object tp, object position)


cdef class StoredOffsets(CommitState):
    cdef dict _stored
    cdef object _done_offsets
    cdef object _done
