# C interface: asked in each turn, with nothing to do in most.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator


@cython.final
cdef class AdaptivePartitioning:
    cdef Accumulator _accumulator
    cdef double _timeout
    cdef dict _avoided_from
    cdef set _avoided

    cpdef object update(self, double now, object stuck, object cluster)
    cpdef object next_deadline(self)

    # Private.
    cdef bint _follow(self, double now, object stuck) except -1
