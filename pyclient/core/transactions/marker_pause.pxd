# The fields of the pause between transactions.
cimport cython


@cython.final
cdef class MarkerPause:
    cdef readonly double due           # no request of the next transaction leaves before
    cdef readonly double pause         # seconds
    cdef readonly double left_at       # when the first Produce request of the next transaction left; 0: not yet
    cdef double _end_took              # seconds of the last EndTxn
    cdef bint _first                   # nothing of the next transaction was answered

    cpdef void clear(self) except *
    cpdef void ended(self, double now, double took) except *
    cpdef void left(self, double now) except *
    cpdef void stored(self, double now) except *
    cpdef void answered(self, double took, bint refused) except *
