# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Whether bytes are a value of an Avro schema: compared byte by byte, with nothing made of them but an error's text.

A program is that of `avro_columns`, and has unions and references as well, so that every schema has one
(`avro_scan_program`). Hostile data is bounded: records inside each other, items that take no bytes, and lengths.
"""
import cython
from cython.cimports.cpython.mem import PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from cython.cimports.libc.stdint import int64_t
from cython.cimports.libc.string import memcpy
from cython.cimports.pyclient.codec.avro_kinds import ARRAY, ENUM, INT, LONG, MAP, NULLS, RECORD, REFERENCE, TIME_INT, TIME_LONG, UNION
from cython.cimports.pyclient.codec.avro_nodes import LEFT_OVER, MANY_LEVELS, TOO_DEEP, Node, fail
from cython.cimports.pyclient.codec.avro_rules import read_branch, read_count, read_number, read_size

FAULTS = (
    "", "the data ends too early", "a number is longer than 64 bits", "{number} does not fit an int of 32 bits",
    "a length of {number} B, with {left} B left", "a count of {number} items, with {left} B left", "branch {number} of a union that has {most}",
    "symbol {number} of an enum that has {most}", "{left} B follow the value's end", "the text is not UTF-8", "the text is no UUID",
    "the decimal has more digits than its precision", "the time {number} is not within a day", "more than 65536 items that take no bytes",
    "more than {most} records inside each other", "a column exceeds 2 GiB of items or bytes", "the columns exceed the decoder's memory_limit_bytes",
    "more than {most} records, arrays and maps inside each other")
MOST_EMPTY_ITEMS = 65536  # of a row
LONGEST_PATH = 12
"""Fields of a path that an error shows; the middle of a longer one is left out."""


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def note(scan: cython.pointer(Scan), step: int64_t) -> cython.void:
    """A step of the path to the fault."""
    if scan.steps < DEEPEST:
        scan.path[scan.steps] = step
        scan.steps += 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def scan_fields(nodes: cython.pointer(cython.const[Node]), index: cython.int, scan: cython.pointer(Scan)) -> cython.void:
    child: cython.int = index + 1
    if scan.records >= scan.most_records:
        fail(cython.address(scan.source), TOO_DEEP, index, 0, scan.most_records)
        return
    scan.records += 1
    while child < nodes[index].next:
        scan_value(nodes, child, scan)
        if scan.source.fault:
            note(scan, child)
            return
        child = nodes[child].next
    scan.records -= 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def scan_blocks(nodes: cython.pointer(cython.const[Node]), index: cython.int, scan: cython.pointer(Scan)) -> cython.void:
    """The items of an array or a map; node index + 1 is the item, or for a map the key, and then the value."""
    node: cython.pointer(cython.const[Node]) = cython.address(nodes[index])
    item: int64_t = 0
    count: int64_t = read_count(node, cython.address(scan.source), index)
    while count > 0:
        if node.has_empty_items:
            item += count
            count = 0
        while count > 0:
            scan_value(nodes, index + 1, scan)
            if node.kind == MAP and scan.source.fault == 0:
                scan_value(nodes, nodes[index + 1].next, scan)
            if scan.source.fault:
                note(scan, -1 - item)
                return
            item += 1
            count -= 1
        count = read_count(node, cython.address(scan.source), index)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def scan_container(nodes: cython.pointer(cython.const[Node]), index: cython.int, scan: cython.pointer(Scan)) -> cython.void:
    if scan.level >= DEEPEST:
        fail(cython.address(scan.source), MANY_LEVELS, index, 0, DEEPEST)
        return
    scan.level += 1
    if nodes[index].kind == RECORD:
        scan_fields(nodes, index, scan)
    else:
        scan_blocks(nodes, index, scan)
    scan.level -= 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def scan_branch(nodes: cython.pointer(cython.const[Node]), index: cython.int, scan: cython.pointer(Scan)) -> cython.void:
    """A union of several types."""
    child: cython.int = index + 1
    branch: int64_t = read_branch(nodes[index].most, cython.address(scan.source), index)
    if scan.source.fault:
        return
    while branch > 0:
        child = nodes[child].next
        branch -= 1
    scan_value(nodes, child, scan)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def scan_value(nodes: cython.pointer(cython.const[Node]), index: cython.int, scan: cython.pointer(Scan)) -> cython.void:
    node: cython.pointer(cython.const[Node]) = cython.address(nodes[index])
    kind: cython.int = node.kind
    size: int64_t
    if node.null_branch >= 0:
        branch: int64_t = read_branch(2, cython.address(scan.source), index)
        if scan.source.fault:
            return
        if branch == node.null_branch:
            scan.null_bytes += node.null_cost
            return
    if kind == REFERENCE:
        index = cython.cast(cython.int, node.most)
        node = cython.address(nodes[index])
        kind = node.kind
    if kind == LONG or kind == INT or kind == ENUM or kind == TIME_LONG or kind == TIME_INT:
        read_number(node, cython.address(scan.source), index)
    elif kind == RECORD or kind == ARRAY or kind == MAP:
        scan_container(nodes, index, scan)
    elif kind == UNION:
        scan_branch(nodes, index, scan)
    elif kind != NULLS:
        size = read_size(node, cython.address(scan.source), index)  # moves the input itself
        scan.source.at += size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def scan_row(nodes: cython.pointer(cython.const[Node]), scan: cython.pointer(Scan)) -> cython.bint:
    scan.source.fault = 0
    scan.source.empties = MOST_EMPTY_ITEMS
    scan.level = 0
    scan.records = 0
    scan.null_bytes = 0
    scan.steps = 0
    scan_value(nodes, 0, scan)
    if scan.source.fault == 0 and scan.source.at != scan.source.end:
        fail(cython.address(scan.source), LEFT_OVER, 0)
    return scan.source.fault == 0


@cython.cclass
class AvroScan:
    """The scan for one schema.

    *program* has a tuple (kind, size, most, null_branch, next, has_empty_items, limit) for each node; the first is the
    value. *names* are those of fields, "" of other nodes. At most *most_records* records may be inside each other.
    """

    _nodes: cython.pointer(Node)
    _count: cython.int
    _program: list
    _names: list
    _most_records: cython.int

    def __cinit__(self, program: list, names: list, most_records: cython.int) -> None:
        if len(program) != len(names):
            raise ValueError(names)
        self._count = len(program)
        self._program, self._names = program, names
        self._most_records = most_records
        self._nodes = cython.cast(cython.pointer(Node), PyMem_RawCalloc(self._count, cython.sizeof(Node)))
        if self._nodes == cython.NULL:
            raise MemoryError
        for i in range(self._count):
            set_node(cython.address(self._nodes[i]), program[i])

    def __reduce__(self) -> tuple:
        return AvroScan, (self._program, self._names, self._most_records)

    def __dealloc__(self) -> None:
        if self._nodes != cython.NULL:
            for i in range(self._count):
                PyMem_RawFree(self._nodes[i].limit)
            PyMem_RawFree(self._nodes)

    def wrong(self, data: bytes) -> str:
        """What is wrong with *data*, with the path of the field; "" if it is exactly one value of the schema."""
        scan: Scan
        scan.source.at = data
        scan.source.end = scan.source.at + len(data)
        scan.most_records = self._most_records
        return "" if scan_row(self._nodes, cython.address(scan)) else self._text(cython.address(scan))

    @cython.cfunc
    def _text(self, scan: cython.pointer(Scan)) -> object:
        steps: list = [scan.path[at] for at in range(scan.steps - 1, -1, -1)]
        path: list = [self._names[step] if step >= 0 else f"[{-1 - step}]" for step in steps]
        if len(path) > LONGEST_PATH:
            path = [*path[:LONGEST_PATH // 2], "…", *path[len(path) - LONGEST_PATH // 2:]]
        what: str = FAULTS[scan.source.fault].format(number=scan.source.number, left=scan.source.left, most=scan.source.most)
        return f"{'.'.join(path)}: {what}" if path else what


@cython.cfunc
@cython.exceptval(-1)
def set_node(node: cython.pointer(Node), instruction: tuple) -> cython.int:
    limit: bytes
    node.kind, node.size, node.most, node.null_branch, node.next, node.has_empty_items, limit = instruction
    if limit:
        node.limit = cython.cast(cython.p_uchar, PyMem_RawMalloc(len(limit)))
        if node.limit == cython.NULL:
            raise MemoryError
        node.limit_size = len(limit)
        memcpy(node.limit, cython.cast(cython.p_const_uchar, limit), node.limit_size)
    return 0


def float_of(number: int64_t) -> float:
    """The float of 32 bits that is nearest to an int or a long, as Java and Arrow make it."""
    return cython.cast(cython.double, cython.cast(cython.float, number))
