"""Avro schemas as programs of `AvroScan`: every schema has one, also with unions of several types and types inside
themselves.

Independent of data.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyclient.codec.avro_program import KINDS, kind_of, limit_of, most_of, resolved
from pyclient.codec.avro_scan import AvroScan

if TYPE_CHECKING:
    from pyclient.codec.avro_scan import Instruction

MOST_NESTED: Final = 128
"""Records inside each other, in the data of a recursive schema; in other data the schema bounds them."""
UNBOUNDED: Final = 2**31 - 1
CHECKED: Final = ("time of 4 B", "time of 8 B", "decimal", "decimal in fixed", "uuid")
"""Logical types of which not all data of the type below is valid."""
SIZES: Final[Mapping[str, int]] = {"boolean": 1, "float": 4, "double": 8}


class ScanProgram:
    """The program of one schema, as fastavro parsed it.

    Attributes:
        has_checked: whether a logical type limits what its data may be.
    """

    def __init__(self, parsed: Any) -> None:
        self._named: dict[str, Any] = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
        self._records: dict[str, int] = {}
        """Where each record's type is; any other use of it refers to that."""
        self._open: list[str] = []
        self._is_recursive = False
        self._names: list[str] = []
        self._made: list[Instruction] = []
        self._empty: set[int] = set()
        """The nodes of which every value takes no bytes."""
        self._empty_records: set[str] = set()
        self._add(parsed, "")
        self.has_checked: Final = any(KINDS[each[0]] in CHECKED for each in self._made)

    def scan(self, *, is_bounded: bool = True) -> AvroScan:
        """The scan. *is_bounded*: records inside each other are, if the schema is recursive."""
        return AvroScan(self._made, self._names, MOST_NESTED if is_bounded and self._is_recursive else UNBOUNDED)

    def _add(self, schema: Any, name: str) -> int:
        """Append a type and those within it; its place."""
        at = len(self._made)
        self._names.append(name)
        self._made.append((0, 0, 0, -1, at + 1, False, b""))  # until those within it are there
        while isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
            schema = schema["type"]
        null_branch = -1
        if isinstance(schema, list) and len(schema) == 2 and schema.count("null") == 1:
            null_branch = schema.index("null")
            schema = schema[1 - null_branch]
        if isinstance(schema, list):
            for branch in schema:
                self._add(branch, "")
            self._set(at, "union", null_branch, most=len(schema))
        else:
            self._add_type(at, resolved(schema, self._named), null_branch)
        return at

    def _add_type(self, at: int, schema: Mapping[str, Any], null_branch: int) -> None:
        kind = kind_of(schema, math.inf)
        if kind == "record" and schema["name"] in self._records:
            self._is_recursive |= schema["name"] in self._open
            kind = "reference"
        has_empty_items = False
        if kind == "record":
            self._add_fields(at, schema)
        elif kind == "array":
            has_empty_items = self._add(schema["items"], "") in self._empty
        elif kind == "map":
            self._add("string", "")
            self._add(schema["values"], "")
        size = int(schema["size"]) if kind == "fixed" else SIZES.get(kind, 0)
        is_empty = kind == "null" or (kind == "fixed" and size == 0) or schema.get("name") in self._empty_records
        if null_branch < 0 and is_empty:
            self._empty.add(at)
        most = self._records[schema["name"]] if kind == "reference" else most_of(kind, schema)
        self._set(at, kind, null_branch, size, most, has_empty_items=has_empty_items, limit=limit_of(kind, schema))

    def _add_fields(self, at: int, schema: Mapping[str, Any]) -> None:
        self._records[schema["name"]] = at
        self._open.append(schema["name"])
        places = [self._add(field["type"], field["name"]) for field in schema["fields"]]
        self._open.pop()
        if self._empty.issuperset(places):
            self._empty_records.add(schema["name"])

    def _set(self, at: int, kind: str, null_branch: int, size: int = 0, most: int = 0, *, has_empty_items: bool = False, limit: bytes = b"") -> None:
        self._made[at] = (KINDS.index(kind), size, most, null_branch, len(self._made), has_empty_items, limit)
