# C interface: each response is a sign of life.
cimport cython


@cython.final
cdef class Silence:
    cdef double _patience
    cdef readonly long long bytes_in
    cdef readonly double heard_at
    cdef double _looked_at
    cdef readonly object since

    cpdef object answered(self, double now, long long bytes_in)
    cpdef object look_at(self, object waits_since, object others=*)
    cpdef bint look(self, double now, object waits_since, long long bytes_in) except -1
