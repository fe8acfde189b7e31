# C interface: a connection registers requests and finds what a response answers without a Python call.
cimport cython

from pyclient.codec.memory cimport first_int32
from pyclient.core.manager cimport Request


@cython.final
cdef class InFlight:
    cdef readonly Request request
    cdef readonly int correlation_id
    cdef readonly int version
    cdef readonly double sent_at
    cdef readonly double deadline
    cdef readonly long long end
    cdef public object give_up_at
    cdef public bint given_up

    cpdef bint ended(self, double now, object outcome) except -1


@cython.final
cdef class InFlightRequests:
    cdef object _label
    cdef object _reactor
    cdef public int correlation_id
    cdef object _empty
    cdef readonly list requests

    cpdef int next_id(self) except -1
    @cython.locals(made=InFlight)
    cpdef object add(self, Request request, int version, double now, long long end)
    @cython.locals(oldest=InFlight)
    cpdef InFlight answered(self, object frame, long long written)
    cpdef object take_oldest(self)
    @cython.locals(each=InFlight, at=double)
    cpdef object deadline(self)
    @cython.locals(oldest=InFlight)
    cpdef object answer_due_since(self)
    cpdef object notify_if_empty(self)
