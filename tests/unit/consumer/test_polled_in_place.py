"""A thread that polls reads the answer to the fetch itself, while the client's own thread sleeps."""
from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from pyclient import Consumer, TopicPartition
from pyclient.client import in_place
from pyclient.consumer import fetch_in_place
from pyclient.consumer.fetch_in_place import FetchInPlace
from pyclient.core.fetching import under_way
from pyclient.core import silence
from pyclient.core.manager import Use
from pyclient.errors import ProtocolError, WakeupError
from pyclient.net.connection import Connection
from pyclient.net.lent_connection import read_once
from pyclient.net.socket_read import receive_lent
from pyclient.runtime.loop_thread import in_portal
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Bytes, Cut, Drop, Fail, Silence, Throttle, Verdict
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")
LIMIT_S: Final = 60.0
SOON_S: Final = 1.0


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t")
    return fake_cluster


@pytest.fixture(params=["repeated", "by turns"])
def repeats(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether usual responses are handled without a turn."""
    if request.param == "by turns":
        monkeypatch.setattr(FetchInPlace, "wait", lambda fetches, seconds: False)
    return str(request.param) == "repeated"


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch, repeats: bool) -> list[int]:
    """The threads that read answers in place of the loop, which waits for them however long they take."""
    found: list[int] = []

    def noted(connection: Connection) -> bool:
        found.append(threading.get_ident())
        return read_once(connection)

    def received(*args: Any) -> tuple[int, int, bytes | None]:
        place, size, frame = receive_lent(*args)
        found.extend([threading.get_ident()] * (place >= 0 and not in_portal()))
        return place, size, frame

    monkeypatch.setattr(in_place, "read_once", noted)
    monkeypatch.setattr(fetch_in_place, "receive_lent", received)
    for module in in_place, fetch_in_place:
        monkeypatch.setattr(module, "PATIENCE", LIMIT_S)
        monkeypatch.setattr(module, "LONGEST_WAIT", LIMIT_S)
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
    lending = consumer._portal.lending
    return lending is not None and lending.patience > 0 and not lending.asleep


def during_a_poll(consumer: Consumer, act: Callable[[], object]) -> threading.Thread:
    """Call *act* in another thread once this one waits for a fetch in place of the loop; if it does not, as after a
    timer, the loop reads.
    """
    def work() -> None:
        with contextlib.suppress(AssertionError):
            eventually(lambda: waits_in_place(consumer), SOON_S)
        act()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_records_are_read_in_the_thread_that_polls(cluster: FakeCluster, consumer: Consumer, readers: list[int]) -> None:
    for number in range(20):
        thread = during_a_poll(consumer, lambda value=b"%d" % number: cluster.produce("t", value))  # type: ignore[misc]
        assert values(consumer) == [b"%d" % number]
        thread.join()
    assert set(readers) == {threading.get_ident()}, "and not only by the loop"


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
    for module in in_place, fetch_in_place:
        monkeypatch.setattr(module, "PATIENCE", 0.01)
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


# ---- responses that are handled without a turn ----------------------------------------------------------------------


def trip(cluster: FakeCluster, consumer: Consumer, value: bytes) -> None:
    """A record comes while a poll waits."""
    thread = during_a_poll(consumer, lambda: cluster.produce("t", value))
    assert values(consumer) == [value]
    thread.join()


def turns_of(consumer: Consumer, trips: Callable[[], None]) -> int:
    before = consumer._core.driver.turns
    trips()
    return consumer._core.driver.turns - before


@pytest.mark.parametrize("repeats", ["repeated"], indirect=True)
def test_a_usual_response_takes_no_turn(cluster: FakeCluster, consumer: Consumer) -> None:
    """A turn may come beside it, by a timer."""
    def trips() -> None:
        for number in range(10):
            trip(cluster, consumer, b"%d" % number)

    eventually(lambda: turns_of(consumer, trips) == 0, LIMIT_S)
    assert consumer.position(TopicPartition("t", 0)) == consumer.end_offsets([TopicPartition("t", 0)])[TopicPartition("t", 0)]


def test_an_idle_consumer_takes_no_turns(cluster: FakeCluster, readers: list[int]) -> None:
    """Its fetches end without records, and are repeated by the loop's thread, which sleeps on."""
    seen: list[object] = []
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=10) as consumer, \
            cluster.intercept(seen.append, "Fetch"):
        consumer.assign([TopicPartition("t", 0)])
        assert not consumer.poll(0.05)

        def fetches_without_turns() -> bool:
            turns, fetches = consumer._core.driver.turns, len(seen)
            eventually(lambda: len(seen) > fetches + 10, LIMIT_S)
            return consumer._core.driver.turns == turns

        assert consumer._portal.lending is not None
        consumer._portal.lending.ring()  # a thread that was asked to give the loop back may have done so already
        eventually(fetches_without_turns, LIMIT_S)
        cluster.produce("t", b"x")
        assert values(consumer) == [b"x"]


def test_figures_count_requests_bytes_and_latencies(cluster: FakeCluster, consumer: Consumer) -> None:
    def counted() -> list[float]:
        figures = consumer.metrics()
        return [figures[name] or 0 for name in ("fetch-total", "records-consumed-total", "request-total", "incoming-byte-total", "outgoing-byte-total")]

    before = counted()
    for number in range(10):
        trip(cluster, consumer, b"%d" % number)
    fetches, records, requests, bytes_in, bytes_out = (now - then for now, then in zip(counted(), before, strict=True))
    assert records == 10
    assert min(fetches, requests) >= 10
    assert bytes_in > 10 * 100
    assert bytes_out > 10 * 50
    assert consumer.metrics()["fetch-latency-max"]


