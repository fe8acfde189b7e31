"""Brokers that freeze or die: what a producer holds, how long it waits, and what it says then."""
from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient import AsyncProducer, Delivery, Producer
from pyclient.errors import BufferExhaustedError, ClientClosedError, DeliveryError, DeliveryTimeoutError, KafkaTimeoutError
from pyclient.testing import LocalCluster
from pyclient.testing.pytest_plugin import ClusterFactory
from tests.kafka import make_topic

MIB = 1 << 20


@contextlib.contextmanager
def frozen(cluster: LocalCluster) -> Iterator[None]:
    """The broker keeps its connections and says nothing."""
    cluster.pause()
    try:
        yield
    finally:
        cluster.resume()
        cluster.wait_in_sync()  # a controller that heard nothing for long has fenced it meanwhile


def resident() -> int:
    """Bytes of memory this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_frozen_broker_lets_no_more_than_buffer_memory_in_and_then_send_says_so(
        kafka_cluster: LocalCluster, topic: str, codec: str) -> None:
    make_topic(kafka_cluster, topic)
    options = {"compression_type": codec, "buffer_memory": 16 * MIB, "max_block_ms": 300}
    producer = Producer({}, bootstrap_servers=kafka_cluster.bootstrap_servers, **options)  # type: ignore[arg-type]
    producer.send(topic, b"first").result(20)
    before = resident()
    with frozen(kafka_cluster):
        with pytest.raises(BufferExhaustedError, match=f"topic {topic} after 0.3.* of {16 * MIB} B"):
            while True:
                producer.send(topic, os.urandom(10_000))  # no codec makes these smaller
        assert resident() - before < 1.2 * 16 * MIB + 8 * MIB  # and what the allocator keeps
        accepted = producer._core.unsettled()
    producer.flush(60)
    assert producer.metrics()["record-send-total"] == accepted + 1
    producer.close()


def test_P03_a_send_that_waits_for_memory_goes_on_when_there_is_some(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, buffer_memory=MIB) as producer:
        told = [producer.send(topic, bytes(10_000)) for _ in range(1000)]
        assert [each.result(60).offset for each in told] == list(range(1000))


def test_in_a_callback_send_raises_when_the_buffer_is_full_instead_of_waiting(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    raised: list[BaseException] = []
    asked, filled = threading.Event(), threading.Event()

    def send_more(_: Delivery) -> None:
        filled.wait(20)
        try:
            producer.send(topic, bytes(500_000))
        except BufferExhaustedError as error:
            raised.append(error)
        asked.set()

    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, buffer_memory=MIB, max_block_ms=200) as producer:
        producer.send(topic, b"first", on_delivery=send_more).result(20)
        with frozen(kafka_cluster):
            with pytest.raises(BufferExhaustedError):
                while True:
                    producer.send(topic, bytes(100_000))
            filled.set()
            assert asked.wait(10)
    assert len(raised) == 1


def test_close_0_fails_what_is_not_acknowledged_and_wakes_a_send_that_waits(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    raised: list[BaseException] = []
    producer = Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, buffer_memory=MIB)
    producer.send(topic, b"first").result(20)

    def fill() -> None:
        try:
            while True:
                producer.send(topic, bytes(100_000))
        except ClientClosedError as error:
            raised.append(error)

    with frozen(kafka_cluster):
        filling = threading.Thread(target=fill)
        filling.start()
        while not producer._core.accumulator.pool.waiting:
            filling.join(0.01)
        with pytest.raises(DeliveryError, match="closed before"):
            producer.close(0)
        filling.join(20)
    assert len(raised) == 1


def test_flush_with_a_limit_says_how_many_are_not_acknowledged_and_they_stay_on_their_way(
        kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        producer.send(topic, b"first").result(20)
        with frozen(kafka_cluster):
            told = [producer.send(topic, b"x") for _ in range(3)]
            with pytest.raises(KafkaTimeoutError, match="3 records are not acknowledged after 0.1 s"):
                producer.flush(0.1)
            with pytest.raises(KafkaTimeoutError, match=f"{topic}-0 is not acknowledged after 0.1 s"):
                told[0].result(0.1)
        assert [each.result(60).offset for each in told] == [1, 2, 3]


def test_P18_with_a_dead_broker_a_delivery_fails_in_time_and_names_partition_attempts_and_cause(
        local_cluster: ClusterFactory, topic: str) -> None:
    cluster = local_cluster()
    make_topic(cluster, topic)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=1500, request_timeout_ms=500,
                  retry_backoff_max_ms=200) as producer:
        producer.send(topic, b"first").result(20)
        cluster.kill()
        failed = producer.send(topic, b"lost").exception(20)
    assert isinstance(failed, DeliveryTimeoutError)
    text = str(failed)
    assert f"{topic}-0" in text
    assert "delivery_timeout_ms=1500" in text
    assert "attempts" in text
    assert "Connection refused" in text or "closed the connection" in text


def test_an_async_send_that_waits_for_memory_can_be_cancelled_and_times_out(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=kafka_cluster.bootstrap_servers, buffer_memory=MIB, max_block_ms=300) as producer:
            await (await producer.send(topic, b"first"))
            with frozen(kafka_cluster):
                with pytest.raises(BufferExhaustedError):
                    while True:
                        await producer.send(topic, bytes(100_000))
                sending = asyncio.create_task(producer.send(topic, bytes(900_000)))
                await asyncio.wait([sending], timeout=0.05)
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
                assert producer._core.accumulator.pool.waiting == 0
            await producer.flush(60)
            assert producer._core.accumulator.pool.used == 0

    asyncio.run(main())
