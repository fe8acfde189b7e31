"""Avro schemas as trees of columns: programs for the compiled readers and writers, and their Arrow types and arrays.

Independent of data and registry.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import attrs

from pyclient.errors import ConfigurationError

if TYPE_CHECKING:
    from pyclient.codec.avro_columns import AvroColumns
    from pyclient.codec.avro_scan import Instruction

KINDS: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string", "fixed", "enum", "array", "map", "record",
                "time of 4 B", "time of 8 B", "decimal", "decimal in fixed", "uuid", "union", "reference")
"""The first are Avro's types, then logical types whose data is checked or converted, then what columns do not have."""
PRIMITIVES: Final = KINDS[: KINDS.index("fixed")]
SIZES: Final[Mapping[str, int]] = {"boolean": 1, "int": 4, "long": 8, "float": 4, "double": 8, "enum": 4, "time of 4 B": 4, "time of 8 B": 8}
DAY_MS: Final = 86_400_000
TIMES: Final = {"time-millis": ("int", "time of 4 B", DAY_MS), "time-micros": ("long", "time of 8 B", DAY_MS * 1000)}
WIDEST: Final = 76
"""Digits of Arrow's largest decimal."""
MOST_DIGITS: Final = 10_000
"""A larger precision counts as this one: its power of ten would take minutes to compute, or hours."""
MOST_NODES: Final = 20_000
UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}


@attrs.frozen
class AvroNode:
    """A column and those within it.

    Attributes:
        kind: one of `KINDS`.
        path: the field's name, within those above.
        schema: of the type, without the union with null around it.
        null_branch: the place of null in that union; -1 when the value cannot be null.
        children: a record's fields, an array's item, or a map's key and value.
    """

    kind: str
    path: tuple[str, ...]
    schema: Mapping[str, Any]
    null_branch: int
    children: tuple[AvroNode, ...] = ()

    @property
    def where(self) -> str:
        """The path as errors show it."""
        return ".".join(self.path) or "the value"

    @property
    def size(self) -> int:
        """Bytes of a value in its Arrow buffer; 0 when they differ."""
        if self.kind in ("decimal", "decimal in fixed"):
            return 16 if self.schema["precision"] <= 38 else 32
        return int(self.schema["size"]) if self.kind == "fixed" else SIZES.get(self.kind, 0)

    @property
    def is_empty(self) -> bool:
        """Whether every value takes no bytes in Avro's encoding."""
        if self.null_branch >= 0:
            return False
        return self.kind == "null" or (self.kind == "fixed" and self.size == 0) or (self.kind == "record" and all(each.is_empty for each in self.children))

    @property
    def plain_schema(self) -> Any:
        """Its schema without names of other types: those are written out."""
        made = dict(self.schema)
        if self.kind == "record":
            made["fields"] = [{**field, "type": child.plain_schema} for field, child in zip(self.schema["fields"], self.children, strict=True)]
        elif self.kind in ("array", "map"):
            made["items" if self.kind == "array" else "values"] = self.children[-1].plain_schema
        return made if self.null_branch < 0 else ["null", made] if self.null_branch == 0 else [made, "null"]

    def walk(self) -> Iterator[AvroNode]:
        """This and all within it, each directly before its children: the order of a program."""
        yield self
        for child in self.children:
            yield from child.walk()

    def program(self, at: int = 0) -> list[Instruction]:
        """What `AvroColumns` and `AvroRows` take; *at* is this node's place in it."""
        below: list[Instruction] = []
        for child in self.children:
            below += child.program(at + 1 + len(below))
        has_empty_items = self.kind == "array" and self.children[0].is_empty
        most, limit = most_of(self.kind, self.schema), limit_of(self.kind, self.schema)
        return [(KINDS.index(self.kind), self.size, most, self.null_branch, at + 1 + len(below), has_empty_items, limit), *below]


