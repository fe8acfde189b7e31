# The fields of the poller.
cimport cython

from pyclient.reactor.epoll cimport Event


@cython.final
cdef class EpollPoller:
    cdef int _epoll
    cdef int _eventfd
    cdef int _timer
    cdef unsigned int _generation
    cdef dict _watched

    # Private.
    cdef list _found(self, int count, Event* events)
