# C interface: the sender numbers batches, and notes their ends, without a Python call.
cimport cython

from pyclient.buffers.batch cimport Batch
from pyclient.core.transition_rows cimport Rows


cdef Rows _TABLE


@cython.final
cdef class Leader:
    cdef readonly int node
    cdef readonly object topic_id
    cdef readonly int epoch


cdef class PartitionSequence:
    cdef readonly int limit
    cdef readonly bint stamps
    cdef public object state
    cdef readonly list in_flight
    cdef public double idle_since
    cdef public Leader leader
    cdef public object producer_id
    cdef public int epoch
    cdef public long long next_sequence

    cpdef bint has_room(self, Leader to) except -1
    cpdef bint may_send(self, Batch batch) except -1
    cpdef bint prepare(self, double now, Leader to, object producer_id) except -1
    cpdef object sent(self, Batch batch, Leader to)
    cpdef object ended(self, Batch batch, double now)
    cpdef object stored(self)
    cpdef object failed(self)
    cpdef object interpret(self, Batch batch, object outcome, bint first)
    cpdef object gap(self)

    # Private.
    cpdef object _follow(self, Leader before, Leader to, double idle)
    cpdef object _begin(self, object producer_id)
    cpdef object _step(self, object event)
