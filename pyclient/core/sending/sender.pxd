# C interface: what the sender keeps, and its own steps.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.batch cimport Batch
from pyclient.buffers.queues cimport PartitionQueue
from pyclient.core.manager cimport earlier
from pyclient.core.sending.adaptive_partitioning cimport AdaptivePartitioning
from pyclient.core.sending.leader_queues cimport LeaderQueues
from pyclient.core.sending.produce_outcome cimport Stored
from pyclient.core.sending.produce_request cimport ProduceRequest
from pyclient.core.sending.sequencing cimport Leader, PartitionSequence


cdef class BatchListener:
    cpdef object leaves(self, Batch batch, int node, PartitionSequence sequence)
    cpdef object sent(self, list batches)
    cpdef object stored(self, Batch batch)
    cpdef object split(self, Batch batch)


cdef class Sender:
    cdef Accumulator _accumulator
    cdef object _metadata
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
    cdef readonly dict _sequences
    cdef int _in_flight
    cdef double _oldest_open
    cdef double _close_at
    cdef double _delivery_timeout
    cdef AdaptivePartitioning _adaptive

    @cython.locals(oldest=Batch)
    cpdef object next_deadline(self)
    @cython.locals(quiet=cython.bint, sequence=PartitionSequence, batch=Batch)
    cpdef bint ended(self, double now, object outcomes) except -1

    # Private.
    cdef bint _admits(self, Batch batch, double now) except -1
    cdef object _admit(self, double now)
    @cython.locals(batches=list, size=cython.longlong, queues=dict, queue=PartitionQueue, batch=Batch)
    cdef ProduceRequest _drain(self, int node, double now)
    cdef bint _has_more(self, int node) except -1
    cdef bint _has_id(self, dict queues) except -1
    @cython.locals(sequence=PartitionSequence, batch=Batch)
    cdef Batch _sendable(self, PartitionQueue queue, int node, double now)
    @cython.locals(sequence=PartitionSequence)
    cdef PartitionSequence _sequence(self, PartitionQueue queue)
    @cython.locals(sequence=PartitionSequence, leader=Leader)
    cdef bint _start(self, Batch batch, int node, double now) except -1
    cdef ProduceRequest _request(self, int node, list batches)
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
