"""Fetch sessions and reading from the replica in our rack, on real brokers (C02, C07, C09)."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.testing import LocalCluster
from tests.kafka import consumer, make_topic, numbers, produce
from tests.waiting import eventually

RACKS = pytest.mark.kafka(
    brokers=3, broker_rack="rack-{node}", replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector")
ONE_SESSION = pytest.mark.kafka(max_incremental_fetch_session_cache_slots=1)


def leader_of(cluster: LocalCluster, topic: str) -> int:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        leader = admin.describe_topics([topic])[topic].partitions[0].leader
    assert leader is not None
    return leader


def reads(reader: Consumer, values: list[bytes]) -> None:
    found: list[bytes | None] = []
    while len(found) < len(values):
        records = reader.poll(20)
        assert records, f"{len(found)} of {len(values)} records, and no more"
        found += [record.value for record in records]
    assert found == values


def requests_to(reader: Consumer, node: int) -> float:
    """How many requests a node got; while a consumer reads on, fetches."""
    return reader.metrics().get(f"request-total{{node={node}}}", 0.0)


@RACKS
def test_C09_the_replica_in_our_rack_is_read_and_the_leader_when_that_is_gone(kafka_cluster: LocalCluster) -> None:
    (tp,) = make_topic(kafka_cluster, "near", replicas=3)
    leader = leader_of(kafka_cluster, "near")
    near = leader % 3 + 1
    with consumer(kafka_cluster, client_rack=f"rack-{near}", fetch_max_wait_ms=100) as reader:
        reader.assign([tp])
        with writes(kafka_cluster, tp) as write:
            reads(reader, write(20))
            before = {node: requests_to(reader, node) for node in (leader, near)}
            for _ in range(5):
                reads(reader, write(20))
            eventually(lambda: requests_to(reader, near) >= before[near] + 5)
            assert requests_to(reader, leader) <= before[leader] + 3, "it asks the leader too"
            kafka_cluster.kill(near)
            try:
                reads(reader, write(20))
            finally:
                kafka_cluster.start(near)


@RACKS
def test_C09_the_leader_in_our_rack_is_read_itself(kafka_cluster: LocalCluster) -> None:
    (tp,) = make_topic(kafka_cluster, "at-home", replicas=3)
    leader = leader_of(kafka_cluster, "at-home")
    produce(kafka_cluster, "at-home", numbers(100))
    with consumer(kafka_cluster, client_rack=f"rack-{leader}") as reader:
        reader.assign([tp])
        reads(reader, numbers(100))


@contextmanager
def writes(cluster: LocalCluster, tp: TopicPartition) -> Iterator[Writes]:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        yield Writes(producer, tp)


class Writes:
    """Writes and returns a given count of numbers, all acknowledged."""

    def __init__(self, producer: Producer, tp: TopicPartition) -> None:
        self._producer = producer
        self._tp = tp
        self._next = 0

    def __call__(self, count: int) -> list[bytes]:
        values = [b"%d" % number for number in range(self._next, self._next + count)]
        self._next += count
        for value in values:
            self._producer.send(self._tp.topic, value, partition=self._tp.partition)
        self._producer.flush(30)
        return values


@ONE_SESSION
def test_C07_consumers_for_which_a_broker_has_no_room_read_on_and_one_that_closes_makes_room(kafka_cluster: LocalCluster) -> None:
    partitions = make_topic(kafka_cluster, "crowded", partitions=20)
    tp = partitions[0]
    with writes(kafka_cluster, tp) as write, consumer(kafka_cluster) as second:
        values = write(10)
        with consumer(kafka_cluster) as first:
            first.assign(partitions)
            second.assign(partitions)
            reads(first, values)
            reads(second, values)
            values = write(10)
            reads(first, values)
            reads(second, values)
        for _ in range(5):
            reads(second, write(10))


def test_C07_a_session_of_many_partitions_reads_what_comes_in_each_and_forgets_what_is_paused(kafka_cluster: LocalCluster) -> None:
    partitions = make_topic(kafka_cluster, "many", partitions=50)
    with consumer(kafka_cluster) as reader, Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        reader.assign(partitions)
        for turn in range(3):
            paused = partitions[turn * 10:turn * 10 + 10]
            reader.pause(*paused)
            for tp in partitions:
                producer.send(tp.topic, b"%d" % turn, partition=tp.partition)
            producer.flush(30)
            wanted = {tp for tp in partitions if tp not in paused}
            assert partitions_of_next(reader, len(wanted)) == wanted
            reader.resume(*paused)
            assert partitions_of_next(reader, len(paused)) == set(paused)


def partitions_of_next(reader: Consumer, count: int) -> set[TopicPartition]:
    """The partitions of the next *count* records."""
    found: list[TopicPartition] = []
    while len(found) < count:
        records = reader.poll(20)
        assert records, f"{len(found)} of {count} records, and no more"
        found += [TopicPartition(record.topic, record.partition) for record in records]
    assert len(found) == count
    return set(found)


@RACKS
@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
def test_members_of_a_group_are_given_what_is_in_their_rack(kafka_cluster: LocalCluster, assignor: str) -> None:
    """KIP-881: three members in three racks, each partition on one broker."""
    topic = f"racked-{assignor}"
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, replica_assignments={number: [3 - number] for number in range(3)})])
    with ExitStack() as stack:
        members = [stack.enter_context(consumer(
            kafka_cluster, topics=[topic], group_id=topic, client_rack=f"rack-{node}", assignors=[assignor], heartbeat_interval_ms=100)) for node in (1, 2, 3)]

        def all_at_home() -> bool:
            for each in members:
                each.poll(0.05)
            return [each.assignment() for each in members] == [{TopicPartition(topic, 3 - node)} for node in (1, 2, 3)]

        eventually(all_at_home, 60)
