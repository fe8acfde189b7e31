# The fields of fetches under way, for the compiled code that answers them in place.
from pyclient.codec.fetch cimport OnePartition, UsualResponse


cdef class Fetch:
    cdef readonly int node
    cdef readonly object session
    cdef readonly object session_request
    cdef readonly Py_ssize_t reserved
    cdef readonly double wait
    cdef readonly double began
    cdef object served              # the partition that the last one read, if it was repeated
    cdef OnePartition asked         # what this one asks of it
    cdef object _on_end


cdef class NextFetch:
    cdef readonly Fetch fetch
    cdef readonly Py_ssize_t max_bytes
    cdef readonly str rack
    cdef readonly object limits
    cdef readonly OnePartition asked
    cdef readonly double timeout

    cpdef bytes encoded(self, int version, int correlation_id, object client_id)


cdef class FetchWait:
    cdef double _moved              # when data came last, or some was drained
    cdef double _taken              # when some was drained last
    cdef double _between            # seconds between two drains

    cpdef void came(self, double now)
    cpdef void drained(self, double now)
    cpdef double max_wait(self, double now)


cdef class FetchesUnderWay:
    cdef public Py_ssize_t reserved
    cdef object _buffer
    cdef object _limits
    cdef object _sources
    cdef dict _positions
    cdef object _responses
    cdef object _placement
    cdef object _preferred
    cdef FetchWait _fetch_wait
    cdef object _empty
    cdef dict _early                # of the nodes in it, the last responses came early and without data
    cdef object _on_end
    cdef double _timeout
    cdef double _max_wait
    cdef Py_ssize_t _buffer_memory
    cdef Py_ssize_t _max_bytes
    cdef Py_ssize_t _max_partition_bytes
    cdef dict _fetches              # by node

    cpdef Fetch begin(self, int node, object session, object session_request, Py_ssize_t room, double now)
    cpdef Py_ssize_t free(self, Py_ssize_t came=*, Py_ssize_t released=*)
    cpdef NextFetch repeat(self, double now, Fetch fetch, UsualResponse response)

    # Private.
    cdef bint _keeps(self, Fetch fetch, object tp) except -1
    cdef object _named(self, Fetch fetch, UsualResponse response)
    cdef NextFetch _repeat_nothing(self, double now, Fetch fetch)
    cdef NextFetch _repeat_data(self, double now, Fetch fetch, UsualResponse response)
    cdef NextFetch _follow(self, double now, Fetch fetch, Py_ssize_t room, dict changes, OnePartition asked)
    cdef list _whole_batches(self, object position, object records)
