"""Bulks whose data changes, ends early, or has unusual types."""
from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pyclient import AsyncProducer, Producer
from pyclient.partitioners import Murmur2Partitioner
from pyclient.testing import FakeCluster

LIMIT = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as running:
        running.create_topic("t", partitions=6)
        yield running


@pytest.mark.parametrize("changed", ["keys", "values", "both"])
def test_a_bulk_sends_the_lists_as_they_were_when_it_was_called(cluster: FakeCluster, changed: str) -> None:
    topic = f"changing-{changed}"
    cluster.create_topic(topic)

    async def bulk() -> int:
        values, keys = [b"x" * 1000] * 6000, [b"k"] * 6000
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=100_000) as producer:
            sending = asyncio.create_task(producer.send_many(topic, values, keys=keys))
            while not producer.metrics()["waiting-threads"]:  # noqa: ASYNC110 any condition, not one event
                await asyncio.sleep(0)
            for name, items in (("keys", keys), ("values", values)):  # while it waits for memory
                if changed in (name, "both"):
                    items.clear()
            return len((await (await sending)).offsets())

    assert asyncio.run(asyncio.wait_for(bulk(), LIMIT)) == 6000
    stored = cluster.records(topic)
    assert [(each.key, each.value) for each in stored] == [(b"k", b"x" * 1000)] * 6000  # every acknowledged record is stored


def test_an_interrupted_bulk_notes_the_index_that_it_reached(cluster: FakeCluster) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": [b"x"] * 10})
        raise OSError("the source went away")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("value", pa.binary())]), batches())
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer, pytest.raises(OSError, match="went away") as caught:
        producer.send_arrow("t", reader)
    assert "at the record at index 10:" in caught.value.__notes__[0]


def test_a_serializer_gets_the_same_empty_headers_from_send_and_send_many(cluster: FakeCluster) -> None:
    seen: list[Any] = []

    class Seeing:
        def serialize(self, topic: str, value: Any, headers: Any) -> bytes:
            seen.append(headers)
            return bytes(value)

    with Producer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=Seeing()) as producer:
        producer.send("t", b"a")
        producer.send_many("t", [b"a", b"b"], headers=[None, [("h", b"1")]]).result(LIMIT)
    assert seen == [(), (), [("h", b"1")]]


@pytest.mark.parametrize("topic", [5, None, b"t", ["t"]])
def test_a_topic_that_is_not_a_string_is_refused(cluster: FakeCluster, topic: Any) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer, pytest.raises(TypeError, match="not a string"):
        producer.send_many(topic, [b"a"])


class Delegating:
    """Delegates to another partitioner, except for `partition`."""

    def __init__(self) -> None:
        self.inner = Murmur2Partitioner()

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Any) -> int:
        return 3

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Instead(Murmur2Partitioner):
    """Overrides `partition` on the instance."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = lambda topic, key, value, partitions: 3  # type: ignore[method-assign]


@pytest.mark.parametrize("partitioner", [Delegating, Instead])
def test_a_hash_is_used_only_with_the_partition_method_of_the_same_class(cluster: FakeCluster, partitioner: Any) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, partitioner=partitioner()) as producer:
        chosen = {producer.send("t", b"v", b"key %d" % number).result(LIMIT).partition for number in range(20)}
        bulk = producer.send_many("t", [b"v"] * 20, keys=[b"key %d" % number for number in range(20)])
        bulk.result(LIMIT)
    assert chosen == {3}
    assert {bulk[number].partition for number in range(20)} == {3}


def test_metrics_can_be_read_while_their_lock_is_held() -> None:
    with FakeCluster(brokers=1) as running, Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        lock = producer._core.metrics._lock
        with lock:  # as in a signal handler that interrupts the update
            assert "record-send-total" in producer.metrics()
