# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Avro's binary encoding into the buffers of Arrow columns, with no Python object per value.

A schema is a flat program (`avro_program`): one node for each column, a subtree directly behind its parent. Every read
is compared with the end of its row and a count with the bytes left. Items that take no bytes take no memory either, and
`memory` bounds the rest. Knows nodes and bytes; knows no schemas, no registry, no pyarrow.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.mem import PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from cython.cimports.libc.stdint import int32_t, int64_t, uint64_t, uintptr_t
from cython.cimports.libc.string import memcmp, memcpy, memset
from cython.cimports.pyclient.codec.avro_kinds import (
    ARRAY, BYTES, DECIMAL, DECIMAL_FIXED, ENUM, INT, LONG, MAP, NULLS, RECORD, STRING, TIME_INT, TIME_LONG, UUID, is_uuid)
from cython.cimports.pyclient.codec.avro_nodes import (
    BAD_LENGTH, FULL, LEFT_OVER, LONG_NUMBER, MANY_DIGITS, MANY_EMPTY, MOST, NO_BRANCH, NO_TEXT, NO_TIME, NO_UUID, TOO_EARLY, Input, Node, end_row,
    fail, grow, grow_rows, is_valid, read_long)
from cython.cimports.pyclient.codec.utf8 import is_utf8

FAULTS = (
    "", "the data ends too early", "a number is longer than its type", "a length or count is negative or exceeds the data",
    "the schema has no such branch or symbol", "bytes follow the value's end", "a column exceeds 2 GiB of items or bytes",
    "the columns exceed the decoder's memory_limit_bytes", "the text is not UTF-8", "the text is no UUID", "the decimal has more digits than its precision",
    "the time is not within a day", "more than 65536 items that take no bytes")
