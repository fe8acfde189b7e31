"""Serdes of a schema registry: subjects, ids in data and headers, caches, evolution, and data of strangers."""
from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import ConfigurationError, SchemaRegistryError, SchemaRegistryUnavailableError, SerializationError
from pyclient.serializers.avro_schema import AvroSchema
from pyclient.serializers.registry import AsyncSchemaRegistryClient, RegistrySchema, SchemaReference, SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.serializers.registry_json import JsonSchemaRegistrySerde
from pyclient.serializers.registry_protobuf import ProtobufRegistrySerde, message_indexes
from pyclient.testing import FakeSchemaRegistry
from tests.protobuf_messages import Customer, Detail, Line, Money, Order

AVRO = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
NEWER = {**AVRO, "fields": [*AVRO["fields"], {"name": "text", "type": "string", "default": "none"}]}
JSON = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "additionalProperties": False}


@pytest.fixture
def server() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as running:
        yield running


@pytest.fixture
def registry(server: FakeSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient(server.url) as client:
        yield client


def serdes(registry: SchemaRegistryClient, **options: Any) -> list[tuple[Any, Any]]:
    """One of each kind, with a value."""
    return [(AvroRegistrySerde(registry, AVRO, **options), {"id": 7}), (JsonSchemaRegistrySerde(registry, JSON, **options), {"id": 7}),
            (ProtobufRegistrySerde(registry, Order, **options), Order(id=7, total=Money(cents=5)))]


KINDS = pytest.mark.parametrize("kind", [0, 1, 2], ids=["avro", "json", "protobuf"])


@KINDS
def test_data_begins_with_the_id_and_the_registry_is_asked_once(server: FakeSchemaRegistry, registry: SchemaRegistryClient, kind: int) -> None:
    serde, value = serdes(registry)[kind]
    data = serde.serialize("orders", value)
    found = registry.latest("orders-value")
    assert data[:5] == b"\x00" + found.id.to_bytes(4, "big")
    assert serde.deserialize("orders", data) == value
    asked = len(server.requests)
    assert serde.serialize("orders", value) == data
    assert serde.deserialize("orders", data) == value
    assert len(server.requests) == asked
    assert serde.serialize("orders", None) is serde.deserialize("orders", None) is None


@KINDS
def test_the_id_in_a_header_leaves_the_data_to_the_value(registry: SchemaRegistryClient, kind: int) -> None:
    serde, value = serdes(registry, id_in="headers")[kind]
    plain, _ = serdes(registry)[kind]
    made = serde.serialize("orders", value)
    (name, header), = made.headers
    assert name == "__value_schema_id"
    assert header[0] == 1
    assert not made.data.startswith(b"\x00\x00")
    assert plain.deserialize("orders", made.data, [("other", None), *made.headers]) == value
    serde.configure(is_key=True)
    assert serde.serialize("keys", value).headers[0][0] == "__key_schema_id"


@pytest.mark.parametrize(("subject", "is_key", "expected"), [
    ("topic", False, "orders-value"), ("topic", True, "orders-key"), ("record", False, "shop.Order"), ("topic-record", True, "orders-shop.Order"),
    (lambda topic, is_key, name: f"{topic}/{is_key}/{name}", True, "orders/True/shop.Order"),
])
def test_subjects_are_named_after_topic_record_or_by_a_function(registry: SchemaRegistryClient, subject: Any, is_key: bool, expected: str) -> None:
    for serde, _ in (serdes(registry, subject=subject)[0], serdes(registry, subject=subject)[2]):
        serde.configure(is_key=is_key)
        assert serde.subject("orders") == expected
    serde, value = serdes(registry, subject=subject)[0]
    serde.configure(is_key=is_key)
    serde.serialize("orders", value)
    assert registry.subjects() == [expected]


@KINDS
def test_copies_for_keys_and_values_of_one_topic_write_their_own_schemas(registry: SchemaRegistryClient, kind: int) -> None:
    serde, value = serdes(registry)[kind]
    key = copy.copy(serde)
    key.configure(is_key=True)
    for each in (serde, key, serde):
        assert each.deserialize("orders", each.serialize("orders", value)) == value
    assert [name for name in registry.subjects() if name.startswith("orders")] == ["orders-key", "orders-value"]


def test_a_schema_without_a_name_needs_another_strategy(registry: SchemaRegistryClient) -> None:
    with pytest.raises(SerializationError, match="use subject='topic'"):
        AvroRegistrySerde(registry, "string", subject="record").serialize("t", "x")


def test_data_of_older_and_newer_schemas_is_read_as_the_own_one(registry: SchemaRegistryClient) -> None:
    old, new = AvroRegistrySerde(registry, AVRO), AvroRegistrySerde(registry, NEWER)
    written_old, written_new = old.serialize("t", {"id": 1}), new.serialize("t", {"id": 2, "text": "x"})
    assert new.deserialize("t", written_old) == {"id": 1, "text": "none"}
    assert old.deserialize("t", written_new) == {"id": 2}
    assert AvroRegistrySerde(registry).deserialize("t", written_new) == {"id": 2, "text": "x"}


def test_use_latest_writes_with_the_subjects_latest_schema(registry: SchemaRegistryClient) -> None:
    for schema in (AVRO, NEWER):
        registry.register("t-value", RegistrySchema(AvroSchema(schema).text))
    serde = AvroRegistrySerde(registry, use_latest=True)
    assert serde.deserialize("t", serde.serialize("t", {"id": 1, "text": "x"})) == {"id": 1, "text": "x"}
    with pytest.raises(SchemaRegistryError, match="Subject 'other-value' not found"):
        serde.serialize("other", {"id": 1})
    with pytest.raises(SerializationError, match="set use_latest"):
        AvroRegistrySerde(registry).serialize("t", {"id": 1})


def test_without_auto_register_a_schema_must_be_there_already(registry: SchemaRegistryClient) -> None:
    serde = AvroRegistrySerde(registry, AVRO, auto_register=False)
    with pytest.raises(SchemaRegistryError, match="HTTP 404"):
        serde.serialize("t", {"id": 1})
    made = registry.register("t-value", RegistrySchema(AvroSchema(AVRO).text))
    assert serde.serialize("t", {"id": 1})[:5] == b"\x00" + made.id.to_bytes(4, "big")


def test_an_incompatible_schema_is_refused_at_its_first_value(registry: SchemaRegistryClient) -> None:
    AvroRegistrySerde(registry, AVRO).serialize("t", {"id": 1})
    changed = {**AVRO, "fields": [{"name": "id", "type": "string"}]}
    with pytest.raises(SchemaRegistryError, match="HTTP 409.*'t-value'"):
        AvroRegistrySerde(registry, changed).serialize("t", {"id": "a"})


def test_a_producer_goes_on_with_cached_schemas_when_the_registry_dies(caplog: pytest.LogCaptureFixture) -> None:
    with FakeSchemaRegistry() as server, SchemaRegistryClient(server.url) as registry:
        own = AvroRegistrySerde(registry, AVRO)
        latest = AvroRegistrySerde(registry, use_latest=True)
        data = own.serialize("t", {"id": 1})
        assert latest.serialize("t", {"id": 1}) == data
        assert own.deserialize("t", data) == {"id": 1}
        server.close()
        late = registry.core._clock() + 1e6
        registry.core._clock = lambda: late  # the latest schema is too old now
        assert own.serialize("t", {"id": 1}) == latest.serialize("t", {"id": 1}) == data
        assert "used for another minute" in caplog.text
        assert own.deserialize("t", data) == {"id": 1}
        with pytest.raises(SchemaRegistryUnavailableError):
            own.deserialize("t", b"\x00\x00\x00\x00\x63\x02")


@KINDS
def test_prepared_serdes_ask_nothing_on_the_loop(server: FakeSchemaRegistry, kind: int) -> None:
    threads: list[int] = []

    class Watched(SchemaRegistryClient):
        def _send(self, request: Any) -> Any:
            threads.append(threading.get_ident())
            return super()._send(request)

    async def both_ways() -> None:
        serde, value = serdes(watched)[kind]
        await serde.prepare_async("t", value)
        data = serde.serialize("t", value)
        reader, _ = serdes(watched)[kind]
        await reader.prepare_deserialize_async("t", data, ())
        assert reader.deserialize("t", data, ()) == value

    async def with_references() -> None:
        watched.register("line", RegistrySchema('{"type": "record", "name": "Line", "fields": [{"name": "a", "type": "int"}]}'))
        threads.clear()
        serde = AvroRegistrySerde(watched, {"type": "record", "name": "Two", "fields": [{"name": "line", "type": "Line"}]}, references=[SchemaReference("Line", "line", 1)])
        await serde.prepare_async("r", {"line": {"a": 1}})
        data = serde.serialize("r", {"line": {"a": 1}})
        reader = AvroRegistrySerde(watched)
        await reader.prepare_deserialize_async("r", data, ())
        assert reader.is_prepared("r", data)
        assert reader.deserialize("r", data) == {"line": {"a": 1}}

    with Watched(server.url) as watched:
        asyncio.run(both_ways())
        assert threading.get_ident() not in threads
        asyncio.run(with_references())
    assert threads
    assert threading.get_ident() not in threads


def test_references_are_read_from_the_registry(registry: SchemaRegistryClient) -> None:
    registry.register("line", RegistrySchema('{"type": "record", "name": "Line", "fields": [{"name": "a", "type": "int"}]}'))
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "lines", "type": {"type": "array", "items": "Line"}}]}'
    serde = AvroRegistrySerde(registry, schema, references=[SchemaReference("Line", "line", 1)])
    data = serde.serialize("t", {"lines": [{"a": 1}]})
    assert AvroRegistrySerde(registry).deserialize("t", data) == {"lines": [{"a": 1}]}