def node_of(parsed: Any) -> AvroNode:
    """The tree of a schema as fastavro parsed it.

    Raises:
        ConfigurationError: a type without Arrow columns: a recursive one, or a union of more than null and one; or more
            than `MOST_NODES` columns, which few lines make, if types use others several times.
    """
    named = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
    return _Tree(named).node(parsed, (), ())


class _Tree:
    """One schema while its tree is made."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._count = 0

    def node(self, schema: Any, path: tuple[str, ...], within: tuple[str, ...]) -> AvroNode:
        """The tree of a part, whose place is *path*; *within* are the names of the types around it."""
        self._count += 1
        if self._count > MOST_NODES:
            raise ConfigurationError(f"Avro schema: it has more than {MOST_NODES} columns; read record by record")
        schema, null_branch = _without_null(schema, path)
        schema = resolved(schema, self._named)
        name = schema.get("name", "")
        if name and name in within:
            raise ConfigurationError(f"Avro schema: {'.'.join(path)}: {name} contains itself, which an Arrow column cannot; read record by record")
        children = tuple([self.node(child, (*path, part), (*within, name)) for part, child in _children(schema)])
        return AvroNode(kind_of(schema, WIDEST), path, schema, null_branch, children)


def _without_null(schema: Any, path: tuple[str, ...]) -> tuple[Any, int]:
    if not isinstance(schema, list):
        return schema, -1
    if len(schema) != 2 or schema.count("null") != 1:
        raise ConfigurationError(f"Avro schema: {'.'.join(path) or 'the value'}: Arrow columns take unions of null and one other type only, "
                                 "not this one; read record by record")
    return schema[1 - schema.index("null")], schema.index("null")


def resolved(schema: Any, named: dict[str, Any]) -> dict[str, Any]:
    """A type, not a union, without the names and types around it; what it names is added to *named*."""
    while not isinstance(schema, dict) or not isinstance(schema["type"], str) or schema["type"] in named:
        if isinstance(schema, dict):
            schema = schema["type"]
        elif schema in PRIMITIVES:
            return {"type": schema}
        else:
            return dict(named[schema])
    if "name" in schema:
        named.setdefault(schema["name"], schema)
    return {**schema, "type": "record"} if schema["type"] == "error" else schema


def _children(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if schema["type"] == "record":
        return [(field["name"], field["type"]) for field in schema["fields"]]
    if schema["type"] == "array":
        return [("[]", schema["items"])]
    return [("{key}", "string"), ("{}", schema["values"])] if schema["type"] == "map" else []


def kind_of(schema: Mapping[str, Any], widest: float) -> str:
    """Its type, or the logical type if the two fit; one that does not, or has more than *widest* digits, is ignored."""
    kind, logical = str(schema["type"]), schema.get("logicalType")
    if logical in TIMES and TIMES[logical][0] == kind:
        return TIMES[logical][1]
    if logical == "uuid" and kind == "string":
        return "uuid"
    if logical == "decimal" and kind in ("bytes", "fixed") and _is_decimal(schema, widest):
        return "decimal" if kind == "bytes" else "decimal in fixed"
    return kind


def _is_decimal(schema: Mapping[str, Any], widest: float) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and 0 < precision <= widest


def most_of(kind: str, schema: Mapping[str, Any]) -> int:
    """Of an enum the number of symbols, of a time the day's length, of a decimal in fixed its bytes."""
    if kind == "enum":
        return len(schema["symbols"])
    if kind == "decimal in fixed":
        return int(schema["size"])
    return next((most for _, each, most in TIMES.values() if each == kind), 0)


