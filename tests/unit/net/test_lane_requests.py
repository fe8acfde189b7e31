"""Which batches of an open transaction leave on lanes, in which requests, and who looks for the answers.

Each test holds the loop's lock, so that no other acts, and then lets the transaction be committed.
"""
from __future__ import annotations

import contextlib
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient import Producer
from pyclient.buffers.batch import Batch
from pyclient.codec.encode import HEADER_SIZE
from pyclient.core.manager import Use
from pyclient.core.sending.sequencing import SequenceState
from pyclient.core.transactions.states import TransactionState
from pyclient.net.connection import Connection
from pyclient.net.lane_request import LaneRequest
from pyclient.net.lane_requests import LaneRequests
from pyclient.net.lone_exchange import Lane
from pyclient.testing import FakeCluster
from tests.unit.net.lone_records import PARTITIONS
from tests.unit.net.usual_transactions import exchange_of, lanes_of, made, state, until_usual, values
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")
FOREVER: Final = float("inf")
LINGER_S: Final = 60
LATE_S: Final = 0.01
OVERDUE_S: Final = 0.1
MOST_BATCHES: Final = 64
ROOM: Final = 4096
"""Bytes of the largest answer that is taken in place."""


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[Producer]:
    with made(cluster, linger_ms=LINGER_S * 1000, batch_size=1 << 20) as producer:
        until_usual(producer)
        yield producer


def send(producer: Producer, value: bytes = b"x", **options: Any) -> None:
    producer.send("t", value, partition=0, **options)


@contextlib.contextmanager
def opened(producer: Producer, sends: Callable[[Producer], object] = send) -> Iterator[LaneRequests]:
    """A transaction with the records that *sends* has sent, all of which may leave; it is committed in the end."""
    selector = lanes_of(producer)._selector
    eventually(lambda: begun(producer, sends))
    try:
        yield exchange_of(producer).sent
    finally:
        selector.give_back()
    producer.commit_transaction()


def begun(producer: Producer, sends: Callable[[Producer], object]) -> bool:
    """Whether the next transaction is a usual one; then the caller has the loop's lock."""
    selector, sent, now = lanes_of(producer)._selector, exchange_of(producer).sent, producer._core.clock()
    producer.begin_transaction()
    sends(producer)
    if selector.acquire(False):
        if all(sent.may_leave(batch, now) for batch in heads(producer)) and not sent.requests:
            return True
        selector.give_back()
    producer.commit_transaction()
    return False


def heads(producer: Producer) -> list[Batch]:
    found = producer._core.accumulator.heads(FOREVER)
    assert found
    return found


def connection_of(producer: Producer) -> Connection:
    found = producer._core.connections.connection(1, Use.PRODUCE)
    assert found is not None
    return found


def lane_of(producer: Producer, topic: str = "t") -> Lane:
    queues = producer._core.accumulator.topic(topic)
    assert queues is not None
    repetition = producer._core.sender.repetition(queues.queues[0])
    assert repetition is not None
    lane = lanes_of(producer)._lane(repetition, connection_of(producer))
    assert lane is not None
    return lane


# --- what leaves -----------------------------------------------------------------------------------------------------


def test_the_batches_of_a_node_leave_in_one_request(cluster: FakeCluster, producer: Producer) -> None:
    with opened(producer, lambda producer: [producer.send("t", b"x", partition=number) for number in range(PARTITIONS)]) as sent:
        assert sent.leave(producer._core.clock(), True)
        assert [len(request.batches) for request in sent.requests] == [PARTITIONS]
    assert [set(values(cluster, number)) for number in range(PARTITIONS)] == [{b"x"}] * PARTITIONS


def test_no_batch_leaves_when_the_login_has_ended(cluster: FakeCluster, producer: Producer) -> None:
    with opened(producer) as sent:
        [batch], now = heads(producer), producer._core.clock()
        connection_of(producer).session.ends_at = now + 1000
        exchange_of(producer).put(batch.queue, lane_of(producer))
        connection_of(producer).session.ends_at = None
        assert sent.may_leave(batch, now + 999)
        assert sent.missed is None
        assert not sent.may_leave(batch, now + 1000)
        assert sent.missed is batch.queue
        assert not sent.leave(now + 1000, True)
        assert not sent.requests
    assert set(values(cluster)) == {b"x"}


