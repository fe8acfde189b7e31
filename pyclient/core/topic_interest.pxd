# C interface: each batch keeps its topic in use.
cimport cython


cdef double _PINNED


@cython.final
cdef class TopicInterest:
    cdef readonly dict used
    cdef readonly set new
    cdef public object scope
    cdef double _max_idle
    cdef dict _pins

    @cython.locals(since=double)
    cpdef bint want(self, object topic, double now) except -1


cdef class WantedIds:
    cdef public bint in_flight
    cdef object _backoff
    cdef object _wanted
    cdef bint _new
    cdef int _fruitless
    cdef double _not_before
