"""The Produce requests of a usual transaction hold as much as max_request_size allows, headers of batches included."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from pyclient import Producer
from pyclient.codec.apis import Api
from pyclient.net.connection import Connection
from pyclient.testing import FakeCluster
from tests.unit.net.usual_transactions import exchange_of
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")
LIMIT: Final = 1500
PARTITIONS: Final = 6


def made(cluster: FakeCluster, linger_ms: int) -> Producer:
    cluster.create_topic("t", PARTITIONS)
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x", max_request_size=LIMIT, batch_size=1200, linger_ms=linger_ms)
    producer.init_transactions()
    return producer


def largest_request(cluster: FakeCluster) -> int:
    """Bytes of batches."""
    return max(sum(len(each.records) for topic in request.body.topic_data for each in topic.partition_data) for request in cluster.requests("Produce"))


def test_the_headers_of_its_batches_are_part_of_a_requests_size(fake_cluster: FakeCluster) -> None:
    with made(fake_cluster, 60_000) as producer:

        def usual() -> bool:
            before = exchange_of(producer).commits
            producer.begin_transaction()
            for partition in (0, 1):
                producer.send("t", bytes(LIMIT // 2 - 45), partition=partition)
            producer.commit_transaction()
            return exchange_of(producer).commits > before

        for _ in range(5):
            eventually(usual)
    assert largest_request(fake_cluster) <= LIMIT


def test_batches_that_grow_while_another_node_gets_its_request_do_not_exceed_a_requests_size(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster(brokers=2) as cluster, made(cluster, 20) as producer:
        nodes: dict[int, list[int]] = {}
        for partition in range(PARTITIONS):
            nodes.setdefault(cluster.leader("t", partition), []).append(partition)
        (first, *_), (second, third, *_) = nodes.values()
        grown: list[Any] = []
        growing: list[Callable[[], None]] = []

        def note(connection: Connection, value: int) -> None:
            connection.__dict__["bytes_out"] = value
            if growing:
                growing.pop()()

        def grow() -> None:
            grown.extend(producer.send("t", bytes(300), partition=partition) for partition in (second, third))

        monkeypatch.setattr(Connection, "bytes_out", property(lambda connection: connection.__dict__.get("bytes_out", 0), note), raising=False)

        def has_grown() -> bool:
            producer.begin_transaction()
            deliveries = [producer.send("t", bytes(500), partition=partition) for partition in (first, second, third)]
            growing[:] = [grow]
            eventually(lambda: not producer._core.unsettled())
            producer.commit_transaction()
            return bool(deliveries and grown)

        for _ in range(5):
            eventually(has_grown)
        assert largest_request(cluster) <= LIMIT
        assert Api.END_TXN in {each.api for each in cluster.requests()}
