# C interface: each batch asks for its codec.
cimport cython


@cython.final
cdef class Codecs:
    cdef tuple _default
    cdef dict _by_topic

    cpdef tuple of(self, str topic)
    @cython.locals(payload=object)
    cpdef tuple compressed(self, str topic, object records)
