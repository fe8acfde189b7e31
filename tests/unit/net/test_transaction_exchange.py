"""Usual transactions are carried out in the thread that calls, and end as any others, whatever happens meanwhile."""
from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient import ConsumerGroupMetadata, Producer, TopicPartition
from pyclient.buffers import topic_compression
from pyclient.client.facade_base import OPTION
from pyclient.codec.apis import Api
from pyclient.core.handshake import Features
from pyclient.core.sending.sender import Sender
from pyclient.core.transactions.calls import V1
from pyclient.core.transactions.marker_pause import MarkerPause
from pyclient.core.transactions.manager import FEATURE, Transactions
from pyclient.core.transactions.states import TransactionState
from pyclient.errors import ClientForkedError, IllegalStateError, KafkaError, KafkaTimeoutError, TransactionAbortableError
from pyclient.net import lent_connection
from pyclient.net.in_flight import MAX_CORRELATION_ID
from pyclient.producer.transaction_lanes import TRIED
from pyclient.runtime.deferred_signals import DeferredSignals
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Cut, Delay, Drop, Fail, Throttle, Verdict
from pyclient.testing.fake.model.request import Request
from tests.forks import fork
from tests.strike import Strike
from tests.unit.net.lone_records import PARTITIONS
from tests.unit.net.usual_transactions import exchange_of, lanes_of, made, state, transact, until_usual, values
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")
FAULTS: Final[dict[str, Verdict]] = {
    "not the leader": Fail(6), "loading": Fail(14), "concurrent": Fail(51), "lost before": Drop(), "lost after": Drop(applied=True), "cut": Cut(7),
    "throttled": Throttle(5), "late": Delay(0.15), "cannot be committed": Fail(120),
}
VARIABLE: Final = ("metadata-age", "latency", "time", "throttle", "connection", "incoming", "outgoing", "request-total", "node=-")
"""Times, and what depends on the requests that a client makes beside Produce and EndTxn."""
INPUT: Final = TopicPartition("in", 0)
GROUP: Final = ConsumerGroupMetadata("g")
Step = tuple[str, str, tuple[int, ...]]
"""What to do, the API that a fault is about, and on which partitions."""


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[Producer]:
    with made(cluster) as producer:
        until_usual(producer)
        yield producer


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done another way than the usual one."""
    found: list[str] = []
    start, commit, begin = Sender._start, Transactions.commit, Transactions.begin

    def noted_start(*args: Any) -> bool:
        found.append("batch")
        return start(*args)

    def noted_commit(manager: Transactions) -> Any:
        found.append("commit")
        return commit(manager)

    def noted_begin(*args: Any) -> Any:
        found.append("begin")
        return begin(*args)

    monkeypatch.setattr(Sender, "_start", noted_start)
    monkeypatch.setattr(Transactions, "commit", noted_commit)
    monkeypatch.setattr(Transactions, "begin", noted_begin)
    return found


def usual_commits(producer: Producer, ways: list[str], transactions: int) -> int:
    """How many of so many transactions were committed the usual way."""
    usual = 0
    for number in range(transactions):
        del ways[:]
        transact(producer, b"%d" % number, b"and one")
        usual += "commit" not in ways
    return usual


# --- the usual transaction -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"client_id": "é" * 100}, {"acks": "all", "max_in_flight_requests_per_connection": 1}], ids=str)
def test_usual_transactions_are_committed_in_order(cluster: FakeCluster, ways: list[str], options: dict[str, Any]) -> None:
    with made(cluster, **options) as producer:
        until_usual(producer)
        assert usual_commits(producer, ways, 100) > 50  # a busy loop takes some of them
    assert values(cluster) == [value for number in range(100) for value in (b"%d" % number, b"and one")]


def test_each_partition_of_a_topic_is_usual_once_one_is(cluster: FakeCluster, ways: list[str]) -> None:
    def usual_in_each() -> bool:
        with made(cluster) as producer:
            until_usual(producer)
            del ways[:]
            for partition in range(PARTITIONS):
                transact(producer, b"%d" % partition, partition=partition)
            return not ways

    eventually(usual_in_each)
    for partition in range(PARTITIONS):
        assert set(values(cluster, partition)) == {b"%d" % partition}


def test_a_block_is_carried_out_the_usual_way(cluster: FakeCluster, producer: Producer, ways: list[str]) -> None:
    def block() -> bool:
        del ways[:]
        with producer.transaction():
            producer.send("t", b"x", partition=0)
        return not ways

    eventually(block)
    with pytest.raises(RuntimeError, match="mine"), producer.transaction():
        producer.send("t", b"aborted", partition=0)
        raise RuntimeError("mine")
    assert set(values(cluster)) == {b"x"}


def test_a_transaction_without_records_sends_nothing(cluster: FakeCluster, producer: Producer) -> None:
    asked = len(cluster.requests("EndTxn"))
    for _ in range(5):
        transact(producer)
    assert len(cluster.requests("EndTxn")) == asked
    transact(producer, b"x")
    assert values(cluster) == [b"x"]


def test_a_transaction_without_records_is_usual_too(producer: Producer, ways: list[str]) -> None:
    def empty() -> bool:
        del ways[:]
        transact(producer)
        return not ways

    eventually(empty)


def test_a_record_that_is_accepted_before_the_gate_closes_is_part_of_the_commit(cluster: FakeCluster, producer: Producer) -> None:
    """Also when there was none when the commit began: it must not wait for the next transaction."""
    manager = lanes_of(producer)._transactions
    close_gate = manager.on_gate
    for number in range(30):  # a busy loop takes some of them
        producer.begin_transaction()
        late = [b"%d" % number]

        def sent_first(error: KafkaError | None, late: list[bytes] = late) -> object:
            if error is not None and late:
                sending = threading.Thread(target=producer.send, args=("t", late.pop()), kwargs={"partition": 0})
                sending.start()
                sending.join()
            return close_gate(error)

        manager.on_gate = sent_first
        producer.commit_transaction()
        manager.on_gate = close_gate
        assert values(cluster) == [b"%d" % each for each in range(number + 1)]


def test_a_producer_that_goes_on_under_another_id_writes_that_one(cluster: FakeCluster, producer: Producer) -> None:
    """The coordinator knows no producer id of it under the id before."""
    transact(producer, b"before")
    producer.init_transactions(transactional_id="y")
    asked = len(cluster.requests())
    for number in range(10):
        transact(producer, b"%d" % number)
    written = {each.body.transactional_id for each in cluster.requests()[asked:] if each.api in (Api.PRODUCE, Api.END_TXN)}
    assert written == {"y"}
    assert values(cluster) == [b"before", *(b"%d" % number for number in range(10))]


def test_T06_a_cluster_that_goes_back_to_the_older_protocol_is_followed(producer: Producer, ways: list[str]) -> None:
    manager = lanes_of(producer)._transactions
    producer.begin_transaction()
    producer.send("t", b"x", partition=0)
    exchange_of(producer).clear()
    manager._features = lambda: Features(1, {FEATURE: 1})
    producer.commit_transaction()
    del ways[:]
    producer.begin_transaction()
    assert ways == ["begin"]
    assert manager.protocol is V1
    producer.abort_transaction()


def test_records_that_are_acknowledged_before_are_committed(cluster: FakeCluster, producer: Producer) -> None:
    for number in range(5):
        producer.begin_transaction()
        producer.send("t", b"%d" % number, partition=0)
        producer.flush()
        producer.commit_transaction()
    assert values(cluster) == [b"%d" % number for number in range(5)]


def test_deliveries_are_known_when_a_usual_commit_returns(cluster: FakeCluster, producer: Producer) -> None:
    seen: list[int | None] = []
    for number in range(20):
        producer.begin_transaction()
        delivery = producer.send("t", b"%d" % number, partition=0)
        bulk = producer.send_many("t", [b"many"] * 3, partition=0)
        called = producer.send("t", b"called", partition=0, on_delivery=lambda each: seen.append(each.result(0).offset))
        producer.commit_transaction()
        assert delivery.done()
        assert called.done()
        first = delivery.result(0).offset
        assert first is not None
        assert [each.offset for each in bulk.result(0)] == [first + 1, first + 2, first + 3]
    producer.flush()
    assert len(seen) == 20
    assert len(values(cluster)) == 100


def test_bulks_are_committed_the_usual_way(cluster: FakeCluster, producer: Producer, ways: list[str]) -> None:
    def bulk() -> bool:
        del ways[:]
        producer.begin_transaction()
        deliveries = producer.send_many("t", [b"x"] * 10, partition=0)
        producer.commit_transaction()
        return deliveries.done() and not ways

    eventually(bulk)


@pytest.mark.parametrize("kind", ["send_many", "send_arrow", "callback of all", "callback of one"])
def test_signal_handlers_are_deferred_only_where_somebody_is_notified_of_the_end(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    held: list[str] = []
    hold = DeferredSignals.hold

    def noted(signals: DeferredSignals) -> Any:
        held.append("held")
        return hold(signals)

    monkeypatch.setattr(DeferredSignals, "hold", noted)

    def transaction(producer: Producer, called: list[object]) -> bool:
        commits = exchange_of(producer).commits
        producer.begin_transaction()
        deliveries = producer.send_many("t", [b"x"] * 10) if kind == "send_many" else producer.send_arrow("t", pyarrow.table({"value": [b"x"] * 10}))
        if kind == "callback of all":
            deliveries.add_done_callback(called.append)
        if kind == "callback of one":
            deliveries[0].add_done_callback(called.append)
        del held[:]
        producer.commit_transaction()
        assert deliveries.done()
        return exchange_of(producer).commits > commits

    with made(cluster) as producer:
        until_usual(producer)
        called: list[object] = []
        eventually(lambda: transaction(producer, called))
        producer.flush()
        assert bool(held) == bool(called) == ("callback" in kind)


def test_a_batch_that_the_kernel_does_not_take_whole_is_committed(cluster: FakeCluster, producer: Producer, ways: list[str]) -> None:
    large = [b"%d" % number * 1000 for number in range(90)]
    for connection in producer._core.connections._connections():
        assert connection.socket is not None
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    def usual() -> bool:
        del ways[:]
        transact(producer, *large)
        return not ways

    eventually(usual)
    assert values(cluster)[-90:] == large


def test_correlation_ids_wrap(cluster: FakeCluster, producer: Producer) -> None:
    connections = [each for each in producer._core.connections._connections() if each.socket is not None]
    for connection in connections:
        connection.requests.correlation_id = MAX_CORRELATION_ID - 2
    for number in range(6):
        transact(producer, b"%d" % number)
    assert sum(connection.requests.correlation_id < 10 for connection in connections) >= 2
    assert values(cluster) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_a_usual_transaction_is_counted_as_any_other(cluster: FakeCluster, partitions: int) -> None:
    def counted(*, usual: bool) -> dict[str, float]:
        with made(cluster) as producer:
            if not usual:
                exchange_of(producer).close()
            producer.init_transactions()
            for _ in range(50):
                producer.begin_transaction()
                for number in range(2 * partitions):
                    producer.send("t", b"x" * 100, b"key", partition=number % partitions, timestamp=1)
                producer.commit_transaction()
            found = producer.metrics()
            return {name: value for name, value in found.items() if "-rate" not in name and not any(word in name for word in VARIABLE)}

    assert counted(usual=True) == counted(usual=False)


def test_calls_that_took_place_here_are_timed(producer: Producer) -> None:
    before = producer.metrics()
    for _ in range(10):
        transact(producer, b"x")
    after = producer.metrics()
    for name in ("txn-begin-time-ns-total", "txn-commit-time-ns-total"):
        assert after[name] > before[name]


# --- batches of several partitions -----------------------------------------------------------------------------------


def transact_by_key(producer: Producer, number: int, *topics: str) -> dict[str, list[bytes]]:
    """A transaction with ten records for each topic, whose keys go to all of its partitions; returns them."""
    sent = {topic: [b"%d-%d" % (number, each) for each in range(10)] for topic in topics}
    producer.begin_transaction()
    for topic, those in sent.items():
        for each, value in enumerate(those):
            producer.send(topic, value, b"%d" % each)
    producer.commit_transaction()
    return sent


def in_all_partitions(cluster: FakeCluster, topic: str) -> list[bytes]:
    return sorted(record.value or b"" for partition in range(PARTITIONS) for record in cluster.records(topic, partition))


@pytest.mark.parametrize("brokers", [1, 3])
def test_records_of_several_partitions_and_topics_are_committed_the_usual_way(brokers: int, ways: list[str]) -> None:
    """Each node gets one request."""
    with FakeCluster(brokers=brokers) as cluster, made(cluster) as producer:
        sent: dict[str, list[bytes]] = {"t": [], "u": []}
        for topic in sent:
            cluster.create_topic(topic, PARTITIONS)
        producer.init_transactions()

        def usual() -> bool:
            del ways[:]
            asked = len(cluster.requests("Produce"))
            for topic, values in transact_by_key(producer, len(sent["t"]), "t", "u").items():
                sent[topic] += values
            return not ways and len(cluster.requests("Produce")) == asked + brokers

        eventually(usual)
        assert {topic: in_all_partitions(cluster, topic) for topic in sent} == {topic: sorted(values) for topic, values in sent.items()}


def test_partitions_of_a_large_topic_are_usual_too(cluster: FakeCluster, producer: Producer, ways: list[str]) -> None:
    cluster.create_topic("large", 200)

    def usual() -> bool:
        del ways[:]
        producer.begin_transaction()
        for partition in (0, 70, 199):
            producer.send("large", b"x", partition=partition)
        producer.commit_transaction()
        return not ways

    eventually(usual)


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"cannot be committed"}))
def test_batches_of_one_node_are_stored_once_whatever_the_answer_of_another_is(fault: str) -> None:
    with FakeCluster(brokers=3) as cluster, made(cluster) as producer:
        cluster.create_topic("t", PARTITIONS)
        producer.init_transactions()
        sent = []
        for number in range(20):
            with cluster.intercept(FAULTS[fault], "Produce", times=1) if number % 2 else contextlib.nullcontext():
                sent += transact_by_key(producer, number, "t")["t"]
        assert in_all_partitions(cluster, "t") == sorted(sent)


def test_a_partition_whose_leader_moves_is_sent_again_alone() -> None:
    with FakeCluster(brokers=3) as cluster, made(cluster) as producer:
        cluster.create_topic("t", PARTITIONS)
        producer.init_transactions()
        sent = []
        for number in range(20):
            cluster.move_leader("t", number % PARTITIONS, 1 + number // 3 % 3)
            sent += transact_by_key(producer, number, "t")["t"]
        assert in_all_partitions(cluster, "t") == sorted(sent)


def test_batches_that_are_too_large_together_leave_in_several_requests(cluster: FakeCluster, ways: list[str]) -> None:
    with made(cluster, max_request_size=1500, batch_size=1200) as producer:
        until_usual(producer)

        def usual() -> bool:
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.send("t", bytes(1000), partition=partition)
            del ways[:]
            asked = len(cluster.requests("Produce"))
            producer.commit_transaction()
            return not ways and len(cluster.requests("Produce")) == asked + PARTITIONS

        eventually(usual)
        assert max(sum(len(each.records) for topic in request.body.topic_data for each in topic.partition_data)
                   for request in cluster.requests("Produce")) <= 1500


# --- full batches ----------------------------------------------------------------------------------------------------


@pytest.fixture
def filling(cluster: FakeCluster) -> Iterator[Producer]:
    """Nine records of `transact_many` fill a batch."""
    with made(cluster, batch_size=1000) as producer:
        until_usual(producer)
        yield producer


def many(number: int, count: int = 40) -> list[bytes]:
    return [b"%d-%0100d" % (number, each) for each in range(count)]


def send_many_of(producer: Producer, number: int, partitions: tuple[int, ...] = (0,)) -> list[bytes]:
    """Fill several batches of each partition, one record after the other; returns what was sent to each."""
    sent = many(number)
    for value in sent:
        for partition in partitions:
            producer.send("t", value, partition=partition)
    return sent


def transact_many(producer: Producer, number: int, partitions: tuple[int, ...] = (0,)) -> list[bytes]:
    producer.begin_transaction()
    sent = send_many_of(producer, number, partitions)
    producer.commit_transaction()
    return sent


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("partitions", [(0,), (0, 1, 2)], ids=str)
def test_full_batches_are_stored_in_order_the_usual_way(brokers: int, partitions: tuple[int, ...], ways: list[str]) -> None:
    with FakeCluster(brokers=brokers) as cluster, made(cluster, batch_size=1000) as producer:
        cluster.create_topic("t", PARTITIONS)
        until_usual(producer)
        sent: list[bytes] = []

        def usual() -> bool:
            del ways[:]
            sent.extend(transact_many(producer, len(sent), partitions))
            return not ways

        eventually(usual)
        for partition in partitions:
            assert values(cluster, partition) == sent


def test_a_full_batch_leaves_before_the_commit_in_the_thread_that_filled_it(cluster: FakeCluster, filling: Producer, ways: list[str]) -> None:
    def left() -> bool:
        asked = len(cluster.requests("Produce"))
        filling.begin_transaction()
        del ways[:]
        send_many_of(filling, 0)
        eventually(lambda: len(cluster.requests("Produce")) > asked)
        here = not ways
        filling.commit_transaction()
        return here

    eventually(left)


def test_answers_to_full_batches_without_a_waiter_are_read_soon(cluster: FakeCluster, filling: Producer) -> None:
    """The client's own timers would read them after a second or more."""
    soon = 0

    def read_soon() -> bool:
        nonlocal soon
        filling.begin_transaction()
        with cluster.intercept(Delay(0.01), "Produce"):
            send_many_of(filling, 0)
            began = filling._core.clock()
            in_flight = exchange_of(filling).in_flight
            eventually(lambda: not exchange_of(filling).in_flight)
        soon += in_flight and filling._core.clock() - began < 0.1
        filling.commit_transaction()
        return soon >= 5

    eventually(read_soon)


