# C interface: the Accumulator lists queues and starts lingers without a Python call.
cimport cython

from pyclient.buffers.batch cimport Batch, BatchList
from pyclient.buffers.queues cimport PartitionQueue


@cython.final
cdef class ReadyQueues:
    cdef double _linger
    cdef dict _listed            # queues in the order of their listing, each once; the reactor may hold some of them
    cdef BatchList _lingering    # open batches in the order in which their linger ends
    cdef double _wake_at         # when the reactor looks without being woken
    cdef bint changed            # the reactor must be woken: it does not know of a listed queue, or of a linger that ends before _wake_at

    cdef object add(self, PartitionQueue queue)
    cdef object start_linger(self, Batch batch)
    cdef object end_linger(self, Batch batch)
    cdef object flush_open(self)
    cdef list take(self, double now)
    cdef bint refresh(self, PartitionQueue queue) except -1
    cdef object next_linger(self)
    cdef object wakes_at(self, double at)

    # Private.
    cdef bint _may_leave(self, PartitionQueue queue) except -1
