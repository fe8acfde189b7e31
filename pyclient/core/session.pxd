# C interface: no request is written in a session that is over.
cimport cython


@cython.final
cdef class Session:
    cdef public object ends_at
    cdef public object renew_at

    cpdef bint is_over(self, double now) except -1
    cpdef bint renewal_is_due(self, double now) except -1
