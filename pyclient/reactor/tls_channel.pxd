# C interface: as of `Channel`, and what a TLS channel keeps.
cimport cython

from pyclient.codec.memory cimport bytes_at
from pyclient.reactor.channels cimport Channel, PlainChannel
from pyclient.reactor.reactor cimport Reactor


cdef class TlsChannel(Channel):
    cdef Reactor _reactor
    cdef public PlainChannel _plain
    cdef object _incoming
    cdef object _outgoing
    cdef object _tls
    cdef object _session
    cdef readonly bytearray _received
    cdef readonly list _encrypted
    cdef bint _ended

    # Private.
    @cython.locals(size=Py_ssize_t)
    cpdef bint _receive(self) except -1
    cdef bint _flush(self) except -1


@cython.locals(size=Py_ssize_t, whole=Py_ssize_t, taken=list)
cpdef object _take_chunk(list pieces)
