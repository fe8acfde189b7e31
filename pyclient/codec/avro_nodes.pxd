# The columns that avro_columns fills: a node for each, its memory, and what is wrong with data.
from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef enum:  # the places of avro_scan.FAULTS
    TOO_EARLY = 1
    LONG_NUMBER = 2
    NO_INT = 3
    BAD_LENGTH = 4
    BAD_COUNT = 5
    NO_BRANCH = 6
    NO_SYMBOL = 7
    LEFT_OVER = 8
    NO_TEXT = 9
    NO_UUID = 10
    MANY_DIGITS = 11
    NO_TIME = 12
    MANY_EMPTY = 13
    TOO_DEEP = 14
    FULL = 15
    NO_MEMORY = 16
    MANY_LEVELS = 17


cdef enum:
    MOST = 2147483647  # rows or bytes of a column: its offsets are int32


cdef struct Node:
    int kind
    int64_t size
    int64_t most
    int null_branch
    int next
    int has_empty_items
    unsigned char *limit  # of a decimal: its largest magnitude, big-endian, its first bit 0
    int64_t limit_size
    int has_offsets
    int has_valid
    unsigned char *data
    int64_t used
    int64_t room
    int32_t *offsets
    unsigned char *valid
    int64_t rows
    int64_t row_room
    int64_t null_cost  # bytes that a null takes in this column and those below


cdef struct Input:
    const unsigned char *at
    const unsigned char *end
    int fault
    int node         # that the fault is of
    int64_t number   # that was wrong
    int64_t left     # bytes behind it
    int64_t most     # what the node has of symbols or branches
    int64_t empties  # items without bytes that the row may still have
    int64_t memory   # bytes that the columns may still take


cdef inline void fail(Input *source, int fault, int index, int64_t number=0, int64_t most=0) noexcept nogil:
    """Note the first fault, the node that it is of, and the number that was wrong."""
    if source.fault == 0:
        source.fault = fault
        source.node = index
        source.number = number
        source.left = source.end - source.at
        source.most = most


cdef inline int64_t read_long(Input *source, int index) noexcept nogil:
    cdef uint64_t raw = 0
    cdef uint64_t byte
    cdef int shift = 0
    while source.at < source.end:
        byte = source.at[0]
        source.at += 1
        if shift == 63 and byte > 1:
            fail(source, LONG_NUMBER, index)
            return 0
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
        shift += 7
    fail(source, TOO_EARLY, index)
    return 0


cdef inline int64_t wider(Input *source, int64_t old, int64_t needed) noexcept nogil:
    """How large a buffer of *old* bytes becomes that must hold *needed*; 0: more than may be taken."""
    cdef int64_t room = needed * 2 + 64
    if room - old > source.memory:
        room = needed + 64
    return 0 if room - old > source.memory else room


cdef inline bint grow(Node *node, int64_t more, Input *source, int index) noexcept nogil:
    """Room for *more* bytes of data; false: a fault."""
    cdef int64_t room
    cdef unsigned char *data = NULL
    if node.used + more <= node.room:
        return True
    room = wider(source, node.room, node.used + more)
    if room > 0:
        data = <unsigned char*>PyMem_RawRealloc(node.data, room)
    if data == NULL:
        fail(source, NO_MEMORY, index)
        return False
    source.memory -= room - node.room
    node.data = data
    node.room = room
    return True


cdef inline bint grow_rows(Node *node, Input *source, int index) noexcept nogil:
    """Room for one more row's offset and validity, if the node has them; false: a fault."""
    cdef int64_t room
    cdef int32_t *offsets
    cdef unsigned char *valid
    if node.rows + 1 < node.row_room:
        return True
    if node.rows >= MOST:
        fail(source, FULL, index)
        return False
    if not node.has_offsets and not node.has_valid:
        return True
    room = wider(source, node.row_room * 4, node.rows * 4 + 8) // 4
    if room < node.rows + 2:
        fail(source, NO_MEMORY, index)
        return False
    if node.has_offsets:
        offsets = <int32_t*>PyMem_RawRealloc(node.offsets, room * 4)
        if offsets == NULL:
            fail(source, NO_MEMORY, index)
            return False
        if node.row_room == 0:
            offsets[0] = 0
        node.offsets = offsets
    if node.has_valid:
        valid = <unsigned char*>PyMem_RawRealloc(node.valid, room // 8 + 1)
        if valid == NULL:
            fail(source, NO_MEMORY, index)
            return False
        node.valid = valid
    source.memory -= (room - node.row_room) * 4
    node.row_room = room
    return True


cdef inline void end_row(Node *node, int valid, int64_t end) noexcept nogil:
    cdef int64_t row = node.rows
    cdef int bit = 1 << (row & 7)
    if node.has_valid:
        node.valid[row >> 3] = (node.valid[row >> 3] | bit) if valid else (node.valid[row >> 3] & ~bit)
    if node.has_offsets:
        node.offsets[row + 1] = <int32_t>end
    node.rows = row + 1


cdef inline bint is_valid(const unsigned char *valid, int64_t row) noexcept nogil:
    return valid == NULL or valid[row >> 3] >> (row & 7) & 1
