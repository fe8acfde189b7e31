"""The calls of a sync producer's transactions are carried out in the thread that makes them, while the loop sleeps."""
from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Producer
from pyclient.client import in_place
from pyclient.net import lent_connection
from pyclient.client.in_place import Answers
from pyclient.core.transactions.states import TransactionEvent, TransactionState
from pyclient.errors import ClientForkedError, IllegalStateError, KafkaTimeoutError, TransactionAbortableError
from pyclient.net.connection import Connection
from pyclient.producer.transactions import TransactionCall
from pyclient.runtime.loop_lending import LendingSelector
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Drop, Fail
from tests.forks import fork
from tests.strike import Strike
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")
TRANSACTIONS = 30
TOPIC_AUTHORIZATION_FAILED, TRANSACTION_ABORTABLE = 29, 120
LINES = 1200
"""Of the client, that a thread runs for a commit in place of the loop: some more than these."""


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t")
    return fake_cluster


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[Producer]:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x") as made:
        lanes = made._core._lanes
        assert lanes is not None
        lanes.exchange.close()  # a usual transaction is carried out otherwise: tests/unit/net/test_transaction_exchange.py
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


class Silent:
    """A connection on which no answer comes."""

    is_readable = True

    def __init__(self) -> None:
        self.socket, self._other = socket.socketpair()

    def close(self) -> None:
        self.socket.close()
        self._other.close()


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
    cluster.pause(1)  # before the record, which may leave at any time
    producer.send("t", b"x")
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


def test_an_error_that_answers_the_end_is_raised_by_the_call(cluster: FakeCluster, producer: Producer, readers: list[int]) -> None:
    producer.begin_transaction()
    producer.send("t", b"x")
    with cluster.intercept(Fail(TRANSACTION_ABORTABLE), "EndTxn", times=1), pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    assert set(readers) == {threading.get_ident()}
    assert committed(cluster) == [b"first"]


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


def test_Ctrl_C_at_any_line_of_a_commit_leaves_the_client_whole_and_commits_once(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster,
                                                                                 producer: Producer) -> None:
    monkeypatch.setattr(in_place, "LONGEST_WAIT", 20.0)
    handlers = list(map(signal.getsignal, (signal.SIGINT, signal.SIGALRM)))
    sent, deepest = [b"first"], 0
    for at in range(1, LINES, 7):
        producer.begin_transaction()
        producer.send("t", b"%d" % at)
        sent.append(b"%d" % at)
        struck, interrupted = True, False
        try:
            struck = Strike(at, lambda: signal.raise_signal(signal.SIGINT)).during(producer.commit_transaction)
        except KeyboardInterrupt:
            interrupted = True
        assert interrupted == struck, f"line {at} swallowed Ctrl-C"
        assert handlers == list(map(signal.getsignal, (signal.SIGINT, signal.SIGALRM))), f"line {at}"
        if interrupted:
            with contextlib.suppress(IllegalStateError):  # interrupted between the outcome and the caller: it is committed
                producer.commit_transaction()
        deepest = at if struck else deepest
    assert deepest > LINES / 2, "no transaction was committed in this thread"
    eventually(lambda: state(producer) is TransactionState.READY)
    transact(producer, b"last")
    assert committed(cluster) == [*sent, b"last"]


def test_T02_an_outcome_is_kept_when_a_signal_comes_as_it_does(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler raises once the loop has been given back: the caller would never know."""
    take = TransactionCall._take
    main = threading.get_ident()
    struck: list[bool] = []

    def strike(call: TransactionCall) -> bool:
        if call.event is TransactionEvent.COMMIT and call._pending is not None and call._pending.done and not struck:
            struck.append(True)
            signal.pthread_kill(main, signal.SIGINT)
        return take(call)

    monkeypatch.setattr(TransactionCall, "_take", strike)
    with pytest.raises(KeyboardInterrupt):
        while True:  # a busy loop goes on with some of them
            transact(producer, b"x")
    producer.commit_transaction()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_touches_nothing_of_its_parents_loop(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, producer: Producer) -> None:
    producer.begin_transaction()
    child = fork()
    if not child:
        refused = 1
        try:
            monkeypatch.setattr(in_place.InPlace, "run", lambda *_: os._exit(2))
            producer.commit_transaction()
        except ClientForkedError:
            refused = 0
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.send("t", b"x")
    producer.commit_transaction()
    assert committed(cluster) == [b"first", b"x"]


def test_a_thread_that_is_deep_in_its_stack_lets_the_loop_act(cluster: FakeCluster, producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    def deeply(left: int) -> None:
        if left:
            deeply(left - 1)
        else:
            transact(producer, b"deep")

    began: list[int] = []
    act = in_place.InPlace._as_loop

    def acts(self: in_place.InPlace, function: Callable[[], object]) -> None:
        began.append(1)
        act(self, function)

    monkeypatch.setattr(in_place.InPlace, "_as_loop", acts)
    deeply(sys.getrecursionlimit() - lent_connection.DEPTH)
    assert not began
    assert committed(cluster) == [b"first", b"deep"]


def test_a_wait_for_a_late_answer_ends_soon_once_the_loop_has_something_to_do(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> None:
    found = producer._transaction_calls().in_place
    assert found is not None
    silent = Silent()
    monkeypatch.setattr(producer._core.connections, "awaiting", lambda: [silent])
    monkeypatch.setattr(LendingSelector, "mute", lambda *_: None)
    ended: list[bool] = []

    def wait() -> None:
        producer._portal.loop.call_soon(lambda: None)
        ended.append(found._answers.handle_next(time.monotonic() + 600))
        found._answers.close()
        found._answers._used.clear()

    eventually(lambda: found.run(wait))
    assert ended == [False]
    silent.close()


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