@pytest.mark.usefixtures("_short_timers_only")
def test_the_loop_gets_a_request_that_is_not_answered(cluster: FakeCluster, filling: Producer) -> None:
    """It knows the timeouts. Here nothing wakes it but the exchange's own timer."""
    def handed_over() -> bool:
        transact(filling, b"first")
        filling.begin_transaction()
        cluster.pause(1)
        send_many_of(filling, 0)
        found = exchange_of(filling).in_flight
        try:
            eventually(lambda: not exchange_of(filling).in_flight)
        finally:
            cluster.resume(1)
        filling.abort_transaction()
        return found

    eventually(handed_over)


@pytest.mark.parametrize("delay", [0.0, 0.03])
def test_a_batch_whose_linger_ends_is_stored_without_a_turn_of_the_loop(cluster: FakeCluster, ways: list[str], delay: float) -> None:
    """However late its answer is."""
    with made(cluster, linger_ms=1) as producer:
        until_usual(producer)

        def usual() -> bool:
            producer.begin_transaction()
            del ways[:]
            with cluster.intercept(Delay(delay), "Produce"):
                asked = len(cluster.requests("Produce"))
                producer.send("t", b"lingers", partition=0)
                eventually(lambda: len(cluster.requests("Produce")) > asked and not producer._core.unsettled())
            producer.commit_transaction()
            return not ways

        eventually(usual)
        assert set(values(cluster)) == {b"lingers"}


