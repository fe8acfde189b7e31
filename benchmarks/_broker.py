"""The broker under all clients, and its topics, asked about through librdkafka whatever client is measured."""
from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyclient import Admin, NewTopic
from pyclient.testing import LocalCluster, Security

AT_ONCE: Final = 2000
HEAP: Final = "-Xmx1500m"
"""For the broker: ten thousand partitions need more heap than tests give it. This variable overrides its flags."""
BUSY: Final = {"broker.session.timeout.ms": 30_000, "broker.heartbeat.interval.ms": 2000}
"""A busy broker must not be taken for a dead one."""


def a_broker(config: Mapping[str, object], security: Security | None = None) -> LocalCluster:
    os.environ.setdefault("_JAVA_OPTIONS", HEAP)
    return LocalCluster(mode="embedded", config={**BUSY, **config}, security=security)


@contextlib.contextmanager
def topic_of(cluster: LocalCluster, partitions: int) -> Iterator[str]:
    """A new topic whose partitions all have leaders that know it; gone afterwards."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=120_000, default_api_timeout_ms=300_000) as admin:
        admin.create_topics([NewTopic(name, min(partitions, AT_ONCE), 1)])
        for total in range(2 * AT_ONCE, partitions + AT_ONCE, AT_ONCE):
            grow(cluster, name, min(total, partitions))
        await_leaders(cluster, name, partitions)
        yield name
        admin.delete_topics([name])


def grow(cluster: LocalCluster, topic: str, total: int) -> None:
    """More partitions: a controller refuses to make very many at once."""
    from confluent_kafka import admin

    wanted: Any = vars(admin)["NewPartitions"](topic, total)  # exported, but not to type checkers
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})  # its end would end the request
    for each in client.create_partitions([wanted], request_timeout=120).values():
        each.result()


def await_leaders(cluster: LocalCluster, topic: str, partitions: int, limit_s: float = 180) -> None:
    """A topic that was just created is refused for a while; those retries must not be measured."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + limit_s
    while True:
        try:
            end_offsets(cluster, topic, partitions)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def end_offsets(cluster: LocalCluster, topic: str, partitions: int) -> int:
    """How many records the leader says were ever appended."""
    from confluent_kafka import TopicPartition, admin

    newest: Any = vars(admin)["OffsetSpec"].latest()  # exported, but not to type checkers
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    asked = client.list_offsets({TopicPartition(topic, number): newest for number in range(partitions)}, request_timeout=60)
    return sum(each.result().offset for each in asked.values())
