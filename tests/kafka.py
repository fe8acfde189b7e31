"""What tests of the clients on real brokers share: topics, short ways to write and to read everything."""
from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyclient import Admin, Consumer, NewTopic, Producer, Record, TopicPartition
from pyclient.testing import LocalCluster
from pyclient.testing.jars import ensure_jars
from pyclient.testing.lockfile import DEFAULT_VERSION
from tests.waiting import eventually

WRITTEN_AT: Final = int(time.time()) * 1000 - 3_600_000
"""An hour ago, in ms since the epoch: a timestamp for records.

Brokers delete records of a week ago, 30 seconds after their start and every five minutes.
"""


def cache_with_jars(folder: Path) -> Path:
    """A cache that holds the jars and nothing else, as after the first download."""
    jars = ensure_jars(DEFAULT_VERSION).directory
    folder.mkdir()
    (folder / jars.name).symlink_to(jars)
    return folder


def make_topic(cluster: LocalCluster, name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> list[TopicPartition]:
    """Create a topic (config names with underscores for dots) and give its partitions."""
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, partitions, replicas, dotted)])
        eventually(lambda: name in admin.list_topics())  # a broker learns of it a little later than the controller
    return [TopicPartition(name, number) for number in range(partitions)]


def produce(cluster: LocalCluster, topic: str, values: list[bytes], **options: Any) -> None:
    """Store *values*, in partition 0, acknowledged."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def consumer(cluster: LocalCluster, **options: Any) -> Consumer:
    """A consumer that begins at the first record, unless *options* say otherwise."""
    return Consumer(bootstrap_servers=cluster.bootstrap_servers, **{"auto_offset_reset": "earliest", **options})


def read(cluster: LocalCluster, partitions: list[TopicPartition], count: int, **options: Any) -> list[Record]:
    """The first *count* records of the partitions; fails when they do not come."""
    found: list[Record] = []
    with consumer(cluster, **options) as reader:
        reader.assign(partitions)
        while len(found) < count:
            records = reader.poll(20)
            assert records, f"{len(found)} of {count} records, and no more"
            found += records
    return found


def markers_written(cluster: LocalCluster, partitions: list[TopicPartition]) -> None:
    """Return when no transaction is open there: a coordinator answers EndTxn before it has written all markers."""
    with consumer(cluster, isolation_level="read_committed") as stable, consumer(cluster) as all_stored:
        eventually(lambda: stable.end_offsets(partitions) == all_stored.end_offsets(partitions))


def numbers(count: int) -> list[bytes]:
    """Values that show their order."""
    return [b"%d" % n for n in range(count)]


@contextlib.contextmanager
def reading(cluster: LocalCluster, topic: str, **options: Any) -> Iterator[tuple[Consumer, TopicPartition]]:
    """A consumer of a topic of one partition with 100 records, each holding its offset."""
    where, = make_topic(cluster, topic)
    produce(cluster, topic, numbers(100))
    with consumer(cluster, **options) as reader:
        reader.assign([where])
        yield reader, where


def first_address(cluster: LocalCluster) -> tuple[str, int]:
    """Where the first broker listens."""
    return cluster.nodes[0].host, cluster.nodes[0].port
