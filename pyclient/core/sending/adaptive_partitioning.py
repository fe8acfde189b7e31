"""How much of what has no key each partition gets: less the longer its queue is (KIP-794).

Knows queues, leaders, and which nodes take nothing; draws nothing itself: `TopicQueues.pick` does, in the sender's thread.
Rule: the work is in proportion to the queues that hold batches, however many partitions a topic has.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.queues import TopicQueues
from pyclient.core.cluster import Cluster
from pyclient.core.manager import earliest
from pyclient.records import TopicPartition


class Shares(NamedTuple):
    """A table of cumulative shares that leaves out the candidates with nothing waiting: each of those has the share *idle*.

    ``ends`` are the sums up to and with each busy candidate, ``positions`` these candidates' places among all.
    """

    total: int
    idle: int
    ends: tuple[int, ...]
    positions: tuple[int, ...]


def shares(count: int, backlogs: Sequence[tuple[int, int]], avoided: Collection[int] = ()) -> Shares | None:
    """The shares of *count* candidates; *backlogs* are (position, batches that wait) by position. None: all the same.

    A share is the longest queue less its own, and one; those at the positions *avoided* have none (P32, P33).
    """
    lengths = {batches for position, batches in backlogs if position not in avoided} | ({0} if len(backlogs) < count else set())
    if count < 2 or not lengths or (len(lengths) == 1 and not avoided):
        return None
    idle = max(lengths) + 1
    missing = 0
    ends: list[int] = []
    for position, batches in backlogs:
        missing += idle if position in avoided else batches
        ends.append((position + 1) * idle - missing)
    return Shares(count * idle - missing, idle, tuple(ends), tuple([position for position, _ in backlogs]))


class Balance:
    """Keeps the topics' shares up to date.

    ``availability_timeout`` is in seconds, 0 avoids nobody: a node that took nothing for so long, though something was ready
    for it, is avoided by partitions with batches waiting until it takes something.
    """

    def __init__(self, accumulator: Accumulator, availability_timeout: float) -> None:
        self._accumulator = accumulator
        self._timeout = availability_timeout
        self._avoided_from: dict[int, float] = {}  # nodes that keep batches waiting
        self._avoided: set[int] = set()

    def update(self, now: float, stuck: Collection[int], cluster: Cluster) -> None:
        """*stuck* are the nodes that cannot take what is ready for them."""
        for topic in self._accumulator.take_changed_topics(all_topics=self._follow(now, stuck)):
            backlogs = self._backlogs(topic)
            self._accumulator.set_shares(topic, shares(len(topic.available), backlogs, self._avoided_of(topic, backlogs, cluster)))

    def next_deadline(self) -> float | None:
        """When the next node will be avoided."""
        return earliest(*(moment for node, moment in self._avoided_from.items() if node not in self._avoided))

    def _follow(self, now: float, stuck: Collection[int]) -> bool:
        """Whether other nodes are avoided than before."""
        if not self._timeout:
            return False
        self._avoided_from = {node: self._avoided_from.get(node, now + self._timeout) for node in stuck}
        before, self._avoided = self._avoided, {node for node, moment in self._avoided_from.items() if moment <= now}
        return before != self._avoided

    def _backlogs(self, topic: TopicQueues) -> list[tuple[int, int]]:
        """(position among the candidates, batches) of those with batches; what has no leader is no candidate."""
        backlogs, available = self._accumulator.backlogs(topic), topic.available
        if len(available) == len(topic):
            return backlogs
        placed = ((bisect_left(available, partition), partition, batches) for partition, batches in backlogs)
        return [(at, batches) for at, partition, batches in placed if at < len(available) and available[at] == partition]

    def _avoided_of(self, topic: TopicQueues, backlogs: Iterable[tuple[int, int]], cluster: Cluster) -> set[int]:
        if not self._avoided:
            return set()
        return {position for position, _ in backlogs
                if cluster.leader(TopicPartition(topic.topic, topic.available[position])) in self._avoided}
