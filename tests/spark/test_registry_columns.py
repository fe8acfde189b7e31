"""Avro columns with a schema registry, in Spark: what tasks read and write is what other clients write and read."""
from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from pyclient.integration.spark import from_registry, to_registry
from pyclient.serializers.registry import SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.testing import FakeSchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE = {"type": "record", "name": "Line", "fields": [{"name": "amount", "type": "int"}, {"name": "text", "type": ["null", "string"], "default": None}]}
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": LINE}},
]})
EVERYTHING: dict[str, tuple[Any, Any, str]] = {
    "boolean": ("boolean", True, "boolean"), "int": ("int", -1, "int"), "long": ("long", 2**40, "bigint"), "float": ("float", 0.5, "float"),
    "double": ("double", 0.1, "double"), "string": ("string", "ä", "string"), "bytes": ("bytes", bytearray(b"\x00"), "binary"),
    "maybe": (["null", "int"], None, "int"), "map": ({"type": "map", "values": "long"}, {"a": 1}, "map<string,bigint>"),
    "enum": ({"type": "enum", "name": "Side", "symbols": ["LEFT", "RIGHT"]}, "RIGHT", "string"),
    "fixed": ({"type": "fixed", "name": "Four", "size": 4}, bytearray(b"abcd"), "binary"),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("12.34"), "decimal(9,2)"),
    "date": ({"type": "int", "logicalType": "date"}, date(2026, 1, 2), "date"),
    "milli_time": ({"type": "int", "logicalType": "time-millis"}, 3_600_000, "int"),
    "micro_time": ({"type": "long", "logicalType": "time-micros"}, 5, "bigint"),
    "millis": ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 2, 3, 4, 5, 678_000), "timestamp"),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, datetime(2026, 1, 2, 3, 4, 5, 678_901), "timestamp"),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, datetime(2026, 1, 2, 3, 4, 5), "timestamp_ntz"),
    "nanos": ({"type": "long", "logicalType": "timestamp-nanos"}, 1_000_000_001, "bigint"),
    "uuid": ({"type": "string", "logicalType": "uuid"}, "c0ffee00-0000-4000-8000-000000000000", "string"),
}
"""Name → Avro's type, a value in Spark, Spark's type."""


@pytest.fixture
def registry() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as running:
        yield running


@pytest.fixture
def client(registry: FakeSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient(registry.url) as opened:
        yield opened


def column_of(spark: SparkSession, values: list[Any], kind: str = "binary") -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], f"value {kind}").coalesce(1)


def test_every_type_goes_to_the_registry_and_back(spark: SparkSession, registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    schema = json.dumps({"type": "record", "name": "All", "fields": [{"name": name, "type": kind} for name, (kind, _, _) in EVERYTHING.items()]})
    kinds = ",".join(f"{name}:{kind}" for name, (_, _, kind) in EVERYTHING.items())
    values = {name: value for name, (_, value, _) in EVERYTHING.items()}
    written = column_of(spark, [values, None], f"struct<{kinds}>").select(to_registry("value", registry.url, subject="all-value", schema=schema).alias("value"))
    back = written.select("value", from_registry("value", registry.url, schema=schema).alias("all"))
    assert back.schema["all"].dataType.simpleString() == f"struct<{kinds}>"
    first, second = back.collect()
    assert first["all"].asDict() == values
    assert (second["value"], second["all"]) == (None, None)
    assert client.latest("all-value").id == int.from_bytes(first["value"][1:5], "big")
    seen = AvroRegistrySerde(client).deserialize("all", bytes(first["value"]))
    assert (seen["millis"], seen["nanos"], seen["enum"]) == (datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), values["nanos"], "RIGHT")


def test_tasks_that_write_need_no_registry_and_those_that_read_ask_once_for_a_schema(
        spark: SparkSession, registry: FakeSchemaRegistry, client: SchemaRegistryClient) -> None:
    frame = spark.range(0, 100, 1, 4).selectExpr("named_struct('id', id, 'lines', CAST(array() AS array<struct<amount: int>>)) AS value")
    written = frame.select(to_registry("value", registry.url, subject="orders-value", schema=ORDER).alias("value"))
    before = len(registry.requests)
    data = [bytes(row.value) for row in written.collect()]
    assert len(registry.requests) == before
    reading = spark.createDataFrame([(each,) for each in data], "value binary").repartition(4)
    read = reading.select(from_registry("value", registry.url, subject="orders-value").alias("order"))
    before = len(registry.requests)
    assert sorted(row.order.id for row in read.collect()) == list(range(100))
    assert len(registry.requests) - before <= 2, "one for each of Spark's two processes"


def test_a_password_of_the_registry_is_in_no_plan(spark: SparkSession) -> None:
    frame = column_of(spark, []).select(from_registry("value", {"url": "http://localhost:1", "basic_auth": ("alice", "marker-secret")}, schema="long"))
    plan: str = frame._jdf.queryExecution().toString()
    assert "from_registry(value" in plan
    assert "marker-secret" not in plan
