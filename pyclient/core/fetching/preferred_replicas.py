# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Which replica is read instead of the leader, because it is nearer (KIP-392, C09).

Knows leases, unreachable nodes and replicas that are in doubt; does not fetch. A lease ends with its time, an error,
another leader, or when the replica goes offline; then the leader is read again, and may name the same one.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pyclient.core.cluster import Cluster
from pyclient.records import TopicPartition

REACH_LIMIT: Final = 3.0
"""Seconds a replica may be out of reach before its partitions are read from their leaders."""


class Lease(NamedTuple):
    """A replica that the leader of an epoch named, until when it may be read."""

    until: float
    leader: int
    leader_epoch: int


class PreferredReplicas:
    """The leases of all partitions. *lease* is their length in seconds, *rack* is the client's rack for brokers."""

    def __init__(self, rack: str, lease: float) -> None:
        self._rack = rack
        self._lease = lease
        self._at: dict[TopicPartition, int] = {}
        self._leases: dict[int, dict[TopicPartition, Lease]] = {}  # by replica, the oldest first
        self._missed: dict[int, float] = {}  # since when a replica cannot be reached
        self._alone_until = 0.0
        self._doubted: dict[TopicPartition, float] = {}  # until when

    def __len__(self) -> int:
        return len(self._at)

    def rack(self, now: float) -> str:
        """The client's rack. Empty while leaders would name a replica that is in doubt or cannot be reached: then they
        serve us."""
        return "" if now < self._alone_until or self._doubted else self._rack

    def of(self, tp: TopicPartition) -> int | None:
        """The replica to read instead of the leader."""
        return self._at.get(tp)

    def begin(self, tp: TopicPartition, replica: int, cluster: Cluster, now: float) -> bool:
        """The leader names this replica. False when it is unknown or offline."""
        self.end(tp)
        known = cluster.partition(tp)
        if known is None or known.leader is None or replica not in cluster.nodes or replica in known.offline:
            return False
        if replica != known.leader:
            self._at[tp] = replica
            self._leases.setdefault(replica, {})[tp] = Lease(now + self._lease, known.leader, known.epoch)
        return True

    def end(self, tp: TopicPartition) -> None:
        """Read from the leader again."""
        replica = self._at.pop(tp, None)
        if replica is None:
            return
        leases = self._leases[replica]
        del leases[tp]
        if not leases:
            del self._leases[replica]
            self._missed.pop(replica, None)

    # ---- doubts: a replica's log may be behind its leader's, or cut, so it may be wrong about our position ----------

    def doubt(self, tp: TopicPartition, now: float) -> None:
        """Ask the leader, without our rack: else it might name the same replica, which would say the same."""
        self.end(tp)
        self._doubted[tp] = now + self._lease

    def settle(self, tp: TopicPartition) -> None:
        """The leader has answered."""
        if self._doubted:
            self._doubted.pop(tp, None)

    # ---- leases that end: each method returns the partitions to read from their leaders again ----------------------

    def expire(self, now: float) -> list[TopicPartition]:
        """Leases whose time is over. Doubts end, too: a partition may be paused, and its leader is not asked."""
        if self._doubted:
            self._doubted = {tp: until for tp, until in self._doubted.items() if now < until}
        if not self._leases:
            return []
        return self._ended([tp for leases in self._leases.values() for tp in _over(leases, now)])

    def follow(self, cluster: Cluster) -> list[TopicPartition]:
        """Leases of leaders that are none any more, or to replicas that went offline."""
        return self._ended([tp for replica, leases in self._leases.items() for tp, lease in leases.items()
                            if not _holds(cluster, tp, replica, lease)])

    def give_up(self, now: float) -> list[TopicPartition]:
        """Leases to replicas out of reach for too long.

        Leaders that reach them would name them again, so the rack is left out for a while.
        """
        if not self._missed:
            return []
        lost = [replica for replica, since in self._missed.items() if now >= since + REACH_LIMIT]
        if lost:
            self._alone_until = now + self._lease
        return self._ended([tp for replica in lost for tp in self._leases[replica]])

    def _ended(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        for tp in partitions:
            self.end(tp)
        return partitions

    # ---- reachability -----------------------------------------------------------------------------------------------

    def reached(self, node: int, ready: bool, now: float) -> None:
        """Whether a request could be written to a node just now."""
        if ready:
            if self._missed:
                self._missed.pop(node, None)
        elif node in self._leases:
            self._missed.setdefault(node, now)

    def next_deadline(self) -> float | None:
        """When the next one is given up."""
        return min(self._missed.values()) + REACH_LIMIT if self._missed else None


def _over(leases: dict[TopicPartition, Lease], now: float) -> Iterator[TopicPartition]:
    for tp, lease in leases.items():
        if now < lease.until:
            return
        yield tp


def _holds(cluster: Cluster, tp: TopicPartition, replica: int, lease: Lease) -> bool:
    known = cluster.partition(tp)
    return (known is not None and (known.leader, known.epoch) == (lease.leader, lease.leader_epoch)
            and replica in cluster.nodes and replica not in known.offline)