def test_no_batch_leaves_behind_another_request_on_its_connection(cluster: FakeCluster, producer: Producer) -> None:
    """Its answer would come first."""
    with opened(producer) as sent:
        in_flight, request = connection_of(producer).requests.requests, object()
        in_flight.append(request)  # type: ignore[arg-type]
        assert not sent.leave(producer._core.clock(), True)
        in_flight.remove(request)  # type: ignore[arg-type]
        assert sent.leave(producer._core.clock(), True)
    assert set(values(cluster)) == {b"x"}


@pytest.mark.parametrize("why", ["a batch is missing", "a batch is in flight"])
def test_no_batch_leaves_while_others_of_its_partition_are_not_settled(cluster: FakeCluster, producer: Producer, why: str) -> None:
    with opened(producer) as sent:
        [batch] = heads(producer)
        sequence = lane_of(producer).sequence
        state = sequence.state
        if why == "a batch is missing":
            sequence.state = SequenceState.DRAINING
        else:
            sequence.in_flight.append(batch)
        assert not sent.leave(producer._core.clock(), True)
        sequence.state = state
        sequence.in_flight.clear()
        assert sent.leave(producer._core.clock(), True)
    assert set(values(cluster)) == {b"x"}


def test_a_request_has_no_more_batches_than_one_write_takes(producer: Producer) -> None:
    with opened(producer):
        [batch], lane = heads(producer), lane_of(producer)
        request = LaneRequest(lane, batch)
        assert [request.add(lane, batch, 1 << 20) for _ in range(MOST_BATCHES)] == [True] * (MOST_BATCHES - 1) + [False]
        assert len(request.batches) == len(request.lanes) == MOST_BATCHES


def test_a_request_is_no_larger_than_it_may_be(producer: Producer) -> None:
    with opened(producer):
        [batch], lane = heads(producer), lane_of(producer)
        request = LaneRequest(lane, batch)
        size = 2 * (HEADER_SIZE + batch.appended)
        assert not request.add(lane, batch, size - 1)
        assert request.add(lane, batch, size)


@pytest.mark.fake_kafka(version="4.0")
def test_a_request_has_no_more_batches_than_its_answer_has_room_for(cluster: FakeCluster, producer: Producer) -> None:
    """Until Kafka 4.1 each is answered with the name of its topic."""
    long = "t" * 249
    cluster.create_topic(long)
    with producer.transaction():
        producer.send(long, b"x")
    with opened(producer):
        [batch], lane = heads(producer), lane_of(producer, long)
        request = LaneRequest(lane, batch)
        added = [request.add(lane, batch, 1 << 20) for _ in range(MOST_BATCHES)]
        assert added == sorted(added, reverse=True)
        assert ROOM // 2 < len(long) * len(request.batches) < ROOM


