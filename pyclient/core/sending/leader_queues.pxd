# C interface: the sender finds and places queues without a Python call.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.queues cimport PartitionQueue
from pyclient.core.manager cimport earlier
from pyclient.core.sending.sequencing cimport Leader
from pyclient.core.topic_interest cimport TopicInterest


@cython.final
cdef class LeaderQueues:
    cdef Accumulator _accumulator
    cdef object _metadata
    cdef TopicInterest _interest
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
    cpdef dict of(self, int node)
    @cython.locals(queues=dict, leader=Leader)
    cpdef object place(self, PartitionQueue queue, double now)
    cpdef bint is_paused(self, PartitionQueue queue) except -1
    @cython.locals(known=Leader)
    cpdef Leader leader(self, PartitionQueue queue, int node)
    @cython.locals(leader=Leader)
    cpdef Leader known_leader(self, PartitionQueue queue)
    cpdef object next_deadline(self)

    # Private.
    cdef object _want(self, PartitionQueue queue, double now)
    @cython.locals(queue=PartitionQueue)
    cdef object _place_ready(self, double now)
    cdef object _follow_leaders(self, double now)
    cdef object _end_pauses(self, double now)
