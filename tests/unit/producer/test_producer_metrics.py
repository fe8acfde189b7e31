"""A producer's metrics, compared with the requests that a fake cluster received."""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow
import pytest

from pyclient import Producer
from pyclient.errors import BufferExhaustedError, DeliveryError, MetadataTimeoutError
from pyclient.metrics import Metrics
from pyclient.testing import Delay, Fail, FakeCluster
from tests.waiting import eventually

NOT_LEADER, TOPIC_AUTHORIZATION = 6, 29
MIB = 1 << 20


def producing(cluster: FakeCluster, **options: Any) -> Producer:
    return Producer({}, bootstrap_servers=cluster.bootstrap_servers, **{"linger_ms": 60_000, **options})


def is_known(producer: Producer, topic: str) -> bool:
    """Whether the topic is known within ``max_block_ms``."""
    try:
        return producer.partitions_for(topic) > 0
    except MetadataTimeoutError:
        return False


def batch_sizes(cluster: FakeCluster) -> list[int]:
    """The size of every batch that the brokers received."""
    return [len(part.records) for asked in cluster.requests("Produce") for topic in asked.body.topic_data for part in topic.partition_data]


def test_every_total_equals_what_the_brokers_received(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("a", partitions=2)
    fake_cluster.create_topic("b")
    with producing(fake_cluster) as producer:
        for number in range(30):
            producer.send("a", b"x" * number, partition=number % 2)
        for _ in range(12):
            producer.send("b", b"y" * 500, b"key")
        producer.flush()
        figures = producer.metrics()
    sizes = batch_sizes(fake_cluster)
    requests = fake_cluster.requests("Produce")
    assert figures["record-send-total"] == 42
    assert (figures["record-send-total{topic=a}"], figures["record-send-total{topic=b}"]) == (30, 12)
    assert figures["byte-total"] == figures["byte-total{topic=a}"] + figures["byte-total{topic=b}"] == sum(sizes)
    assert figures["batch-total"] == len(sizes) == 3
    assert figures["batch-size-avg"] == pytest.approx(sum(sizes) / 3)
    assert figures["batch-size-max"] == max(sizes)
    assert figures["records-per-request-avg"] == 42 / len(requests)
    assert figures["request-total"] == figures["request-total{node=1}"] + sum(
        value for name, value in figures.items() if name.startswith("request-total{node=-"))
    assert figures["record-error-total"] == figures["record-retry-total"] == figures["buffer-exhausted-total"] == 0
    assert figures["compression-rate-avg"] == figures["compression-rate{topic=a}"] == 1
    record = 500 + 3 + 8  # value, key, and their lengths, deltas and attributes
    assert figures["record-size-max"] == pytest.approx(record, abs=2)
    assert figures["record-size-avg"] == pytest.approx((sum(sizes) - 3 * 61) / 42)
    assert 0 <= figures["record-queue-time-avg"] <= figures["record-queue-time-max"]
    assert 0 < figures["request-latency-avg"] <= figures["request-latency-max"]
    assert 0 <= figures["metadata-age"] < 60


def test_rates_follow_the_totals(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with producing(fake_cluster, metrics_sample_window_ms=100_000) as producer:
        for _ in range(1000):
            producer.send("t", b"x")
        producer.flush()
        figures = producer.metrics()
    for name in ("record-send", "byte", "record-send{topic=t}", "request", "outgoing-byte", "incoming-byte", "batch"):
        stem, brace, label = name.partition("{")
        total, rate = (figures[f"{stem}-{ending}{brace}{label}"] for ending in ("total", "rate"))
        assert 0 < rate * 100 <= total * 1.000001  # over one window at least; and a hundredth, a hundred times, may be a little more


def test_records_sent_again_are_counted_as_retries_and_once_as_sent(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with producing(fake_cluster, retry_backoff_ms=1, retry_backoff_max_ms=1) as producer:
        with fake_cluster.intercept(Fail(NOT_LEADER), "Produce", times=2) as refused:
            for _ in range(5):
                producer.send("t", b"x")
            producer.flush()
        figures = producer.metrics()
    sizes = batch_sizes(fake_cluster)
    assert refused.hits == 2
    assert figures["record-retry-total"] == figures["record-retry-total{topic=t}"] == 10
    assert (figures["record-send-total"], figures["record-error-total"]) == (5, 0)
    assert (figures["batch-total"], figures["byte-total"]) == (3, sum(sizes))


def failing(producer: Producer, cluster: FakeCluster) -> None:
    with cluster.intercept(Fail(TOPIC_AUTHORIZATION), "Produce"), pytest.raises(DeliveryError):
        producer.flush()


def closing(producer: Producer, cluster: FakeCluster) -> None:
    cluster.pause(1)
    with pytest.raises(DeliveryError):
        producer.close(0)


def expiring(producer: Producer, cluster: FakeCluster) -> None:
    cluster.pause(1)
    with pytest.raises(DeliveryError):
        producer.flush()


@pytest.mark.parametrize("end", [failing, closing, expiring])
def test_every_failed_record_is_counted_however_it_failed(
        fake_cluster: FakeCluster, end: Callable[[Producer, FakeCluster], None]) -> None:
    fake_cluster.create_topic("t")
    producer = producing(fake_cluster, linger_ms=100, request_timeout_ms=400, delivery_timeout_ms=500)
    producer.partitions_for("t")
    for _ in range(7):
        producer.send("t", b"x")
    end(producer, fake_cluster)
    figures = producer.metrics()
    assert figures["record-error-total"] == figures["record-error-total{topic=t}"] == 7
    assert figures["record-send-total"] == 0
    producer.close(0)


def test_the_compression_rate_is_measured_by_topic(fake_cluster: FakeCluster) -> None:
    for name in ("zeros", "plain"):
        fake_cluster.create_topic(name)
    with producing(fake_cluster, compression_by_topic={"zeros": "zstd"}) as producer:
        producer.send("zeros", bytes(100_000))
        producer.send("plain", bytes(100_000))
        producer.flush()
        figures = producer.metrics()
    assert figures["compression-rate{topic=zeros}"] < 0.01
    assert figures["compression-rate{topic=plain}"] == 1
    assert figures["compression-rate-avg"] == pytest.approx((1 + figures["compression-rate{topic=zeros}"]) / 2)


@pytest.mark.fake_kafka(message_max_bytes=20_000)
def test_P20_a_split_batch_is_counted_and_its_records_are_counted_once(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with producing(fake_cluster) as producer:
        for _ in range(30):
            producer.send("t", bytes(1000))
        producer.flush()
        figures = producer.metrics()
    assert (figures["batch-split-total"], figures["batch-total"]) == (1, 3)
    assert (figures["record-send-total"], figures["record-error-total"], figures["record-retry-total"]) == (30, 0, 0)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_all_buffer_memory_is_available_again_when_the_producer_is_idle(fake_cluster: FakeCluster, codec: str) -> None:
    fake_cluster.create_topic("t", partitions=4)
    with producing(fake_cluster, buffer_memory=MIB, compression_type=codec, linger_ms=0) as producer:
        assert producer.metrics()["buffer-available-bytes"] == MIB
        for number in range(500):
            producer.send("t", bytes(5_000), partition=number % 4)
            assert 0 <= producer.metrics()["buffer-available-bytes"] <= MIB if number % 50 == 0 else True
        producer.flush()
        eventually(lambda: producer.metrics()["buffer-available-bytes"] == MIB)
        figures = producer.metrics()
    assert figures["buffer-total-bytes"] == MIB
    assert figures["waiting-threads"] == figures["requests-in-flight"] == 0


def test_blocked_senders_are_counted_and_their_waits_add_up(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    waits: list[float] = []

    def send() -> None:
        began = time.monotonic()
        producer.send("t", bytes(200_000))
        waits.append(time.monotonic() - began)

    with producing(fake_cluster, buffer_memory=MIB, linger_ms=0) as producer:
        producer.send("t", b"connects").result(20)
        fake_cluster.pause(1)
        while producer.metrics()["buffer-available-bytes"] > 200_000:
            producer.send("t", bytes(200_000))
        assert producer.metrics()["bufferpool-wait-time-ns-total"] == 0
        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        eventually(lambda: producer.metrics()["waiting-threads"] == 3)
        blocked = time.monotonic()
        eventually(lambda: time.monotonic() - blocked > 0.05)
        figures = producer.metrics()
        assert figures["bufferpool-wait-time-ns-total"] >= 3 * 0.05e9  # also while they wait
        assert 1 <= figures["requests-in-flight"] <= 5
        fake_cluster.resume(1)
        for thread in threads:
            thread.join()
        figures = producer.metrics()
    assert figures["waiting-threads"] == 0
    assert 3 * 0.05e9 <= figures["bufferpool-wait-time-ns-total"] <= sum(waits) * 1e9
    assert figures["bufferpool-wait-ratio"] == pytest.approx(figures["bufferpool-wait-time-ns-total"] / 30e9)
    assert figures["buffer-exhausted-total"] == 0


def test_a_record_without_memory_is_counted_and_leaves_no_waiter(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with producing(fake_cluster, buffer_memory=MIB, linger_ms=0, max_block_ms=50) as producer:
        producer.partitions_for("t")
        fake_cluster.pause(1)
        with pytest.raises(BufferExhaustedError):
            while True:
                producer.send("t", bytes(200_000))
        figures = producer.metrics()
        fake_cluster.resume(1)
    assert (figures["buffer-exhausted-total"], figures["waiting-threads"]) == (1, 0)
    assert figures["bufferpool-wait-time-ns-total"] > 0  # less than max.block.ms by what came before the wait


def test_bulks_are_counted_as_single_records_are(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    wanted = ("record-send-total", "record-send-total{topic=t}", "byte-total", "byte-total{topic=t}", "record-size-avg", "record-size-max",
              "batch-size-avg", "batch-size-max", "batch-total", "compression-rate{topic=t}")
    found: list[list[float]] = []
    values = [b"x" * (number * 37 % 500) for number in range(200)]
    with producing(fake_cluster, batch_size=4000, linger_ms=60_000) as producer, producing(fake_cluster, batch_size=4000, linger_ms=60_000) as other:
        for value in values:
            producer.send("t", value, timestamp=5)
        other.send_many("t", values, timestamps=[5] * 200)
        for each in (producer, other):
            each.flush()
            figures = each.metrics()
            found.append([figures[name] for name in wanted])
    assert found[0] == found[1]


def test_what_a_bulk_refuses_is_counted_by_its_topic(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    bad: list[Any] = [b"x", 1, b"x" * 2_000_000, b"y"]
    nowhere = pyarrow.table({"value": ["a"], "to": pyarrow.array([None], pyarrow.string())})
    with producing(fake_cluster, linger_ms=0) as producer:
        producer.send_many("t", bad).exception(20)
        producer.send_arrow(None, nowhere, topic_column="to").exception(20)
        figures = producer.metrics()
    assert figures["record-send-total"] == figures["record-error-total{topic=t}"] == 2
    assert figures["record-error-total"] == 3
    assert [name for name in figures if name.startswith("record-error-total{")] == ["record-error-total{topic=t}"]


def test_P04_each_record_of_a_bulk_that_found_no_memory_is_counted(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with producing(fake_cluster, buffer_memory=40_000, batch_size=10_000, linger_ms=0, max_block_ms=50) as producer:
        eventually(lambda: is_known(producer, "t"))
        fake_cluster.pause(1)
        bulk = producer.send_many("t", [bytes(1000)] * 3000)
        fake_cluster.resume(1)
        failed = bulk.exception(20)
        figures = producer.metrics()
    assert failed is not None
    assert figures["buffer-exhausted-total"] == figures["record-error-total"] == len(failed.errors)
    assert figures["bufferpool-wait-time-ns-total"] > 0  # one budget for the whole call
    assert figures["waiting-threads"] == 0


def test_M09_the_throttle_time_of_brokers_is_measured(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with producing(fake_cluster) as producer:
        producer.send("t", b"x")
        fake_cluster.throttle(40)
        producer.flush()
        figures = producer.metrics()
    assert figures["produce-throttle-time-avg"] == figures["produce-throttle-time-max"] == 40


def test_the_latency_of_a_slow_broker_is_measured_in_milliseconds(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with producing(fake_cluster) as producer:
        with fake_cluster.intercept(Delay(0.1), "Produce", times=1):
            producer.send("t", b"x")
            producer.flush()
        figures = producer.metrics()
    assert 100 <= figures["request-latency-max{node=1}"] < 30_000


def test_metrics_cost_the_same_for_one_record_as_for_a_thousand(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cluster.create_topic("t")
    updates: list[object] = []
    for name in ("add", "samples"):
        monkeypatch.setattr(Metrics, name, lambda self, metric, *_: updates.append(metric))
    counts = []
    with producing(fake_cluster) as producer:
        producer.partitions_for("t")
        for count in (1, 1000):
            before = len(updates)
            for _ in range(count):
                producer.send("t", b"x")
            producer.flush()
            counts.append(len(updates) - before)
    assert counts[0] + 2 >= counts[1]  # the first connects, too
