# C interface: each response is a sign of life.
cimport cython


@cython.final
cdef class Silence:
    cdef double _silence_timeout_s
    cdef readonly long long bytes_in
    cdef readonly double last_response_at
    cdef double _checked_at
    cdef readonly object since

    cpdef object answered(self, double now, long long bytes_in)
    cpdef object next_check(self, object waits_since, object others=*)
    cpdef bint is_silent(self, double now, object waits_since, long long bytes_in) except -1
