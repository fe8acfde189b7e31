"""DataFrames into topics: from the tasks, at least once, and never with a failure that goes unreported."""
from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from pyclient import Record
from pyclient.errors import ConfigurationError, DeliveryError, SerializationError
from pyclient.integration.spark import KafkaSink, producers, shared_producer
from pyclient.testing import FakeCluster, LocalCluster
from tests.kafka import make_topic, read
from tests.spark.conftest import Load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMIT_S = 180


def in_topic(cluster: LocalCluster, topic: str, count: int, partitions: int = 1) -> list[Record]:
    from pyclient import TopicPartition

    return read(cluster, [TopicPartition(topic, number) for number in range(partitions)], count)


def numbers_in(cluster: LocalCluster, topic: str, count: int, partitions: int = 1) -> list[int]:
    return sorted(int(record.value or b"") for record in in_topic(cluster, topic, count, partitions))


def sink_to(cluster: LocalCluster, topic: str | None, **options: Any) -> KafkaSink:
    return KafkaSink(topic, bootstrap_servers=cluster.bootstrap_servers, **options)


# ---- KafkaSink ------------------------------------------------------------------------------------------------------


def test_every_column_of_a_row_becomes_its_part_of_the_record(spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2, retention_ms="-1")
    rows = spark.sql(f"""
        SELECT '{topic}' AS topic, 1 AS partition, 'ключ' AS key, CAST('v' AS BINARY) AS value,
               TIMESTAMP '2001-09-09 01:46:40.123456 UTC' AS timestamp,
               array(struct('a' AS key, X'01' AS value), struct('b' AS key, CAST(NULL AS BINARY) AS value)) AS headers
        UNION ALL SELECT '{topic}', NULL, NULL, NULL, NULL, NULL""")
    sink_to(kafka_cluster, None)(rows, 0)
    full, empty = sorted(in_topic(kafka_cluster, topic, 2, 2), key=lambda record: record.value is None)
    assert (full.partition, full.key, full.value) == (1, "ключ".encode(), b"v")
    assert full.timestamp == int(datetime(2001, 9, 9, 1, 46, 40, 123000, timezone.utc).timestamp() * 1000)
    assert full.headers == [("a", b"\x01"), ("b", None)]
    assert (empty.key, empty.value, empty.headers) == (None, None, [])


