"""A producer that is closed ends its transaction: an open one is aborted, and a commit that has begun is awaited."""
from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pyclient import Producer
from pyclient.core.transactions.manager import Transactions
from pyclient.core.transactions.progress import Pending
from pyclient.core.transactions.states import TransactionState
from pyclient.errors import ClientClosedError, DeliveryError, KafkaError
from pyclient.runtime.portals import Call
from pyclient.testing import FakeCluster
from tests.waiting import eventually

LIMIT_S = 20.0


def opened(cluster: FakeCluster, linger_ms: int) -> Producer:
    """With a transaction that is open, after some that were committed."""
    cluster.create_topic("t")
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x", linger_ms=linger_ms)
    for _ in range(4):
        with producer.transaction():
            producer.send("t", b"before")
    producer.begin_transaction()
    producer.send("t", b"last")
    return producer


class Caller(threading.Thread):
    """Makes a call, and keeps its error."""

    def __init__(self, call: Callable[[], object], name: str | None = None) -> None:
        super().__init__(name=name)
        self._call = call
        self.error: KafkaError | None = None
        self.start()

    def run(self) -> None:
        try:
            self._call()
        except KafkaError as error:
            self.error = error


def is_committing(producer: Producer) -> bool:
    return producer._transaction_calls().state is TransactionState.COMMITTING


def is_closing(producer: Producer) -> bool:
    """Whether the close has begun in a step."""
    try:
        producer._core.accumulator.check_gate()
    except KafkaError as refusal:
        return isinstance(refusal, ClientClosedError)
    return False


def values(cluster: FakeCluster) -> list[bytes | None]:
    """Those that were committed."""
    return [record.value for record in cluster.records("t")]


@pytest.mark.parametrize("linger_ms", [0, 60_000])
@pytest.mark.parametrize("flushed", [False, True], ids=["with records", "with EndTxn only"])
def test_T03_a_close_waits_for_the_commit_of_another_thread(fake_cluster: FakeCluster, linger_ms: int, *, flushed: bool) -> None:
    producer = opened(fake_cluster, linger_ms)
    if flushed:
        producer.flush()
    fake_cluster.pause(1)
    committing = Caller(producer.commit_transaction)
    eventually(lambda: is_committing(producer))
    closing = Caller(producer.close)
    eventually(lambda: is_closing(producer))
    fake_cluster.resume(1)
    for caller in (committing, closing):
        caller.join()
        assert caller.error is None
    assert values(fake_cluster) == [b"before"] * 4 + [b"last"]


def test_a_commit_that_a_close_has_awaited_is_known_to_its_caller_however_late_that_asks(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = opened(fake_cluster, 60_000)
    closed = threading.Event()
    result = Call.result

    def result_late(call: Call[object]) -> object:
        if threading.current_thread().name == "commits":
            assert closed.wait(LIMIT_S)
        return result(call)

    monkeypatch.setattr(Call, "result", result_late)
    fake_cluster.pause(1)
    committing = Caller(producer.commit_transaction, "commits")
    eventually(lambda: is_committing(producer))
    closing = Caller(producer.close)
    eventually(lambda: is_closing(producer))
    fake_cluster.resume(1)
    closing.join()
    closed.set()
    committing.join()
    assert closing.error is None
    assert committing.error is None
    assert values(fake_cluster) == [b"before"] * 4 + [b"last"]


def test_a_commit_that_ends_as_the_client_closes_is_no_error_to_its_caller(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def close_is_faster(_manager: Transactions, pending: Pending) -> None:
        if pending.done:
            raise ClientClosedError("closed")

    producer = opened(fake_cluster, 0)
    with monkeypatch.context() as patched:
        patched.setattr(Transactions, "take", close_is_faster)
        producer.commit_transaction()
    producer.close()
    assert values(fake_cluster) == [b"before"] * 4 + [b"last"]


def test_T03_a_commit_that_is_not_answered_does_not_delay_a_close_beyond_its_timeout(fake_cluster: FakeCluster) -> None:
    producer = opened(fake_cluster, 60_000)
    fake_cluster.pause(1)
    committing = Caller(producer.commit_transaction)
    eventually(lambda: is_committing(producer))
    with pytest.raises(DeliveryError):
        producer.close(0.05)
    committing.join(LIMIT_S)
    assert isinstance(committing.error, ClientClosedError)
