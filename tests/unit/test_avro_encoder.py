"""Arrow columns become the Avro data of single records; what does not fit the schema is refused by its field."""
from __future__ import annotations

import asyncio
import decimal
import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer
from pyclient.codec.avro_input import AvroInput
from pyclient.codec.avro_program import arrow_type, node_of
from pyclient.codec.avro_rows import AvroRows
from pyclient.errors import ConfigurationError, SerializationError
from pyclient.records import TopicPartition
from pyclient.serializers.avro import AvroSerde
from pyclient.serializers.avro_arrow import AvroDecoder, AvroEncoder
from pyclient.serializers.avro_schema import AvroSchema
from pyclient.serializers.registry import SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.testing import FakeCluster, FakeSchemaRegistry
from tests.unit.test_avro import schemas
from tests.unit.test_avro_columns import LOGICAL, records_of

ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "default": "NEW"}]}


def encoded(serde: Any, array: Any) -> list[bytes | None]:
    encoder = AvroEncoder(serde)
    encoder.prepare("t", is_key=False)
    found: list[bytes | None] = encoder.encode(array, topics=["t"], places=None, first=0, is_key=False).to_pylist()
    return found


def of(source: Any, rows: list[Any]) -> Any:
    """Rows as a record with the field f, in the columns of the schema."""
    return pyarrow.array([{"f": row} for row in rows], arrow_type(node_of(record(source).schema.parsed)))


def record(source: Any) -> AvroSerde:
    return AvroSerde({"type": "record", "name": "R", "fields": [{"name": "f", "type": source}]})


