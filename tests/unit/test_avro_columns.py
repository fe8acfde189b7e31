"""Avro data becomes the Arrow columns that fastavro's values make, and damaged data becomes an error."""
from __future__ import annotations

import io
import random
from typing import Any

import fastavro
import pytest

from pyclient.codec.avro_columns import AvroColumns
from pyclient.codec.avro_program import AvroProgram
from pyclient.errors import ConfigurationError

ADDRESS = {"type": "record", "name": "A", "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "int"]}]}
SCHEMA = {"type": "record", "name": "R", "namespace": "n", "fields": [
    {"name": "b", "type": "boolean"}, {"name": "l", "type": "long"}, {"name": "d", "type": "double"}, {"name": "n", "type": "null"},
    {"name": "s", "type": ["string", "null"]}, {"name": "f", "type": ["null", {"type": "fixed", "name": "F", "size": 3}]},
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}}, {"name": "a", "type": ["null", ADDRESS]},
    {"name": "many", "type": {"type": "array", "items": "n.A"}}, {"name": "m", "type": {"type": "map", "values": ["null", "bytes"]}}]}


def some(rng: random.Random) -> dict[str, Any]:
    def address() -> dict[str, Any]:
        return {"city": "é" * rng.randrange(4), "zip": rng.choice([None, -2**31, 7])}
    return {"b": rng.random() < .5, "l": rng.choice([-2**63, 2**63 - 1, 0, 64]), "d": rng.random(), "n": None,
            "s": rng.choice([None, "", "text"]), "f": rng.choice([None, b"abc"]), "e": rng.choice("XY"),
            "a": rng.choice([None, address()]), "many": [address() for _ in range(rng.randrange(4))],
            "m": {str(i): rng.choice([None, b"", b"v"]) for i in range(rng.randrange(3))}}


def encoded(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), value)
    return out.getvalue()


def as_python(program: AvroProgram, columns: AvroColumns) -> list[Any]:
    array = program.array(columns)
    array.validate(full=True)
    rows: list[Any] = array.to_pylist()
    for row in rows:
        if row is not None:
            row["m"] = dict(row["m"])
    return rows


def test_columns_are_fastavros_values_and_damaged_rows_leave_no_trace() -> None:
    rng = random.Random(23)
    values = [some(rng) for _ in range(300)]
    program = AvroProgram(SCHEMA)
    columns = AvroColumns(program.nodes)
    expected: list[Any] = []
    for value in values:
        data = encoded(value)
        assert columns.add(data[:rng.randrange(len(data))]), "a row cut short"
        assert columns.add(data + b"\0") == "has bytes left over"
        assert columns.add(data) == ""
        columns.add_null()
        expected += [value, None]
    assert as_python(program, columns) == expected


def test_bytes_changed_at_random_leave_sound_columns() -> None:
    rng = random.Random(24)
    program = AvroProgram(SCHEMA)
    columns = AvroColumns(program.nodes)
    data = bytearray()
    for turn in range(20_000):
        data = bytearray(encoded(some(rng))) if turn % 20 == 0 else data
        data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        columns.add(bytes(data))
    program.array(columns).validate()


@pytest.mark.parametrize("data", [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff" * 9 + b"\x01\x00", b"\x80" * 11])
def test_counts_that_lie_are_refused(data: bytes) -> None:
    columns = AvroColumns(AvroProgram({"type": "array", "items": "null"}).nodes)
    assert columns.add(data)
    assert columns.buffers(1)[0] == 0


@pytest.mark.parametrize("schema", [
    ["int", "string"], {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}])
def test_schemas_without_columns_are_refused(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="value"):
        AvroProgram(schema)
