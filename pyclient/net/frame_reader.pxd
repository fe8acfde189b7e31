# C interface: a connection takes frames without a Python call.
cimport cython

from pyclient.codec.memory cimport bytes_at, int32_at


cdef Py_ssize_t _SIZE_BYTES


cdef class FrameReader:
    cdef object _label
    cdef long long _max_frame
    cdef long long _limit
    cdef public object _on_frame
    cdef readonly bytearray scratch
    cdef bytearray _frame
    cdef readonly Py_ssize_t filled
    cdef bint _stopped
    cdef readonly long long bytes_in
    cdef public bint may_be_tls

    cpdef bytearray room(self)
    cpdef Py_ssize_t received(self, Py_ssize_t size) except -1

    # Private.
    cdef object _take(self)
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t)
    cdef object _take_small(self)
    cdef Py_ssize_t _frame_size(self, Py_ssize_t at) except -1