def test_full_batches_are_stored_before_the_commit(cluster: FakeCluster, filling: Producer) -> None:
    called: list[object] = []
    for number in range(5):
        filling.begin_transaction()
        deliveries = [filling.send("t", value, partition=0) for value in many(number)]
        first = filling.send("t", b"last", partition=0, on_delivery=called.append)
        eventually(deliveries[0].done)
        assert deliveries[0].result(0).partition == 0
        assert not first.done()
        filling.commit_transaction()
    filling.flush()
    assert len(called) == 5


def test_a_caller_that_waits_for_a_record_of_a_full_batch_gets_its_outcome(cluster: FakeCluster, filling: Producer) -> None:
    for number in range(10):
        filling.begin_transaction()
        deliveries = [filling.send("t", value, partition=0) for value in many(number)]
        assert deliveries[0].result(20).partition == 0
        filling.commit_transaction()
        assert [each.done() for each in deliveries] == [True] * len(deliveries)


@pytest.mark.parametrize("end", ["abort", "offsets", "flush", "another id"])
def test_other_calls_find_the_full_batches_that_have_left(cluster: FakeCluster, filling: Producer, end: str) -> None:
    cluster.create_topic("in")
    expected: list[bytes] = []
    for number in range(10):
        filling.begin_transaction()
        sent = send_many_of(filling, number)
        if end == "abort":
            filling.abort_transaction()
            continue
        if end == "offsets":
            filling.send_offsets({INPUT: number + 1}, GROUP)
        if end == "flush":
            filling.flush()
        filling.commit_transaction()
        if end == "another id":
            filling.init_transactions(transactional_id=f"id {number}")
        expected += sent
    assert transact_many(filling, 99) == values(cluster)[len(expected):]
    assert values(cluster)[:len(expected)] == expected
    assert end != "offsets" or cluster.committed("g")[INPUT].offset == 10


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"cannot be committed"}))
def test_full_batches_are_stored_once_whatever_their_answers_are(cluster: FakeCluster, filling: Producer, fault: str) -> None:
    sent: list[bytes] = []
    for number in range(8):
        with cluster.intercept(FAULTS[fault], "Produce", times=1 + number % 3):
            sent += transact_many(filling, number, (0, 1))
    assert values(cluster, 0) == values(cluster, 1) == sent


