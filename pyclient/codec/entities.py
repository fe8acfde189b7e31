# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The control plane's messages: bytes to kio's typed entities with every length checked, and plain mappings to bytes.

kio's schemas (generated from Kafka's own files) say what a message holds; nothing is decided here. kio's own decoder
is not used: it trusts array lengths, and a hostile one ends the process. Differences from it: a ``records`` field is
a view of the input, not a copy; an error code from a newer broker is a plain int. Its encoder is not used either:
writing from a mapping needs no entity made first, and takes a tenth of the time.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.mem import PyMem_Free, PyMem_Realloc
from cython.cimports.cpython.object import PyObject_GenericSetAttr
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import int64_t, uint8_t, uint64_t
from cython.cimports.libc.string import memcpy

import dataclasses
import datetime
import struct
import types
import typing
import uuid
from collections.abc import Mapping

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from pyclient.errors import ProtocolError

_KINDS = {
    name: number
    for number, name in enumerate((
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float64", "uuid", "string",
        "bytes", "records", "error_code", "timedelta_i32", "timedelta_i64", "datetime_i64", "entity",
    ))
}
BOOL = cython.declare(cython.int, 0)
INT8 = cython.declare(cython.int, 1)
INT16 = cython.declare(cython.int, 2)
INT32 = cython.declare(cython.int, 3)
INT64 = cython.declare(cython.int, 4)
UINT8 = cython.declare(cython.int, 5)
UINT16 = cython.declare(cython.int, 6)
UINT32 = cython.declare(cython.int, 7)
UINT64 = cython.declare(cython.int, 8)
FLOAT64 = cython.declare(cython.int, 9)
UUID_ = cython.declare(cython.int, 10)
STRING = cython.declare(cython.int, 11)
BYTES = cython.declare(cython.int, 12)
RECORDS = cython.declare(cython.int, 13)
ERROR_CODE = cython.declare(cython.int, 14)
TIMEDELTA_32 = cython.declare(cython.int, 15)
TIMEDELTA_64 = cython.declare(cython.int, 16)
DATETIME = cython.declare(cython.int, 17)
ENTITY = cython.declare(cython.int, 18)

_ERROR_CODES = {int(code): code for code in ErrorCode}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_NO_TIME = datetime.timedelta(0)
_IDS_KEPT = cython.declare(cython.Py_ssize_t, 4096)
_MISSING = object()
_ids: dict = {}  # by their bytes: the same few topics come in every message, and an UUID takes two microseconds to make
_double = struct.Struct(">d")


@cython.final
@cython.cclass
class _Field:
    """How one field is written: its kind, and what wraps it (null, array, tag)."""

    name: str
    kind: cython.int
    array: cython.bint
    nullable: cython.bint  # the value, or for an array the array itself
    tag: cython.int  # -1: not tagged
    flexible: cython.bint  # lengths are compact
    nested: object  # its Schema
    required: cython.bint  # it has no default
    default: object
    plain_default: object  # the same for the writer: a mapping for an entity

    def __init__(self, field, flexible):
        inner, self.array, self.nullable = _shape(field.type)
        self.name = field.name
        self.tag = field.metadata.get("tag", -1)
        self.flexible = flexible
        if dataclasses.is_dataclass(inner):
            self.kind = ENTITY
            self.nested = schema_of(inner)
        else:
            self.kind = _KINDS[field.metadata["kafka_type"]]
        self.required = field.default is dataclasses.MISSING
        self.default = None if self.required else field.default
        if self.array and self.default is None:
            self.default = ()
        self.plain_default = _plain(self.default)


def _is_classic(entity, field):
    """A request's client id has a plain length in every version: brokers read it before they know the version."""
    return entity.__type__ is EntityType.header and field.name == "client_id"


def _plain(value):
    """An entity as the mapping that writes it; anything else as it is."""
    if not dataclasses.is_dataclass(value):
        return value
    return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _shape(annotation):
    """Split ``tuple[X, ...] | None`` into (X, is array, is nullable)."""
    nullable = False
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        nullable = True
        annotation = next(part for part in typing.get_args(annotation) if part is not type(None))
    if typing.get_origin(annotation) is tuple:
        return typing.get_args(annotation)[0], True, nullable
    return annotation, False, nullable


@cython.final
@cython.cclass
class Schema:
    """The fields of one entity class in wire order; made once per class."""

    entity = cython.declare(type, visibility="readonly")
    flexible: cython.bint
    plain: list
    tagged: dict

    def __init__(self, entity):
        self.entity = entity
        self.flexible = entity.__flexible__
        fields = [_Field(field, self.flexible and not _is_classic(entity, field)) for field in dataclasses.fields(entity)]
        self.plain = [field for field in fields if cython.cast(_Field, field).tag < 0]
        self.tagged = {cython.cast(_Field, field).tag: field for field in fields if cython.cast(_Field, field).tag >= 0}


