# C interface: nearly every batch is stored.
cimport cython


@cython.final
cdef class Stored:
    cdef readonly long long base_offset
    cdef readonly long long append_time


cdef long long _UNKNOWN
cdef long long _PAST_OFFSETS


@cython.locals(made=Stored)
cpdef Stored stored_outcome(long long base_offset, long long append_time)