def plain(value: Any) -> Any:
    """A map as pyarrow takes it, a UUID as text."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else str(value) if isinstance(value, uuid.UUID) else value


@settings(deadline=None)
@given(st.data())
def test_columns_are_encoded_as_single_records_are_also_from_the_middle_of_an_array(data: st.DataObject) -> None:
    source, values = data.draw(schemas())
    serde = AvroSerde(source)
    written = [serde.serialize("t", value) for value in data.draw(st.lists(values, min_size=1, max_size=5))]
    array = records_of(written).to_arrow(value=AvroDecoder(serde))["value"].combine_chunks()
    first = data.draw(st.integers(0, len(written)))
    assert encoded(serde, array.slice(first)) == written[first:]


@settings(deadline=None, max_examples=50)
@given(st.data(), st.sampled_from(sorted(LOGICAL)))
def test_logical_types_are_encoded_as_single_records_are(data: st.DataObject, name: str) -> None:
    kind, values = LOGICAL[name]
    rows = data.draw(st.lists(values, min_size=1, max_size=4))
    serde = record(kind)
    assert encoded(serde, of(kind, plain(rows))) == [serde.serialize("t", {"f": row}) for row in rows]


@pytest.mark.parametrize(("source", "array"), [
    ("long", pyarrow.array([1, 2], pyarrow.int8())), ("int", pyarrow.array([1, 2], pyarrow.uint64())), ("double", pyarrow.array([1.5, 2], pyarrow.float32())),
    ("float", pyarrow.array([1, 2], pyarrow.int64())), ("string", pyarrow.array(["a", "bé"], pyarrow.large_string())),
    ("string", pyarrow.array(["a", "b"]).dictionary_encode()), ("string", pyarrow.array(["a", "b" * 20], pyarrow.string_view())),
    ("bytes", pyarrow.array([b"a", b"bc"], pyarrow.large_binary())), ("bytes", pyarrow.array([b"ab", b"bc"], pyarrow.binary(2))),
    ({"type": "fixed", "name": "F", "size": 2}, pyarrow.array([b"ab", b"bc"], pyarrow.binary())),
    ({"type": "enum", "name": "E", "symbols": ["b", "a"]}, pyarrow.array(["a", "b"])),
    ({"type": "array", "items": "int"}, pyarrow.array([[1], [2, 3]], pyarrow.large_list(pyarrow.int64()))),
    ({"type": "array", "items": "int"}, pyarrow.array([[1, 4], [2, 3]], pyarrow.list_(pyarrow.int32(), 2))),
    (LOGICAL["decimal"][0], pyarrow.array([decimal.Decimal("1.5"), decimal.Decimal(-2)], pyarrow.decimal128(20, 1))),
    (["null", "int"], pyarrow.array([None, 2], pyarrow.int64())), (["int", "null"], pyarrow.array([None, 2])), (["null", "string"], pyarrow.nulls(2)), ("null", pyarrow.nulls(2)),
])
def test_types_that_hold_the_same_values_fit(source: Any, array: Any) -> None:
    serde = record(source)
    rows = [{"f": value} for value in array.to_pylist()]
    assert encoded(serde, pyarrow.StructArray.from_arrays([array], ["f"])) == [serde.serialize("t", row) for row in rows]


@pytest.mark.parametrize(("source", "array", "why"), [
    ("int", pyarrow.array([1, 2**40]), "column 'value', row 101: f is int64, and does not fit int32"),
    ({"type": "array", "items": "int"}, pyarrow.array([[1], [], [3, 4], [2, 2**40], [2**40]]).slice(1), r"column 'value', row 102: f\.\[\] is int64, and does not"),
    ("int", pyarrow.array(["1"]), "^column 'value': f is string, not int32: cast it first"),
    ("long", pyarrow.array([1.0]), "f is double, not int64: cast it first"),
    ("string", pyarrow.array([b"x"]), "f is binary, not string: cast it first"),
    ("bytes", pyarrow.array(["x"]), "f is string, not binary: cast it first"),
    ("boolean", pyarrow.array([1]), "f is int64, not bool: cast it first"),
    ("int", pyarrow.array([1, None]), "row 101: f is null, which the schema does not allow"),
    ("null", pyarrow.array([1]), "f is int64 with values, and null in the schema"),
    ({"type": "fixed", "name": "F", "size": 2}, pyarrow.array([b"abc"]), "f is binary, and does not fit"),
    ({"type": "enum", "name": "E", "symbols": ["a"]}, pyarrow.array(["a", "z"]), "column 'value', row 101: f has 'z', which is no symbol of the enum"),
    ({"type": "enum", "name": "E", "symbols": ["a"]}, pyarrow.array([0]), "f is int64, not strings"),
    ({"type": "array", "items": "int"}, pyarrow.array([1]), "f is int64, not a list"),
    ({"type": "array", "items": "int"}, pyarrow.array([[1, 4], [2]], pyarrow.list_view(pyarrow.int32())), "f is list_view"),
    ({"type": "array", "items": "int"}, pyarrow.array([[1], [None]]), r"row 101: f\.\[\] is null"),
    ({"type": "map", "values": "int"}, pyarrow.array([{"a": 1}]), "not a map"),
    (ORDER, pyarrow.array([1]), "f is int64, not a struct"),
    (ORDER, pyarrow.array([{"note": "x"}]), r"f\.id is missing, and has no default"),
    (ORDER, pyarrow.array([{"id": 1, "x": 2}]), "f has the field 'x', which the schema does not have"),
    (LOGICAL["decimal"][0], pyarrow.array([decimal.Decimal("1.555")]), "does not fit decimal128"),
    (LOGICAL["uuid"][0], pyarrow.array(["x"]), "row 100: f is no UUID"),
    (LOGICAL["time-millis"][0], pyarrow.array([-1], pyarrow.int32()), "f is int32, not time32"),
    (LOGICAL["time-millis"][0], pyarrow.array([90_000_000], pyarrow.int32()).view(pyarrow.time32("ms")), "f is not within a day"),
    (LOGICAL["timestamp-micros"][0], pyarrow.array([1], pyarrow.timestamp("us")), r"f is timestamp\[us\], not timestamp\[us, tz=UTC\]: cast it first"),
    (LOGICAL["timestamp-micros"][0], pyarrow.array([1], pyarrow.timestamp("ns", "UTC")), "does not fit timestamp"),
])
def test_what_does_not_fit_is_refused_with_its_field_and_row(source: Any, array: Any, why: str) -> None:
    encoder = AvroEncoder(record(source))
    encoder.prepare("t", is_key=False)
    with pytest.raises(SerializationError, match=why):
        encoder.encode(pyarrow.StructArray.from_arrays([array], ["f"]), topics=["t"], places=None, first=100, is_key=False)


def test_missing_fields_get_their_defaults_and_others_are_left_out_when_not_strict() -> None:
    array = pyarrow.array([{"x": 1.5, "id": 7}, None, {"x": 2.5, "id": 8}])
    assert encoded(AvroSerde(ORDER, strict=False), array) == [
        AvroSerde(ORDER).serialize("t", {"id": 7}), None, AvroSerde(ORDER).serialize("t", {"id": 8})]


@pytest.mark.parametrize(("array", "at", "number"), [
    (pyarrow.array(["abc", "de"]), 4, 6), (pyarrow.array(["abc", "de"]), 4, -1), (pyarrow.array([[1, 2], [3]]), 8, 4), (pyarrow.array([[1, 2], [3]]), 0, 3)])
def test_offsets_that_change_behind_the_checks_read_no_other_memory(array: Any, at: int, number: int) -> None:
    memory = bytearray(array.buffers()[1].to_pybytes())
    is_text = pyarrow.types.is_string(array.type)
    writable = pyarrow.Array.from_buffers(
        array.type, 2, [None, pyarrow.py_buffer(memory), *array.buffers()[2 : 2 + is_text]], children=None if is_text else [array.values])
    node = node_of(AvroSchema("string" if is_text else {"type": "array", "items": "long"}).parsed)
    fitted = AvroInput(node, writable, strict=True)
    struct.pack_into("<i", memory, at, number)
    rows = AvroRows(node.program(), fitted.buffers, 2)
    assert rows.write(2, b"") < 2
    assert "damaged" in rows.fault


def test_schemas_without_columns_and_other_serdes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="unions of null and one other type"):
        AvroEncoder(AvroSerde(["int", "string"])).prepare("t", is_key=False)
    with pytest.raises(ConfigurationError, match="expected an AvroSerde"):
        AvroEncoder("int")  # type: ignore[arg-type]
    assert AvroSchema(ORDER).name == "Order"


# --- producers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as made:
        for topic in ("orders", "bills"):
            made.create_topic(topic)
        yield made


@pytest.fixture
def registry() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as running:
        yield running


ROWS = [{"id": 1, "note": "a", "state": "PAID"}, None, {"id": 2, "note": None, "state": "NEW"}]


def stored(cluster: FakeCluster, topic: str = "orders") -> list[bytes | None]:
    return [each.value for each in cluster.records(topic)]


@pytest.mark.parametrize("options", [{}, {"key_serializer": "string"}])
def test_columns_are_sent_to_each_topic_with_its_schema_and_come_back(cluster: FakeCluster, registry: FakeSchemaRegistry, options: Any) -> None:
    table = pyarrow.table({"body": ROWS * 2, "key": list("abcdef"), "to": ["bills", None, None, "orders", "bills", "orders"]})
    with (SchemaRegistryClient(registry.url) as client, Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer):
        serde = AvroRegistrySerde(client, ORDER)
        producer.send_arrow("orders", table, value=AvroEncoder(serde, "body"), topic_column="to").result(10)
        assert stored(cluster) == [serde.serialize("orders", row) for row in (None, ROWS[2], ROWS[0], ROWS[2])]
        assert stored(cluster, "bills") == [serde.serialize("bills", row) for row in (ROWS[0], None)]
        assert sorted(client.subjects()) == ["bills-value", "orders-value"]
        with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            consumer.seek_to_beginning()
            read = consumer.poll(10).to_arrow(value=AvroDecoder(AvroRegistrySerde(client)))
    assert read["value"].to_pylist() == [None, ROWS[2], ROWS[0], ROWS[2]]


def test_rows_without_a_topic_are_refused_and_the_others_sent(cluster: FakeCluster) -> None:
    table = pyarrow.table({"value": ROWS, "to": ["bills", "bills", None]})
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        failed = producer.send_arrow(None, table, value=AvroEncoder(AvroSerde(ORDER)), topic_column="to").exception(10)
    assert failed is not None
    assert list(failed.errors) == [2]
    assert stored(cluster, "bills") == [AvroSerde(ORDER).serialize("t", ROWS[0]), None]


def test_a_row_that_does_not_fit_is_raised_before_any_of_its_rows_is_queued(cluster: FakeCluster) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        table = pyarrow.table({"value": [{"id": 1}, {"id": None}]})
        with pytest.raises(SerializationError, match="column 'value', row 1: id is null"):
            producer.send_arrow("orders", table, value=AvroEncoder(AvroSerde(ORDER)))
        with pytest.raises(ValueError, match="no column 'value'"):
            producer.send_arrow("orders", pyarrow.table({"key": ["x"]}), value=AvroEncoder(AvroSerde(ORDER)))
        with pytest.raises(TypeError, match="expected a column's name"):
            producer.send_arrow("orders", table, value=AvroSerde(ORDER))  # type: ignore[arg-type]
    assert stored(cluster) == []


def test_a_bad_row_leaves_the_rows_encoded_before_it_queued_and_a_note_has_where_to_go_on(cluster: FakeCluster) -> None:
    rows: Any = pyarrow.chunked_array([[{"id": 1}, {"id": 2}], [{"id": 3}, {"id": None}]])
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(SerializationError, match="column 'body', row 3: id is null") as raised:
            producer.send_arrow("orders", pyarrow.table({"body": rows}), value=AvroEncoder(AvroSerde(ORDER), "body"))
        producer.flush()
    assert "2" in raised.value.__notes__[0]
    assert len(stored(cluster)) == 2


@pytest.mark.parametrize("options", [{}, {"key_serializer": "string"}])
@pytest.mark.parametrize("headers", [None, [[{"key": "own", "value": b"1"}], None, [], [{"key": "own", "value": b"2"}]]])
def test_ids_in_headers_are_added_to_the_rows_own_headers_but_not_to_tombstones(
        cluster: FakeCluster, registry: FakeSchemaRegistry, options: Any, headers: Any) -> None:
    rows, own = [ROWS[0], None, ROWS[2], ROWS[0]], [[(each["key"], each["value"]) for each in row or ()] for row in headers or [None] * 4]
    kind = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
    columns: dict[str, Any] = {"value": rows, "to": ["bills", None, None, "bills"], **({} if headers is None else {"headers": pyarrow.array(headers, kind)})}
    with SchemaRegistryClient(registry.url) as client, Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        serde = AvroRegistrySerde(client, ORDER, id_in="headers")
        producer.send_arrow("orders", pyarrow.table(columns), value=AvroEncoder(serde), topic_column="to").result(10)
        framed = [serde.serialize("orders", ROWS[2]), serde.serialize("bills", ROWS[0])]
        with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition("orders", 0), TopicPartition("bills", 0)])
            consumer.seek_to_beginning()
            read: dict[str, list[Any]] = {"orders": [], "bills": []}
            while sum(map(len, read.values())) < 4:
                for record in consumer.poll(10):
                    read[record.topic].append(record)
    assert [(each.value, list(each.headers)) for each in read["orders"]] == [(None, own[1]), (framed[0].data, [*own[2], *framed[0].headers])]
    assert [(each.value, list(each.headers)) for each in read["bills"]] == [
        (framed[1].data, [*own[0], *framed[1].headers]), (framed[1].data, [*own[3], *framed[1].headers])]


def test_a_damaged_column_of_headers_is_refused_before_headers_are_added(cluster: FakeCluster, registry: FakeSchemaRegistry) -> None:
    pair = pyarrow.StructArray.from_arrays([pyarrow.array(["a"]), pyarrow.array([b"1"])], ["key", "value"])
    beyond = pyarrow.Array.from_buffers(pyarrow.list_(pair.type), 2, [None, pyarrow.array([0, 7, 1], pyarrow.int32()).buffers()[1]], children=[pair])
    table = pyarrow.table({"value": [ROWS[0]] * 2, "headers": beyond})
    with SchemaRegistryClient(registry.url) as client, Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        encoder = AvroEncoder(AvroRegistrySerde(client, ORDER, id_in="headers"))
        with pytest.raises(ValueError, match="damaged"):
            producer.send_arrow("orders", table, value=encoder)
    assert stored(cluster) == []


def test_a_serializer_beside_an_encoder_of_the_same_part_is_refused(cluster: FakeCluster) -> None:
    with (Producer(bootstrap_servers=cluster.bootstrap_servers, value_serializer="json") as producer,
          pytest.raises(ConfigurationError, match="value_serializer")):
        producer.send_arrow("orders", pyarrow.table({"value": ROWS}), value=AvroEncoder(AvroSerde(ORDER)))


def test_async_producers_ask_the_registry_outside_of_their_loop(cluster: FakeCluster, registry: FakeSchemaRegistry) -> None:
    """The loop goes on while the registry is slow."""
    async def main() -> None:
        with SchemaRegistryClient(registry.url) as client:
            encoder = AvroEncoder(AvroRegistrySerde(client, ORDER))
            async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                sending = asyncio.ensure_future(producer.send_arrow("orders", pyarrow.table({"key": ROWS, "value": ROWS}), key=encoder, value=encoder))
                turns = 0
                while not sending.done():
                    turns += 1
                    await asyncio.sleep(0)
                await (await sending)
            assert turns > 100
            assert sorted(client.subjects()) == ["orders-key", "orders-value"]
            async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
                consumer.assign([TopicPartition("orders", 0)])
                consumer.seek_to_beginning()
                decoder = AvroDecoder(AvroRegistrySerde(client))
                table = await asyncio.to_thread((await consumer.poll(10)).to_arrow, key=decoder, value=decoder)
            assert table["key"].to_pylist() == table["value"].to_pylist() == ROWS

    registry.delay_s = 0.3
    asyncio.run(main())
