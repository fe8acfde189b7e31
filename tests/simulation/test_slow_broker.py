"""Keyless records and a broker ten times slower than two others: it gets at most a third; a hanging one is left out.

A broker that throttles is left alone for that time, and no longer.
"""
from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from pyclient import TopicPartition
from pyclient.testing import Delay, Throttle, World

SEEDS: Final = range(3)
ANSWER_S: Final = 0.01
OTHER: Final = 3
RECORDS: Final = 12_000
"""They take 3.3 s."""


async def send_evenly(world: World, **options: Any) -> None:
    """A batch of 16 KiB each 5 ms: what two brokers bear, and the slow one does not."""
    async with world.producer("writer", batch_size=16_384, linger_ms=2, max_in_flight_requests_per_connection=1, **options) as producer:
        for number in range(RECORDS):
            await producer.send("events", b"%0900d" % number)
            if number % 20 == 0:
                await asyncio.sleep(0.0055)


def share(seed: int, delay: Delay, *, times: int | None = None, partitions: int = 3, **options: Any) -> float:
    """What the broker whose answers take so long got of the records, of three that lead as many partitions."""
    with World(seed) as world:
        world.cluster.create_topic("events", partitions=partitions)
        leaders = {partition: world.cluster.leader("events", partition) for partition in range(partitions)}
        assert Counter(leaders.values()) == dict.fromkeys((1, 2, OTHER), partitions // 3)
        for broker in (1, 2):
            world.cluster.intercept(Delay(ANSWER_S), "Produce", broker=broker)
        world.cluster.intercept(delay, "Produce", broker=OTHER, times=times)
        world.run(send_evenly(world, **options))
        stored = Counter(leaders[record.partition] for record in world.cluster.records("events"))
        assert stored.total() == RECORDS
        assert abs(stored[1] - stored[2]) < 0.15 * RECORDS
        return stored[OTHER] / RECORDS


@pytest.mark.parametrize("seed", SEEDS)
def test_P32_a_broker_ten_times_slower_gets_at_most_a_quarter_of_what_three_equal_leaders_get(seed: int) -> None:
    assert share(seed, Delay(10 * ANSWER_S)) <= 0.25


@pytest.mark.parametrize("seed", SEEDS)
def test_P32_without_adaptive_partitioning_it_gets_its_third(seed: int) -> None:
    assert 0.27 <= share(seed, Delay(10 * ANSWER_S), partitioner_adaptive_partitioning_enable=False) <= 0.40


@pytest.mark.parametrize("seed", SEEDS)
def test_P33_a_broker_that_hangs_is_left_out_after_the_availability_timeout(seed: int) -> None:
    hang = Delay(20)
    left_out = share(seed, hang, times=1, partitions=6, partitioner_availability_timeout_ms=50)
    assert left_out <= 0.02
    assert share(seed, hang, times=1, partitions=6) > 2 * left_out


THROTTLE_MS: Final = 200


async def until_the_next_record_is_stored(world: World) -> float:
    """Seconds of a send that a throttled producer is asked for."""
    async with world.producer("writer", linger_ms=0) as producer:
        await (await producer.send("events", b"first"))
        with world.cluster.intercept(Throttle(THROTTLE_MS), "Produce", times=1):
            await (await producer.send("events", b"throttled"))
        began = world.loop.time()
        await (await producer.send("events", b"next"))
        return world.loop.time() - began


async def until_the_next_record_is_read(world: World) -> float:
    """Seconds until a throttled consumer has a record that was there before."""
    async with world.consumer("reader", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("events", 0)])
        with world.cluster.intercept(Throttle(THROTTLE_MS), "Fetch", times=1):
            world.cluster.produce("events", b"throttled")
            assert await consumer.poll(10.0)
        began = world.loop.time()
        world.cluster.produce("events", b"next")
        assert await consumer.poll(10.0)
        return world.loop.time() - began


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("work", [until_the_next_record_is_stored, until_the_next_record_is_read])
def test_M09_a_throttled_client_goes_on_as_soon_as_the_throttle_ends(seed: int, work: Callable[[World], Coroutine[Any, Any, float]]) -> None:
    with World(seed) as world:
        world.cluster.create_topic("events", partitions=1)
        assert THROTTLE_MS * 0.9 < world.run(work(world)) * 1000 < THROTTLE_MS * 1.3
