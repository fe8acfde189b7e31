# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Arrow columns as memory that records are written from, with no Python object per value.

Knows the layout of Arrow's arrays. `arrow_input` has compared lengths with the sizes of buffers; what the buffers hold
is not trusted: Arrow does not check the offsets of data that comes from elsewhere.
Rule: an offset is read once and compared with the column's bounds before memory is read through it.
"""
import cython
from cython.cimports.libc.stdint import int32_t, int64_t, uintptr_t
from cython.cimports.pyclient.codec.encode import put_bytes, put_varint

Narrow = cython.typedef(cython.pointer(cython.volatile[cython.const[int32_t]]))
Wide = cython.typedef(cython.pointer(cython.volatile[cython.const[int64_t]]))
VARINT = cython.declare(cython.Py_ssize_t, 10)
FARTHEST = cython.declare(cython.Py_ssize_t, 1 << 48)  # the first row of an array


@cython.cclass
class Column:
    """One column of a record batch; addresses are those of pyarrow's buffers.

    Offsets are from *low* to *high*: for bytes these are 0 and the size of the data, for lists the numbers of the
    first item and of the one after the last. The fields are declared in arrow_columns.pxd.
    """

    def __init__(self, keeps: object, length: cython.Py_ssize_t, offset: cython.Py_ssize_t, valid: uintptr_t, offsets: uintptr_t,
                 data: uintptr_t, *, wide: cython.bint = False, low: int64_t = 0, high: int64_t = 0, items: Column = None,
                 key: Column = None, value: Column = None):
        self.keeps = keeps
        self.length = length
        self.offset = offset
        self.valid = cython.cast(cython.p_const_uchar, valid)
        self.offsets = cython.cast(cython.pointer(cython.const[cython.void]), offsets)
        self.data = cython.cast(cython.p_const_uchar, data)
        self.wide = wide
        self.low = low
        self.high = high
        self.items = items
        self.key = key
        self.value = value

    def __len__(self):
        return self.length


@cython.ccall
def bytes_column(array: object, shift: cython.Py_ssize_t, wide: cython.bint) -> Column:
    """Of an array of bytes or text behind offsets, *wide* ones or not, whose first row has the number *shift*."""
    valid, offsets, data = array.buffers()
    column: Column = Column.__new__(Column)
    column.keeps, column.length, column.offset = array, len(array), cython.cast(cython.Py_ssize_t, array.offset) - shift
    column.valid = cython.cast(cython.p_const_uchar, _address(valid) if array.null_count else 0)
    column.offsets = cython.cast(cython.pointer(cython.const[cython.void]), _address(offsets))
    column.data = cython.cast(cython.p_const_uchar, _address(data))
    column.wide = wide
    column.high = 0 if data is None else data.size
    return column


@cython.cfunc
@cython.exceptval(0, check=True)
def _address(buffer: object) -> uintptr_t:
    return 0 if buffer is None else buffer.address


@cython.final
@cython.cclass
class PlainColumns:
    """Which columns are the records' *value* and *key* in all data of an equal *schema*, and nothing else is sent.

    Each is its index, the number of its type, and whether its offsets are wide; None if it is absent. *kinds* are
    Arrow's classes of tables and of record batches. Never changes. The fields are declared in arrow_columns.pxd.
    """

    def __init__(self, schema: object, value: tuple | None, key: tuple | None, kinds: tuple):
        self._schema, self._value, self._key = schema, value, key
        self._table, self._batch = kinds

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def rows_of(self, data: object) -> cython.Py_ssize_t:
        """The number of rows of *data*; 0 if it is no table or record batch of an equal schema."""
        kind: object = type(data)
        if kind is not self._table and kind is not self._batch:
            return 0
        rows: cython.Py_ssize_t = data.num_rows if data.schema.equals(self._schema) else 0
        return max(rows, 0)  # damaged data may claim -1, which would stand for an exception, and there is none

    @cython.cfunc
    def value_of(self, data: object, rows: cython.Py_ssize_t) -> Column:
        """The *rows* values; None if there are none. Raises unless they are in one piece, and sound."""
        return self._column(data, self._value, rows)

    @cython.cfunc
    def key_of(self, data: object, rows: cython.Py_ssize_t) -> Column:
        """The keys, likewise."""
        return self._column(data, self._key, rows)

    @cython.cfunc
    def _column(self, data: object, place: tuple | None, rows: cython.Py_ssize_t) -> Column:
        if place is None:
            return None
        array: object = data.column(place[0])  # and no batches of a table: that costs twice as much
        if type(data) is self._table:
            array = array.chunk(0)
        if array.type.id != place[1] or len(array) != rows:
            raise damage("columns")
        return _sound(array, rows, place[2])


@cython.cfunc
def _sound(array: object, rows: cython.Py_ssize_t, wide: cython.bint) -> Column:
    """Its column, if its buffers hold as many *rows* as they should: compared as ``validate()`` does."""
    begin: int64_t = 0
    end: int64_t = 0
    valid, offsets, _ = array.buffers()
    start: cython.Py_ssize_t = array.offset
    if not 0 <= start < FARTHEST or offsets is None or offsets.size < (start + rows + 1) * (8 if wide else 4):
        raise damage("columns")
    if valid is not None and (valid.size * 8 < start + rows or array.null_count > rows):
        raise damage("nulls")
    column: Column = bytes_column(array, 0, wide)
    if not _span(column, 0, rows, cython.address(begin), cython.address(end)):
        raise damage("columns")
    return column


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_null(column: Column, row: cython.Py_ssize_t) -> cython.bint:
    row += column.offset
    return column.valid != cython.NULL and not (column.valid[row >> 3] >> (row & 7)) & 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def number_at(column: Column, row: cython.Py_ssize_t) -> int64_t:
    return cython.cast(Wide, column.data)[row + column.offset]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _span(
    column: Column, first: cython.Py_ssize_t, stop: cython.Py_ssize_t, begin: cython.pointer(int64_t), end: cython.pointer(int64_t)
) -> cython.bint:
    """Where rows *first* to *stop* begin and end; False when that is not within the column."""
    first += column.offset
    stop += column.offset
    if column.wide:
        begin[0] = cython.cast(Wide, column.offsets)[first]
        end[0] = cython.cast(Wide, column.offsets)[stop]
    else:
        begin[0] = cython.cast(Narrow, column.offsets)[first]
        end[0] = cython.cast(Narrow, column.offsets)[stop]
    return column.low <= begin[0] <= end[0] <= column.high


@cython.cfunc
@cython.exceptval(check=False)
def value_at(column: Column, row: cython.Py_ssize_t, size: cython.pointer(cython.Py_ssize_t)) -> cython.p_const_uchar:
    begin: int64_t = 0
    end: int64_t = 0
    size[0] = -1
    if column is None or is_null(column, row):
        return cython.NULL
    if not _span(column, row, row + 1, cython.address(begin), cython.address(end)):
        size[0] = DAMAGED
        return cython.NULL
    size[0] = end - begin
    if begin == end:
        return cython.cast(cython.p_const_uchar, column.offsets)  # where all are empty there may be no data at all; NULL would be null
    return column.data + begin


@cython.cfunc
def damage(what: str) -> object:
    return ValueError(f"the Arrow data is damaged: the offsets of its {what} descend or are not within their column")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _bytes_of(column: Column, first: int64_t, stop: int64_t) -> cython.Py_ssize_t:
    """The most bytes that items *first* to *stop* hold; all of the column when its offsets are damaged."""
    begin: int64_t = 0
    end: int64_t = 0
    if not _span(column, first, stop, cython.address(begin), cython.address(end)):
        return column.high
    return end - begin


@cython.cfunc
@cython.exceptval(check=False)
def section_bound(headers: Column, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """A count of at most 10 bytes for each row, and for each header two lengths and its bytes."""
    first: int64_t = 0
    last: int64_t = 0
    if not _span(headers, start, stop, cython.address(first), cython.address(last)):
        first, last = headers.low, headers.high
    if first == last:
        return 0
    return (VARINT * (stop - start) + 2 * VARINT * (last - first)
            + _bytes_of(headers.key, first, last) + _bytes_of(headers.value, first, last))


@cython.cfunc
@cython.exceptval(-1, check=False)
def header_section(headers: Column, row: cython.Py_ssize_t, at: cython.p_uchar, room: cython.Py_ssize_t) -> cython.Py_ssize_t:
    begin: cython.p_uchar = at
    item: cython.Py_ssize_t
    name: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = 0
    key: cython.p_const_uchar
    value: cython.p_const_uchar
    first: int64_t = 0
    last: int64_t = 0
    if is_null(headers, row):
        return 0
    if not _span(headers, row, row + 1, cython.address(first), cython.address(last)):
        raise damage("headers")
    if first == last:
        return 0
    if room < VARINT:
        raise _overlap()
    at = put_varint(at, last - first)
    for item in range(first, last):
        key = value_at(headers.key, item, cython.address(name))
        value = value_at(headers.value, item, cython.address(size))
        if name == -1 or is_null(headers.items, item):
            raise ValueError(f"the name of header {item - first} is null; every header has a name")
        if name == DAMAGED or size == DAMAGED:
            raise damage("headers' names" if name == DAMAGED else "headers' values")
        if room - (at - begin) < 2 * VARINT + name + max(0, size):
            raise _overlap()
        at = put_bytes(put_bytes(at, key, name), value, size)
    return at - begin


@cython.cfunc
def _overlap() -> object:
    return ValueError("the Arrow data is damaged: the lists of its headers overlap")