MOST_EMPTY_ITEMS = cython.declare(int64_t, 65536)  # of a row, as the reader of single records has it
LARGEST_DECIMAL = 32


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add_null(nodes: cython.pointer(Node), index: cython.int, source: cython.pointer(Input)) -> cython.void:
    """A null row; a record has one in each child as well, which holds zeros."""
    node: cython.pointer(Node) = cython.address(nodes[index])
    child: cython.int = index + 1
    if not grow_rows(node, source, index):
        return
    if node.kind == RECORD:
        while child < node.next and source.fault == 0:
            add_null(nodes, child, source)
            child = nodes[child].next
        if source.fault:
            return
    elif node.size > 0:
        if not grow(node, node.size, source, index):
            return
        memset(node.data + node.used, 0, node.size)
        node.used += node.size
    end_row(node, 0, nodes[index + 1].rows if node.kind == ARRAY or node.kind == MAP else node.used)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_decimal(node: cython.pointer(Node), at: cython.p_const_uchar, size: int64_t) -> cython.bint:
    """Big-endian two's complement of *size* bytes at the end of the data, little-endian; false: too many digits."""
    target: cython.p_uchar = node.data + node.used
    filler: cython.uchar = 0xFF if size > 0 and at[0] & 0x80 else 0
    place: int64_t
    magnitude: cython.uchar[32]
    byte: cython.int
    carry: cython.int = 1 if filler else 0
    while size > node.size and at[0] == filler:
        at += 1
        size -= 1
    if size > node.size:
        return False
    memset(target, filler, node.size)
    for place in range(size):
        target[place] = at[size - 1 - place]
    if (target[node.size - 1] & 0x80 != 0) != (filler != 0):
        return False
    memset(cython.address(magnitude[0]), 0, 32)
    for place in range(node.size):
        byte = (target[place] ^ filler) + carry
        carry = byte >> 8
        magnitude[place] = byte & 0xFF
    place = node.size - 1
    while place >= 0 and magnitude[place] == node.limit[place]:
        place -= 1
    return place >= 0 and magnitude[place] < node.limit[place]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add_empty(nodes: cython.pointer(Node), index: cython.int, count: int64_t) -> cython.void:
    """*count* values that take no bytes: only nulls, records and fixed types of size 0, so nothing but their number."""
    child: cython.int = index + 1
    nodes[index].rows += count
    while child < nodes[index].next:
        add_empty(nodes, child, count)
        child = nodes[child].next


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_blocks(nodes: cython.pointer(Node), index: cython.int, source: cython.pointer(Input)) -> cython.void:
    """The items of an array or a map; node index + 1 is the item, or for a map the key, and then the value."""
    node: cython.pointer(Node) = cython.address(nodes[index])
    while source.fault == 0:
        count: int64_t = read_long(source, index)
        if count == 0 or source.fault:
            return
        if count < 0:
            read_long(source, index)
            # -2**63 has no opposite: it stays negative and is refused below
            count = cython.cast(int64_t, 0 - cython.cast(uint64_t, count))
        if node.has_empty_items and 0 <= count <= source.empties:
            if nodes[index + 1].rows + count > MOST:
                fail(source, FULL, index)
                return
            source.empties -= count
            add_empty(nodes, index + 1, count)
            continue
        if count < 0 or node.has_empty_items or count > source.end - source.at:
            fail(source, MANY_EMPTY if node.has_empty_items and count > 0 else BAD_LENGTH, index)
            return
        while count > 0 and source.fault == 0:
            read_value(nodes, index + 1, source)
            if node.kind == MAP and source.fault == 0:
                read_value(nodes, nodes[index + 1].next, source)
            count -= 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_number(node: cython.pointer(Node), source: cython.pointer(Input), index: cython.int) -> cython.void:
    kind: cython.int = node.kind
    number: int64_t = read_long(source, index)
    small: int32_t
    if source.fault or not grow(node, node.size, source, index):
        return
    if kind == TIME_INT or kind == TIME_LONG:
        if number < 0 or number >= node.most:
            fail(source, NO_TIME, index)
    elif kind == ENUM:
        if number < 0 or number >= node.most:
            fail(source, NO_BRANCH, index)
    elif kind == INT and (number < -MOST - 1 or number > MOST):
        fail(source, LONG_NUMBER, index)
    if node.size == 8:
        memcpy(node.data + node.used, cython.address(number), 8)
    else:
        small = cython.cast(int32_t, number)
        memcpy(node.data + node.used, cython.address(small), 4)
    node.used += node.size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_bytes(node: cython.pointer(Node), source: cython.pointer(Input), index: cython.int) -> cython.void:
    """Bytes, text, fixed types, and the plain numbers that are laid out as Arrow has them."""
    kind: cython.int = node.kind
    size: int64_t = node.size
    if kind == BYTES or kind == STRING or kind == UUID or kind == DECIMAL:
        size = read_long(source, index)
        if source.fault == 0 and (size < 0 or size > source.end - source.at):
            fail(source, BAD_LENGTH, index)
    elif kind == DECIMAL_FIXED:
        size = node.most
    if source.fault == 0 and size > source.end - source.at:
        fail(source, TOO_EARLY, index)
    elif kind == STRING and source.fault == 0 and not is_utf8(source.at, size):
        fail(source, NO_TEXT, index)
    elif kind == UUID and source.fault == 0 and not is_uuid(source.at, size):
        fail(source, NO_UUID, index)
    elif node.has_offsets and node.used + size > MOST:
        fail(source, FULL, index)
    if source.fault:
        return
    if kind == DECIMAL or kind == DECIMAL_FIXED:
        if grow(node, node.size, source, index):
            if not read_decimal(node, source.at, size):
                fail(source, MANY_DIGITS, index)
            node.used += node.size
    elif size > 0 and grow(node, size, source, index):
        memcpy(node.data + node.used, source.at, size)
        node.used += size
    source.at += size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_value(nodes: cython.pointer(Node), index: cython.int, source: cython.pointer(Input)) -> cython.void:
    node: cython.pointer(Node) = cython.address(nodes[index])
    kind: cython.int = node.kind
    child: cython.int
    if node.null_branch >= 0:
        number: int64_t = read_long(source, index)
        if source.fault == 0 and (number < 0 or number > 1):
            fail(source, NO_BRANCH, index)
        if source.fault:
            return
        if number == node.null_branch:
            add_null(nodes, index, source)
            return
    if not grow_rows(node, source, index):
        return
    if kind == LONG or kind == INT or kind == ENUM or kind == TIME_LONG or kind == TIME_INT:
        read_number(node, source, index)
    elif kind == RECORD:
        child = index + 1
        while child < node.next and source.fault == 0:
            read_value(nodes, child, source)
            child = nodes[child].next
    elif kind == ARRAY or kind == MAP:
        read_blocks(nodes, index, source)
    elif kind != NULLS:
        read_bytes(node, source, index)
    if source.fault == 0:
        end_row(node, 1, nodes[index + 1].rows if kind == ARRAY or kind == MAP else node.used)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def rewind(nodes: cython.pointer(Node), index: cython.int, rows: int64_t) -> cython.void:
    """Forget what a column has beyond *rows*: offsets say how far its data and children go."""
    node: cython.pointer(Node) = cython.address(nodes[index])
    kind: cython.int = node.kind
    child: cython.int = index + 1
    below: int64_t = rows
    if node.has_offsets:
        below = node.offsets[rows] if node.row_room else 0
    node.used = below if node.has_offsets and kind != ARRAY and kind != MAP else rows * node.size
    node.rows = rows
    while child < node.next:
        rewind(nodes, child, below)
        child = nodes[child].next


