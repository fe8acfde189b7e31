"""Avro data becomes the Arrow columns that fastavro's values make, and damaged data becomes an error."""
from __future__ import annotations

import asyncio
import datetime
import decimal
import tracemalloc
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.buffers.decoded_columns import decoded
from pyclient.buffers.record_run import RecordRun
from pyclient.buffers.records_view import Records
from pyclient.codec.avro_columns import AvroColumns, prefix_runs
from pyclient.codec.avro_program import finished, node_of
from pyclient.codec.avro_resolution import UnresolvedError, plan_of
from pyclient.codec.batches import read_batches
from pyclient.codec.encode import encode_batch
from pyclient.errors import ConfigurationError, SchemaRegistryError, SerializationError
from pyclient.records import OffsetAndMetadata, TopicPartition
from pyclient.serializers.avro import AvroSerde
from pyclient.serializers.avro_arrow import AvroDecoder
from pyclient.serializers.avro_schema import AvroSchema
from pyclient.serializers.registry import SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.testing import FakeSchemaRegistry
from tests.unit.test_avro import NODE, read_by_the_reference, schemas

HEX: Any = st.uuids()
UTC = datetime.UTC
LOGICAL: dict[str, tuple[dict[str, Any], st.SearchStrategy[Any]]] = {
    "date": ({"type": "int", "logicalType": "date"}, st.dates()),
    "time-millis": ({"type": "int", "logicalType": "time-millis"}, st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    "time-micros": ({"type": "long", "logicalType": "time-micros"}, st.times()),
    "timestamp-micros": ({"type": "long", "logicalType": "timestamp-micros"}, st.datetimes(timezones=st.just(UTC))),
    "local-timestamp-micros": ({"type": "long", "logicalType": "local-timestamp-micros"}, st.datetimes()),
    "uuid": ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: decimal.Decimal(n).scaleb(-2))),
    "wide decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 0},
                     st.integers(-(10**50) + 1, 10**50 - 1).map(lambda n: decimal.Decimal((n < 0, tuple(map(int, str(abs(n)))), 0)))),
    "decimal in fixed": ({"type": "fixed", "name": "Money", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 5},
                         st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: decimal.Decimal((n < 0, tuple(map(int, str(abs(n)))), -5)))),
}
WORD = st.text(max_size=5)


def records_of(values: Iterable[bytes | None], headers: Any = (), topic: str = "t") -> Records:
    """As a poll returns them, from partition 3 and offset 100 on."""
    batches = read_batches(encode_batch([(0, value, value, headers) for value in values], base_offset=100))
    for batch in batches:
        batch.open()
    tp = TopicPartition(topic, 3)
    return Records([RecordRun(tp, batch, 0, batch.count) for batch in batches], {tp: OffsetAndMetadata(100 + sum(batch.count for batch in batches))})


def plain(value: Any, kind: Any) -> Any:
    """What fastavro gives for a value of Arrow."""
    if value is None:
        return None
    if pyarrow.types.is_struct(kind):
        return {kind.field(at).name: plain(value[kind.field(at).name], kind.field(at).type) for at in range(kind.num_fields)}
    if pyarrow.types.is_map(kind):
        return {key: plain(each, kind.item_type) for key, each in value}
    return [plain(each, kind.value_type) for each in value] if pyarrow.types.is_list(kind) else value


def columns(serde: Any, data: list[bytes | None], **options: Any) -> list[Any]:
    table = records_of(data).to_arrow(value=AvroDecoder(serde, **options))
    table.validate(full=True)
    return [plain(value, table["value"].type) for value in table["value"].to_pylist()]


def as_text(value: Any) -> Any:
    """UUIDs as columns have them."""
    if isinstance(value, dict):
        return {name: as_text(each) for name, each in value.items()}
    return [as_text(each) for each in value] if isinstance(value, list) else str(value) if isinstance(value, uuid.UUID) else value


def outcome(serde: AvroSerde, data: bytes | None) -> tuple[str, Any]:
    """One record's value, or that there is none."""
    try:
        return "value", as_text(serde.deserialize("t", data))
    except SerializationError:
        return "error", None


