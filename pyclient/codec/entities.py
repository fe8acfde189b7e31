# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The control plane's messages, read: bytes to objects with an attribute for each field, with every length checked.

`schemas` says what a message holds; nothing is decided here. A ``records`` field is a view of the input, not a copy.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.object import PyObject_GenericSetAttr
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import int64_t, uint8_t, uint64_t
from cython.cimports.pyclient.codec.schemas import (
    BOOL, BYTES, DURATION_32, DURATION_64, ENTITY, ERROR_CODE, INT8, INT16, INT32, INT64, RECORDS, STRING, TIME, UINT16, UUID_, Field, Schema)

import datetime
import struct
import uuid

from pyclient.codec.schemas import MILLISECOND
from pyclient.errors import ProtocolError

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_NO_TIME = datetime.timedelta(0)
_IDS_KEPT = cython.declare(cython.Py_ssize_t, 4096)
_MISSING = object()
_ids: dict = {}  # by their bytes: the same few topics come in every message, and an UUID takes two microseconds to make
_double = struct.Struct(">d")


@cython.cfunc
def _identifier(raw: bytes) -> object:
    """The id of these bytes, None for zero; kept for the next message."""
    made = uuid.UUID(bytes=raw)
    value = made if made.int else None
    if len(_ids) >= _IDS_KEPT:
        _ids.clear()
    _ids[raw] = value
    return value


