"""Lone records that repeat the last exchange are stored as any others, whatever happens between send and answer."""
from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyclient import Producer
from pyclient.buffers.delivery import Delivery
from pyclient.codec.produce import lone_answer
from pyclient.core.sending.sender import Sender
from pyclient.errors import DeliveryError, KafkaTimeoutError, ProtocolError
from pyclient.net.in_flight import MAX_CORRELATION_ID
from pyclient.net.lent_connection import LoopLender
from pyclient.net.lone_exchange import LentExchange
from pyclient.producer.lone_lanes import LentLanes
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Bytes, Change, Delay, Fail, Throttle
from pyclient.testing.fake.model.request import Request
from tests.forks import fork
from tests.unit.net.lone_records import FAULTS, LIMIT_S, PARTITIONS, Step, steps
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[Producer]:
    with made(cluster) as producer:
        yield producer


@pytest.fixture
def generic_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each answer that a thread read in place of the loop without a lane."""
    found: list[int] = []
    read = LoopLender._read

    def noted(lender: LoopLender, *args: Any) -> None:
        found.append(1)
        read(lender, *args)

    monkeypatch.setattr(LoopLender, "_read", noted)
    return found


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each batch that was sent without a lane."""
    found: list[int] = []
    start = Sender._start

    def noted(sender: Sender, *args: Any) -> bool:
        found.append(1)
        return start(sender, *args)

    monkeypatch.setattr(Sender, "_start", noted)
    return found


def made(cluster: FakeCluster, *, linger_ms: int = 0, **options: Any) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=linger_ms, retry_backoff_ms=1, reconnect_backoff_ms=1, **options)


def exchange_of(producer: Producer) -> LentExchange:
    return lanes_of(producer).exchange


def lanes_of(producer: Producer) -> LentLanes:
    lanes = producer._core._lanes
    assert isinstance(lanes, LentLanes)
    return lanes


def on_a_lane(producer: Producer, partition: int = 0) -> int:
    """Send records until the next one has a lane; returns how many."""
    for count in range(1, 1000):
        producer.send("t", b"first", partition=partition).result(LIMIT_S)
        if len(exchange_of(producer)):
            return count
    raise AssertionError("no lane was made")


def values(cluster: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records("t", partition)]


# --- what is repeated ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"enable_idempotence": False, "acks": 1}, {"client_id": "é" * 100}], ids=str)
def test_records_on_a_lane_are_stored_in_order_with_their_offsets(cluster: FakeCluster, generic_reads: list[int], options: dict[str, Any]) -> None:
    with made(cluster, **options) as producer:
        before = on_a_lane(producer)
        generic_reads.clear()
        offsets = [producer.send("t", b"%d" % number, partition=0).result(LIMIT_S).offset for number in range(200)]
        assert len(generic_reads) < 100  # a busy loop takes some of them
    assert offsets == list(range(before, before + 200))
    assert values(cluster)[before:] == [b"%d" % number for number in range(200)]


def test_correlation_ids_wrap_on_a_lane(cluster: FakeCluster, producer: Producer) -> None:
    on_a_lane(producer)
    connection = next(each for each in producer._core.connections._connections() if each.in_flight == 0 and each.socket is not None and "produce" in each.label)
    connection.requests.correlation_id = MAX_CORRELATION_ID - 2
    for number in range(6):
        producer.send("t", b"%d" % number, partition=0).result(LIMIT_S)
    assert connection.requests.correlation_id < 10
    assert values(cluster)[-6:] == [b"%d" % number for number in range(6)]


def test_a_record_on_a_lane_is_counted_as_any_other(cluster: FakeCluster) -> None:
    def counted(*, lanes: bool) -> dict[str, float]:
        with made(cluster) as producer:
            if not lanes:
                exchange_of(producer).close()
            for _ in range(50):
                producer.send("t", b"x" * 100, b"key", partition=0, timestamp=1).result(LIMIT_S)
            found = producer.metrics()
            return {name: value for name, value in found.items() if "-rate" not in name and not any(word in name for word in VARIABLE)}

    assert counted(lanes=True) == counted(lanes=False)


VARIABLE: Final = ("metadata-age", "latency", "queue-time", "throttle", "connection", "incoming", "outgoing", "request-total", "node=-")
"""Times, and what depends on the requests that a client makes beside Produce."""


