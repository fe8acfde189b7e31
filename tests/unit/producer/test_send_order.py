"""Sends of an async producer keep their order while its first ones wait for their topic."""
from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
import pytest

from pyclient import AsyncProducer
from pyclient.errors import KafkaError, MetadataTimeoutError
from pyclient.plugins import Route
from pyclient.producer.waiting_sends import QUEUED
from pyclient.testing import FakeCluster

AFTER_FIRST = 20
caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller")


class Outcomes:
    """An interceptor that notes how each record ends."""

    def __init__(self) -> None:
        self.ended: list[object] = []

    def on_send(self, route: Route, key: Any, value: Any, headers: Any) -> Any:
        return key, value, headers

    def on_acknowledgement(self, *outcome: object) -> None:
        self.ended.append(outcome)


class Prepared:
    """A serializer that awaits something before each of its first values."""

    def __init__(self) -> None:
        self.left = AFTER_FIRST

    async def prepare_async(self, topic: str, value: Any) -> None:
        self.left -= 1
        if self.left > 0:
            await asyncio.sleep(0)

    def serialize(self, topic: str, value: Any) -> bytes:
        return by_caller(value)


async def pass_of_the_loop() -> None:
    await asyncio.sleep(0)


def numbered(cluster: FakeCluster, topic: str) -> Sequence[int]:
    return [int(record.value or b"") for record in cluster.records(topic)]


def by_caller(value: Any) -> bytes:
    assert caller.get() == value, "serializers run in the context of the call"
    return str(value).encode()


@pytest.mark.parametrize(("options", "extras"), [
    pytest.param({}, {}, id="simple"), pytest.param({}, {"headers": {"h": b""}}, id="headers"),
    pytest.param({"value_serializer": by_caller}, {}, id="serializer"), pytest.param({"value_serializer": Prepared()}, {}, id="prepared"),
    pytest.param({"interceptors": [Outcomes()]}, {}, id="interceptor")])
def test_a_later_send_does_not_overtake_those_that_wait_for_the_topic(
        fake_cluster: FakeCluster, options: Mapping[str, Any], extras: Mapping[str, Any]) -> None:
    fake_cluster.create_topic("t")

    async def send(producer: AsyncProducer, number: int) -> None:
        caller.set(str(number))
        await producer.send("t", str(number) if "value_serializer" in options else str(number).encode(), partition=0, **extras)

    async def main() -> int:
        async with AsyncProducer({}, bootstrap_servers=fake_cluster.bootstrap_servers, **options) as producer, asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[None]] = []
            while len(tasks) <= AFTER_FIRST or not tasks[AFTER_FIRST].done():
                tasks.append(group.create_task(send(producer, len(tasks))))
                await asyncio.sleep(0)
        return len(tasks)

    count = asyncio.run(main())
    assert numbered(fake_cluster, "t") == list(range(count))


@pytest.mark.fake_kafka(auto_create_topics_enable=False)
def test_a_send_that_is_cancelled_while_it_waits_holds_nothing_back(fake_cluster: FakeCluster) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer:
            first, second = (asyncio.create_task(producer.send("t", value, partition=0)) for value in (b"1", b"2"))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            fake_cluster.create_topic("t")
            await second
            assert not producer._core.waiting_sends

    asyncio.run(main())
    assert numbered(fake_cluster, "t") == [2]


def test_a_send_that_is_cancelled_after_a_later_call_queued_its_record_says_so_and_is_not_refused(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    outcomes = Outcomes()

    async def main() -> asyncio.CancelledError:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, interceptors=[outcomes]) as producer:
            first = asyncio.create_task(producer.send("t", b"1", partition=0))
            while producer._core.accumulator.topic("t") is None:
                await pass_of_the_loop()
            await producer.send("t", b"2", partition=0)
            assert not first.done()
            first.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await first
        return cancelled.value

    assert QUEUED in getattr(asyncio.run(main()), "__notes__", ())
    assert numbered(fake_cluster, "t") == [1, 2]
    assert len(outcomes.ended) == 2


@pytest.mark.parametrize("bulk", ["list", "Arrow"])
def test_a_bulk_does_not_overtake_sends_that_wait_for_the_topic(fake_cluster: FakeCluster, bulk: str) -> None:
    for name in ("t", "other"):
        fake_cluster.create_topic(name)
    table = pyarrow.table({"value": [b"2"]})

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer:
            await producer.send_arrow("other", table)  # its schema is known from now on, and its rows take the compiled step
            first = asyncio.create_task(producer.send("t", b"1"))
            while producer._core.accumulator.topic("t") is None:
                await pass_of_the_loop()
            await (producer.send_many("t", [b"2"]) if bulk == "list" else producer.send_arrow("t", table))
            assert not first.done()
            await first

    asyncio.run(main())
    assert numbered(fake_cluster, "t") == [1, 2]


def test_an_error_of_a_waiting_record_is_raised_in_its_own_call(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")

    async def main() -> list[object]:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer:
            return await asyncio.gather(*(producer.send("t", value, partition=0) for value in (b"1", 2, b"3")), return_exceptions=True)

    _, wrong, _ = asyncio.run(main())
    assert isinstance(wrong, TypeError)
    assert numbered(fake_cluster, "t") == [1, 3]


@pytest.mark.fake_kafka(auto_create_topics_enable=False)
def test_all_that_wait_for_a_topic_that_stays_unknown_learn_it(fake_cluster: FakeCluster) -> None:
    async def main() -> list[object]:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, max_block_ms=200) as producer:
            found: list[object] = await asyncio.gather(*(producer.send("missing", b"x") for _ in range(3)), return_exceptions=True)
            assert not producer._core.waiting_sends
            return found

    errors = asyncio.run(main())
    assert [type(each) for each in errors] == [MetadataTimeoutError] * 3
    assert all("not known after 0.2" in str(each) for each in errors if isinstance(each, KafkaError))
