"""Round robin: all partitions of all topics in one sequence, one to each member in turn."""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from pyclient.assignors.group import Subscribers, assignments, in_member_order, subscribed_topics
from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.records import TopicPartition


class RoundRobinAssignor:
    """All partitions by topic and number, one to each member in turn; members that do not subscribe to the topic are
    skipped.
    """

    name: str = "roundrobin"
    protocols: Sequence[str] = ("eager",)

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """With equal subscriptions, members get equally many partitions, plus or minus one."""
        turns = in_member_order(members)
        turn_of = {member: turn for turn, member in enumerate(turns)}
        subscribers = Subscribers(members, turns)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in turns}
        turn = 0
        for topic, partitions in subscribed_topics(cluster, members).items():
            candidates = subscribers.of(topic)
            for each in partitions:
                member = candidates[bisect_left(candidates, turn, key=turn_of.__getitem__) % len(candidates)]
                shares[member].append(TopicPartition(topic, each.partition))
                turn = turn_of[member] + 1
        return assignments(shares)
