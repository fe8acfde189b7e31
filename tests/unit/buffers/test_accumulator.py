"""Batches keep the records' order and the limits, leave when they are due, and return all their memory."""
from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.buffers import topic_compression
from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch, BatchState
from pyclient.buffers.queues import PartitionQueue
from pyclient.buffers.delivery import Delivery, Observer
from pyclient.codec.batches import read_batches
from pyclient.codec.compression import Compression
from pyclient.codec.encode import HEADER_SIZE
from pyclient.errors import BufferExhaustedError, ClientClosedError, KafkaError, RecordTooLargeError
from pyclient.records import TopicPartition
from tests.unit.buffers.accumulators import WALL_MS, Clock, accumulator, add_waiter, drain, put, topic_of

LINGER = 0.005
Sent = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def state_of(batch: Batch) -> BatchState:
    return batch.state


def decoded(batch: Batch) -> list[Sent]:
    """The records of a sealed batch, read from what would be sent."""
    (read,) = read_batches(b"".join(bytes(piece) for piece in batch.pieces()))
    return [(record.timestamp, record.key, record.value, record.headers) for record in read.records("t", 0)]


def store_all(buffers: Accumulator) -> None:
    for batch in buffers.flush_open():
        batch.result.complete(0)
        buffers.release(batch)


def test_a_batch_begins_with_the_memory_that_the_last_one_of_its_partition_filled() -> None:
    """To grow a batch costs more than many records."""
    buffers = accumulator(Clock(), memory=1 << 20, batch_size=1 << 15)
    put(buffers, bytes(5000))
    store_all(buffers)
    put(buffers)
    assert buffers.pool.used == 8192
    put(buffers, partition=1)
    assert buffers.pool.used == 8192 + 2048
    store_all(buffers)
    put(buffers)
    assert buffers.pool.used == 2048, "the last one was small"


def test_a_batch_begins_small_while_much_of_the_memory_is_used() -> None:
    buffers = accumulator(Clock(), memory=1 << 18, batch_size=1 << 15)
    put(buffers, bytes(15_000))
    store_all(buffers)
    put(buffers, bytes(30_000), partition=1)
    used = buffers.pool.used
    put(buffers)
    assert buffers.pool.used == used + 2048


def test_P18_batches_that_grow_old_take_no_more_records_and_younger_ones_do() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=10.0)
    put(buffers, b"old", partition=0)
    clock.now += 5
    put(buffers, b"young", partition=1)
    assert buffers.close_older(clock.now - 5) == []
    (old,) = buffers.close_older(clock.now - 4.9)
    assert state_of(old) is BatchState.SEALING
    assert buffers.close_older(clock.now - 4.9) == [], "it is closed once"
    buffers.seal(old)
    put(buffers, b"next", partition=0)
    put(buffers, b"next", partition=1)
    assert [value for _, _, value, _ in decoded(old)] == [b"old"]
    rest = buffers.close_older(clock.now + 1)
    for batch in rest:
        buffers.seal(batch)
    assert [[value for _, _, value, _ in decoded(batch)] for batch in rest] == [[b"young", b"next"], [b"next"]]


