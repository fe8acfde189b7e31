"""Tasks of one worker process share a consumer; on the fake cluster, without a Spark."""
from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyclient import Admin, Consumer, TopicPartition
from pyclient.config import ConsumerConfig
from pyclient.errors import ConfigurationError, OffsetOutOfRangeError
from pyclient.integration.spark import producers
from pyclient.integration.spark.offsets import OffsetRange
from pyclient.integration.spark.options import SinkOptions, SourceOptions
from pyclient.integration.spark.reading import MANY, client_options, read_range
from pyclient.integration.spark.rows import write_rows
from pyclient.testing import FakeCluster
from tests import offset_ranges

TOPIC = "orders"
RECORDS = 8


@pytest.fixture(autouse=True)
def filled(fake_cluster: FakeCluster) -> Iterator[None]:
    """Records in two partitions; afterwards this process keeps no client."""
    fake_cluster.create_topic(TOPIC, 2)
    fill(fake_cluster, b"%d")
    yield
    while producers._kept:
        producers._kept.popitem()[1].close(timeout=0)


def fill(fake: FakeCluster, form: bytes) -> None:
    for number in range(RECORDS):
        fake.produce(TOPIC, form % number, partition=number % 2)


def options(fake: FakeCluster, **given: str) -> SourceOptions:
    return SourceOptions.parse({"kafka.bootstrap.servers": fake.bootstrap_servers, "subscribe": TOPIC, **given})


def values(fake: FakeCluster, partition: int, start: int, end: int, **given: str) -> list[bytes | None]:
    wanted = OffsetRange(TopicPartition(TOPIC, partition), start, end)
    return [value for batch in read_range(wanted, options(fake, **given)) for value in batch.column("value").to_pylist()]


def connections(fake: FakeCluster) -> int:
    """Each new one begins with this request."""
    return len(fake.requests("ApiVersions"))


def test_later_tasks_open_no_connection(fake_cluster: FakeCluster) -> None:
    assert values(fake_cluster, 0, 0, 4) == [b"0", b"2", b"4", b"6"]
    assert values(fake_cluster, 1, 1, 3) == [b"3", b"5"]
    before = connections(fake_cluster)  # the second task may open one to ask for metadata
    assert values(fake_cluster, 0, 1, 2) == [b"2"], "the same partition again, at another offset"
    assert values(fake_cluster, 1, 0, 4) == [b"1", b"3", b"5", b"7"]
    assert connections(fake_cluster) == before


def test_between_two_tasks_no_partition_is_fetched(fake_cluster: FakeCluster) -> None:
    assert values(fake_cluster, 0, 0, 2) == [b"0", b"2"]
    (consumer,) = producers._kept.values()
    assert isinstance(consumer, Consumer)
    assert consumer.assignment() == frozenset()


def test_tasks_with_other_options_have_another_consumer(fake_cluster: FakeCluster) -> None:
    assert values(fake_cluster, 0, 0, 1) == values(fake_cluster, 0, 0, 1, **{"kafka.client.id": "other"}) == [b"0"]
    assert len(producers._kept) == 2


def test_a_task_that_fails_leaves_no_consumer_to_the_next(fake_cluster: FakeCluster) -> None:
    fake_cluster.advance_retention(TOPIC, 0, 2)
    with pytest.raises(OffsetOutOfRangeError):
        values(fake_cluster, 0, 0, 4)
    assert not producers._kept
    assert values(fake_cluster, 0, 2, 4) == [b"4", b"6"]


def test_a_task_that_is_left_unfinished_does_not_disturb_the_next(fake_cluster: FakeCluster) -> None:
    unfinished = read_range(OffsetRange(TopicPartition(TOPIC, 0), 0, 4), options(fake_cluster))
    next(unfinished)
    whole = read_range(OffsetRange(TopicPartition(TOPIC, 1), 0, 4), options(fake_cluster))
    assert next(whole).num_rows > 0
    unfinished.close()  # type: ignore[attr-defined]
    assert list(whole) == []
    assert values(fake_cluster, 1, 0, 1) == [b"1"]


