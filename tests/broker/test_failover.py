"""Brokers that die, freeze and come back under load: nothing acknowledged is lost, and order is kept."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pyclient import Admin, Consumer, Delivery, Producer, Record, TopicPartition
from pyclient.admin import OffsetSpec
from pyclient.testing import LocalCluster
from tests.kafka import make_topic
from tests.waiting import eventually

PARTITIONS = 3
THREE = pytest.mark.kafka(brokers=3)


@pytest.fixture(autouse=True)
def without_other_topics(kafka_cluster: LocalCluster) -> None:
    """Other tests of the cluster leave topics with one replica: a broker that was killed may not bring it back."""
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        if left := admin.list_topics():
            admin.delete_topics(left)
        eventually(lambda: not admin.list_topics(), 60)


class Load:
    """A producer that sends numbers until stopped and a consumer that reads them, each in its own thread."""

    def __init__(self, cluster: LocalCluster, partitions: list[TopicPartition], **options: Any) -> None:
        self.partitions = partitions
        self.sent: list[Delivery] = []
        self.read: list[Record] = []
        self._stop = threading.Event()
        self._complete = threading.Event()
        self._producer = Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1, delivery_timeout_ms=60_000, **options)
        self._consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **options)
        self.faults: list[BaseException] = []
        self._threads = [threading.Thread(target=self._guard, args=(work,)) for work in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 raised in the test
            self.faults.append(fault)
            self._complete.set()

    def _send(self) -> None:
        topic = self.partitions[0].topic
        with self._producer as producer:
            pace = threading.Event()
            while not self._stop.is_set():
                number = len(self.sent)
                self.sent.append(producer.send(topic, b"%d" % number, partition=number % len(self.partitions)))
                pace.wait(0.002)
            producer.flush(60)

    def _receive(self) -> None:
        with self._consumer as reader:
            reader.assign(self.partitions)
            while not self._complete.is_set():
                self.read += reader.poll(0.2)

    def goes_on(self) -> None:
        """Wait until records that are sent from now on are acknowledged and read."""
        first = len(self.sent)
        eventually(lambda: self.faults or (len(self.sent) > first + 10 and all(each.done() for each in self.sent[first:first + 10])), 60)
        eventually(lambda: self.faults or (self.read and int(self.read[-1].value or b"") > first), 60)
        assert not self.faults, self.faults

    def stop(self) -> None:
        """Deliver the rest and read it all."""
        self._stop.set()
        self._threads[0].join(60)
        expected = len(self.sent)
        eventually(lambda: self.faults or len({record.value for record in self.read}) >= expected, 60)
        self._complete.set()
        self._threads[1].join(60)

    def check(self) -> None:
        """Every record was acknowledged, and read; first occurrences come in the order they were sent."""
        assert not self.faults, self.faults
        assert all(delivery.exception(0) is None for delivery in self.sent)
        for tp in self.partitions:
            numbers = [int(record.value or b"") for record in self.read if record.partition == tp.partition]
            assert list(dict.fromkeys(numbers)) == list(range(tp.partition, len(self.sent), len(self.partitions)))
            offsets = [record.offset for record in self.read if record.partition == tp.partition]
            assert offsets == sorted(set(offsets))


@contextmanager
def load(cluster: LocalCluster, topic: str, replicas: int, **options: Any) -> Iterator[Load]:
    """Load that runs in the block; afterwards nothing may be missing."""
    configs = {"min_insync_replicas": "2"} if replicas > 1 else {}
    running = Load(cluster, make_topic(cluster, topic, PARTITIONS, replicas, **configs), **options)
    try:
        running.goes_on()
        yield running
        running.goes_on()
    finally:
        running.stop()
    running.check()


def leader_of(cluster: LocalCluster, tp: TopicPartition) -> int:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        leader = admin.describe_topics([tp.topic])[tp.topic].partitions[tp.partition].leader
    assert leader is not None
    return leader


def test_a_producer_and_a_consumer_go_on_after_their_only_broker_was_killed_and_started_again(
        kafka_cluster: LocalCluster, topic: str) -> None:
    with load(kafka_cluster, topic, 1):
        kafka_cluster.kill()
        kafka_cluster.start()


@THREE
def test_nothing_is_lost_when_the_leader_is_killed_under_load(kafka_cluster: LocalCluster, topic: str) -> None:
    with load(kafka_cluster, topic, 3) as running:
        leader = leader_of(kafka_cluster, running.partitions[0])
        kafka_cluster.kill(leader)
        running.goes_on()
        kafka_cluster.start(leader)


@THREE
def test_nothing_is_lost_when_the_leader_freezes_under_load(kafka_cluster: LocalCluster, topic: str) -> None:
    """Its connections stay open and silent: only a timeout shows that it is gone."""
    with load(kafka_cluster, topic, 3, request_timeout_ms=1500) as running:
        leader = leader_of(kafka_cluster, running.partitions[0])
        kafka_cluster.pause(leader)
        try:
            running.goes_on()
        finally:
            kafka_cluster.resume(leader)


@THREE
def test_a_leader_that_was_killed_does_not_hold_up_the_offsets_of_its_partitions_until_the_request_timeout(kafka_cluster: LocalCluster, topic: str) -> None:
    tps = make_topic(kafka_cluster, topic, 6, replicas=3)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer, \
            Admin(bootstrap_servers=kafka_cluster.bootstrap_servers, request_timeout_ms=90_000) as admin:
        for tp in tps:
            producer.send(topic, b"x", partition=tp.partition)
        producer.flush()
        leader = leader_of(kafka_cluster, tps[0])
        kafka_cluster.kill(leader)
        try:
            found = admin.list_offsets(dict.fromkeys(tps, OffsetSpec.LATEST), timeout=60)
        finally:
            kafka_cluster.start(leader)
        assert {tp: listed and listed.offset for tp, listed in found.items()} == dict.fromkeys(tps, 1)
