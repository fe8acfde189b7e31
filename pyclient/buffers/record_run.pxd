# C interface: each poll makes runs of what it takes.
cimport cython

from pyclient.codec.batches cimport RecordBatch


cdef int NO_EPOCH


@cython.final
cdef class RecordRun:
    cdef readonly object tp
    cdef readonly RecordBatch batch
    cdef readonly Py_ssize_t start
    cdef readonly Py_ssize_t stop
    cdef readonly object made
    cdef readonly Py_ssize_t first

    cpdef RecordRun some(self, Py_ssize_t start, Py_ssize_t stop)
    cpdef object end(self)


cdef class RecordRuns:
    cdef readonly list _runs
    cdef readonly dict _positions
    cdef readonly Py_ssize_t _count

    cpdef dict next_offsets(self)


cpdef object placed(object offset, int epoch)
