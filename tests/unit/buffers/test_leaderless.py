"""Memory that partitions without a leader hold: half of it at most, so that they stop no other."""
from __future__ import annotations

from typing import Any

import pytest

from pyclient.buffers.accumulator import Accumulator
from pyclient.codec.compression import Compression
from pyclient.codec.encode import HEADER_SIZE
from tests.unit.buffers.accumulators import Clock, accumulator, add_waiter, put, topic_of

MEMORY = 65_536


def half_led(**options: Any) -> Accumulator:
    """Partitions 0 and 1 of four have leaders; memory for 32 buffers of 2 KiB."""
    buffers = accumulator(Clock(), memory=MEMORY, batch_size=2048 + HEADER_SIZE, **options)
    buffers.set_topic("orders", 4, [0, 1])
    return buffers


def fill(buffers: Accumulator, *partitions: int) -> int:
    """Send to these until nothing is taken any more; how many records were."""
    taken = 0
    for partition in partitions:
        while put(buffers, b"x" * 1900, partition=partition) is not None:
            taken += 1
    return taken


def test_partitions_without_a_leader_hold_half_the_memory_together_and_the_others_all_that_is_left() -> None:
    buffers = half_led()
    fill(buffers, 2, 3)
    assert buffers.pool.used == MEMORY // 2
    fill(buffers, 0, 1)
    assert buffers.pool.used == MEMORY


def test_a_partition_without_a_leader_may_always_have_one_batch_however_large() -> None:
    buffers = half_led()
    assert put(buffers, b"x" * 40_000, partition=2) is not None
    assert put(buffers, b"x" * 40, partition=3) is None


def test_a_waiter_of_a_leaderless_partition_blocks_no_other_and_is_served_once_there_is_a_leader() -> None:
    buffers = half_led()
    fill(buffers, 2)
    notified: list[str] = []
    aside = add_waiter(buffers, 2, b"x" * 1900, lambda: notified.append("aside"))
    assert put(buffers, partition=0) is not None
    fill(buffers, 1)
    line = add_waiter(buffers, 1, b"x" * 1900, lambda: notified.append("line"))
    assert notified == []
    led = next(batch for batch in buffers.flush_open() if batch.queue.partition == 1)
    buffers.drop(led)
    assert notified == ["line"]
    buffers.leave(line)
    buffers.set_topic("orders", 4, [0, 1, 2])
    assert notified == ["line", "aside"]
    assert buffers.append(topic_of(buffers), 2, -1, None, b"x" * 1900, None, aside) is not None


def test_a_waiter_of_a_leaderless_partition_is_served_when_that_partition_frees_memory() -> None:
    buffers = half_led()
    fill(buffers, 2)
    notified: list[int] = []
    waiters = [add_waiter(buffers, 2, b"x" * 1900, lambda n=n: notified.append(n)) for n in range(3)]  # type: ignore[misc]
    oldest = buffers.oldest()
    assert oldest is not None
    buffers.drop(oldest)
    assert notified
    assert notified == sorted(notified)
    for waiter in waiters:
        buffers.leave(waiter)
    for batch in buffers.flush_open():
        buffers.drop(batch)
    assert (buffers.pool.used, buffers.pool.waiting) == (0, 0)
    assert fill(buffers, 2) == MEMORY // 2 // 2048


def test_P08_close_also_notifies_waiters_of_leaderless_partitions() -> None:
    buffers = half_led()
    fill(buffers, 2)
    notified: list[int] = []
    buffers.leave(add_waiter(buffers, 2, b"x" * 1900, lambda: notified.append(1)))
    add_waiter(buffers, 2, b"x" * 1900, lambda: notified.append(2))
    buffers.close()
    assert notified == [2]


def test_P04_the_error_of_a_full_buffer_names_the_memory_of_partitions_without_a_leader() -> None:
    buffers = half_led()
    fill(buffers, 2)
    assert f"{MEMORY // 2} B of them for partitions without a leader" in str(buffers.exhausted(topic_of(buffers), 1.0))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_memory_of_partitions_is_accounted_the_same_whether_they_have_leaders_or_not(codec: Compression) -> None:
    buffers = half_led(compression=codec)
    for _ in range(2):
        fill(buffers, 2, 3)
        buffers.set_topic("orders", 4, range(4))
        fill(buffers, 0, 1, 2, 3)
        buffers.set_topic("orders", 4, [])
        for batch in buffers.flush_open():
            buffers.drop(batch)
        buffers.set_topic("orders", 4, [0, 1])
        assert "without a leader" not in str(buffers.exhausted(topic_of(buffers), 1.0))
    assert buffers.pool.used == 0
