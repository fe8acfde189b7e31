"""What makes a batch, and what a task reads of it: the readers themselves, against a real broker, without Spark around
them.

Spark calls these methods in this order from its own processes; `test_source.py` shows that it does.
"""
from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyclient import Admin, Consumer, Producer, TopicPartition
from pyclient.errors import (
    ConfigurationError, KafkaTimeoutError, NoOffsetForPartitionError, OffsetOutOfRangeError, UnknownTopicOrPartitionError,
)
from pyclient.integration.spark.columns import spark_schema
from pyclient.integration.spark.offsets import OffsetRange
from pyclient.integration.spark.options import SourceOptions
from pyclient.integration.spark.reading import read_range
from pyclient.integration.spark.source import BatchReader, StreamReader
from pyclient.testing import LocalCluster
from tests import offset_ranges
from tests.kafka import make_topic, markers_written
from tests.waiting import eventually


def options(cluster: LocalCluster, topic: str, **given: str) -> SourceOptions:
    selection = {} if {"assign", "subscribePattern"} & set(given) else {"subscribe": topic}
    return SourceOptions.parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, **selection, **given})


@contextmanager
def stream_reader(cluster: LocalCluster, topic: str, **given: str) -> Iterator[StreamReader]:
    reader = StreamReader(options(cluster, topic, **given), spark_schema(headers=False))
    try:
        yield reader
    finally:
        reader.stop()


def batch_ranges(cluster: LocalCluster, topic: str, **given: str) -> list[OffsetRange]:
    reader = BatchReader(options(cluster, topic, **given), spark_schema(headers=False))
    return [each.value for each in reader.partitions()]


