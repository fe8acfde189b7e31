# C interface: a sequence takes a row for each batch.
cimport cython


cdef class Rows:
    cdef dict _following
    cdef readonly object rows
    cdef public object observer

    cpdef object after(self, object state, object event)
