"""Metrics: declared once, counted from any thread, averaged over the last windows only."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.metrics import (
    BATCH_SIZE,
    BUFFER_AVAILABLE,
    BYTES_OUT,
    DECLARED,
    RECORDS_SENT,
    REQUEST_LATENCY,
    REQUESTS,
    Metrics,
)


def test_each_metric_is_declared_once_with_unit_and_doc() -> None:
    names = [metric.name for metric in DECLARED]
    assert len(names) == len(set(names)) >= 15
    for metric in DECLARED:
        assert metric.unit
        assert len(metric.doc.split()) >= 2


@given(st.lists(st.integers(0, 10**9)))
def test_a_counter_is_the_sum_of_what_was_added(amounts: list[int]) -> None:
    metrics = Metrics()
    metrics.add(BYTES_OUT, 0)
    for amount in amounts:
        metrics.add(BYTES_OUT, amount)
    assert metrics.snapshot(now=0) == {"outgoing-byte-total": sum(amounts)}


def test_labels_tell_numbers_apart() -> None:
    metrics = Metrics()
    metrics.add(REQUESTS, 2, "1")
    metrics.add(REQUESTS, 3, "2")
    assert metrics.snapshot(now=0) == {"request-total{node=1}": 2, "request-total{node=2}": 3}


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


def test_samples_leave_with_their_window() -> None:
    metrics = Metrics(samples=2, window_s=30)
    metrics.sample(REQUEST_LATENCY, 900, 0, "1")
    metrics.sample(REQUEST_LATENCY, 10, 30, "1")
    assert metrics.snapshot(now=30)["request-latency-max{node=1}"] == 900
    metrics.sample(REQUEST_LATENCY, 20, 60, "1")
    assert metrics.snapshot(now=60)["request-latency-max{node=1}"] == 20
    assert metrics.snapshot(now=60)["request-latency-avg{node=1}"] == 15
    assert metrics.snapshot(now=1000) == {}


def test_a_gauge_is_its_last_value_or_what_its_reader_gives() -> None:
    metrics = Metrics()
    metrics.put(BUFFER_AVAILABLE, 5)
    metrics.put(BUFFER_AVAILABLE, 3)
    assert metrics.snapshot(now=0) == {"buffer-available-bytes": 3}
    metrics.watch(BUFFER_AVAILABLE, lambda: 7)
    assert metrics.snapshot(now=0) == {"buffer-available-bytes": 7}


def test_threads_lose_no_count() -> None:
    metrics = Metrics()

    def add(_: int) -> None:
        for _ in range(2_000):
            metrics.add(RECORDS_SENT)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert metrics.snapshot(now=0)["record-send-total"] == 16_000
