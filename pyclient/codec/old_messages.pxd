# Messages of the formats 0 and 1 as records of format 2.
from libc.stdint cimport int32_t, int64_t


cdef class UpgradedRecords:
    cdef object records             # memoryview; its first *size* bytes are the records
    cdef Py_ssize_t size
    cdef int64_t base_offset
    cdef int64_t base_timestamp
    cdef int32_t count
    cdef Py_ssize_t sound           # bytes of the messages that were checked

    # Reads what read_batches found to be one batch of old messages.
    cdef int read(self, object messages, Py_ssize_t limit, bint check_crc) except -1

    # Private.
    cdef bint check_crc
    cdef int64_t check(self, object messages, int magic) except -2
