# The fields of futures and tasks.
cimport cython


cdef class Future:
    cdef readonly object reactor
    cdef object _callbacks
    cdef bint _done
    cdef bint _cancelled
    cdef object _result
    cdef object _error

    # Private.
    cdef object _end(self, object result, object error, bint cancelled)


@cython.final
cdef class Task(Future):
    cdef readonly str name
    cdef object _coro
    cdef object _context
    cdef Future _awaited
    cdef int _cancel_requests
    cdef bint _must_cancel

    # Private.
    cdef object _wait_for(self, object awaited)


@cython.final
cdef class Event:
    cdef object _reactor
    cdef bint _set
    cdef list _waiting


@cython.final
cdef class Timeout:
    cdef object _reactor
    cdef object _when
    cdef object _timer
    cdef Task _task
    cdef int _requests_before
    cdef bint _expired

    # Private.
    cdef object _disarm(self)
