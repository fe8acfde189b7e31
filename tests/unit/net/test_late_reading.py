"""An answer without a waiter stays in its socket for a while; a caller that asks hears of it at once.

An answer is read after `PATIENCE` seconds at the latest. Here those are many: a way that forgets to listen fails.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import re
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from pyclient import Producer
from pyclient.buffers.delivery import Delivery
from pyclient.producer.lone_lanes import LentLanes
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Throttle
from tests.forks import fork
from tests.waiting import eventually

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only"),
    pytest.mark.usefixtures("_short_timers_only"),  # at others the loop would listen
]
FOREVER_S: Final = 1e6
LIMIT_S: Final = 20.0
THROTTLE_MS: Final = 50
RECORDS: Final = 64
FEW: Final = RECORDS // 2
"""Of them. Each sixteenth answer is read in time, and the loop wakes at times for other things."""


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t", len(fake_cluster.bootstrap_servers.split(",")))
    return fake_cluster


@pytest.fixture(params=[0, 2])
def patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> Iterator[Producer]:
    """Its answers stay in their sockets for ever."""
    monkeypatch.setattr("pyclient.producer.lone_lanes.PATIENCE", FOREVER_S)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=request.param) as producer:
        yield producer


@pytest.fixture
def patient_with_little_memory(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> Iterator[Producer]:
    """As `patient`, with memory for one batch."""
    monkeypatch.setattr("pyclient.producer.lone_lanes.PATIENCE", FOREVER_S)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, buffer_memory=17_000, batch_size=16_384, max_block_ms=20_000) as producer:
        yield producer


@pytest.fixture
def patient_for_a_second(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> Iterator[Producer]:
    """Its answers stay in their sockets for a second."""
    monkeypatch.setattr("pyclient.producer.lone_lanes.PATIENCE", 1.0)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        yield producer


@pytest.fixture
def usual(cluster: FakeCluster) -> Iterator[Producer]:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        yield producer


def lanes(producer: Producer) -> LentLanes:
    found = producer._core._lanes
    assert isinstance(found, LentLanes)
    return found


def socket_of(producer: Producer, partition: int = 0) -> socket.socket:
    """That its lone records are sent on."""
    def found() -> socket.socket | None:
        producer.send("t", b"first", partition=partition).result(LIMIT_S)
        connection = lanes(producer)._lender._connection
        return connection.socket if len(lanes(producer).exchange) and connection else None

    eventually(found)
    sock = found()
    return sock if sock is not None else socket_of(producer, partition)


def sent(producer: Producer, sock: socket.socket, partition: int = 0) -> Delivery:
    """A record whose answer has come, and may have been read."""
    stays = lanes(producer).exchange
    delivery = producer.send("t", b"x", partition=partition)
    eventually(lambda: is_settled(producer) or (unsettled(producer) == 1 and stays.in_flight and select.select([sock], [], [], 0.001)[0]))
    return delivery


def unsettled(producer: Producer) -> int:
    """How many outcomes are not known. A delivery that is asked would have its answer read."""
    return producer._core.accumulator.unsettled


def is_settled(producer: Producer) -> bool:
    return unsettled(producer) == 0


def is_deaf(producer: Producer, sock: socket.socket) -> bool:
    """Whether the loop does not listen to the socket: its epoll reports errors (8) and the end (16) only, no bytes (1).
    """
    watched = Path(f"/proc/self/fdinfo/{lanes(producer)._selector.descriptor}").read_text()
    return any(re.match(rf"tfd: +{sock.fileno()} events: +18 ", line) for line in watched.splitlines())


def late(producer: Producer, partition: int = 0) -> Delivery:
    """A record whose answer lies in the socket, where the loop does not listen."""
    sock = socket_of(producer, partition)
    for _ in range(1000):
        delivery = sent(producer, sock, partition)
        if lanes(producer).exchange.in_flight and is_deaf(producer, sock):
            return delivery
        if not len(lanes(producer).exchange):
            sock = socket_of(producer, partition)
    raise AssertionError("all answers were read as soon as they came")


# --- what is saved ---------------------------------------------------------------------------------------------------


def test_the_next_record_reads_the_answer_and_no_thread_wakes_for_it(patient: Producer) -> None:
    sock, selector = socket_of(patient), lanes(patient)._selector
    handle, woken = selector.on_readable, []

    def noted(descriptor: int) -> bool:
        woken.append(descriptor)
        return handle(descriptor)

    selector.on_readable = noted
    deliveries = [sent(patient, sock) for _ in range(RECORDS)]
    selector.on_readable = handle
    assert woken.count(sock.fileno()) < FEW
    offsets = [each.result(LIMIT_S).offset or 0 for each in deliveries]
    assert offsets == list(range(offsets[0], offsets[0] + RECORDS))


def counted_latencies(producer: Producer) -> int:
    connection = lanes(producer)._lender._connection
    assert connection is not None
    found = producer._core.connections.figures(1, connection)
    assert found is not None
    return sum(count for count, _, _ in found[1][1].recent(float("-inf")))


def test_the_time_that_an_answer_lies_in_its_socket_is_no_latency(patient: Producer) -> None:
    sock = socket_of(patient)
    before = counted_latencies(patient)
    for _ in range(RECORDS):
        sent(patient, sock)
    assert 0 < counted_latencies(patient) - before < FEW


@pytest.mark.parametrize("way", ["result", "done", "callback", "thread"])
def test_the_time_that_an_answer_lies_in_its_socket_is_no_latency_for_who_asks(patient: Producer, way: str) -> None:
    def counts_a_latency() -> bool:
        delivery = late(patient)
        before = counted_latencies(patient)
        WAYS[way](patient, delivery)
        eventually(lambda: is_settled(patient))
        return counted_latencies(patient) > before

    assert sum(counts_a_latency() for _ in range(10)) < 5


def test_the_time_that_an_answer_lies_in_its_socket_is_no_latency_when_the_loop_wakes(patient: Producer) -> None:
    def counts_a_latency() -> bool:
        late(patient)
        before = counted_latencies(patient)
        patient._core.driver.wake_from_anywhere()
        eventually(lambda: is_settled(patient))
        return counted_latencies(patient) > before

    assert sum(counts_a_latency() for _ in range(10)) < 5


# --- who hears of it -------------------------------------------------------------------------------------------------


def test_an_answer_is_read_after_a_while_though_no_caller_asks(usual: Producer) -> None:
    def counts_a_latency() -> bool:
        late(usual)
        before = counted_latencies(usual)
        eventually(lambda: not lanes(usual).exchange.in_flight)
        return counted_latencies(usual) > before

    assert sum(counts_a_latency() for _ in range(10)) < 5, "those of answers that were handed over to the loop"


def test_an_answer_is_read_after_a_while_though_the_timer_rang_while_another_thread_set_it(patient_for_a_second: Producer) -> None:
    late(patient_for_a_second)
    selector = lanes(patient_for_a_second)._selector
    eventually(lambda: selector.acquire(False))
    try:
        selector.on_readable(selector._timers[-1])  # as the loop's thread, which woke for a time that was moved since
    finally:
        selector.give_back()
    late(patient_for_a_second)
    eventually(lambda: is_settled(patient_for_a_second))


def test_the_loop_listens_after_a_while_though_no_answer_came(cluster: FakeCluster, usual: Producer) -> None:
    socket_of(usual)
    cluster.pause(1)
    usual.send("t", b"x")
    handle, heard = lanes(usual)._selector.on_readable, threading.Event()

    def noted(descriptor: int) -> bool:
        heard.set()
        return handle(descriptor)

    lanes(usual)._selector.on_readable = noted
    assert heard.wait(LIMIT_S)
    cluster.resume(1)
    eventually(lambda: is_settled(usual))


def test_a_connection_that_the_broker_closes_is_noticed_though_no_caller_sends(cluster: FakeCluster, usual: Producer) -> None:
    late(usual)
    cluster.kill(1)
    eventually(lambda: not len(lanes(usual).exchange))
    cluster.restart(1)


def test_the_loop_listens_to_the_next_record_if_that_has_a_callback(patient: Producer) -> None:
    late(patient)
    called = threading.Event()
    patient.send("t", b"x", on_delivery=lambda _: called.set())
    assert called.wait(LIMIT_S)


@pytest.mark.fake_kafka(brokers=2)
def test_the_loop_is_deaf_to_one_socket_at_a_time(patient: Producer) -> None:
    first, second = socket_of(patient, 0), socket_of(patient, 1)

    def moved() -> bool:
        sent(patient, first, 0)
        was_deaf = is_deaf(patient, first)
        sent(patient, second, 1)
        return was_deaf and is_deaf(patient, second)

    eventually(moved)
    assert not is_deaf(patient, first)
    called = threading.Event()
    patient.send("t", b"x", partition=0, on_delivery=lambda _: called.set())
    assert called.wait(LIMIT_S)


def test_M09_a_throttle_time_in_an_answer_that_lay_in_its_socket_is_kept(cluster: FakeCluster, patient: Producer) -> None:
    """The next record may leave before it is read, as one that follows at once does."""
    sock = socket_of(patient)
    with cluster.intercept(Throttle(THROTTLE_MS), "Produce", times=1):
        sent(patient, sock)
        patient.send("t", b"next").result(LIMIT_S)
    assert patient.metrics()["produce-throttle-time-max"] == THROTTLE_MS


def test_a_caller_that_waits_for_memory_gets_that_of_the_answer(patient_with_little_memory: Producer) -> None:
    for _ in range(5):
        late(patient_with_little_memory)
        patient_with_little_memory.send("t", bytes(10_000)).result(LIMIT_S)


def asked_by_a_child(producer: Producer) -> bool | None:
    """Whether a forked child that asks leaves the loop and the answer alone; ``None`` if that was read before."""
    delivery, driver = late(producer), producer._core.driver
    child = fork()
    if not child:
        left_alone: bool | None = False
        with contextlib.suppress(BaseException):
            before = driver._scheduled  # here, where no other thread runs
            left_alone = None if is_settled(producer) else not delivery.done() and driver._scheduled == before
        os._exit((False, True, None).index(left_alone))
    found = (False, True, None)[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
    assert delivery.result(LIMIT_S).offset is not None
    return found


def test_a_forked_child_that_asks_leaves_the_loop_and_the_answer_to_its_parent(patient: Producer) -> None:
    found = None
    while found is None:
        found = asked_by_a_child(patient)
    assert found


async def awaited(delivery: Delivery) -> None:
    await delivery


async def awaited_with_others(delivery: Delivery) -> None:
    await asyncio.wait([asyncio.ensure_future(awaited(delivery))])


def called_back(delivery: Delivery) -> None:
    called = threading.Event()
    delivery.add_done_callback(lambda _: called.set())
    assert called.wait(LIMIT_S)


def waited_for_by_a_thread(delivery: Delivery) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        threads.submit(delivery.result, LIMIT_S).result(LIMIT_S)


WAYS: Final[dict[str, Callable[[Producer, Delivery], object]]] = {
    "result": lambda _, delivery: delivery.result(LIMIT_S),
    "exception": lambda _, delivery: delivery.exception(LIMIT_S),
    "done": lambda _, delivery: eventually(delivery.done),
    "callback": lambda _, delivery: called_back(delivery),
    "thread": lambda _, delivery: waited_for_by_a_thread(delivery),
    "await": lambda _, delivery: asyncio.run(awaited(delivery)),
    "asyncio.wait": lambda _, delivery: asyncio.run(awaited_with_others(delivery)),
    "flush": lambda producer, _: producer.flush(LIMIT_S),
    "close": lambda producer, _: producer.close(LIMIT_S),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_asks_for_the_outcome_hears_of_it(patient: Producer, way: str) -> None:
    delivery = late(patient)
    WAYS[way](patient, delivery)
    assert delivery.done()


@pytest.mark.parametrize("way", WAYS)
def test_who_asks_while_another_thread_acts_hears_of_it(patient: Producer, way: str) -> None:
    """That thread has the loop's lock, and may be about to leave the answer in its socket."""
    delivery = late(patient)
    selector = lanes(patient)._selector
    free = threading.Timer(0.05, selector.give_back)
    with contextlib.ExitStack() as ends:
        if selector.acquire(False):
            free.start()
            ends.callback(free.join)
        WAYS[way](patient, delivery)
    assert delivery.done()
