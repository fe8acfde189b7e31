# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""How many of the records without a key each partition gets: fewer the longer its queue is (KIP-794).

Knows queues, leaders, and which nodes accept no requests. It computes shares; `TopicQueues.pick` draws by them, in the
thread that sends.
Rule: the work is proportional to the number of queues that hold batches, not to the number of partitions.
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
    """A table of cumulative shares of the candidates with batches waiting; each other candidate has the share *idle*.

    ``ends`` are the sums up to and including each busy candidate, ``positions`` are these candidates' positions among
    all.
    """

    total: int
    idle: int
    ends: tuple[int, ...]
    positions: tuple[int, ...]


def shares(count: int, backlogs: Sequence[tuple[int, int]], avoided: Collection[int] = ()) -> Shares | None:
    """The shares of *count* candidates; *backlogs* are (position, waiting batches) in the order of positions.

    None: all shares are equal.

    A share is the longest queue's length less its own, plus one; candidates at the positions *avoided* have none (P32,
    P33).
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


class AdaptivePartitioning:
    """Keeps the topics' shares up to date.

    ``availability_timeout`` is in seconds; 0 avoids no node. A node that accepted no request for that long while
    batches were ready for it is avoided until it accepts one: its partitions with batches waiting get no records
    without a key.
    """

    def __init__(self, accumulator: Accumulator, availability_timeout: float) -> None:
        self._accumulator = accumulator
        self._timeout = availability_timeout
        self._avoided_from: dict[int, float] = {}  # nodes that accept no request while batches wait
        self._avoided: set[int] = set()

    def update(self, now: float, stuck: Collection[int], cluster: Cluster) -> None:
        """*stuck* are the nodes that cannot accept what is ready for them."""
        for topic in self._accumulator.take_changed_topics(all_topics=self._follow(now, stuck)):
            backlogs = self._backlogs(topic)
            self._accumulator.set_shares(topic, shares(len(topic.available), backlogs, self._avoided_of(topic, backlogs, cluster)))

    def next_deadline(self) -> float | None:
        """When the next node will be avoided."""
        if not self._avoided_from:
            return None
        return earliest(*[moment for node, moment in self._avoided_from.items() if node not in self._avoided])

    def _follow(self, now: float, stuck: Collection[int]) -> bool:
        """Whether the set of avoided nodes has changed."""
        if not self._timeout:
            return False
        self._avoided_from = {node: self._avoided_from.get(node, now + self._timeout) for node in stuck}
        before, self._avoided = self._avoided, {node for node, moment in self._avoided_from.items() if moment <= now}
        return before != self._avoided

    def _backlogs(self, topic: TopicQueues) -> list[tuple[int, int]]:
        """(position among the candidates, batches) of those with batches; no leader: no candidate."""
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