def test_a_full_batch_waits_for_the_markers_of_the_last_transaction(cluster: FakeCluster, filling: Producer, ways: list[str]) -> None:
    def waited() -> bool:
        asked: list[float] = []
        filling.begin_transaction()
        del ways[:]
        due = wait_for_markers(filling)
        with cluster.intercept(lambda _request: asked.append(filling._core.clock()), "Produce"):
            send_many_of(filling, 0)
            filling.commit_transaction()
        assert min(asked) >= due
        return not ways

    eventually(waited)


def test_full_batches_that_the_kernel_does_not_take_whole_are_committed(cluster: FakeCluster) -> None:
    with made(cluster, batch_size=100_000) as producer:
        until_usual(producer)
        for connection in producer._core.connections._connections():
            assert connection.socket is not None
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sent = []
        for number in range(5):
            producer.begin_transaction()
            for value in many(number, 3000):
                producer.send("t", value, partition=0)
                sent.append(value)
            producer.commit_transaction()
        assert values(cluster) == sent


def test_full_batches_of_several_threads_are_committed(cluster: FakeCluster, filling: Producer) -> None:
    for number in range(20):
        filling.begin_transaction()
        threads = [threading.Thread(target=send_many_of, args=(filling, number, (partition,))) for partition in range(PARTITIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        filling.commit_transaction()
    for partition in range(PARTITIONS):
        assert values(cluster, partition) == [value for number in range(20) for value in many(number)]


def test_Ctrl_C_at_any_line_of_sends_and_commit_stores_full_batches_once(cluster: FakeCluster, filling: Producer) -> None:
    for at in range(1, 90, 3):
        before, accepted = len(values(cluster)), list[bytes]()
        filling.begin_transaction()

        def send(accepted: list[bytes] = accepted, at: int = at) -> None:
            for value in many(at):
                filling.send("t", value, partition=0)
                accepted.append(value)

        with contextlib.suppress(KeyboardInterrupt):
            Strike(at, lambda: signal.raise_signal(signal.SIGINT)).during(send)
        try:
            Strike(at, lambda: signal.raise_signal(signal.SIGINT)).during(filling.commit_transaction)
        except KeyboardInterrupt:
            with contextlib.suppress(IllegalStateError):
                filling.commit_transaction()
        stored = values(cluster)[before:]
        assert stored == many(at)[:len(stored)]
        assert len(accepted) <= len(stored) <= len(accepted) + 1


def test_batches_filled_by_a_bulk_are_committed_the_usual_way(cluster: FakeCluster, filling: Producer, ways: list[str]) -> None:
    def usual() -> bool:
        del ways[:]
        filling.begin_transaction()
        deliveries = filling.send_many("t", many(1), partition=0)
        filling.commit_transaction()
        return deliveries.done() and not ways

    eventually(usual)


# --- what is not usual -----------------------------------------------------------------------------------------------


def test_T01_EndTxn_is_not_sent_before_the_records_are_stored(cluster: FakeCluster, producer: Producer) -> None:
    with cluster.intercept(Fail(6), "Produce", times=2):
        transact(producer, b"x")
    asked = [each.api for each in cluster.requests() if each.api in (Api.PRODUCE, Api.END_TXN)]
    assert asked[-4:] == [Api.PRODUCE, Api.PRODUCE, Api.PRODUCE, Api.END_TXN]
    assert values(cluster) == [b"x"]


@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"cannot be committed"}))
def test_a_transaction_is_committed_once_whatever_its_answer_is(cluster: FakeCluster, producer: Producer, fault: str, api: str) -> None:
    for number in range(4):
        with cluster.intercept(FAULTS[fault], api, times=1):
            transact(producer, b"%d" % number)
        transact(producer, b"between")
    assert values(cluster) == [value for number in range(4) for value in (b"%d" % number, b"between")]


