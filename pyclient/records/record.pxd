# C layout of the records, for the compiled code that builds them without calling Python.
from libc.stdint cimport int8_t, int32_t, int64_t


cdef class Record:
    cdef str _topic
    cdef bytes _key
    cdef bytes _value
    cdef tuple _headers
    cdef int64_t _offset
    cdef int64_t _timestamp
    cdef int32_t _partition
    cdef int32_t _leader_epoch
    cdef int8_t _timestamp_type


cdef class DecodedRecord(Record):
    cdef object _decoded_key
    cdef object _decoded_value


# A record whose fields are still empty.
cdef Record blank()

cpdef DecodedRecord decoded(Record record, object key, object value)
