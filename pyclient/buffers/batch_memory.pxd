# C interface: the Accumulator takes and returns batch memory without a Python call.
cimport cython

from pyclient.buffers.batch cimport Batch
from pyclient.buffers.pool cimport Pool
from pyclient.buffers.queues cimport PartitionQueue


@cython.final
cdef class PartitionMemory:
    cdef Py_ssize_t _half
    cdef Py_ssize_t _leaderless_bytes   # held by all partitions without a leader

    cdef object account(self, PartitionQueue queue, Py_ssize_t size)
    cdef bint exceeds(self, PartitionQueue queue, Py_ssize_t size) except -1
    cdef object set_leader(self, PartitionQueue queue, bint has_leader)


@cython.final
cdef class BatchMemory:
    cdef readonly Pool pool
    cdef readonly object waits
    cdef readonly Py_ssize_t batch_limit   # bytes of records in a batch of `batch_size`
    cdef PartitionMemory _partitions

    cdef object buffer_for(self, PartitionQueue queue, Py_ssize_t need, object waiter)
    cdef bint grow(self, Batch batch, Py_ssize_t need, object waiter) except -1
    cdef bint worth_waiting(self, Py_ssize_t need) except -1
    cdef object replace_buffer(self, Batch batch, object records)
    cdef list share(self, Batch batch, list sizes)
    cdef object free(self, Batch batch)
    cdef object set_leader(self, PartitionQueue queue, bint has_leader)

    # Private.
    cdef Py_ssize_t _expected(self, PartitionQueue queue, Py_ssize_t need) except -1
    cdef Py_ssize_t _wanted(self, Batch batch, Py_ssize_t need) except -1