class AccumulatorRules(RuleBasedStateMachine):
    """Senders and the loop in any order, at any time; the model is a list of records per partition."""

    MEMORY = 60_000
    BATCH = 8_000
    LARGEST = 20_000

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.buffers = accumulator(self.clock, memory=self.MEMORY, batch_size=self.BATCH, max_request_size=self.LARGEST,
                                   linger=LINGER, compression=self.codec(), partitions=3)
        self.queues = topic_of(self.buffers).queues
        self.sent: dict[PartitionQueue, list[Sent]] = defaultdict(list)
        self.deliveries: dict[PartitionQueue, list[Delivery]] = defaultdict(list)
        self.seen_ready: set[PartitionQueue] = set()
        self.held: set[PartitionQueue] = set()
        self.in_flight: list[Batch] = []
        self.dropped: list[Batch] = []
        self.woken = False
        self.looks_at: float | None = None
        self.buffers.on_ready = self.wake

    def wake(self) -> None:
        self.woken = True

    def codec(self) -> Compression:
        return Compression.NONE

    # --- senders -----------------------------------------------------------------------------------------------------

    @rule(partition=st.integers(0, 2), size=st.one_of(st.none(), st.integers(0, 300), st.integers(0, 9_000), st.integers(7_000, 25_000)),
          key=st.none() | st.binary(max_size=20), later=st.integers(-5_000, 5_000) | st.sampled_from([2**40, 2**50]),
          headers=st.lists(st.tuples(st.text("ab", max_size=3), st.none() | st.binary(max_size=5)), max_size=2), fill=st.booleans())
    def append(self, partition: int, size: int | None, key: bytes | None, later: int, headers: Any, fill: bool) -> None:
        value = None if size is None else (b"x" * size if fill else noise(size))
        timestamp = WALL_MS + later
        queue = self.queues[partition]
        try:
            delivery = put(self.buffers, value, partition=partition, key=key, timestamp=timestamp, headers=headers)
        except RecordTooLargeError:
            assert (size or 0) + len(key or b"") > self.LARGEST - 300
            return
        if delivery is not None:
            assert delivery.partition == partition
            self.sent[queue].append((timestamp, key, value, headers))
            self.deliveries[queue].append(delivery)
            assert self.woken or queue in self.seen_ready or (self.looks_at is not None and self.looks_at <= self.clock.now + LINGER), "it would linger without end"
        else:
            assert self.buffers.pool.used + (size or 0) + self.BATCH > self.MEMORY / 2, "refused though memory is free"

    @rule(seconds=st.sampled_from([0.001, LINGER, 1.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def flush(self) -> None:
        self.buffers.flush_open()
        self.look()  # as the loop does after a flush

    # --- the loop ----------------------------------------------------------------------------------------------------

    @rule()
    def look(self) -> None:
        self.woken = False
        before = self.buffers.next_linger()
        ready = self.buffers.take_ready(self.clock.now)
        assert len(ready) == len(set(ready))
        self.seen_ready.update(ready)
        self.held.update(ready)
        self.looks_at = after = self.buffers.next_linger()
        assert after is None or after > self.clock.now, "the loop would spin"
        assert before is None or after is None or after >= before

    @precondition(lambda self: self.seen_ready)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from(sorted(self.seen_ready, key=lambda each: each.partition)))
        if any(each.queue is queue for each in self.in_flight):
            return
        batch = drain(self.buffers, queue)
        assert (batch is not None) == self.buffers.still_ready(queue)
        if batch is None:
            self.gives_back(queue)
            return
        self.check_head(queue, batch)
        if not self.buffers.start(batch):
            self.gives_back(queue)
        assert drain(self.buffers, queue) is not batch
        self.in_flight.append(batch)

    def gives_back(self, queue: PartitionQueue) -> None:
        self.seen_ready.discard(queue)
        self.held.discard(queue)

    def check_head(self, queue: PartitionQueue, batch: Batch) -> None:
        """The batch holds the oldest records not sent yet, in order, within its limits."""
        assert batch is queue.waiting[0]
        assert decoded(batch) == self.sent[queue][: batch.count]
        assert batch.size <= self.BATCH or batch.count == 1
        assert batch.max_timestamp == max(record[0] for record in self.sent[queue][: batch.count])

    # --- the network -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), offset=st.integers(0, 2**40))
    def stored(self, data: st.DataObject, offset: int) -> None:
        batch = self.end_one(data)
        if batch in self.dropped:
            return
        records, deliveries = self.settle(batch)
        batch.result.complete(offset)
        for number, (record, delivery) in enumerate(zip(records, deliveries, strict=True)):
            assert delivery.result(0).offset == offset + number
            assert delivery.result(0).timestamp == record[0]

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def failed(self, data: st.DataObject) -> None:
        batch = self.end_one(data)
        if batch not in self.dropped:
            self.settle(batch)
            batch.result.fail(KafkaError("no"))

    def end_one(self, data: st.DataObject) -> Batch:
        batch = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))
        used = self.buffers.pool.used
        self.buffers.release(batch)
        freed = used - self.buffers.pool.used
        assert freed > 0
        self.buffers.release(batch)
        assert self.buffers.pool.used == used - freed, "memory went back twice"
        assert batch.state is BatchState.DONE
        return batch

    def settle(self, batch: Batch) -> tuple[list[Sent], list[Delivery]]:
        records, deliveries = self.sent[batch.queue][: batch.count], self.deliveries[batch.queue][: batch.count]
        del self.sent[batch.queue][: batch.count], self.deliveries[batch.queue][: batch.count]
        return records, deliveries

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def comes_back(self, data: st.DataObject) -> None:
        batch = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))
        if batch in self.dropped:
            self.buffers.release(batch)
            return
        self.buffers.retry(batch)
        assert self.buffers.head(batch.queue) is batch
        self.seen_ready.add(batch.queue)

    @rule()
    def expire_the_oldest(self) -> None:
        """P07: what is under way keeps its buffer; everything else gives its memory back at once."""
        batch = self.buffers.oldest()
        if batch is None:
            return
        used, busy = self.buffers.pool.used, batch.state is BatchState.IN_FLIGHT
        records = self.queue_position(batch)
        self.buffers.drop(batch)
        batch.result.fail(KafkaError("late"))
        del self.sent[batch.queue][records], self.deliveries[batch.queue][records]
        assert (self.buffers.pool.used == used) == busy
        if busy:
            self.dropped.append(batch)

    def queue_position(self, batch: Batch) -> slice:
        """Where its records stand among those of its partition that are not settled."""
        before = 0
        for each in batch.queue.waiting:
            if each is batch:
                break
            before += 0 if each in self.dropped else each.count
        return slice(before, before + batch.count)

    # --- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def memory_is_within_its_bound(self) -> None:
        assert self.buffers.pool.used >= 0
        assert self.buffers.pool.used + self.buffers.pool.free_bytes <= self.MEMORY

    @invariant()
    def the_loop_knows_of_every_batch_that_may_leave(self) -> None:
        for queue in self.queues:
            first = next((batch for batch in queue.waiting if batch.state is not BatchState.IN_FLIGHT), None)
            assert first is None or self.woken or queue in self.seen_ready

    @invariant()
    def the_oldest_is_the_first_not_settled(self) -> None:
        oldest = self.buffers.oldest()
        assert (oldest is None) == (not any(self.sent.values()))
        assert oldest is None or not oldest.result.done

    def teardown(self) -> None:
        for batch in self.in_flight:
            self.buffers.release(batch)
            if batch not in self.dropped:
                self.settle(batch)
        self.buffers.flush_open()
        for queue in self.queues:
            while (head := drain(self.buffers, queue)) is not None:
                self.check_head(queue, head)
                self.settle(head)
                self.buffers.release(head)
        assert not any(self.sent.values()), "records were lost"
        assert self.buffers.pool.used == 0
        assert self.buffers.flush_open() == []
        assert self.buffers.next_linger() is None


