# Unsigned varints, seven bits a byte, and the zig-zag numbers that signed ones are written as. Inlined where they are used.
from libc.stdint cimport int64_t, uint64_t


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Py_ssize_t uvarint_size(uint64_t number) noexcept nogil:
    cdef Py_ssize_t size = 1
    while number >= 0x80:
        number >>= 7
        size += 1
    return size


# Writes at most ten bytes; returns their end.
cdef inline unsigned char* put_uvarint(unsigned char* at, uint64_t number) noexcept nogil:
    while number >= 0x80:
        at[0] = <unsigned char>(number | 0x80)
        number >>= 7
        at += 1
    at[0] = <unsigned char>number
    return at + 1