@cython.cclass
class AvroColumns:
    """The columns of one writer's schema while rows are added.

    *program* has a tuple (kind, size, most, null_branch, next, has_empty_items, limit) for each node; the first is the
    value. The columns take at most *memory* bytes.

    Attributes:
        fault: what was wrong with the last row that was refused; its node is *fault_node*.
    """

    _nodes: cython.pointer(Node)
    _count: cython.int
    _source: Input
    _done: cython.bint

    def __cinit__(self, program: list, memory: int64_t) -> None:
        self._count = len(program)
        self._source.memory = memory
        self._nodes = cython.cast(cython.pointer(Node), PyMem_RawCalloc(self._count + 1, cython.sizeof(Node)))
        if self._nodes == cython.NULL:
            raise MemoryError
        for i in range(self._count):
            node: cython.pointer(Node) = cython.address(self._nodes[i])
            node.kind, node.size, node.most, node.null_branch, node.next, node.has_empty_items, limit = program[i]
            node.has_offsets = node.kind in (BYTES, STRING, UUID, ARRAY, MAP)
            node.has_valid = i == 0 or node.null_branch >= 0
            if limit:
                self._limit(node, limit)

    @cython.cfunc
    @cython.exceptval(check=True)
    def _limit(self, node: cython.pointer(Node), limit: bytes) -> cython.void:
        if len(limit) != LARGEST_DECIMAL:
            raise ValueError(limit)
        node.limit = cython.cast(cython.p_uchar, PyMem_RawMalloc(LARGEST_DECIMAL))
        if node.limit == cython.NULL:
            raise MemoryError
        memcpy(node.limit, cython.cast(cython.p_const_uchar, limit), LARGEST_DECIMAL)

    def __dealloc__(self) -> None:
        if self._nodes != cython.NULL:
            for i in range(self._count):
                PyMem_RawFree(self._nodes[i].data)
                PyMem_RawFree(self._nodes[i].offsets)
                PyMem_RawFree(self._nodes[i].valid)
                PyMem_RawFree(self._nodes[i].limit)
            PyMem_RawFree(self._nodes)

    @property
    def rows(self) -> int:
        """The rows that were added, nulls included."""
        return self._nodes[0].rows

    @property
    def fault(self) -> str:
        return FAULTS[self._source.fault]

    @property
    def fault_node(self) -> int:
        return self._source.node

    def add(self, data: bytes) -> bool:
        """Add one row; false: it is damaged and not added."""
        raw: cython.p_const_uchar = data
        self._check()
        return self._add(raw, len(data))

    def add_rows(self, offsets: uintptr_t, data: uintptr_t, valid: uintptr_t, start: int64_t, stop: int64_t, skip: int64_t) -> int:
        """Add rows *start* to *stop* of a column of bytes at these addresses, each without its first *skip* bytes.

        Ends at a damaged row: its number is returned, else *stop*. A null is a null row.

        The caller vouches for the addresses, and that no row is shorter than *skip*.
        """
        ends: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), offsets)
        raw: cython.p_const_uchar = cython.cast(cython.p_const_uchar, data)
        bits: cython.p_const_uchar = cython.cast(cython.p_const_uchar, valid)
        self._check()
        with cython.nogil:
            while start < stop:
                if not is_valid(bits, start):
                    if not self._null():
                        break
                elif not self._add(raw + ends[start] + skip, ends[start + 1] - ends[start] - skip):
                    break
                start += 1
        return start

    def add_null(self) -> None:
        """Add a row that is null, whatever memory it takes."""
        self._check()
        left: int64_t = self._source.memory
        self._source.memory = cython.cast(int64_t, 1) << 60
        added: cython.bint = self._null()
        self._source.memory = left
        if not added:
            raise MemoryError

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _null(self) -> cython.bint:
        rows: int64_t = self._nodes[0].rows
        self._source.fault = 0
        add_null(self._nodes, 0, cython.address(self._source))
        if self._source.fault:
            rewind(self._nodes, 0, rows)
        return self._source.fault == 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add(self, data: cython.p_const_uchar, size: int64_t) -> cython.bint:
        source: cython.pointer(Input) = cython.address(self._source)
        rows: int64_t = self._nodes[0].rows
        source.at = data
        source.end = data + size
        source.fault = 0
        source.empties = MOST_EMPTY_ITEMS
        read_value(self._nodes, 0, source)
        if source.fault == 0 and source.at != source.end:
            fail(source, LEFT_OVER, 0)
        if source.fault:
            rewind(self._nodes, 0, rows)
        return source.fault == 0

    @cython.cfunc
    @cython.exceptval(check=True)
    def _check(self) -> cython.void:
        if self._done:
            raise ValueError("the columns were finished: their memory belongs to Arrow")

    def buffers(self, index: cython.int) -> tuple:
        """(rows, validity, offsets, data, data's size) of a node: addresses of memory that lives as long as this
        object; 0 for what it does not have. No rows can be added afterwards.
        """
        if index < 0 or index >= self._count:
            raise IndexError(index)
        self._done = True
        node: cython.pointer(Node) = cython.address(self._nodes[index])
        return (node.rows, cython.cast(uintptr_t, node.valid), cython.cast(uintptr_t, node.offsets),
                cython.cast(uintptr_t, node.data), node.used)