@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
def test_a_transaction_that_cannot_be_committed_is_aborted(cluster: FakeCluster, producer: Producer, api: str) -> None:
    for number in range(4):
        with cluster.intercept(Fail(120), api, times=1), pytest.raises(TransactionAbortableError):
            transact(producer, b"refused")
        producer.abort_transaction()
        transact(producer, b"%d" % number)
    assert values(cluster) == [b"0", b"1", b"2", b"3"]


def test_T02_a_commit_whose_answer_is_late_goes_on_and_is_asked_for_again(cluster: FakeCluster, producer: Producer) -> None:
    producer.begin_transaction()
    producer.send("t", b"late", partition=0)
    cluster.pause(1)
    with pytest.raises(KafkaTimeoutError, match="Call commit_transaction again"):
        producer.commit_transaction(0.01)
    cluster.resume(1)
    producer.commit_transaction()
    transact(producer, b"next")
    assert values(cluster) == [b"late", b"next"]


@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
def test_Ctrl_C_ends_the_wait_and_the_same_call_goes_on(cluster: FakeCluster, producer: Producer, api: str) -> None:
    main = threading.main_thread().ident
    assert main is not None
    came = threading.Event()

    def delayed(_request: Request) -> Delay:
        came.set()
        return Delay(0.09)

    def strike() -> None:
        came.wait(20)
        signal.pthread_kill(main, signal.SIGINT)

    with cluster.intercept(delayed, api, times=1):
        striker = threading.Thread(target=strike)
        striker.start()
        producer.begin_transaction()
        producer.send("t", b"x", partition=0)
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
            striker.join(20)
        striker.join()
    with contextlib.suppress(IllegalStateError):  # interrupted between the outcome and the caller: it is committed
        producer.commit_transaction()
    transact(producer, b"next")
    assert values(cluster) == [b"x", b"next"]


def test_Ctrl_C_at_any_line_commits_once(cluster: FakeCluster, producer: Producer) -> None:
    sent: list[bytes] = []
    handlers = list(map(signal.getsignal, (signal.SIGINT, signal.SIGALRM)))
    for at in range(1, 60):
        producer.begin_transaction()
        sent.append(b"%d" % at)
        producer.send_many("t", sent[-1:], partition=0)
        interrupted = False
        try:
            Strike(at, lambda: signal.raise_signal(signal.SIGINT)).during(producer.commit_transaction)
        except KeyboardInterrupt:
            interrupted = True
        assert handlers == list(map(signal.getsignal, (signal.SIGINT, signal.SIGALRM)))
        if interrupted:
            with contextlib.suppress(IllegalStateError):
                producer.commit_transaction()
    assert values(cluster) == sent


