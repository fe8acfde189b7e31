# C interface: asked after each read.
cimport cython


@cython.final
cdef class LowWater:
    cdef readonly Py_ssize_t bytes

    cpdef bint update(self, Py_ssize_t missing) except -1
