"""A thread that polls reads the answer to the fetch itself, while the client's own thread sleeps."""
from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from pyclient import Consumer, TopicPartition
from pyclient.client import in_place
from pyclient.errors import WakeupError
from pyclient.net.connection import Connection
from pyclient.net.lent_connection import read_once
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Drop
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")
LIMIT_S: Final = 60.0


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t")
    return fake_cluster


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that read answers in place of the loop, which waits for them however long they take."""
    found: list[int] = []

    def noted(connection: Connection) -> bool:
        found.append(threading.get_ident())
        return read_once(connection)

    monkeypatch.setattr(in_place, "read_once", noted)
    monkeypatch.setattr(in_place, "PATIENCE", LIMIT_S)
    monkeypatch.setattr(in_place, "LONGEST_WAIT", LIMIT_S)
    return found


@pytest.fixture
def consumer(cluster: FakeCluster, readers: list[int]) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=5_000, reconnect_backoff_ms=1) as made:
        made.assign([TopicPartition("t", 0)])
        cluster.produce("t", b"first")
        assert values(made) == [b"first"]
        yield made


def values(consumer: Consumer) -> list[bytes | None]:
    """What the next poll with records returns."""
    while not (found := consumer.poll(LIMIT_S)):
        pass
    return [record.value for record in found]


def waits_in_place(consumer: Consumer) -> bool:
    lent = consumer._core._in_place
    return lent is not None and bool(lent._answers._muted)


def during_a_poll(consumer: Consumer, act: Callable[[], object]) -> threading.Thread:
    """Call *act* in another thread once this one waits for a fetch in place of the loop."""
    def work() -> None:
        eventually(lambda: waits_in_place(consumer), LIMIT_S)
        act()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_records_are_read_in_the_thread_that_polls(cluster: FakeCluster, consumer: Consumer, readers: list[int]) -> None:
    for number in range(20):
        thread = during_a_poll(consumer, lambda value=b"%d" % number: cluster.produce("t", value))  # type: ignore[misc]
        assert values(consumer) == [b"%d" % number]
        thread.join()
    assert set(readers) == {threading.get_ident()}


def test_a_wakeup_ends_the_wait(consumer: Consumer) -> None:
    thread = during_a_poll(consumer, consumer.wakeup)
    with pytest.raises(WakeupError):
        consumer.poll(LIMIT_S)
    thread.join()


def test_a_signal_ends_the_wait_and_its_handler_raises_from_poll(cluster: FakeCluster, consumer: Consumer) -> None:
    def handle(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        thread = during_a_poll(consumer, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1))
        with pytest.raises(InterruptedError):
            consumer.poll(LIMIT_S)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    cluster.produce("t", b"next")
    assert values(consumer) == [b"next"]


def test_a_poll_without_records_ends_in_time(consumer: Consumer) -> None:
    assert not consumer.poll(0.05)


def test_the_loop_is_served_while_a_poll_waits(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, consumer: Consumer) -> None:
    monkeypatch.setattr(in_place, "PATIENCE", 0.01)
    served: list[int] = []

    def call() -> None:
        served.append(consumer._portal.run(lambda: 7))
        cluster.produce("t", b"x")

    thread = during_a_poll(consumer, call)
    assert values(consumer) == [b"x"]
    thread.join()
    assert served == [7]


def test_a_connection_that_is_lost_while_a_poll_waits_is_opened_again(cluster: FakeCluster, consumer: Consumer) -> None:
    for number in range(3):
        with cluster.intercept(Drop(), "Fetch", times=1):
            cluster.produce("t", b"%d" % number)
            assert values(consumer) == [b"%d" % number]


def test_connections_with_TLS_are_read_by_the_loop() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1", security_protocol="SSL", ssl_endpoint_identification_algorithm="") as consumer:
        assert consumer._portal.lending is None


def test_a_consumer_whose_last_poll_had_no_data_leaves_the_answer_to_the_loop(cluster: FakeCluster, consumer: Consumer, readers: list[int]) -> None:
    assert not consumer.poll(0.05)
    readers.clear()
    filling = threading.Timer(0.05, cluster.produce, ["t", b"second"])
    filling.start()
    assert values(consumer) == [b"second"]
    filling.join()
    assert readers == []
