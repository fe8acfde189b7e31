"""A consumer's fetch sessions on the wire, from the first fetch to the close, and the replicas it reads (C07, C09)."""
from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer, TopicPartition
from pyclient.codec.apis import Api
from pyclient.testing import FakeCluster
from tests.waiting import eventually

FINAL = -1
RACKS = {"broker.rack": "rack-{node}", "replica.selector.class": "rack-aware", "replica_lag_ms": 0}


def consumer(kafka: FakeCluster, **options: Any) -> Consumer:
    return Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", **options)


def reads(reader: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        records = reader.poll(10)
        assert records, f"{len(found)} of {count} records, and no more"
        found += [record.value for record in records]
    return found


def sessions(kafka: FakeCluster) -> list[tuple[int, int, int]]:
    """Session, epoch and named partitions of each fetch."""
    return [(each.body.session_id, each.body.session_epoch, sum(len(topic.partitions) for topic in each.body.topics))
            for each in kafka.requests(Api.FETCH)]


def test_C07_partitions_are_named_once_and_the_session_ends_with_the_consumer() -> None:
    with FakeCluster() as kafka:
        kafka.create_topic("t", 100)
        with consumer(kafka) as reader:
            reader.assign([TopicPartition("t", number) for number in range(100)])
            for value in (b"0", b"1", b"2"):
                kafka.produce("t", value, partition=7)
                assert reads(reader, 1) == [value]
            reader.list_topics()  # the next fetch waits already, so the close needs the connection that this opens
        eventually(lambda: sessions(kafka)[-1][1] == FINAL)  # the close waits only a moment for the answer
        first, *others, last = sessions(kafka)
        session = last[0]
        assert (first, last) == ((0, 0, 100), (session, FINAL, 0))
        assert [(each, epoch) for each, epoch, _ in others] == [(session, epoch) for epoch in range(1, len(others) + 1)]
        assert sum(count for _, _, count in others) == 3


def test_C07_a_consumer_that_closes_while_it_waits_for_records_ends_its_session_at_once() -> None:
    with FakeCluster() as kafka:
        kafka.create_topic("t")
        with consumer(kafka, fetch_max_wait_ms=20_000) as reader:
            kafka.produce("t", b"0", partition=0)
            reader.assign([TopicPartition("t", 0)])
            reads(reader, 1)
            eventually(lambda: len(sessions(kafka)) == 2)  # this one waits
            begun = time.monotonic()
        assert time.monotonic() - begun < 5
        eventually(lambda: sessions(kafka)[-1][1:] == (FINAL, 0))


def test_C07_a_broker_that_does_not_answer_to_the_end_of_a_session_does_not_hold_up_the_close() -> None:
    with FakeCluster() as kafka:
        kafka.create_topic("t")
        with consumer(kafka) as reader:
            kafka.produce("t", b"0", partition=0)
            reader.assign([TopicPartition("t", 0)])
            reads(reader, 1)
            kafka.pause(1)
            begun = time.monotonic()
            reader.close()
            assert time.monotonic() - begun < 5
        kafka.resume(1)


def test_C07_two_tasks_may_close_at_once() -> None:
    async def close_twice(kafka: FakeCluster) -> None:
        reader = await begun(kafka)
        await asyncio.gather(reader.close(), reader.close())

    with FakeCluster() as kafka:
        asyncio.run(close_twice(kafka))
        assert [epoch for _, epoch, _ in sessions(kafka)].count(FINAL) == 1


def test_C07_a_close_that_is_cancelled_closes_all_the_same() -> None:
    async def cancel_the_close(kafka: FakeCluster) -> None:
        reader = await begun(kafka)
        kafka.pause(1)
        closing = asyncio.create_task(reader.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert reader._core.closed is not None
        kafka.resume(1)

    with FakeCluster() as kafka:
        asyncio.run(cancel_the_close(kafka))


async def begun(kafka: FakeCluster) -> AsyncConsumer:
    """A consumer that has read something."""
    kafka.create_topic("t")
    kafka.produce("t", b"0", partition=0)
    reader = AsyncConsumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest")
    await reader.__aenter__()
    reader.assign([TopicPartition("t", 0)])
    assert [record.value for record in await reader.poll(10)] == [b"0"]
    return reader


def test_C07_without_room_for_a_session_everything_is_named_each_time() -> None:
    with FakeCluster(config={"max.incremental.fetch.session.cache.slots": 0}) as kafka:
        kafka.create_topic("t", 3)
        with consumer(kafka) as reader:
            reader.assign([TopicPartition("t", number) for number in range(3)])
            for value in (b"0", b"1", b"2"):
                kafka.produce("t", value, partition=1)
                assert reads(reader, 1) == [value]
        assert {(session, epoch) for session, epoch, _ in sessions(kafka)} == {(0, 0)}


def test_C09_the_replica_in_our_rack_is_read_until_it_is_gone() -> None:
    with FakeCluster(3, config=RACKS) as kafka:
        kafka.create_topic("t", replication_factor=3)
        leader = kafka.leader("t")
        near = leader % 3 + 1
        with consumer(kafka, client_rack=f"rack-{near}") as reader:
            kafka.produce("t", b"0", partition=0)
            reader.assign([TopicPartition("t", 0)])
            assert reads(reader, 1) == [b"0"]
            eventually(lambda: kafka.requests(Api.FETCH, broker=near))
            before = len(kafka.requests(Api.FETCH, broker=leader))
            for value in (b"1", b"2", b"3"):
                kafka.produce("t", value, partition=0)
                assert reads(reader, 1) == [value]
            assert len(kafka.requests(Api.FETCH, broker=leader)) == before
            kafka.kill(near)
            kafka.produce("t", b"4", partition=0)
            assert reads(reader, 1) == [b"4"]
            assert len(kafka.requests(Api.FETCH, broker=leader)) > before


@pytest.mark.parametrize("rack", ["rack-9", ""])
def test_C09_without_a_replica_in_our_rack_the_leader_is_read(rack: str) -> None:
    with FakeCluster(3, config=RACKS) as kafka:
        kafka.create_topic("t", replication_factor=3)
        with consumer(kafka, client_rack=rack) as reader:
            kafka.produce("t", b"0", partition=0)
            reader.assign([TopicPartition("t", 0)])
            assert reads(reader, 1) == [b"0"]
        assert {each.broker for each in kafka.requests(Api.FETCH)} == {kafka.leader("t")}
