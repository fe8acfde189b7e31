# C interface: each batch asks for the id.
cimport cython


@cython.final
cdef class ProducerIds:
    cdef object _calls
    cdef object _call
    cdef readonly object current
    cdef public object on_failure
