# C interface: connections read and write channels without a Python call.
cimport cython

from pyclient.reactor.reactor cimport Reactor
from pyclient.reactor.system_sockets cimport receive, send


cdef class Channel:
    cdef public bint secured
    cdef public bint short_reads_end
    cdef public bint unwritten
    cdef object __weakref__

    cpdef object attach(self, object on_events)
    cpdef Py_ssize_t read_into(self, bytearray buffer, Py_ssize_t start) except? -2
    cpdef bint write(self, list pieces) except -1
    cpdef object set_low_water(self, Py_ssize_t size)
    cpdef object close(self)
    cpdef object abort(self)


cdef class PlainChannel(Channel):
    cdef Reactor _reactor
    cdef public object socket
    cdef public object on_events
    cdef int _descriptor
    cdef public bint of_system
    cdef bint _arms
    cdef object _token
    cdef bint _closed

    cdef int _own_descriptor(self) noexcept
    cpdef object close_after(self, object last)
    cpdef object _report(self, int events)


@cython.locals(whole=Py_ssize_t)
cdef object _drop_sent(list pieces, Py_ssize_t sent)
