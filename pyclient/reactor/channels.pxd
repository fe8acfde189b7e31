# C interface: what a plain channel keeps.
cimport cython

from pyclient.reactor.reactor cimport Reactor


cdef class PlainChannel:
    cdef Reactor _reactor
    cdef public object socket
    cdef readonly bint short_reads_end
    cdef public object on_events
    cdef object _token
    cdef bint _closed

    cpdef Py_ssize_t read_into(self, bytearray buffer, Py_ssize_t start) except? -2
    cpdef bint write(self, list pieces) except -1
    cpdef object _report(self, int events)


@cython.locals(whole=Py_ssize_t)
cdef object _drop_sent(list pieces, Py_ssize_t sent)
