"""Metrics: declared once, counted from any thread; averages, maxima and rates look back on the last windows only."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.metrics import (
    BATCH_SIZE, BUFFER_AVAILABLE, BUFFER_WAIT, BYTES_OUT, COMPRESSION, DECLARED, METER, RECORD_SIZE, RECORDS_SENT, REQUEST_LATENCY, REQUESTS,
    Metrics,
)


def test_each_metric_is_declared_once_with_unit_and_doc() -> None:
    names = [name for metric in DECLARED for name in metric.names()]
    assert len(names) == len(set(names)) >= 40
    for metric in DECLARED:
        assert metric.unit
        assert len(metric.doc.split()) >= 2


@given(st.lists(st.integers(0, 10**9)))
def test_a_total_is_the_sum_of_what_was_added(amounts: list[int]) -> None:
    metrics = Metrics()
    metrics.add(BYTES_OUT, 0)
    for amount in amounts:
        metrics.add(BYTES_OUT, amount)
    assert metrics.snapshot(now=0)["outgoing-byte-total"] == sum(amounts)


def test_each_label_has_its_value_and_without_labels_is_their_sum() -> None:
    metrics = Metrics()
    metrics.add(REQUESTS, 2, "1")
    metrics.add(REQUESTS, 3, "2")
    found = metrics.snapshot(now=0)
    assert {name: value for name, value in found.items() if "total" in name} == {
        "request-total{node=1}": 2, "request-total{node=2}": 3, "request-total": 5}


def test_a_missing_label_is_a_mistake() -> None:
    metrics = Metrics()
    metrics.add(REQUESTS, 1, "1", "surplus")
    with pytest.raises(ValueError, match="zip"):
        metrics.snapshot(now=0)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_samples_give_average_and_maximum(values: list[float]) -> None:
    metrics = Metrics()
    for value in values:
        metrics.sample(BATCH_SIZE, value, 1.0)
    found = metrics.snapshot(now=1.0)
    assert found["batch-size-avg"] == pytest.approx(sum(values) / len(values))
    assert found["batch-size-max"] == max(values)


def test_samples_taken_together_count_each() -> None:
    metrics = Metrics()
    metrics.samples(RECORD_SIZE, 60, 3, 40, 0)
    metrics.sample(RECORD_SIZE, 20, 0)
    found = metrics.snapshot(now=0)
    assert (found["record-size-avg"], found["record-size-max"]) == (20, 40)


def test_samples_leave_with_their_window() -> None:
    metrics = Metrics(samples=2, window_s=30)
    metrics.sample(REQUEST_LATENCY, 900, 0, "1")
    metrics.sample(REQUEST_LATENCY, 10, 30, "1")
    assert metrics.snapshot(now=30)["request-latency-max{node=1}"] == 900
    metrics.sample(REQUEST_LATENCY, 20, 60, "1")
    assert metrics.snapshot(now=60)["request-latency-max{node=1}"] == 20
    assert metrics.snapshot(now=60)["request-latency-avg{node=1}"] == 15
    assert metrics.snapshot(now=1000) == {}


def test_an_average_over_all_labels_weighs_every_sample_the_same() -> None:
    metrics = Metrics()
    for value, node in [(1, "1"), (1, "1"), (1, "1"), (9, "2")]:
        metrics.sample(REQUEST_LATENCY, value, 0, node)
    found = metrics.snapshot(now=0)
    assert (found["request-latency-avg"], found["request-latency-max"]) == (3, 9)


def test_the_average_of_a_topic_has_kafkas_name() -> None:
    metrics = Metrics()
    metrics.sample(COMPRESSION, 0.25, 0, "logs")
    assert metrics.snapshot(now=0) == {"compression-rate{topic=logs}": 0.25, "compression-rate-avg": 0.25}


def test_a_rate_is_what_came_in_the_last_windows_by_their_time() -> None:
    metrics = Metrics(samples=2, window_s=30)
    metrics.turn(100)
    metrics.add(RECORDS_SENT, 600, "t")
    assert metrics.snapshot(now=140)["record-send-rate"] == 600 / 40
    metrics.turn(150)
    metrics.add(RECORDS_SENT, 100, "t")
    found = metrics.snapshot(now=165)
    assert found["record-send-rate"] == found["record-send-rate{topic=t}"] == 100 / 30  # what came from 100 to 140 has left
    assert found["record-send-total"] == 700


def test_a_rate_falls_to_nothing_when_nothing_comes() -> None:
    metrics = Metrics(samples=2, window_s=30)
    metrics.turn(0)
    metrics.add(RECORDS_SENT, 600, "t")
    assert metrics.snapshot(now=1000)["record-send-rate"] == 0
    assert metrics.snapshot(now=1001)["record-send-total"] == 600


def test_a_young_rate_does_not_peak() -> None:
    metrics = Metrics(samples=2, window_s=30)
    metrics.turn(0)
    metrics.add(RECORDS_SENT, 300, "t")
    assert metrics.snapshot(now=0.001)["record-send-rate"] == 10


def test_a_gauge_is_what_its_reader_gives_and_left_out_while_unknown() -> None:
    metrics = Metrics()
    known: list[float] = []
    metrics.watch(BUFFER_AVAILABLE, lambda: known[0] if known else None)
    assert metrics.snapshot(now=0) == {}
    known.append(7)
    assert metrics.snapshot(now=0) == {"buffer-available-bytes": 7}


def test_time_is_reported_in_nanoseconds_and_as_a_share() -> None:
    metrics = Metrics(samples=2, window_s=30)
    waited = [5.0]
    metrics.watch(BUFFER_WAIT, lambda: waited[0])
    metrics.turn(0)
    waited[0] += 10
    assert metrics.snapshot(now=40) == {
        "bufferpool-wait-time-ns-total": 15e9, "bufferpool-wait-time-total": 15e9, "bufferpool-wait-ratio": 0.25}


@pytest.mark.parametrize("role", ["producer", "consumer", "admin"])
def test_the_totals_of_a_client_are_reported_from_the_start(role: str) -> None:
    found = Metrics(role).snapshot(now=0)
    assert set(found) == {name for metric in DECLARED if metric.kind is METER and metric.role in ("", role) for name in metric.names()}
    assert set(found.values()) == {0}


def test_threads_lose_no_count() -> None:
    metrics = Metrics()

    def add(_: int) -> None:
        for _ in range(2_000):
            metrics.add(RECORDS_SENT, 1, "t")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert metrics.snapshot(now=0)["record-send-total"] == 16_000