def wait_for_markers(producer: Producer) -> float:
    """Transactions came too early: the next one waits the longest pause from now on; returns when that is over."""
    markers = markers_of(producer)
    while markers.pause < 0.012:
        markers.ended(0.0, 0.0)
        markers.answered(1.0, False)
    markers.ended(producer._core.clock(), 0.0)
    return markers.due


def markers_of(producer: Producer) -> MarkerPause:
    assert producer._core.transactions is not None
    return producer._core.transactions.markers


def test_the_batch_of_a_usual_transaction_waits_for_the_markers_of_the_last_one(producer: Producer, ways: list[str]) -> None:
    found = []
    for number in range(20):
        del ways[:]
        producer.begin_transaction()
        producer.send("t", b"%d" % number, partition=0)
        due = wait_for_markers(producer)
        producer.commit_transaction()
        assert producer._core.clock() > due
        found.append("commit" not in ways)
    assert any(found)


def test_a_usual_transaction_that_came_too_early_makes_the_pause_longer(cluster: FakeCluster, producer: Producer, ways: list[str]) -> None:
    def longer() -> bool:
        before = markers_of(producer).pause
        del ways[:]
        with cluster.intercept(Delay(0.04), "Produce", times=1):
            transact(producer, b"x")
        return "commit" not in ways and markers_of(producer).pause > before

    eventually(longer)


def test_the_wait_for_markers_is_no_part_of_the_time_that_the_batch_takes(cluster: FakeCluster, producer: Producer, ways: list[str]) -> None:
    """Together they are longer than 15 ms, which an answer to a batch that comes too early takes at least."""
    found = []
    with cluster.intercept(Delay(0.005), Api.PRODUCE):
        for number in range(20):
            del ways[:]
            producer.begin_transaction()
            producer.send("t", b"%d" % number, partition=0)
            wait_for_markers(producer)
            pause = markers_of(producer).pause
            producer.commit_transaction()
            found.append("commit" not in ways and 0.0 < markers_of(producer).pause < pause)  # a late one ends a pause of this length
    assert any(found)


def test_the_end_of_each_usual_transaction_is_known_to_the_next_one(producer: Producer, ways: list[str]) -> None:
    found = []
    for number in range(20):
        del ways[:]
        began = producer._core.clock()
        transact(producer, b"%d" % number)
        assert markers_of(producer).due > began
        found.append("commit" not in ways)
    assert any(found)


def test_Ctrl_C_ends_the_wait_for_markers_and_the_same_call_goes_on(cluster: FakeCluster, producer: Producer) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    sent = []
    try:
        for number in range(20):
            sent.append(b"%d" % number)
            producer.begin_transaction()
            producer.send("t", sent[-1], partition=0)
            wait_for_markers(producer)
            with contextlib.suppress(KeyboardInterrupt, IllegalStateError):
                signal.setitimer(signal.ITIMER_REAL, 0.004)
                producer.commit_transaction()
                signal.setitimer(signal.ITIMER_REAL, 0)
            with contextlib.suppress(IllegalStateError):  # it is committed
                producer.commit_transaction()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert values(cluster) == sent


def test_other_calls_are_served_while_a_thread_waits_for_its_commit(cluster: FakeCluster, producer: Producer) -> None:
    producer.begin_transaction()
    cluster.pause(1)
    producer.send("t", b"x", partition=0)
    calling = threading.Thread(target=producer.commit_transaction)
    calling.start()
    eventually(lambda: state(producer) is TransactionState.COMMITTING)
    with pytest.raises(KafkaTimeoutError):
        producer.flush(0.01)
    with pytest.raises(IllegalStateError):
        producer.send("t", b"too late", partition=0)
    cluster.resume(1)
    calling.join(20)
    assert not calling.is_alive()
    assert values(cluster) == [b"x"]


def test_records_of_other_threads_are_committed_or_refused(cluster: FakeCluster, producer: Producer) -> None:
    """A record that `send` accepted before the commit is part of it, however little before."""
    accepted: list[bytes] = []
    stop = threading.Event()

    def send() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with contextlib.suppress(IllegalStateError):
                producer.send("t", b"%d" % number, partition=number % PARTITIONS)
                accepted.append(b"%d" % number)

    sending = threading.Thread(target=send)
    sending.start()
    for _ in range(100):
        transact(producer, b"mine")
    stop.set()
    sending.join()
    stored = [value for partition in range(PARTITIONS) for value in values(cluster, partition) if value != b"mine"]
    assert sorted(stored, key=lambda value: int(value or 0)) == accepted
    assert values(cluster).count(b"mine") == 100


def act_as_commits_begin(producer: Producer, act: Callable[[], object]) -> None:
    """Have *act* called, as another thread would, when a commit has looked for batches and refuses no records yet."""
    manager = producer._core.transactions
    assert manager is not None
    close_gate = manager.on_gate

    def acting(error: KafkaError | None) -> None:
        if error is not None and state(producer) is TransactionState.IN_TRANSACTION:
            act()
        close_gate(error)

    manager.on_gate = acting


