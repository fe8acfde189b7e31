"""The batches that a thread may send in place of the loop: never one that the loop has to send, or has sent before."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch, BatchState
from pyclient.buffers.queues import PartitionQueue
from pyclient.codec.compression import Compression
from tests.unit.buffers.accumulators import Clock, accumulator, add_waiter, drain, put, topic_of

LINGER: Final = 0.005
BATCH: Final = 4096
LARGEST: Final = BATCH
"""Bytes of a request."""
FOREVER: Final = float("inf")


def made(clock: Clock, compression: Compression = Compression.NONE) -> Accumulator:
    return accumulator(clock, batch_size=BATCH, max_request_size=LARGEST, linger=LINGER, compression=compression)


def queue_of(buffers: Accumulator, partition: int = 0) -> PartitionQueue:
    return topic_of(buffers).queues[partition]


def fill(buffers: Accumulator, partition: int = 0, records: int = 1) -> Batch:
    """A batch that so many records fill, and an open one behind it; returns the full one."""
    for _ in range(records + 1):
        put(buffers, b"x" * ((BATCH - 200) // records), partition=partition)
    return queue_of(buffers, partition).waiting[-1]


def test_full_batches_and_those_whose_linger_has_ended_are_heads_the_oldest_first() -> None:
    clock = Clock()
    buffers = made(clock)
    put(buffers, partition=2)
    clock.now += LINGER
    full = fill(buffers, partition=1)
    put(buffers, partition=0)
    heads = buffers.heads(clock.now)
    assert heads is not None
    assert [(batch.queue.partition, batch.state) for batch in heads] == [(2, BatchState.OPEN), (1, BatchState.SEALED)]
    assert heads[1] is full
    assert [batch.queue.partition for batch in buffers.heads(FOREVER) or ()] == [2, 1, 0]


def test_no_batch_passes_one_of_its_partition() -> None:
    buffers = made(Clock())
    fill(buffers)
    heads = buffers.heads(FOREVER)
    assert heads is not None
    assert buffers.start_heads(heads)
    assert [batch.attempts for batch in heads] == [1]
    assert buffers.heads(FOREVER) == []
    buffers.release(heads[0])
    assert [batch.state for batch in buffers.heads(FOREVER) or ()] == [BatchState.OPEN]


def held(buffers: Accumulator, clock: Clock) -> None:
    """The loop has taken the queue, and may be about to send its batch."""
    fill(buffers)
    assert buffers.take_ready(clock.now) == [queue_of(buffers)]


def flushed(buffers: Accumulator, clock: Clock) -> None:
    """A flush lets the loop send the open batch."""
    put(buffers)
    buffers.flush_open()


def memory_is_short(buffers: Accumulator, clock: Clock) -> None:
    """A sender waits for memory, so the loop sends the open batch."""
    put(buffers)
    add_waiter(buffers, 1, b"x" * 20_000, lambda: None)


def sent_before(buffers: Accumulator, clock: Clock) -> None:
    batch = fill(buffers)
    buffers.take_ready(clock.now)
    buffers.start(batch)
    buffers.retry(batch)


def stamped(buffers: Accumulator, clock: Clock) -> None:
    """The loop has given the batch its sequence, and its request was not written."""
    fill(buffers).stamp(1, 0, 0)


def split(buffers: Accumulator, clock: Clock) -> None:
    """A broker found the batch too large; its halves are not counted as sent."""
    batch = fill(buffers, records=4)
    buffers.take_ready(clock.now)
    buffers.start(batch)
    buffers.split(batch)
    assert [half.attempts for half in queue_of(buffers).waiting] == [0, 0]


def test_the_halves_of_a_batch_stand_before_a_younger_one_of_the_same_time() -> None:
    clock = Clock()
    buffers = made(clock)
    split(buffers, clock)
    *halves, behind = buffers.flush_open()
    assert halves == list(queue_of(buffers).waiting)
    assert behind.state is BatchState.OPEN


@pytest.mark.parametrize("what", [held, flushed, memory_is_short, sent_before, stamped, split], ids=lambda what: what.__name__)
def test_there_are_no_heads_while_one_is_for_the_loop(what: Callable[[Accumulator, Clock], object]) -> None:
    clock = Clock()
    buffers = made(clock)
    put(buffers, partition=3)
    what(buffers, clock)
    assert buffers.heads(FOREVER) is None


def test_there_are_no_heads_while_one_is_compressed() -> None:
    buffers = made(Clock(), compression=Compression.GZIP)
    fill(buffers)
    assert buffers.heads(FOREVER) is None


def two_heads(buffers: Accumulator) -> list[Batch]:
    """Open batches of two partitions."""
    for partition in range(2):
        put(buffers, partition=partition)
    heads = buffers.heads(FOREVER)
    assert heads is not None
    return heads


def test_no_head_starts_if_one_is_being_sealed() -> None:
    buffers = made(Clock())
    heads = two_heads(buffers)
    buffers.flush_open()
    sealing = buffers.head(queue_of(buffers, 1))
    assert sealing is heads[1]
    assert not buffers.start_heads(heads)
    assert [batch.state for batch in heads] == [BatchState.OPEN, BatchState.SEALING]
    buffers.seal(sealing)
    assert drain(buffers, queue_of(buffers, 0)) is heads[0]


def test_no_head_starts_if_they_have_grown_too_large_for_a_request() -> None:
    buffers = made(Clock())
    heads = two_heads(buffers)
    for partition in range(2):
        put(buffers, bytes(LARGEST // 2), partition=partition)
    assert not buffers.start_heads(heads)
    assert [batch.state for batch in heads] == [BatchState.OPEN] * 2
    assert buffers.start_heads(heads[:1]), "one alone leaves, however large"


def test_the_loop_does_not_look_for_heads_that_have_started() -> None:
    clock = Clock()
    buffers = made(clock)
    fill(buffers)
    heads = buffers.heads(clock.now)
    assert heads is not None
    assert buffers.start_heads(heads)
    assert buffers.take_lone(clock.now) is None, "only the open batch is left, and it lingers"
    buffers.release(heads[0])
    assert buffers.take_lone(clock.now + LINGER) is queue_of(buffers), "and is the only one"


def test_what_is_behind_a_head_is_for_the_loop_again() -> None:
    clock = Clock()
    buffers = made(clock)
    first, second = fill(buffers), fill(buffers)
    assert first is not second
    heads = buffers.heads(clock.now)
    assert heads == [queue_of(buffers).waiting[0]]
    assert buffers.start_heads(heads)
    assert buffers.take_ready(clock.now) == [queue_of(buffers)]
