"""The calls of a sync producer's transactions are carried out in the thread that makes them, while the loop sleeps."""
from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Producer
from pyclient.client import in_place
from pyclient.net import lent_connection
from pyclient.client.in_place import Answers
from pyclient.core.transactions.states import TransactionState
from pyclient.errors import IllegalStateError, KafkaTimeoutError, TransactionAbortableError
from pyclient.net.connection import Connection
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Drop, Fail
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")
TRANSACTIONS = 30
TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t")
    return fake_cluster


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[Producer]:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x") as made:
        made.init_transactions()
        transact(made, b"first")
        yield made


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that read answers in place of the loop, which waits for them however long they take."""
    found: list[int] = []
    monkeypatch.setattr(in_place, "PATIENCE", 60.0)
    monkeypatch.setattr(in_place, "LONGEST_WAIT", 60.0)
    read = lent_connection.read_once

    def noted(connection: Connection) -> bool:
        found.append(threading.get_ident())
        return read(connection)

    monkeypatch.setattr(in_place, "read_once", noted)
    return found


def transact(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.send("t", value)
    producer.commit_transaction()


def committed(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


def state(producer: Producer) -> TransactionState:
    return producer._transaction_calls().state


def test_transactions_are_committed_in_the_thread_that_calls(cluster: FakeCluster, producer: Producer, readers: list[int]) -> None:
    for number in range(TRANSACTIONS):
        transact(producer, b"%d" % number)
    assert set(readers) == {threading.get_ident()}
    assert committed(cluster) == [b"first", *(b"%d" % number for number in range(TRANSACTIONS))]


def test_an_abort_is_carried_out_in_place_too(cluster: FakeCluster, producer: Producer, readers: list[int]) -> None:
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.send("t", b"%d" % number)
        producer.abort_transaction()
    assert set(readers) <= {threading.get_ident()}
    assert committed(cluster) == [b"first"]
    transact(producer, b"last")
    assert committed(cluster) == [b"first", b"last"]


def test_T02_a_call_that_the_loop_goes_on_with_has_one_outcome(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> None:
    """The loop may end it at any moment after the thread has given its place back."""
    handle = Answers.handle_next
    monkeypatch.setattr(Answers, "handle_next", lambda self, until: handle(self, until) and False)
    gives_back = in_place.InPlace.run

    def run(self: Any, function: Callable[[], object]) -> bool:
        ran = gives_back(self, function)
        eventually(lambda: state(producer) in (TransactionState.READY, TransactionState.IN_TRANSACTION))
        return ran

    monkeypatch.setattr(in_place.InPlace, "run", run)
    for number in range(3):
        transact(producer, b"%d" % number)
    assert state(producer) is TransactionState.READY


def test_an_answer_that_takes_long_is_awaited_by_the_loop(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, producer: Producer) -> None:
    monkeypatch.setattr(in_place, "LONGEST_WAIT", 0.001)
    producer.begin_transaction()
    producer.send("t", b"late")
    cluster.pause(1)
    with pytest.raises(KafkaTimeoutError, match="Call commit_transaction again"):
        producer.commit_transaction(0.05)
    cluster.resume(1)
    producer.commit_transaction()
    assert committed(cluster) == [b"first", b"late"]


def test_other_calls_are_served_while_a_thread_waits_for_its_commit(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, producer: Producer) -> None:
    monkeypatch.setattr(in_place, "LONGEST_WAIT", 600.0)
    producer.begin_transaction()
    producer.send("t", b"x")
    cluster.pause(1)
    calling = threading.Thread(target=producer.commit_transaction)
    calling.start()
    eventually(lambda: state(producer) is TransactionState.COMMITTING)
    with pytest.raises(KafkaTimeoutError):
        producer.flush(0.01)
    cluster.resume(1)
    calling.join(20)
    assert not calling.is_alive()
    assert committed(cluster) == [b"first", b"x"]


def test_a_connection_lost_before_the_end_is_answered_is_seen_and_the_transaction_committed_once(cluster: FakeCluster, producer: Producer) -> None:
    for number in range(3):
        with cluster.intercept(Drop(), "EndTxn", times=1):
            transact(producer, b"%d" % number)
    assert committed(cluster) == [b"first", b"0", b"1", b"2"]


def test_an_error_is_raised_where_the_call_was_made_and_the_transaction_can_be_aborted(cluster: FakeCluster, producer: Producer) -> None:
    with cluster.intercept(Fail(TOPIC_AUTHORIZATION_FAILED), "Produce", times=1), pytest.raises(TransactionAbortableError):
        transact(producer, b"refused")
    producer.abort_transaction()
    transact(producer, b"next")
    assert committed(cluster) == [b"first", b"next"]


def test_Ctrl_C_ends_a_wait_and_the_same_call_goes_on(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, producer: Producer) -> None:
    monkeypatch.setattr(in_place, "LONGEST_WAIT", 600.0)
    producer.begin_transaction()
    producer.send("t", b"x")
    cluster.pause(1)
    main = threading.main_thread().ident
    assert main is not None
    asked = Answers.handle_next

    def strike(self: Answers, until: float) -> bool:
        signal.pthread_kill(main, signal.SIGINT)
        return asked(self, until)

    monkeypatch.setattr(Answers, "handle_next", strike)
    with pytest.raises(KeyboardInterrupt):
        producer.commit_transaction()
    monkeypatch.undo()
    cluster.resume(1)
    producer.commit_transaction()
    assert committed(cluster) == [b"first", b"x"]


def test_a_blocking_call_by_a_thread_that_acts_as_the_loop_is_refused(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> None:
    def ask(_self: Answers, _until: float) -> bool:
        with pytest.raises(IllegalStateError, match="would deadlock"):
            producer.flush()
        refused.set()
        return False

    refused = threading.Event()
    monkeypatch.setattr(Answers, "handle_next", ask)
    transact(producer, b"x")
    assert refused.is_set()


def test_what_is_scheduled_in_place_of_the_loop_wakes_it(producer: Producer) -> None:
    found = producer._transaction_calls().in_place
    assert found is not None
    soon, later = threading.Event(), threading.Event()
    loop = producer._portal.loop
    eventually(lambda: found.run(lambda: loop.call_soon(soon.set)))
    assert soon.wait(20)
    eventually(lambda: found.run(lambda: loop.call_later(0.01, later.set)))
    assert later.wait(20)
