"""confluent-kafka's serializers and ours read each other's data, with one registry."""
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from pyclient.serializers.avro_arrow import AvroDecoder, AvroEncoder
from pyclient.serializers.registry import SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.serializers.registry_json import JsonSchemaRegistrySerde
from pyclient.serializers.registry_protobuf import ProtobufRegistrySerde
from pyclient.testing import FakeSchemaRegistry
from tests.protobuf_messages import Customer, Detail, Line, Money, Order
from tests.unit.test_avro_columns import records_of

REASON = "the other client's serializers are not installed: pip install 'confluent-kafka[avro,json,protobuf,schemaregistry]'"
theirs_registry = pytest.importorskip("confluent_kafka.schema_registry", reason=REASON, exc_type=ImportError)
theirs_avro = pytest.importorskip("confluent_kafka.schema_registry.avro", reason=REASON, exc_type=ImportError)
theirs_json = pytest.importorskip("confluent_kafka.schema_registry.json_schema", reason=REASON, exc_type=ImportError)
theirs_protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf", reason=REASON, exc_type=ImportError)
serialization = pytest.importorskip("confluent_kafka.serialization", reason=REASON)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"], "default": None},
    {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "amount", "type": "double"}]}}},
    {"name": "tags", "type": {"type": "map", "values": "bytes"}}, {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}}]}
SCHEMA = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}, "required": ["id"]}


class Sides(NamedTuple):
    ours: SchemaRegistryClient
    theirs: Any


@pytest.fixture
def sides() -> Iterator[Sides]:
    with FakeSchemaRegistry() as server, SchemaRegistryClient(server.url) as ours, theirs_registry.SchemaRegistryClient({"url": server.url}) as theirs:
        yield Sides(ours, theirs)


def context(headers: Any = None) -> Any:
    return serialization.SerializationContext("orders", serialization.MessageField.VALUE, headers)


AVRO_VALUES = [
    (ORDER, {"id": 7, "text": "é", "lines": [{"amount": 1.5}, {"amount": -2.0}], "tags": {"a": b"\x00"}, "kind": "B"}),
    (ORDER, {"id": -(2**63), "text": None, "lines": [], "tags": {}, "kind": "A"}),
    ("string", "text"), ("long", 2**40), ("bytes", b"as they are"), ({"type": "array", "items": "int"}, [1, 2, 3]),
]


def test_avro_columns_are_theirs_both_ways(sides: Sides) -> None:
    rows = [value for schema, value in AVRO_VALUES if schema is ORDER]
    write, read = theirs_avro.AvroSerializer(sides.theirs, json.dumps(ORDER)), theirs_avro.AvroDeserializer(sides.theirs)
    written = [write(row, context()) for row in rows]
    decoded: Any = records_of(written).to_arrow(value=AvroDecoder(AvroRegistrySerde(sides.ours)))["value"].combine_chunks()
    assert [{**row, "tags": dict(row["tags"])} for row in decoded.to_pylist()] == rows
    encoder = AvroEncoder(AvroRegistrySerde(sides.ours, ORDER))
    encoder.prepare("orders", is_key=False)
    encoded = encoder.encode(decoded, topics=["orders"], places=None, first=0, is_key=False).to_pylist()
    assert encoded == written
    assert [read(each, context()) for each in encoded] == rows


@pytest.mark.parametrize(("schema", "value"), AVRO_VALUES)
def test_avro_is_written_byte_for_byte_alike_and_read_by_both(sides: Sides, schema: Any, value: Any) -> None:
    text = json.dumps(schema)
    ours = AvroRegistrySerde(sides.ours, text)
    their_bytes = theirs_avro.AvroSerializer(sides.theirs, text)(value, context())
    our_bytes = ours.serialize("orders", value)
    assert our_bytes == their_bytes
    assert ours.deserialize("orders", their_bytes) == value
    assert theirs_avro.AvroDeserializer(sides.theirs, text)(our_bytes, context()) == value


def test_json_is_read_by_both(sides: Sides) -> None:
    value = {"id": 7, "text": "é"}
    ours = JsonSchemaRegistrySerde(sides.ours, json.dumps(SCHEMA))
    their_bytes = theirs_json.JSONSerializer(json.dumps(SCHEMA), sides.theirs)(value, context())
    our_bytes = ours.serialize("orders", value)
    assert our_bytes[:5] == their_bytes[:5]
    assert ours.deserialize("orders", their_bytes) == value
    assert theirs_json.JSONDeserializer(json.dumps(SCHEMA), schema_registry_client=sides.theirs)(our_bytes, context()) == value


@pytest.mark.parametrize("message", [Customer(name="x"), Order(id=7, total=Money(cents=5)), Line(amount=3), Detail(text="deep")], ids=lambda each: type(each).__name__)
def test_protobuf_messages_nested_ones_too_are_written_alike_and_read_by_both(sides: Sides, message: Any) -> None:
    ours = ProtobufRegistrySerde(sides.ours, type(message))
    their_bytes = theirs_protobuf.ProtobufSerializer(type(message), sides.theirs)(message, context())
    our_bytes = ours.serialize("orders", message)
    assert our_bytes == their_bytes
    assert ours.deserialize("orders", their_bytes) == message
    assert theirs_protobuf.ProtobufDeserializer(type(message))(our_bytes, context()) == message


def test_ids_in_headers_are_written_alike_and_read_by_both(sides: Sides) -> None:
    text, value = json.dumps(ORDER), AVRO_VALUES[0][1]
    headers: list[tuple[str, bytes]] = []
    write = theirs_avro.AvroSerializer(sides.theirs, text, conf={"schema.id.serializer": theirs_registry.header_schema_id_serializer})
    their_bytes = write(value, context(headers))
    ours = AvroRegistrySerde(sides.ours, text, id_in="headers")
    made = ours.serialize("orders", value)
    assert (made.data, list(made.headers)) == (their_bytes, headers)
    assert ours.deserialize("orders", their_bytes, headers) == value
    assert theirs_avro.AvroDeserializer(sides.theirs, text)(made.data, context(list(made.headers))) == value


def test_nested_messages_have_their_place_in_the_header(sides: Sides) -> None:
    headers: list[tuple[str, bytes]] = []
    write = theirs_protobuf.ProtobufSerializer(Line, sides.theirs, conf={"schema.id.serializer": theirs_registry.header_schema_id_serializer})
    their_bytes = write(Line(amount=3), context(headers))
    ours = ProtobufRegistrySerde(sides.ours, Line, id_in="headers")
    made = ours.serialize("orders", Line(amount=3))
    assert (made.data, list(made.headers)) == (their_bytes, headers)
    assert ours.deserialize("orders", their_bytes, headers) == Line(amount=3)
