"""Async clients on uvloop, which many services use instead of asyncio's own loop."""
from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Literal

import pytest

from pyclient import AsyncAdmin, AsyncConsumer, AsyncProducer, NewTopic, TopicPartition
from pyclient.errors import KafkaError
from pyclient.testing import FakeCluster

uvloop = pytest.importorskip("uvloop", reason="there is none for Windows")
COUNT = 400
LARGE = bytes(50_000)
"""Bytes; all records together are more than a socket's buffers hold."""
WHERE = TopicPartition("orders", 0)


def run(work: Coroutine[Any, Any, None]) -> None:
    uvloop.run(work)


async def sent_and_read(address: str, codec: Literal["none", "zstd"]) -> None:
    async with AsyncAdmin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("orders", 1, 1)])
    async with AsyncProducer(bootstrap_servers=address, compression_type=codec) as producer:
        first = await producer.send("orders", b"first")
        assert (await first).offset == 0
        for number in range(COUNT):
            await producer.send("orders", LARGE, key=b"%d" % number)
        await producer.flush()
        await (await producer.send_many("orders", [b"last"] * 3))
    async with AsyncConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([WHERE])
        read = []
        async for record in consumer:
            read.append((record.offset, record.key))
            if len(read) == COUNT + 4:
                break
    assert [offset for offset, _ in read] == list(range(COUNT + 4))
    assert [key for _, key in read[1:-3]] == [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_sent_on_uvloop_are_read_on_uvloop_in_order_and_once(codec: Literal["none", "zstd"]) -> None:
    with FakeCluster() as cluster:
        run(sent_and_read(cluster.bootstrap_servers, codec))


def test_a_connection_cut_on_uvloop_is_reopened_without_lost_or_duplicate_records() -> None:
    async def work(cluster: FakeCluster) -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
            for number in range(60):
                await producer.send("orders", b"%d" % number)
                if number % 20 == 10:
                    cluster.kill(1)
                    cluster.restart(1)
            await producer.flush()

    with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=1)
        run(work(cluster))
        assert [record.value for record in cluster.records("orders")] == [b"%d" % number for number in range(60)]


def test_a_producer_on_uvloop_raises_why_no_broker_answers() -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=500) as producer:
            await producer.send("orders", b"x")

    with pytest.raises(KafkaError, match="no broker answered"):
        run(work())
