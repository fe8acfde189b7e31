"""Queues of unsent batches: at their leader's node, without a leader, or paused after a failure (P12, P13)."""
from __future__ import annotations

import pytest

from pyclient.buffers.queues import PartitionQueue
from pyclient.codec.apis import Api
from pyclient.core.sending.leader_queues import LeaderQueues
from pyclient.core.sending.sequencing import Leader
from tests.unit.buffers.accumulators import Clock, accumulator
from tests.unit.core.world import answer, make_metadata, topic, topic_id, view

NOW = 100.0


class Placing:
    """Topic t with a partition per leader, and a ready batch in each."""

    def __init__(self, *leaders: int) -> None:
        self.metadata = make_metadata()
        self.buffers = accumulator(Clock(), linger=0.0, topic="t", partitions=len(leaders))
        self.queues = LeaderQueues(self.buffers, self.metadata)
        self.leaders(*leaders)
        for partition in range(len(leaders)):
            self.send(partition)

    def leaders(self, *leaders: int, epoch: int = 0) -> None:
        response = answer(Api.METADATA, 13, **view(topic("t", *leaders, epoch=epoch)))
        self.metadata.hint(self.metadata.cluster.updated(response))

    def send(self, partition: int) -> None:
        topics = self.buffers.topic("t")
        assert topics is not None
        self.buffers.append(topics, partition, -1, None, b"value", None)

    def placed(self, now: float = NOW) -> dict[int, list[int]]:
        """The partitions at each node after an update."""
        self.queues.update(now)
        return {at.node: [queue.partition for queue in at.queues] for at in self.queues.nodes()}

    def queue(self, partition: int = 0) -> PartitionQueue:
        (found,) = (queue for at in self.queues.nodes() for queue in at.queues if queue.partition == partition)
        return found

    def paused(self, until: float) -> PartitionQueue:
        """The first partition's queue, taken out by the sender and paused."""
        self.queues.update(NOW)
        queue = self.queue()
        del next(at for at in self.queues.nodes() if queue in at.queues).queues[queue]
        self.queues.pause(queue, until)
        return queue


def test_queues_wait_at_their_leaders_in_the_order_in_which_they_became_ready() -> None:
    assert Placing(1, 2, 1).placed() == {1: [0, 2], 2: [1]}


def test_P12_a_queue_without_a_leader_is_at_no_node_until_there_is_one() -> None:
    world = Placing(-1, 2)
    assert world.placed() == {2: [1]}
    world.leaders(3, 2)
    assert world.placed() == {2: [1], 3: [0]}


def test_P12_queues_move_when_their_leaders_change() -> None:
    world = Placing(1, 1)
    assert world.placed() == {1: [0, 1]}
    world.leaders(2, 1)
    assert world.placed() == {2: [0], 1: [1]}


def test_P13_a_paused_queue_comes_back_when_its_pause_is_over_and_not_before() -> None:
    world = Placing(1)
    queue = world.paused(NOW + 5)
    world.queues.place(queue, NOW)
    assert world.queues.is_paused(queue)
    assert world.queues.next_deadline() == NOW + 5
    assert world.placed(NOW + 4.9) == {}
    assert world.placed(NOW + 5) == {1: [0]}
    assert not world.queues.is_paused(queue)
    assert world.queues.next_deadline() is None


@pytest.mark.parametrize(("leader", "epoch", "expected"), [(1, 0, {}), (2, 0, {}), (2, 1, {2: [0]}), (1, 1, {1: [0]})])
def test_P13_a_pause_ends_early_only_for_a_leader_of_a_later_epoch(leader: int, epoch: int, expected: dict[int, list[int]]) -> None:
    world = Placing(1)
    world.paused(NOW + 5)
    world.leaders(leader, epoch=epoch)
    assert world.placed() == expected


def test_the_leader_of_a_queue_has_the_topics_id_and_its_epoch() -> None:
    world = Placing(1)
    world.leaders(1, epoch=7)
    world.queues.update(NOW)
    assert world.queues.leader(world.queue(), 1) == Leader(1, topic_id("t").bytes, 7)
