# C interface: the sender finds and places queues without a Python call.
cimport cython

from pyclient.buffers.queues cimport PartitionQueue


@cython.final
cdef class LeaderQueues:
    cdef object _accumulator
    cdef object _metadata
    cdef dict _unplaced
    cdef dict _by_leader
    cdef dict _leaderless
    cdef dict _pauses
    cdef object _view
    cdef object _cluster
    cdef dict _leaders

    cpdef object update(self, double now)
    cpdef bint waiting(self) except -1
    cpdef list nodes(self)
    cpdef dict of(self, object node)
    @cython.locals(queues=dict)
    cpdef object place(self, PartitionQueue queue, double now)
    cpdef bint is_paused(self, PartitionQueue queue) except -1
    cpdef object leader(self, PartitionQueue queue, object node)
    cpdef object known_leader(self, PartitionQueue queue)
    cpdef object next_deadline(self)

    # Private.
    cdef object _want(self, PartitionQueue queue, double now)
    cdef object _place_ready(self, double now)
    cdef object _follow_leaders(self, double now)
    cdef object _end_pauses(self, double now)