def noise(size: int) -> bytes:
    """Bytes that do not compress."""
    return Random(size).randbytes(size)


class CompressingRules(AccumulatorRules):
    def codec(self) -> Compression:
        return Compression.ZSTD


TestAccumulator = AccumulatorRules.TestCase
TestAccumulator.settings = settings(max_examples=60, stateful_step_count=50)
TestCompressing = CompressingRules.TestCase
TestCompressing.settings = settings(max_examples=40, stateful_step_count=50)


# --- when a batch may leave ------------------------------------------------------------------------------------------


def test_P11_a_batch_leaves_when_its_linger_is_over_and_not_before() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=LINGER)
    put(buffers)
    queue = topic_of(buffers).queues[0]
    assert buffers.next_linger() == clock.now + LINGER
    assert buffers.take_ready(clock.now) == []
    assert buffers.head(queue) is None
    clock.now += LINGER
    assert buffers.take_ready(clock.now) == [queue]
    assert buffers.take_ready(clock.now) == [], "a queue is given once"
    assert drain(buffers, queue) is not None


def test_P11_the_first_linger_that_ends_ends_all_so_that_a_request_takes_the_batches_of_a_node() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=LINGER)
    put(buffers, partition=0)
    clock.now += LINGER / 2
    put(buffers, partition=1)
    assert buffers.take_ready(clock.now) == []
    clock.now += LINGER / 2
    assert buffers.take_ready(clock.now) == topic_of(buffers).queues[:2]
    assert buffers.next_linger() is None


def test_P11_without_linger_a_batch_leaves_at_once() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=0)
    put(buffers)
    assert buffers.take_ready(clock.now) == [topic_of(buffers).queues[0]]


def test_P11_a_full_batch_leaves_at_once() -> None:
    clock = Clock()
    buffers = accumulator(clock, batch_size=1000, linger=1000)
    for _ in range(3):
        put(buffers, b"x" * 400)
    queue = topic_of(buffers).queues[0]
    assert buffers.take_ready(clock.now) == [queue]
    batch = drain(buffers, queue)
    assert batch is not None
    assert batch.count == 2


def test_P11_a_flush_lets_everything_leave() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=1000)
    for partition in (2, 0):
        put(buffers, partition=partition)
    assert [batch.queue.partition for batch in buffers.flush_open()] == [2, 0]
    assert [queue.partition for queue in buffers.take_ready(clock.now)] == [2, 0]


