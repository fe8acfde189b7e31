"""Avro schemas as trees of `AvroPart`, whose compiled code writes common values; fastavro writes all others.

Rule: what a part writes are the bytes that fastavro writes for the value, and fastavro's validation accepts it. Where
that is not certain of a type, values of it are left to fastavro.
"""
from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

from pyclient.codec.avro_program import KINDS
from pyclient.codec.avro_values import AvroPart
from pyclient.serializers.avro_logical import FLOAT

UNION: Final = KINDS.index("union")
OTHER: Final = -1
"""The kind of a part that takes no value."""
PRIMITIVES: Final = frozenset(KINDS[: KINDS.index("fixed")])
LEAVES: Final = PRIMITIVES | {"fixed", "enum"}


def part_of(parsed: Any, *, strict: bool) -> AvroPart:
    """The tree of a schema as fastavro parsed it. *strict*: records have no other fields than the schema's."""
    named = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
    return _Parts(named, strict).part(parsed)


def is_recursive(parsed: Any) -> bool:
    """Whether a type holds itself, so that the schema does not bound how deep values are."""
    named = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
    return _holds_itself(parsed, named, (), set())


def _holds_itself(schema: Any, named: dict[str, Any], within: tuple[str, ...], done: set[str]) -> bool:
    """*within* are the names of the types around it; *done* are those that were looked at."""
    if isinstance(schema, list):
        return any(_holds_itself(each, named, within, done) for each in schema)
    if not isinstance(schema, dict):
        return schema in within or (schema in named and schema not in done and _holds_itself(named[schema], named, within, done))
    if name := schema.get("name", ""):
        named[name] = schema
    parts = [each["type"] for each in schema.get("fields", ())] + [schema[part] for part in ("items", "values", "type") if part in schema]
    found = any(_holds_itself(part, named, (*within, name), done) for part in parts)
    done.add(name)
    return found


class _Parts:
    """Makes the parts of one schema; a named type is one part wherever it is used."""

    def __init__(self, named: dict[str, Any], strict: bool) -> None:
        self._named, self._strict = named, strict
        self._made: dict[str, AvroPart] = {}

    def part(self, schema: Any) -> AvroPart:
        if isinstance(schema, list):
            return self._union(schema)
        if not isinstance(schema, dict):
            return AvroPart(KINDS.index(schema)) if schema in PRIMITIVES else self._reference(schema)
        kind = schema["type"]
        if not isinstance(kind, str):
            return AvroPart(OTHER) if "logicalType" in schema else self.part(kind)
        if kind in LEAVES:
            return self._leaf(kind, schema)
        if "logicalType" in schema:
            return AvroPart(OTHER)
        return self._record(schema) if kind in ("record", "error") else self._container(kind, schema)

    def _reference(self, name: str) -> AvroPart:
        made = self._made.get(name)
        return self.part(self._named[name]) if made is None and name in self._named else made or AvroPart(OTHER)

    def _leaf(self, kind: str, schema: Mapping[str, Any]) -> AvroPart:
        from fastavro.write import LOGICAL_WRITERS

        symbols = {symbol: place for place, symbol in enumerate(schema["symbols"])} if kind == "enum" else None
        made = AvroPart(KINDS.index(kind), schema.get("size", 0), symbols=symbols)
        if schema.get("logicalType", FLOAT) != FLOAT:  # compiled code has the rule of floats itself
            made.converts(f"{kind}-{schema['logicalType']}", LOGICAL_WRITERS, schema)
        if "name" in schema:
            self._made[schema["name"]] = made
            self._named.setdefault(schema["name"], schema)
        return made

    def _container(self, kind: str, schema: Mapping[str, Any]) -> AvroPart:
        if kind not in ("array", "map"):
            return self._reference(kind)
        made = AvroPart(KINDS.index(kind))
        made.complete([self.part(schema["items" if kind == "array" else "values"])])
        return made

    def _record(self, schema: Mapping[str, Any]) -> AvroPart:
        made = self._made[schema["name"]] = AvroPart(KINDS.index("record"), is_strict=self._strict)
        self._named.setdefault(schema["name"], schema)
        fields = schema["fields"]
        parts = [self.part(field["type"]) for field in fields]
        made.complete(parts, [field["name"] for field in fields], [self._default(field) for field in fields])
        return made

    def _union(self, branches: list[Any]) -> AvroPart:
        made = AvroPart(UNION if self._is_clear(branches) else OTHER)
        made.complete([self.part(branch) for branch in branches])
        return made

    def _is_clear(self, branches: list[Any]) -> bool:
        """Whether fastavro takes the first branch that a value is exactly of.

        It is so beside null. Among several types it is not when logical types convert values, of several records (it
        takes the one with most fields), of bytes beside an array (they are sequences), and of float before double.
        """
        kinds = [self._kind(branch) for branch in branches]
        if len(branches) == 2 and "null" in kinds:
            return True
        if OTHER in kinds or sum(kind in ("record", "map") for kind in kinds) > 1 or ("array" in kinds and {"bytes", "fixed"} & {*kinds}):
            return False
        return not ("float" in kinds and "double" in kinds[kinds.index("float"):])

    def _kind(self, branch: Any) -> Any:
        """A branch's type; `OTHER` with a logical type, which converts values."""
        if isinstance(branch, str):
            return branch if branch in PRIMITIVES else self._kind(self._named[branch]) if branch in self._named else OTHER
        kind = branch["type"] if isinstance(branch, dict) else None
        if not isinstance(kind, str) or branch.get("logicalType", FLOAT) != FLOAT:
            return OTHER
        return "record" if kind == "error" else kind if kind in KINDS else OTHER

    def _default(self, field: Mapping[str, Any]) -> bytes | None:
        """As fastavro writes it where a value lacks the field; None: there is none, or it is not certain."""
        from fastavro import schemaless_writer
        from fastavro.validation import validate

        if "default" not in field:
            return None
        alone = {"type": "record", "name": "default", "fields": [field], "__named_schemas": self._named, "__fastavro_parsed": True}
        out = io.BytesIO()
        try:
            if not validate({}, alone, raise_errors=False):
                return None
            schemaless_writer(out, alone, {})
        except Exception:  # noqa: BLE001 whatever it is, fastavro raises it again for a value without the field
            return None
        return out.getvalue()
