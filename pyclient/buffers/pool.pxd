# C interface: each batch takes a buffer and gives it back.
cimport cython


@cython.final
cdef class Waiter:
    cdef public object notify
    cdef public Py_ssize_t size
    cdef public object allowed
    cdef public bytearray grant


@cython.final
cdef class Pool:
    cdef readonly Py_ssize_t total
    cdef readonly Py_ssize_t used
    cdef readonly Py_ssize_t free_bytes
    cdef public object on_return
    cdef tuple _classes
    cdef list _free
    cdef object _waiters
    cdef object _aside

    @cython.locals(size=Py_ssize_t)
    cpdef Py_ssize_t size_for(self, Py_ssize_t need) except -1
    cpdef bytearray take(self, Py_ssize_t size)
    @cython.locals(size=Py_ssize_t, free=list)
    cpdef object give(self, bytearray buffer)
    cpdef object swap(self, bytearray buffer, Py_ssize_t size)
    cpdef object discharge(self, Py_ssize_t size)

    # Private.
    @cython.locals(at=Py_ssize_t, kept=Py_ssize_t)
    cdef list _free_of(self, Py_ssize_t size)
    @cython.locals(head=Waiter)
    cdef object _serve(self)
    @cython.locals(free=list)
    cdef bytearray _allocate(self, Py_ssize_t size)
    @cython.locals(free=list)
    cdef bint _make_room(self, Py_ssize_t size) except -1
