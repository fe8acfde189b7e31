"""Whether a member can read a partition within its own rack, and whether racks make a difference (KIP-881).

All replicas count, also those that are offline or out of sync: they are expected to return, and groups do not rebalance
for them.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from pyclient.assignors.group import Members, Topics
from pyclient.plugins import ClusterView
from pyclient.records import TopicPartition


def worth_matching(member_racks: Collection[str], partition_racks: Collection[frozenset[str]]) -> bool:
    """Whether some member shares a rack with some partition, and not every partition is in all racks."""
    everywhere = frozenset[str]().union(*partition_racks)
    return not everywhere.isdisjoint(member_racks) and any(racks != everywhere for racks in partition_racks)


def racks_of_members(members: Members) -> dict[str, str]:
    """The members with a rack, and their racks."""
    return {member: view.rack for member, view in members.items() if view.rack}


class Racks:
    """The racks of a group; no member has one if racks make no difference."""

    def __init__(self, cluster: ClusterView, members: Members, topics: Topics) -> None:
        self.of_member = racks_of_members(members)
        self._of_partition = {
            TopicPartition(topic, each.partition): cluster.racks(each) for topic, partitions in topics.items() for each in partitions
        } if self.of_member else {}
        self.used = worth_matching(set(self.of_member.values()), self._of_partition.values())
        if not self.used:
            self.of_member = {}
        self._members_in = Counter(self.of_member.values())

    def of(self, partition: TopicPartition) -> frozenset[str]:
        """The racks with a replica of *partition*."""
        return self._of_partition[partition]

    def match(self, member: str, partition: TopicPartition) -> bool:
        """Whether *member* has no rack, or *partition* has a replica in it."""
        rack = self.of_member.get(member)
        return rack is None or rack in self._of_partition[partition]

    def members_near(self, partition: TopicPartition) -> int:
        """How many members share a rack with *partition*."""
        return sum(self._members_in[rack] for rack in self._of_partition[partition])
