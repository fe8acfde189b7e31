"""Topics as tables and streams in a real Spark: columns, micro-batches, checkpoints."""
from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from pyclient import Producer
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, produce
from tests.spark.conftest import Load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LIMIT_S = 180
EMPTY: list[tuple[str, bytes | None]] = []


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_every_column_holds_what_was_produced(batch: Load, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)
    began = now_ms()
    sent: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]] = [
        (b"k", b"v", began - 5, [("a", b"1"), ("a", None), ("", b"")]),
        (None, b"\x00\xff", began, EMPTY),
        (b"", None, began + 5, [("ü", b"2")]),
    ]
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        for key, value, stamp, headers in sent:
            producer.send(topic, value, key, partition=1, timestamp=stamp, headers=headers)
    rows = batch(includeHeaders="true").orderBy("offset").collect()
    for offset, (row, (key, value, stamp, headers)) in enumerate(zip(rows, sent, strict=True)):
        stored = None if row.key is None else bytes(row.key), None if row.value is None else bytes(row.value)
        assert stored == (key, value)
        assert (row.topic, row.partition, row.offset, row.timestampType) == (topic, 1, offset, 0)
        assert row.timestamp.astimezone(timezone.utc) == datetime.fromtimestamp(stamp / 1000, timezone.utc)
        assert [(each.key, None if each.value is None else bytes(each.value)) for each in row.headers] == headers


def test_the_brokers_time_is_distinguished_from_the_producers(batch: Load, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, message_timestamp_type="LogAppendTime")
    began = now_ms()
    produce(kafka_cluster, topic, [b"x"])
    (row,) = batch().collect()
    assert row.timestampType == 1
    assert began - 1000 <= row.timestamp.timestamp() * 1000 <= now_ms() + 1000


def test_an_empty_topic_is_an_empty_table(batch: Load, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)
    assert batch().count() == 0


def test_a_query_that_wants_few_rows_ends_before_the_topic_does(batch: Load, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [bytes(1000)] * 20_000)
    assert len(batch(**{"kafka.max.poll.records": "100"}).limit(3).collect()) == 3


def test_workers_that_have_read_leave_what_they_loaded_out_of_sparks_collections(
        batch: Load, spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)
    produce(kafka_cluster, topic, [b"x"] * 20)

    def left_out(batches: Iterator[Any]) -> Iterator[Any]:
        import gc

        import pyarrow as pa

        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"objects": pa.array([gc.get_freeze_count()], pa.int64())})

    assert batch().count() == 20
    assert max(row.objects for row in spark.range(0, 2, 1, 2).mapInArrow(left_out, "objects long").collect()) > 10_000


def test_a_batch_is_cut_into_as_many_tasks_as_asked(batch: Load, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [b"%d" % number for number in range(100)])
    from pyspark.sql import functions as f

    table = batch(maxRecordsPerPartition="30")
    counts = table.groupBy(f.spark_partition_id()).count().collect()
    assert sorted(row["count"] for row in counts) == [25, 25, 25, 25]
    assert {bytes(row.value) for row in table.select("value").collect()} == {b"%d" % number for number in range(100)}


def test_mistakes_show_when_the_source_is_loaded(batch: Load) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="(?si)startingOfset.*did you mean startingOffsets"):
        batch(startingOfset="earliest")


# ---- streams --------------------------------------------------------------------------------------------------------


def numbers(stream: DataFrame) -> DataFrame:
    return stream.select(stream.value.cast("string").cast("int").alias("number"), "partition")


def run(frame: DataFrame, into: dict[int, list[int]], checkpoint: str) -> StreamingQuery:
    """Read what is there now; each batch's numbers by the batch's own number."""
    def keep(batch: DataFrame, batch_id: int) -> None:
        into.setdefault(batch_id, []).extend(row.number for row in batch.collect())

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT_S), "the stream does not end"
    return query


def test_a_stream_is_read_in_batches_of_limited_size(stream: Load, kafka_cluster: LocalCluster, topic: str, checkpoint: str) -> None:
    make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [b"%d" % number for number in range(25)])
    batches: dict[int, list[int]] = {}
    query = run(numbers(stream(maxOffsetsPerTrigger="10")), batches, checkpoint)
    assert batches == {0: list(range(10)), 1: list(range(10, 20)), 2: list(range(20, 25))}
    assert [progress["numInputRows"] for progress in query.recentProgress] == [10, 10, 5]
    assert query.recentProgress[0]["sources"][0]["latestOffset"] == f'{{"{topic}": {{"0": 25}}}}'


def test_a_stream_goes_on_from_its_checkpoint(stream: Load, kafka_cluster: LocalCluster, topic: str, checkpoint: str) -> None:
    make_topic(kafka_cluster, topic)
    batches: dict[int, list[int]] = {}
    for start in (0, 10):
        produce(kafka_cluster, topic, [b"%d" % number for number in range(start, start + 10)])
        run(numbers(stream()), batches, checkpoint)
    assert batches == {0: list(range(10)), 1: list(range(10, 20))}


def test_a_batch_that_failed_is_repeated_with_the_same_records(
    stream: Load, kafka_cluster: LocalCluster, topic: str, checkpoint: str,
) -> None:
    from pyspark.errors import StreamingQueryException

    make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [b"%d" % number for number in range(10)])

    def refuse(batch: DataFrame, batch_id: int) -> None:
        raise RuntimeError(f"no to batch {batch_id}")

    frame = numbers(stream(maxOffsetsPerTrigger="6"))
    query = frame.writeStream.foreachBatch(refuse).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="no to batch 0"):
        query.awaitTermination(LIMIT_S)
    produce(kafka_cluster, topic, [b"%d" % number for number in range(10, 20)])
    batches: dict[int, list[int]] = {}
    run(frame, batches, checkpoint)
    assert batches[0] == list(range(6))
    assert sorted(number for each in batches.values() for number in each) == list(range(20))


def test_a_stream_that_began_at_the_end_misses_nothing_that_came_after(
    stream: Load, kafka_cluster: LocalCluster, topic: str, checkpoint: str,
) -> None:
    make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [b"-1"])
    batches: dict[int, list[int]] = {}
    run(numbers(stream(startingOffsets="latest")), batches, checkpoint)
    produce(kafka_cluster, topic, [b"1", b"2"])
    run(numbers(stream(startingOffsets="latest")), batches, checkpoint)
    assert sorted(number for each in batches.values() for number in each) == [1, 2]


def test_state_is_kept_over_a_restart(stream: Load, kafka_cluster: LocalCluster, topic: str, checkpoint: str) -> None:
    make_topic(kafka_cluster, topic)
    sums: list[Any] = []
    for _ in range(2):
        produce(kafka_cluster, topic, [b"1", b"2", b"3"])
        totals = numbers(stream()).groupBy("partition").sum("number")
        query = (
            totals.writeStream.outputMode("update").foreachBatch(lambda frame, _: sums.extend(frame.collect()))
            .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(LIMIT_S)
    assert [row["sum(number)"] for row in sums] == [6, 12]


def test_records_that_are_lost_end_the_stream_with_the_way_out(
    stream: Load, kafka_cluster: LocalCluster, topic: str, checkpoint: str,
) -> None:
    from pyspark.errors import StreamingQueryException

    make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [b"1"])
    frame = stream(startingOffsets=f'{{"{topic}": {{"0": 7}}}}')
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="failOnDataLoss=false"):
        query.awaitTermination(LIMIT_S)

