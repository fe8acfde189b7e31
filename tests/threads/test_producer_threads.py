"""A producer used by many threads at once, on a broker: each accepted record has one outcome."""
from __future__ import annotations

import threading
from collections import defaultdict
from random import Random
from typing import Any, Final

import pytest

from pyclient import Delivery, Producer, Record
from pyclient.errors import ClientClosedError
from pyclient.testing import FakeCluster
from tests.threads.edges import Coin
from tests.threads.team import LIMIT_S, Team
from tests.waiting import eventually

THREADS: Final = 4
RECORDS: Final = 250
MEMORY: Final = 64_000


class Senders:
    """Threads that send through one producer, and their deliveries."""

    def __init__(self, producer: Producer, topic: str, seed: int) -> None:
        self.producer = producer
        self.topic = topic
        self.seed = seed
        self.accepted: list[Delivery] = []
        self.called: list[Delivery] = []
        self.refused = 0
        self.left = THREADS

    def send(self, number: int) -> None:
        """Each record names its partition, and its value the thread and number."""
        chance = Random(f"{self.seed}:{number}")
        try:
            for count in range(RECORDS):
                self.accepted.append(self.producer.send(
                    self.topic, b"%d" % count, b"%d" % number, partition=chance.randrange(2), on_delivery=self.called.append))
                if chance.random() < 0.02:
                    self.flush(self.accepted[:])
        except ClientClosedError:
            self.refused += 1
        finally:
            self.left -= 1

    def send_alone(self, number: int) -> None:
        """As `send`, but each third record, by chance, is waited for before the next."""
        chance = Random(f"{self.seed}:{number}")
        try:
            for count in range(RECORDS // 5):
                delivery = self.producer.send(self.topic, b"%d" % count, b"%d" % number, partition=chance.randrange(2), on_delivery=self.called.append)
                self.accepted.append(delivery)
                if chance.random() < 0.6:
                    assert delivery.result(LIMIT_S).offset is not None
        except ClientClosedError:
            self.refused += 1
        finally:
            self.left -= 1

    def flush(self, sent: list[Delivery]) -> None:
        """Every earlier delivery is done after a flush."""
        self.producer.flush()
        assert all(delivery.done() for delivery in sent)

    def look(self) -> None:
        """Read metrics, as monitoring does: values or ClientClosedError."""
        while self.left:
            figures = self.producer.metrics()
            assert 0 <= figures["buffer-available-bytes"] <= MEMORY
            try:
                assert self.producer.partitions_for(self.topic) == 2
            except ClientClosedError:
                return


def open_producer(cluster: FakeCluster, seed: int, linger_ms: int = 1) -> Producer:
    """Small batches, which fill and are sealed often; every other seed compresses."""
    options: dict[str, Any] = {"compression_type": "lz4"} if seed & 1 else {}
    return Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=2_000, buffer_memory=MEMORY, linger_ms=linger_ms, **options)


def assert_each_once_and_in_order(found: list[Record], accepted: list[Delivery], called: list[Delivery]) -> None:
    """Every accepted record is stored once, at the offset of its delivery, in its thread's order.

    Each callback ran once, in offset order.
    """
    results = [delivery.result(0) for delivery in accepted]
    assert sorted((each.partition, each.offset) for each in found) == sorted((each.partition, each.offset or 0) for each in results)
    last: dict[tuple[int, bytes | None], int] = defaultdict(lambda: -1)
    for record in sorted(found, key=lambda each: each.offset):
        key = record.partition, record.key
        assert int(record.value or b"") > last[key]
        last[key] = int(record.value or b"")
    assert len(called) == len({id(each) for each in called}) == len(accepted)


def test_records_sent_and_flushed_by_many_threads_are_stored_once_in_order_and_return_their_memory(
        cluster: FakeCluster, topic: str, seed: int, coin: Coin) -> None:
    cluster.create_topic(topic, 2)
    with open_producer(cluster, seed) as producer:
        senders = Senders(producer, topic, seed)
        team = Team()
        team.add_many(THREADS, senders.send)
        team.add("look", senders.look)
        team.run()
        assert len(senders.accepted) == THREADS * RECORDS
        producer.flush()
        eventually(lambda: producer.metrics()["buffer-available-bytes"] == MEMORY)
    assert_each_once_and_in_order(cluster.records(topic), senders.accepted, senders.called)


def test_callbacks_of_a_partition_run_in_the_order_of_its_offsets_whichever_thread_sent_the_records(
        cluster: FakeCluster, topic: str, seed: int, coin: Coin) -> None:
    cluster.create_topic(topic, 2)
    with open_producer(cluster, seed) as producer:
        senders = Senders(producer, topic, seed)
        team = Team()
        team.add_many(THREADS, senders.send)
        team.run()
    for number in range(2):
        offsets = [metadata.offset or 0 for each in senders.called if (metadata := each.result(0)).partition == number]
        assert offsets == sorted(offsets)


def test_single_records_of_many_threads_are_stored_once_in_order(
        cluster: FakeCluster, topic: str, seed: int, coin: Coin) -> None:
    cluster.create_topic(topic, 2)
    with open_producer(cluster, seed, linger_ms=0) as producer:
        senders = Senders(producer, topic, seed)
        team = Team()
        team.add_many(1 + seed % THREADS, senders.send_alone)
        team.add("look", senders.look)
        senders.left = 1 + seed % THREADS
        team.run()
        producer.flush()
        eventually(lambda: producer.metrics()["buffer-available-bytes"] == MEMORY)
    assert_each_once_and_in_order(cluster.records(topic), senders.accepted, senders.called)


@pytest.mark.parametrize("linger_ms", [0, 1])
def test_a_record_sent_while_threads_close_is_delivered_or_rejected(
        cluster: FakeCluster, topic: str, seed: int, coin: Coin, linger_ms: int) -> None:
    cluster.create_topic(topic, 2)
    others = set(threading.enumerate())
    producer = open_producer(cluster, seed, linger_ms)
    senders = Senders(producer, topic, seed)
    enough = Random(seed).randrange(THREADS * (RECORDS if linger_ms else RECORDS // 5))
    team = Team()

    def close(_: int) -> None:
        while len(senders.accepted) < enough:
            coin()
        producer.close()
        assert all(each.done() for each in senders.accepted)

    team.add_many(THREADS, senders.send if linger_ms else senders.send_alone)
    team.add_many(2, close)
    team.add("look", senders.look)
    team.run()
    assert not {each for each in threading.enumerate() if each.name == "pyclient-producer"} - others
    assert_each_once_and_in_order(cluster.records(topic), senders.accepted, senders.called)
