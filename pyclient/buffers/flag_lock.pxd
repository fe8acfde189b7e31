# C interface: compiled code takes it without a Python call.
from pyclient.buffers.lock cimport Lock


cdef class FlagLock:
    cdef Lock _lock

    cpdef acquire(self)
    cpdef release(self)
