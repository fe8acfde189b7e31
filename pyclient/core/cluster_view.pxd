# C interface: each batch asks whether the view is still the same.
cimport cython


@cython.final
cdef class ClusterView:
    cdef public object cluster
