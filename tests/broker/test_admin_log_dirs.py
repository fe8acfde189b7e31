"""A replica is moved to another log directory of its broker, on a real broker that has two."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from pyclient import Admin
from pyclient.admin import ConfigChange, ConfigResource, ReplicaSize
from pyclient.errors import BrokerNotAvailableError, LogDirNotFoundError, PartialFailureError, UnknownTopicOrPartitionError
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, numbers, produce
from tests.waiting import eventually

BROKER: Final = ConfigResource.broker(1)
RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """With a rate its broker copies a batch a minute."""
    with LocalCluster(log_dirs=2, config={"replica.fetch.max.bytes": 100, "alter.log.dirs.replication.quota.window.num": 60}) as made:
        yield made


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


def limit_copies(admin: Admin) -> None:
    """When a broker shows what was changed after it, the limit is in force."""
    admin.alter_configs({BROKER: {RATE: 1}})
    eventually(lambda: (RATE, "1") in [(name, entry.value) for name, entry in admin.describe_configs([BROKER])[BROKER].items()])


def test_a_replica_moves_to_another_directory_where_it_is_a_future_one_until_it_is_copied(cluster: LocalCluster, topic: str, admin: Admin) -> None:
    limit_copies(admin)
    tp, = make_topic(cluster, topic)
    for _ in range(3):
        produce(cluster, topic, numbers(10))

    def replicas() -> dict[str, ReplicaSize]:
        return {path: found.replicas[tp] for path, found in admin.describe_log_dirs([1], partitions=[tp])[1].items() if tp in found.replicas}

    (old, before), = replicas().items()
    new, = set(admin.describe_log_dirs([1])[1]) - {old}
    admin.alter_replica_log_dirs({(topic, 0, 1): new})
    eventually(lambda: {(path, each.is_future, each.lag > 0) for path, each in replicas().items()} == {(old, False, False), (new, True, True)})
    admin.alter_configs({BROKER: {RATE: ConfigChange.delete()}})
    eventually(lambda: replicas() == {new: before})


def test_each_replica_that_cannot_be_moved_has_its_error(cluster: LocalCluster, topic: str, admin: Admin) -> None:
    make_topic(cluster, topic, 2)
    path = next(iter(admin.describe_log_dirs([1])[1]))
    with pytest.raises(LogDirNotFoundError, match="broker 1"):
        admin.alter_replica_log_dirs({(topic, 0, 1): "/nowhere"})
    with pytest.raises(PartialFailureError) as failed:
        admin.alter_replica_log_dirs({(topic, 0, 1): path, (topic, 1, 1): "/nowhere", (topic, 7, 1): path, (topic, 0, 7): path})
    assert list(failed.value.results) == [(topic, 0, 1)]
    assert {replica: type(error) for replica, error in failed.value.errors.items()} == {
        (topic, 1, 1): LogDirNotFoundError, (topic, 7, 1): UnknownTopicOrPartitionError, (topic, 0, 7): BrokerNotAvailableError}
