"""Partitions dealt out in an order of one's own: a user's plugin for pyclient.

The partitions of a topic are seldom equally busy. Who knows which are the busy ones names them in that order, the busiest first; they
go round the members in turn, so that no member gets two of the busiest while another has none.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.records import TopicPartition

__all__ = ["BUSIEST_FIRST", "GivenOrderAssignor"]

BUSIEST_FIRST = (5, 3, 0, 8, 2, 1, 4, 7, 6, 9)


class GivenOrderAssignor:
    """Round robin over the members by their ids; of every topic the partitions in the given order, then all others."""

    name = "given-order"  # what the members of a group agree on: all of them must have it
    protocols = ("eager",)  # everybody gives up all partitions before they are dealt out anew

    def __init__(self, order: Sequence[int] = BUSIEST_FIRST) -> None:
        self._places = {partition: place for place, partition in enumerate(order)}

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """The group's leader calls this, for all members."""
        dealt: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
        line = list(dealt)  # whose turn it is stands first
        for topic in sorted(cluster.topics):
            for partition in self._in_order(each.partition for each in cluster.topics[topic]):
                taker = next((member for member in line if topic in members[member].topics), None)
                if taker is not None:
                    dealt[taker].append(TopicPartition(topic, partition))
                    turn = line.index(taker) + 1
                    line = line[turn:] + line[:turn]
        return {member: Assignment(tuple(partitions)) for member, partitions in dealt.items()}

    def _in_order(self, partitions: Iterable[int]) -> list[int]:
        return sorted(partitions, key=lambda partition: (self._places.get(partition, len(self._places)), partition))