@cython.final
@cython.cclass
class Reader:
    """A cursor over one message. Any read past the end, bad length or bad text raises ProtocolError."""

    source: object
    data: cython.p_const_uchar
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t

    def __init__(self, source: object, offset: cython.Py_ssize_t = 0):
        view: cython.const[cython.uchar][::1] = source
        self.source = memoryview(source)
        self.size = view.shape[0]
        self.data = cython.address(view[0]) if self.size else cython.NULL
        self.at = offset
        if not 0 <= offset <= self.size:
            raise ProtocolError(f"the message ends before byte {offset}: it has {self.size}")

    @property
    def offset(self):
        return self.at

    @property
    def left(self):
        return self.size - self.at

    @cython.cfunc
    @cython.exceptval(-1)
    def need(self, count: cython.Py_ssize_t) -> cython.int:
        if count < 0 or count > self.size - self.at:
            raise ProtocolError(f"{count} B wanted at byte {self.at} of a message of {self.size} B")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def integer(self, width: cython.int) -> int64_t:
        """A big-endian two's-complement integer of *width* bytes."""
        value: uint64_t = 0
        i: cython.int
        self.need(width)
        for i in range(width):
            value = (value << 8) | self.data[self.at + i]
        self.at += width
        if width == 1:
            return cython.cast(cython.schar, value)
        if width == 2:
            return cython.cast(cython.short, value)
        if width == 4:
            return cython.cast(cython.int, value)
        return cython.cast(int64_t, value)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def uvarint(self) -> int64_t:
        value: uint64_t = 0
        shift: cython.int = 0
        byte: uint8_t = 0x80
        while byte & 0x80:
            if shift > 28:
                raise ProtocolError(f"a length at byte {self.at} has more than 32 bits")
            self.need(1)
            byte = self.data[self.at]
            self.at += 1
            value |= cython.cast(uint64_t, byte & 0x7F) << shift
            shift += 7
        return cython.cast(int64_t, value)

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def length(self, flexible: cython.bint, width: cython.int) -> int64_t:
        """A length prefix; -1 is null. Never more than the bytes that are left."""
        count: int64_t = self.uvarint() - 1 if flexible else self.integer(width)
        if count < -1 or count > self.size - self.at:
            raise ProtocolError(f"a length of {count} at byte {self.at} of a message of {self.size} B")
        return count

    @cython.cfunc
    def text(self, count: cython.Py_ssize_t) -> object:
        start: cython.pointer(cython.const[cython.char]) = cython.cast(
            cython.pointer(cython.const[cython.char]), self.data + self.at)
        try:
            value = PyUnicode_DecodeUTF8(start, count, cython.NULL)
        except UnicodeDecodeError as error:
            raise ProtocolError(f"text at byte {self.at} is not UTF-8: {error.reason}") from None
        self.at += count
        return value

    @cython.cfunc
    def blob(self, kind: cython.int, count: cython.Py_ssize_t) -> object:
        start: cython.Py_ssize_t = self.at
        self.at += count
        if kind == RECORDS:
            return self.source[start:start + count]
        return PyBytes_FromStringAndSize(cython.cast(cython.pointer(cython.const[cython.char]), self.data + start), count)

    @cython.cfunc
    def sized(self, field: Field, flexible: cython.bint, nullable: cython.bint) -> object:
        count: cython.Py_ssize_t = self.length(flexible, 2 if field.kind == STRING else 4)
        if count < 0:
            if not nullable and field.kind != RECORDS:
                raise ProtocolError(f"{field.name} is null, which it may not be (byte {self.at})")
            return None
        return self.text(count) if field.kind == STRING else self.blob(field.kind, count)

    @cython.cfunc
    def identifier(self) -> object:
        self.need(16)
        raw: bytes = PyBytes_FromStringAndSize(cython.cast(cython.pointer(cython.const[cython.char]), self.data + self.at), 16)
        self.at += 16
        value = _ids.get(raw, _MISSING)
        if value is _MISSING:
            value = _identifier(raw)
        return value

    @cython.cfunc
    def value(self, field: Field, flexible: cython.bint, nullable: cython.bint) -> object:
        kind: cython.int = field.kind
        number: int64_t
        if kind == INT32:
            return self.integer(4)
        if kind == STRING or kind == BYTES or kind == RECORDS:
            return self.sized(field, flexible, nullable)
        if kind == ENTITY:
            return self.nullable_entity(cython.cast(Schema, field.nested)) if nullable else self.entity(cython.cast(Schema, field.nested))
        if kind == INT64:
            return self.integer(8)
        if kind == INT16 or kind == ERROR_CODE:
            return self.integer(2)
        if kind == BOOL:
            return self.integer(1) != 0
        if kind == INT8:
            return self.integer(1)
        if kind == UUID_:
            return self.identifier()
        return self.rare(kind, nullable)

    @cython.cfunc
    def rare(self, kind: cython.int, nullable: cython.bint) -> object:
        number: int64_t
        if kind == DURATION_32:
            number = self.integer(4)
            return number * MILLISECOND if number else _NO_TIME
        if kind == DURATION_64:
            return self.duration(self.integer(8))
        if kind == TIME:
            return self.moment(self.integer(8), nullable)
        if kind == UINT16:
            return self.integer(2) & 0xFFFF
        self.need(8)
        value = _double.unpack(self.source[self.at:self.at + 8])[0]
        self.at += 8
        return value

    @cython.cfunc
    def duration(self, milliseconds: object) -> object:
        try:
            return milliseconds * MILLISECOND
        except OverflowError:
            raise ProtocolError(f"a duration of {milliseconds} ms at byte {self.at} is out of range") from None

    @cython.cfunc
    def moment(self, milliseconds: object, nullable: cython.bint) -> object:
        if nullable and milliseconds == -1:
            return None
        try:
            return EPOCH + milliseconds * MILLISECOND
        except OverflowError:
            raise ProtocolError(f"a time of {milliseconds} ms at byte {self.at} is out of range") from None

    @cython.cfunc
    def array(self, field: Field, flexible: cython.bint) -> object:
        count: cython.Py_ssize_t = self.length(flexible, 4)
        i: cython.Py_ssize_t
        if count < 0:
            if not field.nullable:
                raise ProtocolError(f"array {field.name} is null, which it may not be (byte {self.at})")
            return None
        if count > field.most:
            raise ProtocolError(f"array {field.name} has {count} items, and at most {field.most} are read")
        items: list = []
        for i in range(count):
            items.append(self.value(field, flexible, False))
        return tuple(items)

    @cython.cfunc
    def nullable_entity(self, schema: Schema) -> object:
        return None if self.integer(1) < 0 else self.entity(schema)

    @cython.cfunc
    def entity(self, schema: Schema) -> object:
        made = schema.message_type()
        field: Field
        for field in schema.plain:
            if field.array:
                PyObject_GenericSetAttr(made, field.name, self.array(field, field.flexible))
            else:
                PyObject_GenericSetAttr(made, field.name, self.value(field, field.flexible, field.nullable))
        if schema.flexible:
            self.tags(schema, made)
        return made

    @cython.cfunc
    @cython.exceptval(-1)
    def tags(self, schema: Schema, made: object) -> cython.int:
        """Tagged fields: known ones are read, unknown ones skipped, absent ones get their default."""
        count: int64_t = self.uvarint()
        field: Field
        end: cython.Py_ssize_t
        seen: set = set() if count else None
        while count > 0:
            count -= 1
            tag = self.uvarint()
            size: int64_t = self.uvarint()
            self.need(size)
            end = self.at + size
            found = schema.tagged.get(tag)
            if found is not None:
                field = found
                self.tag(field, end, made)
                seen.add(tag)
            self.at = end
        for tag, field in schema.tagged.items():
            if seen is None or tag not in seen:
                PyObject_GenericSetAttr(made, field.name, field.default)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def tag(self, field: Field, end: cython.Py_ssize_t, made: object) -> cython.int:
        whole: cython.Py_ssize_t = self.size
        self.size = end  # a field may not read past its own tag
        try:
            value = self.array(field, True) if field.array else self.value(field, True, field.nullable)
        finally:
            self.size = whole
        if self.at != end:
            raise ProtocolError(f"tagged field {field.name} is {end - self.at} B shorter than its length says")
        PyObject_GenericSetAttr(made, field.name, value)
        return 0

    def read(self, schema: Schema) -> object:
        """Read a message, or one entity."""
        return self.entity(schema)

    def int32(self) -> int:
        """Read one int32."""
        return self.integer(4)