def test_P05_while_a_sender_waits_for_memory_every_open_batch_may_leave_also_later_ones() -> None:
    clock = Clock()
    buffers = accumulator(clock, memory=8192, batch_size=4096, linger=1000)
    put(buffers, b"x" * 3000, partition=0)
    put(buffers, b"x" * 1000, partition=1)
    assert put(buffers, b"x" * 3000, partition=2) is None
    waiter = add_waiter(buffers, 2, b"x" * 3000, lambda: None)
    assert {queue.partition for queue in buffers.take_ready(clock.now)} == {0, 1}
    batch = drain(buffers, topic_of(buffers).queues[0])
    assert batch is not None
    buffers.release(batch)
    assert waiter.grant is not None
    other = add_waiter(buffers, 2, b"x" * 3000, lambda: None)
    delivery = buffers.append(topic_of(buffers), 2, -1, None, b"x" * 3000, None, waiter)
    assert delivery is not None
    assert topic_of(buffers).queues[2] in buffers.take_ready(clock.now)
    for each in (waiter, other):
        buffers.leave(each)


def test_an_open_batch_goes_on_filling_until_it_can_be_sent() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=0)
    put(buffers)
    buffers.take_ready(clock.now)
    put(buffers)
    batch = drain(buffers, topic_of(buffers).queues[0])
    assert batch is not None
    assert batch.count == 2


class Loop:
    """Counts its wake-ups, and takes what is ready."""

    def __init__(self, buffers: Accumulator, clock: Clock) -> None:
        self.wakes = 0
        self._buffers = buffers
        self._clock = clock
        buffers.on_ready = self._wake

    def _wake(self) -> None:
        self.wakes += 1

    def look(self) -> list[int]:
        """The partitions that are ready; resets the count of wake-ups."""
        found = [queue.partition for queue in self._buffers.take_ready(self._clock.now)]
        self._buffers.next_linger()
        self.wakes = 0
        return found


def test_the_loop_is_woken_by_every_new_batch_until_take_ready_and_by_nothing_else() -> None:
    clock = Clock()
    buffers = accumulator(clock, batch_size=1000, linger=1000)
    loop = Loop(buffers, clock)
    put(buffers, b"x" * 400)
    assert loop.wakes == 1
    put(buffers, b"x" * 400)
    assert loop.wakes == 1, "it is the same batch"
    put(buffers, b"x" * 400)
    assert loop.wakes == 2, "one batch is sealed, another begun"
    put(buffers, b"x" * 400, partition=1)
    assert loop.wakes == 3, "the wake-ups before may have been lost"


def test_the_loop_is_not_woken_for_a_linger_that_ends_after_its_next_timer() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=LINGER)
    loop = Loop(buffers, clock)
    put(buffers, partition=0)
    loop.look()
    clock.now += LINGER / 2
    put(buffers, partition=1)
    assert loop.wakes == 0, "it looks when the linger of partition 0 ends"
    clock.now += LINGER / 2
    assert loop.look() == [0, 1]
    put(buffers, partition=2)
    assert loop.wakes == 1, "no linger is left that it would look for"


def test_the_loop_is_not_woken_for_a_linger_that_ends_after_its_next_turn() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=LINGER)
    loop = Loop(buffers, clock)
    loop.look()
    buffers.wakes_at(clock.now + LINGER)
    put(buffers, partition=0)
    assert loop.wakes == 0
    clock.now += LINGER / 2
    put(buffers, partition=1)
    assert loop.wakes == 0
    buffers.wakes_at(clock.now + 2 * LINGER)
    put(buffers, partition=2)
    assert loop.wakes == 1
    clock.now += LINGER / 2
    assert loop.look() == [0, 1, 2]


def test_the_loop_is_not_woken_for_a_queue_that_it_holds_until_still_ready_returns_False() -> None:
    clock = Clock()
    buffers = accumulator(clock, batch_size=1000, linger=1000)
    queue, loop = topic_of(buffers).queues[0], Loop(buffers, clock)
    for _ in range(3):
        put(buffers, b"x" * 400)
    assert loop.look() == [0]
    for _ in range(3):
        put(buffers, b"x" * 400)
    assert loop.wakes == 0, "it holds the queue"
    assert loop.look() == []
    first, second = queue.waiting
    assert buffers.start(first), "the second may leave too"
    assert not buffers.start(second)
    put(buffers, b"x" * 900)
    assert loop.wakes == 1, "what is under way is no news, what is sealed behind it is"
    buffers.retry(queue.waiting[0])
    assert buffers.still_ready(queue), "a batch that came back may leave"


