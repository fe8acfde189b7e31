"""Avro data becomes the Arrow columns that fastavro's values make, and damaged data becomes an error."""
from __future__ import annotations

import asyncio
import datetime
import decimal
import tracemalloc
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.buffers.records_view import RecordRun, Records
from pyclient.codec.avro_columns import AvroColumns
from pyclient.codec.avro_program import finished, node_of
from pyclient.codec.batches import read_batches
from pyclient.codec.encode import encode_batch
from pyclient.errors import ConfigurationError, SchemaRegistryUnavailableError, SerializationError
from pyclient.records import TopicPartition
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
    return Records([RecordRun(TopicPartition(topic, 3), batch, 0, batch.count) for batch in batches])


def plain(value: Any, kind: Any) -> Any:
    """What fastavro gives for a value of Arrow."""
    import pyarrow

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
    assert [kind for kind, _ in outcomes(serde, mixed)] == [kind for kind, _ in (outcome(serde, each) for each in mixed)]
    assert outcomes(serde, mixed) == [outcome(serde, each) for each in mixed]


@pytest.mark.parametrize(("source", "data", "why"), [
    ("string", b"\x04\xff\xfe", "the text is not UTF-8"),
    ("string", b"\x04\xc0\x80", "the text is not UTF-8"),
    ("string", b"\x06\xed\xa0\x80", "the text is not UTF-8"),
    ("string", b"\x08\xf4\x90\x80\x80", "the text is not UTF-8"),
    ("bytes", b"\x06\xff\xfe", "a length or count is negative or exceeds the data"),
    ("bytes", b"\xff\xff\xff\xff\x0f", "a length or count is negative or exceeds the data"),
    ("long", b"\xff" * 10, "a number is longer than its type"),
    ("int", b"\xff\xff\xff\xff\x1f", "a number is longer than its type"),
    ("int", b"\x02\x02", "bytes follow the value's end"),
    ("boolean", b"\x02", "the schema has no such branch or symbol"),
    (["null", "int"], b"\x04", "the schema has no such branch or symbol"),
    (LOGICAL["uuid"][0], b"\x48" + b"0" * 36, "the text is no UUID"),
    (LOGICAL["decimal"][0], b"\x0a\x0f\xff\xff\xff\xff", "the decimal has more digits than its precision"),
    (LOGICAL["decimal"][0], b"\x08\xc4\x65\x36\x00", "the decimal has more digits than its precision"),
    (LOGICAL["decimal"][0], b"\x28\x7f" + b"\xff" * 19, "the decimal has more digits than its precision"),
    (LOGICAL["time-millis"][0], b"\x01", "the time is not within a day"),
    (LOGICAL["time-millis"][0], b"\x80\xf0\xb2\x52", "the time is not within a day"),
    ({"type": "array", "items": "int"}, b"\x06\x02\x02", "a length or count is negative or exceeds the data"),
    ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01\x02\x00", "a length or count is negative or exceeds the data"),
    ({"type": "array", "items": "null"}, b"\x82\x80\x08\x00", "more than 65536 items that take no bytes"),
])
def test_what_is_wrong_is_said_with_topic_partition_and_offset(source: Any, data: bytes, why: str) -> None:
    field = {"type": "record", "name": "R", "fields": [{"name": "f", "type": source}]}
    good = AvroSerde("int").serialize("t", 7)
    records = records_of([None, data])
    with pytest.raises(SerializationError) as caught:
        records.to_arrow(value=AvroDecoder(AvroSerde(field)))
    assert caught.value.message == f"t-3, offset 101: not valid Avro data of R: {'' if 'follow' in why else 'f: '}{why}"
    assert caught.value.topic_partition == ("t", 3)
    assert caught.value.record == records[1]
    assert good is not None


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
    assert "memory_limit_bytes" in table["value_error"].to_pylist()[1]


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
    added = 0
    for turn in range(20_000):
        data = bytearray(whole) if turn % 5 == 0 else data
        data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        added += made.add(bytes(data))
    array = finished(node, made)
    array.validate(full=True)
    assert len(array) == added > 100
