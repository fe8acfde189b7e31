"""Shares of records without a key: as Java's for the same draws, leaders only, stuck nodes avoided (P31 to P34)."""
from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.queues import TopicQueues
from pyclient.core.cluster import Cluster, Partition, Topic
from pyclient.core.sending.adaptive_partitioning import AdaptivePartitioning, Shares, shares
from pyclient.records import Node
from tests.data.partition_vectors import TURNS, Turns, answers
from tests.unit.buffers.accumulators import Clock, accumulator

NODES = {number: Node(number, "host", 9092, None) for number in (1, 2, 3)}


def topic_of(buffers: Accumulator, name: str = "orders") -> TopicQueues:
    found = buffers.topic(name)
    assert found is not None
    return found


def sharing(count: int, table: Shares | None) -> TopicQueues:
    buffers = accumulator(Clock(), partitions=count)
    buffers.set_shares(topic_of(buffers), table)
    return topic_of(buffers)


def draw(point: int, total: int) -> float:
    """A draw from [0, 1) that falls on *point* of *total*."""
    return (point + 0.5) / total


def table_of(lengths: Sequence[int | None]) -> Shares | None:
    """The shares of candidates with queues of these lengths; None: avoided."""
    waiting = [(position, 1 if length is None else length) for position, length in enumerate(lengths) if length != 0]
    return shares(len(lengths), waiting, {position for position, length in enumerate(lengths) if length is None})


# ---- the table ------------------------------------------------------------------------------------------------------


def picks(turns: Turns) -> list[int]:
    count = len(turns.lengths) + turns.left_out
    table = table_of([*turns.lengths, *[None] * turns.left_out])
    total = count if table is None else table.total
    topic = sharing(count, table)
    return [topic.pick(draw(each % total, total)) for each in turns.draws]


def test_P32_P33_the_partition_is_javas_for_12800_draws_from_400_tables_of_queue_lengths() -> None:
    expected = answers("partitions-java-sticky.bin")
    assert len(expected) == 12_800
    assert [picked for turns in TURNS for picked in picks(turns)] == expected


lengths = st.lists(st.one_of(st.just(0), st.integers(0, 9), st.none()), min_size=1, max_size=60)


@given(lengths)
def test_P32_a_share_is_the_longest_queue_less_its_own_plus_one(waiting: list[int | None]) -> None:
    counted = [each for each in waiting if each is not None]
    table = table_of(waiting)
    if len(waiting) < 2 or not counted or (len(counted) == len(waiting) and len(set(counted)) == 1):
        assert table is None
        return
    assert table is not None
    dense = list(accumulate(0 if each is None else max(counted) + 1 - each for each in waiting))
    assert table.total == dense[-1]
    topic = sharing(len(waiting), table)
    assert [topic.pick(draw(point, table.total)) for point in range(table.total)] == [
        bisect_right(dense, point) for point in range(table.total)]


@given(lengths, st.floats(0, 1, exclude_max=True))
def test_every_draw_falls_on_a_partition_that_is_not_avoided(waiting: list[int | None], anywhere: float) -> None:
    picked = sharing(len(waiting), table_of(waiting)).pick(anywhere)
    assert 0 <= picked < len(waiting)
    assert waiting[picked] is not None or all(each is None for each in waiting) or len(waiting) == 1


def test_the_table_has_a_row_per_busy_partition_not_per_partition() -> None:
    table = shares(10_000, [(17, 3), (4_711, 1)])
    assert table == Shares(total=4 * 10_000 - 3 - 1, idle=4, ends=(17 * 4 + 1, 4_712 * 4 - 3 - 1), positions=(17, 4_711))


# ---- keeping it up to date ------------------------------------------------------------------------------------------


def cluster(*leaders: int | None) -> Cluster:
    parts = tuple(Partition(number, leader, 0) for number, leader in enumerate(leaders))
    return Cluster(version=1, nodes=NODES, topics={"orders": Topic("orders", partitions=parts)})


class Balancing:
    """An AdaptivePartitioning with a topic, its leaders, and batches to close."""

    def __init__(self, *leaders: int | None, timeout: float = 0.0) -> None:
        self.buffers = accumulator(Clock(), partitions=len(leaders))
        self.cluster = cluster(*leaders)
        self.buffers.set_topic("orders", len(leaders), self.cluster.topics["orders"].available)
        self.topic = topic_of(self.buffers)
        self.balance = AdaptivePartitioning(self.buffers, timeout)
        self.send(-1)  # a partition has become sticky

    def send(self, partition: int, count: int = 1) -> None:
        for _ in range(count):
            assert self.buffers.append(self.topic, partition, -1, None, b"x" * 900, None) is not None

    def close(self, partition: int, count: int) -> None:
        """Close *count* batches, which then wait."""
        queue = self.topic.queues[partition]
        before = len(queue.waiting)
        while len(queue.waiting) < before + count:
            self.send(partition)

    def update(self, *stuck: int, now: float = 0.0) -> Shares | None:
        self.balance.update(now, stuck, self.cluster)
        table = self.topic.shares
        return None if table is None else Shares(*table)