def limit_of(kind: str, schema: Mapping[str, Any]) -> bytes:
    """The largest magnitude of a decimal, with a bit for its sign."""
    if not kind.startswith("decimal"):
        return b""
    largest: int = 10 ** min(schema["precision"], MOST_DIGITS) - 1
    return largest.to_bytes(largest.bit_length() // 8 + 1, "big")


# --- Arrow ----------------------------------------------------------------------------------------------------------


def arrow_type(node: AvroNode) -> Any:
    """The pyarrow type of its column."""
    arrow = import_module("pyarrow")
    kind = node.kind
    if kind == "record":
        return arrow.struct([arrow.field(child.path[-1], arrow_type(child)) for child in node.children])
    if kind == "array":
        return arrow.list_(arrow_type(node.children[0]))
    if kind == "map":
        return arrow.map_(arrow.string(), arrow_type(node.children[1]))
    if kind == "enum":
        return arrow.dictionary(arrow.int32(), arrow.string())
    if kind in ("decimal", "decimal in fixed"):
        make = arrow.decimal128 if node.size == 16 else arrow.decimal256
        return make(node.schema["precision"], node.schema.get("scale", 0))
    return _logical(arrow, node) or _plain(arrow, node)


def _plain(arrow: Any, node: AvroNode) -> Any:
    if node.kind == "fixed":
        return arrow.binary(node.size)
    kinds = {"null": arrow.null, "boolean": arrow.bool_, "int": arrow.int32, "long": arrow.int64, "float": arrow.float32,
             "double": arrow.float64, "bytes": arrow.binary, "string": arrow.string, "uuid": arrow.string}
    return kinds[node.kind]()


def _logical(arrow: Any, node: AvroNode) -> Any:
    kind, logical = node.schema["type"], str(node.schema.get("logicalType"))
    if node.kind.startswith("time of"):
        return arrow.time32("ms") if kind == "int" else arrow.time64("us")
    if (kind, logical) == ("int", "date"):
        return arrow.date32()
    name, _, unit = logical.rpartition("-")
    if kind == "long" and unit in UNITS and name in ("timestamp", "local-timestamp"):
        return arrow.timestamp(UNITS[unit], "UTC" if name == "timestamp" else None)
    return None


def finished(node: AvroNode, columns: AvroColumns) -> Any:
    """The rows of *columns* as a pyarrow Array, in the memory of *columns*, which takes no more rows."""
    return _Finished(columns).array(node, 0)


class _Finished:
    def __init__(self, columns: AvroColumns) -> None:
        self._arrow = import_module("pyarrow")
        self._columns = columns

    def array(self, node: AvroNode, at: int) -> Any:
        """The column of a node, whose place in the program is *at*."""
        arrow, children = self._arrow, []
        rows, valid, offsets, data, used = self._columns.buffers(at)
        at += 1
        for child in node.children:
            children.append(self.array(child, at))
            at += sum(1 for _ in child.walk())
        kind = arrow_type(node)
        if node.kind == "null":
            return arrow.nulls(rows)
        bits = self._buffer(valid, (rows + 7) // 8)
        if node.kind == "record":
            return arrow.Array.from_buffers(kind, rows, [bits], children=children)
        if node.kind in ("array", "map"):
            within = children if node.kind == "array" else [arrow.Array.from_buffers(
                arrow.struct([kind.key_field, kind.item_field]), len(children[0]), [None], children=children)]
            return arrow.Array.from_buffers(kind, rows, [bits, self._offsets(offsets, rows)], children=within)
        content = self._buffer(data, used) or arrow.py_buffer(b"")
        if node.kind == "boolean":
            return arrow.Array.from_buffers(arrow.uint8(), rows, [bits, content]).cast(arrow.bool_())
        if node.kind == "enum":
            codes = arrow.Array.from_buffers(arrow.int32(), rows, [bits, content])
            return arrow.DictionaryArray.from_arrays(codes, arrow.array(node.schema["symbols"], arrow.string()))
        middle = [self._offsets(offsets, rows)] if node.kind in ("bytes", "string", "uuid") else []
        return arrow.Array.from_buffers(kind, rows, [bits, *middle, content])

    def _offsets(self, address: int, rows: int) -> Any:
        return self._buffer(address, (rows + 1) * 4) or self._arrow.py_buffer(bytes(4))

    def _buffer(self, address: int, size: int) -> Any:
        return self._arrow.foreign_buffer(address, size, self._columns) if address else None
