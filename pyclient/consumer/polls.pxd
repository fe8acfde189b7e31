# C interface: what each poll does.
cimport cython

from pyclient.buffers.fetch_buffer cimport FetchBuffer
from pyclient.buffers.record_run cimport RecordRuns
from pyclient.clocks cimport seconds_of
from pyclient.consumer.consumed_positions cimport ConsumedPositions
from pyclient.core.cluster_view cimport ClusterView
from pyclient.core.manager cimport earlier
from pyclient.metric_values cimport Windows


cdef class GroupPolls:
    cdef readonly object _core
    cdef FetchBuffer _buffer
    cdef object _clock
    cdef readonly object _group
    cdef Windows _between
    cdef public object _identity
    cdef bint _has_polled
    cdef public double polled_at

    cpdef object begin_poll(self)
    cpdef object continue_poll(self)
    cpdef object end_poll(self)
    cpdef bint read_on(self) except -1
    cpdef bint due(self) except -1

    # Private.
    cdef double _sample_interval(self) except? -1


@cython.final
cdef class Polls:
    cdef object _core
    cdef FetchBuffer _buffer
    cdef object _clock
    cdef ConsumedPositions _consumed_positions
    cdef GroupPolls _group_polls
    cdef object _pending_commits
    cdef object _start_auto_commit
    cdef object _max_poll_records
    cdef bint _warned_of_long_poll
    cdef ClusterView _view
    cdef bint _has_bootstrapped

    cpdef RecordRuns begin(self, Py_ssize_t limit)
    cpdef RecordRuns read_on(self, Py_ssize_t limit)
    cpdef RecordRuns take(self, Py_ssize_t limit)
    cpdef object limit(self, object max_records)
    cpdef object timeout(self, object timeout)
    cpdef object auto_commit(self)

    # Private.
    cdef bint _skip(self, RecordRuns records) except -1
    cdef object _max_wait(self, object deadline)
    cdef object _bootstrap_time_left(self)
