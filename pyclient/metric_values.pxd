# C interface: requests and batches are counted without a Python call.
cimport cython


@cython.final
cdef class Total:
    cdef double _value

    cpdef void add(self, double amount)


@cython.final
cdef class Windows:
    cdef Py_ssize_t _kept
    cdef double _length
    cdef list _closed
    cdef double _since
    cdef long long _count
    cdef double _total
    cdef double _highest

    cpdef void add(self, double total, long long count, double highest, double now)

    # Private.
    cdef void _next(self, double now)
    cdef tuple _current(self)
