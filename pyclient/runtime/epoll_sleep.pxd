# The fields of the sleep.
cimport cython

from pyclient.runtime.epoll cimport MOST_READY


@cython.final
cdef class EpollSleep:
    cdef int _epoll
    cdef object _selector
    cdef object _acquire
    cdef object _give_back
    cdef int[MOST_READY] _ready

    # Private.
    cdef int _sleep(self, int timeout_ms) except -1
    cdef bint _handle(self, int count) except -1
