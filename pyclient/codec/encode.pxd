# C interface of the writer: what `pyclient.buffers` appends with. Only `header_of_batch` makes a Python object.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


# Upper bound, in bytes, of one encoded record. A length of -1 means null; headers_len 0 or -1 means no headers.
cdef Py_ssize_t record_bound(Py_ssize_t key_len, Py_ssize_t value_len, Py_ssize_t headers_len) noexcept nogil

# Exact size, in bytes, of one encoded record.
cdef Py_ssize_t record_size(int64_t timestamp_delta, int64_t offset_delta, Py_ssize_t key_len, Py_ssize_t value_len,
                            Py_ssize_t headers_len) noexcept nogil

# Writes one v2 record at *at* and returns its end. The caller has made room: record_bound() or record_size() bytes.
# key or value NULL (or length -1) writes a null. headers is a whole header section (see encode_headers), NULL for none.
cdef unsigned char* put_record(unsigned char* at, int64_t timestamp_delta, int64_t offset_delta,
                               const unsigned char* key, Py_ssize_t key_len,
                               const unsigned char* value, Py_ssize_t value_len,
                               const unsigned char* headers, Py_ssize_t headers_len) noexcept nogil

# Length and content; a length of -1 alone is a null.
cdef unsigned char* put_bytes(unsigned char* at, const unsigned char* data, Py_ssize_t size) noexcept nogil

# A zig-zag varint, and its size in bytes.
cdef unsigned char* put_varint(unsigned char* at, int64_t value) noexcept nogil
cdef Py_ssize_t varint_size(int64_t value) noexcept nogil

# The 61 bytes before the records of a batch that is sent.
cdef bytes header_of_batch(uint32_t records_crc, int64_t records_size, int count, int attributes, int64_t base_timestamp, int64_t max_timestamp,
                           int64_t producer_id, int producer_epoch, int base_sequence)

# Big-endian integers, as everywhere in the Kafka protocol.
cdef void put_int16(unsigned char* at, int64_t value) noexcept nogil
cdef void put_int32(unsigned char* at, int64_t value) noexcept nogil
cdef void put_int64(unsigned char* at, int64_t value) noexcept nogil
