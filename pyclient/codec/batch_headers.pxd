# Where batches begin and end in a response, and what their headers say. Only header_fault touches a Python object.
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t


# Of an old message: what its size bounds, and where its key and value lie. A length of -1 is a null.
cdef struct Message:
    int64_t offset
    int64_t timestamp               # -1 in format 0
    Py_ssize_t size                 # on the wire, with offset and length
    const unsigned char* key
    Py_ssize_t key_len
    const unsigned char* value
    Py_ssize_t value_len
    uint32_t crc
    int8_t magic
    int8_t attributes


# Old messages that are read as one batch: uncompressed ones in a row, or a single compressed one.
cdef struct Run:
    Py_ssize_t size
    int64_t first_offset
    int64_t last_offset
    int64_t max_timestamp
    int32_t count
    int8_t magic
    int8_t codec
    int8_t timestamp_type           # as pyclient.records.TimestampType


# Size of the batch or message at *at*; 0 if the *rest* of the response ends before it does.
cdef Py_ssize_t whole_size(const unsigned char* at, Py_ssize_t rest) noexcept nogil

# What is wrong with the header at *at*, None if nothing. *size* is that of whole_size, *rest* at least 12.
cdef str header_fault(const unsigned char* at, Py_ssize_t rest, Py_ssize_t size)

# Reads a message whose size is known to be within its memory. False: its key or value is longer than it.
cdef bint read_message(const unsigned char* at, Message* message) noexcept nogil

# The messages from *at* on that are read as one batch; the first is whole and has no header_fault.
cdef void measure_run(const unsigned char* at, Py_ssize_t rest, Run* run) noexcept nogil