@pytest.mark.parametrize(("partition", "count"), [(1, 1), (0, 30)], ids=["in another batch", "filling the batch"])
def test_records_that_are_accepted_as_the_commit_begins_are_part_of_it(cluster: FakeCluster, partition: int, count: int) -> None:
    """A batch that is full by then is sealed when it should leave."""
    slipped: list[bytes] = []
    with made(cluster, batch_size=2000) as producer:
        until_usual(producer)

        def slip_in() -> None:
            for _ in range(count):
                slipped.append(b"%0100d" % len(slipped))
                producer.send("t", slipped[-1], partition=partition)

        def slipped_in() -> bool:
            transact(producer, b"first")
            return len(slipped) >= 3 * count

        act_as_commits_begin(producer, slip_in)
        eventually(slipped_in)
    assert values(cluster, partition) == slipped


def test_a_linger_that_ends_sends_the_records_before_the_commit(cluster: FakeCluster) -> None:
    with made(cluster, linger_ms=1) as producer:
        until_usual(producer)
        for number in range(5):
            producer.begin_transaction()
            delivery = producer.send("t", b"%d" % number, partition=0)
            assert delivery.result(20).partition == 0
            producer.commit_transaction()
    assert values(cluster) == [b"%d" % number for number in range(5)]


def test_refused_rows_of_a_bulk_are_not_missing_from_a_commit(cluster: FakeCluster, producer: Producer) -> None:
    producer.begin_transaction()
    producer.send_many("t", [b"x", b"y" * (2 << 20)], partition=0)
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    transact(producer, b"next")
    assert values(cluster) == [b"next"]


def test_the_records_of_a_transaction_with_offsets_are_committed_the_usual_way(cluster: FakeCluster, producer: Producer, ways: list[str]) -> None:
    cluster.create_topic("in")
    expected: list[bytes] = []

    def usual() -> bool:
        del ways[:]
        producer.begin_transaction()
        producer.send("t", b"%d" % len(expected), partition=0)
        producer.send_offsets({INPUT: len(expected)}, GROUP)
        producer.send("t", b"behind", partition=0)
        producer.commit_transaction()
        assert cluster.committed("g")[INPUT].offset == len(expected)
        expected.extend([b"%d" % len(expected), b"behind"])
        return not ways

    eventually(usual)
    assert values(cluster) == expected


def test_a_producer_that_went_other_ways_tries_the_usual_one_with_offsets_again(cluster: FakeCluster, producer: Producer, ways: list[str]) -> None:
    cluster.create_topic("in")

    def usual(timeout: Any = OPTION) -> bool:
        del ways[:]
        producer.begin_transaction()
        producer.send("t", b"x", partition=0)
        producer.send_offsets({INPUT: 1}, GROUP)
        producer.commit_transaction(timeout)
        return not ways

    for _ in range(2 * TRIED):
        usual(timeout=60)
    assert not usual()
    eventually(usual)


