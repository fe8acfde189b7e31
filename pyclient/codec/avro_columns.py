# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Avro's binary encoding into the buffers of Arrow columns, with no Python object per value.

A schema is a flat program (see avro_program.py): one node for each column, a subtree directly behind its parent.
Every read is compared with the end of its row, and a count with the bytes left, so memory stays within a constant
(of the schema) times the input. Knows nodes and bytes; knows no schemas, no registry, no pyarrow.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.mem import PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from cython.cimports.libc.stdint import int32_t, int64_t, uint64_t
from cython.cimports.libc.string import memcpy, memset

NULL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, ARRAY, MAP, RECORD = range(13)
FAULTS = ("", "ends too early", "has a number that is too long", "has a length or count that cannot be",
          "has a branch or symbol that the schema lacks", "has bytes left over", "fills a column", "needs more memory than there is")
MOST = cython.declare(int64_t, 2147483647)

_Node = cython.struct(
    kind=cython.int, size=int64_t, symbols=int64_t, null_branch=cython.int, next=cython.int,
    data=cython.p_uchar, used=int64_t, room=int64_t,
    offsets=cython.pointer(int32_t), valid=cython.p_uchar, rows=int64_t, row_room=int64_t)
_Input = cython.struct(at=cython.p_const_uchar, end=cython.p_const_uchar, fault=cython.int)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_long(source: cython.pointer(_Input)) -> int64_t:
    raw: uint64_t = 0
    shift: cython.int = 0
    while source.at < source.end:
        byte: uint64_t = source.at[0]
        source.at += 1
        if shift == 63 and byte > 1:
            break
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return cython.cast(int64_t, (raw >> 1) ^ (0 - (raw & 1)))
        shift += 7
        if shift > 63:
            break
    if source.fault == 0:
        source.fault = 1 if source.at >= source.end and shift <= 63 else 2
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def grow(node: cython.pointer(_Node), more: int64_t) -> cython.int:
    """Room for *more* bytes of data; 0, or a fault."""
    if node.used + more <= node.room:
        return 0
    room: int64_t = (node.used + more) * 2 + 64
    data: cython.p_uchar = cython.cast(cython.p_uchar, PyMem_RawRealloc(node.data, room))
    if data == cython.NULL:
        return 7
    node.data = data
    node.room = room
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def grow_rows(node: cython.pointer(_Node)) -> cython.int:
    """Room for one more row's offset and validity."""
    if node.rows >= MOST:
        return 6
    if node.rows + 1 < node.row_room:
        return 0
    room: int64_t = node.row_room * 2 + 64
    offsets: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), PyMem_RawRealloc(node.offsets, room * 4))
    if offsets == cython.NULL:
        return 7
    if node.row_room == 0:
        offsets[0] = 0
    node.offsets = offsets
    valid: cython.p_uchar = cython.cast(cython.p_uchar, PyMem_RawRealloc(node.valid, room // 8 + 1))
    if valid == cython.NULL:
        return 7
    node.valid = valid
    node.row_room = room
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def end_row(node: cython.pointer(_Node), valid: cython.int, end: int64_t) -> cython.void:
    row: int64_t = node.rows
    bit: cython.int = 1 << (row & 7)
    node.valid[row >> 3] = (node.valid[row >> 3] | bit) if valid else (node.valid[row >> 3] & ~bit)
    node.offsets[row + 1] = cython.cast(int32_t, end)
    node.rows = row + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def append(node: cython.pointer(_Node), data: cython.p_const_uchar, size: int64_t) -> cython.int:
    if node.used + size > MOST:
        return 6
    fault: cython.int = grow(node, size)
    if fault == 0 and size > 0:
        if data == cython.NULL:
            memset(node.data + node.used, 0, size)
        else:
            memcpy(node.data + node.used, data, size)
        node.used += size
    return fault


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add_null(nodes: cython.pointer(_Node), index: cython.int) -> cython.int:
    """A null row of a column; records have one in each child as well."""
    node: cython.pointer(_Node) = cython.address(nodes[index])
    fault: cython.int = grow_rows(node)
    if fault == 0 and node.size > 0 and node.kind != 12:
        fault = append(node, cython.NULL, node.size)
    child: cython.int = index + 1
    while fault == 0 and node.kind == 12 and child < node.next:
        fault = add_null(nodes, child)
        child = nodes[child].next
    if fault == 0:
        end_row(node, 0, nodes[index + 1].rows if node.kind == 10 or node.kind == 11 else node.used)
    return fault


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_blocks(nodes: cython.pointer(_Node), index: cython.int, source: cython.pointer(_Input)) -> cython.void:
    """The items of an array or a map; node index + 1 is the item, or for a map the key, and then the value."""
    while source.fault == 0:
        count: int64_t = read_long(source)
        if count == 0 or source.fault:
            return
        if count < 0:
            read_long(source)
            # -2**63 has no opposite: it stays negative and is refused below
            count = cython.cast(int64_t, 0 - cython.cast(uint64_t, count))
        if count < 0 or count > source.end - source.at:
            if source.fault == 0:
                source.fault = 3
            return
        while count > 0 and source.fault == 0:
            read_value(nodes, index + 1, source)
            if nodes[index].kind == 11 and source.fault == 0:
                read_value(nodes, nodes[index + 1].next, source)
            count -= 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_value(nodes: cython.pointer(_Node), index: cython.int, source: cython.pointer(_Input)) -> cython.void:
    node: cython.pointer(_Node) = cython.address(nodes[index])
    number: int64_t
    small: int32_t
    child: cython.int
    if node.null_branch >= 0:
        number = read_long(source)
        if source.fault == 0 and (number < 0 or number > 1):
            source.fault = 4
        if source.fault:
            return
        if number == node.null_branch:
            source.fault = add_null(nodes, index)
            return
    source.fault = grow_rows(node)
    if source.fault:
        return
    end: int64_t = 0
    kind: cython.int = node.kind
    if kind == 0:
        source.fault = add_null(nodes, index)
        return
    if kind == 2 or kind == 3 or kind == 9:
        number = read_long(source)
        if source.fault:
            return
        if kind == 3:
            source.fault = append(node, cython.cast(cython.p_const_uchar, cython.address(number)), 8)
        elif number < -MOST - 1 or number > MOST:
            source.fault = 2
        elif kind == 9 and (number < 0 or number >= node.symbols):
            source.fault = 4
        else:
            small = cython.cast(int32_t, number)
            source.fault = append(node, cython.cast(cython.p_const_uchar, cython.address(small)), 4)
    elif kind == 10 or kind == 11:
        read_blocks(nodes, index, source)
        end = nodes[index + 1].rows
    elif kind == 12:
        child = index + 1
        while child < node.next and source.fault == 0:
            read_value(nodes, child, source)
            child = nodes[child].next
    else:
        number = node.size
        if kind == 6 or kind == 7:
            number = read_long(source)
        if source.fault == 0 and number < 0:
            source.fault = 3
        if source.fault == 0 and number > source.end - source.at:
            source.fault = 1
        if source.fault == 0 and kind == 1 and source.at[0] > 1:
            source.fault = 4
        if source.fault:
            return
        source.fault = append(node, source.at, number)
        source.at += number
        end = node.used
    if source.fault == 0:
        end_row(node, 1, end)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def rewind(nodes: cython.pointer(_Node), index: cython.int, rows: int64_t) -> cython.void:
    """Forget what a column has beyond *rows*: offsets say how far its data and children go."""
    node: cython.pointer(_Node) = cython.address(nodes[index])
    kind: cython.int = node.kind
    child: cython.int = index + 1
    below: int64_t = rows
    if kind == 10 or kind == 11:
        below = node.offsets[rows] if node.row_room else 0
    if kind == 6 or kind == 7:
        node.used = node.offsets[rows] if node.row_room else 0
    elif kind < 10:
        node.used = rows * node.size
    node.rows = rows
    while child < node.next:
        rewind(nodes, child, below)
        child = nodes[child].next


@cython.cclass
class AvroColumns:
    """The columns of one writer's schema while rows are added.

    *program* has a tuple (kind, size, symbols, null_branch, next) for each node; the first is the value.
    """

    _nodes: cython.pointer(_Node)
    _count: cython.int

    def __cinit__(self, program: list) -> None:
        self._count = len(program)
        self._nodes = cython.cast(cython.pointer(_Node), PyMem_RawCalloc(self._count + 1, cython.sizeof(_Node)))
        if self._nodes == cython.NULL:
            raise MemoryError
        for i in range(self._count):
            node: cython.pointer(_Node) = cython.address(self._nodes[i])
            node.kind, node.size, node.symbols, node.null_branch, node.next = program[i]

    def __dealloc__(self) -> None:
        if self._nodes != cython.NULL:
            for i in range(self._count):
                PyMem_RawFree(self._nodes[i].data)
                PyMem_RawFree(self._nodes[i].offsets)
                PyMem_RawFree(self._nodes[i].valid)
            PyMem_RawFree(self._nodes)

    def add(self, data: bytes, start: cython.Py_ssize_t = 0) -> str:
        """Add one row, from *start* on; returns "" or what is wrong with it, and then the row is not added."""
        if start < 0 or start > len(data):
            return FAULTS[1]
        raw: cython.p_const_uchar = data
        source: _Input
        source.at = raw + start
        source.end = raw + len(data)
        source.fault = 0
        rows: int64_t = self._nodes[0].rows
        read_value(self._nodes, 0, cython.address(source))
        if source.fault == 0 and source.at != source.end:
            source.fault = 5
        if source.fault:
            rewind(self._nodes, 0, rows)
        return FAULTS[source.fault]

    def add_null(self) -> None:
        """Add a row that is null."""
        if add_null(self._nodes, 0):
            raise MemoryError

    def buffers(self, index: cython.int) -> tuple:
        """(rows, validity, offsets, data) of a node, as copies."""
        if index < 0 or index >= self._count:
            raise IndexError(index)
        node: cython.pointer(_Node) = cython.address(self._nodes[index])
        if node.row_room == 0:
            return 0, b"", b"\0\0\0\0", b""
        return (node.rows, PyBytes_FromStringAndSize(cython.cast(cython.p_char, node.valid), (node.rows + 7) // 8),
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, node.offsets), (node.rows + 1) * 4),
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, node.data), node.used) if node.used else b"")
