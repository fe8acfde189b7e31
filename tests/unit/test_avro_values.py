"""What compiled code writes of Avro is what fastavro writes, and what fastavro refuses is refused by the same error."""
from __future__ import annotations

import datetime
import decimal
import gc
import io
import sys
import threading
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.codec.avro_values import AvroPart
from pyclient.errors import ConfigurationError, SerializationError
from pyclient.serializers.avro import AvroSerde
from pyclient.serializers.avro_codec import AvroWriter
from pyclient.serializers.avro_parts import is_recursive, part_of
from pyclient.serializers.avro_schema import AvroSchema

NODE = {"type": "record", "name": "Node", "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"], "default": None}]}
LEAVES: tuple[Any, ...] = (
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", {"type": "string"},
    {"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"}, {"type": "string", "logicalType": "uuid"}, {"type": "long", "logicalType": "unknown"},
    {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2})
DEFAULTS: dict[Any, Any] = {"null": None, "boolean": True, "int": -3, "long": 2**40, "float": 1.5, "double": 0.1, "bytes": "\u00ff", "string": "é"}
moments = st.datetimes(datetime.datetime(1950, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(datetime.UTC))
scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-2**70, 2**70), st.sampled_from([0, 1, 2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**63 - 1, 2**63, -2**63]),
    st.floats(), st.floats(width=32), st.text(max_size=5), st.just("\ud800"), st.binary(max_size=4), st.sampled_from(["A", "B", b"abc", bytearray(b"abc")]),
    moments, st.dates(), st.times(), st.uuids(), st.decimals(-9999, 9999, places=2), st.just(decimal.Decimal("1.234")))
anything: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.sampled_from(["f0", "f1", "f2", "-type"]) | st.text(max_size=2), inner, max_size=4),
    max_leaves=8)


@st.composite
def schemas(draw: st.DrawFn, names: list[str], depth: int = 3) -> Any:
    """Any schema: unions of several types, logical types, defaults, and names that are used again."""
    kind = draw(st.sampled_from(["leaf", *(("record", "record", "array", "map", "union", "enum", "fixed", "name") if depth else ())]))
    if kind == "leaf" or (kind == "name" and not names):
        return draw(st.sampled_from(LEAVES))
    if kind == "name":
        return draw(st.sampled_from(names))
    if kind == "array":
        return {"type": "array", "items": draw(schemas(names, depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(names, depth - 1))}
    if kind == "union":
        return draw(st.lists(schemas(names, depth - 1), min_size=1, max_size=4))
    name = f"T{len(names)}"
    names.append(name)
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 3}
    return {"type": "record", "name": name, "fields": [draw(fields(names, depth, at)) for at in range(draw(st.integers(0, 3)))]}


@st.composite
def fields(draw: st.DrawFn, names: list[str], depth: int, at: int) -> dict[str, Any]:
    kind = draw(schemas(names, depth - 1))
    first = kind[0] if isinstance(kind, list) else kind
    has_default = isinstance(first, str) and first in DEFAULTS and draw(st.booleans())
    return {"name": f"f{at}", "type": kind, **({"default": DEFAULTS[first]} if has_default else {})}


def fitting(parsed: Any, named: dict[str, Any], depth: int = 5) -> st.SearchStrategy[Any]:
    """Values that mostly fit."""
    if isinstance(parsed, list):
        return st.one_of([fitting(each, named, depth - 1) for each in (parsed if depth > 0 else parsed[:1])])
    schema = parsed if isinstance(parsed, dict) else named.get(parsed, {"type": parsed})
    kind = schema["type"]
    if not isinstance(kind, str):
        return fitting(kind, named, depth)
    if kind in named and kind != schema.get("name"):
        return fitting(named[kind], named, depth)
    if kind == "record" and depth > 0:
        named.setdefault(schema["name"], schema)
        parts = {each["name"]: fitting(each["type"], named, depth - 1) for each in schema["fields"]}
        return st.fixed_dictionaries(parts) | st.fixed_dictionaries({}, optional=parts) | st.fixed_dictionaries({**parts, "extra": st.none()})
    if kind == "array":
        return st.lists(fitting(schema["items"], named, depth - 1), max_size=3)
    if kind == "map":
        return st.dictionaries(st.text(max_size=2), fitting(schema["values"], named, depth - 1), max_size=3)
    return scalars


