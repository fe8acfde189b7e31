"""Offsets and deleted records, on real brokers."""
from __future__ import annotations

import asyncio
import datetime

import pytest

from pyclient import Admin, AsyncAdmin, Producer, TopicPartition
from pyclient.admin import ListedOffset, OffsetSpec
from pyclient.errors import OffsetOutOfRangeError, PartialFailureError, UnknownTopicOrPartitionError
from pyclient.testing import LocalCluster
from tests.kafka import WRITTEN_AT, make_topic


def fill(cluster: LocalCluster, tp: TopicPartition, count: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(tp.topic, b"x", partition=tp.partition, timestamp=WRITTEN_AT + number)


def test_offsets_are_listed_by_spec_and_by_time(kafka_cluster: LocalCluster, topic: str) -> None:
    full, empty = make_topic(kafka_cluster, topic, 2)
    fill(kafka_cluster, full, 5)
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        def listed(spec: OffsetSpec | int | datetime.datetime) -> ListedOffset | None:
            return admin.list_offsets({full: spec})[full]

        assert listed(OffsetSpec.LATEST) == ListedOffset(5, None, 0)
        assert listed(OffsetSpec.EARLIEST) == ListedOffset(0, None, 0)
        assert listed(OffsetSpec.EARLIEST_LOCAL) == ListedOffset(0, None, 0)
        assert listed(OffsetSpec.LATEST_TIERED) is None
        assert listed(OffsetSpec.MAX_TIMESTAMP) == ListedOffset(4, WRITTEN_AT + 4, 0)
        assert listed(WRITTEN_AT + 2) == ListedOffset(2, WRITTEN_AT + 2, 0)
        assert listed(datetime.datetime.fromtimestamp((WRITTEN_AT + 3) / 1000, datetime.timezone.utc)) == ListedOffset(3, WRITTEN_AT + 3, 0)
        assert listed(WRITTEN_AT + 5) is None
        assert admin.list_offsets({full: OffsetSpec.LATEST, empty: OffsetSpec.LATEST}) == {full: ListedOffset(5, None, 0), empty: ListedOffset(0, None, 0)}
        assert admin.list_offsets({full: OffsetSpec.EARLIEST, empty: OffsetSpec.MAX_TIMESTAMP}) == {full: ListedOffset(0, None, 0), empty: None}


def test_records_before_an_offset_are_deleted_and_each_partition_has_its_own_outcome(kafka_cluster: LocalCluster, topic: str) -> None:
    one, two = make_topic(kafka_cluster, topic, 2)
    fill(kafka_cluster, one, 5)
    fill(kafka_cluster, two, 5)

    async def main() -> None:
        async with AsyncAdmin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
            assert await admin.delete_records({one: 3, two: -1}) == {one: 3, two: 5}
            assert (await admin.list_offsets({one: OffsetSpec.EARLIEST}))[one] == ListedOffset(3, None, 0)
            with pytest.raises(PartialFailureError) as failed:
                await admin.delete_records({one: 4, two: 99})
            assert failed.value.results == {one: 4}
            assert isinstance(failed.value.errors[two], OffsetOutOfRangeError)
            with pytest.raises(UnknownTopicOrPartitionError):
                await admin.list_offsets({TopicPartition(topic, 9): OffsetSpec.LATEST})

    asyncio.run(main())