def outcomes(serde: AvroSerde, data: list[bytes | None]) -> list[tuple[str, Any]]:
    """The same of columns."""
    table = records_of(data).to_arrow(value=AvroDecoder(serde, on_error="null"))
    table.validate(full=True)
    kind = table["value"].type
    return [("value" if error is None else "error", plain(value, kind))
            for value, error in zip(table["value"].to_pylist(), table["value_error"].to_pylist(), strict=True)]


@settings(deadline=None)
@given(st.data())
def test_columns_are_the_values_of_single_records_and_of_the_reference(data: st.DataObject) -> None:
    source, values = data.draw(schemas())
    serde = AvroSerde(source)
    written = [serde.serialize("t", value) for value in data.draw(st.lists(values, min_size=1, max_size=5))]
    expected = [serde.deserialize("t", each) for each in written]
    assert columns(serde, written) == expected
    assert [None if each is None else read_by_the_reference(serde.schema, serde.schema, each) for each in written] == expected


@settings(deadline=None)
@given(st.data())
def test_logical_types_are_the_values_of_single_records(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(LOGICAL)), min_size=1, max_size=4, unique=True))
    nulls = [data.draw(st.booleans()) for _ in names]
    serde = AvroSerde({"type": "record", "name": "R", "fields": [
        {"name": f"f{at}", "type": ["null", LOGICAL[name][0]] if nulls[at] else LOGICAL[name][0]} for at, name in enumerate(names)]})
    row = st.fixed_dictionaries({f"f{at}": st.none() | LOGICAL[name][1] if nulls[at] else LOGICAL[name][1] for at, name in enumerate(names)})
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    assert columns(serde, [serde.serialize("t", each) for each in rows]) == as_text(rows)


@settings(deadline=None)
@given(st.data())
def test_damaged_rows_are_errors_as_for_single_records_and_change_no_other_row(data: st.DataObject) -> None:
    source, values = data.draw(schemas())
    serde = AvroSerde(source)
    mixed: list[bytes | None] = []
    for value in data.draw(st.lists(values, min_size=1, max_size=4)):
        whole = serde.serialize("t", value) or b""
        at = data.draw(st.integers(0, len(whole)))
        mixed += [whole or None, whole[:at] + data.draw(st.binary(max_size=6)) + whole[data.draw(st.integers(at, len(whole))):]]
    assert repr(outcomes(serde, mixed)) == repr([outcome(serde, each) for each in mixed])  # NaN is not equal to itself