def test_P32_a_partition_with_batches_waiting_gets_less() -> None:
    some = Balancing(1, 2, 3)
    some.close(1, 4)
    assert some.update() == Shares(total=5 + 1 + 5, idle=5, ends=(6,), positions=(1,))


def test_P32_partitions_with_equal_queues_get_equal_shares() -> None:
    some = Balancing(1, 2, 3)
    for partition in range(3):
        some.close(partition, 2)
    assert some.update() is None


def test_P32_a_finished_batch_no_longer_counts() -> None:
    some = Balancing(1, 2, 3)
    some.close(1, 1)
    assert some.update() is not None
    some.buffers.release(some.topic.queues[1].waiting[0])
    some.buffers.set_topic("orders", 3, range(3))
    assert some.update() is None


def test_P34_a_partition_without_a_leader_is_no_candidate() -> None:
    some = Balancing(1, None, 3, 2)
    some.close(1, 2)
    some.close(2, 3)
    assert some.update() == Shares(total=4 + 1 + 4, idle=4, ends=(5,), positions=(1,))
    assert Counter(some.topic.pick(point / 90) for point in range(90)) == {0: 40, 2: 10, 3: 40}


def test_shares_of_other_leaders_are_not_kept() -> None:
    some = Balancing(1, 2, 3)
    some.close(2, 3)
    assert some.update() is not None
    some.buffers.set_topic("orders", 3, [0, 1])
    assert some.topic.shares is None
    assert {some.topic.pick(point / 30) for point in range(30)} == {0, 1}


def test_shares_are_computed_once_per_change_of_the_sticky_partition() -> None:
    some = Balancing(1, 2, 3)
    some.close(1, 2)
    first = some.update()
    some.close(2, 2)
    assert some.update() == first
    some.send(-1, 40)  # more than two batches: the sticky partition changes
    assert some.update() != first


def test_topics_without_keyless_records_cost_nothing() -> None:
    buffers = accumulator(Clock(), partitions=3)
    for _ in range(100):
        buffers.append(topic_of(buffers), 1, -1, b"key", b"x" * 900, None)
    buffers.set_topic("orders", 3, range(3))
    assert buffers.take_changed_topics() == []


# ---- stuck nodes ---------------------------------------------------------------------------------------------------


def test_P33_a_node_that_accepts_nothing_for_the_timeout_is_avoided_until_it_accepts_a_request() -> None:
    some = Balancing(1, 2, 3, timeout=1.0)
    some.close(1, 2)
    some.update(2, now=10.0)
    assert some.balance.next_deadline() == 11.0
    assert some.topic.shares is not None
    assert some.topic.shares[0] == 3 + 1 + 3
    assert some.update(2, now=11.0) == Shares(total=2, idle=1, ends=(1,), positions=(1,))
    assert some.balance.next_deadline() is None
    assert some.update(now=12.0) == Shares(total=7, idle=3, ends=(4,), positions=(1,))


def test_P33_every_accepted_request_restarts_the_timeout() -> None:
    some = Balancing(1, 2, 3, timeout=1.0)
    some.close(1, 2)
    some.update(2, now=10.0)
    some.update(now=10.9)
    some.update(2, now=11.0)
    assert some.balance.next_deadline() == 12.0
    assert some.update(2, now=11.9) == Shares(total=7, idle=3, ends=(4,), positions=(1,))


def test_P33_partitions_of_such_a_node_without_batches_waiting_are_not_avoided() -> None:
    some = Balancing(1, 2, 2, timeout=1.0)
    some.close(1, 2)
    some.update(2, now=10.0)
    assert some.update(2, now=11.0) == Shares(total=2, idle=1, ends=(1,), positions=(1,))


def test_P33_when_all_are_avoided_all_are_candidates() -> None:
    some = Balancing(1, 2, 3, timeout=1.0)
    for partition in range(3):
        some.close(partition, 1 + partition)
    some.update(1, 2, 3, now=10.0)
    assert some.update(1, 2, 3, now=11.0) is None


@pytest.mark.parametrize("stuck", [(), (1, 2, 3)])
def test_P33_without_a_timeout_no_node_is_avoided(stuck: tuple[int, ...]) -> None:
    some = Balancing(1, 2, 3)
    some.close(1, 2)
    some.update(*stuck, now=10.0)
    assert some.update(*stuck, now=1e6) == Shares(total=7, idle=3, ends=(4,), positions=(1,))
    assert some.balance.next_deadline() is None


def test_batches_of_partitions_that_a_recreated_topic_lacks_are_no_backlog() -> None:
    some = Balancing(1, 2, 3)
    some.close(1, 2)
    some.close(2, 2)
    some.buffers.set_topic("orders", 2, [0, 1])
    assert some.buffers.backlogs(some.topic) == [(1, 2)]
    assert some.update() == Shares(total=3 + 1, idle=3, ends=(4,), positions=(1,))
