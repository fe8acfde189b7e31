"""Schemas as fastavro is given them: they name functions of ours where its own would change a value.

fastavro finds a function by the type and the logical type. Ours have names that no schema has, and call those of the
same logical type, which users may have replaced.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Final

from pyclient.codec.avro_scan import float_of

OURS: Final = "pyclient-"
FLOAT: Final = OURS + "float"
PROMOTED: Final = OURS + "promoted"
MILLIS: Final = (("int", "time-millis"), ("long", "timestamp-millis"), ("long", "local-timestamp-millis"))


class Unfit:
    """In place of a value that a type would change; no validation takes it. *why* ends the sentence of the error."""

    def __init__(self, why: str) -> None:
        self.why: Final = why


def for_writing(parsed: Any, *, validate: bool) -> Any:
    """The schema to write with. *validate*: values that would be cut or become infinite are refused."""
    def leaf(schema: Any) -> Any:
        kind, logical = _of(schema)
        if kind == "float" and logical is None and validate:
            return {"type": "float", "logicalType": FLOAT}
        is_ours = (kind, logical) == ("int", "date") or (validate and (kind, logical) in MILLIS)
        return {**schema, "logicalType": f"{OURS}{logical}"} if is_ours else schema

    _add_functions()
    return _changed(parsed, leaf)


def for_promotion(parsed: Any) -> Any:
    """The writer's schema, if the reader's has floats: ints and longs become those of 32 bits."""
    def leaf(schema: Any) -> Any:
        kind, logical = _of(schema)
        return {"type": kind, "logicalType": PROMOTED} if kind in ("int", "long") and logical is None else schema

    _add_functions()
    return _changed(parsed, leaf)


def _of(schema: Any) -> tuple[Any, Any]:
    """Type and logical type."""
    return (schema["type"], schema.get("logicalType")) if isinstance(schema, Mapping) else (schema, None)


def _changed(schema: Any, leaf: Callable[[Any], Any]) -> Any:
    """The schema with *leaf* of each type in it."""
    if isinstance(schema, list):
        return [_changed(each, leaf) for each in schema]
    if not isinstance(schema, dict):
        return leaf(schema)
    made = dict(schema)
    if "fields" in made:
        made["fields"] = [{**field, "type": _changed(field["type"], leaf)} for field in made["fields"]]
    if "__named_schemas" in made:
        made["__named_schemas"] = {name: _changed(each, leaf) for name, each in made["__named_schemas"].items()}
    for part in ("items", "values"):
        if part in made:
            made[part] = _changed(made[part], leaf)
    if isinstance(made["type"], str):
        return leaf(made)
    return {**made, "type": _changed(made["type"], leaf)}


def _add_functions() -> None:
    """Let fastavro find ours; it has one table for the process."""
    from fastavro.read import LOGICAL_READERS
    from fastavro.write import LOGICAL_WRITERS

    if f"float-{FLOAT}" in LOGICAL_WRITERS:
        return
    for kind, logical in MILLIS:
        LOGICAL_WRITERS[f"{kind}-{OURS}{logical}"] = _millis(f"{kind}-{logical}", LOGICAL_WRITERS)
    LOGICAL_WRITERS[f"int-{OURS}date"] = _date(LOGICAL_WRITERS)
    LOGICAL_READERS[f"int-{PROMOTED}"] = LOGICAL_READERS[f"long-{PROMOTED}"] = _promoted
    LOGICAL_WRITERS[f"float-{FLOAT}"] = _float


def _millis(name: str, writers: Mapping[str, Callable[[Any, Any], Any]]) -> Callable[[Any, Any], Any]:
    def prepare(value: Any, schema: Any) -> Any:
        if getattr(value, "microsecond", 0) % 1000:
            return Unfit(f"has microseconds ({value}), which {name.partition('-')[2]} would cut")
        return writers[name](value, schema)

    return prepare


def _date(writers: Mapping[str, Callable[[Any, Any], Any]]) -> Callable[[Any, Any], Any]:
    def prepare(value: Any, schema: Any) -> Any:
        try:
            return writers["int-date"](value, schema)
        except ValueError:  # a text that is no date: perhaps of another type in a union
            return value

    return prepare


def _float(value: Any, _schema: Any) -> Any:
    if isinstance(value, Real):  # else perhaps of another type in a union
        try:
            struct.pack("<f", float(value))
        except OverflowError:
            return Unfit(f"is {value!r:.60}, beyond a float of 32 bits")
    return value


def _promoted(value: int, _writer: Any = None, reader: Any = None) -> Any:
    """An int or a long of the writer, as the reader's type."""
    wanted = reader["type"] if isinstance(reader, Mapping) else reader
    return float_of(value) if wanted == "float" else float(value) if wanted == "double" else value
