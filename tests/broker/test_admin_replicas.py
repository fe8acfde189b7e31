"""Replicas are moved, leaders elected and log directories described by Admin, on three real brokers."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from pyclient import Admin, TopicPartition
from pyclient.admin import ConfigChange, ConfigResource, ElectionType, read_throttle, write_throttle
from pyclient.core.admin.throttles import LISTS, RATES
from pyclient.descriptions.topics import PartitionDescription
from pyclient.errors import BrokerNotAvailableError, InvalidReplicaAssignmentError, InvalidReplicationFactorError, KafkaError, NoReassignmentInProgressError, PartialFailureError, UnknownTopicOrPartitionError
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, numbers, produce
from tests.waiting import eventually

T = TypeVar("T")
pytestmark = pytest.mark.kafka(brokers=3)


@pytest.fixture
def admin(kafka_cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as made:
        yield made


def known(call: Callable[[], T], *early: type[KafkaError]) -> T:
    """What *call* returns, once the broker that is asked knows of the topic, and does not raise what is too *early*."""
    found: list[T] = []

    def is_known() -> bool:
        with contextlib.suppress(UnknownTopicOrPartitionError, *early):
            found.append(call())
        return bool(found)

    eventually(is_known)
    return found[0]


def described(admin: Admin, tp: TopicPartition) -> PartitionDescription:
    return known(lambda: admin.describe_topics([tp.topic])[tp.topic].partitions[tp.partition])


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


def test_a_plan_is_shown_with_its_bytes_carried_out_and_undone_and_earlier_limits_are_restored(
        kafka_cluster: LocalCluster, topic: str, admin: Admin, tmp_path: Path) -> None:
    tp, = make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, numbers(10))
    before = placed(admin, tp)[1]
    lists, broker = ConfigResource.topic(topic), ConfigResource.broker(before[0])

    def config(resource: ConfigResource, name: str) -> str | None:
        found = known(lambda: admin.describe_configs([resource], names=[name]))[resource].get(name)
        return found and found.value

    def is_placed(replicas: tuple[int, ...]) -> bool:
        return placed(admin, tp)[1] == replicas and not admin.list_partition_reassignments([tp])

    def limits() -> list[str | None]:
        return [config(resource, name) for resource, names in ((broker, RATES), (lists, LISTS)) for name in names]

    # The operator's own: one rate, and a list with another replica.
    admin.alter_configs({broker: {RATES[0]: 77_000_000}, lists: {LISTS[1]: "0:9"}})
    eventually(lambda: limits() == ["77000000", None, "", "0:9"])
    # A broker may learn of the others later, or take one for dead under load.
    plan = known(lambda: admin.plan_replication_factors({topic: 3}), InvalidReplicationFactorError)
    size = plan.sizes[tp]
    assert size > 0
    assert (plan.before, str(plan)) == ({tp: before}, f"{tp}: {before[0]} -> {','.join(map(str, plan.after[tp]))}, copies {2 * size:,} bytes")
    throttle = known(lambda: admin.plan_throttle(plan, 10_000_000))
    assert str(throttle).splitlines()[before[0] * 2 - 2:before[0] * 2] == [f"{broker}: {RATES[0]} was 77000000", f"{broker}: {RATES[1]} was not set"]
    write_throttle(tmp_path / "throttle.json", throttle)
    admin.throttle_replication(throttle)
    new = ",".join(f"0:{each}" for each in plan.after[tp][1:])
    eventually(lambda: limits() == ["10000000", "10000000", f"0:{before[0]}", f"0:9,{new}"])
    admin.alter_partition_reassignments(plan.after)
    eventually(lambda: is_placed(plan.after[tp]))
    after_a_crash = read_throttle(tmp_path / "throttle.json")
    admin.end_throttle(after_a_crash)
    eventually(lambda: limits() == ["77000000", None, "", "0:9"])
    eventually(lambda: known(lambda: admin.describe_configs([lists]))[lists][LISTS[0]].is_default)  # unset again, not empty
    admin.end_throttle(throttle)
    eventually(lambda: known(lambda: admin.describe_configs([lists]))[lists][LISTS[0]].is_default)  # unset again, not empty
    admin.end_throttle(throttle)
    admin.alter_configs({broker: {RATES[0]: ConfigChange.delete()}})
    with pytest.raises(InvalidReplicationFactorError, match="3 replicas need as many brokers, and there are"):
        known(lambda: admin.plan_without_brokers([1], [topic]))
    admin.alter_partition_reassignments(plan.undo().after)
    eventually(lambda: is_placed(before))
    assert set(before).isdisjoint(known(lambda: admin.plan_without_brokers(before, [topic]), InvalidReplicationFactorError).after[tp])
    assert not known(lambda: admin.plan_even_replicas([topic]))