def test_offsets_wait_for_the_markers_of_the_last_transaction_in_the_thread_that_calls(cluster: FakeCluster, producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("in")
    threads: list[threading.Thread] = []
    end = Transactions._on_offsets

    def noted(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return end(*arguments)

    monkeypatch.setattr(Transactions, "_on_offsets", noted)
    for _ in range(20):
        producer.begin_transaction()
        due = wait_for_markers(producer)
        producer.send_offsets({INPUT: 1}, GROUP)
        assert producer._core.clock() > due
        producer.commit_transaction()
    assert threading.current_thread() in threads


def test_offsets_and_new_partitions_go_another_way(cluster: FakeCluster, producer: Producer) -> None:
    cluster.create_topic("other", 1)
    producer.begin_transaction()
    producer.send("t", b"x", partition=0)
    producer.send("other", b"y")
    producer.commit_transaction()
    assert [record.value for record in cluster.records("other", 0)] == [b"y"]
    assert values(cluster) == [b"x"]


def broken(*_args: object) -> bytes:
    raise MemoryError("no more")


def test_a_record_that_cannot_be_compressed_when_the_gate_closes_is_not_missing_from_a_commit(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of another thread: the commit has begun, and found nothing to send."""
    monkeypatch.setattr(topic_compression, "compress", broken)
    cluster.create_topic("small", 1)
    with made(cluster, compression_by_topic={"small": "gzip"}) as producer:
        until_usual(producer)
        with producer.transaction():
            producer.partitions_for("small")
        manager, buffers = lanes_of(producer)._transactions, producer._core.accumulator
        close_gate, late = manager.on_gate, [b"x"]

        def sent_first(error: KafkaError | None) -> object:
            if error is not None and late:
                sending = threading.Thread(target=send_and_seal)
                sending.start()
                sending.join()
            return close_gate(error)

        def send_and_seal() -> None:
            producer.send("small", late.pop())
            for batch in buffers.close_older(float("inf")):
                buffers.seal(batch)

        for _ in range(10):  # a busy loop takes some of them
            producer.begin_transaction()
            manager.on_gate = sent_first
            with pytest.raises(TransactionAbortableError, match="compressed"):
                producer.commit_transaction()
            manager.on_gate = close_gate
            producer.abort_transaction()
            transact(producer, b"first")
            late.append(b"x")
    assert cluster.records("small", 0) == []


@pytest.mark.parametrize("between", ["nothing", "records", "offsets"])
def test_records_that_could_not_be_compressed_are_not_missing_from_a_commit(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, between: str) -> None:
    """The thread that sends seals their batch: they are settled, as failed, before the loop looks."""
    monkeypatch.setattr(topic_compression, "compress", broken)
    cluster.create_topic("small", 1)
    cluster.create_topic("in")
    with made(cluster, compression_by_topic={"small": "gzip"}) as producer:
        until_usual(producer)
        for number in range(3):
            transact(producer, b"%d" % number)
            producer.begin_transaction()
            producer.send("small", bytes(700))
            buffers = producer._core.accumulator
            topic = buffers.topic("small")
            assert topic is not None
            buffers.flush_open()
            buffers.take_ready(0.0)
            batch = buffers.head(topic.queues[0])
            assert batch is not None
            buffers.seal(batch)
            buffers.take_ready(0.0)
            if between == "records":
                producer.send("t", b"with what failed", partition=0)
            with pytest.raises(TransactionAbortableError, match="compressed"):
                if between == "offsets":
                    producer.send_offsets({INPUT: 1}, GROUP)
                producer.commit_transaction()
            producer.abort_transaction()
    assert values(cluster) == [b"0", b"1", b"2"]


def test_a_thread_that_is_deep_in_its_stack_lets_the_loop_act(cluster: FakeCluster, producer: Producer, ways: list[str]) -> None:
    def deeply(left: int) -> None:
        if left:
            deeply(left - 1)
        else:
            transact(producer, b"deep")

    deeply(sys.getrecursionlimit() - lent_connection.DEPTH)
    assert ways[0] == "begin"
    assert "commit" in ways
    assert values(cluster) == [b"deep"]


def test_a_closed_producer_begins_nothing(cluster: FakeCluster, producer: Producer) -> None:
    producer.close()
    with pytest.raises(Exception, match="closed"):
        producer.begin_transaction()
    with pytest.raises(Exception, match="closed"):
        producer.commit_transaction()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_commits_nothing_of_its_parent(cluster: FakeCluster, producer: Producer) -> None:
    producer.begin_transaction()
    producer.send("t", b"x", partition=0)
    child = fork()
    if not child:
        refused = 1
        try:
            producer.commit_transaction()
        except ClientForkedError:
            refused = 0
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.commit_transaction()
    assert values(cluster) == [b"x"]


def test_another_producer_with_the_id_fences_this_one(cluster: FakeCluster, producer: Producer) -> None:
    with made(cluster) as other:
        other.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"fenced", partition=0)
        with pytest.raises(Exception) as raised:
            producer.commit_transaction()
        if not getattr(raised.value, "fatal", False):
            with pytest.raises(Exception) as raised:
                producer.abort_transaction()
        assert getattr(raised.value, "fatal", False)
        transact(other, b"x")
    assert values(cluster) == [b"x"]


# --- everything together ---------------------------------------------------------------------------------------------


def steps() -> st.SearchStrategy[list[Step]]:
    what = st.sampled_from(["commit", "commit", "commit", "block", "bulk", "many", "many", "abort", "flush", "callback", "metrics", "move", "offsets", "offsets", "offsets first", *FAULTS])
    partitions = st.sampled_from([(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
    return st.lists(st.tuples(what, st.sampled_from(["Produce", "EndTxn", "TxnOffsetCommit"]), partitions), min_size=5, max_size=20)


@pytest.mark.parametrize("brokers", [1, 3])
@given(given_steps=steps())
@settings(max_examples=30, deadline=None)
def test_whatever_happens_what_was_committed_is_stored_once_in_order(brokers: int, given_steps: list[Step]) -> None:
    with FakeCluster(brokers=brokers) as cluster, made(cluster, batch_size=1000) as producer:
        cluster.create_topic("t", PARTITIONS)
        cluster.create_topic("in")
        producer.init_transactions()
        run = Run(cluster, producer, brokers)
        for number, step in enumerate(given_steps):
            run.take(number, *step)
        for partition in range(PARTITIONS):
            assert [record.value for record in cluster.records("t", partition)] == run.committed[partition]
        assert {tp: each.offset for tp, each in cluster.committed("g").items()} == run.offsets


class Run:
    """Transactions one after the other, and what must be stored then."""

    def __init__(self, cluster: FakeCluster, producer: Producer, brokers: int) -> None:
        self.committed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.offsets: dict[TopicPartition, int] = {}
        self._cluster, self._producer, self._brokers = cluster, producer, brokers

    def take(self, number: int, what: str, api: str, partitions: tuple[int, ...]) -> None:
        """One step is one transaction, with a fault or not."""
        fault = FAULTS.get(what)
        with contextlib.nullcontext() if fault is None else self._cluster.intercept(fault, api, times=1):
            try:
                self._transact(number, what, partitions, {INPUT: number + 1} if "offsets" in what or api == "TxnOffsetCommit" else {})
            except TransactionAbortableError:
                self._producer.abort_transaction()

    def _transact(self, number: int, what: str, partitions: tuple[int, ...], offsets: dict[TopicPartition, int]) -> None:
        producer = self._producer
        values = [b"%d" % number, b"a", b"b"] if what == "bulk" else many(number) if what == "many" else [b"%d" % number]
        if what == "metrics":
            producer.metrics()
        if what == "move":
            self._cluster.move_leader("t", partitions[0], 1 + number % self._brokers)
        if what == "block":
            with producer.transaction():
                self._send(what, values, partitions, offsets)
        else:
            producer.begin_transaction()
            self._send(what, values, partitions, offsets)
            if what == "abort":
                producer.abort_transaction()
                return
            producer.commit_transaction()
        for partition in partitions:
            self.committed[partition] += values
        self.offsets |= offsets

    def _send(self, what: str, values: list[bytes], partitions: tuple[int, ...], offsets: dict[TopicPartition, int]) -> None:
        producer = self._producer
        if offsets and what == "offsets first":
            producer.send_offsets(offsets, GROUP)
        for partition in partitions:
            if what == "bulk":
                producer.send_many("t", values, partition=partition)
            else:
                for value in values:
                    producer.send("t", value, partition=partition, on_delivery=(lambda _: None) if what == "callback" else None)
        if what == "flush":
            producer.flush()
        if offsets and what != "offsets first":
            producer.send_offsets(offsets, GROUP)