def test_a_topic_that_was_created_again_between_two_tasks_is_read(fake_cluster: FakeCluster) -> None:
    assert values(fake_cluster, 0, 0, 1) == [b"0"]
    with Admin(bootstrap_servers=fake_cluster.bootstrap_servers) as admin:
        admin.delete_topics([TOPIC])
    fake_cluster.create_topic(TOPIC, 2)
    fill(fake_cluster, b"new %d")
    assert values(fake_cluster, 0, 0, 2) == [b"new 0", b"new 2"]


@pytest.mark.fake_kafka(brokers=2)
def test_a_leader_that_moved_between_two_tasks_is_found(fake_cluster: FakeCluster) -> None:
    assert values(fake_cluster, 0, 0, 1) == [b"0"]
    brokers = {fake_cluster.leader(TOPIC, partition) for partition in range(2)}
    fake_cluster.move_leader(TOPIC, 0, to=next(iter(brokers - {fake_cluster.leader(TOPIC, 0)})))
    assert values(fake_cluster, 0, 0, 2) == [b"0", b"2"]


def test_a_task_waits_for_no_long_request_of_the_one_before_unless_the_user_says_so(fake_cluster: FakeCluster) -> None:
    """One that waits at the end of a partition; the next task's request is answered behind it."""
    given: list[dict[str, str]] = [{}, {"kafka.fetch.max.wait.ms": "500"}, {"kafka.fetch_max_wait_ms": "400"}]
    waits = [ConsumerConfig.parse(options(fake_cluster, **each).client).fetch_max_wait_ms for each in given]
    assert waits == [20, 500, 400]


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.proof)])
def test_generated_ranges_hold_what_a_plain_consumer_reads_there(fake_cluster: FakeCluster, count: int) -> None:
    fake_cluster.create_topic("ranges", 3)
    offset_ranges.fill(fake_cluster.bootstrap_servers, "ranges", 3, seed=25)
    offset_ranges.compare(fake_cluster.bootstrap_servers, "ranges", 3, count, seed=25)


def test_large_ranges_are_read_in_larger_fetches_unless_the_user_sets_their_size(fake_cluster: FakeCluster) -> None:
    def size(offsets: int, **given: str) -> int:
        wanted = OffsetRange(TopicPartition(TOPIC, 0), 5, 5 + offsets)
        return ConsumerConfig.parse(client_options(wanted, options(fake_cluster, **given))).max_partition_fetch_bytes

    assert (size(MANY - 1), size(MANY)) == (2**20, 2 * 2**20)
    assert [size(MANY, **{name: "1000"}) for name in ("kafka.max.partition.fetch.bytes", "kafka.max_partition_fetch_bytes")] == [1000, 1000]


class Second:
    """A partitioner, by its name."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: object) -> int:
        return 1


def test_tasks_import_what_the_environment_of_the_driver_allows(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = {"kafka.sasl.token.provider": f"{__name__}:Second"}
    sink = {"kafka.bootstrap.servers": fake_cluster.bootstrap_servers, "topic": TOPIC, "kafka.partitioner": f"{__name__}:Second"}
    for parse in (lambda: options(fake_cluster, **provider), lambda: SinkOptions.parse(sink)):
        with pytest.raises(ConfigurationError, match=f"PYCLIENT_ALLOW_IMPORTS={__name__}"):
            parse()
    monkeypatch.setenv("PYCLIENT_ALLOW_IMPORTS", __name__)
    source, written = options(fake_cluster, **provider), SinkOptions.parse(sink)
    monkeypatch.delenv("PYCLIENT_ALLOW_IMPORTS")  # as in the environment of a task
    wanted = OffsetRange(TopicPartition(TOPIC, 1), 0, RECORDS // 2)
    assert client_options(OffsetRange(wanted.tp, 0, MANY), source)["sasl.token.provider"] == f"{__name__}:Second"
    assert sum(batch.num_rows for batch in read_range(wanted, source)) == RECORDS // 2
    write_rows(iter([pa.record_batch({"value": [b"a", b"b"]})]), written)
    assert len(fake_cluster.records(TOPIC)) == RECORDS + 2
    assert len([record for record in fake_cluster.records(TOPIC) if record.partition == 1]) == RECORDS // 2 + 2
