"""How long a partition stays sticky for records without a key (P31), and on_new_batch."""
from __future__ import annotations

import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import BatchState
from pyclient.config import ProducerConfig
from pyclient.plugins import STICKY, Partitions
from pyclient.producer.callbacks import LoopObserver
from pyclient.producer.core import ProducerCore
from tests.unit.buffers.accumulators import Clock, accumulator
from tests.reactors import idle_portal

BATCH = 16_384
SIZE = 1_000


def send(buffers: Accumulator, value: bytes = b"x" * SIZE, partition: int = STICKY) -> int:
    """The partition that a record went to."""
    queues = buffers.topic("orders")
    assert queues is not None
    delivery = buffers.append(queues, partition, -1, None, value, None)
    assert delivery is not None
    return delivery.partition


def leave(buffers: Accumulator, partition: int) -> None:
    """Let the partition's open batch go to a broker that responds at once."""
    topic = buffers.topic("orders")
    assert topic is not None
    queue = topic.queues[partition]
    buffers.flush_open()
    buffers.head(queue)
    while queue.waiting:
        if queue.waiting[0].state is BatchState.SEALING:
            buffers.seal(queue.waiting[0])
        buffers.release(queue.waiting[0])


def turns(partitions: list[int]) -> list[int]:
    """How many records in a row went to one partition; turns that met the same one again count as one."""
    lengths = [1]
    for before, after in pairwise(partitions):
        if before == after:
            lengths[-1] += 1
        else:
            lengths.append(1)
    return lengths


def test_P31_a_partition_keeps_records_until_its_batch_is_full_and_no_batch_is_left_half_full() -> None:
    buffers = accumulator(Clock(), batch_size=BATCH, memory=100_000_000, partitions=100)
    lengths = turns([send(buffers) for _ in range(5_000)])[:-1]
    assert {length % (BATCH // SIZE) for length in lengths} == {0}
    assert sum(batch.state is BatchState.OPEN for batch in buffers.flush_open()) == 1


def test_P31_a_turn_whose_batches_leave_early_ends_after_a_batchs_worth_of_bytes() -> None:
    buffers = accumulator(Clock(), batch_size=BATCH, memory=100_000_000, partitions=1_000)
    first = send(buffers, b"x" * 8_000)
    for size in (8_000, 500):
        leave(buffers, first)
        assert send(buffers, b"x" * size) == first
    leave(buffers, first)
    assert send(buffers, b"x") != first


def test_P31_a_batch_that_can_be_filled_is_filled_though_the_bytes_are_a_batchs_worth() -> None:
    buffers = accumulator(Clock(), batch_size=BATCH, memory=100_000_000, partitions=1_000)
    first = send(buffers, b"x" * 8_000)
    leave(buffers, first)
    assert {send(buffers, b"x" * 4_000) for _ in range(4)} == {first}  # 24,000 B in this turn
    assert send(buffers, b"x" * 4_000) != first


@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(1, 20_000), st.booleans()), min_size=50, max_size=100))
def test_P31_no_turn_is_longer_than_two_batches_however_large_records_are_and_however_early_batches_leave(
        seed: int, records: list[tuple[int, bool]]) -> None:
    buffers = accumulator(Clock(), batch_size=BATCH, memory=100_000_000, partitions=1_000)
    sent: dict[int, int] = {}
    for size, leaves in records:
        partition = send(buffers, b"x" * size)
        sent[partition] = sent.get(partition, 0) + size
        if leaves:
            leave(buffers, partition)
    assert max(sent.values()) <= 2 * (2 * BATCH + 20_000)  # two turns of a hundred may meet among a thousand partitions


def test_keyed_records_do_not_end_the_turn_of_the_sticky_partition() -> None:
    buffers = accumulator(Clock(), memory=100_000_000, partitions=1_000)
    first = send(buffers)
    for _ in range(100):
        send(buffers, partition=first)
    assert send(buffers) == first


# ---- new batches ----------------------------------------------------------------------------------------------------


class Watching:
    """Chooses by value, and notes the calls of on_new_batch."""

    def __init__(self) -> None:
        self.new_batches: list[tuple[str, int]] = []

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        return STICKY if value is None else value[0]

    def on_new_batch(self, topic: str, partition: int) -> None:
        self.new_batches.append((topic, partition))


def core_of(partitioner: object) -> ProducerCore:
    core = ProducerCore(
        ProducerConfig.parse(None, {"bootstrap_servers": "host:1", "batch_size": BATCH, "partitioner": partitioner}), idle_portal(), LoopObserver())
    core.accumulator.set_topic("orders", 3, range(3))
    return core


def test_on_new_batch_is_called_for_each_new_batch_and_only_then() -> None:
    watching = Watching()
    buffers = core_of(watching).accumulator
    for _ in range(20):
        send(buffers, b"\x01" * SIZE, 1)
    send(buffers, b"\x02", 2)
    assert watching.new_batches == [("orders", 1), ("orders", 1), ("orders", 2)]
    sticky = send(buffers, b"")
    assert watching.new_batches[3:] in ([("orders", sticky)], [])


def test_what_on_new_batch_raises_is_logged_and_the_record_is_queued(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Watching):
        def on_new_batch(self, topic: str, partition: int) -> None:
            raise RuntimeError("no memory of batches")

    buffers = core_of(Failing()).accumulator
    with caplog.at_level(logging.ERROR):
        assert send(buffers, b"\x01", 1) == 1
    assert buffers.unsettled == 1
    assert "Failing.on_new_batch raised; the record is queued nevertheless" in caplog.text


def test_on_new_batch_may_send() -> None:
    """No lock is held while the user's code runs."""
    class Sending(Watching):
        def on_new_batch(self, topic: str, partition: int) -> None:
            super().on_new_batch(topic, partition)
            if len(self.new_batches) < 3:
                send(buffers, b"more", partition + 1)

    watching = Sending()
    buffers = core_of(watching).accumulator
    send(buffers, b"first", 0)
    assert watching.new_batches == [("orders", 0), ("orders", 1), ("orders", 2)]


def test_P32_partitions_with_a_leader_are_sorted_for_the_binary_search() -> None:
    buffers = accumulator(Clock(), partitions=12)
    buffers.set_topic("orders", 12, [8, 2, 11, 5])
    queues = buffers.topic("orders")
    assert queues is not None
    assert queues.available == (2, 5, 8, 11)