@pytest.mark.parametrize(("source", "data", "why"), [
    ("string", b"\x04\xff\xfe", "the text is not UTF-8"),
    ("string", b"\x04\xc0\x80", "the text is not UTF-8"),
    ("string", b"\x06\xed\xa0\x80", "the text is not UTF-8"),
    ("string", b"\x06\xe0\x80\x80", "the text is not UTF-8"),
    ("string", b"\x08\xf0\x80\x80\x80", "the text is not UTF-8"),
    ("string", b"\x02\xc3\xa9", "the text is not UTF-8"),
    ("double", b"\0" * 7, "the data ends too early"),
    ({"type": "fixed", "name": "F", "size": 3}, b"ab", "the data ends too early"),
    ("long", b"\xff" * 9 + b"\x02", "a number is longer than 64 bits"),
    ("long", b"\xff" * 3, "the data ends too early"),
    ("string", b"\x08\xf4\x90\x80\x80", "the text is not UTF-8"),
    ("bytes", b"\x06\xff\xfe", "a length of 3 B, with 2 B left"),
    ("bytes", b"\xff\xff\xff\xff\x0f", "a length of -2147483648 B, with 0 B left"),
    ("long", b"\xff" * 10, "a number is longer than 64 bits"),
    ("int", b"\xff\xff\xff\xff\x1f", "-4294967296 does not fit an int of 32 bits"),
    ("int", b"\x02\x02", "1 B follow the value's end"),
    (["null", "int"], b"\x04", "branch 2 of a union that has 2"),
    (["null", "int"], b"\x01", "branch -1 of a union that has 2"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01", "symbol -1 of an enum that has 2"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04", "symbol 2 of an enum that has 2"),
    (LOGICAL["uuid"][0], b"\x48" + b"0" * 36, "the text is no UUID"),
    (LOGICAL["decimal"][0], b"\x0a\x0f\xff\xff\xff\xff", "the decimal has more digits than its precision"),
    (LOGICAL["decimal"][0], b"\x08\xc4\x65\x36\x00", "the decimal has more digits than its precision"),
    (LOGICAL["decimal"][0], b"\x28\x7f" + b"\xff" * 19, "the decimal has more digits than its precision"),
    (LOGICAL["time-millis"][0], b"\x01", "the time -1 is not within a day"),
    (LOGICAL["time-millis"][0], b"\x80\xf0\xb2\x52", "the time 86400000 is not within a day"),
    ({"type": "array", "items": "int"}, b"\x06\x02\x02", "a count of 3 items, with 2 B left"),
    ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01\x02\x00", "a count of -9223372036854775808 items, with 1 B left"),
    ({"type": "array", "items": "string"}, b"\x04\x00\x02\xff\x00", "[1]: the text is not UTF-8"),
    ({"type": "map", "values": "string"}, b"\x02\x02\xff\x00\x00", "[0]: the text is not UTF-8"),
    ({"type": "array", "items": "null"}, b"\x82\x80\x08\x00", "more than 65536 items that take no bytes"),
])
def test_what_is_wrong_is_said_with_its_place_by_record_and_in_columns_alike(source: Any, data: bytes, why: str) -> None:
    serde = AvroSerde({"type": "record", "name": "R", "fields": [{"name": "f", "type": source}]})
    where = "" if "follow" in why else "f." if why.startswith("[") else "f: "
    records = records_of([None, data])
    with pytest.raises(SerializationError) as caught:
        records.to_arrow(value=AvroDecoder(serde))
    assert caught.value.message == f"t-3, offset 101: not valid Avro data of R: {where}{why}"
    assert caught.value.topic_partition == ("t", 3)
    assert caught.value.record == records[1]
    with pytest.raises(SerializationError) as caught:
        serde.deserialize("t", data)
    assert caught.value.message == f"topic 't': not valid Avro data of R: {where}{why}"


@pytest.mark.parametrize("place", range(25))
def test_one_byte_that_is_no_text_is_found_at_every_place_of_a_long_ascii_text(place: int) -> None:
    """ASCII is passed eight bytes at a time."""
    text = bytearray(b"x" * 25)
    text[place] = 0xFF
    made = outcomes(AvroSerde("string"), [bytes([50]) + b"x" * 25, bytes([50]) + text])
    assert [kind for kind, _ in made] == ["value", "error"]


def test_a_decimal_of_its_whole_precision_is_read() -> None:
    for number in (10**9 - 1, -(10**9) + 1):
        content = number.to_bytes(12, "big", signed=True)
        assert columns(AvroSerde(LOGICAL["decimal"][0]), [bytes([24]) + content]) == [decimal.Decimal(number).scaleb(-2)]


def test_items_that_take_no_bytes_take_no_memory() -> None:
    empty = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}, {"name": "f", "type": {"type": "fixed", "name": "F", "size": 0}}]}
    made = AvroColumns(node_of(AvroSchema({"type": "array", "items": empty}).parsed).program(), 100_000)
    for _ in range(1000):
        assert made.add(b"\x80\x80\x08\x00")  # 65,536 of them
    assert made.buffers(1)[0] == 65_536_000


