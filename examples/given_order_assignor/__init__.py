"""Partitions assigned in a given order: a user's plugin for pyclient.

The partitions of a topic are seldom equally busy. The order names them, busiest first. They go to the members in turn,
so that no member gets two of the busiest while another has none.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.records import TopicPartition

__all__ = ["BUSIEST_FIRST", "GivenOrderAssignor"]

BUSIEST_FIRST = (5, 3, 0, 8, 2, 1, 4, 7, 6, 9)


class GivenOrderAssignor:
    """Round robin over the members by id; of every topic first the partitions in the given order, then all others."""

    name = "given-order"  # all members of a group must have this assignor
    protocols = ("eager",)  # all members give up all partitions before a new assignment

    def __init__(self, order: Sequence[int] = BUSIEST_FIRST) -> None:
        self._places = {partition: place for place, partition in enumerate(order)}

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """Called by the group's leader for all members."""
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
        turns = list(assigned)  # the next member is first
        for topic in sorted(cluster.topics):
            for partition in self._in_order(each.partition for each in cluster.topics[topic]):
                taker = next((member for member in turns if topic in members[member].topics), None)
                if taker is not None:
                    assigned[taker].append(TopicPartition(topic, partition))
                    after = turns.index(taker) + 1
                    turns = turns[after:] + turns[:after]
        return {member: Assignment(tuple(partitions)) for member, partitions in assigned.items()}

    def _in_order(self, partitions: Iterable[int]) -> list[int]:
        return sorted(partitions, key=lambda partition: (self._places.get(partition, len(self._places)), partition))
