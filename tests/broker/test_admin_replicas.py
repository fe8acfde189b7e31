"""Replicas are moved, leaders elected and log directories described by Admin, on three real brokers."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from pyclient import Admin, TopicPartition
from pyclient.admin import ElectionType
from pyclient.errors import BrokerNotAvailableError, InvalidReplicaAssignmentError, NoReassignmentInProgressError, PartialFailureError, UnknownTopicOrPartitionError
from pyclient.records import PartitionDescription
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, numbers, produce
from tests.waiting import eventually

pytestmark = pytest.mark.kafka(brokers=3)


@pytest.fixture
def admin(kafka_cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as made:
        yield made


def described(admin: Admin, tp: TopicPartition) -> PartitionDescription:
    """The partition, once the broker that is asked knows of it."""
    known: list[PartitionDescription] = []

    def is_known() -> bool:
        with contextlib.suppress(UnknownTopicOrPartitionError):
            known.append(admin.describe_topics([tp.topic])[tp.topic].partitions[tp.partition])
        return bool(known)

    eventually(is_known)
    return known[0]


def placed(admin: Admin, tp: TopicPartition) -> tuple[int | None, tuple[int, ...]]:
    """Leader and replicas."""
    found = described(admin, tp)
    return found.leader, tuple(found.replicas)


def is_in_sync(admin: Admin, tp: TopicPartition) -> bool:
    found = described(admin, tp)
    return sorted(found.isr) == sorted(found.replicas)


def test_a_partition_is_moved_its_log_follows_and_the_preferred_leader_is_elected(kafka_cluster: LocalCluster, topic: str, admin: Admin) -> None:
    tp, = make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, numbers(10))
    _, before = placed(admin, tp)
    others = tuple(sorted({1, 2, 3} - set(before)))
    admin.alter_partition_reassignments({tp: others})
    eventually(lambda: not admin.list_partition_reassignments([tp]))
    eventually(lambda: placed(admin, tp)[1] == others and is_in_sync(admin, tp))

    def holders() -> set[int]:
        dirs = admin.describe_log_dirs(partitions=[tp])
        return {node for node, those in dirs.items() for each in those.values() if tp in each.replicas}

    eventually(lambda: holders() == set(others))
    found, = admin.describe_log_dirs([others[0]], partitions=[tp])[others[0]].values()
    assert found.error is None
    assert found.replicas[tp].size > 0
    assert found.total_bytes
    assert found.usable_bytes
    admin.alter_partition_reassignments({tp: others[::-1]})  # only the order: another one is preferred
    eventually(lambda: placed(admin, tp)[1] == others[::-1])
    admin.elect_leaders([tp])
    eventually(lambda: placed(admin, tp)[0] == others[1])
    eventually(lambda: admin.elect_leaders([tp]) == {tp: False})
    assert admin.elect_leaders([tp], ElectionType.UNCLEAN) == {tp: False}


def test_of_several_reassignments_the_wrong_ones_are_named(kafka_cluster: LocalCluster, topic: str, admin: Admin) -> None:
    one, two = make_topic(kafka_cluster, topic, 2)
    with pytest.raises(PartialFailureError) as failed:
        admin.alter_partition_reassignments({one: placed(admin, one)[1], two: [99]})
    assert failed.value.results == {one: None}
    assert isinstance(failed.value.errors[two], InvalidReplicaAssignmentError)
    with pytest.raises(NoReassignmentInProgressError):
        admin.alter_partition_reassignments({two: None})
    with pytest.raises(BrokerNotAvailableError, match="broker 99 is not in the cluster"):
        admin.describe_log_dirs([99])