def test_references_of_json_schemas_are_resolved_and_nothing_is_downloaded(registry: SchemaRegistryClient) -> None:
    registry.register("id", RegistrySchema('{"type": "integer"}', "JSON"))
    schema = {"type": "object", "properties": {"id": {"$ref": "id.json"}}}
    serde = JsonSchemaRegistrySerde(registry, schema, references=[SchemaReference("id.json", "id", 1)])
    assert serde.deserialize("t", serde.serialize("t", {"id": 1})) == {"id": 1}
    with pytest.raises(SerializationError, match=r"\$.id does not fit"):
        serde.serialize("t", {"id": "x"})
    with pytest.raises(SerializationError, match=r"id.json"):
        JsonSchemaRegistrySerde(registry, schema).serialize("u", {"id": 1})


def test_files_that_a_message_imports_are_registered_under_their_names(registry: SchemaRegistryClient) -> None:
    ProtobufRegistrySerde(registry, Order).serialize("t", Order(id=1))
    assert registry.subjects() == ["shop/money.proto", "t-value"]
    assert registry.latest("t-value").schema.references == (SchemaReference("shop/money.proto", "shop/money.proto", 1),)


@pytest.mark.parametrize(("message", "indexes", "encoded"), [
    (Customer, [0], b"\x00"), (Order, [1], b"\x02\x02"), (Line, [1, 1], b"\x04\x02\x02"), (Detail, [1, 1, 0], b"\x06\x02\x02\x00")])
