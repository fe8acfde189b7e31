# Reading records that RecordBatch.open() has already validated: no check is repeated here, so nothing else may be read
# with these. Inlined into the loops that build objects and columns.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void* item) noexcept


cdef struct RecordView:
    int64_t timestamp_delta
    int64_t offset_delta
    const unsigned char* key        # meaningless when key_len is -1
    Py_ssize_t key_len
    const unsigned char* value      # meaningless when value_len is -1
    Py_ssize_t value_len
    Py_ssize_t headers              # how many
    const unsigned char* header     # the first of them


cdef inline const unsigned char* next_varint(const unsigned char* at, int64_t* value) noexcept nogil:
    cdef uint64_t raw = at[0]
    cdef int shift = 14
    if raw < 0x80:
        at += 1
    elif at[1] < 0x80:
        raw = (raw & 0x7F) | (<uint64_t>at[1] << 7)
        at += 2
    else:
        raw = (raw & 0x7F) | (<uint64_t>(at[1] & 0x7F) << 7)
        at += 2
        while at[0] >= 0x80:
            raw |= <uint64_t>(at[0] & 0x7F) << shift
            shift += 7
            at += 1
        raw |= <uint64_t>at[0] << shift
        at += 1
    value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return at


cdef inline const unsigned char* next_bytes(const unsigned char* at, const unsigned char** data, Py_ssize_t* size) noexcept nogil:
    cdef int64_t length
    at = next_varint(at, &length)
    data[0] = at
    size[0] = <Py_ssize_t>length
    return at + length if length > 0 else at


# *at* is where the record's length field begins.
cdef inline void view_record(const unsigned char* at, RecordView* record) noexcept nogil:
    cdef int64_t number
    at = next_varint(at, &number) + 1      # the length, then the attributes, which mean nothing
    at = next_varint(at, &record.timestamp_delta)
    at = next_varint(at, &record.offset_delta)
    at = next_bytes(at, &record.key, &record.key_len)
    at = next_bytes(at, &record.value, &record.value_len)
    record.header = next_varint(at, &number)
    record.headers = <Py_ssize_t>number


cdef inline int64_t offset_delta_at(const unsigned char* at) noexcept nogil:
    cdef int64_t number
    at = next_varint(at, &number) + 1
    at = next_varint(at, &number)
    next_varint(at, &number)
    return number


# The timestamp of a record: the broker's for all, or base plus delta, wrapping at 64 bits as Java's does.
cdef inline int64_t timestamp_of(int attributes, int64_t base, int64_t latest, int64_t delta) noexcept nogil:
    if attributes & 8:
        return latest
    return <int64_t>(<uint64_t>base + <uint64_t>delta)


# Big-endian integers, as in the header of a batch.
cdef inline int16_t int16_at(const unsigned char* at) noexcept nogil:
    return <int16_t>((<uint16_t>at[0] << 8) | at[1])


cdef inline uint32_t uint32_at(const unsigned char* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int32_t int32_at(const unsigned char* at) noexcept nogil:
    return <int32_t>uint32_at(at)


cdef inline int64_t int64_at(const unsigned char* at) noexcept nogil:
    return <int64_t>((<uint64_t>uint32_at(at) << 32) | uint32_at(at + 4))
