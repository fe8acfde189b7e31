"""librdkafka's producer and ours, side by side on one topic: the same partitioner puts the same key on the same
partition.
"""
from __future__ import annotations

import pytest

from pyclient import Producer
from pyclient.testing import FakeCluster
from tests.data.partition_vectors import KEYS

confluent = pytest.importorskip("confluent_kafka", reason="the other client is not installed: pip install 'pyclient-kafka[peers]'")
PARTITIONS = 7
ASKED = [key for key, _ in KEYS if key][:2_000]


def placed(cluster: FakeCluster, topic: str) -> list[tuple[bytes | None, int]]:
    return sorted({(record.key, record.partition) for record in cluster.records(topic)}, key=repr)


def theirs(cluster: FakeCluster, partitioner: str, keys: list[bytes | None]) -> list[tuple[bytes | None, int]]:
    cluster.create_topic("theirs", partitions=PARTITIONS)
    writer = confluent.Producer({"bootstrap.servers": cluster.bootstrap_servers, "partitioner": partitioner,
                                 "sticky.partitioning.linger.ms": 0})
    for key in keys:
        writer.produce("theirs", b"value", key=key)
    assert writer.flush(30) == 0
    return placed(cluster, "theirs")


def ours(cluster: FakeCluster, partitioner: str, keys: list[bytes | None]) -> list[tuple[bytes | None, int]]:
    cluster.create_topic("ours", partitions=PARTITIONS)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, partitioner=partitioner, batch_size=1024) as writer:
        for key in keys:
            writer.send("ours", b"value", key=key)
    return placed(cluster, "ours")


@pytest.mark.parametrize("partitioner", ["consistent", "consistent_random", "murmur2_random", "fnv1a_random"])
@pytest.mark.filterwarnings("ignore::pyclient.config.OptionWarning")
def test_P30_both_producers_put_2000_keys_on_the_same_partitions(fake_cluster: FakeCluster, partitioner: str) -> None:
    keys: list[bytes | None] = [*ASKED]
    found = ours(fake_cluster, partitioner, keys)
    assert len(found) == len(set(ASKED))
    assert found == theirs(fake_cluster, partitioner, keys)


@pytest.mark.parametrize(
    ("partitioner", "key", "everywhere"),
    [
        ("consistent", None, False), ("consistent", b"", False), ("consistent_random", None, True), ("consistent_random", b"", True),
        ("murmur2_random", None, True), ("murmur2_random", b"", False), ("fnv1a_random", None, True), ("fnv1a_random", b"", False),
    ],
)
@pytest.mark.filterwarnings("ignore::pyclient.config.OptionWarning")
def test_both_producers_spread_the_same_records_without_a_key_and_with_an_empty_one(
        fake_cluster: FakeCluster, partitioner: str, key: bytes | None, everywhere: bool) -> None:
    found, expected = (write(fake_cluster, partitioner, [key] * 4_000) for write in (ours, theirs))
    assert len(found) == (PARTITIONS if everywhere else 1)
    assert found == expected