def test_a_request_has_the_batches_of_one_producer_only(cluster: FakeCluster, producer: Producer) -> None:
    """All else that it says is the same for all its batches."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="another") as another:
        until_usual(another)
        with opened(producer):
            [batch], lane = heads(producer), lane_of(producer)
            assert not LaneRequest(lane, batch).add(lane_of(another), batch, 1 << 20)


# --- who looks for the answers ---------------------------------------------------------------------------------------


def test_an_answer_lies_for_a_while_then_the_loop_reads_it_and_others_end_it_when_it_is_overdue(cluster: FakeCluster, producer: Producer) -> None:
    with opened(producer) as sent:
        now = producer._core.clock()
        assert sent.look_at(now) == FOREVER
        assert sent.leave(now, True)
        assert sent.look_at(now + LATE_S / 2) == now + LATE_S
        assert sent.look_at(now + 2 * LATE_S) == now + OVERDUE_S
        assert sent.look_at(now + OVERDUE_S) == -1
    assert set(values(cluster)) == {b"x"}


def test_a_request_that_the_kernel_does_not_take_in_time_is_written_by_others(cluster: FakeCluster, producer: Producer) -> None:
    sock = connection_of(producer).socket
    assert sock is not None
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    large = bytes(900_000)
    with opened(producer, lambda producer: send(producer, large)) as sent:
        now = producer._core.clock()
        assert sent.leave(now, True)
        assert sent.requests[0].rest
        assert sent.look_at(now + LATE_S / 2) == now + LATE_S
        assert sent.look_at(now + 2 * LATE_S) == -1
    assert set(values(cluster)) == {large}


def came(sent: LaneRequests) -> LaneRequest:
    """The request, whose answer lies in its socket."""
    [request] = sent.requests
    eventually(lambda: sent.has_come(request))
    return request


def test_an_answer_of_which_somebody_is_notified_is_for_others(cluster: FakeCluster, producer: Producer) -> None:
    called: list[object] = []
    with opened(producer, lambda producer: send(producer, on_delivery=called.append)) as sent:
        before = len(called)
        assert sent.leave(producer._core.clock(), True)
        request = came(sent)
        assert not sent.take_come(producer._core.clock())
        assert sent.requests == [request]
        assert len(called) == before
    assert len(called) == before + 1
    assert set(values(cluster)) == {b"x"}


@pytest.mark.usefixtures("_short_timers_only")
def test_a_caller_that_asks_for_a_batch_before_the_commit_hears_of_it(cluster: FakeCluster, producer: Producer) -> None:
    """Here no timer of the exchange rings, and the loop does not read."""
    sent_records: list[Any] = []
    selector = lanes_of(producer)._selector
    with opened(producer, lambda producer: sent_records.append(producer.send("t", b"x", partition=0))) as sent:
        assert sent.leave(producer._core.clock() + LINGER_S + 1, False)
        assert came(sent).early
        selector.give_back()
        eventually(sent_records[-1].done)
        eventually(lambda: selector.acquire(False))
    assert set(values(cluster)) == {b"x"}


@pytest.mark.parametrize("late", [False, True])
def test_an_answer_that_lay_in_its_socket_is_no_sign_that_the_transaction_came_too_early(cluster: FakeCluster, producer: Producer, late: bool) -> None:
    markers = lanes_of(producer)._transactions.markers
    with opened(producer) as sent:
        before, now = markers.pause, producer._core.clock()
        assert sent.leave(now, True)
        assert sent.take(came(sent), now + 1, late, True)
        assert (markers.pause > before) == (not late)
    assert set(values(cluster)) == {b"x"}


def latencies(producer: Producer) -> int:
    """How many requests to the node were timed."""
    found = producer._core.connections.figures(1, connection_of(producer))
    assert found is not None
    return sum(count for count, _, _ in found[1][1].recent(-FOREVER))


@pytest.mark.parametrize("ends", [False, True])
def test_a_commit_times_what_it_has_sent_itself(cluster: FakeCluster, producer: Producer, ends: bool) -> None:
    """The answer to an earlier request lies in its socket, since an unknown time."""
    with opened(producer) as sent:
        before, now = latencies(producer), producer._core.clock()
        assert sent.leave(now if ends else now + LINGER_S + 1, ends)
        came(sent)
    assert latencies(producer) - before == ends + 1, "and EndTxn"
    assert set(values(cluster)) == {b"x"}


@pytest.mark.parametrize("ends", [False, True])
def test_a_request_that_others_finish_is_timed_unless_its_answer_may_have_lain_in_its_socket(cluster: FakeCluster, producer: Producer, ends: bool) -> None:
    selector = lanes_of(producer)._selector
    with opened(producer) as sent:
        before, lanes = latencies(producer), len(exchange_of(producer))
        assert sent.leave(producer._core.clock() if ends else producer._core.clock() + LINGER_S + 1, ends)
        exchange_of(producer).on_taken()
        assert not sent.requests
        assert len(exchange_of(producer)) == lanes - 1, "the lane ends with what was sent on it"
        selector.give_back()
        eventually(lambda: not producer._core.unsettled())
        assert latencies(producer) - before == ends
        eventually(lambda: selector.acquire(False))
    assert set(values(cluster)) == {b"x"}


# --- the exchange's timer, and the commits that others have to do ----------------------------------------------------


def rings_in(producer: Producer) -> float:
    """Seconds, 0 if the timer is not set."""
    watched = Path(f"/proc/self/fdinfo/{lanes_of(producer)._linger_timer}").read_text()
    found = re.search(r"it_value: \((\d+), (\d+)\)", watched)
    assert found is not None
    return int(found[1]) + int(found[2]) / 1e9


def test_the_timer_rings_when_a_linger_ends_unless_the_commit_was_before(producer: Producer) -> None:
    def was_set() -> bool:
        with opened(producer):
            found, commits = rings_in(producer), exchange_of(producer).commits
        if exchange_of(producer).commits == commits:
            return False  # the loop was not asleep, and has timers of its own
        assert not rings_in(producer)
        return LINGER_S / 2 < found <= LINGER_S

    eventually(was_set)


def test_the_timer_rings_when_the_pause_for_markers_is_over(producer: Producer) -> None:
    """Nothing may leave before, and what is due leaves then."""
    markers, pause = lanes_of(producer)._transactions.markers, LINGER_S / 2
    with opened(producer):
        markers.ended(producer._core.clock() + pause, 0.0)
        assert exchange_of(producer).on_readable(lanes_of(producer)._linger_timer)
        assert pause / 2 < rings_in(producer) <= pause + 1
        assert not exchange_of(producer).sent.requests
        markers.clear()


def test_the_loop_sleeps_on_if_the_timer_rings_for_batches_that_have_left_another_way(producer: Producer) -> None:
    selector = lanes_of(producer)._selector
    eventually(lambda: selector.acquire(False))
    try:
        assert exchange_of(producer).on_readable(lanes_of(producer)._linger_timer)
    finally:
        selector.give_back()


@pytest.mark.parametrize("why", ["the loop has to send", "it is being sealed", "it is large"])
def test_a_commit_does_not_begin_here_if_a_batch_cannot_leave_here(cluster: FakeCluster, producer: Producer, why: str) -> None:
    accumulator, large = producer._core.accumulator, bytes(600_000)
    sealing: list[Batch] = []

    def begins() -> bool:
        with opened(producer, lambda producer: send(producer, large if why == "it is large" else b"x")):
            [batch] = heads(producer)
            if why != "it is large":
                accumulator.flush_open()
            if why == "it is being sealed":
                assert accumulator.head(batch.queue) is batch
                sealing.append(batch)
            lanes_of(producer)._selector.give_back()
            exchange, commits = exchange_of(producer), exchange_of(producer).commits
            assert not exchange.commit()
            found = state(producer) is TransactionState.IN_TRANSACTION
            while sealing:
                accumulator.seal(sealing.pop())
            eventually(lambda: lanes_of(producer)._selector.acquire(False))
            assert exchange.commits == commits
        return found

    assert all(begins() for _ in range(5))
    assert set(values(cluster)) == {large if why == "it is large" else b"x"}


@pytest.mark.usefixtures("_short_timers_only")
def test_a_commit_that_is_not_finished_here_goes_on_without_its_caller(cluster: FakeCluster, producer: Producer) -> None:
    """A signal handler may have raised in it. No answer wakes the loop here."""
    eventually(lambda: begun(producer, send))
    lanes_of(producer)._selector.give_back()
    cluster.pause(1)
    try:
        assert not exchange_of(producer).commit()
        assert state(producer) is TransactionState.COMMITTING
        eventually(lambda: not exchange_of(producer).in_flight)
    finally:
        cluster.resume(1)
    eventually(lambda: state(producer) is TransactionState.READY)
    assert set(values(cluster)) == {b"x"}
