# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Arrow columns into Avro's binary encoding, row by row, with no Python object per value: `avro_columns`'s way back.

A program is that of `avro_columns`, and each node has the addresses of its Arrow buffers, in the types that
`avro_program.arrow_type` names (enums as int32). Offsets are compared with the sizes that were given, each read once.
"""
import cython
from cython.cimports.cpython.mem import PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from cython.cimports.libc.stdint import int32_t, int64_t, uintptr_t
from cython.cimports.libc.string import memcpy
from cython.cimports.pyclient.codec.varints import put_uvarint, zigzag
from cython.cimports.pyclient.codec.avro_kinds import (
    ARRAY, BOOLEAN, BYTES, DECIMAL, DECIMAL_FIXED, ENUM, INT, LONG, MAP, NULLS, RECORD, STRING, TIME_INT, TIME_LONG, UUID, is_uuid)

FAULTS = ("", "is null, which the schema does not allow", "is damaged: an offset is beyond the data", "needs more memory than there is",
          "is no UUID", "is not within a day", "has more digits than the fixed type's bytes hold")
NOT_NULL = cython.declare(cython.int, 1)
DAMAGED = cython.declare(cython.int, 2)
NO_MEMORY = cython.declare(cython.int, 3)
NO_UUID = cython.declare(cython.int, 4)
NO_TIME = cython.declare(cython.int, 5)
MANY_DIGITS = cython.declare(cython.int, 6)

_Node = cython.struct(
    kind=cython.int, size=int64_t, most=int64_t, null_branch=cython.int, next=cython.int,
    valid=cython.p_const_uchar, offsets=cython.pointer(int32_t), data=cython.p_const_uchar, at=int64_t, high=int64_t)
_Output = cython.struct(data=cython.p_uchar, used=int64_t, room=int64_t, fault=cython.int, node=cython.int)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fail(target: cython.pointer(_Output), fault: cython.int, index: cython.int) -> cython.void:
    """Note the first fault and the node that it is of."""
    if target.fault == 0:
        target.fault = fault
        target.node = index


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def grow(target: cython.pointer(_Output), more: int64_t) -> cython.bint:
    """Room for *more* bytes; false: a fault."""
    if target.used + more <= target.room:
        return True
    room: int64_t = (target.used + more) * 2 + 256
    data: cython.p_uchar = cython.cast(cython.p_uchar, PyMem_RawRealloc(target.data, room))
    if data == cython.NULL:
        fail(target, NO_MEMORY, 0)
        return False
    target.data = data
    target.room = room
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_long(target: cython.pointer(_Output), number: int64_t) -> cython.void:
    if not grow(target, 10):
        return
    target.used = put_uvarint(target.data + target.used, zigzag(number)) - target.data


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_raw(target: cython.pointer(_Output), data: cython.p_const_uchar, size: int64_t) -> cython.void:
    if size > 0 and grow(target, size):
        memcpy(target.data + target.used, data, size)
        target.used += size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_decimal(node: cython.pointer(_Node), data: cython.p_const_uchar, target: cython.pointer(_Output), index: cython.int) -> cython.void:
    """Little-endian two's complement as big-endian: as few bytes as needed, or as many as the fixed type has."""
    size: int64_t = node.size
    filler: cython.uchar = 0xFF if data[size - 1] & 0x80 else 0
    wanted: int64_t
    while size > 1 and data[size - 1] == filler and (data[size - 2] & 0x80 != 0) == (filler != 0):
        size -= 1
    wanted = size if node.kind == DECIMAL else node.most
    if size > wanted:
        fail(target, MANY_DIGITS, index)
        return
    if node.kind == DECIMAL:
        write_long(target, size)
    if target.fault or not grow(target, wanted):
        return
    while wanted > size:
        target.data[target.used] = filler
        target.used += 1
        wanted -= 1
    while size > 0:
        size -= 1
        target.data[target.used] = data[size]
        target.used += 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_leaf(node: cython.pointer(_Node), row: int64_t, target: cython.pointer(_Output), index: cython.int) -> cython.void:
    """A value that holds no others; *row* counts from the buffers' beginning."""
    kind: cython.int = node.kind
    low: int64_t
    high: int64_t
    bit: cython.uchar
    number: int64_t
    small: int32_t = 0
    if kind == LONG or kind == TIME_LONG:
        memcpy(cython.address(number), node.data + row * 8, 8)
        if kind == TIME_LONG and (number < 0 or number >= node.most):
            fail(target, NO_TIME, index)
        write_long(target, number)
    elif kind == INT or kind == ENUM or kind == TIME_INT:
        memcpy(cython.address(small), node.data + row * 4, 4)
        if kind == TIME_INT and (small < 0 or small >= node.most):
            fail(target, NO_TIME, index)
        write_long(target, small)
    elif kind == BYTES or kind == STRING or kind == UUID:
        low = node.offsets[row]
        high = node.offsets[row + 1]
        if low < 0 or high < low or high > node.high:
            fail(target, DAMAGED, index)
        elif kind == UUID and not is_uuid(node.data + low, high - low):
            fail(target, NO_UUID, index)
        else:
            write_long(target, high - low)
            write_raw(target, node.data + low, high - low)
    elif kind == BOOLEAN:
        bit = node.data[row >> 3] >> (row & 7) & 1
        write_raw(target, cython.address(bit), 1)
    elif kind == DECIMAL or kind == DECIMAL_FIXED:
        write_decimal(node, node.data + row * node.size, target, index)
    elif kind != NULLS:
        write_raw(target, node.data + row * node.size, node.size)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_items(nodes: cython.pointer(_Node), index: cython.int, row: int64_t, target: cython.pointer(_Output)) -> cython.void:
    """The items of an array or a map, as one block."""
    node: cython.pointer(_Node) = cython.address(nodes[index])
    low: int64_t = node.offsets[row]
    high: int64_t = node.offsets[row + 1]
    if low < 0 or high < low or high > node.high:
        fail(target, DAMAGED, index)
        return
    if high > low:
        write_long(target, high - low)
    while low < high and target.fault == 0:
        write_value(nodes, index + 1, low, target)
        if node.kind == MAP:
            write_value(nodes, nodes[index + 1].next, low, target)
        low += 1
    write_long(target, 0)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_value(nodes: cython.pointer(_Node), index: cython.int, row: int64_t, target: cython.pointer(_Output)) -> cython.void:
    """The value of a row, which counts from the array's beginning."""
    node: cython.pointer(_Node) = cython.address(nodes[index])
    child: cython.int = index + 1
    at: int64_t = node.at + row
    if node.kind != NULLS and node.valid != cython.NULL and not node.valid[at >> 3] >> (at & 7) & 1:
        if node.null_branch < 0:
            fail(target, NOT_NULL, index)
        else:
            write_long(target, node.null_branch)
        return
    if node.null_branch >= 0:
        write_long(target, 1 - node.null_branch)
    if node.kind == RECORD:
        while child < node.next and target.fault == 0:
            write_value(nodes, child, row, target)
            child = nodes[child].next
    elif node.kind == ARRAY or node.kind == MAP:
        write_items(nodes, index, at, target)
    else:
        write_leaf(node, at, target, index)


