"""C06: a registry that fails says nothing about the record: poll raises, and the same records come next time."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer, TopicPartition
from pyclient.errors import SchemaRegistryError, SchemaRegistryUnavailableError, SerializationError
from pyclient.serializers.registry import SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.testing import FakeCluster, FakeSchemaRegistry

TP = TopicPartition("t", 0)
FAILURES = 5
"""Requests that the registry fails."""


@pytest.fixture
def server() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as running:
        yield running


@pytest.fixture
def registry(server: FakeSchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistryClient]:
    """A client that does not repeat requests."""
    monkeypatch.setattr("pyclient.serializers.registry_http.ROUNDS", 1)
    with SchemaRegistryClient(server.url) as client:
        yield client


def filled(cluster: FakeCluster, server: FakeSchemaRegistry) -> None:
    """Record 2 names a schema that the registry does not know; the others are good, of two schemas."""
    cluster.create_topic("t")
    with SchemaRegistryClient(server.url) as client:
        first, second = AvroRegistrySerde(client, "long"), AvroRegistrySerde(client, "int")
        for number in range(5):
            good = first.serialize("a", number) if number < 2 else second.serialize("b", number)
            cluster.produce("t", b"\x00\x00\x00\x00\x63\x02" if number == 2 else good, partition=0)


class Outage:
    """Reads with polls until all good records came, and checks each error of the registry."""

    def __init__(self, kind: type[SchemaRegistryError]) -> None:
        self.kind = kind
        self.found: list[int] = []
        self.skipped: list[int] = []
        self.raised = 0
        self.deadline = time.monotonic() + 50

    def options(self, cluster: FakeCluster, registry: SchemaRegistryClient) -> dict[str, Any]:
        return {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest", "value_deserializer": AvroRegistrySerde(registry),
                "on_deserialization_error": lambda record, error: self.skipped.append(record.offset)}

    def sync(self, **options: Any) -> None:
        with Consumer(**options) as consumer:
            consumer.assign([TP])
            while self.goes_on():
                try:
                    self.found += [record.value for record in consumer.poll(2)]
                except SchemaRegistryError as error:
                    self.check(error, consumer.position(TP))

    async def asynchronous(self, **options: Any) -> None:
        async with AsyncConsumer(**options) as consumer:
            consumer.assign([TP])
            while self.goes_on():
                try:
                    self.found += [record.value for record in await consumer.poll(2)]
                except SchemaRegistryError as error:
                    self.check(error, await consumer.position(TP))

    def goes_on(self) -> bool:
        """Whether good records are still to come. A poll may end before the next ones are there."""
        return len(self.found) < 4 and time.monotonic() < self.deadline

    def check(self, error: SchemaRegistryError, position: int) -> None:
        self.raised += 1
        assert type(error) is self.kind
        assert "seek" not in str(error)
        assert error.topic_partition == TP
        assert error.record is not None
        assert error.record.offset == position


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("status", "kind"), [(503, SchemaRegistryUnavailableError), (401, SchemaRegistryError), (403, SchemaRegistryError)])
def test_C06_polls_raise_the_registrys_failures_and_no_good_record_is_skipped(
        fake_cluster: FakeCluster, server: FakeSchemaRegistry, registry: SchemaRegistryClient, status: int, kind: type[SchemaRegistryError], is_async: bool) -> None:
    filled(fake_cluster, server)
    server.fail(status, FAILURES)
    outage = Outage(kind)
    options = outage.options(fake_cluster, registry)
    if is_async:
        asyncio.run(asyncio.wait_for(outage.asynchronous(**options), 60))
    else:
        outage.sync(**options)
    assert (outage.found, outage.skipped, outage.raised) == ([0, 1, 3, 4], [2], FAILURES)


def test_C06_without_a_handler_the_failure_does_not_advise_to_seek(fake_cluster: FakeCluster, server: FakeSchemaRegistry, registry: SchemaRegistryClient) -> None:
    filled(fake_cluster, server)
    server.fail(503)
    with Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, auto_offset_reset="earliest", value_deserializer=AvroRegistrySerde(registry)) as consumer:
        consumer.assign([TP])
        with pytest.raises(SchemaRegistryUnavailableError, match=r"HTTP 503 \(a failure that the test asked for\)(?!.*seek)"):
            consumer.poll(20)
        assert [record.value for record in consumer.poll(20)] == [0, 1]
        with pytest.raises(SerializationError, match=r"Schema 99 not found.*seek\(\) past it"):
            consumer.poll(20)
