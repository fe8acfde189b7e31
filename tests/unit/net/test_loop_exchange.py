"""Lone records of an async producer repeat the last exchange between two turns of the driver, and are stored as any
others, whatever happens between send and answer.
"""
from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from pyclient import AsyncProducer
from pyclient.buffers.delivery import Delivery
from pyclient.core.sending.sender import Sender
from pyclient.errors import ClientClosedError, DeliveryError, DisconnectError
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Delay, Throttle
from tests.unit.net.lone_records import FAULTS, LIMIT_S, PARTITIONS, Step, steps

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@asynccontextmanager
async def made(cluster: FakeCluster, **options: Any) -> AsyncIterator[AsyncProducer]:
    async with asyncio.timeout(LIMIT_S), AsyncProducer(
            bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, retry_backoff_ms=1, reconnect_backoff_ms=1, **options) as producer:
        yield producer


def with_a_producer(cluster: FakeCluster, work: Callable[[AsyncProducer], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def run() -> None:
        async with made(cluster, **options) as producer:
            await work(producer)

    asyncio.run(run())


def lanes(producer: AsyncProducer) -> int:
    assert producer._core._lanes is not None
    return len(producer._core._lanes.exchange)


async def on_a_lane(producer: AsyncProducer, partition: int = 0) -> int:
    """Send records until the next one has a lane; returns how many."""
    for count in range(1, 1000):
        await (await producer.send("t", b"first", partition=partition))
        if lanes(producer):
            return count
    raise AssertionError("no lane was made")


async def turned(condition: Callable[[], object]) -> None:
    """Wait in turns of the loop; `made` sets the limit."""
    while not condition():  # noqa: ASYNC110 any condition, not one event
        await asyncio.sleep(0)


def values(cluster: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records("t", partition)]


# --- what is repeated ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"enable_idempotence": False, "acks": 1}, {"client_id": None}])
def test_records_on_a_lane_are_stored_in_order_without_a_turn(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    started: list[int] = []
    start = Sender._start

    def noted(sender: Sender, *args: Any) -> bool:
        started.append(1)
        return start(sender, *args)

    monkeypatch.setattr(Sender, "_start", noted)

    async def work(producer: AsyncProducer) -> None:
        before = await on_a_lane(producer)
        turns, starts = producer._core.driver.turns, len(started)
        for number in range(50):
            assert (await (await producer.send("t", b"%d" % number, partition=0))).offset == before + number
        assert len(started) - starts <= 3 * (producer._core.driver.turns - turns)  # a turn, by a timer, ends the lane
        assert values(cluster)[before:] == [b"%d" % number for number in range(50)]

    with_a_producer(cluster, work, **options)


def test_a_record_on_a_lane_is_counted_as_any_other(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        before = await on_a_lane(producer)
        for _ in range(10):
            await (await producer.send("t", b"x", partition=0))
        metrics = producer.metrics()
        assert metrics["record-send-total{topic=t}"] == before + 10
        assert metrics["request-total{node=1}"] >= before + 10

    with_a_producer(cluster, work)


def test_a_callback_may_send_the_next_record(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        before = await on_a_lane(producer)
        tasks: list[asyncio.Task[Any]] = []

        def again(_delivery: Delivery) -> None:
            if len(tasks) < 30:
                coroutine = producer.send("t", b"%d" % len(tasks), partition=0, on_delivery=again)
                tasks.append(asyncio.ensure_future(coroutine))

        await producer.send("t", b"begin", partition=0, on_delivery=again)
        await turned(lambda: len(tasks) == 30 and len(values(cluster)) == before + 31)
        assert values(cluster)[before:] == [b"begin", *(b"%d" % number for number in range(30))]

    with_a_producer(cluster, work)


# --- what is handed over ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
def test_an_unusual_answer_is_handled_as_any_other(cluster: FakeCluster, fault: str) -> None:
    async def work(producer: AsyncProducer) -> None:
        before = await on_a_lane(producer)
        for number in range(5):
            with cluster.intercept(FAULTS[fault], "Produce", times=1):
                assert (await (await producer.send("t", b"%d" % number, partition=0))).offset == before + number
            await (await producer.send("t", b"+%d" % number, partition=1))
        assert values(cluster)[before:] == [b"0", b"1", b"2", b"3", b"4"]
        await turned(producer._core.sender.idle)

    with_a_producer(cluster, work)


def test_M09_a_throttle_time_in_the_answer_is_kept(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        await on_a_lane(producer)
        with cluster.intercept(Throttle(300), "Produce", times=1):
            await (await producer.send("t", b"x", partition=0))
        assert producer.metrics()["produce-throttle-time-max"] == 300

    with_a_producer(cluster, work)


def test_a_record_behind_one_in_flight_is_stored_behind_it(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        before = await on_a_lane(producer)
        deliveries = [await producer.send("t", b"%d" % number, partition=0) for number in range(10)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(before, before + 10))
        assert values(cluster)[before:] == [b"%d" % number for number in range(10)]

    with_a_producer(cluster, work)


def test_a_turn_ends_the_lanes_and_gets_the_request_in_flight(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        while lanes(producer) < 2:
            for partition in range(2):
                await (await producer.send("t", b"first", partition=partition))
        before = len(values(cluster))
        with cluster.intercept(Delay(0.05), "Produce", times=1):
            delivery = await producer.send("t", b"x", partition=0)
            producer._core.driver.wake()
            assert not lanes(producer)
            assert [connection.in_flight for connection in producer._core.connections.awaiting()] == [1]
            assert (await delivery).offset == before

    with_a_producer(cluster, work)


def test_a_lane_ends_when_another_way_writes_to_its_partition(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        await on_a_lane(producer)
        assert producer._core.driver.on_lone is not None
        producer._core.driver.on_lone(None)
        assert not lanes(producer)

    with_a_producer(cluster, work)


def test_a_connection_that_closes_hands_over_what_is_in_flight_on_it(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        before = await on_a_lane(producer)
        with cluster.intercept(Delay(LIMIT_S), "Produce", times=1):
            delivery = await producer.send("t", b"x", partition=0)
            [connection] = [each for each in producer._core.connections._connections() if each.lone_answers]
            connection.close(DisconnectError("a test closes it"))
            second = await producer.send("t", b"y", partition=0)
            assert [(await each).offset for each in (delivery, second)] == [before, before + 1]
        assert values(cluster)[before:] == [b"x", b"y"]

    with_a_producer(cluster, work)


def test_close_delivers_what_is_in_flight(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        before = await on_a_lane(producer)
        with cluster.intercept(Delay(0.05), "Produce", times=1):
            delivery = await producer.send("t", b"x", partition=0)
            await producer.close()
            assert delivery.result(0).offset == before

    with_a_producer(cluster, work)


def test_a_close_without_time_fails_what_is_in_flight(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        await on_a_lane(producer)
        cluster.pause(1)
        delivery = await producer.send("t", b"x", partition=0)
        with pytest.raises(DeliveryError, match="may or may not be stored"):
            await producer.close(0)
        assert isinstance(delivery.exception(0), ClientClosedError)
        cluster.resume(1)

    with_a_producer(cluster, work)


def test_M10_an_answer_that_never_comes_ends_the_connection(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        before = await on_a_lane(producer)
        with cluster.intercept(Delay(LIMIT_S), "Produce", times=1):
            assert (await (await producer.send("t", b"x", partition=0))).offset == before
        assert values(cluster)[before:] == [b"x"]

    with_a_producer(cluster, work, request_timeout_ms=500)


def test_a_request_that_the_kernel_takes_in_part_is_written_whole(cluster: FakeCluster) -> None:
    large = random.Random(1).randbytes(60_000)

    async def work(producer: AsyncProducer) -> None:
        for _ in range(5):
            await on_a_lane(producer)
            for sock in producer._core.connections._network._sockets:  # type: ignore[attr-defined]
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            assert (await (await producer.send("t", large, partition=0))).offset is not None
        assert values(cluster).count(large) == 5

    with_a_producer(cluster, work)


def test_a_cancelled_wait_leaves_the_record_and_the_lane_alone(cluster: FakeCluster) -> None:
    async def work(producer: AsyncProducer) -> None:
        before = await on_a_lane(producer)
        with cluster.intercept(Delay(0.05), "Produce", times=1):
            delivery = await producer.send("t", b"x", partition=0)
            waiting = asyncio.ensure_future(wait_for(delivery))
            await asyncio.sleep(0)
            waiting.cancel()
            assert (await delivery).offset == before
        assert (await (await producer.send("t", b"y", partition=0))).offset == before + 1

    with_a_producer(cluster, work)


async def wait_for(delivery: Awaitable[object]) -> None:
    await delivery


# --- all of it -------------------------------------------------------------------------------------------------------


class Run:
    """Does steps, and knows what must be stored."""

    def __init__(self, cluster: FakeCluster, producer: AsyncProducer) -> None:
        self.cluster = cluster
        self.producer = producer
        self.sent: list[tuple[int, bytes, Delivery]] = []
        self.called: list[Delivery] = []

    async def send(self, partition: int, size: int = 1, on_delivery: Callable[[Delivery], object] | None = None) -> Delivery:
        value = b"%d" % len(self.sent) * size
        delivery = await self.producer.send("t", value, partition=partition, on_delivery=on_delivery)
        self.sent.append((partition, value, delivery))
        return delivery

    async def do(self, what: str, partition: int) -> None:
        match what:
            case "send":
                await (await self.send(partition))
            case "send and go on":
                await self.send(partition)
            case "callback":
                await (await self.send(partition, on_delivery=self.called.append))
            case "large":
                await (await self.send(partition, 50_000))
            case "tasks":
                await asyncio.gather(*(self.send_and_wait(partition) for _ in range(3)))
            case "flush":
                await self.producer.flush(LIMIT_S)
            case "metrics":
                assert self.producer.metrics()["record-send-total{topic=t}"] <= len(self.sent)
            case _:
                with self.cluster.intercept(FAULTS[what], "Produce", times=1):
                    await (await self.send(partition))

    async def send_and_wait(self, partition: int) -> None:
        await (await self.send(partition))


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps("tasks", "tasks"))
def test_P21_every_record_is_stored_once_and_in_order_whatever_comes_between(steps: list[Step]) -> None:
    async def run(cluster: FakeCluster) -> None:
        async with made(cluster) as producer:
            run = Run(cluster, producer)
            for what, partition in steps:
                await run.do("send", partition)
                await run.do("send", partition)
                await run.do(what, partition)
            await producer.flush(LIMIT_S)
            for number in range(PARTITIONS):
                mine = [(value, delivery) for partition, value, delivery in run.sent if partition == number]
                assert values(cluster, number) == [value for value, _ in mine]
                assert [delivery.result(0).offset for _, delivery in mine] == list(range(len(mine)))
            assert len(run.called) == sum(what == "callback" for what, _ in steps)
            assert producer.metrics()["record-send-total{topic=t}"] == len(run.sent)

    with FakeCluster() as cluster:
        cluster.create_topic("t", PARTITIONS)
        asyncio.run(run(cluster))