def test_a_queue_is_listed_once_although_the_loop_sent_its_batch_before_the_wake_up() -> None:
    """A batch that comes back has the loop hold its queue again.

    What is sealed meanwhile is listed, sent, and listed again.
    """
    clock = Clock()
    buffers = accumulator(clock, batch_size=1000, linger=1000)
    queue, loop = topic_of(buffers).queues[0], Loop(buffers, clock)
    put(buffers, b"x" * 900)
    put(buffers, b"x" * 900)
    assert loop.look() == [0]
    first = queue.waiting[0]
    assert not buffers.start(first)
    buffers.retry(first)
    put(buffers, b"x" * 900)
    second = queue.waiting[1]
    assert buffers.start(first)
    assert not buffers.start(second)
    buffers.flush_open()
    assert loop.look() == [0]


def test_a_sender_that_waits_for_memory_wakes_the_loop_if_that_makes_a_batch_leave() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=1000)
    loop = Loop(buffers, clock)
    put(buffers)
    loop.look()
    buffers.leave(add_waiter(buffers, 0, b"", lambda: None))
    assert loop.wakes == 1
    assert loop.look() == [0]
    buffers.leave(add_waiter(buffers, 0, b"", lambda: None))
    assert loop.wakes == 0


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_a_batch_grows_through_the_size_classes_and_holds_no_more_than_it_needs() -> None:
    buffers = accumulator(Clock(), batch_size=64_000)
    used = []
    for _ in range(600):
        put(buffers, b"x" * 100)
        used.append(buffers.pool.used)
    assert sorted(set(used[:550])) == [2048, 4096, 8192, 16384, 32768, 64_000 - HEADER_SIZE]
    assert buffers.pool.free_bytes + buffers.pool.used <= buffers.pool.total


def crowded(partitions: int = 8) -> Accumulator:
    """Memory for 16 KiB, and some of the smallest batches, each with as many records of 900 B as fit."""
    buffers = accumulator(Clock(), memory=16_384, batch_size=64_000, partitions=partitions, linger=1000)
    for partition in range(partitions):
        put(buffers, b"x" * 900, partition=partition)
        put(buffers, b"x" * 900, partition=partition)
    assert buffers.pool.used == partitions * 2048
    return buffers


def leave(buffers: Accumulator, partition: int) -> None:
    """The head of a partition is sent, and acknowledged."""
    batch = drain(buffers, topic_of(buffers).queues[partition])
    assert batch is not None
    buffers.start(batch)
    buffers.release(batch)


def test_P05_a_batch_without_memory_to_grow_waits_for_some_instead_of_leaving_small() -> None:
    buffers = crowded()
    orders = topic_of(buffers)
    assert put(buffers, b"x" * 900) is None
    assert not orders.queues[0].waiting
    notified: list[bool] = []
    waiter = add_waiter(buffers, 0, b"x" * 900, lambda: notified.append(True))
    assert len(buffers.take_ready(0.0)) == 8
    leave(buffers, 1)
    assert not notified
    leave(buffers, 2)
    assert notified
    delivery = buffers.append(orders, 0, -1, None, b"x" * 900, None, waiter)
    assert delivery is not None
    assert waiter.grant is None
    batch = drain(buffers, orders.queues[0])
    assert batch is not None
    assert len(decoded(batch)) == 3
    assert buffers.pool.used == 5 * 2048 + 4096


def test_P05_memory_granted_to_grow_a_batch_opens_a_new_one_if_that_batch_has_left() -> None:
    buffers = crowded()
    waiter = add_waiter(buffers, 0, b"x" * 900, lambda: None)
    leave(buffers, 0)
    leave(buffers, 1)
    delivery = buffers.append(topic_of(buffers), 0, -1, None, b"x" * 900, None, waiter)
    assert delivery is not None
    buffers.flush_open()
    batch = drain(buffers, topic_of(buffers).queues[0])
    assert batch is not None
    assert len(decoded(batch)) == 1
    assert buffers.pool.used == 6 * 2048 + 4096


def test_P09_an_unused_grant_returns_to_the_pool() -> None:
    buffers = crowded()
    waiter = add_waiter(buffers, 0, b"x" * 900, lambda: None)
    for partition in (0, 1, 2):
        leave(buffers, partition)
    assert len(waiter.grant or b"") == 4096
    for _ in range(2):  # another thread is faster
        assert put(buffers, b"x" * 100) is not None
    used = buffers.pool.used
    assert buffers.append(topic_of(buffers), 0, -1, None, b"x" * 900, None, waiter) is not None
    assert buffers.pool.used == used
    buffers.leave(waiter)
    assert buffers.pool.used == used - 4096


