# C interface: each response may throttle its connection.
cimport cython


@cython.final
cdef class Throttle:
    cdef readonly double until
    cdef bint _ended

    cpdef double apply(self, double now, object message) except? -1
    cpdef object deadline(self)
    cpdef object expire(self, double now)
