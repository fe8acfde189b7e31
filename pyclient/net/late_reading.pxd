# The fields of what leaves answers in their socket.
cimport cython


@cython.final
cdef class LateReading:
    cdef int _epoll
    cdef int _timer
    cdef double _patience
    cdef double _rings_at              # the timer, last
    cdef int _paused                     # the loop does not read this; -1 if it reads all
    cdef int _requests                 # since one was answered in time

    cdef int pause(self, int descriptor, double now) except -1
    cdef bint is_paused(self, int descriptor) except -1
    cdef int resume(self) except -1
    cdef int end(self) except -1

    # Private.
    cdef bint _pause(self, int descriptor) except -1
    cdef bint _set_timer(self, double now) except -1