def fill(cluster: LocalCluster, topic: str, *counts: int, timestamp: int | None = None) -> None:
    """So many records into each partition, in order."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition, count in enumerate(counts):
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=partition, timestamp=timestamp)


def read_offsets(cluster: LocalCluster, wanted: OffsetRange, **given: str) -> list[int]:
    asked = options(cluster, wanted.tp.topic, **given)
    return [row["offset"] for batch in read_range(wanted, asked) for row in batch.select(["offset"]).to_pylist()]


# ---- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_reads_from_beginning_to_end_with_a_task_per_partition(kafka_cluster: LocalCluster, topic: str) -> None:
    t0, t1, _ = make_topic(kafka_cluster, topic, 3)
    fill(kafka_cluster, topic, 3, 5)
    assert batch_ranges(kafka_cluster, topic) == [OffsetRange(t0, 0, 3), OffsetRange(t1, 0, 5)]


def test_a_batch_reads_exactly_the_offsets_asked_for(kafka_cluster: LocalCluster, topic: str) -> None:
    t0, t1 = make_topic(kafka_cluster, topic, 2)
    fill(kafka_cluster, topic, 9, 9)
    starting, ending = f'{{"{topic}": {{"0": 2, "1": -2}}}}', f'{{"{topic}": {{"0": 5, "1": -1}}}}'
    ranges = batch_ranges(kafka_cluster, topic, startingOffsets=starting, endingOffsets=ending)
    assert ranges == [OffsetRange(t0, 2, 5), OffsetRange(t1, 0, 9)]
    assert read_offsets(kafka_cluster, ranges[0]) == [2, 3, 4]


def test_a_batch_begins_and_ends_at_times(kafka_cluster: LocalCluster, topic: str) -> None:
    (tp,) = make_topic(kafka_cluster, topic)
    now = time.time_ns() // 1_000_000
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        for age in (50, 40, 30, 20):
            producer.send(topic, b"", partition=0, timestamp=now - age * 1000)
    assert batch_ranges(kafka_cluster, topic, startingTimestamp=str(now - 45_000)) == [OffsetRange(tp, 1, 4)]
    by_partition = f'{{"{topic}": {{"0": {now - 35_000}}}}}'
    assert batch_ranges(kafka_cluster, topic, endingOffsetsByTimestamp=by_partition) == [OffsetRange(tp, 0, 2)]
    assert batch_ranges(kafka_cluster, topic, endingTimestamp=str(now)) == [OffsetRange(tp, 0, 4)]


def test_a_start_later_than_every_record_is_an_error_unless_it_means_the_end(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 2)
    future = str(time.time_ns() // 1_000_000 + 3_600_000)
    with pytest.raises(NoOffsetForPartitionError, match=f"no record of {topic}-0 is as late"):
        batch_ranges(kafka_cluster, topic, startingTimestamp=future)
    assert batch_ranges(kafka_cluster, topic, startingTimestamp=future, startingOffsetsByTimestampStrategy="latest") == []


def test_tasks_are_made_smaller_and_more_when_asked(kafka_cluster: LocalCluster, topic: str) -> None:
    t0, t1 = make_topic(kafka_cluster, topic, 2)
    fill(kafka_cluster, topic, 10, 2)
    assert batch_ranges(kafka_cluster, topic, maxRecordsPerPartition="5") == [
        OffsetRange(t0, 0, 5), OffsetRange(t0, 5, 10), OffsetRange(t1, 0, 2)]
    assert len(batch_ranges(kafka_cluster, topic, minPartitions="6")) == 6


def test_assigned_partitions_are_read_and_no_others(kafka_cluster: LocalCluster, topic: str) -> None:
    _, t1, _ = make_topic(kafka_cluster, topic, 3)
    fill(kafka_cluster, topic, 2, 2, 2)
    assert batch_ranges(kafka_cluster, topic, assign=f'{{"{topic}": [1]}}') == [OffsetRange(t1, 0, 2)]


def test_an_assigned_partition_that_does_not_exist_is_named(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with pytest.raises(ConfigurationError, match=f"assign names {topic}-7, which does not exist"):
        batch_ranges(kafka_cluster, topic, assign=f'{{"{topic}": [0, 7]}}')


def test_a_pattern_reads_the_topics_whose_whole_name_it_matches(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, f"{topic}-a")
    make_topic(kafka_cluster, f"{topic}-ab")
    fill(kafka_cluster, f"{topic}-a", 1)
    fill(kafka_cluster, f"{topic}-ab", 1)
    assert batch_ranges(kafka_cluster, topic, subscribePattern=f"{topic}-.") == [OffsetRange(TopicPartition(f"{topic}-a", 0), 0, 1)]


def test_a_topic_that_does_not_exist_is_named_and_not_made(kafka_cluster: LocalCluster, topic: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=topic):
        batch_ranges(kafka_cluster, topic)
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        assert topic not in admin.list_topics()


@pytest.mark.parametrize(("side", "value", "complaint"), [
    ("startingOffsets", 9, "the starting offset 9 of .* is behind the ending one, 3"),
    ("endingOffsets", 9, "the ending offset 9 of .* is behind the end of its log, 3"),
])
def test_offsets_that_cannot_be_read_are_refused_before_tasks_wait(
    kafka_cluster: LocalCluster, topic: str, side: str, value: int, complaint: str,
) -> None:
    make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 3)
    with pytest.raises(ConfigurationError, match=complaint):
        batch_ranges(kafka_cluster, topic, **{side: f'{{"{topic}": {{"0": {value}}}}}'})


def test_columns_other_than_the_sources_are_refused(kafka_cluster: LocalCluster, topic: str) -> None:
    with pytest.raises(ConfigurationError, match=r"leave .schema\(...\) out"):
        BatchReader(options(kafka_cluster, topic), spark_schema(headers=True))


# ---- streams --------------------------------------------------------------------------------------------------------


def all_batches(reader: StreamReader) -> list[dict[str, Any]]:
    """The end of each micro-batch until there is nothing new."""
    ends, start = [], reader.initialOffset()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        ends.append(end)
        start = end
    return ends


def test_a_stream_without_limit_reads_everything_at_once(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)
    fill(kafka_cluster, topic, 3, 4)
    with stream_reader(kafka_cluster, topic, startingOffsets="earliest") as reader:
        assert isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)
        assert reader.initialOffset() == {topic: {"0": 0, "1": 0}}
        assert all_batches(reader) == [{topic: {"0": 3, "1": 4}}]


def test_a_stream_with_a_limit_takes_from_each_partition_in_proportion(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)
    fill(kafka_cluster, topic, 20, 10)
    with stream_reader(kafka_cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="15") as reader:
        assert reader.getDefaultReadLimit() == ReadMaxRows(15)
        assert all_batches(reader) == [{topic: {"0": 10, "1": 5}}, {topic: {"0": 20, "1": 10}}]


def test_available_now_ends_where_the_logs_ended_when_it_began(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 4)
    with stream_reader(kafka_cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="3") as reader:
        reader.prepareForTriggerAvailableNow()
        fill(kafka_cluster, topic, 4)
        assert all_batches(reader) == [{topic: {"0": 3}}, {topic: {"0": 4}}]


def test_without_available_now_later_records_are_seen(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with stream_reader(kafka_cluster, topic, startingOffsets="earliest") as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        fill(kafka_cluster, topic, 4)
        assert reader.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 4}}
        assert reader.reportLatestOffset() == {topic: {"0": 4}}


def test_a_batch_waits_for_the_least_number_of_records_but_for_the_first_one(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 1)
    with stream_reader(kafka_cluster, topic, startingOffsets="earliest", minOffsetsPerTrigger="3") as reader:
        first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert first == {topic: {"0": 1}}
        fill(kafka_cluster, topic, 2)
        assert reader.latestOffset(first, ReadAllAvailable()) == first
        fill(kafka_cluster, topic, 1)
        assert reader.latestOffset(first, ReadAllAvailable()) == {topic: {"0": 4}}


def test_a_batch_waits_no_longer_than_the_delay(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with stream_reader(kafka_cluster, topic, startingOffsets="earliest", minOffsetsPerTrigger="3", maxTriggerDelay="1ms") as reader:
        start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        fill(kafka_cluster, topic, 1)
        eventually(lambda: reader.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 1}})


def test_available_now_waits_for_nothing(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 2)
    with stream_reader(kafka_cluster, topic, startingOffsets="earliest", minOffsetsPerTrigger="2", maxOffsetsPerTrigger="2") as reader:
        fill(kafka_cluster, topic, 1)
        reader.prepareForTriggerAvailableNow()
        assert all_batches(reader) == [{topic: {"0": 2}}, {topic: {"0": 3}}]


def test_a_topic_found_later_is_read_from_its_beginning(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, f"{topic}-a")
    with stream_reader(kafka_cluster, topic, subscribePattern=f"{topic}-.", startingOffsets="latest") as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        make_topic(kafka_cluster, f"{topic}-b", 2)
        fill(kafka_cluster, f"{topic}-b", 3, 1)
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end == {f"{topic}-a": {"0": 0}, f"{topic}-b": {"0": 3, "1": 1}}
        assert [each.value for each in reader.partitions(start, end)] == [
            OffsetRange(TopicPartition(f"{topic}-b", 0), 0, 3), OffsetRange(TopicPartition(f"{topic}-b", 1), 0, 1)]


def test_a_stream_from_the_end_writes_down_first_where_the_end_was(kafka_cluster: LocalCluster, topic: str) -> None:
    """Else a query that dies in its first batch would begin at another end, and lose what came between."""
    (tp,) = make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 5)
    with stream_reader(kafka_cluster, topic) as reader:
        first = reader.initialOffset()
        fill(kafka_cluster, topic, 5)
        assert reader.latestOffset(first, ReadAllAvailable()) == first == {topic: {"0": 5}}
    with stream_reader(kafka_cluster, topic) as restarted:
        moved = restarted.initialOffset()
        assert moved == {topic: {"0": 10}}
        assert restarted.partitions(moved, first) == []  # the first batch again, as Spark repeats it
        end = restarted.latestOffset(first, ReadAllAvailable())
        assert [each.value for each in restarted.partitions(first, end)] == [OffsetRange(tp, 5, 10)]


def test_a_repeated_batch_has_the_same_tasks(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)
    fill(kafka_cluster, topic, 9, 9)
    start, end = {topic: {"0": 1, "1": 2}}, {topic: {"0": 4, "1": 8}}
    ranges = []
    for _ in range(2):
        with stream_reader(kafka_cluster, topic, startingOffsets="earliest") as reader:
            ranges.append([each.value for each in reader.partitions(start, end)])
        fill(kafka_cluster, topic, 9, 9)
    assert ranges[0] == ranges[1] == [OffsetRange(TopicPartition(topic, 0), 1, 4), OffsetRange(TopicPartition(topic, 1), 2, 8)]


def test_a_reader_travels_to_tasks_while_its_clients_stay(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 3)
    with stream_reader(kafka_cluster, topic, startingOffsets="earliest") as reader:
        (task,) = reader.partitions(reader.initialOffset(), {topic: {"0": 3}})
        copy = pickle.loads(pickle.dumps(reader))
        assert sum(batch.num_rows for batch in copy.read(pickle.loads(pickle.dumps(task)))) == 3
        assert reader.initialOffset() == {topic: {"0": 0}}


# ---- what is gone ---------------------------------------------------------------------------------------------------


def create_again(cluster: LocalCluster, topic: str) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        eventually(lambda: topic not in admin.list_topics())
    make_topic(cluster, topic)


def test_a_topic_created_again_is_data_loss(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    create_again(kafka_cluster, topic)
    fill(kafka_cluster, topic, 2)
    with stream_reader(kafka_cluster, topic) as reader, pytest.raises(OffsetOutOfRangeError, match="up to offset 5 and now ends at 2.*failOnDataLoss"):
        reader.latestOffset({topic: {"0": 5}}, ReadAllAvailable())


def test_a_topic_created_again_is_read_from_its_beginning_if_data_may_be_lost(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 2)
    old = {topic: {"0": 5}}
    with stream_reader(kafka_cluster, topic, failOnDataLoss="false") as reader:
        back = reader.latestOffset(old, ReadAllAvailable())
        assert (back, reader.partitions(old, back)) == ({topic: {"0": 0}}, [])
        assert reader.latestOffset(back, ReadAllAvailable()) == {topic: {"0": 2}}


def test_a_partition_that_vanished_is_data_loss(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    start = {topic: {"0": 0, "1": 4}}
    with stream_reader(kafka_cluster, topic) as reader, pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-1.*failOnDataLoss=false"):
        reader.latestOffset(start, ReadAllAvailable())
    with stream_reader(kafka_cluster, topic, failOnDataLoss="false") as reader:
        assert reader.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 0}}


@pytest.fixture
def aged(local_cluster: Any, topic: str) -> tuple[LocalCluster, OffsetRange]:
    """A partition whose first ten of fifteen records the broker has removed, and the range of all fifteen."""
    cluster = local_cluster(log_retention_check_interval_ms=200, log_initial_task_delay_ms=100)
    (tp,) = make_topic(cluster, topic, retention_ms="3600000")
    fill(cluster, topic, 10, timestamp=1_000_000)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        eventually(lambda: consumer.beginning_offsets([tp])[tp] == 10, limit_s=60)
    fill(cluster, topic, 5)
    return cluster, OffsetRange(tp, 0, 15)


@pytest.mark.embedded
def test_records_that_aged_out_are_data_loss_or_a_warning(aged: tuple[LocalCluster, OffsetRange], caplog: pytest.LogCaptureFixture) -> None:
    cluster, whole = aged
    topic = whole.tp.topic
    lost = f"{topic}-0 0 to 9"
    with stream_reader(cluster, topic) as reader, pytest.raises(OffsetOutOfRangeError, match=f"not in the log any more: {lost}.*failOnDataLoss"):
        reader.partitions({topic: {"0": 0}}, {topic: {"0": 15}})
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets 0 to 9 of {topic}-0.*failOnDataLoss"):
        read_offsets(cluster, whole)
    with caplog.at_level(logging.WARNING, "pyclient"):
        with stream_reader(cluster, topic, failOnDataLoss="false") as reader:
            assert [each.value for each in reader.partitions({topic: {"0": 0}}, {topic: {"0": 15}})] == [OffsetRange(whole.tp, 10, 15)]
        assert read_offsets(cluster, whole, failOnDataLoss="false") == [10, 11, 12, 13, 14]
        assert read_offsets(cluster, OffsetRange(whole.tp, 0, 7), failOnDataLoss="false") == []
    assert lost in caplog.text
    assert f"offsets 0 to 9 of {topic}-0 are not in the log any more" in caplog.text


# ---- tasks ----------------------------------------------------------------------------------------------------------


def test_a_task_reads_its_range_and_nothing_behind_it(kafka_cluster: LocalCluster, topic: str) -> None:
    (tp,) = make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 3000)
    assert read_offsets(kafka_cluster, OffsetRange(tp, 17, 2500)) == list(range(17, 2500))


def test_a_task_that_polls_little_at_a_time_reads_the_same(kafka_cluster: LocalCluster, topic: str) -> None:
    (tp,) = make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 50)
    assert read_offsets(kafka_cluster, OffsetRange(tp, 3, 44), **{"kafka.max.poll.records": "7"}) == list(range(3, 44))


def test_fifty_ranges_hold_what_a_plain_consumer_reads_there(kafka_cluster: LocalCluster, topic: str) -> None:
    parts = make_topic(kafka_cluster, topic, 3)
    offset_ranges.fill(kafka_cluster.bootstrap_servers, topic, len(parts), seed=25)
    markers_written(kafka_cluster, parts)
    offset_ranges.compare(kafka_cluster.bootstrap_servers, topic, len(parts), 50, seed=25)


def test_a_task_ends_with_an_error_when_nothing_comes(kafka_cluster: LocalCluster, topic: str) -> None:
    (tp,) = make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 5)
    with pytest.raises(KafkaTimeoutError, match=f"{topic}-0 offsets 0 to 8 came for 0.3 s; position 5"):
        read_offsets(kafka_cluster, OffsetRange(tp, 0, 9), **{"kafkaConsumer.pollTimeoutMs": "300"})


def test_a_task_whose_topic_is_gone_ends_with_an_error_and_does_not_make_it_again(kafka_cluster: LocalCluster, topic: str) -> None:
    with pytest.raises(KafkaTimeoutError, match=f"no records of {topic}-0"):
        read_offsets(kafka_cluster, OffsetRange(TopicPartition(topic, 0), 0, 9), **{"kafkaConsumer.pollTimeoutMs": "1500"})
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        assert topic not in admin.list_topics()


def test_an_offset_behind_the_log_is_data_loss(kafka_cluster: LocalCluster, topic: str) -> None:
    (tp,) = make_topic(kafka_cluster, topic)
    fill(kafka_cluster, topic, 5)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 7 to 8 of"):
        read_offsets(kafka_cluster, OffsetRange(tp, 7, 9))
    assert read_offsets(kafka_cluster, OffsetRange(tp, 7, 9), failOnDataLoss="false") == []


@pytest.fixture
def transactional(kafka_cluster: LocalCluster, topic: str) -> OffsetRange:
    """Offsets 0–2 committed, 3 the marker, 4–5 aborted, 6 the marker: written by another client, for ours cannot
    yet."""
    from confluent_kafka import Producer as Other

    (tp,) = make_topic(kafka_cluster, topic)
    other = Other({"bootstrap.servers": kafka_cluster.bootstrap_servers, "transactional.id": topic})
    other.init_transactions(30)
    for count, end in ((3, other.commit_transaction), (2, other.abort_transaction)):
        other.begin_transaction()
        for number in range(count):
            other.produce(topic, b"%d" % number, partition=0)
        other.flush(30)
        end(30)
    return OffsetRange(tp, 0, 7)


@pytest.mark.parametrize(("level", "expected"), [("read_committed", [0, 1, 2]), ("read_uncommitted", [0, 1, 2, 4, 5])])
def test_a_range_that_ends_with_markers_of_transactions_ends_all_the_same(
    kafka_cluster: LocalCluster, transactional: OffsetRange, level: str, expected: list[int],
) -> None:
    given = {"kafka.isolation.level": level, "kafkaConsumer.pollTimeoutMs": "20000"}
    assert read_offsets(kafka_cluster, transactional, **given) == expected
    assert read_offsets(kafka_cluster, OffsetRange(transactional.tp, 3, 4), **given) == []
