"""Avro columns with a schema registry: what tasks of `from_registry` and `to_registry` do, without a Spark."""
from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import httpx
import pyarrow as pa
import pytest

from pyclient.errors import ConfigurationError, SchemaRegistryError, SerializationError
from pyclient.integration.spark import from_registry, registry_columns, to_registry
from pyclient.serializers.avro_schema import AvroSchema
from pyclient.serializers.registry import RegistrySchema, SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.testing import FakeSchemaRegistry

LINE = {"type": "record", "name": "Line", "fields": [{"name": "amount", "type": "int"}, {"name": "text", "type": ["null", "string"], "default": None}]}
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": LINE}},
]})
NEWER = ORDER.removesuffix("]}") + ', {"name": "note", "type": "string", "default": "-"}]}'
WHERE = "from_registry, column 'value', subject 'orders-value'"


@pytest.fixture
def registry() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as running:
        yield running


@pytest.fixture
def client(registry: FakeSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient(registry.url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_decoders() -> Iterator[None]:
    """Those that this process kept would ask a registry that has ended."""
    yield
    registry_columns.forget()


def read(registry: FakeSchemaRegistry, schema: str, data: list[bytes | None], headers: Any = None, *, on_error: Literal["raise", "null"] = "raise",
         is_key: bool = False) -> list[Any]:
    """What a task reads."""
    task = registry_columns.Reading(WHERE, {"url": registry.url}, AvroSchema(schema), is_key, keeps_errors=on_error == "null")
    found: list[Any] = task(pa.array(data, pa.binary()), headers).to_pylist()
    return found


def write(schema: str, rows: Any, *, strict: bool = True) -> list[bytes | None]:
    """What a task writes."""
    written: list[bytes | None] = registry_columns.Writing("to_registry, column 'value'", AvroSchema(schema), b"\x00\x00\x00\x00\x07", strict)(rows).to_pylist()
    return written


def test_versions_of_a_topic_are_read_as_one_schema_and_a_tombstone_as_null(registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    old, new = AvroRegistrySerde(client, ORDER), AvroRegistrySerde(client, NEWER)
    data = [old.serialize("orders", {"id": 7, "lines": [{"amount": 2, "text": "tea"}]}), None, new.serialize("orders", {"id": 8, "lines": [], "note": "!"})]
    assert read(registry, NEWER, data) == [{"id": 7, "lines": [{"amount": 2, "text": "tea"}], "note": "-"}, None, {"id": 8, "lines": [], "note": "!"}]


def test_a_schema_that_a_header_names_is_found(registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    serde = AvroRegistrySerde(client, ORDER, id_in="headers")
    serde.configure(is_key=True)
    sent = serde.serialize("orders", {"id": 7, "lines": []})
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": name, "value": value} for name, value in sent.headers], None], kind)
    assert read(registry, ORDER, [sent.data, None], headers, is_key=True) == [{"id": 7, "lines": []}, None]


def test_a_schema_with_a_rule_is_refused_unless_the_rule_is_ignored(registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    body = {"schema": ORDER, "ruleSet": {"domainRules": [{"name": "encryptPII", "type": "ENCRYPT"}]}}
    made = httpx.post(f"{registry.url}/subjects/orders-value/versions", json=body).json()["id"]
    refused = pytest.raises(SchemaRegistryError, match=r"version 1 of subject 'orders-value' .* the rule 'encryptPII'")
    with refused:
        from_registry("value", registry.url, subject="orders-value")
    with refused:
        to_registry("value", registry.url, subject="orders-value")
    data = pa.array([b"\x00" + made.to_bytes(4, "big") + b"\x0e\x00"])
    for keeps_errors in (False, True):
        with refused:
            registry_columns.Reading(WHERE, {"url": registry.url}, AvroSchema(ORDER), False, keeps_errors=keeps_errors)(data)
    task = registry_columns.Reading(WHERE, {"url": registry.url}, AvroSchema(ORDER), False, frozenset({"encryptPII"}), keeps_errors=False)
    assert task(data).to_pylist() == [{"id": 7, "lines": []}]


@pytest.mark.parametrize(("damage", "message"), [
    (lambda data: data[:-1], "not valid Avro data of Order: lines: "), (lambda data: b'{"id": 7}', "the data was not written with a schema registry: it begins with 7b 22"),
    (lambda data: b"\x00\x00\x00\x03\xe7" + data[5:], "Schema 999 not found"),
], ids=["cut", "json", "unknown id"])
def test_data_that_cannot_be_read_names_column_and_subject_or_becomes_null(
        registry: FakeSchemaRegistry, client: SchemaRegistryClient, damage: Any, message: str) -> None:
    good = AvroRegistrySerde(client, ORDER).serialize("orders", {"id": 7, "lines": []})
    with pytest.raises(SerializationError, match=f"^{WHERE}: .*{message}.*data of .* B that begins with "):
        read(registry, ORDER, [good, damage(good)])
    assert read(registry, ORDER, [damage(good), good, None], on_error="null") == [None, {"id": 7, "lines": []}, None]


def test_a_registry_that_does_not_answer_ends_the_task_also_where_errors_become_null(registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    good = AvroRegistrySerde(client, ORDER).serialize("orders", {"id": 7, "lines": []})
    registry.fail(403)
    with pytest.raises(SchemaRegistryError):
        read(registry, ORDER, [good], on_error="null")


def test_a_time_beyond_sparks_is_an_error_of_its_row(registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    schema = json.dumps({"type": "long", "logicalType": "timestamp-millis"})
    prefix = b"\x00" + client.register("t-value", RegistrySchema(schema)).id.to_bytes(4, "big")
    data: list[bytes | None] = [prefix + b"\x02", None, prefix + b"\xfe" + b"\xff" * 8 + b"\x01"]
    with pytest.raises(SerializationError, match="a value does not fit Spark's type"):
        read(registry, schema, data)
    assert read(registry, schema, data, on_error="null") == [datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), None, None]


@pytest.mark.parametrize(("rows", "message"), [
    ([{"id": 7, "lines": [{"amount": None}]}], r"lines.\[\].amount is null"), ([{"id": "7", "lines": []}], "id is string, not int64"),
    ([{"id": 7, "lines": [], "more": 1}], "has the field 'more', which the schema does not have"), ([{"id": 7}], "lines is missing"),
], ids=["null", "type", "field", "missing"])
def test_values_that_do_not_fit_the_schema_name_the_field(rows: list[Any], message: str) -> None:
    array = pa.array(rows)
    with pytest.raises(SerializationError, match=f"^to_registry, column 'value': (the value )?{message}"):
        write(ORDER, array)


def test_a_field_too_many_is_left_out_when_the_user_says_so() -> None:
    rows = pa.array([{"id": 7, "lines": [{"amount": 1}], "more": 1}, None])
    assert write(ORDER, rows, strict=False) == [b"\x00\x00\x00\x00\x07\x0e\x02\x02\x00\x00", None]


# ---- what the driver refuses ----------------------------------------------------------------------------------------


def test_the_registrys_word_is_heard_while_the_query_is_built(registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaRegistryError, match="nothing-value"):
        from_registry("value", registry.url, subject="nothing-value")
    with pytest.raises(SchemaRegistryError, match="orders-value"):
        to_registry("value", registry.url, subject="orders-value", schema=ORDER, auto_register=False)
    client.register("orders-value", RegistrySchema(ORDER))
    with pytest.raises(SchemaRegistryError, match="orders-value"):
        to_registry("value", registry.url, subject="orders-value", schema=ORDER.replace('"long"', '"string"'))
    assert client.versions("orders-value") == [1]


@pytest.mark.parametrize(("options", "message"), [
    ({}, "give subject= to take its latest schema, or schema="), ({"subject": "s", "schema": "long"}, "one of them"),
    ({"subject": "s", "on_error": "skip"}, "expected 'raise' or 'null'"),
    ({"schema": {"type": "bytes", "logicalType": "decimal", "precision": 40}}, "a decimal of 40 digits, and Spark's decimals have at most 38"),
    ({"schema": ["int", "string"]}, "union"),
], ids=["nothing", "both", "on_error", "decimal", "union"])
def test_columns_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        from_registry("value", "http://localhost:1", **options)


@pytest.mark.parametrize(("registry", "message"), [
    ({"basic_auth": ("alice", "marker-secret")}, "url is missing"), ({"url": "http://localhost:1", "password": "x"}, "unexpected keyword argument 'password'"),
    ({"url": "http://localhost:1", "bearer_token": (each for each in "ab")}, "bearer_token is an object .generator. that cannot be sent to tasks"),
], ids=["url", "argument", "pickle"])
def test_a_registry_that_tasks_cannot_open_is_refused(registry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        from_registry("value", registry, schema="long")
