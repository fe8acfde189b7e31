# What data of each Avro type must be: one rule for columns and single records. Each function reads one part of a value
# and notes a fault in the input. Inlined in avro_scan, which only checks, and avro_columns, which also keeps the value.
from libc.stdint cimport int64_t, uint64_t
from pyclient.codec.avro_kinds cimport (
    BYTES, DECIMAL, DECIMAL_FIXED, ENUM, INT, STRING, TIME_INT, TIME_LONG, UUID, is_uuid)
from pyclient.codec.avro_nodes cimport (
    BAD_COUNT, BAD_LENGTH, MANY_DIGITS, MANY_EMPTY, MOST, NO_BRANCH, NO_INT, NO_SYMBOL, NO_TEXT, NO_TIME, NO_UUID, TOO_EARLY, Input, Node, fail,
    read_long)
from pyclient.codec.utf8 cimport is_utf8


cdef inline int64_t read_branch(int64_t branches, Input *source, int index) noexcept nogil:
    """The branch of a union."""
    cdef int64_t number = read_long(source, index)
    if number < 0 or number >= branches:
        fail(source, NO_BRANCH, index, number, branches)
    return number


cdef inline int64_t read_number(const Node *node, Input *source, int index) noexcept nogil:
    """An int, a long, a symbol's place or a time."""
    cdef int kind = node.kind
    cdef int64_t number = read_long(source, index)
    if kind == INT:
        if number < -MOST - 1 or number > MOST:
            fail(source, NO_INT, index, number)
    elif kind == ENUM:
        if number < 0 or number >= node.most:
            fail(source, NO_SYMBOL, index, number, node.most)
    elif kind == TIME_INT or kind == TIME_LONG:
        if number < 0 or number >= node.most:
            fail(source, NO_TIME, index, number)
    return number


cdef inline bint is_within(const Node *node, const unsigned char *at, int64_t size) noexcept nogil:
    """Whether a decimal, big-endian two's complement of *size* bytes, has no more digits than its precision."""
    cdef unsigned char filler = 0xFF if size > 0 and at[0] & 0x80 else 0
    cdef int64_t skipped = node.limit_size - size
    cdef int64_t place
    cdef unsigned char byte
    while size > node.limit_size:
        if at[0] != filler:
            return False
        at += 1
        size -= 1
    for place in range(node.limit_size):
        # of a negative number its complement, which is its magnitude less one
        byte = 0 if place < skipped else at[place - skipped if skipped > 0 else place] ^ filler
        if byte != node.limit[place]:
            return byte < node.limit[place]
    return filler == 0


cdef inline int64_t read_size(const Node *node, Input *source, int index) noexcept nogil:
    """The size of bytes, text, a fixed type or a plain number, which begins where the input then is, and is sound."""
    cdef int kind = node.kind
    cdef int64_t size = node.size
    if kind == BYTES or kind == STRING or kind == UUID or kind == DECIMAL:
        size = read_long(source, index)
        if size < 0 or size > source.end - source.at:
            fail(source, BAD_LENGTH, index, size)
    elif kind == DECIMAL_FIXED:
        size = node.most
    if size > source.end - source.at:
        fail(source, TOO_EARLY, index)
    if source.fault:
        return 0
    if kind == STRING:
        if not is_utf8(source.at, size):
            fail(source, NO_TEXT, index)
    elif kind == UUID:
        if not is_uuid(source.at, size):
            fail(source, NO_UUID, index)
    elif (kind == DECIMAL or kind == DECIMAL_FIXED) and not is_within(node, source.at, size):
        fail(source, MANY_DIGITS, index)
    return size


cdef inline int64_t read_count(const Node *node, Input *source, int index) noexcept nogil:
    """How many items the next block of an array or a map has; 0: no block follows, or a fault was found.

    Items that take no bytes are bounded by their number, all others by the bytes that are left.
    """
    cdef int64_t count = read_long(source, index)
    if count < 0:  # the block's size in bytes follows
        read_long(source, index)
        count = <int64_t>(0 - <uint64_t>count)  # -2**63 has no opposite: it stays negative
    if source.fault:
        return 0
    if count < 0 or (not node.has_empty_items and count > source.end - source.at):
        fail(source, BAD_COUNT, index, count)
        return 0
    if node.has_empty_items:
        if count > source.empties:
            fail(source, MANY_EMPTY, index, count)
            return 0
        source.empties -= count
    return count
