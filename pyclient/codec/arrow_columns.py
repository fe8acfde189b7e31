# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Arrow columns as memory that records are written from, with no Python object per value.

Knows the layout of Arrow's arrays; `arrow_input` has brought them to the few types that are read here.
"""
import cython
from cython.cimports.libc.stdint import int64_t, uintptr_t
from cython.cimports.pyclient.codec.encode import put_bytes, put_varint


@cython.cclass
class Column:
    """One column of a record batch; addresses are those of pyarrow's buffers.

    The fields are declared in arrow_columns.pxd.
    """

    def __init__(self, keeps: object, length: cython.Py_ssize_t, offset: cython.Py_ssize_t, valid: uintptr_t, offsets: uintptr_t,
                 data: uintptr_t, items: Column = None, key: Column = None, value: Column = None):
        self.keeps = keeps
        self.length = length
        self.offset = offset
        self.valid = cython.cast(cython.p_const_uchar, valid)
        self.offsets = cython.cast(cython.pointer(cython.const[int64_t]), offsets)
        self.data = cython.cast(cython.p_const_uchar, data)
        self.items = items
        self.key = key
        self.value = value

    def __len__(self):
        return self.length


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_null(column: Column, row: cython.Py_ssize_t) -> cython.bint:
    row += column.offset
    return column.valid != cython.NULL and not (column.valid[row >> 3] >> (row & 7)) & 1


@cython.cfunc
@cython.exceptval(check=False)
def value_at(column: Column, row: cython.Py_ssize_t, size: cython.pointer(cython.Py_ssize_t)) -> cython.p_const_uchar:
    if column is None or is_null(column, row):
        size[0] = -1
        return cython.NULL
    row += column.offset
    size[0] = column.offsets[row + 1] - column.offsets[row]
    if size[0] == 0:
        return cython.cast(cython.p_const_uchar, column.offsets)  # where all are empty there may be no data at all; NULL would be null
    return column.data + column.offsets[row]


@cython.cfunc
@cython.exceptval(check=False)
def section_bound(headers: Column, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """A count of at most 10 bytes for each row, and for each header two lengths and its bytes."""
    first: int64_t = headers.offsets[start + headers.offset]
    last: int64_t = headers.offsets[stop + headers.offset]
    key: Column = headers.key
    value: Column = headers.value
    if first == last:
        return 0
    return (10 * (stop - start) + 20 * (last - first)
            + key.offsets[last + key.offset] - key.offsets[first + key.offset]
            + value.offsets[last + value.offset] - value.offsets[first + value.offset])


@cython.cfunc
@cython.exceptval(-1, check=False)
def header_section(headers: Column, row: cython.Py_ssize_t, at: cython.p_uchar) -> cython.Py_ssize_t:
    begin: cython.p_uchar = at
    item: cython.Py_ssize_t
    size: cython.Py_ssize_t = 0
    data: cython.p_const_uchar
    first: cython.Py_ssize_t = headers.offsets[row + headers.offset]
    last: cython.Py_ssize_t = headers.offsets[row + headers.offset + 1]
    if first == last or is_null(headers, row):
        return 0
    at = put_varint(at, last - first)
    for item in range(first, last):
        data = value_at(headers.key, item, cython.address(size))
        if size < 0 or is_null(headers.items, item):
            raise ValueError(f"the name of header {item - first} is null; every header has a name")
        at = put_bytes(at, data, size)
        data = value_at(headers.value, item, cython.address(size))
        at = put_bytes(at, data, size)
    return at - begin
