# Whether bytes are UTF-8, for scans that run without the GIL: exactly what Python's strict decoder accepts.
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy


cdef inline bint is_utf8(const unsigned char *at, int64_t size) noexcept nogil:
    """No overlong form, no surrogate, nothing above U+10FFFF. ASCII is passed eight bytes at a time."""
    cdef const unsigned char *end = at + size
    cdef uint64_t word
    cdef unsigned char lead, low, high
    cdef int more
    while at < end:
        while end - at >= 8:
            memcpy(&word, at, 8)
            if word & 0x8080808080808080ull:
                break
            at += 8
        if at == end:
            return True
        lead = at[0]
        at += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if end - at < more:
            return False
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        while more > 0:
            if at[0] < low or at[0] > high:
                return False
            low = 0x80
            high = 0xBF
            at += 1
            more -= 1
    return True
