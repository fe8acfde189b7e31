# C interface: each poll waits, and each response ends a wait.
cimport cython

from pyclient.buffers.fetch_buffer cimport FetchBuffer
from pyclient.clocks cimport seconds_of
from pyclient.reactor.reactor cimport Reactor, Waiter


@cython.final
cdef class DataWaiter:
    cdef FetchBuffer _buffer
    cdef Reactor _reactor
    cdef object _clock
    cdef object _event
    cdef Waiter _waiter
    cdef public bint is_awaited

    @cython.locals(buffer=FetchBuffer, waiter=Waiter, until=double)
    cpdef bint wait(self, object timeout) except -1
