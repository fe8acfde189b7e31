"""Range: each topic is divided separately, into one range of partitions for each subscriber.

Topics with the same subscribers and number of partitions are co-partitioned: a member gets the same partition numbers
of each, as joins by key require. Racks are matched first (KIP-881), as far as neither co-partitioning nor the balance
suffers.
"""
from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from pyclient.assignors.group import Subscribers, assignments, in_member_order, subscribed_topics
from pyclient.assignors.racks import racks_of_members, worth_matching
from pyclient.descriptions.topics import PartitionDescription
from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.records import TopicPartition


class RangeAssignor:
    """A range of each topic's partitions for each subscriber, in order; if they do not divide evenly, the first members
    get one more.
    """

    name: str = "range"
    protocols: Sequence[str] = ("eager",)

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """Of each topic members get equally many partitions, plus or minus one; over several topics the first members
        may get more.
        """
        subscribers = Subscribers(members, in_member_order(members))
        rack_of = racks_of_members(members)
        topics = [_Topic(name, partitions, subscribers.of(name), rack_of, cluster) for name, partitions in subscribed_topics(cluster, members).items()]
        if any(topic.rack_aware for topic in topics):
            _match_racks(topics)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic in topics:
            topic.assign()
            for member, numbers in topic.given.items():
                shares[member] += [TopicPartition(topic.name, number) for number in numbers]
        return assignments(shares)


class _Topic:
    """A topic that is being assigned: its subscribers, the partitions left, and how many more each member may get."""

    def __init__(
        self, name: str, partitions: Sequence[PartitionDescription], members: tuple[str, ...], rack_of: Mapping[str, str], cluster: ClusterView,
    ) -> None:
        self.name = name
        self.members = members
        self.numbers = [each.partition for each in partitions]
        self.given: dict[str, list[int]] = {}
        self.rack_of = rack_of
        member_racks = {rack for member in members if (rack := rack_of.get(member))} if rack_of else set()
        self.racks = {each.partition: cluster.racks(each) for each in partitions} if member_racks else {}
        self.rack_aware = worth_matching(member_racks, self.racks.values())
        self._left = dict.fromkeys(self.numbers)
        # _larger: how many members may still get one more.
        self._least, self._larger = divmod(len(self.numbers), len(members))

    def room(self, member: str) -> int:
        """How many more partitions *member* may get."""
        return max(0, self._least + (self._larger > 0) - len(self.given.get(member, ())))

    def give(self, member: str, numbers: Sequence[int]) -> None:
        """Assign partitions *numbers* to *member*, not more than it has room for."""
        if not numbers:
            return
        mine = self.given.setdefault(member, [])
        mine += numbers
        for number in numbers:
            del self._left[number]
        if len(mine) > self._least:
            self._larger -= 1

    def assign(self, *, by_rack: bool = False) -> None:
        """Assign each member the next partitions left; *by_rack* only those in its own rack, if it has one."""
        rows: dict[str | None, Iterator[int]] = {}
        for member in self.members:
            if not self._left:
                return
            rack = self.rack_of.get(member) if by_rack else None
            if rack not in rows:
                rows[rack] = iter([number for number in self._left if rack is None or rack in self.racks[number]])
            self.give(member, list(islice(self._still_left(rows[rack]), self.room(member))))

    def _still_left(self, row: Iterator[int]) -> Iterator[int]:
        return (number for number in row if number in self._left)


def _match_racks(topics: Sequence[_Topic]) -> None:
    """Assign partitions that can be read within a rack; co-partitioned topics stay co-partitioned."""
    co_partitioned: dict[tuple[tuple[str, ...], int], list[_Topic]] = defaultdict(list)
    for topic in topics:
        co_partitioned[topic.members, len(topic.numbers)].append(topic)
    for several in co_partitioned.values():
        if len(several) > 1 and several[0].racks:
            _match_co_partitioned(several)
        elif several[0].rack_aware:
            several[0].assign(by_rack=True)


def _match_co_partitioned(topics: Sequence[_Topic]) -> None:
    """Assign each number to the first member that has room and has that partition of every topic in its rack."""
    first = topics[0]  # the others have the same room
    queues: dict[str | None, deque[tuple[int, str]]] = defaultdict(deque)
    for turn, member in enumerate(first.members):
        queues[first.rack_of.get(member)].append((turn, member))
    for numbers in zip(*(topic.numbers for topic in topics), strict=True):
        common = frozenset.intersection(*(topic.racks[number] for topic, number in zip(topics, numbers, strict=True)))
        waiting = [queue[0] for rack in (*common, None) if (queue := _with_room(queues[rack], first))]
        if waiting:
            _turn, member = min(waiting)
            for topic, number in zip(topics, numbers, strict=True):
                topic.give(member, [number])


def _with_room(queue: deque[tuple[int, str]], topic: _Topic) -> deque[tuple[int, str]]:
    """*queue* without members at its head that have no room left."""
    while queue and not topic.room(queue[0][1]):
        queue.popleft()
    return queue
