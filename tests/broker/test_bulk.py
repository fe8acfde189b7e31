"""Bulks on real brokers: a consumer reads as Arrow what was sent, and the table can be sent again."""
from __future__ import annotations

import asyncio
from typing import Any

import pyarrow
import pytest

from pyclient import AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.testing import LocalCluster
from tests.kafka import WRITTEN_AT, make_topic

PARTS = ["timestamp", "key", "value", "headers"]


def read_table(cluster: LocalCluster, topic: str, partitions: int, count: int) -> Any:
    """The first *count* records of a topic as a table."""
    parts = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(parts)
        tables, seen = [], 0
        while seen < count:
            records = consumer.poll(20)
            assert len(records) > 0, f"{seen} of {count} came"
            seen += len(records)
            tables.append(records.to_arrow())
    return pyarrow.concat_tables(tables)


def by_value(table: Any) -> list[Any]:
    rows: list[Any] = table.select(PARTS).to_pylist()
    return sorted(rows, key=lambda row: row["value"] or b"")


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_bulk_read_as_arrow_can_be_sent_again_unchanged(kafka_cluster: LocalCluster, topic: str, codec: Any) -> None:
    count = 20_000
    make_topic(kafka_cluster, topic, 3)
    make_topic(kafka_cluster, f"{topic}-again", 3)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, compression_type=codec) as producer:
        deliveries = producer.send_many(
            topic, [b"value %d" % at for at in range(count)], keys=[None if at % 5 == 0 else b"key %d" % (at % 50) for at in range(count)],
            headers=[[("at", b"%d" % at), ("none", None)] if at % 2 else None for at in range(count)],
            timestamps=[WRITTEN_AT + at for at in range(count)]).result(60)
        first = read_table(kafka_cluster, topic, 3, count)
        assert len(producer.send_arrow(f"{topic}-again", first).result(60)) == count
    again = read_table(kafka_cluster, f"{topic}-again", 3, count)
    assert by_value(again) == by_value(first)
    stored = {row["value"]: (row["partition"], row["offset"]) for row in first.to_pylist()}
    places = zip(deliveries.partitions().tolist(), deliveries.offsets().tolist(), strict=True)
    assert all(stored[b"value %d" % at] == place for at, place in enumerate(places))


def test_an_async_bulk_larger_than_the_memory_arrives(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=kafka_cluster.bootstrap_servers, buffer_memory=200_000, batch_size=20_000) as producer:
            deliveries = await producer.send_many(topic, [b"%06d" % at + b"x" * 94 for at in range(20_000)])
            await deliveries

    asyncio.run(main())
    table = read_table(kafka_cluster, topic, 2, 20_000)
    values = table.column("value").to_pylist()
    assert sorted(int(value[:6]) for value in values) == list(range(20_000))
    for partition in range(2):
        one = [row["value"] for row in table.select(["partition", "value"]).to_pylist() if row["partition"] == partition]
        assert one == sorted(one)
