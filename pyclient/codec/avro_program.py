"""A writer's Avro schema as a flat program for `AvroColumns`, and its columns as Arrow arrays.

Knows parsed schemas (JSON values, names resolved where they are first defined) and pyarrow; knows no data.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from pyclient.codec.avro_columns import AvroColumns
from pyclient.errors import ConfigurationError

KINDS: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string", "fixed", "enum", "array", "map", "record")
SIZES: Final = {"boolean": 1, "int": 4, "long": 8, "float": 4, "double": 8, "enum": 4}


class AvroProgram:
    """The nodes of a schema, each directly before its children, with the schema of each.

    Raises:
        ConfigurationError: a type without Arrow columns: a recursive one, or a union of more than null and one.
    """

    def __init__(self, schema: Any) -> None:
        self.nodes: list[tuple[int, int, int, int, int]] = []
        self._schemas: list[Any] = []
        self._named: dict[str, Any] = {}
        self._add(schema, ("value",), (), "")

    def _add(self, schema: Any, path: tuple[str, ...], within: tuple[str, ...], namespace: str) -> None:
        schema, null_branch = _without_null(schema, path)
        schema, name, namespace = self._resolved(schema, path, namespace)
        if name and name in within:
            raise ConfigurationError(f"{'.'.join(path)}: {name} contains itself, which no Arrow column can")
        at = len(self.nodes)
        kind = schema["type"]
        self._schemas.append(schema)
        self.nodes.append((0, 0, 0, 0, 0))
        for part, child in _children(schema):
            self._add(child, (*path, part), (*within, name), namespace)
        size = schema["size"] if kind == "fixed" else SIZES.get(kind, 0)
        self.nodes[at] = KINDS.index(kind), size, len(schema.get("symbols", ())), null_branch, len(self.nodes)

    def _resolved(self, schema: Any, path: tuple[str, ...], namespace: str) -> tuple[Any, str, str]:
        if isinstance(schema, str):
            if schema in KINDS:
                return {"type": schema}, "", namespace
            full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            if full not in self._named and schema not in self._named:
                raise ConfigurationError(f"{'.'.join(path)}: the type {schema!r} is not defined")
            full = full if full in self._named else schema
            return self._named[full], full, full.rpartition(".")[0]
        if not isinstance(schema["type"], str) or schema["type"] not in KINDS:
            return self._resolved(schema["type"], path, namespace)
        if "name" not in schema:
            return schema, "", namespace
        name = schema["name"]
        space = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
        full = name if "." in name or not space else f"{space}.{name}"
        self._named[full] = schema
        return schema, full, space

    def array(self, columns: AvroColumns, at: int = 0) -> Any:
        """The column of a node as a pyarrow Array; strings are checked to be UTF-8 by `Array.validate(full=True)`."""
        arrow = import_module("pyarrow")
        rows, valid, offsets, data = columns.buffers(at)
        kind = KINDS[self.nodes[at][0]]
        if kind == "null":
            return arrow.nulls(rows)
        children = [self.array(columns, child) for child in self._child_nodes(at)]
        if kind == "record":
            names = [field["name"] for field in self._schemas[at]["fields"]]
            if not names:
                return arrow.Array.from_buffers(arrow.struct([]), rows, [arrow.py_buffer(valid)])
            kind_of = arrow.struct([arrow.field(n, c.type) for n, c in zip(names, children, strict=True)])
            return arrow.Array.from_buffers(kind_of, rows, [arrow.py_buffer(valid)], children=children)
        if kind == "array":
            return arrow.Array.from_buffers(
                arrow.list_(children[0].type), rows, [arrow.py_buffer(valid), arrow.py_buffer(offsets)], children=children)
        if kind == "map":
            entries = arrow.StructArray.from_arrays(
                children, fields=[arrow.field("key", arrow.string(), nullable=False), arrow.field("value", children[1].type)])
            return arrow.Array.from_buffers(arrow.map_(arrow.string(), children[1].type), rows,
                                            [arrow.py_buffer(valid), arrow.py_buffer(offsets)], children=[entries])
        return _leaf(arrow, self._schemas[at], rows, valid, offsets, data)

    def _child_nodes(self, at: int) -> list[int]:
        found, child = [], at + 1
        while child < self.nodes[at][4]:
            found.append(child)
            child = self.nodes[child][4]
        return found


def _without_null(schema: Any, path: tuple[str, ...]) -> tuple[Any, int]:
    if not isinstance(schema, list):
        return schema, -1
    if len(schema) != 2 or schema.count("null") != 1:
        raise ConfigurationError(f"{'.'.join(path)}: Arrow columns take unions of null and one type only, not {schema}")
    return schema[1 - schema.index("null")], schema.index("null")


def _children(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    if schema["type"] == "record":
        return [(field["name"], field["type"]) for field in schema["fields"]]
    if schema["type"] == "array":
        return [("[]", schema["items"])]
    return [("key", "string"), ("{}", schema["values"])] if schema["type"] == "map" else []


def _leaf(arrow: Any, schema: dict[str, Any], rows: int, valid: bytes, offsets: bytes, data: bytes) -> Any:
    kind = schema["type"]
    bits = arrow.py_buffer(valid)
    if kind in ("bytes", "string"):
        of = arrow.string() if kind == "string" else arrow.binary()
        return arrow.Array.from_buffers(of, rows, [bits, arrow.py_buffer(offsets), arrow.py_buffer(data)])
    if kind == "boolean":
        return arrow.Array.from_buffers(arrow.uint8(), rows, [bits, arrow.py_buffer(data)]).cast(arrow.bool_())
    if kind == "enum":
        codes = arrow.Array.from_buffers(arrow.int32(), rows, [bits, arrow.py_buffer(data)])
        return arrow.DictionaryArray.from_arrays(codes, arrow.array(schema["symbols"], arrow.string()))
    types = {"int": arrow.int32, "long": arrow.int64, "float": arrow.float32, "double": arrow.float64}
    of = arrow.binary(schema["size"]) if kind == "fixed" else types[kind]()
    return arrow.Array.from_buffers(of, rows, [bits, arrow.py_buffer(data)])