@cython.cclass
class AvroRows:
    """The encoded rows of one array.

    *program* is that of the schema; *buffers* has for each node (validity, offsets, data, the array's offset, the rows
    of the child or bytes of the data that offsets may reach), as addresses, 0 for none. The caller keeps the memory
    alive and vouches for the buffers' sizes.

    Attributes:
        fault: what was wrong with the row that was refused; its node is *fault_node*.
    """

    _nodes: cython.pointer(_Node)
    _output: _Output
    _ends: cython.pointer(int64_t)
    _valid: cython.p_uchar
    _rows: int64_t
    _most: int64_t

    def __cinit__(self, program: list, buffers: list, rows: int64_t) -> None:
        if len(program) != len(buffers):
            raise ValueError(len(buffers))
        self._most = rows
        self._nodes = cython.cast(cython.pointer(_Node), PyMem_RawCalloc(len(program), cython.sizeof(_Node)))
        self._ends = cython.cast(cython.pointer(int64_t), PyMem_RawCalloc(rows + 1, 8))
        self._valid = cython.cast(cython.p_uchar, PyMem_RawCalloc(rows // 8 + 1, 1))
        if self._nodes == cython.NULL or self._ends == cython.NULL or self._valid == cython.NULL:
            raise MemoryError
        for i in range(len(program)):
            node: cython.pointer(_Node) = cython.address(self._nodes[i])
            node.kind, node.size, node.most, node.null_branch, node.next = program[i][:5]
            valid: uintptr_t = buffers[i][0]
            offsets: uintptr_t = buffers[i][1]
            data: uintptr_t = buffers[i][2]
            node.valid = cython.cast(cython.p_const_uchar, valid)
            node.offsets = cython.cast(cython.pointer(int32_t), offsets)
            node.data = cython.cast(cython.p_const_uchar, data)
            node.at, node.high = buffers[i][3:]

    def __dealloc__(self) -> None:
        PyMem_RawFree(self._nodes)
        PyMem_RawFree(self._ends)
        PyMem_RawFree(self._valid)
        PyMem_RawFree(self._output.data)

    @property
    def fault(self) -> str:
        return FAULTS[self._output.fault]

    @property
    def fault_node(self) -> int:
        return self._output.node

    def write(self, stop: int64_t, prefix: bytes) -> int:
        """Write the rows up to *stop*, each behind *prefix*. A null row is null.

        Ends at a row that does not fit: its number is returned, else *stop*.
        """
        size: int64_t = len(prefix)
        first: cython.p_const_uchar = prefix
        target: cython.pointer(_Output) = cython.address(self._output)
        if stop > self._most:
            raise IndexError(stop)
        with cython.nogil:
            while self._rows < stop:
                if not self._is_null():
                    write_raw(target, first, size)
                    write_value(self._nodes, 0, self._rows, target)
                    self._valid[self._rows >> 3] |= 1 << (self._rows & 7)
                if target.fault:
                    break
                self._rows += 1
                self._ends[self._rows] = target.used
        return self._rows

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_null(self) -> cython.bint:
        node: cython.pointer(_Node) = self._nodes
        at: int64_t = node.at + self._rows
        return node.kind == NULLS or (node.valid != cython.NULL and not node.valid[at >> 3] >> (at & 7) & 1)

    def skip(self, stop: int64_t) -> None:
        """Make the rows up to *stop* null."""
        if stop > self._most:
            raise IndexError(stop)
        while self._rows < stop:
            self._rows += 1
            self._ends[self._rows] = self._output.used

    def buffers(self) -> tuple:
        """(validity, offsets of 64 bits, data, data's size): addresses of memory that lives as long as this object."""
        return (cython.cast(uintptr_t, self._valid), cython.cast(uintptr_t, self._ends), cython.cast(uintptr_t, self._output.data),
                self._output.used)
