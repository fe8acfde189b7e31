"""Producers and consumers, sync and async, with serdes of a schema registry on the fake cluster."""
from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer
from pyclient.serializers.registry import SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.testing import FakeCluster, FakeSchemaRegistry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


class Watched(SchemaRegistryClient):
    """Notes the threads that wait for the registry."""

    def _send(self, request: Any) -> Any:
        self.__dict__.setdefault("threads", []).append(threading.current_thread())
        return super()._send(request)


@pytest.fixture
def registry() -> Iterator[Watched]:
    with FakeSchemaRegistry() as server, Watched(server.url) as client:
        yield client


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("orders")
        yield running


@pytest.mark.parametrize("id_in", ["value", "headers"])
def test_one_serde_serves_keys_and_values_of_a_producer_and_a_consumer(registry: Watched, cluster: FakeCluster, id_in: str) -> None:
    serde = AvroRegistrySerde(registry, ORDER, id_in=id_in)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, key_serializer=serde, value_serializer=serde) as producer:
        producer.send("orders", {"id": 2}, key={"id": 1}, headers=[("own", b"x")]).result(30)
    assert registry.subjects() == ["orders-key", "orders-value"]
    with Consumer(topics=["orders"], group_id="g", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest",
                  key_deserializer=serde, value_deserializer=serde) as consumer:
        record: Any = next(iter(consumer))
    assert (record.key, record.value) == ({"id": 1}, {"id": 2})
    names = ["own", "__key_schema_id", "__value_schema_id"] if id_in == "headers" else ["own"]
    assert sorted(name for name, _ in record.headers) == sorted(names)


def test_async_clients_ask_the_registry_outside_of_their_loop(registry: Watched, cluster: FakeCluster) -> None:
    async def both_ways() -> Any:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=AvroRegistrySerde(registry, ORDER)) as producer:
            await (await producer.send("orders", {"id": 7}))
        async with AsyncConsumer(topics=["orders"], group_id="g", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest",
                                 value_deserializer=AvroRegistrySerde(registry)) as consumer:
            async for record in consumer:
                return record.value
        return None

    assert asyncio.run(both_ways()) == {"id": 7}
    threads = registry.__dict__["threads"]
    assert len(threads) == 3, "registered, asked for the rules of that, and read"
    assert threading.current_thread() not in threads
