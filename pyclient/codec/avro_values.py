# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""One value in Avro's binary encoding, where there is no doubt how: `AvroRows` for a record that is a Python object.

Only values of exactly the expected types are written, such as a dict, an int in its range or a str. Anything else is
left to the caller, who knows fastavro and all that it accepts: so nothing here decides what is refused, or why.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.mem import PyMem_Free, PyMem_Realloc
from cython.cimports.libc.math import isfinite
from cython.cimports.libc.stdint import int64_t
from cython.cimports.libc.string import memcpy
from cython.cimports.pyclient.codec.varints import put_uvarint, zigzag
from cython.cimports.pyclient.codec.avro_kinds import (
    ARRAY, BOOLEAN, BYTES, DOUBLE, ENUM, FIXED, FLOAT, INT, LONG, MAP, NULLS, RECORD, STRING, UNION)

DEEPEST = cython.declare(cython.int, 64)
"""Values inside each other; the C stack has an end."""
_MISSING = object()
_TYPE = "-type"
"""A key whose value is a record's name to fastavro."""
_Output = cython.struct(data=cython.p_uchar, used=cython.Py_ssize_t, room=cython.Py_ssize_t, is_own=cython.bint)


@cython.cfunc
@cython.exceptval(-1)
def grow(target: cython.pointer(_Output), more: cython.Py_ssize_t) -> cython.int:
    """Room for *more* bytes."""
    if target.used + more <= target.room:
        return 0
    room: cython.Py_ssize_t = (target.used + more) * 2
    old: cython.p_uchar = target.data if target.is_own else cython.NULL
    data: cython.p_uchar = cython.cast(cython.p_uchar, PyMem_Realloc(old, room))
    if data == cython.NULL:
        raise MemoryError
    if not target.is_own:
        memcpy(data, target.data, target.used)
    target.data = data
    target.room = room
    target.is_own = True
    return 0


@cython.cfunc
@cython.exceptval(-1)
def write_raw(target: cython.pointer(_Output), data: cython.p_const_char, size: cython.Py_ssize_t) -> cython.int:
    grow(target, size)
    memcpy(target.data + target.used, data, size)
    target.used += size
    return 0


@cython.cfunc
@cython.exceptval(-1)
def write_long(target: cython.pointer(_Output), number: int64_t) -> cython.int:
    grow(target, 10)
    target.used = put_uvarint(target.data + target.used, zigzag(number)) - target.data
    return 0


