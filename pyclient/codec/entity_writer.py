# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The control plane's messages, written: plain mappings of a message's fields to bytes, as `schemas` says."""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.mem import PyMem_Free, PyMem_Realloc
from cython.cimports.libc.stdint import int64_t, uint64_t
from cython.cimports.libc.string import memcpy
from cython.cimports.pyclient.codec.varints import put_uvarint
from cython.cimports.pyclient.codec.schemas import (
    BOOL, BYTES, DURATION_32, DURATION_64, ENTITY, ERROR_CODE, FLOAT64, INT8, INT16, INT32, INT64, RECORDS, STRING, TIME, UINT16, UUID_, Field, Schema)

import datetime
import struct
from collections.abc import Mapping

from pyclient.codec.entities import EPOCH
from pyclient.codec.schemas import MILLISECOND

_MISSING = object()
_double = struct.Struct(">d")
_LOWEST = cython.declare(int64_t[ENTITY])
_HIGHEST = cython.declare(int64_t[ENTITY])
_WIDTH = cython.declare(cython.int[ENTITY])  # bytes of a kind that is a number; 0: it is none


@cython.cfunc
def _numbers() -> cython.void:
    kind: cython.int
    for kind in range(ENTITY):
        _WIDTH[kind] = 0
    for kind, width in ((BOOL, 1), (INT8, 1), (INT16, 2), (ERROR_CODE, 2), (INT32, 4), (DURATION_32, 4), (INT64, 8), (DURATION_64, 8), (TIME, 8)):
        _WIDTH[kind] = width
        _HIGHEST[kind] = (2 ** (8 * width - 1) - 1)
        _LOWEST[kind] = -2 ** (8 * width - 1)
    _WIDTH[UINT16], _LOWEST[UINT16], _HIGHEST[UINT16] = 2, 0, 2**16 - 1


_numbers()


def _mapping_of(name, values):
    if isinstance(values, Mapping):
        return dict(values)
    raise TypeError(f"{name} cannot be made of {values!r}: give a mapping of its fields")


@cython.cfunc
def _milliseconds(value: object) -> object:
    """A duration or a time as it is written; anything else as it is."""
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    return value