def test_rows_beyond_the_memory_limit_are_refused() -> None:
    wide = {"type": "record", "name": "W", "fields": [{"name": f"f{at}", "type": "double"} for at in range(100)]}
    serde = AvroSerde({"type": "array", "items": ["null", wide]})
    hostile = b"\x80\xea\x30" + b"\0" * 400_000 + b"\0"  # 400,000 nulls: 320 MB of doubles
    tracemalloc.start()
    decoder = AvroDecoder(serde, on_error="null", memory_limit_bytes=50_000_000)
    table = records_of([serde.serialize("t", [None]), hostile, serde.serialize("t", [])]).to_arrow(value=decoder)
    assert tracemalloc.get_traced_memory()[1] < 60_000_000
    tracemalloc.stop()
    assert table["value"].to_pylist() == [[None], None, []]
    assert "memory_limit_bytes" in str(table["value_error"].to_pylist()[1])


@pytest.mark.parametrize("schema", [["int", "string"], NODE, {"type": "array", "items": ["null", "int", "long"]}])
def test_schemas_without_columns_are_refused(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="read record by record"):
        node_of(AvroSchema(schema).parsed)
    with pytest.raises(ConfigurationError, match="read record by record"):
        records_of([b"\x00"]).to_arrow(value=AvroDecoder(AvroSerde(schema)))


def test_bytes_changed_at_random_leave_sound_columns() -> None:
    import random

    rng = random.Random(24)
    source = {"type": "record", "name": "R", "fields": [
        {"name": "s", "type": ["string", "null"]}, {"name": "a", "type": {"type": "array", "items": {"type": "map", "values": ["null", LOGICAL["decimal"][0]]}}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}}, {"name": "u", "type": ["null", LOGICAL["uuid"][0]]}]}
    serde, node = AvroSerde(source), node_of(AvroSchema(source).parsed)
    made = AvroColumns(node.program(), 1 << 30)
    whole = serde.serialize("t", {"s": "é" * 3, "a": [{"k": decimal.Decimal("1.25"), "é": None}] * 3, "e": "Y", "u": uuid.UUID(int=7)}) or b""
    added, data = 0, bytearray()
    for turn in range(20_000):
        data = bytearray(whole) if turn % 5 == 0 else data
        data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        added += made.add(bytes(data))
    array = finished(node, made)
    array.validate(full=True)
    assert len(array) == added > 100


# --- schema evolution -----------------------------------------------------------------------------------------------

BECOMES: dict[str, list[Any]] = {
    "null": ["null"], "boolean": ["boolean"], "int": ["int", "long", "float", "double"], "long": ["long", "float", "double"],
    "float": ["float", "double"], "double": ["double"], "string": ["string", "bytes"], "bytes": ["bytes", "string"]}
DEFAULTS: list[tuple[Any, Any]] = [
    ("int", 7), ("string", "é"), (["null", "int"], None), ({"type": "array", "items": "int"}, [1, 2]), ("double", 1.5), ("boolean", True),
    ({"type": "map", "values": "string"}, {"k": "v"}), ({"type": "enum", "name": "D", "symbols": ["P", "Q"]}, "Q"),
    ({"type": "record", "name": "Inner", "fields": [{"name": "i", "type": "long"}, {"name": "j", "type": ["null", "string"]}]}, {"i": 3, "j": None})]


@st.composite
def readers(draw: st.DrawFn, writer: Any) -> Any:
    """A schema that reads data of *writer*, or some of it."""
    if isinstance(writer, str):
        made = draw(st.sampled_from(BECOMES[writer]))
    elif isinstance(writer, list):
        inner = draw(readers(writer[1]).filter(lambda made: not isinstance(made, list)))
        return [inner, "null"] if draw(st.booleans()) else inner if draw(st.integers(0, 3)) == 0 else ["null", inner]
    elif writer["type"] == "enum":
        made = {**writer, "symbols": draw(st.sampled_from([["A", "B"], ["B", "C", "A"], ["A"]]))}
    elif writer["type"] == "record":
        fields = [{**field, "type": draw(readers(field["type"]))} for field in writer["fields"] if draw(st.integers(0, 3))]
        for field in fields:
            if draw(st.booleans()):
                field.update(name="r" + field["name"], aliases=[field["name"]])
        if draw(st.booleans()):
            kind, default = draw(st.sampled_from(DEFAULTS))
            fields.append({"name": "added", "type": kind, "default": default})
        made = {**writer, "fields": draw(st.permutations(fields))}
    elif writer["type"] in ("array", "map"):
        part = "items" if writer["type"] == "array" else "values"
        made = {**writer, part: draw(readers(writer[part]))}
    else:
        made = writer
    is_nullable = made != "null" and draw(st.integers(0, 4)) == 0
    return ["null", made] if is_nullable else made


