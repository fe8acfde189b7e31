# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""The headers of checked records.

Names that are not UTF-8: brokers store them, and Java's consumer shows U+FFFD for what it cannot decode. Such records
are written again with the names that are shown, so that records and Arrow columns show the same and neither checks a
name. Independent of batches.
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.ref import Py_INCREF
from cython.cimports.cpython.tuple import PyTuple_New, PyTuple_SET_ITEM
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import uint8_t, uint32_t
from cython.cimports.libc.string import memcmp, memcpy
from cython.cimports.pyclient.codec.encode import put_bytes, put_varint, varint_size
from cython.cimports.pyclient.codec.parse import PyObject_GC_UnTrack, RecordView, next_bytes, view_record

from pyclient.codec.memory import unwritten


# --- as Python objects ---


@cython.cfunc
@cython.inline
def _name(data: cython.p_const_uchar, size: cython.Py_ssize_t, before: tuple | None, position: cython.Py_ssize_t) -> str:
    """A header's name: the same object as in the record before, if it is the same there, as it mostly is."""
    known: str
    known_size: cython.Py_ssize_t = 0
    known_data: cython.p_const_char
    if before is not None and position < len(before):
        known = before[position][0]
        known_data = PyUnicode_AsUTF8AndSize(known, cython.address(known_size))
        if known_size == size and memcmp(known_data, data, size) == 0:
            return known
    return PyUnicode_DecodeUTF8(cython.cast(cython.p_const_char, data), size, cython.NULL)


@cython.cfunc
def read_headers(at: cython.p_const_uchar, count: cython.Py_ssize_t, before: tuple | None) -> tuple:
    """The headers of a checked record; *before* are those of the record before it, None if it has none.

    Tuples of text and bytes can be in no cycle, so the collector need not know them (it would find that out later).
    """
    data: cython.p_const_uchar = cython.NULL
    size: cython.Py_ssize_t = 0
    position: cython.Py_ssize_t
    name: str
    value: object
    pair: tuple
    pairs: tuple = PyTuple_New(count)
    for position in range(count):
        at = next_bytes(at, cython.address(data), cython.address(size))
        name = _name(data, size, before, position)
        at = next_bytes(at, cython.address(data), cython.address(size))
        value = None if size < 0 else PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, data), size)
        pair = (name, value)
        PyObject_GC_UnTrack(cython.cast(cython.p_void, pair))
        Py_INCREF(pair)  # SET_ITEM steals one
        PyTuple_SET_ITEM(pairs, position, pair)
    PyObject_GC_UnTrack(cython.cast(cython.p_void, pairs))
    return pairs


# --- names that are not UTF-8 ---


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _character(at: cython.p_const_uchar, end: cython.p_const_uchar, sound: cython.pointer(cython.bint)) -> cython.Py_ssize_t:
    """Bytes of the next character. If it is none, *sound* is unset, and Java shows one U+FFFD for as many bytes.

    As Python's "replace", but an encoded surrogate is one, not three.
    """
    lead: uint8_t = at[0]
    low: uint8_t = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    high: uint8_t = 0x8F if lead == 0xF4 else 0xBF
    more: cython.Py_ssize_t = 0 if lead < 0x80 else 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
    size: cython.Py_ssize_t = 1
    sound[0] = lead < 0x80 or 0xC2 <= lead <= 0xF4
    if not sound[0]:
        return 1
    while size <= more:
        if at + size >= end or at[size] < low or at[size] > high:
            sound[0] = False
            return size
        low = 0x80
        high = 0xBF
        size += 1
    if lead == 0xED and at[1] >= 0xA0:
        sound[0] = False
    return size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _readable(at: cython.p_const_uchar, size: cython.Py_ssize_t, out: cython.p_uchar) -> cython.Py_ssize_t:
    """Write the name as it is shown, unless *out* is NULL; return its size."""
    end: cython.p_const_uchar = at + size
    length: cython.Py_ssize_t
    shown: cython.Py_ssize_t = 0
    sound: cython.bint = True
    while at < end:
        length = _character(at, end, cython.address(sound))
        if out != cython.NULL:
            memcpy(out + shown, at if sound else cython.cast(cython.p_const_uchar, b"\xef\xbf\xbd"), length if sound else 3)
        shown += length if sound else 3
        at += length
    return shown


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _section(view: cython.pointer(RecordView), out: cython.p_uchar) -> cython.Py_ssize_t:
    """Write the headers of a record, unless *out* is NULL; return their size."""
    at: cython.p_const_uchar = view.header
    data: cython.p_const_uchar = cython.NULL
    size: cython.Py_ssize_t = 0
    shown: cython.Py_ssize_t
    left: cython.Py_ssize_t = view.headers
    used: cython.Py_ssize_t = varint_size(left)
    if out != cython.NULL:
        put_varint(out, left)
    while left > 0:
        at = next_bytes(at, cython.address(data), cython.address(size))
        shown = _readable(data, size, cython.NULL)
        if out != cython.NULL:
            _readable(data, size, put_varint(out + used, shown))
        used += varint_size(shown) + shown
        at = next_bytes(at, cython.address(data), cython.address(size))
        if out != cython.NULL:
            put_bytes(out + used, data, size)
        used += varint_size(size) + max(0, size)
        left -= 1
    return used


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _record(at: cython.p_const_uchar, out: cython.p_uchar) -> cython.Py_ssize_t:
    """Write the record at *at* with readable names, unless *out* is NULL; return its size."""
    view: RecordView
    view_record(at, cython.address(view))
    body: cython.Py_ssize_t = 1 + varint_size(view.timestamp_delta) + varint_size(view.offset_delta)
    body += varint_size(view.key_len) + max(0, view.key_len) + varint_size(view.value_len) + max(0, view.value_len)
    body += _section(cython.address(view), cython.NULL)
    if out != cython.NULL:
        out = put_varint(out, body)
        out[0] = 0  # attributes
        out = put_varint(put_varint(out + 1, view.timestamp_delta), view.offset_delta)
        out = put_bytes(put_bytes(out, view.key, view.key_len), view.value, view.value_len)
        _section(cython.address(view), out)
    return varint_size(body) + body


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _records(records: cython.p_const_uchar, index: cython.pointer(uint32_t), count: cython.Py_ssize_t, out: cython.p_uchar) -> cython.Py_ssize_t:
    """Write the records, unless *out* is NULL; return their size."""
    position: cython.Py_ssize_t
    used: cython.Py_ssize_t = 0
    for position in range(count):
        used += _record(records + index[position], out + used if out != cython.NULL else cython.NULL)
    return used


@cython.cfunc
def with_readable_names(records: cython.p_const_uchar, index: cython.pointer(uint32_t), count: cython.Py_ssize_t) -> object:
    size: cython.Py_ssize_t
    with cython.nogil:
        size = _records(records, index, count, cython.NULL)
    out: bytearray = unwritten(size)
    begin: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(out))
    with cython.nogil:
        _records(records, index, count, begin)
    return memoryview(out)
