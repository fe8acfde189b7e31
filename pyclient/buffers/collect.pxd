# C interface: each poll takes records.
cimport cython

from pyclient.buffers.fetch_buffer cimport Buffered, Chunk, Failure, FetchBuffer
from pyclient.buffers.record_run cimport RecordRun, placed
from pyclient.codec.batches cimport RecordBatch


@cython.final
cdef class Bounds:
    cdef readonly Py_ssize_t memory
    cdef readonly Py_ssize_t inline


@cython.final
cdef class Taking:
    cdef public Py_ssize_t records
    cdef public Py_ssize_t memory
    cdef public Py_ssize_t inline
    cdef readonly list runs
    cdef readonly dict positions

    cpdef object taken(self)


cpdef object collect(FetchBuffer buffer, Py_ssize_t limit, object decode, object begin=*, Bounds bounds=*)

# Private.
@cython.locals(entry=Buffered)
cdef object _collect(FetchBuffer buffer, Taking taking, object decode)
@cython.locals(batch=RecordBatch, wanted=Py_ssize_t, memory=Py_ssize_t, inline=Py_ssize_t, held=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t,
               runs=list, positions=dict)
cdef bint _take(Chunk chunk, Taking taking, object decode) except -1
cdef Py_ssize_t _opened(Chunk chunk, Py_ssize_t most) except? -2