def unnamed_twice(schema: Any) -> bool:
    """Whether no type is defined twice, such as that of a default."""
    text = repr(schema)
    return all(text.count(f"'name': '{name}'") <= 1 for name in ("D", "Inner"))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_readers_schema_gives_the_columns_of_single_records(data: st.DataObject) -> None:
    source, values = data.draw(schemas())
    wanted = data.draw(readers(source).filter(unnamed_twice))
    writer = AvroSerde(source)
    serde = AvroSerde(wanted, written_with=source)
    written = [writer.serialize("t", value) for value in data.draw(st.lists(values, min_size=1, max_size=4))]
    assert outcomes(serde, written) == [outcome(serde, each) for each in written]


@pytest.mark.parametrize(("kind", "default", "value"), [
    ("bytes", "\u00ff\u0001", b"\xff\x01"), ({"type": "fixed", "name": "F", "size": 2}, "\u00e9\u0000", b"\xe9\0"),
    (LOGICAL["decimal"][0], "\u0001\u0000", decimal.Decimal("2.56")), (LOGICAL["date"][0], 1, datetime.date(1970, 1, 2)),
    ("float", 0.5, 0.5), ("long", -(2**63), -(2**63)), (["string", "null"], "text", "text"), ("null", None, None),
    ({"type": "record", "name": "D", "fields": [{"name": "i", "type": "int", "default": 5}, {"name": "j", "type": "int"}]}, {"j": 6}, {"i": 5, "j": 6})])
def test_defaults_are_those_of_the_specification(kind: Any, default: Any, value: Any) -> None:
    old: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = {**old, "fields": [{"name": "b", "type": kind, "default": default}, *old["fields"]]}
    serde = AvroSerde(new, written_with=old)
    assert columns(serde, [b"\x02", None, b"\x04"]) == [{"b": value, "a": 1}, None, {"b": value, "a": 2}]
    assert serde.deserialize("t", b"\x02") == {"b": value, "a": 1}
    one_by_one = {**old, "fields": [{"name": "a", "type": ["null", "int"]}]}
    assert columns(AvroSerde(new, written_with=one_by_one), [b"\x02\x02"]) == [{"b": value, "a": 1}]


def test_a_default_may_be_of_a_type_that_another_field_defines() -> None:
    old: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    inner = {"type": "record", "name": "S", "fields": [{"name": "s", "type": "bytes", "default": "\u00fe"}, {"name": "u", "type": ["int", "null"], "default": 3}]}
    new = {**old, "fields": [
        {"name": "x", "type": inner, "default": {}}, {"name": "y", "type": {"type": "array", "items": "S"}, "default": [{"s": "\u00ff", "u": None}]}]}
    expected = {"x": {"s": b"\xfe", "u": 3}, "y": [{"s": b"\xff", "u": None}]}
    serde = AvroSerde(new, written_with=old)
    assert columns(serde, [b"\x02"]) == [serde.deserialize("t", b"\x02")] == [expected]


def test_more_columns_than_any_data_has_are_refused() -> None:
    """Few lines of a schema can describe millions of columns."""
    fields: list[dict[str, Any]] = [{"name": f"f{at}", "type": "int"} for at in range(10)]
    for level in range(7):
        fields = [{"name": "first", "type": {"type": "record", "name": f"L{level}", "fields": fields}},
                  *({"name": f"f{at}", "type": f"L{level}"} for at in range(9))]
    with pytest.raises(ConfigurationError, match="more than 20000 columns"):
        node_of(AvroSchema({"type": "record", "name": "R", "fields": fields}).parsed)


