"""Round robin: all partitions of all topics in one row, one to each member in turn."""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from pyclient.assignors.group import Subscribers, assignments, in_turn, wanted_topics
from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.records import TopicPartition


class RoundRobinAssignor:
    """Partitions by topic and number, one to each member in turn; who does not want the topic is passed over."""

    name: str = "roundrobin"
    protocols: Sequence[str] = ("eager",)

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """Members take as many as each other, give or take one, when all want the same topics."""
        turns = in_turn(members)
        turn_of = {member: turn for turn, member in enumerate(turns)}
        subscribers = Subscribers(members, turns)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in turns}
        turn = 0
        for topic, partitions in wanted_topics(cluster, members).items():
            takers = subscribers.of(topic)
            for each in partitions:
                taker = takers[bisect_left(takers, turn, key=turn_of.__getitem__) % len(takers)]
                shares[taker].append(TopicPartition(topic, each.partition))
                turn = turn_of[taker] + 1
        return assignments(shares)