def test_P05_no_batch_waits_to_grow_beyond_a_quarter_of_the_memory() -> None:
    """While others hold half of it, that might never be free."""
    buffers = crowded(4)
    buffers.set_topic("orders", 8, range(8))
    put(buffers, b"x" * 900)
    put(buffers, b"x" * 900)
    for partition in range(4, 8):
        put(buffers, b"x" * 900, partition=partition)
    assert put(buffers, b"x" * 900) is None
    assert [batch.count for batch in topic_of(buffers).queues[0].waiting] == [4]
    waiter = add_waiter(buffers, 0, b"x" * 900, lambda: None)
    assert waiter.size == 2048


def test_a_record_larger_than_a_batch_gets_a_buffer_of_its_own() -> None:
    buffers = accumulator(Clock(), batch_size=1000, max_request_size=50_000)
    put(buffers, b"a")
    put(buffers, b"x" * 20_000)
    put(buffers, b"b")
    assert [batch.count for batch in buffers.flush_open()] == [1, 1, 1]
    assert 20_000 < buffers.pool.used < 30_000


@pytest.mark.parametrize(("memory", "option"), [(1_000_000, "max_request_size=10000"), (5_000, "buffer_memory=5000")])
def test_a_record_that_can_never_be_sent_is_refused_with_the_option_that_forbids_it(memory: int, option: str) -> None:
    buffers = accumulator(Clock(), memory=memory, batch_size=1000, max_request_size=10_000)
    with pytest.raises(RecordTooLargeError, match=option):
        put(buffers, b"x" * 10_000)
    assert buffers.pool.used == 0
    assert buffers.flush_open() == []


def test_old_options_of_ten_kilobytes_work() -> None:
    clock = Clock()
    buffers = accumulator(clock, memory=10_240, batch_size=10_240, linger=0, compression=Compression.SNAPPY)
    queue = topic_of(buffers).queues[0]
    for number in range(500):
        while put(buffers, noise(number)) is None:
            batch = drain(buffers, queue)
            assert batch is not None
            buffers.release(batch)
        buffers.take_ready(clock.now)
    while (batch := drain(buffers, queue)) is not None:
        buffers.release(batch)
    assert buffers.pool.used == 0


def test_a_partition_that_does_not_exist_is_refused() -> None:
    buffers = accumulator(Clock(), partitions=3)
    with pytest.raises(IndexError, match="3 partitions"):
        put(buffers, partition=3)


def test_timestamps_too_far_apart_for_one_batch_begin_another() -> None:
    buffers = accumulator(Clock())
    for timestamp in (0, 2**31 - 1, 2**31, 2**40, 5):
        put(buffers, timestamp=timestamp)
    assert [batch.count for batch in buffers.flush_open()] == [2, 1, 1, 1]


# --- sealing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
@given(fill=st.booleans(), count=st.integers(1, 20))
@settings(max_examples=10)
def test_a_batch_that_compression_does_not_shrink_is_sent_uncompressed(codec: Compression, fill: bool, count: int) -> None:
    buffers = accumulator(Clock(), compression=codec)
    values = [b"x" * 500 if fill else noise(500 + number) for number in range(count)]
    for value in values:
        put(buffers, value)
    buffers.flush_open()
    batch = drain(buffers, topic_of(buffers).queues[0])
    assert batch is not None
    (read,) = read_batches(b"".join(bytes(piece) for piece in batch.pieces()))
    assert read.compression is (codec if fill else Compression.NONE)
    assert [record.value for record in read.records("orders", 0)] == values
    assert batch.size == sum(len(piece) for piece in batch.pieces())


