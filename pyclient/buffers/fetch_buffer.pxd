# C interface: what a fetch brings is put and taken without a Python call.
cimport cython

from pyclient.buffers.flag_lock cimport FlagLock


cdef class Buffered:
    cdef readonly object tp
    cdef readonly long long generation
    cdef readonly Py_ssize_t size

    cpdef object close(self)


@cython.final
cdef class Chunk(Buffered):
    cdef public object batches
    cdef public object fault
    cdef public long long position
    cdef readonly long long next_offset
    cdef readonly int epoch
    cdef public Py_ssize_t refused


@cython.final
cdef class Failure(Buffered):
    cdef readonly object error
    cdef readonly bint lasting


cdef class FetchBuffer:
    cdef public object on_room
    cdef public object on_data
    cdef public bint poll_requested
    cdef FlagLock _lock
    cdef readonly object _entries
    cdef Buffered _taken
    cdef Buffered _open
    cdef dict _generations
    cdef dict _counts
    cdef object _paused
    cdef Py_ssize_t _bytes
    cdef dict _drained
    cdef set _awaited
    cdef bint _bytes_awaited
    cdef bint _woken

    cpdef bint is_empty(self) except -1
    cpdef Py_ssize_t count(self, object tp) except -1
    cpdef bint is_full(self, object tp, Py_ssize_t most) except -1
    cpdef object await_room(self)
    cpdef object put(self, Buffered entry)
    cpdef list take_drained(self)
    cpdef Buffered take(self)
    cpdef Buffered next(self)
    cpdef bint is_open(self, Buffered entry) except -1
    cpdef object use_up(self, Buffered entry)
    cpdef object give_back(self, Buffered entry, bint last=*)
    cpdef bint ready(self) except -1
    cpdef object request_poll(self)
    cpdef bint take_wake(self) except -1

    # Private.
    @cython.locals(entry=Buffered)
    cdef Buffered _next(self)
    cdef object _leave_open(self, Buffered entry)
    cdef object _put_back(self, Buffered entry, bint last)
    cdef object _add(self, Buffered entry)
    cdef object _remove(self, Buffered entry)
