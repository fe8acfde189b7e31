# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Where the partitions with unsent batches wait (P12, P13).

At their leader's node, without a leader, or in a pause after a failure. Knows queues, leaders and pauses; knows no
requests. Rule: a queue that the Accumulator reported as ready stays in one of these places until the sender has taken
it out. The Accumulator does not report it again before that.
"""
from __future__ import annotations

import attrs

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.queues import PartitionQueue
from pyclient.core.manager import earliest
from pyclient.core.metadata import Metadata
from pyclient.core.sending.sequencing import Leader


@attrs.frozen
class RetryPause:
    """A pause after a failure. It ends at *until*, or as soon as a leader of a later epoch than *epoch* is known."""

    until: float
    epoch: int


class LeaderQueues:
    """The ready queues by the node that leads their partition."""

    def __init__(self, accumulator: Accumulator, metadata: Metadata) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._interest = metadata.interest
        self._unplaced: dict[PartitionQueue, None] = {}
        self._by_leader: dict[int, dict[PartitionQueue, None]] = {}
        self._leaderless: dict[PartitionQueue, None] = {}
        self._pauses: dict[PartitionQueue, RetryPause] = {}
        self._view = 0
        self._cluster = metadata.cluster
        self._leaders: dict[PartitionQueue, Leader | None] = {}  # in `_cluster`

    def update(self, now: float) -> None:
        """End the pauses that are over, follow the leaders, and place the queues that became ready."""
        self._end_pauses(now)
        self._follow_leaders(now)
        self._place_ready(now)

    def waiting(self) -> bool:
        """Whether a queue waits at some node."""
        for queues in self._by_leader.values():  # noqa: SIM110 asked after each response, and a generator takes longer
            if queues:
                return True
        return False

    def nodes(self) -> list[int]:
        """The nodes that lead a partition with something to send."""
        return [node for node, queues in self._by_leader.items() if queues]

    def of(self, node: int) -> dict[PartitionQueue, None]:
        """The queues at this node, the next one first.

        The sender takes queues out of it and puts them behind the others.
        """
        return self._by_leader[node]

    def place(self, queue: PartitionQueue, now: float) -> int | None:
        """Put a queue where its leader is now; returns that node, None if it waits for a leader or in a pause."""
        if queue in self._pauses:
            return None
        self._want(queue, now)
        leader = self.known_leader(queue)
        if leader is None:
            self._leaderless[queue] = None
            self._metadata.request_update()
            return None
        queues = self._by_leader.get(leader.node)
        if queues is None:
            queues = self._by_leader[leader.node] = {}
        queues[queue] = None
        return leader.node

    def pause(self, queue: PartitionQueue, until: float) -> None:
        """Send nothing of this queue until then, or until it has another leader."""
        self._pauses[queue] = RetryPause(until, self._leader_epoch(queue))

    def is_paused(self, queue: PartitionQueue) -> bool:
        """Whether a failure's pause lasts."""
        return queue in self._pauses

    def leader(self, queue: PartitionQueue, node: int) -> Leader:
        """*node* as this queue's leader: with the topic's id and the leader's epoch."""
        known = self.known_leader(queue)
        if known is not None and known.node == node:
            return known
        topic = self._metadata.cluster.topics.get(queue.topic)
        return Leader(node, None if topic is None else topic.id, self._leader_epoch(queue))

    def known_leader(self, queue: PartitionQueue) -> Leader | None:
        """The leader of a queue, or None; looked up once in each view of the cluster: each batch asks several times."""
        cluster = self._metadata.cluster
        if self._cluster is not cluster:
            self._cluster = cluster
            self._leaders.clear()
        if queue in self._leaders:
            return self._leaders[queue]
        node = cluster.leader(queue.topic_partition)
        topic = cluster.topics.get(queue.topic)
        leader = None if node is None or topic is None else Leader(node, topic.id, self._leader_epoch(queue))
        self._leaders[queue] = leader
        return leader

    def next_deadline(self) -> float | None:
        """The end of the next pause."""
        return earliest(*[pause.until for pause in self._pauses.values()]) if self._pauses else None

    def _want(self, queue: PartitionQueue, now: float) -> None:
        """Keep the topic in the view also while nothing new is sent: a batch that waits must find its leader."""
        if self._interest.want(queue.topic, now):
            self._metadata.wants_more()

    def _place_ready(self, now: float) -> None:
        """The Accumulator reports each ready queue once: when `place` raises, the others are kept for the next turn."""
        for queue in self._accumulator.take_ready(now):
            self._unplaced[queue] = None
        while self._unplaced:
            queue = next(iter(self._unplaced))
            self.place(queue, now)
            del self._unplaced[queue]

    def _follow_leaders(self, now: float) -> None:
        """After a new view of the cluster, every waiting queue moves to its leader's node."""
        if self._view == self._metadata.cluster.version:
            return
        self._view = self._metadata.cluster.version
        self._end_pauses_of_moved()
        waiting = [*self._leaderless, *(queue for queues in self._by_leader.values() for queue in queues)]
        self._leaderless.clear()
        self._by_leader.clear()
        for queue in waiting:
            self.place(queue, now)

    def _end_pauses(self, now: float) -> None:
        if not self._pauses:
            return
        for queue in [queue for queue, pause in self._pauses.items() if now >= pause.until]:
            del self._pauses[queue]
            self.place(queue, now)

    def _end_pauses_of_moved(self) -> None:
        """A leader that is newer than the failure needs no pause (P13)."""
        for queue, pause in list(self._pauses.items()):
            if self._leader_epoch(queue) > pause.epoch:
                del self._pauses[queue]
                self._leaderless[queue] = None  # `_follow_leaders` places it with the others

    def _leader_epoch(self, queue: PartitionQueue) -> int:
        known = self._metadata.cluster.partition(queue.topic_partition)
        return -1 if known is None else known.epoch
