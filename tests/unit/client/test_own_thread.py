"""A client on a loop does not wake that loop from the loop's own thread: that costs system calls and a turn."""
from __future__ import annotations

import asyncio
import threading

import pytest

from pyclient import AsyncConsumer, AsyncProducer, TopicPartition
from pyclient.testing import FakeCluster


class Wakeups:
    """Counts `call_soon_threadsafe` of a loop by its own thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        self.own = 0
        schedule = loop.call_soon_threadsafe

        def call_soon_threadsafe(*args: object, **options: object) -> asyncio.Handle:
            self.own += threading.get_ident() == thread
            return schedule(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "call_soon_threadsafe", call_soon_threadsafe)


def test_an_async_producer_wakes_no_loop_from_its_own_thread(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cluster.create_topic("t")

    async def send() -> int:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"first")
            wakeups = Wakeups(monkeypatch)
            for _ in range(10):
                await producer.send_and_wait("t", b"x")
            return wakeups.own

    assert asyncio.run(send()) == 0


def test_an_async_consumer_wakes_no_loop_from_its_own_thread(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cluster.create_topic("t")

    async def read() -> int:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer, \
                AsyncConsumer(bootstrap_servers=fake_cluster.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            await producer.send_and_wait("t", b"x", partition=0)
            wakeups = Wakeups(monkeypatch)
            for _ in range(10):
                await producer.send_and_wait("t", b"x", partition=0)
                while not await consumer.poll(30):
                    pass
            return wakeups.own

    assert asyncio.run(read()) == 0


def test_a_delivery_awaited_on_another_loop_wakes_it(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    awaited = []

    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, linger_ms=50) as producer:
            delivery = await producer.send("t", b"x")

            async def wait() -> None:
                awaited.append(await delivery)

            await asyncio.to_thread(asyncio.run, wait())

    asyncio.run(asyncio.wait_for(send(), 30))
    assert awaited