@cython.cfunc
@cython.exceptval(-1)
def write_bytes(target: cython.pointer(_Output), data: bytes) -> cython.int:
    """With their length before them."""
    write_long(target, PyBytes_GET_SIZE(data))
    write_raw(target, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return 0


@cython.cfunc
@cython.exceptval(-1)
def write_text(target: cython.pointer(_Output), text: str) -> cython.int:
    """False: it has no UTF-8. Not kept in the text, as PyUnicode_AsUTF8AndSize would: that memory is the user's."""
    try:
        write_bytes(target, text.encode())
    except UnicodeEncodeError:
        return 0
    return 1


@cython.cfunc
@cython.exceptval(-1)
def write_integer(target: cython.pointer(_Output), value: object, is_int: cython.bint) -> cython.int:
    number: int64_t
    if type(value) is not int:
        return 0
    try:
        number = value
    except OverflowError:
        return 0
    if is_int and (number < -2147483648 or number > 2147483647):
        return 0
    write_long(target, number)
    return 1


@cython.cfunc
@cython.exceptval(-1)
def write_real(target: cython.pointer(_Output), value: object, is_float: cython.bint) -> cython.int:
    number: cython.double
    narrow: cython.float
    if type(value) is not float and type(value) is not int:
        return 0
    try:
        number = value
    except OverflowError:
        return 0
    if not is_float:
        write_raw(target, cython.cast(cython.p_const_char, cython.address(number)), 8)
        return 1
    narrow = cython.cast(cython.float, number)
    if isfinite(number) and not isfinite(narrow):
        return 0
    write_raw(target, cython.cast(cython.p_const_char, cython.address(narrow)), 4)
    return 1


@cython.cclass
class AvroPart:
    """A type of a schema. What it holds is set by `complete`, since types may hold themselves.

    *kind* is the place in `avro_program.KINDS`, or `UNION`; *size* is a fixed type's; *symbols* are an enum's, with
    their places. *prepare* is the name of a logical type in *prepares*, whose functions take a value and *schema*: they
    are looked up with each value, since users may add their own.
    """

    kind: cython.int
    size: cython.Py_ssize_t
    is_strict: cython.bint
    symbols: dict
    prepare: str
    prepares: dict
    schema: object
    names: list
    parts: list
    defaults: list

    def __init__(self, kind: cython.int, size: cython.Py_ssize_t = 0, *, symbols: dict | None = None, is_strict: cython.bint = False) -> None:
        self.kind, self.size, self.symbols, self.is_strict = kind, size, symbols, is_strict
        self.names, self.parts, self.defaults = [], [], []

    def converts(self, prepare: str, prepares: dict, schema: object) -> None:
        """Values are what *prepares[prepare]* makes of them."""
        self.prepare, self.prepares, self.schema = prepare, prepares, schema

    def complete(self, parts: list, names: object = (), defaults: object = ()) -> None:
        """What it holds: a record's fields with their *names* and encoded *defaults* (None: there is none), an
        array's item, a map's value, or a union's branches."""
        if self.kind == RECORD and not len(parts) == len(names) == len(defaults):
            raise ValueError(names)
        for each in parts:
            if not isinstance(each, AvroPart):
                raise TypeError(each)
        self.parts, self.names, self.defaults = list(parts), list(names), list(defaults)

    def encode(self, value: object, prefix: bytes) -> bytes | None:
        """*prefix* and the value's bytes; None: it is not certain how, or whether, to write it."""
        room: cython.uchar[512]
        output: _Output
        output.data = room
        output.used = 0
        output.room = 512
        output.is_own = False
        try:
            write_raw(cython.address(output), PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
            if write(self, value, cython.address(output), 0) == 0:
                return None
            return PyBytes_FromStringAndSize(cython.cast(cython.p_char, output.data), output.used)
        except Exception:  # noqa: BLE001 of a logical type's function: the caller has it raised again, and explains it
            return None
        finally:
            if output.is_own:
                PyMem_Free(output.data)


@cython.cfunc
@cython.exceptval(-1)
def write(part: AvroPart, value: object, target: cython.pointer(_Output), depth: cython.int) -> cython.int:
    """0: the value is not certain to fit."""
    kind: cython.int = part.kind
    if part.prepare is not None:
        function: object = part.prepares.get(part.prepare)
        value = value if function is None else function(value, part.schema)
    if kind == STRING:
        return write_text(target, value) if type(value) is str else 0
    if kind == LONG or kind == INT:
        return write_integer(target, value, kind == INT)
    if kind == DOUBLE or kind == FLOAT:
        return write_real(target, value, kind == FLOAT)
    if kind == UNION:
        return write_branch(part, value, target, depth)
    if kind == RECORD:
        return write_record(part, value, target, depth) if type(value) is dict else 0
    if kind == ARRAY:
        return write_items(part, value, target, depth) if type(value) is list else 0
    if kind == MAP:
        return write_entries(part, value, target, depth) if type(value) is dict else 0
    return write_small(part, value, target)


@cython.cfunc
@cython.exceptval(-1)
def write_small(part: AvroPart, value: object, target: cython.pointer(_Output)) -> cython.int:
    """Types that are rarer, and hold no others."""
    kind: cython.int = part.kind
    bit: cython.uchar
    if kind == BOOLEAN:
        if value is not True and value is not False:
            return 0
        bit = value is True
        write_raw(target, cython.cast(cython.p_const_char, cython.address(bit)), 1)
        return 1
    if kind == NULLS:
        return value is None
    if kind == ENUM:
        place: object = part.symbols.get(value) if type(value) is str else None
        return 0 if place is None else write_integer(target, place, True)
    if type(value) is not bytes:
        return 0
    data: bytes = value
    if kind == BYTES:
        write_bytes(target, data)
        return 1
    if kind != FIXED or PyBytes_GET_SIZE(data) != part.size:
        return 0
    write_raw(target, PyBytes_AS_STRING(data), part.size)
    return 1


@cython.cfunc
@cython.exceptval(-1)
def write_record(part: AvroPart, fields: dict, target: cython.pointer(_Output), depth: cython.int) -> cython.int:
    i: cython.Py_ssize_t
    found: cython.Py_ssize_t = 0
    value: object
    default: bytes
    if depth >= DEEPEST:
        return 0
    for i in range(len(part.parts)):
        value = fields.get(part.names[i], _MISSING)
        if value is _MISSING:
            default = part.defaults[i]
            if default is None:
                return 0
            write_raw(target, PyBytes_AS_STRING(default), PyBytes_GET_SIZE(default))
        else:
            found += 1
            if write(cython.cast(AvroPart, part.parts[i]), value, target, depth + 1) == 0:
                return 0
    return len(fields) == found or not (part.is_strict or _TYPE in fields)


@cython.cfunc
@cython.exceptval(-1)
def write_items(part: AvroPart, items: list, target: cython.pointer(_Output), depth: cython.int) -> cython.int:
    """As one block. Another thread may change the list: then it is left to the caller."""
    count: cython.Py_ssize_t = len(items)
    if depth >= DEEPEST:
        return 0
    if count > 0:
        write_long(target, count)
    for item in items:
        count -= 1
        if write(cython.cast(AvroPart, part.parts[0]), item, target, depth + 1) == 0:
            return 0
    write_long(target, 0)
    return count == 0


@cython.cfunc
@cython.exceptval(-1)
def write_entries(part: AvroPart, entries: dict, target: cython.pointer(_Output), depth: cython.int) -> cython.int:
    """As one block."""
    if depth >= DEEPEST:
        return 0
    if entries:
        write_long(target, len(entries))
    for key, value in entries.items():
        if type(key) is not str or write_text(target, key) == 0:
            return 0
        if write(cython.cast(AvroPart, part.parts[0]), value, target, depth + 1) == 0:
            return 0
    write_long(target, 0)
    return 1


@cython.cfunc
@cython.exceptval(-1)
def write_branch(part: AvroPart, value: object, target: cython.pointer(_Output), depth: cython.int) -> cython.int:
    """The first branch that takes the value. What a branch wrote before it did not fit is overwritten."""
    i: cython.Py_ssize_t
    began: cython.Py_ssize_t = target.used
    if depth >= DEEPEST:
        return 0
    for i in range(len(part.parts)):
        write_long(target, i)
        if write(cython.cast(AvroPart, part.parts[i]), value, target, depth + 1) == 1:
            return 1
        target.used = began
    return 0
