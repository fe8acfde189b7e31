"""Avro without a registry: round trips, evolution as the reference implementation reads it, and hostile data."""
from __future__ import annotations

import contextlib
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.errors import ConfigurationError, SerializationError
from pyclient.serializers.avro import AvroSerde
from pyclient.codec.avro_scan import float_of
from pyclient.codec.avro_scan_program import MOST_NESTED
from pyclient.serializers.avro_schema import AvroSchema

NODE = {"type": "record", "name": "Node", "namespace": "org", "fields": [
    {"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"], "default": None}]}
ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
        {"name": "amount", "type": "int"}, {"name": "text", "type": "string"}]}}}]}
NUMBERS = ("int", "long", "float", "double")
floats = st.floats(width=32, allow_nan=False)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(), "boolean": st.booleans(), "int": st.integers(-(2**31), 2**31 - 1), "long": st.integers(-(2**63), 2**63 - 1),
    "float": floats, "double": floats, "bytes": st.binary(max_size=20), "string": st.text(max_size=20)}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2, name: str = "T") -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema and its values."""
    kind = draw(st.sampled_from([*PLAIN, *(("array", "map", "record", "union", "enum", "fixed") if depth else ())]))
    if kind in PLAIN:
        return kind, PLAIN[kind]
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from(["A", "B"])
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
    if kind == "record":
        parts = [draw(schemas(depth - 1, f"{name}{at}")) for at in range(draw(st.integers(0, 3)))]
        fields = [{"name": f"f{at}", "type": part[0]} for at, part in enumerate(parts)]
        return ({"type": "record", "name": name, "fields": fields},
                st.fixed_dictionaries({f"f{at}": part[1] for at, part in enumerate(parts)}))
    inner, values = draw(schemas(depth - 1, f"{name}x").filter(lambda made: kind != "union" or (made[0] != "null" and not isinstance(made[0], list))))
    if kind == "union":
        return ["null", inner], st.none() | values
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=5), values, max_size=4)


def written_by_the_reference(schema: AvroSchema, value: Any) -> bytes:
    import avro.io

    out = io.BytesIO()
    avro.io.DatumWriter(schema.reference).write(value, avro.io.BinaryEncoder(out))
    return out.getvalue()


def read_by_the_reference(writer: AvroSchema, reader: AvroSchema, data: bytes) -> Any:
    import avro.io

    return avro.io.DatumReader(writer.reference, reader.reference).read(avro.io.BinaryDecoder(io.BytesIO(data)))


@settings(deadline=None)
@given(st.data())
def test_values_come_back_and_their_bytes_are_those_of_the_reference(data: st.DataObject) -> None:
    source, values = data.draw(schemas())
    value = data.draw(values.filter(lambda each: each is not None)) if source != "null" else None
    serde = AvroSerde(source)
    written = serde.serialize("t", value)
    if value is None:
        assert written is None
        return
    assert written == written_by_the_reference(serde.schema, value)
    assert serde.deserialize("t", written) == value


@settings(deadline=None)
@given(st.data())
def test_damaged_data_raises_the_documented_error_or_is_data_of_the_schema(data: st.DataObject) -> None:
    source, values = data.draw(schemas())
    serde = AvroSerde(source)
    whole = serde.serialize("t", data.draw(values)) or b""
    at = data.draw(st.integers(0, max(0, len(whole) - 1)))
    damaged = whole[:at] + data.draw(st.binary(max_size=8)) + whole[data.draw(st.integers(at, len(whole))):]
    with contextlib.suppress(SerializationError):
        serde.deserialize("t", damaged)


@settings(deadline=None)
@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_numbers_are_promoted_exactly_where_the_reference_allows_it(data: st.DataObject, wrote: str, reads: str) -> None:
    writer, reader = AvroSchema(wrote), AvroSchema(reads)
    value = data.draw(PLAIN[wrote])
    serde = AvroSerde(reader, written_with=writer)
    raw = AvroSerde(writer).serialize("t", value)
    if reader.incompatibilities(writer):
        with pytest.raises(SerializationError, match="read as"):
            serde.deserialize("t", raw)
    else:
        assert raw is not None
        expected: Any = read_by_the_reference(writer, reader, raw)
        if reads in ("float", "double"):
            # the reference gives a long as it is, which a float may not hold
            expected = float_of(value) if reads == "float" and wrote in ("int", "long") else float(expected)
        assert serde.deserialize("t", raw) == expected


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


A = {"name": "a", "type": "int"}
COLOURS = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
EVOLUTIONS: dict[str, tuple[Any, Any, Any]] = {
    "a default fills a field that the writer lacks": (record(A), record(A, {"name": "b", "type": "string", "default": "x"}), {"a": 1}),
    "a default of a union": (record(A), record(A, {"name": "b", "type": ["null", "int"], "default": None}), {"a": 1}),
    "a default that is a record": (record(A), record(A, {"name": "b", "type": record(A, name="S"), "default": {"a": 7}}), {"a": 1}),
    "a field that the reader lacks is skipped": (record(A, {"name": "b", "type": {"type": "map", "values": "int"}}), record(A), {"a": 1, "b": {"k": 2}}),
    "fields in another order": (record(A, {"name": "b", "type": "string"}), record({"name": "b", "type": "string"}, A), {"a": 1, "b": "x"}),
    "a union becomes wider": (record({"name": "a", "type": ["null", "int"]}), record({"name": "a", "type": ["string", "null", "long"]}), {"a": 5}),
    "a type becomes a union": (record(A), record({"name": "a", "type": ["null", "int"]}), {"a": 5}),
    "an int in a union of double": (record(A), record({"name": "a", "type": ["null", "double"]}), {"a": 5}),
    "an enum has more symbols": (COLOURS, {**COLOURS, "symbols": ["BLUE", "GREEN", "RED"]}, "RED"),
    "a recursive type gets a field": (NODE, {**NODE, "fields": [*NODE["fields"], {"name": "x", "type": "int", "default": 3}]}, {"v": 1, "next": {"v": 2, "next": None}}),
}


@pytest.mark.parametrize("name", EVOLUTIONS)
def test_data_of_an_older_schema_is_read_as_the_reference_reads_it(name: str) -> None:
    writer, reader, value = EVOLUTIONS[name]
    wrote, reads = AvroSchema(writer), AvroSchema(reader)
    assert reads.incompatibilities(wrote) == []
    data = AvroSerde(wrote).serialize("t", value)
    assert data is not None
    assert AvroSerde(reads, written_with=wrote).deserialize("t", data) == read_by_the_reference(wrote, reads, data)


def test_items_of_arrays_are_promoted() -> None:
    # the reference implementation's reader refuses it, against its own compatibility check
    wrote, reads = ({"type": "array", "items": each} for each in ("int", "double"))
    assert AvroSerde(reads, written_with=wrote).deserialize("t", AvroSerde(wrote).serialize("t", [1, 2])) == [1.0, 2.0]


def test_text_is_read_as_bytes_and_bytes_as_text() -> None:
    # the specification promotes both; the reference implementation's reader refuses them
    assert AvroSerde("bytes", written_with="string").deserialize("t", b"\x04\xc3\xa9") == "é".encode()
    assert AvroSerde("string", written_with="bytes").deserialize("t", b"\x04\xc3\xa9") == "é"


def test_an_alias_reads_a_field_by_its_old_name() -> None:
    reader = record({"name": "new", "type": "int", "aliases": ["a"]})
    data = AvroSerde(record(A)).serialize("t", {"a": 4})
    assert AvroSerde(reader, written_with=record(A)).deserialize("t", data) == {"new": 4}


@pytest.mark.parametrize(("writer", "reader", "value"), [
    (record(A), record(A, {"name": "b", "type": "int"}), {"a": 1}),
    (record(A), record({"name": "a", "type": "string"}), {"a": 1}),
    (record({"name": "a", "type": ["null", "int"]}), record(A), {"a": None}),
])
def test_data_that_the_readers_schema_cannot_read_is_refused(writer: Any, reader: Any, value: Any) -> None:
    assert AvroSchema(reader).incompatibilities(AvroSchema(writer))
    data = AvroSerde(writer).serialize("t", value)
    with pytest.raises(SerializationError, match="read as R"):
        AvroSerde(reader, written_with=writer).deserialize("t", data)


@pytest.mark.parametrize(("value", "path"), [
    ({"id": 1, "lines": [{"amount": 1, "text": "a"}, {"amount": "x", "text": "b"}]}, "Line.amount is a str"),
    ({"id": 2**70, "lines": []}, "Order.id is an int"),
    ({"id": 1, "lines": [{"amount": 2**31, "text": "a"}]}, "Line.amount is an int"),
    ({"id": 1}, "lines"),
    ({"id": 1, "lines": [], "other": 1}, "other"),
    (7, "the value is an int"),
])
def test_a_value_that_does_not_fit_names_the_field(value: Any, path: str) -> None:
    with pytest.raises(SerializationError, match=path):
        AvroSerde(ORDER).serialize("orders", value)


def test_cut_data_names_the_field_where_it_ends() -> None:
    serde = AvroSerde(ORDER)
    data = serde.serialize("t", {"id": 1, "lines": [{"amount": 1, "text": "abc"}]})
    assert data is not None
    with pytest.raises(SerializationError, match=r"lines.\[0\].text: a length of 3 B, with 2 B left"):
        serde.deserialize("t", data[:-2])


def test_deep_data_of_a_recursive_schema_is_refused_before_the_stack_is_used_up() -> None:
    serde = AvroSerde(NODE)
    deepest = b"\x00\x02" * (MOST_NESTED - 1) + b"\x00\x00"
    assert serde.deserialize("t", deepest)["next"] is not None
    with pytest.raises(SerializationError, match="inside each other"):
        serde.deserialize("t", b"\x00\x02" * 500_000 + b"\x00\x00")


@pytest.mark.parametrize("items", ["null", record(), {"type": "fixed", "name": "F", "size": 0}, record({"name": "x", "type": "null"})])
def test_items_without_bytes_are_bounded(items: Any) -> None:
    with pytest.raises(SerializationError, match="take no bytes"):
        AvroSerde({"type": "array", "items": items}).deserialize("t", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00")


@pytest.mark.parametrize("data", [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a", b"\x01abc", b"\xff" * 20, b"", b"\x02", b"\x04\xff\xff"])
def test_lengths_that_lie_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match='not valid Avro data of "string"'):
        AvroSerde("string").deserialize("t", data)


def test_bytes_after_the_value_are_refused() -> None:
    with pytest.raises(SerializationError, match="1 B follow"):
        AvroSerde("int").deserialize("t", b"\x02\x02")


def test_single_object_encoding_finds_the_writers_schema_by_its_fingerprint() -> None:
    old, new = record(A), record(A, {"name": "b", "type": "int", "default": 9})
    data = AvroSerde(old, single_object=True).serialize("t", {"a": 3})
    assert data is not None
    assert data[:2] == b"\xc3\x01"
    assert AvroSerde(new, writers=[old], single_object=True).deserialize("t", data) == {"a": 3, "b": 9}
    with pytest.raises(SerializationError, match="unknown; add it to writers="):
        AvroSerde(new, single_object=True).deserialize("t", data)
    with pytest.raises(SerializationError, match="not in single-object encoding"):
        AvroSerde(new, single_object=True).deserialize("t", b"\x06")


def test_the_fingerprint_is_that_of_avros_specification() -> None:
    import fastavro.schema

    schema = AvroSchema(ORDER)
    canonical = fastavro.schema.to_parsing_canonical_form(schema.parsed)
    assert json.loads(canonical) == json.loads(schema.canonical)
    # the registered value of "null" in the specification's own test data
    assert AvroSchema("null").fingerprint.hex() == (7195948357588979594).to_bytes(8, "little", signed=True).hex()


def test_named_types_of_other_schemas_are_references() -> None:
    line = AvroSchema(record(A, name="Line"))
    order = AvroSchema(record({"name": "lines", "type": {"type": "array", "items": "Line"}}, name="Order"), references=[line])
    serde = AvroSerde(order)
    assert serde.deserialize("t", serde.serialize("t", {"lines": [{"a": 1}]})) == {"lines": [{"a": 1}]}
    with pytest.raises(ConfigurationError, match="Line"):
        AvroSchema(order.text)
    with pytest.raises(ConfigurationError, match="must be a record"):
        AvroSchema({"type": "array", "items": "Line"}, references=[line])


def test_a_schema_comes_from_a_file_and_is_pickled(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    assert pickle.loads(pickle.dumps(AvroSchema(path))).name == "Order"
    with pytest.raises(ConfigurationError, match="pathlib.Path"):
        AvroSchema("order.avsc")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        AvroSchema(tmp_path / "missing.avsc")


@pytest.mark.parametrize("wrong", ['{"type": "recor"}', "{}", "[", record({"name": "a", "type": "int", "default": "x"}), record(A, A)])
def test_a_schema_that_is_not_valid_is_refused_when_the_serde_is_made(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="Avro schema"):
        AvroSerde(wrong)


@pytest.mark.parametrize(("schema", "value"), [
    ("int", 1.5), ("int", True), ("int", 2**31), ("long", 2**63), ("boolean", 7), ("null", 1), ("double", True), ("double", "1"),
    ({"type": "array", "items": "int"}, [1, 2.5]), ({"type": "map", "values": "boolean"}, {"a": 1}), (["null", "int"], 1.5), (["int", "null"], 2**40),
])
def test_a_number_is_never_cut_or_turned_into_another_type(schema: Any, value: Any) -> None:
    with pytest.raises(SerializationError, match=r"is an? "):
        AvroSerde(record({"name": "a", "type": schema})).serialize("t", {"a": value})