def test_compressed_output_is_accounted_instead_of_the_buffer() -> None:
    buffers = accumulator(Clock(), compression=Compression.ZSTD)
    for _ in range(20):
        put(buffers, b"x" * 500)
    buffers.flush_open()
    batch = drain(buffers, topic_of(buffers).queues[0])
    assert batch is not None
    assert buffers.pool.used == batch.size - HEADER_SIZE < 500
    buffers.release(batch)
    assert buffers.pool.used == 0


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_P07_a_batch_dropped_while_it_is_sealed_keeps_its_buffer_until_it_is_sealed(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = accumulator(Clock(), compression=codec)
    put(buffers, b"x" * 1000)
    buffers.flush_open()
    queue = topic_of(buffers).queues[0]
    batch = buffers.head(queue)
    assert batch is not None
    put(buffers, b"later")
    used = buffers.pool.used
    buffers.drop(batch)
    assert buffers.pool.used == used
    assert state_of(batch) is BatchState.SEALING
    buffers.seal(batch)
    assert state_of(batch) is BatchState.DONE
    assert buffers.pool.used == used - 2048
    buffers.flush_open()
    assert buffers.take_ready(0.0) == [queue]
    later = drain(buffers, queue)
    assert later is not None
    assert decoded(later) == [(WALL_MS, None, b"later", [])]


class CountsBeforeFailures(Observer):
    """Notes how many batches counted as unsealed, and whether any was left, when records failed."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, object]] = []
        self.buffers: Accumulator | None = None

    def failed(self, tp: TopicPartition, count: int, error: KafkaError) -> int:
        assert self.buffers is not None
        self.found.append((self.buffers.seal_failures, self.buffers.oldest()))
        return super().failed(tp, count, error)


def test_a_batch_that_cannot_be_compressed_counts_before_its_records_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that finds every record settled between the two would leave these records out of its transaction."""
    def broken(*args: object) -> bytes:
        raise MemoryError("no more")

    monkeypatch.setattr(topic_compression, "compress", broken)
    observer = CountsBeforeFailures()
    observer.buffers = buffers = accumulator(Clock(), compression=Compression.ZSTD, observer=observer)
    put(buffers)
    buffers.flush_open()
    drain(buffers, topic_of(buffers).queues[0])
    assert observer.found == [(1, None)]


def test_a_batch_whose_sealing_raised_is_given_up_and_counts_before_its_records_fail() -> None:
    observer = CountsBeforeFailures()
    observer.buffers = buffers = accumulator(Clock(), compression=Compression.ZSTD, observer=observer)
    delivery = put(buffers)
    assert delivery is not None
    buffers.flush_open()
    queue = topic_of(buffers).queues[0]
    batch = buffers.head(queue)
    assert batch is not None
    assert batch.state is BatchState.SEALING
    buffers.give_up_unsealed(batch, KafkaError("sealing raised"))
    with pytest.raises(KafkaError, match="sealing raised"):
        delivery.result(0)
    assert observer.found == [(1, None)]
    assert buffers.pool.used == 0
    assert buffers.head(queue) is None


def test_records_that_cannot_be_compressed_fail_and_block_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> bytes:
        raise MemoryError("no more")

    monkeypatch.setattr(topic_compression, "compress", broken)
    observer = Observer()
    buffers = accumulator(Clock(), compression=Compression.ZSTD, observer=observer)
    delivery = put(buffers)
    assert delivery is not None
    buffers.flush_open()
    queue = topic_of(buffers).queues[0]
    assert drain(buffers, queue) is not None
    with pytest.raises(KafkaError, match="could not be compressed with zstd.*no more"):
        delivery.result(0)
    assert buffers.head(queue) is None
    assert buffers.pool.used == 0
    monkeypatch.undo()
    put(buffers)
    buffers.flush_open()
    following = drain(buffers, queue)
    assert following is not None
    assert following.state is BatchState.SEALED


def test_a_retried_batch_is_sent_with_the_same_bytes() -> None:
    buffers = accumulator(Clock(), compression=Compression.GZIP)
    put(buffers, b"x" * 500)
    buffers.flush_open()
    batch = drain(buffers, topic_of(buffers).queues[0])
    assert batch is not None
    first = [bytes(piece) for piece in batch.pieces()]
    for attempt in (1, 2):
        buffers.start(batch)
        assert batch.attempts == attempt
        buffers.retry(batch)
    assert [bytes(piece) for piece in batch.pieces()] == first


# --- the end ---------------------------------------------------------------------------------------------------------


def test_P08_close_refuses_records_and_notifies_waiters() -> None:
    buffers = accumulator(Clock(), memory=4096, batch_size=4096)
    put(buffers, b"x" * 3000)
    notified: list[int] = []
    waiter = add_waiter(buffers, 0, b"x" * 3000, lambda: notified.append(1))
    buffers.close()
    assert notified == [1]
    with pytest.raises(ClientClosedError):
        buffers.append(topic_of(buffers), 0, -1, None, b"x", None, waiter)
    with pytest.raises(ClientClosedError):
        add_waiter(buffers, 0, b"x", lambda: None)
    buffers.leave(waiter)


def test_P04_the_error_of_a_full_buffer_says_how_full_and_what_to_do() -> None:
    buffers = accumulator(Clock(), memory=4096, batch_size=4096)
    put(buffers, b"x" * 3000)
    error = buffers.exhausted(topic_of(buffers), 1.5)
    assert isinstance(error, BufferExhaustedError)
    assert isinstance(error, TimeoutError)
    for part in ("orders", "1.500 s", "4096 B", "1 unsent", "buffer_memory"):
        assert part in str(error)


def test_no_reference_to_done_batches_is_kept_while_another_lingers() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=1000)
    put(buffers, partition=1)
    queue = topic_of(buffers).queues[0]
    references = []
    for _ in range(50):
        delivery = put(buffers)
        (_, batch) = buffers.flush_open()
        sealed = drain(buffers, queue)
        assert sealed is batch
        buffers.release(batch)
        alone = [object()]
        (also,) = alone
        references.append(sys.getrefcount(batch) - sys.getrefcount(also))  # interpreters differ in what an argument adds
        del batch, sealed, delivery
    assert set(references) == {0}, "more references than this test's two names, and the argument"


