# C interface: each response moves a position.
cimport cython

from pyclient.codec.batches cimport RecordBatch


cdef object FETCHING


cdef class Position:
    cdef readonly object tp
    cdef public long long generation
    cdef readonly object phase
    cdef readonly bint known
    cdef public long long offset
    cdef readonly long long start
    cdef public object reset_to
    cdef public object lost
    cdef public object high_watermark
    cdef public int failures
    cdef readonly list history

    cpdef object advance(self, object event)
    cpdef object found(self, long long offset, int epoch=*)
    @cython.locals(batch=RecordBatch, epoch=int)
    cpdef int read(self, object batches, long long next_offset) except? -2
    cpdef long long divergence(self, int epoch, long long end) except? -2
    cpdef object back_to(self, long long offset)
