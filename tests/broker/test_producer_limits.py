"""Paused or dead brokers: a producer's memory, its timeouts and its errors."""
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
    """The broker keeps its connections and sends nothing."""
    cluster.pause()
    try:
        yield
    finally:
        cluster.resume()
        cluster.wait_in_sync()  # the controller may have fenced it meanwhile


def resident() -> int:
    """Resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_with_a_frozen_broker_send_raises_once_buffer_memory_is_used(
        kafka_cluster: LocalCluster, topic: str, codec: str) -> None:
    make_topic(kafka_cluster, topic)
    options = {"compression_type": codec, "buffer_memory": 16 * MIB, "max_block_ms": 300}
    with Producer({}, bootstrap_servers=kafka_cluster.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
        producer.send(topic, b"first").result(20)
        before = resident()
        with frozen(kafka_cluster):
            with pytest.raises(BufferExhaustedError, match=f"topic {topic} after .* of {16 * MIB} B") as raised:
                while True:
                    producer.send(topic, os.urandom(10_000))  # no codec makes these smaller
            assert resident() - before < 1.2 * 16 * MIB + 8 * MIB  # and what the allocator keeps
            accepted = producer._core.unsettled()
        producer.flush(60)
        assert producer.metrics()["record-send-total"] == accepted + 1
    assert float(str(raised.value).partition(" after ")[2].partition(" s:")[0]) >= 0.3


def test_P03_a_send_that_waits_for_memory_continues_when_memory_is_released(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, buffer_memory=MIB) as producer:
        deliveries = [producer.send(topic, bytes(10_000)) for _ in range(1000)]
        assert [each.result(60).offset for each in deliveries] == list(range(1000))


def test_in_a_callback_send_raises_when_the_buffer_is_full_instead_of_waiting(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    raised: list[BaseException] = []
    attempted, filled = threading.Event(), threading.Event()

    def send_more(_: Delivery) -> None:
        filled.wait(20)
        try:
            producer.send(topic, bytes(500_000))
        except BufferExhaustedError as error:
            raised.append(error)
        attempted.set()

    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, buffer_memory=MIB, max_block_ms=200) as producer:
        producer.send(topic, b"first", on_delivery=send_more).result(20)
        with frozen(kafka_cluster):
            with pytest.raises(BufferExhaustedError):
                while True:
                    producer.send(topic, bytes(100_000))
            filled.set()
            assert attempted.wait(10)
    assert len(raised) == 1


def test_close_0_fails_unacknowledged_records_and_wakes_a_waiting_send(kafka_cluster: LocalCluster, topic: str) -> None:
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


def test_flush_with_a_timeout_names_the_unacknowledged_count_and_they_are_still_delivered(
        kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        producer.send(topic, b"first").result(20)
        with frozen(kafka_cluster):
            deliveries = [producer.send(topic, b"x") for _ in range(3)]
            with pytest.raises(KafkaTimeoutError, match="3 records are not acknowledged after 0.1 s"):
                producer.flush(0.1)
            with pytest.raises(KafkaTimeoutError, match=f"{topic}-0 is not acknowledged after 0.1 s"):
                deliveries[0].result(0.1)
        assert [each.result(60).offset for each in deliveries] == [1, 2, 3]


def test_P18_with_a_dead_broker_a_delivery_expires_and_names_partition_attempts_and_cause(
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
