"""Batches that linger leave by a timer, without a turn of the loop, and as completely as any others."""
from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient import Producer
from pyclient.buffers.delivery import Delivery
from pyclient.client.driver import Driver
from pyclient.producer.lone_lanes import LentLanes
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Delay, Fail
from tests.unit.net.lone_records import LIMIT_S
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")
FOREVER_MS: Final = 3_600_000
LONG_MS: Final = 50
"""A linger within which a test can send."""


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t", 2)
    return fake_cluster


@contextlib.contextmanager
def made(cluster: FakeCluster, linger_ms: int = 1, **options: Any) -> Iterator[Producer]:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=linger_ms, **options) as producer:
        yield producer


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[Producer]:
    with made(cluster) as producer:
        yield producer


def lanes(producer: Producer) -> LentLanes:
    found = producer._core._lanes
    assert isinstance(found, LentLanes)
    return found


def sent(producer: Producer, count: int = 1, partition: int = 0) -> list[Delivery]:
    """So many records in one batch, unless the machine is slow; all of them are stored."""
    deliveries = [producer.send("t", b"x", partition=partition) for _ in range(count)]
    for delivery in deliveries:
        delivery.result(LIMIT_S)
    return deliveries


def on_a_lane(producer: Producer, partition: int = 0) -> int:
    """Send records until the next one has a lane; returns how many."""
    for count in range(1, 1000):
        sent(producer, 1, partition)
        if len(lanes(producer).exchange):
            return count
    raise AssertionError("no lane was made")


def without_a_turn(producer: Producer, act: Callable[[], object]) -> None:
    """*act*, again and again, until the loop has taken no turn for it: others may need one at any time."""
    def quiet() -> bool:
        on_a_lane(producer)
        before = producer._core.driver.turns
        act()
        return producer._core.driver.turns == before and len(lanes(producer).exchange) > 0

    eventually(quiet, LIMIT_S)


def test_a_batch_that_lingered_leaves_and_is_answered_without_a_turn(cluster: FakeCluster, producer: Producer) -> None:
    offsets: list[int] = []
    without_a_turn(producer, lambda: offsets.extend(delivery.result(0).offset or 0 for delivery in sent(producer, 3)))
    assert offsets == sorted(set(offsets))
    assert len(cluster.records("t", 0)) == offsets[-1] + 1


def test_a_callback_is_called_for_a_batch_that_left_without_a_turn(producer: Producer) -> None:
    def act() -> None:
        called = threading.Event()
        producer.send("t", b"x", partition=0, on_delivery=lambda _: called.set())
        assert called.wait(LIMIT_S)

    without_a_turn(producer, act)


def test_P11_no_batch_leaves_before_its_linger_has_ended(cluster: FakeCluster) -> None:
    with made(cluster, LONG_MS) as producer:
        on_a_lane(producer)
        for _ in range(5):
            began = time.monotonic()
            producer.send("t", b"x", partition=0).result(LIMIT_S)
            assert time.monotonic() - began >= LONG_MS / 1000


def test_P11_records_of_one_linger_share_a_request(cluster: FakeCluster) -> None:
    with made(cluster, LONG_MS) as producer:
        def shared() -> bool:
            on_a_lane(producer)
            before = len(cluster.requests("Produce"))
            sent(producer, 50)
            return len(cluster.requests("Produce")) == before + 1

        eventually(shared, LIMIT_S)


def sleeps(producer: Producer) -> bool:
    lending = producer._portal.lending
    return lending is not None and lending.asleep


def test_P11_a_full_batch_leaves_before_its_linger_has_ended(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> None:
    with made(cluster, FOREVER_MS, batch_size=200) as producer:
        producer.send("t", b"x", partition=0)
        producer.flush(LIMIT_S)
        monkeypatch.setattr(Driver, "_set_timer", lambda driver, deadline: None)  # the loop looks at its times, too
        producer._portal.run(producer._core.driver._disarm)
        first = producer.send("t", b"x" * 100, partition=0)
        eventually(partial(sleeps, producer))
        last = producer.send("t", b"y" * 100, partition=0)
        first.result(LIMIT_S)
        assert not last.done()
        producer.flush(LIMIT_S)


def test_two_partitions_linger_side_by_side(producer: Producer) -> None:
    for _ in range(100):
        both = [producer.send("t", b"x", partition=partition) for partition in (0, 1)]
        assert [delivery.result(LIMIT_S).partition for delivery in both] == [0, 1]


def test_flush_does_not_wait_for_the_timer(cluster: FakeCluster) -> None:
    with made(cluster, FOREVER_MS) as producer:
        for _ in range(3):
            delivery = producer.send("t", b"x", partition=0)
            producer.flush(LIMIT_S)
            assert delivery.done()


def test_P21_a_batch_whose_linger_ends_behind_one_in_flight_is_stored_behind_it(cluster: FakeCluster, producer: Producer) -> None:
    for fault in (Delay(0.02), Fail(7)):
        on_a_lane(producer)
        with cluster.intercept(fault, "Produce", times=1):
            first = producer.send("t", b"first", partition=0)
            eventually(partial(left, producer, first))
            second = producer.send("t", b"second", partition=0)
            second.result(LIMIT_S)
            first.result(LIMIT_S)
    stored = [record.value for record in cluster.records("t", 0) if record.value != b"x"]
    assert stored == [b"first", b"second"] * 2


def test_a_batch_whose_linger_ends_while_one_of_another_partition_is_in_flight_leaves_beside_it(cluster: FakeCluster, producer: Producer) -> None:
    def both_have_lanes() -> bool:
        on_a_lane(producer, 0)
        on_a_lane(producer, 1)
        sent(producer, 1, 0)
        return len(lanes(producer).exchange) == 2

    eventually(both_have_lanes, LIMIT_S)
    with cluster.intercept(Delay(0.05), "Produce", times=1):
        first = producer.send("t", b"first", partition=0)
        eventually(partial(left, producer, first))
        producer.send("t", b"second", partition=1).result(LIMIT_S)
        first.result(LIMIT_S)


def left(producer: Producer, delivery: Delivery) -> bool:
    return lanes(producer).exchange.in_flight or delivery.done()


def test_threads_that_send_at_a_linger_lose_and_repeat_nothing(cluster: FakeCluster, producer: Producer) -> None:
    before = on_a_lane(producer)

    def work(name: int) -> None:
        for number in range(60):
            producer.send("t", b"%d-%d" % (name, number), partition=0).result(LIMIT_S)

    threads = [threading.Thread(target=work, args=[name]) for name in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LIMIT_S)
    stored = [record.value or b"" for record in cluster.records("t", 0)][before:]
    for name in range(3):
        assert [value for value in stored if value.startswith(b"%d-" % name)] == [b"%d-%d" % (name, number) for number in range(60)]
    assert len(stored) == 180


def test_a_closed_producer_leaves_its_timers_numbers_to_others(cluster: FakeCluster) -> None:
    with made(cluster) as producer:
        sent(producer)
        selector = producer._portal.lending
        assert selector is not None
        timers = selector._timers[:]
        assert [is_a_timer(each) for each in timers] == [True, True]
    assert not any(map(is_a_timer, timers))
    assert selector._timers == []  # others close those numbers


def is_a_timer(descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return "timerfd" in str(Path(f"/proc/self/fd/{descriptor}").readlink())
    return False
