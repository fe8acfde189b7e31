# The fields of the usual transaction, for the compiled code that carries it out in place.
cimport cython

from pyclient.buffers.batch cimport Batch
from pyclient.core.transactions.marker_pause cimport MarkerPause


@cython.final
cdef class UsualTransactions:
    cdef readonly MarkerPause markers
    cdef object _manager
    cdef object _committing
    cdef object _ended

    cpdef bint begin(self, double now) except -1
    cpdef bint may_commit(self) except -1
    cpdef bint may_send(self, sequence) except -1
    cpdef void commit(self) except *
    cpdef void leaves(self, Batch batch, sequence, leader, double now) except *
    cpdef void stored(self, sequence, double now) except *
    cpdef void stored_before(self, sequence) except *
    cpdef object producer(self)
    cpdef bint started(self) except -1
    cpdef void ended(self, long long producer_id, int epoch) except *

    # Private.
    cdef bint _is_calm(self, manager) except -1
