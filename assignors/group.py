"""The input of an assignment: members in order, the partitions of each topic, and its subscribers.

Odd input is cleaned here: topics that do not exist, topics named twice, members without a subscription. Assigns
nothing.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from pyclient.assignors.javas_order import text_key
from pyclient.descriptions.topics import PartitionDescription
from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.records import TopicPartition

Members: TypeAlias = Mapping[str, MemberView]
Topics: TypeAlias = Mapping[str, Sequence[PartitionDescription]]


def in_member_order(members: Members) -> list[str]:
    """Member ids in the order of range and round robin: static members by instance id, then the others by member id
    (KIP-345).
    """
    return sorted(members, key=lambda member: (*_rank(member, members[member]), text_key(member)))


def _rank(member: str, view: MemberView) -> tuple[bool, bytes]:
    return view.instance_id is None, text_key(member if view.instance_id is None else view.instance_id)


def subscribed_topics(cluster: ClusterView, members: Members) -> dict[str, list[PartitionDescription]]:
    """The topics that have subscribers and partitions, sorted by name; their partitions sorted by number."""
    # Most members subscribe to the same topics: few sets to unite.
    wanted = set[str]().union(*{view.topics for view in members.values()})
    return {
        topic: sorted(cluster.topics[topic], key=lambda each: each.partition) for topic in sorted(wanted) if cluster.topics.get(topic)
    }


def same_subscriptions(members: Members) -> bool:
    """Whether all members subscribe to the same topics, existing or not."""
    return len({frozenset(topics) for topics in {view.topics for view in members.values()}}) == 1


class Subscribers:
    """The subscribers of each topic, in the order of *turns*.

    Topics with the same subscribers get the identical tuple.
    """

    def __init__(self, members: Members, turns: Sequence[str]) -> None:
        self._turn = {member: turn for turn, member in enumerate(turns)}
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for member in turns:
            alike[members[member].topics].append(member)
        self._alike = list(alike.values())
        self._of_topic: dict[str, list[int]] = defaultdict(list)  # indices in _alike
        for index, topics in enumerate(alike):
            for topic in dict.fromkeys(topics):
                self._of_topic[topic].append(index)
        self._found: dict[tuple[int, ...], tuple[str, ...]] = {}

    def of(self, topic: str) -> tuple[str, ...]:
        """The subscribers of *topic*, which must have one."""
        key = tuple(self._of_topic[topic])
        found = self._found.get(key)
        if found is None:
            several = (member for index in key for member in self._alike[index])
            found = self._found[key] = tuple(sorted(several, key=self._turn.__getitem__))
        return found


def assignments(shares: Mapping[str, Iterable[TopicPartition]]) -> dict[str, Assignment]:
    """The assignments without user data, partitions sorted."""
    return {member: Assignment(tuple(sorted(partitions))) for member, partitions in shares.items()}