def test_the_place_of_nested_messages_is_in_the_data(registry: SchemaRegistryClient, message: Any, indexes: list[int], encoded: bytes) -> None:
    assert message_indexes(message.DESCRIPTOR) == indexes
    serde = ProtobufRegistrySerde(registry, message)
    data = serde.serialize("t", message())
    assert data[5:] == encoded
    assert serde.deserialize("t", data) == message()


@pytest.mark.parametrize(("value", "match"), [
    ({"id": "x"}, r"\$.id does not fit the JSON Schema"), ({}, r"'id' is a required"), ({"id": 1, "other": 2}, "other"), ({"id": 1.5}, "id")])
def test_json_that_does_not_fit_its_schema_names_the_path(registry: SchemaRegistryClient, value: Any, match: str) -> None:
    with pytest.raises(SerializationError, match=match):
        JsonSchemaRegistrySerde(registry, JSON).serialize("t", value)
    loose = JsonSchemaRegistrySerde(registry, JSON, validate=False)
    data = loose.serialize("t", value)
    assert loose.deserialize("t", data) == value
    with pytest.raises(SerializationError, match=match):
        JsonSchemaRegistrySerde(registry).deserialize("t", data)


@KINDS
def test_a_wrong_value_is_the_documented_error(registry: SchemaRegistryClient, kind: int) -> None:
    with pytest.raises(SerializationError, match="topic 't'"):
        serdes(registry)[kind][0].serialize("t", {"nothing": 1})


