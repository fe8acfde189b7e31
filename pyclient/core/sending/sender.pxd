# C interface: what the sender keeps, and its own steps.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.batch cimport Batch
from pyclient.buffers.queues cimport PartitionQueue
from pyclient.core.cluster_view cimport ClusterView
from pyclient.core.manager cimport Ready, earlier
from pyclient.core.sending.adaptive_partitioning cimport AdaptivePartitioning
from pyclient.core.sending.leader_queues cimport LeaderQueues, NodeQueues
from pyclient.core.sending.produce_outcome cimport Stored
from pyclient.core.sending.produce_request cimport Owner, ProduceRequest, produce_request
from pyclient.core.sending.sequencing cimport Leader, PartitionSequence


cdef class BatchListener:
    cpdef object leaves(self, Batch batch, int node, PartitionSequence sequence)
    cpdef object sent(self, list batches)
    cpdef object stored(self, Batch batch)
    cpdef object split(self, Batch batch)


cdef int _MOST_BATCHES


cdef class Sender(Owner):
    cdef Accumulator _accumulator
    cdef object _metadata
    cdef ClusterView _view
    cdef readonly object _limits
    cdef object _backoff
    cdef public object _seal
    cdef object _ids
    cdef object _transactions
    cdef dict _outside
    cdef long long _admitted
    cdef long long _seal_failures
    cdef public BatchListener _listener
    cdef readonly LeaderQueues _queues
    cdef int _in_flight
    cdef double _oldest_open
    cdef double _close_at
    cdef double _delivery_timeout
    cdef double _request_timeout
    cdef long long _max_request_size
    cdef int _acks
    cdef AdaptivePartitioning _adaptive

    # Private.
    @cython.locals(sequence=PartitionSequence)
    cdef bint _batch_ended(self, double now, Batch batch, object answered) except -1
    cdef bint _admits(self, Batch batch, double now) except -1
    cdef object _admit(self, double now)
    cdef object _polled(self, double now, list stuck)
    @cython.locals(batches=list, ids=list, queues=dict, batch=Batch, leader=Leader)
    cdef ProduceRequest _drain(self, NodeQueues at, double now)
    @cython.locals(size=cython.longlong, blocked=list, queue=PartitionQueue, batch=Batch)
    cdef object _choose(self, int node, double now, dict queues, list batches)
    cdef bint _has_more(self, NodeQueues at) except -1
    cdef bint _has_id(self, dict queues) except -1
    @cython.locals(sequence=PartitionSequence, batch=Batch)
    cdef Batch _sendable(self, PartitionQueue queue, int node, double now)
    @cython.locals(found=PartitionSequence)
    cdef PartitionSequence _sequence(self, PartitionQueue queue)
    @cython.locals(sequence=PartitionSequence)
    cdef bint _start(self, Batch batch, Leader leader, double now) except -1
    cdef ProduceRequest _request(self, int node, list batches, list ids)
    cdef object _settle(self, double now, PartitionSequence sequence, Batch batch, object outcome)
    cdef object _stored(self, PartitionSequence sequence, Batch batch, Stored outcome, bint overdue)
    cdef object _skip(self, PartitionSequence sequence, Batch batch)
    cdef object _retire_id(self, PartitionSequence sequence)
    cdef double _next_check(self, Batch oldest) except? -1
    @cython.locals(oldest=Batch)
    cdef object _check_ages(self, double now)
    @cython.locals(oldest=Batch)
    cdef object _close_old(self, double now)
    @cython.locals(batch=Batch)
    cdef object _expire(self, double now)


@cython.final
cdef class ReadyRequests:
    cdef Sender _sender
    cdef Ready _ready
    cdef double _now
    cdef list _nodes
    cdef Py_ssize_t _next
    cdef int _room
    cdef list _stuck

    # Private.
    @cython.locals(first=cython.bint, free=int)
    cdef ProduceRequest _of_node(self, NodeQueues at)


@cython.locals(made=ReadyRequests)
cdef ReadyRequests ready_requests(Sender sender, Ready ready, double now)
