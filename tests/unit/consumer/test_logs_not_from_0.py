"""Where a consumer begins in a log whose first records were deleted, and where a position goes that was among them."""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import Consumer, TopicPartition
from pyclient.errors import OffsetOutOfRangeError
from pyclient.testing import FakeCluster
from tests.waiting import eventually

T0 = TopicPartition("t", 0)
FIRST, NEXT = 6, 10
"""The offsets of the first record of the log, and of the next one that is written."""


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    """Topic t has the offsets 6 to 9."""
    fake_cluster.create_topic("t")
    for number in range(NEXT):
        fake_cluster.produce("t", b"%d" % number, timestamp=1000 + number)
    fake_cluster.advance_retention("t", 0, FIRST)
    return fake_cluster


def consuming(cluster: FakeCluster, reset: str, **options: Any) -> Consumer:
    consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset=reset, **options)
    consumer.assign([T0])
    return consumer


def offsets(consumer: Consumer, count: int) -> list[int]:
    """Those of the next records."""
    return [record.offset for _, record in zip(range(count), consumer, strict=False)]


def poll_until(consumer: Consumer, read: list[int], condition: Callable[[], object]) -> None:
    """Poll, and add the offsets of all records to *read*."""
    def polled() -> object:
        read.extend(record.offset for record in consumer.poll(0.01))
        return condition()
    eventually(polled)


@pytest.mark.parametrize(("reset", "begin"), [
    ("earliest", FIRST), ("latest", NEXT), ("by_duration:PT1S", NEXT), ("by_duration:P10000D", NEXT), ("by_duration:P30000D", FIRST)])
def test_C20_a_consumer_begins_where_the_log_does_or_at_its_end(cluster: FakeCluster, reset: str, begin: int) -> None:
    with consuming(cluster, reset) as consumer:
        assert consumer.position(T0, timeout=20) == begin
        cluster.produce("t", b"new")
        assert offsets(consumer, NEXT + 1 - begin) == [*range(begin, NEXT + 1)]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_C20_in_an_empty_log_it_begins_at_the_next_record(cluster: FakeCluster, reset: str) -> None:
    cluster.advance_retention("t", 0, NEXT)
    with consuming(cluster, reset) as consumer:
        assert consumer.position(T0, timeout=20) == NEXT
        cluster.produce("t", b"new")
        assert offsets(consumer, 1) == [NEXT]


@pytest.mark.parametrize(("seek", "begin"), [("seek_to_beginning", FIRST), ("seek_to_end", NEXT)])
def test_C20_the_ends_are_sought_where_the_log_has_them(cluster: FakeCluster, seek: str, begin: int) -> None:
    with consuming(cluster, "none") as consumer:
        getattr(consumer, seek)()
        assert consumer.position(T0, timeout=20) == begin
        assert (consumer.beginning_offsets([T0]), consumer.end_offsets([T0])) == ({T0: FIRST}, {T0: NEXT})


@pytest.mark.parametrize(("reset", "begin"), [("earliest", FIRST), ("latest", NEXT)])
@pytest.mark.parametrize("commits", [True, False])
def test_C10_a_position_that_was_deleted_is_reset_and_the_log_says_what_was_skipped(
        cluster: FakeCluster, caplog: pytest.LogCaptureFixture, reset: str, begin: int, *, commits: bool) -> None:
    with consuming(cluster, reset, group_id="g") as consumer, caplog.at_level(logging.WARNING):
        consumer.seek(T0, 2)
        if commits:
            consumer.commit({T0: 2})
            consumer.assign([])
            consumer.assign([T0])
        read: list[int] = []
        poll_until(consumer, read, lambda: "offset 2 is not in the log" in caplog.text)
        cluster.produce("t", b"new")
        poll_until(consumer, read, lambda: len(read) > NEXT - begin)
    assert read == [*range(begin, NEXT + 1)]
    assert f"offset 2 is not in the log, so auto_offset_reset continues at offset {begin}" in caplog.text


def test_C10_without_a_reset_a_deleted_position_is_an_error(cluster: FakeCluster) -> None:
    with consuming(cluster, "none") as consumer:
        consumer.seek(T0, 2)
        with pytest.raises(OffsetOutOfRangeError):
            offsets(consumer, 1)