@pytest.mark.parametrize("verdict", [Fail(1000), Fail(6), Fail(70), Throttle(1), Cut(0), Cut(3), Cut(30), Cut(120), Drop(applied=True)], ids=repr)
def test_whatever_a_response_is_the_next_records_come(cluster: FakeCluster, consumer: Consumer, verdict: Verdict) -> None:
    trip(cluster, consumer, b"0")
    with cluster.intercept(verdict, "Fetch", times=2):
        assert not consumer.poll(0.0)
        for number in range(1, 4):
            cluster.produce("t", b"%d" % number)
        found: list[bytes | None] = []
        while len(found) < 3:
            found += values(consumer)
    assert found == [b"1", b"2", b"3"]
    cluster.produce("t", b"4")
    assert values(consumer) == [b"4"]
    trip(cluster, consumer, b"5")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, readers: list[int], request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """Its fetch may be held for minutes, and the parameter is how many seconds later a silent broker is noticed."""
    monkeypatch.setattr(silence, "LONGEST_PATIENCE", getattr(request, "param", 200.0))
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=200_000, reconnect_backoff_ms=1) as made:
        made.assign([TopicPartition("t", 0)])
        cluster.produce("t", b"first")
        assert values(made) == [b"first"]
        eventually(lambda: (made._core.driver._timer_at or 0) > made._core.clock() + 100, LIMIT_S)
        yield made


@pytest.mark.parametrize("garbage", [b"\0\0\0\x11\x7f\0\0\1" + bytes(13), b"\x7f\xff\xff\xff" + bytes(20), b"\xff\xff\xff\xff", bytes(4)], ids=repr)
def test_a_connection_that_brings_garbage_is_replaced_at_once(cluster: FakeCluster, patient: Consumer, garbage: bytes) -> None:
    third = threading.Event()

    def answer(_request: object) -> Bytes:
        third.wait(LIMIT_S)
        with contextlib.suppress(AssertionError):
            eventually(lambda: waits_in_place(patient), SOON_S)
        return Bytes(garbage)

    def next_values() -> list[bytes | None]:
        """An error is raised if no records are buffered."""
        with contextlib.suppress(ProtocolError):
            return [record.value for record in patient.poll(LIMIT_S)]
        return [record.value for record in patient.poll(LIMIT_S)]

    with cluster.intercept(answer, "Fetch", times=1):
        cluster.produce("t", b"third")
        assert next_values() == [b"third"]
        third.set()
        thread = during_a_poll(patient, lambda: cluster.produce("t", b"fourth"))
        assert next_values() == [b"fourth"]
        thread.join()


@pytest.mark.parametrize("repeats", ["repeated"], indirect=True)
@pytest.mark.parametrize("patient", [0.1], indirect=True)
@pytest.mark.parametrize("polls", [True, False])
def test_a_broker_that_answers_nothing_after_a_long_fetch_is_soon_noticed(cluster: FakeCluster, patient: Consumer, polls: bool) -> None:
    """It may hold the next fetch, beside which records wait for the user, for a short time only."""
    assert polls or not patient.poll(0.01)
    with cluster.intercept(Silence(), "Fetch"):
        if polls:
            trip(cluster, patient, b"third")
        else:
            cluster.produce("t", b"third")
        eventually(lambda: not patient._core.connections.reachable, LIMIT_S)


@pytest.mark.parametrize("repeats", ["repeated"], indirect=True)
def test_nothing_is_written_once_the_session_of_the_login_is_over(cluster: FakeCluster, patient: Consumer) -> None:
    connection = patient._core.connections.connection(1, Use.FETCH)
    assert connection is not None

    def end() -> None:
        connection.session.ends_at = patient._core.clock()
        cluster.produce("t", b"third")

    thread = during_a_poll(patient, end)
    assert values(patient) == [b"third"]
    thread.join()
    assert connection.in_flight == 0


def test_after_a_fetch_that_cannot_be_encoded_reading_goes_on(
        cluster: FakeCluster, consumer: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_: object) -> bytes:
        raise RuntimeError("made by the test")

    with monkeypatch.context() as patched:
        patched.setattr(under_way, "encode_fetch", fails)
        trip(cluster, consumer, b"0")
    cluster.produce("t", b"1")
    assert values(consumer) == [b"1"]
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert all("could not be handled in place" in each or "could not be encoded" in each for each in logged)  # here, or by the loop


def test_a_large_response_is_returned_whole(cluster: FakeCluster, consumer: Consumer) -> None:
    for size in (3_800, 4_000, 4_096, 5_000, 300_000):
        trip(cluster, consumer, bytes(size))


def test_several_partitions_and_nodes_are_read_in_turn(repeats: bool) -> None:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=6)
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=5_000) as consumer:
            consumer.assign([TopicPartition("t", number) for number in range(6)])
            for number in range(40):
                thread = during_a_poll(consumer, lambda at=number: cluster.produce("t", b"%d" % at, partition=at % 6)) if number > 6 else None  # type: ignore[misc]
                if thread is None:
                    cluster.produce("t", b"%d" % number, partition=number % 6)
                assert values(consumer) == [b"%d" % number]
                if thread is not None:
                    thread.join()
