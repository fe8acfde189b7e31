"""Batches in the log of a fake broker, byte for byte, and a consumer's options to read them."""
from __future__ import annotations

from typing import Any, Final

from pyclient import TopicPartition
from pyclient.testing import FakeCluster
from pyclient.testing.fake.model.batch import Batch

T0: Final = TopicPartition("t", 0)


def store(cluster: FakeCluster, *entries: tuple[bytes, int], partition: int = 0) -> None:
    """Append entries and the number of records in each to a partition, as the log of an upgraded broker has them."""
    def append(kafka: Any) -> None:
        stored = kafka.topics["t"].partitions[partition]
        log = stored.log_of(stored.leader)
        for data, count in entries:
            stored._append(log, Batch(data, log.end, log.end + count - 1, stored.leader_epoch, 0, 2000, -1, -1, -1, count))

    cluster._do(append)


def reading(cluster: FakeCluster, **options: Any) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