def test_no_step_on_a_lane_runs_interpreted_code_in_which_a_signal_could_be_raised(producer: Producer) -> None:
    called: list[str] = []

    def note(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and "pyclient" in frame.f_code.co_filename:
            called.append(frame.f_code.co_name)

    def found() -> bool:
        called.clear()
        on_a_lane(producer)
        sys.setprofile(note)
        try:
            producer.send("t", b"x", partition=0).result(LIMIT_S)
        finally:
            sys.setprofile(None)
        return called == ["check_wait", "on_callback_thread", "help", "wait"]  # before the exchange takes the loop's lock

    eventually(found)  # a busy loop takes some records


def with_the_loop(producer: Producer, act: Callable[[LentLanes], bool]) -> bool:
    """What *act* returns, called with the loop's lock and a lane; False if the loop was awake."""
    on_a_lane(producer)
    lanes, selector = lanes_of(producer), producer._portal.lending
    assert selector is not None
    if not selector.acquire(False):
        return False
    try:
        return bool(len(lanes.exchange)) and act(lanes)
    finally:
        selector.give_back()


def test_a_lane_ends_when_another_way_writes_to_its_partition(producer: Producer) -> None:
    def written(lanes: LentLanes) -> bool:
        lanes._sent_on(lanes._lender._connection)
        assert not len(lanes.exchange)
        return True

    eventually(lambda: with_the_loop(producer, written))


def test_a_lane_ends_with_a_request_that_is_handed_over(cluster: FakeCluster, producer: Producer) -> None:
    handed: list[int] = []

    def taken() -> bool:
        on_a_lane(producer)
        lanes, selector = lanes_of(producer), producer._portal.lending
        assert selector is not None
        with cluster.intercept(Delay(0.05), "Produce", times=1):
            delivery = producer.send("t", b"x", partition=0)
            if selector.borrow():
                handed.append(len(lanes.exchange))
                selector.give_back()
        delivery.result(LIMIT_S)
        return bool(handed)

    eventually(taken)
    assert set(handed) == {0}


# --- what is handed over ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
def test_an_unusual_answer_is_handled_as_any_other(cluster: FakeCluster, producer: Producer, fault: str) -> None:
    before = on_a_lane(producer)
    for number in range(5):
        with cluster.intercept(FAULTS[fault], "Produce", times=1):
            assert producer.send("t", b"%d" % number, partition=0).result(LIMIT_S).offset == before + number
        producer.send("t", b"+%d" % number, partition=1).result(LIMIT_S)
    assert values(cluster)[before:] == [b"0", b"1", b"2", b"3", b"4"]
    eventually(producer._core.sender.idle)


def test_an_error_beside_an_offset_is_an_error(cluster: FakeCluster, producer: Producer) -> None:
    def refused(fields: Any) -> Any:
        fields["responses"][0]["partition_responses"][0]["error_code"] = 7  # REQUEST_TIMED_OUT
        return fields

    before = on_a_lane(producer)
    with cluster.intercept(Change(refused), "Produce", times=1):
        assert producer.send("t", b"x", partition=0).result(LIMIT_S).offset == before
    assert producer.metrics()["record-retry-total{topic=t}"] == 1
    assert values(cluster)[before:] == [b"x"]


def test_M09_a_throttle_time_in_the_answer_is_kept(cluster: FakeCluster, producer: Producer) -> None:
    on_a_lane(producer)
    with cluster.intercept(Throttle(300), "Produce", times=1):
        producer.send("t", b"x", partition=0).result(LIMIT_S)
    assert producer.metrics()["produce-throttle-time-max"] == 300


def test_M10_the_answer_to_another_request_is_no_answer(cluster: FakeCluster, producer: Producer) -> None:
    """It looks like the usual one but for its correlation id, and gives an offset that the record does not have."""
    def wrong(request: Request) -> Bytes:
        topic = producer._core.metadata.cluster.topics["t"].id_bytes
        assert topic is not None
        answered, stored = lone_answer(request.version, topic, 0)
        frame = MAX_CORRELATION_ID.to_bytes(4, "big") + answered + (99).to_bytes(8, "big") + b"\xff" * 8 + bytes(8) + stored
        return Bytes(len(frame).to_bytes(4, "big") + frame)

    before = on_a_lane(producer)
    with cluster.intercept(wrong, "Produce", times=1):
        assert isinstance(producer.send("t", b"x", partition=0).exception(LIMIT_S), ProtocolError)
    assert producer.send("t", b"next", partition=0).result(LIMIT_S).offset == before


def test_no_lane_is_used_when_the_broker_may_have_forgotten_the_producer(monkeypatch: pytest.MonkeyPatch, producer: Producer, starts: list[int]) -> None:
    monkeypatch.setattr("pyclient.producer.lone_lanes.PRODUCER_EXPIRATION", 0.0)
    on_a_lane(producer)
    starts.clear()
    for _ in range(20):
        producer.send("t", b"x", partition=0).result(LIMIT_S)
    assert len(starts) == 20


def test_a_refused_record_raises_and_the_next_one_is_stored(cluster: FakeCluster, producer: Producer) -> None:
    before = on_a_lane(producer)
    with cluster.intercept(Fail(87), "Produce", times=1):  # INVALID_RECORD
        error = producer.send("t", b"bad", partition=0).exception(LIMIT_S)
    assert error is not None
    assert producer.send("t", b"good", partition=0).result(LIMIT_S).offset == before
    assert values(cluster)[before:] == [b"good"]


def test_a_request_that_the_kernel_takes_in_part_is_written_whole(cluster: FakeCluster, producer: Producer) -> None:
    large = random.Random(1).randbytes(60_000)
    for _ in range(5):
        on_a_lane(producer)
        for sock in producer._core.connections._network._sockets:  # type: ignore[attr-defined]
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        delivery = producer.send("t", large, partition=0)
        assert delivery.result(LIMIT_S).offset is not None
    assert values(cluster).count(large) == 5


def test_a_record_is_acknowledged_without_a_wait_for_its_answer(producer: Producer) -> None:
    on_a_lane(producer)
    acknowledged = threading.Event()
    producer.send("t", b"x", partition=0, on_delivery=lambda _: acknowledged.set())
    assert acknowledged.wait(LIMIT_S)
    on_a_lane(producer)
    delivery = producer.send("t", b"y", partition=0)
    eventually(delivery.done)


def test_records_that_nothing_waits_for_make_a_lane_and_keep_it(cluster: FakeCluster, producer: Producer, starts: list[int]) -> None:
    """The loop's thread takes their answers, and its loop sleeps on."""
    def sent_on_a_lane() -> bool:
        for value in b"12345":
            eventually(producer.send("t", bytes([value]), partition=0).done)
        before = len(starts)
        for value in b"67890":
            eventually(producer.send("t", bytes([value]), partition=0).done)
        return len(starts) == before

    eventually(sent_on_a_lane, LIMIT_S)
    stored = values(cluster)
    assert stored == [bytes([value]) for value in b"1234567890"] * (len(stored) // 10)


def test_a_callback_that_is_added_during_the_wait_is_called(cluster: FakeCluster, producer: Producer) -> None:
    on_a_lane(producer)
    called = threading.Event()
    with cluster.intercept(Delay(0.05), "Produce", times=1):
        delivery = producer.send("t", b"x", partition=0)
        other = threading.Thread(target=delivery.add_done_callback, args=[lambda _: called.set()])
        other.start()
        delivery.result(LIMIT_S)
    other.join()
    assert called.wait(LIMIT_S)


def test_a_wait_on_a_lane_ends_in_time(cluster: FakeCluster, producer: Producer) -> None:
    before = on_a_lane(producer)
    cluster.pause(1)
    delivery = producer.send("t", b"late", partition=0)
    with pytest.raises(KafkaTimeoutError):
        delivery.result(0.02)
    cluster.resume(1)
    assert delivery.result(LIMIT_S).offset == before


@pytest.mark.parametrize("seconds", [-1.0, 0.0, float("nan")])
def test_a_wait_whose_time_is_over_does_not_wait(cluster: FakeCluster, producer: Producer, seconds: float) -> None:
    on_a_lane(producer)
    cluster.pause(1)
    delivery = producer.send("t", b"late", partition=0)
    with pytest.raises((KafkaTimeoutError, ValueError)):  # Python's locks refuse what is no number
        delivery.result(seconds)
    cluster.resume(1)
    delivery.result(LIMIT_S)


def test_a_request_that_cannot_be_handed_over_gets_an_outcome(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cluster: FakeCluster, producer: Producer) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    def failed() -> bool:
        on_a_lane(producer)
        cluster.pause(1)
        delivery = producer.send("t", b"x", partition=0)
        with monkeypatch.context() as patch, contextlib.suppress(DeliveryError, KafkaTimeoutError):
            patch.setattr("pyclient.net.connection.Connection.adopt", full)
            producer.flush(0.1)
        cluster.resume(1)
        return "could not be handed over" in str(delivery.exception(LIMIT_S))

    eventually(failed)  # a busy loop takes some records
    assert "could not be handed over" in caplog.text
    producer.send("t", b"next", partition=1).result(LIMIT_S)


def test_threads_that_send_to_one_partition_lose_and_repeat_nothing(cluster: FakeCluster, producer: Producer) -> None:
    before = on_a_lane(producer)

    def work(name: int) -> None:
        for number in range(100):
            producer.send("t", b"%d-%d" % (name, number), partition=0).result(LIMIT_S)

    threads = [threading.Thread(target=work, args=[name]) for name in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LIMIT_S)
    found = values(cluster)[before:]
    for name in range(3):
        assert [value for value in found if value is not None and value.startswith(b"%d-" % name)] == [b"%d-%d" % (name, number) for number in range(100)]
    assert len(found) == 300


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_leaves_the_parents_request_alone(cluster: FakeCluster, producer: Producer) -> None:
    before = on_a_lane(producer)
    with cluster.intercept(Delay(0.05), "Produce", times=1):
        delivery = producer.send("t", b"x", partition=0)
        child = fork()
        if not child:
            try:
                delivery.result(0.01)
            except BaseException:  # noqa: BLE001 the child only reports
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert delivery.result(LIMIT_S).offset == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a signal may strike in a finalizer
def test_real_signals_at_any_time_lose_and_repeat_nothing(cluster: FakeCluster, producer: Producer) -> None:
    on_a_lane(producer)
    strikes = Strikes()
    before = signal.signal(signal.SIGUSR1, strikes.handle)
    thread = threading.Thread(target=strikes.run)
    thread.start()
    sent = [b"%d" % number for number in range(300)]

    def send(value: bytes) -> None:
        producer.send("t", value, partition=0).result(LIMIT_S)

    try:
        certain = [value for value in sent if strikes.during(partial(send, value))]
    finally:
        strikes.ended.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    producer.flush(LIMIT_S)
    found = [value for value in values(cluster) if value != b"first"]
    assert len(found) == len(set(found))
    assert [value for value in found if value in certain] == certain
    assert len(certain) < len(sent), "no signal struck"


class Struck(BaseException):
    """Raised by the handler."""


class Strikes:
    """Sends signals to the main thread at random times; their handler raises once in every other call of `during`."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._armed = self._spare = False
        self._chance = random.Random(5)

    def run(self) -> None:
        while not self.ended.wait(self._chance.random() / 200):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def handle(self, *_: object) -> None:
        if self._armed:
            self._armed = False
            raise Struck

    def during(self, work: Callable[[], object]) -> bool:
        """Whether *work* ended before a signal."""
        self._spare = not self._spare
        try:
            self._armed = not self._spare
            work()
            self._armed = False
        except Struck:
            return False
        return True


# --- all of it -------------------------------------------------------------------------------------------------------


class Run:
    """Does steps, and knows what must be stored."""

    def __init__(self, cluster: FakeCluster, producer: Producer) -> None:
        self.cluster = cluster
        self.producer = producer
        self.sent: list[tuple[int, bytes, Delivery]] = []
        self.called: list[Delivery] = []

    def send(self, partition: int, size: int = 1, on_delivery: Callable[[Delivery], object] | None = None) -> Delivery:
        value = b"%d" % len(self.sent) * size
        delivery = self.producer.send("t", value, partition=partition, on_delivery=on_delivery)
        self.sent.append((partition, value, delivery))
        return delivery

    def do(self, what: str, partition: int) -> None:
        match what:
            case "send":
                self.send(partition).result(LIMIT_S)
            case "send and go on":
                self.send(partition)
            case "callback":
                self.send(partition, on_delivery=self.called.append).result(LIMIT_S)
            case "large":
                self.send(partition, 50_000).result(LIMIT_S)
            case "thread":
                thread = threading.Thread(target=lambda: self.send(partition).result(LIMIT_S))
                thread.start()
                thread.join(LIMIT_S)
            case "later callback":
                self.send(partition).add_done_callback(self.called.append)
            case "done":
                eventually(self.send(partition).done, LIMIT_S)
            case "flush":
                self.producer.flush(LIMIT_S)
            case "metrics":
                assert self.producer.metrics()["record-send-total{topic=t}"] <= len(self.sent)
            case _:
                with self.cluster.intercept(FAULTS[what], "Produce", times=1):
                    self.send(partition).result(LIMIT_S)


@settings(max_examples=16, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps("thread", "later callback", "done"), st.sampled_from([0, 2]), st.sampled_from([0.0, 1e6]))
def test_P21_every_record_is_stored_once_and_in_order_whatever_comes_between(steps: list[Step], linger_ms: int, patience: float) -> None:
    with FakeCluster() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyclient.producer.lone_lanes.PATIENCE", patience)
        cluster.create_topic("t", PARTITIONS)
        with made(cluster, linger_ms=linger_ms) as producer:
            run = Run(cluster, producer)
            for what, partition in steps:
                run.do("send", partition)
                run.do("send", partition)
                run.do(what, partition)
            producer.flush(LIMIT_S)
            for number in range(PARTITIONS):
                mine = [(value, delivery) for partition, value, delivery in run.sent if partition == number]
                assert values(cluster, number) == [value for value, _ in mine]
                assert [delivery.result(0).offset for _, delivery in mine] == list(range(len(mine)))
            eventually(lambda: len(run.called) == sum("callback" in what for what, _ in steps))
            assert producer.metrics()["record-send-total{topic=t}"] == len(run.sent)
