# C interface: nearly every batch is stored.
cimport cython


@cython.final
cdef class Stored:
    cdef readonly long long base_offset
    cdef readonly long long append_time