@pytest.mark.parametrize(("data", "match"), [
    (b"", "begins with nothing"), (b"{}", "not with 00"), (b"\x00\x00\x00", "not with 00 and an id"), (b"\x01\x00\x00\x00\x01\x02", "not with 00"),
    (b"\x00\x00\x00\x00\x63\x02", "Schema 99 not found")])
def test_data_without_a_known_id_is_refused(registry: SchemaRegistryClient, data: bytes, match: str) -> None:
    with pytest.raises(SerializationError, match=match):
        AvroRegistrySerde(registry, AVRO).deserialize("t", data)


def test_data_of_another_format_is_refused(registry: SchemaRegistryClient) -> None:
    data = JsonSchemaRegistrySerde(registry, JSON).serialize("t", {"id": 1})
    with pytest.raises(SerializationError, match="JSON schema 1, not with one of type AVRO"):
        AvroRegistrySerde(registry, AVRO).deserialize("t", data)
    with pytest.raises(SerializationError, match="JSON schema 1, not with one of type PROTOBUF"):
        ProtobufRegistrySerde(registry, Order, check_id=True).deserialize("t", data)


@given(data=st.binary(max_size=30), header=st.none() | st.binary(max_size=20), kind=st.sampled_from([0, 1, 2]))
def test_hostile_data_is_the_documented_error_or_a_value(hostile: list[Any], data: bytes, header: bytes | None, kind: int) -> None:
    headers = [] if header is None else [("__value_schema_id", header)]
    for each in (data, b"\x00\x00\x00\x00\x01" + data, b"\x00\x00\x00\x00\x02" + data):
        try:
            hostile[kind].deserialize("t", each, headers)
        except SerializationError:
            continue


@pytest.fixture(scope="module")
def hostile() -> Iterator[list[Any]]:
    with FakeSchemaRegistry() as server, SchemaRegistryClient(server.url) as registry:
        made = serdes(registry)
        for at, (serde, value) in enumerate(made):
            serde.serialize(f"t{at}", value)
        yield [serde for serde, _ in made]


@pytest.mark.parametrize(("make", "match"), [
    (lambda registry: AvroRegistrySerde(registry, AVRO, subject="topics"), "expected topic, record"),
    (lambda registry: AvroRegistrySerde(registry, AVRO, id_in="data"), "expected 'value' or 'headers'"),
    (lambda registry: AvroRegistrySerde(registry, "{}"), "not a valid Avro schema"),
    (lambda registry: JsonSchemaRegistrySerde(registry, {"type": "objekt"}), "not a valid JSON Schema"),
    (lambda registry: JsonSchemaRegistrySerde(registry, "{"), "is not JSON"),
    (lambda registry: ProtobufRegistrySerde(registry, dict), "generated class"),
    (lambda registry: AvroRegistrySerde(AsyncSchemaRegistryClient("http://127.0.0.1:1"), AVRO), "expected a SchemaRegistryClient"),  # type: ignore[arg-type] # the rule
])
def test_wrong_arguments_are_refused_when_the_serde_is_made(registry: SchemaRegistryClient, make: Any, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        make(registry)
