# C interface: connections register requests and report their outcomes without a Python call.
cimport cython


@cython.final
cdef class Reply:
    cdef public int version
    cdef public object message


cdef class NotAnswered:
    cdef readonly object cause


@cython.final
cdef class NotSent(NotAnswered):
    pass


@cython.final
cdef class Unknown(NotAnswered):
    pass


cdef class Request:
    cdef readonly int node
    cdef readonly object use
    cdef readonly object api
    cdef readonly double timeout
    cdef readonly object held
    cdef readonly object silence_timeout_s
    cdef readonly object fields
    cdef readonly object versions
    cdef readonly bint answered
    cdef object _done

    cpdef object encode(self, int version, int correlation_id, object client_id)
    cpdef object decode(self, int version, object frame)
    cpdef bint done(self, double now, object outcome) except -1


cdef class Ready:
    cpdef int slots(self, int node, object use) except -1
    cpdef int free(self, int node, object use) except -1
    cpdef object least_loaded(self, object use)
    cpdef object give_up(self, int node, object use)


cdef class Manager:
    cdef public bint needs_poll

    cpdef bint must_be_polled(self) except -1
    cpdef object poll(self, double now, object ready)
    cpdef object next_deadline(self)


cpdef object earlier(object one, object other)

@cython.locals(made=Reply)
cpdef Reply reply_with(int version, object message)