@cython.final
@cython.cclass
class Writer:
    """Bytes of messages, appended to each other. What a schema does not allow raises ValueError naming the field.

    The fields are declared in entity_writer.pxd.
    """

    def __dealloc__(self):
        PyMem_Free(self.data)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def more(self, count: cython.Py_ssize_t) -> cython.int:
        """Make room for *count* bytes, for which there is none."""
        room: cython.Py_ssize_t = max(self.room * 2, self.size + count, 256)
        grown: cython.p_uchar = cython.cast(cython.p_uchar, PyMem_Realloc(self.data, room))
        if grown == cython.NULL:
            raise MemoryError(f"no memory for a message of {room} B")
        self.data = grown
        self.room = room
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def integer(self, number: uint64_t, width: cython.int) -> cython.int:
        if self.size + width > self.room:
            self.more(width)
        at: cython.p_uchar = self.data + self.size
        self.size += width
        while width > 0:
            width -= 1
            at[0] = cython.cast(cython.uchar, number >> (8 * width))
            at += 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def uvarint(self, number: uint64_t) -> cython.int:
        if self.size + 10 > self.room:
            self.more(10)
        self.size = put_uvarint(self.data + self.size, number) - self.data
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def length(self, count: cython.Py_ssize_t, flexible: cython.bint, width: cython.int) -> cython.int:
        """A length prefix; -1 is null."""
        if flexible:
            return self.uvarint(count + 1)
        if width == 2 and count > 0x7FFF:
            raise ValueError(f"a text of {count} B does not fit: 32767 B are allowed in this version")
        return self.integer(count, width)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def raw(self, data: bytes) -> cython.int:
        count: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
        if self.size + count > self.room:
            self.more(count)
        memcpy(self.data + self.size, PyBytes_AS_STRING(data), count)
        self.size += count
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def text(self, text: str | None, flexible: cython.bint) -> cython.int:
        if text is None:
            return self.length(-1, flexible, 2)
        data: bytes = text.encode()
        self.length(len(data), flexible, 2)
        return self.raw(data)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def end(self, flexible: cython.bint) -> cython.int:
        """Close a structure: flexible versions have an (empty) tag section here."""
        return self.integer(0, 1) if flexible else 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def header(self, api: cython.int, version: cython.int, correlation_id: cython.uint, client_id: str | None, flexible: cython.bint) -> cython.int:
        """Header v2 of flexible versions, v1 of the others; the client id's length is classic in both (KIP-511)."""
        self.integer(api, 2)
        self.integer(version, 2)
        self.integer(correlation_id, 4)
        self.text(client_id, False)
        return self.end(flexible)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def sized(self, field: Field, value: object, flexible: cython.bint) -> cython.int:
        data: bytes
        if field.kind == STRING:
            data = value.encode()
            self.length(len(data), flexible, 2)
        else:
            data = value if type(value) is bytes else bytes(value)
            self.length(len(data), flexible, 4)
        return self.raw(data)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def number(self, field: Field, value: object) -> cython.int:
        number: int64_t
        if not isinstance(value, int):
            value = _milliseconds(value)
        try:
            number = value
        except OverflowError:
            raise ValueError(f"{field.name} is {value}, more than 64 bits") from None
        if not _LOWEST[field.kind] <= number <= _HIGHEST[field.kind]:
            raise ValueError(f"{field.name} is {value}; {_LOWEST[field.kind]} to {_HIGHEST[field.kind]} are allowed")
        return self.integer(number, _WIDTH[field.kind])

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def nothing(self, field: Field, flexible: cython.bint) -> cython.int:
        """A null of the field's kind."""
        if field.kind == UUID_:
            return self.raw(bytes(16))
        if not field.nullable and field.kind != RECORDS:
            raise ValueError(f"{field.name} is None, which it may not be")
        if field.kind == TIME:
            return self.integer(cython.cast(uint64_t, -1), 8)
        if field.kind == ENTITY:
            return self.integer(0xFF, 1)
        return self.length(-1, flexible, 2 if field.kind == STRING else 4)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def value(self, field: Field, value: object, flexible: cython.bint, nullable: cython.bint) -> cython.int:
        if value is None:
            return self.nothing(field, flexible)
        if field.kind == ENTITY:
            if nullable:
                self.integer(1, 1)
            return self.mapping(cython.cast(Schema, field.nested), value)
        if field.kind == STRING or field.kind == BYTES or field.kind == RECORDS:
            return self.sized(field, value, flexible)
        if field.kind == UUID_:
            return self.raw(value.bytes)
        if field.kind == FLOAT64:
            return self.raw(_double.pack(value))
        return self.number(field, value)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def array(self, field: Field, values: object, flexible: cython.bint) -> cython.int:
        if values is None:
            if not field.nullable:
                raise ValueError(f"{field.name} is None, which it may not be")
            return self.length(-1, flexible, 4)
        try:
            items: list = list(values)
        except TypeError:
            raise TypeError(f"{field.name} is {values!r}: give a sequence") from None
        self.length(len(items), flexible, 4)
        for item in items:
            self.value(field, item, flexible, False)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def field(self, field: Field, value: object, flexible: cython.bint) -> cython.int:
        if field.array:
            return self.array(field, value, flexible)
        return self.value(field, value, flexible, field.nullable)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def mapping(self, schema: Schema, values: object) -> cython.int:
        """A structure; names that this version does not have are left out, as are fields that have a default."""
        field: Field
        fields: dict = values if type(values) is dict else _mapping_of(schema.name, values)
        for field in schema.plain:
            value = fields.get(field.name, _MISSING)
            if value is _MISSING:
                if field.required:
                    raise ValueError(f"{schema.name} needs {field.name}")
                value = field.plain_default
            self.field(field, value, field.flexible)
        if schema.flexible:
            self.tags(schema, fields)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def tags(self, schema: Schema, fields: dict) -> cython.int:
        """Tagged fields in the order of their tags, without those that have their default."""
        field: Field
        inner: Writer
        given: list = []
        for tag, field in schema.tagged.items():
            value = fields.get(field.name, _MISSING)
            if value is not _MISSING and value != field.plain_default:
                given.append((tag, field, value))
        self.uvarint(len(given))
        for tag, field, value in given:
            inner = Writer()
            inner.field(field, value, True)
            self.uvarint(tag)
            self.uvarint(inner.size)
            self.raw(inner.take())
        return 0

    @cython.ccall
    def take(self) -> bytes:
        """The bytes written so far; the writer is empty afterwards."""
        made: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.data), self.size)
        self.size = 0
        return made

    def write(self, schema: Schema, fields: object) -> None:
        """Append a message from a mapping of its field names; nested entities are mappings too.

        Error codes, durations and times may be plain numbers (ms); what is left out has its default.

        Raises:
            ValueError: a field is missing, null or out of range, and may not be.
        """
        self.mapping(schema, fields)
