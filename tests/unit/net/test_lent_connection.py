"""The thread that sends a lone record acts in place of the loop while that sleeps, and gives it back in time."""
from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import AsyncProducer, Producer
from pyclient.errors import ClientClosedError, DeliveryError, KafkaTimeoutError
from pyclient.net.connection import Connection
from pyclient.net.lent_connection import LoopLender
from pyclient.producer.lone_lanes import LoneLanes
from pyclient.runtime.deferred_signals import DeferredSignals
from pyclient.runtime.loop_thread import Portal
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Drop, Throttle
from tests.strike import Strike
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")
RECORDS = 100
LINES = 400
"""Of the client, that a thread runs for a record while the loop is lent to it: some more than these."""


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t")
    return fake_cluster


@pytest.fixture
def producer(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Producer]:
    """One without lanes, which have a file of their own."""
    monkeypatch.setattr(LoneLanes, "answered", lambda lanes, connection: None)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as made:
        made.send("t", b"first").result(20)
        yield made


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that read answers in place of the loop."""
    found: list[int] = []
    read = LoopLender._read_once

    def noted(lender: LoopLender, connection: Connection) -> bool:
        found.append(threading.get_ident())
        return read(lender, connection)

    monkeypatch.setattr(LoopLender, "_read_once", noted)
    return found


def values(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


def send_all(producer: Producer, count: int = RECORDS) -> list[bytes]:
    sent = [b"%d" % number for number in range(count)]
    for value in sent:
        producer.send("t", value).result(20)
    return sent


# --- what is lent ----------------------------------------------------------------------------------------------------


def test_lone_records_leave_and_are_answered_in_the_thread_that_sends_them(cluster: FakeCluster, producer: Producer, readers: list[int]) -> None:
    turns = producer._core.driver.turns
    sent = send_all(producer)
    assert producer._core.driver.turns - turns < RECORDS  # a busy loop takes some of them
    while threading.get_ident() not in readers:
        sent += send_all(producer, 1)
    assert values(cluster) == [b"first", *sent]


def test_lone_records_of_an_async_producer_leave_without_a_turn_of_their_own(cluster: FakeCluster) -> None:
    async def send() -> int:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
            await (await producer.send("t", b"first"))
            before = producer._core.driver.turns
            for number in range(RECORDS):
                await (await producer.send("t", b"%d" % number))
            return producer._core.driver.turns - before

    assert asyncio.run(send()) < RECORDS
    assert values(cluster) == [b"first", *(b"%d" % number for number in range(RECORDS))]


def test_a_record_sent_by_an_async_producers_callback_is_sent_after_the_answer_is_handled(cluster: FakeCluster) -> None:
    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
            left = list(range(20))
            done = asyncio.Event()

            def again(_: Any) -> None:
                if left:
                    left.pop()
                    tasks.append(asyncio.ensure_future(producer.send("t", b"x", on_delivery=again)))
                else:
                    done.set()

            tasks: list[asyncio.Future[Any]] = []
            await producer.send("t", b"x", on_delivery=again)
            async with asyncio.timeout(20):
                await done.wait()

    asyncio.run(send())
    assert values(cluster) == [b"x"] * 21


@pytest.mark.parametrize("linger_ms", [0, 1])
def test_a_producer_whose_records_wait_for_no_answer_lends_nothing(cluster: FakeCluster, linger_ms: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=linger_ms, acks=0, enable_idempotence=False) as producer:
        assert producer._portal.lending is None
        producer.send("t", b"x").result(20)


def test_connections_with_TLS_lend_nothing() -> None:
    with Producer(bootstrap_servers="127.0.0.1:1", linger_ms=0, security_protocol="SSL", ssl_endpoint_identification_algorithm="") as producer:
        assert producer._portal.lending is None


# --- it is given back ------------------------------------------------------------------------------------------------


def test_an_answer_in_pieces_is_read_whole(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, producer: Producer, readers: list[int]) -> None:
    whole = Connection.get_buffer
    monkeypatch.setattr(Connection, "get_buffer", lambda self, size: whole(self, size)[:7])
    sent: list[bytes] = []

    def read_here() -> bool:
        sent.extend(send_all(producer, 20))
        return threading.get_ident() in readers

    eventually(read_here)
    assert values(cluster) == [b"first", *sent]


def test_P21_a_connection_lost_before_the_answer_is_seen_and_the_record_stored_once(cluster: FakeCluster, producer: Producer) -> None:
    for number in range(5):
        with cluster.intercept(Drop(), "Produce", times=1):
            producer.send("t", b"%d" % number).result(20)
    assert values(cluster) == [b"first", b"0", b"1", b"2", b"3", b"4"]


def test_a_late_answer_is_read_by_the_loop(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, producer: Producer) -> None:
    monkeypatch.setattr("pyclient.net.lent_connection.LONGEST_WAIT", 0.001)
    cluster.pause(1)
    delivery = producer.send("t", b"late")
    with pytest.raises(KafkaTimeoutError):
        delivery.result(0.05)
    cluster.resume(1)
    assert delivery.result(20).offset == 1


def test_M09_a_throttled_connection_is_not_lent_until_the_broker_wants_the_next_record(cluster: FakeCluster, producer: Producer) -> None:
    with cluster.intercept(Throttle(100), "Produce", times=1):
        producer.send("t", b"throttled").result(20)
    turns = producer._core.driver.turns
    producer.send("t", b"next").result(20)
    assert producer._core.driver.turns > turns


def test_other_calls_are_served_while_a_thread_waits_for_its_answer(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, producer: Producer) -> None:
    monkeypatch.setattr("pyclient.net.lent_connection.LONGEST_WAIT", 600.0)
    cluster.create_topic("other")
    cluster.pause(1)
    delivery = producer.send("t", b"x")
    waiting = threading.Thread(target=lambda: delivery.result(60))
    waiting.start()
    with pytest.raises(KafkaTimeoutError):
        producer.flush(0.01)
    cluster.resume(1)
    assert producer.partitions_for("other") == 1
    waiting.join(20)
    assert not waiting.is_alive()


def test_close_ends_a_wait(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> None:
    monkeypatch.setattr("pyclient.net.lent_connection.LONGEST_WAIT", 600.0)
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0)
    producer.send("t", b"x").result(20)
    cluster.pause(1)
    delivery = producer.send("t", b"lost")
    errors: list[BaseException | None] = []
    waiting = threading.Thread(target=lambda: errors.append(delivery.exception(60)))
    waiting.start()
    with contextlib.suppress(DeliveryError):  # unless the other thread has seen the failure before
        producer.close(0)
    waiting.join(20)
    assert [type(error) for error in errors] == [ClientClosedError]
    cluster.resume(1)


def test_a_loop_that_wakes_gets_its_place_back_before_any_other_thread(request: pytest.FixtureRequest) -> None:
    portal = Portal("test", lends=True)
    request.addfinalizer(portal.stop)
    selector = portal.lending
    assert selector is not None
    eventually(lambda: selector.asleep)
    assert selector.borrow()
    assert not selector.borrow()
    ran = threading.Event()
    portal.loop.call_soon_threadsafe(ran.set)
    eventually(lambda: selector.wanted)
    assert not ran.is_set()
    selector.give_back()
    assert ran.wait(20)
    selector.answer()


def test_a_loop_is_not_lent_when_what_it_has_to_know_of_that_raises(request: pytest.FixtureRequest) -> None:
    portal = Portal("test", lends=True)
    request.addfinalizer(portal.stop)
    selector = portal.lending
    assert selector is not None

    def struck() -> None:
        raise RecursionError

    eventually(lambda: selector.asleep)
    selector.on_borrowed = struck
    with pytest.raises(RecursionError):
        selector.borrow()
    assert portal.run(lambda: 7) == 7


# --- signals ---------------------------------------------------------------------------------------------------------


def test_Ctrl_C_at_any_line_is_raised_and_leaves_the_client_whole(cluster: FakeCluster, producer: Producer) -> None:
    handlers = list(map(signal.getsignal, (signal.SIGINT, signal.SIGALRM)))
    sent, deepest = 0, 0
    for at in range(1, LINES, 2):
        struck, interrupted = True, False
        try:
            struck = Strike(at, lambda: signal.raise_signal(signal.SIGINT)).during(lambda: producer.send("t", b"x").result(20))
        except KeyboardInterrupt:
            interrupted = True
        assert interrupted == struck, f"line {at} swallowed Ctrl-C"
        assert handlers == list(map(signal.getsignal, (signal.SIGINT, signal.SIGALRM))), f"line {at}"
        assert producer.send("t", b"y").result(20).offset is not None
        sent += 1
        deepest = at if struck else deepest
    producer.flush(20)
    assert deepest > LINES / 2, "no record was sent and read in this thread"
    found = values(cluster)
    assert found.count(b"y") == sent
    assert found.count(b"x") <= sent
    eventually(producer._core.sender.idle)


def test_a_handler_may_send_and_wait_at_any_line(cluster: FakeCluster, producer: Producer) -> None:
    handled: list[int | None] = []
    struck = 0
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.append(producer.send("t", b"handler").result(20).offset))
    try:
        for at in range(1, LINES, 7):
            struck += Strike(at, lambda: signal.raise_signal(signal.SIGUSR1)).during(lambda: producer.send("t", b"x").result(20))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(handled) == struck > 0
    assert values(cluster).count(b"handler") == struck


def test_a_forked_child_has_the_handlers_that_the_parents_main_thread_deferred() -> None:
    deferred = DeferredSignals(lambda: None)
    before = signal.getsignal(signal.SIGINT)
    deferred.hold()
    assert signal.getsignal(signal.SIGINT) != before
    deferred.forked()
    assert signal.getsignal(signal.SIGINT) == before
