# C interface: private to the module.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.rows cimport Rows
from pyclient.codec.arrow_columns cimport PlainColumns


@cython.final
cdef class ArrowPath:
    cdef Accumulator _accumulator
    cdef object _observer
    cdef object _key_hash
    cdef dict _known              # PlainColumns by the names of value, key, headers and timestamp

    # Private.
    cdef Rows _loaded(self, object topic, object data, PlainColumns plain)
    cdef object _append(self, Rows rows)
