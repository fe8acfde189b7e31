# C interface: what the driver keeps, and the steps of its turn.
cimport cython

from pyclient.clocks cimport seconds_of
from pyclient.core.manager cimport Manager, Request, earlier
from pyclient.net.pool cimport ConnectionPool, Waker
from pyclient.reactor.reactor cimport Reactor, Timer


cdef int _ROUNDS


cdef class Driver(Waker):
    cdef Reactor _reactor
    cdef object _clock
    cdef readonly list _managers
    cdef Manager _data
    cdef list _only_data
    cdef list _others
    cdef list _deriving
    cdef object _others_deadline
    cdef bint _everyone
    cdef ConnectionPool _connections
    cdef object _take_turn
    cdef readonly bint _scheduled
    cdef bint _turning
    cdef bint _again
    cdef readonly object _timer
    cdef readonly object _timer_at
    cdef readonly dict _waiters
    cdef bint _closed
    cdef object _stopped_by
    cdef public object on_sleep
    cdef readonly long long turns
    cdef object __weakref__

    cpdef object wake_from_anywhere(self)

    # Private.
    cdef object _schedule(self)
    cpdef object _turn(self)
    cdef object _poll(self, ConnectionPool connections)
    @cython.locals(each=Manager)
    cdef bint _concerns_others(self) except -1
    @cython.locals(manager=Manager, now=double, _=int)
    cdef object _poll_managers(self, ConnectionPool connections, list managers)
    cdef object _send(self, ConnectionPool connections, Request request)
    cdef object _sleep(self, ConnectionPool connections, double not_before)
    cdef object _deadline(self, ConnectionPool connections)
    cdef object _sleep_until(self, object deadline)
    cdef object _set_timer(self, object deadline)