def outcome_of(writer: AvroWriter, value: Any) -> tuple[str, object]:
    try:
        return "written", writer.encode(value, b"prefix")
    except SerializationError as error:
        return "refused", str(error)


def schema_of(source: Any) -> AvroSchema | None:
    try:
        return AvroSchema(source)
    except ConfigurationError:  # the generator makes unions of one type twice, which is not valid
        return None


@settings(deadline=None, max_examples=400)
@given(st.data(), st.booleans(), st.booleans())
def test_every_value_is_written_or_refused_as_fastavro_alone_does_it(data: st.DataObject, strict: bool, validate: bool) -> None:
    source = data.draw(schemas([]))
    schema = schema_of(source)
    if schema is None:
        return
    value = data.draw(fitting(schema.parsed, {}) | anything)
    writer, alone = (AvroWriter(schema, strict=strict, validate=validate) for _ in range(2))
    alone._quick = AvroPart(-1)  # type: ignore[misc]
    assert outcome_of(writer, value) == outcome_of(alone, value)
    if (quick := writer._quick.encode(value, b"")) is not None:
        from fastavro.validation import validate as validated

        assert validated(value, writer._parsed, raise_errors=False)
        assert quick == written_by_fastavro(writer._parsed, value)


def written_by_fastavro(schema: Any, value: Any) -> bytes:
    from fastavro import schemaless_writer

    out = io.BytesIO()
    schemaless_writer(out, schema.parsed if isinstance(schema, AvroSchema) else schema, value)
    return out.getvalue()


MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, 10_000, datetime.UTC)
COMMON: dict[str, tuple[Any, Any]] = {
    "numbers": (["null", "long"], 5), "the least long": ("long", -2**63), "a float": ("float", 1.5), "a text": ("string", "é" * 600), "bytes": ("bytes", b"\x00" * 2000),
    "a moment": ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT), "a moment or null": (["null", {"type": "long", "logicalType": "timestamp-micros"}], MOMENT),
    "a day": ({"type": "int", "logicalType": "date"}, MOMENT.date()), "a UUID": ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7)),
    "a decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, decimal.Decimal("-12.30")),
    "an enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"), "fixed": ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
    "many items": ({"type": "array", "items": "string"}, ["text"] * 500), "a map": ({"type": "map", "values": ["null", "double"]}, {"a": None, "b": 2.5}),
    "one of several types": (["null", "string", "long", {"type": "array", "items": "int"}], [1, 2]), "records inside each other": (NODE, {"v": 1, "next": {"v": 2, "next": None}}),
    "a default": (NODE, {"v": 1}), "null after the type": ([{"type": "int", "logicalType": "date"}, "null"], None)}


@pytest.mark.parametrize("name", COMMON)
def test_common_values_are_written_by_compiled_code(name: str) -> None:
    source, value = COMMON[name]
    schema = AvroSchema({"type": "record", "name": "R", "fields": [{"name": "f", "type": source}]})
    found = part_of(schema.parsed, strict=True).encode({"f": value}, b"head")
    assert found == b"head" + written_by_fastavro(schema, {"f": value})


@pytest.mark.parametrize(("source", "value"), [
    ([{"type": "array", "items": "int"}, "bytes"], b"ab"), (["float", "double"], 1.5), (["int", {"type": "long", "logicalType": "timestamp-millis"}], MOMENT),
    ([{"type": "record", "name": "A", "fields": []}, {"type": "record", "name": "B", "fields": [{"name": "b", "type": "int"}]}], {"b": 1}),
    ({"type": "float"}, 1e300), ("int", 2**31), ("long", 2**63), ("string", "\ud800")])
