# C interface: each batch is sealed.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.batch cimport Batch


@cython.final
cdef class BatchSealer:
    cdef Accumulator _accumulator
    cdef object _environment
    cdef Py_ssize_t _inline_bytes
    cdef object _workers

    cpdef object seal(self, Batch batch)
    cpdef object _seal_or_fail(self, Batch batch)
