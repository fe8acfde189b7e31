# What all compiled Avro code shares: the kinds of nodes, which are the places of avro_program.KINDS.
from libc.stdint cimport int64_t


cdef enum:
    NULLS = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    FIXED = 8
    ENUM = 9
    ARRAY = 10
    MAP = 11
    RECORD = 12
    TIME_INT = 13
    TIME_LONG = 14
    DECIMAL = 15
    DECIMAL_FIXED = 16
    UUID = 17
    UNION = 18      # of several types: avro_values and avro_scan alone
    REFERENCE = 19  # to a record elsewhere in the program: avro_scan alone


cdef inline bint is_uuid(const unsigned char *at, int64_t size) noexcept nogil:
    """Whether it is the text of a UUID: 36 characters, as RFC 4122 has it."""
    cdef int place, one
    if size != 36:
        return False
    for place in range(36):
        one = at[place]
        if place == 8 or place == 13 or place == 18 or place == 23:
            if one != 45:
                return False
        elif not (48 <= one <= 57 or 65 <= one <= 70 or 97 <= one <= 102):
            return False
    return True