def test_what_is_not_certain_is_left_to_fastavro(source: Any, value: Any) -> None:
    schema = AvroSchema({"type": "record", "name": "R", "fields": [{"name": "f", "type": source}]})
    assert part_of(schema.parsed, strict=True).encode({"f": value}, b"") is None


def test_values_deeply_inside_each_other_do_not_overflow_the_stack() -> None:
    value: dict[str, Any] | None = None
    for at in range(50_000):
        value = {"v": at, "next": value}
    for validate in (True, False):
        with pytest.raises(SerializationError, match="more than 500 containers inside each other; the Avro schema Node is recursive"):
            AvroSerde(NODE, validate=validate).serialize("t", value)


@pytest.mark.parametrize("depth", [60, 70, 450])
def test_values_inside_each_other_are_written_by_the_compiled_code_and_beyond_its_depth_by_fastavro(depth: int) -> None:
    value: dict[str, Any] | None = None
    for at in range(depth):
        value = {"v": at, "next": value}
    assert AvroSerde(NODE).serialize("t", value) == written_by_fastavro(AvroSchema(NODE), value)


@pytest.mark.parametrize(("source", "is_one"), [
    (NODE, True), ("int", False), ({"type": "array", "items": NODE}, True), (["null", NODE], True),
    ({"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "fixed", "name": "F", "size": 1}}, {"name": "b", "type": "F"}]}, False)])
def test_only_a_type_that_holds_itself_is_recursive(source: Any, is_one: bool) -> None:
    assert is_recursive(AvroSchema(source).parsed) is is_one


def test_a_logical_type_that_the_user_adds_later_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastavro.write import LOGICAL_WRITERS

    serde = AvroSerde({"type": "record", "name": "R", "fields": [{"name": "f", "type": {"type": "long", "logicalType": "unknown"}}]})
    assert serde.serialize("t", {"f": 3}) == b"\x06"
    monkeypatch.setitem(LOGICAL_WRITERS, "long-unknown", lambda value, schema: value * 2)
    assert serde.serialize("t", {"f": 3}) == b"\x0c"


def test_types_that_use_others_twice_make_no_tree_of_all_their_uses() -> None:
    kind: Any = "int"
    for at in range(60):
        name = f"T{at}"
        kind = {"type": "record", "name": name, "fields": [{"name": "a", "type": kind}, {"name": "b", "type": f"T{at - 1}" if at else "int"}]}
    assert AvroSerde({"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", kind]}]}).serialize("t", {"f": None}) == b"\x00"


def test_writing_leaves_no_memory_and_no_references_behind() -> None:
    schema = AvroSchema({"type": "record", "name": "R", "fields": [{"name": "f", "type": {"type": "array", "items": ["null", "string", "int"]}}]})
    part, texts = part_of(schema.parsed, strict=True), ["text" * 300, 2**40, "".join("éü")]  # no others refer to them
    before = [sys.getrefcount(each) for each in texts]
    for value in ({"f": texts[:1] * 50}, {"f": texts}, {"f": texts[2:]}):
        for _ in range(20):
            part.encode(value, b"")
    gc.collect()
    del value
    assert [sys.getrefcount(each) for each in texts] == before


def test_a_list_that_another_thread_changes_does_not_break_the_data() -> None:
    serde, items, stop = AvroSerde({"type": "array", "items": {"type": "int", "logicalType": "date"}}), [MOMENT.date()] * 50, threading.Event()

    def change() -> None:
        while not stop.is_set():
            items.append(items[0])
            items.pop()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            found = serde.serialize("t", items)
            assert found is not None
            assert len(serde.deserialize("t", found)) in (50, 51)
    finally:
        stop.set()
        thread.join()
