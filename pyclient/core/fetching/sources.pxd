# C interface: each fetch and each response finds its session here.
cimport cython

from pyclient.core.fetching.sessions cimport Session, SessionRequest


cdef class Sources:
    cdef dict _sessions
    cdef dict _nodes
    cdef dict _in_flight

    @cython.locals(session=Session)
    cpdef object add(self, object tp, object node)
    @cython.locals(session=Session)
    cpdef object remove(self, object tp)
    cpdef Session session(self, object node)
    @cython.locals(session=Session)
    cpdef list idle(self)
    @cython.locals(session=Session, request=SessionRequest)
    cpdef SessionRequest next_request(self, object node, object request_of)
    cpdef list ended(self, object node)
