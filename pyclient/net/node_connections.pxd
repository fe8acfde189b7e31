# C interface: the pool looks at a node for each request.
cimport cython

from pyclient.core.manager cimport earlier
from pyclient.net.connection cimport Connection


@cython.final
cdef class NodeConnections:
    cdef public object node
    cdef readonly object reconnects
    cdef readonly dict max_in_flight
    cdef readonly dict connections
    cdef readonly dict tasks
    cdef public object attempt
    cdef public double tried_at
    cdef public double connecting_since
    cdef public double answered_at
    cdef public object silent_since
    cdef public bint silence_logged
    cdef public int first_address
    cdef public bint wanted
    cdef public bint unreachable
    cdef public bint may_require_login

    @cython.locals(connection=Connection, free=int)
    cpdef int free_slots(self, object use) except -1
    cpdef bint untried(self, object use) except -1
    cpdef object answered(self, double now)
    @cython.locals(connection=Connection)
    cpdef object next_deadline(self, double max_idle, double checked_at, double silence_timeout_s, object others=*)
