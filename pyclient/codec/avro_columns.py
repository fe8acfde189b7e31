# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Avro's binary encoding into the buffers of Arrow columns, with no Python object per value.

A schema is a flat program (`avro_program`): one node for each column, a subtree directly behind its parent. What data
must be is `avro_rules`, as for single records. Items that take no bytes take no memory either, and `memory` bounds the
rest: a row whose nulls may exceed it is scanned first. Knows nodes and bytes, no schemas, no registry, no pyarrow.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.mem import PyMem_RawCalloc, PyMem_RawFree
from cython.cimports.libc.stdint import int32_t, int64_t, uintptr_t
from cython.cimports.libc.string import memcmp, memcpy, memset
from cython.cimports.pyclient.codec.avro_kinds import (
    ARRAY, BYTES, DECIMAL, DECIMAL_FIXED, ENUM, INT, LONG, MAP, NULLS, RECORD, STRING, TIME_INT, TIME_LONG, UUID)
from cython.cimports.pyclient.codec.avro_nodes import (
    FULL, LEFT_OVER, MOST, NO_MEMORY, Input, Node, end_row, fail, grow, grow_rows, is_valid)
from cython.cimports.pyclient.codec.avro_rules import read_branch, read_count, read_number, read_size
from cython.cimports.pyclient.codec.avro_scan import MOST_EMPTY_ITEMS, Scan, scan_row, set_node

from pyclient.codec.avro_scan import FAULTS


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
def put_decimal(node: cython.pointer(Node), at: cython.p_const_uchar, size: int64_t) -> cython.void:
    """Big-endian two's complement of *size* bytes at the end of the data, little-endian; its precision was checked."""
    target: cython.p_uchar = node.data + node.used
    place: int64_t
    memset(target, 0xFF if size > 0 and at[0] & 0x80 else 0, node.size)
    for place in range(min(size, node.size)):
        target[place] = at[size - 1 - place]


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
    count: int64_t = read_count(node, source, index)
    while count > 0 and source.fault == 0:
        if node.has_empty_items:
            if nodes[index + 1].rows + count > MOST:
                fail(source, FULL, index)
                return
            add_empty(nodes, index + 1, count)
            count = 0
        while count > 0 and source.fault == 0:
            read_value(nodes, index + 1, source)
            if node.kind == MAP and source.fault == 0:
                read_value(nodes, nodes[index + 1].next, source)
            count -= 1
        if source.fault == 0:
            count = read_count(node, source, index)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def keep_number(node: cython.pointer(Node), source: cython.pointer(Input), index: cython.int) -> cython.void:
    number: int64_t = read_number(node, source, index)
    small: int32_t
    if source.fault or not grow(node, node.size, source, index):
        return
    if node.size == 8:
        memcpy(node.data + node.used, cython.address(number), 8)
    else:
        small = cython.cast(int32_t, number)
        memcpy(node.data + node.used, cython.address(small), 4)
    node.used += node.size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def keep_bytes(node: cython.pointer(Node), source: cython.pointer(Input), index: cython.int) -> cython.void:
    """Bytes, text, fixed types, and the plain numbers that are laid out as Arrow has them."""
    size: int64_t = read_size(node, source, index)
    if node.has_offsets and node.used + size > MOST:
        fail(source, FULL, index)
    if source.fault:
        return
    if node.kind == DECIMAL or node.kind == DECIMAL_FIXED:
        if grow(node, node.size, source, index):
            put_decimal(node, source.at, size)
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
        branch: int64_t = read_branch(2, source, index)
        if source.fault:
            return
        if branch == node.null_branch:
            add_null(nodes, index, source)
            return
    if not grow_rows(node, source, index):
        return
    if kind == LONG or kind == INT or kind == ENUM or kind == TIME_LONG or kind == TIME_INT:
        keep_number(node, source, index)
    elif kind == RECORD:
        child = index + 1
        while child < node.next and source.fault == 0:
            read_value(nodes, child, source)
            child = nodes[child].next
    elif kind == ARRAY or kind == MAP:
        read_blocks(nodes, index, source)
    elif kind != NULLS:
        keep_bytes(node, source, index)
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


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def null_cost(nodes: cython.pointer(Node), index: cython.int) -> int64_t:
    """Bytes that a null takes; a record has one in each child as well."""
    node: cython.pointer(Node) = cython.address(nodes[index])
    child: cython.int = index + 1
    cost: int64_t = 4 if node.has_offsets or node.has_valid else 0
    if node.kind != RECORD:
        return cost + node.size
    while child < node.next:
        cost += null_cost(nodes, child)
        child = nodes[child].next
    return cost


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
    _widest: int64_t
    """Bytes of the largest null."""
    _done: cython.bint

    def __cinit__(self, program: list, memory: int64_t) -> None:
        self._count = len(program)
        self._source.memory = memory
        self._nodes = cython.cast(cython.pointer(Node), PyMem_RawCalloc(self._count + 1, cython.sizeof(Node)))
        if self._nodes == cython.NULL:
            raise MemoryError
        for i in range(self._count):
            node: cython.pointer(Node) = cython.address(self._nodes[i])
            set_node(node, program[i])
            node.has_offsets = node.kind in (BYTES, STRING, UUID, ARRAY, MAP)
            node.has_valid = i == 0 or node.null_branch >= 0
        for i in range(self._count):
            if self._nodes[i].null_branch >= 0:
                self._nodes[i].null_cost = null_cost(self._nodes, i)
                self._widest = max(self._widest, self._nodes[i].null_cost)

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
        text: str = FAULTS[self._source.fault]
        return text.format(number=self._source.number, left=self._source.left, most=self._source.most)

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
        if size * self._widest > source.memory and self._exceeds(data, size):
            fail(source, NO_MEMORY, 0)
            return False
        read_value(self._nodes, 0, source)
        if source.fault == 0 and source.at != source.end:
            fail(source, LEFT_OVER, 0)
        if source.fault:
            rewind(self._nodes, 0, rows)
        return source.fault == 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _exceeds(self, data: cython.p_const_uchar, size: int64_t) -> cython.bint:
        """Whether the nulls of a row take more memory than there is: such a row is not even begun."""
        scan: Scan
        room: int64_t = self._source.memory
        i: cython.int
        scan.source.at = data
        scan.source.end = data + size
        scan.most_records = MOST
        for i in range(self._count):
            room += self._nodes[i].room - self._nodes[i].used
            if self._nodes[i].row_room:
                room += (self._nodes[i].row_room - self._nodes[i].rows) * 4
        return scan_row(self._nodes, cython.address(scan)) and scan.null_bytes > room

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