_schemas: dict = {}


@cython.ccall
def schema_of(entity) -> Schema:
    """The (cached) schema of a kio entity class."""
    schema = _schemas.get(entity)
    if schema is None:
        schema = _schemas[entity] = Schema(entity)
    return schema


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
    def sized(self, field: _Field, flexible: cython.bint, nullable: cython.bint) -> object:
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
    def value(self, field: _Field, flexible: cython.bint, nullable: cython.bint) -> object:
        kind: cython.int = field.kind
        number: int64_t
        if kind == INT32:
            return self.integer(4)
        if kind == STRING or kind == BYTES or kind == RECORDS:
            return self.sized(field, flexible, nullable)
        if kind == ENTITY:
            return self.nullable_entity(cython.cast(Schema, field.nested)) if nullable else self.entity(cython.cast(Schema, field.nested))
        if kind == ERROR_CODE:
            number = self.integer(2)
            return _ERROR_CODES.get(number, number)
        if kind == INT64:
            return self.integer(8)
        if kind == INT16:
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
        if kind == TIMEDELTA_32:
            number = self.integer(4)
            return number * _MILLISECOND if number else _NO_TIME
        if kind == TIMEDELTA_64:
            return self.duration(self.integer(8))
        if kind == DATETIME:
            return self.moment(self.integer(8), nullable)
        if kind == UINT8:
            return self.integer(1) & 0xFF
        if kind == UINT16:
            return self.integer(2) & 0xFFFF
        if kind == UINT32:
            return self.integer(4) & 0xFFFFFFFF
        if kind == UINT64:
            return self.integer(8) & 0xFFFFFFFFFFFFFFFF
        self.need(8)
        value = _double.unpack(self.source[self.at:self.at + 8])[0]
        self.at += 8
        return value

    @cython.cfunc
    def duration(self, milliseconds: object) -> object:
        try:
            return milliseconds * _MILLISECOND
        except OverflowError:
            raise ProtocolError(f"a duration of {milliseconds} ms at byte {self.at} is out of range") from None

    @cython.cfunc
    def moment(self, milliseconds: object, nullable: cython.bint) -> object:
        if nullable and milliseconds == -1:
            return None
        try:
            return _EPOCH + milliseconds * _MILLISECOND
        except OverflowError:
            raise ProtocolError(f"a time of {milliseconds} ms at byte {self.at} is out of range") from None

    @cython.cfunc
    def array(self, field: _Field, flexible: cython.bint) -> object:
        count: cython.Py_ssize_t = self.length(flexible, 4)
        i: cython.Py_ssize_t
        if count < 0:
            if not field.nullable:
                raise ProtocolError(f"array {field.name} is null, which it may not be (byte {self.at})")
            return None
        items: list = []
        for i in range(count):
            items.append(self.value(field, flexible, False))
        return tuple(items)

    @cython.cfunc
    def nullable_entity(self, schema: Schema) -> object:
        return None if self.integer(1) < 0 else self.entity(schema)

    @cython.cfunc
    def entity(self, schema: Schema) -> object:
        made = schema.entity.__new__(schema.entity)
        field: _Field
        for field in schema.plain:
            # an entity is frozen: this is what object.__setattr__ does, without the call
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
        field: _Field
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
    def tag(self, field: _Field, end: cython.Py_ssize_t, made: object) -> cython.int:
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

    def read(self, entity: type) -> object:
        """Read one entity of this kio class."""
        return self.entity(schema_of(entity))

    def int32(self) -> int:
        """Read one int32."""
        return self.integer(4)


# --- writing --------------------------------------------------------------------------------------------------------

_LOWEST = cython.declare(int64_t[18])
_HIGHEST = cython.declare(int64_t[18])
_WIDTH = cython.declare(cython.int[18])  # bytes of a kind that is a number; 0: it is none


@cython.cfunc
def _numbers() -> cython.void:
    kind: cython.int
    for kind in range(18):
        _WIDTH[kind] = 0
    for kind, width in ((BOOL, 1), (INT8, 1), (INT16, 2), (ERROR_CODE, 2), (INT32, 4), (TIMEDELTA_32, 4), (INT64, 8), (TIMEDELTA_64, 8), (DATETIME, 8)):
        _WIDTH[kind] = width
        _HIGHEST[kind] = (2 ** (8 * width - 1) - 1)
        _LOWEST[kind] = -2 ** (8 * width - 1)
    for kind, width in ((UINT8, 1), (UINT16, 2), (UINT32, 4), (UINT64, 8)):
        _WIDTH[kind] = width
        _LOWEST[kind] = 0
        _HIGHEST[kind] = 2**63 - 1 if width == 8 else 2 ** (8 * width) - 1


_numbers()


def _mapping_of(entity, values):
    if isinstance(values, Mapping):
        return dict(values)
    raise TypeError(f"{entity.__name__} cannot be made of {values!r}: give a mapping of its fields")


