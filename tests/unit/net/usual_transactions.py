"""Producers whose transactions are carried out in the thread that calls, on a fake cluster with a topic "t"."""
from __future__ import annotations

from typing import Any

from pyclient import Producer
from pyclient.core.transactions.states import TransactionState
from pyclient.net.transaction_exchange import TransactionExchange
from pyclient.producer.transaction_lanes import TransactionLanes
from pyclient.testing import FakeCluster


def made(cluster: FakeCluster, **options: Any) -> Producer:
    """Its records leave with the commit, however slow the machine is."""
    given = {"linger_ms": 60_000, "delivery_timeout_ms": 200_000, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1, **options}
    return Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x", **given)


def lanes_of(producer: Producer) -> TransactionLanes:
    lanes = producer._core._lanes
    assert isinstance(lanes, TransactionLanes)
    return lanes


def exchange_of(producer: Producer) -> TransactionExchange:
    return lanes_of(producer).exchange


def until_usual(producer: Producer) -> int:
    """Commit transactions until the next one may be usual; returns how many."""
    producer.init_transactions()
    for count in range(1, 1000):
        transact(producer, b"first")
        if len(exchange_of(producer)):
            return count
    raise AssertionError("no lane was made")


def transact(producer: Producer, *values: bytes, partition: int = 0) -> None:
    producer.begin_transaction()
    for value in values:
        producer.send("t", value, partition=partition)
    producer.commit_transaction()


def state(producer: Producer) -> TransactionState:
    return producer._transaction_calls().state


def values(cluster: FakeCluster, partition: int = 0) -> list[bytes | None]:
    """Those that were committed."""
    return [record.value for record in cluster.records("t", partition) if record.value != b"first"]