# --- spreading -------------------------------------------------------------------------------------------------------


def test_records_without_key_stay_on_a_partition_for_about_a_batch() -> None:
    buffers = accumulator(Clock(), batch_size=4000, partitions=8)
    chosen = [delivery.partition for _ in range(400) if (delivery := put(buffers, b"x" * 100, partition=-1)) is not None]
    runs = [len(list(same)) for _, same in itertools.groupby(chosen)]
    assert all(run * 100 > 2000 for run in runs[:-1])
    assert len(set(chosen)) > 4


def test_records_without_key_go_to_partitions_with_a_leader() -> None:
    buffers = accumulator(Clock(), batch_size=200, partitions=8)
    buffers.set_topic("orders", 8, [3, 5])
    chosen = {delivery.partition for _ in range(100) if (delivery := put(buffers, b"x" * 50, partition=-1)) is not None}
    assert chosen == {3, 5}


def test_a_record_without_key_that_waits_for_memory_counts_once_towards_the_batch_its_partition_gets() -> None:
    buffers = accumulator(Clock(), memory=4096, batch_size=2048, partitions=8)
    orders = topic_of(buffers)
    first = put(buffers, b"x" * 900, partition=-1)
    assert first is not None
    for partition in range(8):
        while put(buffers, b"x" * 1900, partition=partition):
            pass
    for _ in range(10):
        assert buffers.append(orders, -1, -1, None, b"x" * 1500, None) is None
    for batch in buffers.flush_open():
        buffers.drop(batch)
    after = put(buffers, b"x" * 900, partition=-1)
    assert after is not None
    assert after.partition == first.partition


def test_records_without_key_leave_a_partition_that_has_lost_its_leader_at_once() -> None:
    buffers = accumulator(Clock(), partitions=8)
    first = put(buffers, partition=-1)
    assert first is not None
    others = [number for number in range(8) if number != first.partition]
    buffers.set_topic("orders", 8, others)
    second = put(buffers, partition=-1)
    assert second is not None
    assert second.partition in others


def test_a_topic_created_again_with_fewer_partitions_takes_records_for_those_it_has() -> None:
    buffers = accumulator(Clock(), partitions=8)
    put(buffers, partition=7)
    buffers.set_topic("orders", 2, [0, 1])
    assert len(topic_of(buffers)) == 2
    with pytest.raises(IndexError, match="has 2 partitions"):
        put(buffers, partition=2)
    assert {each.partition for _ in range(100) if (each := put(buffers, b"x" * 4000, partition=-1)) is not None} == {0, 1}
    assert buffers.flush_open()[0].queue.partition == 7
    buffers.set_topic("orders", 8, range(8))
    assert len(topic_of(buffers).queues) == len(topic_of(buffers)) == 8


def test_ctrl_c_while_one_batch_is_sealed_leaves_no_other_unsealed() -> None:
    buffers = accumulator(Clock(), batch_size=4096, partitions=2)
    queues = buffers.topic("orders")
    assert queues is not None
    buffers.append(queues, -1, -1, None, b"x" * 3000, None)
    (sticky,) = buffers.flush_open()
    buffers.append(queues, 1 - sticky.queue.partition, -1, None, b"x" * 3000, None)
    interrupts = iter([KeyboardInterrupt()])

    def ready() -> None:
        for interrupt in interrupts:
            raise interrupt

    buffers.on_ready = ready
    with pytest.raises(KeyboardInterrupt):
        buffers.append(queues, -1, -1, None, b"x" * 3000, None)  # full there, and full where the turn goes
    assert [batch.state for queue in queues.queues for batch in queue.waiting] == [BatchState.SEALED, BatchState.SEALED]


def test_a_record_announces_a_batch_whose_wake_up_ctrl_c_has_ended() -> None:
    clock = Clock()
    buffers = accumulator(clock, linger=LINGER)
    loop = Loop(buffers, clock)

    def struck() -> None:
        raise KeyboardInterrupt

    buffers.on_ready = struck
    with pytest.raises(KeyboardInterrupt):
        put(buffers)
    buffers.on_ready = loop._wake
    put(buffers)  # into the same batch
    assert loop.wakes == 1
    put(buffers)
    assert loop.wakes == 1