def test_arrays_and_maps_may_come_in_blocks_with_their_size() -> None:
    items = AvroSerde({"type": "array", "items": "int"})
    assert columns(items, [b"\x03\x04\x02\x04\x02\x06\x00"]) == [[1, 2, 3]]
    assert columns(AvroSerde({"type": "map", "values": "int"}), [b"\x01\x06\x02a\x02\x02\x02b\x04\x00"]) == [{"a": 1, "b": 2}]


def test_errors_name_the_offset_also_in_slices_selections_and_later_chunks() -> None:
    serde, good = AvroSerde("int"), b"\x02"
    records = records_of([good, b"", good, good, b"\xff", good])
    for some in (records[2:], records.select([True, False, True, False, True, True])):
        with pytest.raises(SerializationError, match="t-3, offset 104"):
            some.to_arrow(value=AvroDecoder(serde))
    table = pyarrow.concat_tables([records[:1].to_arrow(), records[2:4].to_arrow(), records[4:].to_arrow()])
    rest = [records[0], *records[2:]]
    made = decoded(table, rest.__getitem__, None, AvroDecoder(serde, on_error="null"), headers=True)
    assert made["value"].to_pylist() == [1, 1, 1, None, 1]
    with pytest.raises(SerializationError, match="t-3, offset 104"):
        decoded(table, rest.__getitem__, None, AvroDecoder(serde), headers=True)


def test_rows_that_only_some_readers_take_are_read_one_by_one() -> None:
    old: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"]}, {"name": "u", "type": ["int", "string"]}]}
    new: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    serde = AvroSerde(new, written_with=old)
    writer = AvroSerde(old)
    data = [writer.serialize("t", {"a": 5, "u": "x"}), writer.serialize("t", {"a": None, "u": 1}), None, writer.serialize("t", {"a": 6, "u": 1})]
    table = records_of(data).to_arrow(value=AvroDecoder(serde, on_error="null"))
    assert table["value"].to_pylist() == [{"a": 5}, None, None, {"a": 6}]
    assert [error is not None for error in table["value_error"].to_pylist()] == [False, True, False, False]
    with pytest.raises(SerializationError, match="t-3, offset 101"):
        records_of(data).to_arrow(value=AvroDecoder(serde))


# --- several writers ------------------------------------------------------------------------------------------------

OLD: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X"]}}]}
NEW: dict[str, Any] = {"type": "record", "name": "R", "fields": [
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["Y", "X"]}}, {"name": "n", "type": "long", "default": 1}]}


@pytest.fixture
def registry() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as running:
        yield running