@cython.cfunc
def _milliseconds(value: object) -> object:
    """A duration or a time as it is written; anything else as it is."""
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MILLISECOND
    return value


@cython.final
@cython.cclass
class Writer:
    """Bytes of messages, appended to each other. What a schema does not allow raises ValueError naming the field."""

    data: cython.p_uchar
    size: cython.Py_ssize_t
    room: cython.Py_ssize_t

    def __dealloc__(self):
        PyMem_Free(self.data)

    @cython.cfunc
    @cython.exceptval(-1)
    def more(self, count: cython.Py_ssize_t) -> cython.int:
        """Make room for *count* bytes."""
        if self.size + count <= self.room:
            return 0
        room: cython.Py_ssize_t = max(self.room * 2, self.size + count, 256)
        grown: cython.p_uchar = cython.cast(cython.p_uchar, PyMem_Realloc(self.data, room))
        if grown == cython.NULL:
            raise MemoryError(f"no memory for a message of {room} B")
        self.data = grown
        self.room = room
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def integer(self, number: uint64_t, width: cython.int) -> cython.int:
        self.more(width)
        while width > 0:
            width -= 1
            self.data[self.size] = cython.cast(cython.uchar, number >> (8 * width))
            self.size += 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def uvarint(self, number: uint64_t) -> cython.int:
        self.more(10)
        while number > 0x7F:
            self.data[self.size] = cython.cast(cython.uchar, number | 0x80)
            self.size += 1
            number >>= 7
        self.data[self.size] = cython.cast(cython.uchar, number)
        self.size += 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def length(self, count: cython.Py_ssize_t, flexible: cython.bint, width: cython.int) -> cython.int:
        """A length prefix; -1 is null."""
        if flexible:
            return self.uvarint(count + 1)
        if width == 2 and count > 0x7FFF:
            raise ValueError(f"a text of {count} B does not fit: 32767 B are allowed in this version")
        return self.integer(count, width)

    @cython.cfunc
    @cython.exceptval(-1)
    def raw(self, data: bytes) -> cython.int:
        count: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
        self.more(count)
        memcpy(self.data + self.size, PyBytes_AS_STRING(data), count)
        self.size += count
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def sized(self, field: _Field, value: object, flexible: cython.bint) -> cython.int:
        data: bytes
        if field.kind == STRING:
            data = value.encode()
            self.length(len(data), flexible, 2)
        else:
            data = value if type(value) is bytes else bytes(value)
            self.length(len(data), flexible, 4)
        return self.raw(data)

    @cython.cfunc
    @cython.exceptval(-1)
    def number(self, field: _Field, value: object) -> cython.int:
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
    @cython.exceptval(-1)
    def nothing(self, field: _Field, flexible: cython.bint) -> cython.int:
        """A null of the field's kind."""
        if field.kind == UUID_:
            return self.raw(bytes(16))
        if not field.nullable and field.kind != RECORDS:
            raise ValueError(f"{field.name} is None, which it may not be")
        if field.kind == DATETIME:
            return self.integer(cython.cast(uint64_t, -1), 8)
        if field.kind == ENTITY:
            return self.integer(0xFF, 1)
        return self.length(-1, flexible, 2 if field.kind == STRING else 4)

    @cython.cfunc
    @cython.exceptval(-1)
    def value(self, field: _Field, value: object, flexible: cython.bint, nullable: cython.bint) -> cython.int:
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
    @cython.exceptval(-1)
    def array(self, field: _Field, values: object, flexible: cython.bint) -> cython.int:
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
    @cython.exceptval(-1)
    def field(self, field: _Field, value: object, flexible: cython.bint) -> cython.int:
        if field.array:
            return self.array(field, value, flexible)
        return self.value(field, value, flexible, field.nullable)

    @cython.cfunc
    @cython.exceptval(-1)
    def mapping(self, schema: Schema, values: object) -> cython.int:
        """A structure; names that this version does not have are left out, as are fields that have a default."""
        field: _Field
        fields: dict = values if type(values) is dict else _mapping_of(schema.entity, values)
        for field in schema.plain:
            value = fields.get(field.name, _MISSING)
            if value is _MISSING:
                if field.required:
                    raise ValueError(f"{schema.entity.__name__} needs {field.name}")
                value = field.plain_default
            self.field(field, value, field.flexible)
        if schema.flexible:
            self.tags(schema, fields)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def tags(self, schema: Schema, fields: dict) -> cython.int:
        """Tagged fields in the order of their tags, without those that have their default."""
        field: _Field
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

    def write(self, entity: type, fields: object) -> None:
        """Append one entity of this kio class from a mapping of its field names; nested ones are mappings too.

        Error codes, durations and times may be plain numbers (ms); what is left out has its default.

        Raises:
            ValueError: a field is missing, null or out of range, and may not be.
        """
        self.mapping(schema_of(entity), fields)
