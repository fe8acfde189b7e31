# C interface: each response finds a position here.
from pyclient.buffers.fetch_buffer cimport FetchBuffer
from pyclient.core.fetching.positions cimport Position


cdef class AssignedPositions:
    cdef FetchBuffer _buffer
    cdef long long _generation
    cdef readonly dict by_partition
    cdef readonly dict lookup_errors

    cpdef object add(self, object tp)
    cpdef Position renew(self, object tp)
    cpdef object remove(self, object tp)
    cpdef bint is_current(self, Position position) except -1
    cpdef object show(self, Position position)