@pytest.fixture
def client(registry: FakeSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient(registry.url) as made:
        yield made


def test_single_objects_of_several_writers_come_back_in_their_order() -> None:
    old, new = AvroSerde(OLD, single_object=True), AvroSerde(NEW, single_object=True, writers=[OLD])
    data = [None, new.serialize("t", {"e": "Y", "n": 2}), old.serialize("t", {"e": "X"}), None, old.serialize("t", {"e": "X"}), None,
            new.serialize("t", {"e": "X", "n": 3}), b"\xc3\x01short", b"", b"\xc3\x01" + b"unknown!", None]
    table = records_of(data).to_arrow(value=AvroDecoder(new, on_error="null"))
    x = {"e": "X", "n": 1}
    assert table["value"].to_pylist() == [None, {"e": "Y", "n": 2}, x, None, x, None, {"e": "X", "n": 3}, None, None, None, None]
    assert [at for at, error in enumerate(table["value_error"].to_pylist()) if error] == [7, 8, 9]


def test_a_registrys_writers_are_read_as_the_given_schema_or_as_they_wrote(client: SchemaRegistryClient) -> None:
    old, new = AvroRegistrySerde(client, OLD), AvroRegistrySerde(client, NEW)
    data = [old.serialize("t", {"e": "X"}), new.serialize("t", {"e": "Y", "n": 2}), None, b"\0\0\0\0\x63\0", b"\x05"]
    table = records_of(data).to_arrow(value=AvroDecoder(AvroRegistrySerde(client, NEW), on_error="null"))
    assert table["value"].to_pylist() == [{"e": "X", "n": 1}, {"e": "Y", "n": 2}, None, None, None]
    errors = table["value_error"].to_pylist()
    assert errors[:3] == [None] * 3
    assert "99" in str(errors[3])
    assert "not written with a schema registry" in str(errors[4])
    as_written = AvroDecoder(AvroRegistrySerde(client))
    assert columns(AvroRegistrySerde(client), data[:1]) == [{"e": "X"}]
    with pytest.raises(SerializationError, match="give the serde a schema"):
        records_of(data[:2]).to_arrow(value=as_written)
    other = {**OLD, "fields": [{"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["Z", "X"]}}]}
    both = [data[0], AvroRegistrySerde(client, other, subject="record").serialize("t", {"e": "Z"}), data[0]]
    assert columns(AvroRegistrySerde(client), both) == [{"e": "X"}, {"e": "Z"}, {"e": "X"}]


def test_a_registry_that_does_not_answer_is_raised_even_where_errors_are_kept(registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    data = [AvroRegistrySerde(client, OLD).serialize("t", {"e": "X"})]
    registry.fail(401)
    with SchemaRegistryClient(registry.url) as other, pytest.raises(SchemaRegistryError):
        records_of(data).to_arrow(value=AvroDecoder(AvroRegistrySerde(other), on_error="null"))


def test_ids_in_headers_and_in_data_are_read_in_one_table(client: SchemaRegistryClient) -> None:
    within = AvroRegistrySerde(client, OLD).serialize("t", {"e": "X"})
    framed = AvroRegistrySerde(client, NEW, id_in="headers").serialize("t", {"e": "Y", "n": 4})
    batches = read_batches(encode_batch([
        (0, None, within, ()), (0, None, framed.data, framed.headers), (0, None, None, framed.headers), (0, None, framed.data, [(framed.headers[0][0], b"\x01no")]),
        (0, None, framed.data, [("other", None), *framed.headers])]))
    batches[0].open()
    records = Records([RecordRun(TopicPartition("t", 0), batches[0], 0, 5)])
    table = records.to_arrow(headers=False, value=AvroDecoder(AvroRegistrySerde(client, NEW), on_error="null"))
    assert table["value"].to_pylist() == [{"e": "X", "n": 1}, {"e": "Y", "n": 4}, None, None, {"e": "Y", "n": 4}]
    assert table["value_error"].to_pylist()[3]
    assert "headers" not in table.column_names


def test_a_registry_is_not_asked_for_tombstones(registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    registry.fail(401)
    records = records_of([None], [("__value_schema_id", b"\x01" + bytes(16))])
    assert records.to_arrow(value=AvroDecoder(AvroRegistrySerde(client)))["value"].to_pylist() == [None]


def test_plain_bytes_of_a_registry_have_no_length(client: SchemaRegistryClient) -> None:
    serde = AvroRegistrySerde(client, "bytes")
    values = [b"", b"abc", None, b"x" * 300]
    assert columns(serde, [serde.serialize("t", value) for value in values]) == values


def test_keys_are_decoded_by_their_own_subjects_beside_values(client: SchemaRegistryClient) -> None:
    decoder = AvroDecoder(AvroRegistrySerde(client, OLD))
    data = AvroRegistrySerde(client, OLD).serialize("t", {"e": "X"})
    table = records_of([data, None]).to_arrow(key=decoder, value=decoder)
    assert table["key"].to_pylist() == table["value"].to_pylist() == [{"e": "X"}, None]


def test_the_registry_is_never_asked_on_an_event_loop(registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    async def main() -> None:
        with pytest.raises(SerializationError, match=r"asyncio\.to_thread"):
            records.to_arrow(value=decoder)
        assert (await asyncio.to_thread(records.to_arrow, value=decoder))["value"].to_pylist() == [{"e": "X"}]
        assert records.to_arrow(value=decoder).num_rows == 1  # the schema is known by now

    records = records_of([AvroRegistrySerde(client, OLD).serialize("t", {"e": "X"})])
    with SchemaRegistryClient(registry.url) as other:
        decoder = AvroDecoder(AvroRegistrySerde(other), on_error="null")
        asyncio.run(main())


def test_no_records_have_the_readers_columns() -> None:
    table = Records().to_arrow(value=AvroDecoder(AvroSerde(OLD), on_error="null"))
    assert table.num_rows == 0
    assert str(table.schema.field("value").type) == "struct<e: dictionary<values=string, indices=int32, ordered=0>>"
    assert table.column_names[-3:] == ["value", "value_error", "headers"]


@pytest.mark.parametrize("options", [{"on_error": "skip"}, {"memory_limit_bytes": 0}])
def test_wrong_options_are_named(options: Any) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        AvroDecoder(AvroSerde("int"), **options)
    with pytest.raises(ConfigurationError, match="expected an AvroSerde"):
        AvroDecoder("int")  # type: ignore[arg-type]


# --- where plans and compiled code begin and end --------------------------------------------------------------------


def plan_between(writer: Any, reader: Any) -> Any:
    return plan_of(node_of(AvroSchema(writer).parsed), node_of(AvroSchema(reader).parsed))


def test_common_changes_of_schemas_need_no_reading_row_by_row() -> None:
    old = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "int"}, {"name": "gone", "type": "string"}, {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "l", "type": {"type": "array", "items": "float"}}]}
    new = {"type": "record", "name": "R", "fields": [
        {"name": "l", "type": {"type": "array", "items": ["null", "double"]}}, {"name": "b", "type": ["null", "long"], "aliases": ["a"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["Y", "X"]}}, {"name": "new", "type": "string", "default": "é"}]}
    assert plan_between(old, new).change is not None
    data = AvroSerde(old).serialize("t", {"a": 5, "gone": "x", "e": "X", "l": [0.5]})
    assert columns(AvroSerde(new, written_with=old), [data]) == [{"l": [0.5], "b": 5, "e": "X", "new": "é"}]


@pytest.mark.parametrize(("old", "new"), [
    (["null", "int"], "int"), (["null", "int"], "long"), ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, {"type": "enum", "name": "E", "symbols": ["X"]}),
    ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}), ("long", "int"), ("int", "string"),
    (LOGICAL["decimal"][0], {**LOGICAL["decimal"][0], "scale": 3}), ({"type": "enum", "name": "E", "symbols": ["X"]}, {"type": "enum", "name": "G", "symbols": ["X"]}),
])
def test_what_depends_on_the_row_has_no_plan(old: Any, new: Any) -> None:
    with pytest.raises(UnresolvedError):
        plan_between(old, new)


def test_a_field_that_two_fields_of_the_reader_claim_is_read_as_for_single_records() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "f", "type": "bytes"}]}
    new = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "string", "aliases": ["f"], "default": "x"}, {"name": "b", "type": "bytes", "aliases": ["f"], "default": "y"}]}
    serde = AvroSerde(new, written_with=old)
    assert outcomes(serde, [b"\x02z"]) == [outcome(serde, b"\x02z")]


def test_null_may_be_the_second_branch() -> None:
    serde = AvroSerde({"type": "array", "items": ["string", "null"]})
    data = serde.serialize("t", ["a", None, ""])
    assert data == b"\x06\x00\x02a\x02\x00\x00\x00"
    assert columns(serde, [data]) == [["a", None, ""]]


def test_runs_of_prefixes_hold_no_byte_of_another_row() -> None:
    array = pyarrow.array([None, b"\0\0\0\0\1a", b"\0\0\0\0\1", None, b"\0\0", b"\0\0\0\0\2b", b"", None], pyarrow.binary())
    valid, offsets, data = (buffer.address for buffer in array.buffers() if buffer is not None)
    assert prefix_runs(offsets, data, valid, 0, 8, 5) == [(4, b"\0\0\0\0\1"), (5, b"\0\0"), (6, b"\0\0\0\0\2"), (8, b"")]
    assert prefix_runs(offsets, data, valid, 7, 8, 5) == [(8, None)]
    assert prefix_runs(offsets, data, valid, 0, 8, 0) == [(8, b"")]
