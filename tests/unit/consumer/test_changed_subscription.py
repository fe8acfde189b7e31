"""A member that subscribes to other topics: nothing is returned of a topic that it has left, on the fake cluster."""
from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer, Record, SubscriptionPattern, TopicPartition
from pyclient.testing import FakeCluster
from tests.waiting import eventually

OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 0)
COUNT = 3
CLASSIC: dict[str, Any] = {"assignors": ["range"], "heartbeat_interval_ms": 100}
COOPERATIVE: dict[str, Any] = {"assignors": ["cooperative-sticky"], "heartbeat_interval_ms": 100}
KIP_848: dict[str, Any] = {"group_protocol": "consumer"}
ALL = pytest.mark.parametrize("terms", [CLASSIC, COOPERATIVE, KIP_848], ids=["eager", "cooperative", "KIP-848"])
EITHER = pytest.mark.parametrize("topics", [["new"], re.compile("n.*")], ids=["names", "pattern"])


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    """Three records in each topic."""
    for tp in (OLD, NEW):
        fake_cluster.create_topic(tp.topic)
        for _ in range(COUNT):
            fake_cluster.produce(tp.topic, b"x")
    return fake_cluster


def options(cluster: FakeCluster, terms: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "topics": ["old"], "auto_offset_reset": "earliest", **terms, **more}


class Unchanged:
    """An interceptor: what a poll does not return stays with the consumer."""

    def on_consume(self, records: Iterable[Record]) -> Iterable[Record]:
        return records

    def on_commit(self, offsets: object) -> None:
        """Nothing to do."""


def names(records: Iterable[Record]) -> list[tuple[str, int]]:
    return [(record.topic, record.offset) for record in records]


def all_of(topic: str) -> list[tuple[str, int]]:
    return [(topic, offset) for offset in range(COUNT)]


def read(consumer: Consumer, count: int) -> list[tuple[str, int]]:
    """Poll until so many records came."""
    came: list[tuple[str, int]] = []

    def enough() -> bool:
        came.extend(names(consumer.poll(0.1)))
        return len(came) >= count

    eventually(enough)
    return came


async def read_async(consumer: AsyncConsumer, count: int) -> list[tuple[str, int]]:
    came: list[tuple[str, int]] = []
    async with asyncio.timeout(20):
        while len(came) < count:
            came += names(await consumer.poll(0.1))
    return came


@ALL
@EITHER
def test_G06_nothing_of_a_topic_is_returned_once_it_is_not_subscribed(cluster: FakeCluster, terms: dict[str, Any], topics: Any) -> None:
    with Consumer(**options(cluster, terms)) as consumer:
        assert names(consumer.poll(20, max_records=1)) == [("old", 0)]
        consumer.subscribe(topics)
        assert consumer._core.buffer.bytes > 0
        assert not consumer._core.buffer.ready()
        assert read(consumer, COUNT) == all_of("new")
        assert consumer.assignment() == {NEW}
    assert cluster.committed("g")[OLD].offset == 1


@ALL
@EITHER
def test_G06_nothing_of_a_topic_is_returned_to_a_task_once_it_is_not_subscribed(cluster: FakeCluster, terms: dict[str, Any], topics: Any) -> None:
    async def main() -> None:
        async with AsyncConsumer(**options(cluster, terms)) as consumer:
            assert names(await consumer.poll(20, max_records=1)) == [("old", 0)]
            consumer.subscribe(topics)
            assert await read_async(consumer, COUNT) == all_of("new")

    asyncio.run(main())
    assert cluster.committed("g")[OLD].offset == 1


@ALL
def test_G06_a_topic_that_is_subscribed_again_goes_on_where_it_was(cluster: FakeCluster, terms: dict[str, Any]) -> None:
    async def main() -> None:
        async with AsyncConsumer(**options(cluster, terms)) as consumer:
            assert names(await consumer.poll(20, max_records=1)) == [("old", 0)]
            consumer.subscribe(["new"])
            consumer.subscribe(["old"])
            assert await read_async(consumer, COUNT - 1) == all_of("old")[1:]
            await asyncio.to_thread(cluster.produce, "old", b"x")
            assert await read_async(consumer, 1) == [("old", COUNT)]

    asyncio.run(main())
    assert cluster.committed("g")[OLD].offset == COUNT + 1


@pytest.mark.parametrize("take", [
    lambda consumer: names(consumer.poll(20, max_records=1)), lambda consumer: names([next(iter(consumer))])], ids=["poll", "iteration"])
@pytest.mark.parametrize("interceptors", [(), (Unchanged(),)], ids=["", "intercepted"])
def test_G06_records_that_were_taken_but_not_returned_are_held_too(
        cluster: FakeCluster, interceptors: Any, take: Callable[[Consumer], list[tuple[str, int]]]) -> None:
    with Consumer(**options(cluster, COOPERATIVE, interceptors=interceptors, max_poll_records=COUNT)) as consumer:
        assert take(consumer) == [("old", 0)]
        consumer.subscribe(["new"])
        assert not consumer._consumed_positions.take(COUNT)
        consumer.subscribe(["old"])
        assert read(consumer, COUNT - 1) == all_of("old")[1:]


def test_G06_a_loop_shows_nothing_more_of_a_topic_that_its_body_leaves(cluster: FakeCluster) -> None:
    with Consumer(**options(cluster, CLASSIC)) as consumer:
        came = []
        for record in consumer:
            came += names([record])
            if record.topic == "old":
                consumer.subscribe(["new"])
            if len(came) == 1 + COUNT:
                break
        assert came == [("old", 0), *all_of("new")]
    assert cluster.committed("g")[OLD].offset == 1


def has_old(consumer: Consumer[Any, Any]) -> bool:
    """Whether the group has assigned the old topic; a slow poll may have carried that out already."""
    return consumer._core.member().change is not None or OLD in consumer.assignment()


@ALL
def test_G06_partitions_assigned_by_an_earlier_subscription_are_not_read(cluster: FakeCluster, terms: dict[str, Any]) -> None:
    with Consumer(**options(cluster, terms)) as consumer:
        consumer.poll(0)
        eventually(lambda: has_old(consumer))
        consumer.subscribe(["new"])
        came = names(consumer.poll(0))
        assert OLD in consumer._core.fetcher.withheld or OLD not in consumer.assignment()
        assert came + read(consumer, COUNT - len(came)) == all_of("new")


def test_G06_what_is_held_is_neither_paused_nor_without_a_position(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with AsyncConsumer(**options(cluster, CLASSIC)) as consumer:
            assert names(await consumer.poll(20, max_records=1)) == [("old", 0)]
            consumer.subscribe(["new"])
            assert OLD in consumer._core.fetcher.withheld
            assert consumer.assignment() == {OLD}
            assert consumer.paused() == frozenset()
            assert await consumer.position(OLD) == 1
            consumer.seek(OLD, 0)
            assert await read_async(consumer, COUNT) == all_of("new")

    asyncio.run(main())
    assert OLD not in cluster.committed("g") or cluster.committed("g")[OLD].offset == 0


def test_N09_with_a_pattern_for_brokers_the_coordinator_decides_what_is_left(cluster: FakeCluster) -> None:
    with Consumer(**options(cluster, KIP_848)) as consumer:
        assert names(consumer.poll(20, max_records=1)) == [("old", 0)]
        consumer.subscribe(SubscriptionPattern("n.*"))
        assert consumer._core.fetcher.withheld == frozenset()
        eventually(lambda: consumer.poll(0.1) is not None and consumer.assignment() == {NEW})
