# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Where the partitions with unsent batches wait (P12, P13).

At their leader's node, without a leader, or in a pause after a failure. Independent of requests. Rule: a queue that
the Accumulator reported as ready stays in one of these places until the sender has taken it out. The Accumulator does
not report it again before that.
"""
from __future__ import annotations

import attrs

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.queues import PartitionQueue
from pyclient.core.cluster import Cluster
from pyclient.core.manager import earliest
from pyclient.core.metadata import Metadata
from pyclient.core.sending.sequencing import Leader


@attrs.frozen
class RetryPause:
    """A pause after a failure. It ends at *until*, or as soon as a leader of a later epoch than *epoch* is known."""

    until: float
    epoch: int


class NodeQueues:
    """The queues at one node, the next one first. The sender takes queues out, and puts them behind the others."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.queues: dict[PartitionQueue, None] = {}


class LeaderQueues:
    """The ready queues by the node that leads their partition."""

    def __init__(self, accumulator: Accumulator, metadata: Metadata) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._interest = metadata.interest
        self._unplaced: list[PartitionQueue] = []
        self._nodes: list[NodeQueues] = []
        self._leaderless: dict[PartitionQueue, None] = {}
        self._pauses: dict[PartitionQueue, RetryPause] = {}
        self._view = metadata.view
        self._followed: Cluster | None = None  # the view of the last update
        self._cluster = metadata.cluster
        self._leaders: dict[PartitionQueue, Leader] = {}  # in `_cluster`

    def update(self, now: float) -> None:
        """End the pauses that are over, follow the leaders, and place the queues that became ready."""
        self._end_pauses(now)
        self._follow_leaders(now)
        self._place_ready(now)

    def waiting(self) -> bool:
        """Whether a queue waits at some node."""
        for at in self._nodes:  # noqa: SIM110 asked after each response, and a generator takes longer
            if at.queues:
                return True
        return False

    def nodes(self) -> list[NodeQueues]:
        """Of the nodes that lead a partition with something to send."""
        return [at for at in self._nodes if at.queues]

    def place(self, queue: PartitionQueue, now: float) -> None:
        """Put a queue where its leader is now, unless a pause lasts."""
        if self.is_paused(queue):
            return
        self._want(queue, now)
        leader = self.known_leader(queue)
        if leader is None:
            self._leaderless[queue] = None
            self._metadata.request_update()
        else:
            self._at(leader.node).queues[queue] = None

    def _at(self, node: int) -> NodeQueues:
        for at in self._nodes:
            if at.node == node:
                return at
        made = NodeQueues(node)
        self._nodes.append(made)
        return made

    def pause(self, queue: PartitionQueue, until: float) -> None:
        """Send nothing of this queue until then, or until it has another leader."""
        self._pauses[queue] = RetryPause(until, self._leader_epoch(queue))

    def is_paused(self, queue: PartitionQueue) -> bool:
        """Whether a failure's pause lasts."""
        return bool(self._pauses) and queue in self._pauses

    def leader(self, queue: PartitionQueue, node: int) -> Leader:
        """*node* as this queue's leader: with the topic's id and the leader's epoch."""
        known = self.known_leader(queue)
        if known is not None and known.node == node:
            return known
        topic = self._view.cluster.topics.get(queue.topic)
        return Leader(node, None if topic is None else topic.id_bytes, self._leader_epoch(queue))

    def known_leader(self, queue: PartitionQueue) -> Leader | None:
        """The leader of a queue, or None; looked up once in each view of the cluster: each batch asks several times."""
        if self._cluster is not self._view.cluster:
            self._cluster = self._view.cluster
            self._leaders.clear()
        known = self._leaders.get(queue)
        return self._found_leader(queue) if known is None else known

    def _found_leader(self, queue: PartitionQueue) -> Leader | None:
        cluster = self._cluster
        node, topic = cluster.leader(queue.topic_partition), cluster.topics.get(queue.topic)
        if node is None or topic is None:
            return None
        leader = self._leaders[queue] = Leader(node, topic.id_bytes, self._leader_epoch(queue))
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
        ready = self._accumulator.take_ready(now)
        self._unplaced = [*self._unplaced, *ready] if self._unplaced else ready
        placed = 0
        try:
            for queue in self._unplaced:
                self.place(queue, now)
                placed += 1
        finally:
            self._unplaced = [] if placed == len(self._unplaced) else self._unplaced[placed:]

    def _follow_leaders(self, now: float) -> None:
        """After a new view of the cluster, every waiting queue moves to its leader's node."""
        if self._followed is self._view.cluster:
            return
        self._followed = self._view.cluster
        self._end_pauses_of_moved()
        waiting = [*self._leaderless, *[queue for at in self._nodes for queue in at.queues]]
        self._leaderless.clear()
        self._nodes.clear()
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
        known = self._view.cluster.partition(queue.topic_partition)
        return -1 if known is None else known.epoch
