# C interface of the checksum arithmetic.
from libc.stdint cimport uint32_t, uint64_t


cdef uint32_t crc_of_few(const unsigned char* at, Py_ssize_t size) noexcept nogil
cdef uint32_t combine_crcs(uint32_t first, uint32_t second, uint64_t length) noexcept nogil