def test_the_sinks_topic_wins_over_the_column(spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    sink_to(kafka_cluster, topic)(spark.sql("SELECT 'elsewhere' AS topic, 'v' AS value"), 0)
    assert in_topic(kafka_cluster, topic, 1)[0].value == b"v"


def test_records_are_written_by_tasks_and_not_by_the_driver(spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 3)
    sink_to(kafka_cluster, topic)(spark.range(0, 1000, 1, 4).selectExpr("CAST(id AS STRING) AS value"), 0)
    assert not producers._kept
    assert numbers_in(kafka_cluster, topic, 1000, 3) == list(range(1000))


def test_a_stream_is_written_batch_by_batch(
    stream: Load, spark: SparkSession, kafka_cluster: LocalCluster, topic: str, checkpoint: str,
) -> None:
    make_topic(kafka_cluster, topic)
    make_topic(kafka_cluster, f"{topic}-out")
    sink_to(kafka_cluster, topic)(spark.range(20).selectExpr("CAST(id AS STRING) AS value"), 0)
    frame = stream(maxOffsetsPerTrigger="8").selectExpr("value")
    query = (
        frame.writeStream.foreachBatch(sink_to(kafka_cluster, f"{topic}-out")).option("checkpointLocation", checkpoint)
        .trigger(availableNow=True).start()
    )
    assert query.awaitTermination(LIMIT_S)
    assert len(query.recentProgress) == 3
    assert numbers_in(kafka_cluster, f"{topic}-out", 20) == list(range(20))


def test_a_row_that_cannot_be_written_is_named(spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    rows = spark.sql(f"SELECT IF(id = 3, NULL, '{topic}') AS topic, CAST(id AS STRING) AS value FROM range(0, 5, 1, 1)")
    with pytest.raises(Exception, match="row 3 of this task, for topic None, cannot be written: the column topic is null"):
        sink_to(kafka_cluster, None)(rows, 0)


def test_a_partition_that_the_topic_does_not_have_fails_the_task_and_names_the_row(
        spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)
    rows = spark.sql("SELECT IF(id = 3, 2, IF(id = 2, NULL, 1)) AS partition, CAST(id AS STRING) AS value FROM range(0, 5, 1, 1)")
    with pytest.raises(Exception, match=f"row 3 of this task, for topic '{topic}', cannot be written: topic {topic} has 2 partitions, .*there is no 2"):
        sink_to(kafka_cluster, topic, max_block_ms=300)(rows, 0)


def test_a_record_that_kafka_refuses_fails_the_batch(spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, max_message_bytes="2000")
    rows = spark.sql("SELECT repeat('x', 5000) AS value")
    with pytest.raises(Exception, match=rf"(?s)DeliveryError.*1 record could not be delivered \({topic}-0"):
        sink_to(kafka_cluster, topic)(rows, 0)


def test_a_failed_batch_ends_the_stream_and_is_repeated_after_a_restart(
    stream: Load, spark: SparkSession, kafka_cluster: LocalCluster, topic: str, checkpoint: str,
) -> None:
    from pyspark.errors import StreamingQueryException

    make_topic(kafka_cluster, topic)
    small, large = f"{topic}-small", f"{topic}-large"
    make_topic(kafka_cluster, small, max_message_bytes="2000")
    make_topic(kafka_cluster, large)
    sink_to(kafka_cluster, topic)(spark.sql("SELECT repeat('x', 5000) AS value"), 0)

    def start(out: str) -> Any:
        writer = stream().selectExpr("value").writeStream.foreachBatch(sink_to(kafka_cluster, out))
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="DeliveryError"):
        start(small).awaitTermination(LIMIT_S)
    assert start(large).awaitTermination(LIMIT_S)
    assert in_topic(kafka_cluster, large, 1)[0].value == b"x" * 5000


@pytest.mark.parametrize(("query", "complaint"), [
    ("SELECT 1 AS value", "the column value is int, but must be a string or binary"),
    ("SELECT 'v' AS value, 'x' AS partition", "the column partition is string, but must be an int"),
    ("SELECT 'v' AS value, array('x') AS headers", "the column headers is array<string>, but must be an array<struct<"),
    ("SELECT 'k' AS key", "there is no column value, only key"),
    ("SELECT 'v' AS valeu", r"the column valeu is no part of a record \(did you mean value"),
])
def test_columns_that_make_no_record_are_refused_before_any_task(
    spark: SparkSession, kafka_cluster: LocalCluster, topic: str, query: str, complaint: str,
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        sink_to(kafka_cluster, topic)(spark.sql(query), 0)


def test_rows_without_a_topic_are_refused(spark: SparkSession, kafka_cluster: LocalCluster) -> None:
    with pytest.raises(ConfigurationError, match="set the option topic, or add a column topic"):
        sink_to(kafka_cluster, None)(spark.sql("SELECT 'v' AS value"), 0)


# ---- the format -----------------------------------------------------------------------------------------------------


def writer(frame: DataFrame, cluster: LocalCluster, topic: str) -> Any:
    return frame.write.format("pyclient").option("kafka.bootstrap.servers", cluster.bootstrap_servers).option("topic", topic)


def test_a_table_is_appended_to_a_topic(spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    for _ in range(2):
        writer(spark.range(50).selectExpr("CAST(id AS STRING) AS value"), kafka_cluster, topic).mode("append").save()
    assert numbers_in(kafka_cluster, topic, 100) == sorted([*range(50), *range(50)])


def test_a_topic_cannot_be_overwritten(spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        writer(spark.sql("SELECT 'v' AS value"), kafka_cluster, topic).mode("overwrite").save()


def test_a_topic_is_copied_without_naming_columns(
    batch: Load, spark: SparkSession, kafka_cluster: LocalCluster, topic: str,
) -> None:
    make_topic(kafka_cluster, topic, 2)
    make_topic(kafka_cluster, f"{topic}-copy", 2)
    rows = spark.sql("SELECT 'k' AS key, 'v' AS value, 1 AS partition, array(struct('h' AS key, X'02' AS value)) AS headers")
    sink_to(kafka_cluster, topic)(rows, 0)
    writer(batch(includeHeaders="true"), kafka_cluster, f"{topic}-copy").mode("append").save()
    original, copy = in_topic(kafka_cluster, topic, 1, 2)[0], in_topic(kafka_cluster, f"{topic}-copy", 1, 2)[0]
    assert (copy.partition, copy.key, copy.value, copy.headers, copy.timestamp) == (
        1, b"k", b"v", [("h", b"\x02")], original.timestamp)


def test_a_stream_is_written_by_format(
    stream: Load, spark: SparkSession, kafka_cluster: LocalCluster, topic: str, checkpoint: str,
) -> None:
    make_topic(kafka_cluster, topic)
    make_topic(kafka_cluster, f"{topic}-out")
    sink_to(kafka_cluster, topic)(spark.range(10).selectExpr("CAST(id AS STRING) AS value"), 0)
    query = (
        stream(maxOffsetsPerTrigger="4").selectExpr("key", "value").writeStream.format("pyclient")
        .option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers).option("topic", f"{topic}-out")
        .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(LIMIT_S)
    assert numbers_in(kafka_cluster, f"{topic}-out", 10) == list(range(10))


# ---- the producer of a worker ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_kept() -> Any:
    """What tests open in this very process is closed after them."""
    yield
    for producer in producers._kept.values():
        producer.close()
    producers._kept.clear()


def test_tasks_with_the_same_options_share_a_producer(kafka_cluster: LocalCluster) -> None:
    servers = kafka_cluster.bootstrap_servers
    with shared_producer({"bootstrap.servers": servers}, linger_ms=1) as first:
        pass
    with shared_producer({"bootstrap.servers": servers}, linger_ms=1) as second:
        assert first is second
    with shared_producer({"bootstrap.servers": servers}, linger_ms=2) as third:
        assert third is not first


def test_a_task_ends_only_when_its_records_are_acknowledged(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with shared_producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=60_000) as producer:
        delivery = producer.send(topic, b"v")
    assert delivery.done()


def forgets_to_return(value: str) -> None:
    """A serializer without its ``return``."""
    value.encode()


def test_a_serializer_that_returns_none_fails_its_task_and_writes_no_tombstone(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    config = {"bootstrap.servers": fake_cluster.bootstrap_servers, "value_serializer": forgets_to_return}
    with pytest.raises(SerializationError, match="the value_serializer returned None for a str of topic 't'; nothing was queued"), \
            shared_producer(config) as producer:
        producer.send("t", "v")
    assert fake_cluster.records("t", 0) == []
    with shared_producer(config, allow_tombstones=True) as producer:
        producer.send("t", "v")
    assert [record.value for record in fake_cluster.records("t", 0)] == [None]


def test_a_task_whose_records_failed_fails_and_its_producer_goes(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, max_message_bytes="2000")
    servers = kafka_cluster.bootstrap_servers
    with pytest.raises(DeliveryError, match=f"{topic}-0"), shared_producer(bootstrap_servers=servers) as producer:
        producer.send(topic, bytes(5000))
    with shared_producer(bootstrap_servers=servers) as next_one:
        assert next_one is not producer
        next_one.send(topic, b"v")


def test_a_task_that_fails_leaves_nothing_to_the_next(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    servers = kafka_cluster.bootstrap_servers
    with pytest.raises(ZeroDivisionError), shared_producer(bootstrap_servers=servers, linger_ms=60_000) as producer:
        delivery = producer.send(topic, b"half a task")
        raise ZeroDivisionError
    assert delivery.done()
    assert not producers._kept


def test_only_a_few_producers_are_kept_and_the_oldest_goes_first(kafka_cluster: LocalCluster) -> None:
    opened = []
    for linger in range(producers.MOST + 1):
        with shared_producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=linger) as producer:
            opened.append(producer)
    assert list(producers._kept.values()) == opened[1:]
    with pytest.raises(Exception, match="closed"):
        opened[0].send("t", b"v")
