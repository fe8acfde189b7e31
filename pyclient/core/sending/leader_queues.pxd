# C interface: the sender finds and places queues without a Python call.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.queues cimport PartitionQueue
from pyclient.core.cluster_view cimport ClusterView
from pyclient.core.sending.sequencing cimport Leader
from pyclient.core.topic_interest cimport TopicInterest


@cython.final
cdef class NodeQueues:
    cdef readonly int node
    cdef readonly dict queues


@cython.final
cdef class LeaderQueues:
    cdef Accumulator _accumulator
    cdef object _metadata
    cdef TopicInterest _interest
    cdef list _unplaced
    cdef list _nodes
    cdef dict _leaderless
    cdef dict _pauses
    cdef ClusterView _view
    cdef object _followed
    cdef object _cluster
    cdef dict _leaders

    cpdef object update(self, double now)
    @cython.locals(at=NodeQueues)
    cpdef bint waiting(self) except -1
    @cython.locals(at=NodeQueues)
    cpdef list nodes(self)
    @cython.locals(leader=Leader)
    cpdef object place(self, PartitionQueue queue, double now)
    cpdef bint is_paused(self, PartitionQueue queue) except -1
    @cython.locals(known=Leader)
    cpdef Leader leader(self, PartitionQueue queue, int node)
    cpdef Leader known_leader(self, PartitionQueue queue)
    cpdef object next_deadline(self)

    # Private.
    cdef Leader _found_leader(self, PartitionQueue queue)
    cdef object _want(self, PartitionQueue queue, double now)
    @cython.locals(at=NodeQueues)
    cdef NodeQueues _at(self, int node)
    @cython.locals(queue=PartitionQueue, placed=Py_ssize_t)
    cdef object _place_ready(self, double now)
    cdef object _follow_leaders(self, double now)
    cdef object _end_pauses(self, double now)
