"""Scans Avro data by its schema without making values: finds the field at which data is damaged, and bounds what
hostile data may cost.

fastavro reads recursive types on the C stack and creates as many empty items as a count says, so data of such schemas
is scanned before it is read. All other data is bounded by its own length, and scanned only to explain an error.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

MOST_NESTED: Final = 128
"""Records inside records, in the data of a recursive schema."""
MOST_EMPTY_ITEMS: Final = 65_536
"""Items of arrays that take no bytes, such as null: in all arrays of a payload together."""
LONGEST_VARINT: Final = 10
LONGEST_PATH: Final = 12
"""Fields of a path that an error shows; the middle of a longer one is left out."""
SIZES: Final[Mapping[str, int]] = {"null": 0, "boolean": 1, "float": 4, "double": 8}
LEAST: Final[Mapping[str, int]] = {**SIZES, "int": 1, "long": 1, "bytes": 1, "string": 1, "enum": 1, "array": 1, "map": 1}


class DamagedError(ValueError):
    """The data is not of the schema. The message names the field."""


class _Data:
    """A payload and the limits that are left for it."""

    __slots__ = ("content", "empties", "nested", "path")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.path: list[str] = []
        self.nested = 0
        self.empties = MOST_EMPTY_ITEMS

    def error(self, what: str) -> DamagedError:
        path = self.path if len(self.path) <= LONGEST_PATH else [*self.path[:LONGEST_PATH // 2], "…", *self.path[-LONGEST_PATH // 2:]]
        where = ".".join(path)
        return DamagedError(f"{where}: {what}" if where else what)


_Scan = Callable[[_Data, int], int]
"""Takes the position where a value begins and returns that where it ends."""


class AvroScan:
    """The scan for one schema, as fastavro parsed it.

    Attributes:
        is_needed: whether data must be scanned before fastavro reads it.
    """

    def __init__(self, parsed: Any) -> None:
        self._named: dict[str, Any] = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
        self._made: dict[str, _Scan] = {}
        self._open: list[str] = []
        self.is_needed = False
        self._scan = self._of(parsed)

    def check(self, content: bytes) -> None:
        """Raise DamagedError if *content* is not exactly one value of the schema, or exceeds the limits."""
        data = _Data(content)
        end = self._scan(data, 0)
        if end != len(content):
            raise DamagedError(f"{len(content) - end} B follow the value's end")

    def _of(self, schema: Any) -> _Scan:
        if isinstance(schema, list):
            return _union([self._of(branch) for branch in schema])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self._of(kind)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind in ("array", "map"):
            return self._blocks(kind, schema["items" if kind == "array" else "values"])
        return self._plain(kind, schema)

    def _plain(self, kind: str, schema: Any) -> _Scan:
        if kind in SIZES:
            return _sized(SIZES[kind])
        if kind == "enum":
            self._named.setdefault(schema["name"], schema)
            return _enum(len(schema["symbols"]))
        if kind == "fixed":
            self._named.setdefault(schema["name"], schema)
            return _sized(schema["size"])
        simple = {"int": _int, "long": _long, "bytes": _bytes, "string": _string}.get(kind)
        return simple or self._reference(kind)

    def _reference(self, name: str) -> _Scan:
        if name in self._open:
            self.is_needed = True
            return self._later(name)
        return self._made.get(name) or self._of(self._named[name])

    def _later(self, name: str) -> _Scan:
        """The scan of a type inside itself: it does not exist yet."""
        def scan(data: _Data, at: int) -> int:
            return self._made[name](data, at)
        return scan

    def _record(self, schema: Any) -> _Scan:
        name = schema["name"]
        self._named.setdefault(name, schema)
        self._open.append(name)
        fields = [(field["name"], self._of(field["type"])) for field in schema["fields"]]
        self._open.pop()
        self._made[name] = made = _record(fields)
        return made

    def _blocks(self, kind: str, item: Any) -> _Scan:
        scan = self._of(item)
        may_be_empty = kind == "array" and self._least(item, ()) == 0
        self.is_needed |= may_be_empty
        return _blocks(scan, keyed=kind == "map", may_be_empty=may_be_empty)

    def _least(self, schema: Any, inside: tuple[str, ...]) -> int:
        """The fewest bytes that a value takes; 0 for a type inside itself, which is only found too small by that."""
        if isinstance(schema, list):
            return 1
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self._least(kind, inside)
        if kind == "fixed":
            return int(schema["size"])
        if kind in ("record", "error"):
            name = schema["name"]
            return 0 if name in inside else sum(self._least(field["type"], (*inside, name)) for field in schema["fields"])
        return LEAST[kind] if kind in LEAST else 0 if kind in inside else self._least(self._named[kind], inside)


def _sized(size: int) -> _Scan:
    def scan(data: _Data, at: int) -> int:
        if at + size > len(data.content):
            raise data.error(f"the data ends {at + size - len(data.content)} B too early")
        return at + size
    return scan


def _varint(data: _Data, at: int) -> tuple[int, int]:
    """A zigzag number, and where it ends."""
    content, shift, value = data.content, 0, 0
    for position in range(at, min(at + LONGEST_VARINT, len(content))):
        byte = content[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
    raise data.error("a number is cut off or longer than 64 bits")


def _long(data: _Data, at: int) -> int:
    return _varint(data, at)[1]


def _int(data: _Data, at: int) -> int:
    value, end = _varint(data, at)
    if not -(2**31) <= value < 2**31:
        raise data.error(f"{value} does not fit an int of 32 bits")
    return end


def _bytes(data: _Data, at: int) -> int:
    size, begin = _varint(data, at)
    if not 0 <= size <= len(data.content) - begin:
        raise data.error(f"a length of {size} B, with {len(data.content) - begin} B left")
    return begin + size


def _string(data: _Data, at: int) -> int:
    size, begin = _varint(data, at)
    end = _bytes(data, at)
    try:
        data.content[begin:begin + size].decode("utf-8")
    except UnicodeDecodeError as error:
        raise data.error(f"the text is not UTF-8: {error.reason}") from None
    return end


def _enum(count: int) -> _Scan:
    def scan(data: _Data, at: int) -> int:
        index, end = _varint(data, at)
        if not 0 <= index < count:
            raise data.error(f"symbol {index} of an enum that has {count}")
        return end
    return scan


def _union(branches: list[_Scan]) -> _Scan:
    def scan(data: _Data, at: int) -> int:
        index, begin = _varint(data, at)
        if not 0 <= index < len(branches):
            raise data.error(f"branch {index} of a union that has {len(branches)}")
        return branches[index](data, begin)
    return scan


def _record(fields: list[tuple[str, _Scan]]) -> _Scan:
    def scan(data: _Data, at: int) -> int:
        if data.nested >= MOST_NESTED:
            raise data.error(f"more than {MOST_NESTED} records inside each other")
        data.nested += 1
        for name, field in fields:
            data.path.append(name)
            at = field(data, at)
            data.path.pop()
        data.nested -= 1
        return at
    return scan


def _blocks(item: _Scan, *, keyed: bool, may_be_empty: bool) -> _Scan:
    def scan(data: _Data, at: int) -> int:
        index = 0
        while True:
            count, at = _varint(data, at)
            if count == 0:
                return at
            if count < 0:  # the block's size in bytes follows
                count, at = -count, _long(data, at)
            if may_be_empty:
                data.empties -= count
                if data.empties < 0:
                    raise data.error(f"more than {MOST_EMPTY_ITEMS} items that may take no bytes")
            for _ in range(count):
                data.path.append(f"[{index}]")
                at = item(data, _string(data, at) if keyed else at)
                data.path.pop()
                index += 1
    return scan