def prefix_runs(offsets: uintptr_t, data: uintptr_t, valid: uintptr_t, start: int64_t, stop: int64_t, size: int64_t) -> list:
    """The runs of rows whose first *size* bytes are equal, as (row behind the last one, these bytes).

    A null belongs to the run before it, or behind it at the start; the bytes are None if there are only nulls. A row
    that is shorter is in a run of such rows, with its own bytes.
    """
    ends: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), offsets)
    raw: cython.p_const_uchar = cython.cast(cython.p_const_uchar, data)
    bits: cython.p_const_uchar = cython.cast(cython.p_const_uchar, valid)
    found: list = []
    first: cython.p_const_uchar = cython.NULL
    length: int64_t = -1
    here: int64_t
    row: int64_t
    for row in range(start, stop):
        if not is_valid(bits, row):
            continue
        here = min(size, cython.cast(int64_t, ends[row + 1] - ends[row]))
        if length < 0 or here != length or memcmp(first, raw + ends[row], here) != 0:
            if length >= 0:
                found.append((row, PyBytes_FromStringAndSize(cython.cast(cython.p_char, first), length)))
            first = raw + ends[row]
            length = here
    found.append((stop, None if length < 0 else PyBytes_FromStringAndSize(cython.cast(cython.p_char, first), length)))
    return found
