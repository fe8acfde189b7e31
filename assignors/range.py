"""Range: each topic by itself, cut into as many ranges as it has members.

Topics with as many partitions and the same members are cut alike, so that a member gets the same numbers of each: who joins topics by key
counts on that. Racks are matched first where they can be (KIP-881), as far as neither that nor the balance suffers.
"""
from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from pyclient.assignors.group import Subscribers, assignments, in_turn, wanted_topics
from pyclient.assignors.racks import racks_of_members, worth_matching
from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.records import PartitionDescription, TopicPartition


class RangeAssignor:
    """Each topic's partitions in ranges, one for each of its members in order; the first ones get one more if it does not divide."""

    name: str = "range"
    protocols: Sequence[str] = ("eager",)

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """Members take as many of a topic as each other, give or take one; over several topics the first ones may have more."""
        subscribers = Subscribers(members, in_turn(members))
        rack_of = racks_of_members(members)
        topics = [_Topic(name, partitions, subscribers.of(name), rack_of, cluster) for name, partitions in wanted_topics(cluster, members).items()]
        if any(topic.rack_aware for topic in topics):
            _match_racks(topics)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic in topics:
            topic.share_out()
            for member, numbers in topic.given.items():
                shares[member] += [TopicPartition(topic.name, number) for number in numbers]
        return assignments(shares)


class _Topic:
    """A topic that is being shared out: who takes part, what is left, and how many more each may take."""

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
        self._least, self._larger = divmod(len(self.numbers), len(members))  # _larger: how many may still take one more

    def room(self, member: str) -> int:
        """How many more *member* may take."""
        return max(0, self._least + (self._larger > 0) - len(self.given.get(member, ())))

    def give(self, member: str, numbers: Sequence[int]) -> None:
        """These are no longer left; no more than there is room."""
        if not numbers:
            return
        mine = self.given.setdefault(member, [])
        mine += numbers
        for number in numbers:
            del self._left[number]
        if len(mine) > self._least:
            self._larger -= 1

    def share_out(self, *, by_rack: bool = False) -> None:
        """To each member the next that are left; *by_rack* only of its own rack, if it has one."""
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
    """Give out what can be read within a rack; what is cut alike stays so."""
    alike: dict[tuple[tuple[str, ...], int], list[_Topic]] = defaultdict(list)
    for topic in topics:
        alike[topic.members, len(topic.numbers)].append(topic)
    for several in alike.values():
        if len(several) > 1 and several[0].racks:
            _match_together(several)
        elif several[0].rack_aware:
            several[0].share_out(by_rack=True)


def _match_together(topics: Sequence[_Topic]) -> None:
    """Each number to the first member that has room and finds that number of every topic in its rack."""
    first = topics[0]  # there is as much room in each of the others
    lines: dict[str | None, deque[tuple[int, str]]] = defaultdict(deque)
    for turn, member in enumerate(first.members):
        lines[first.rack_of.get(member)].append((turn, member))
    for numbers in zip(*(topic.numbers for topic in topics), strict=True):
        common = frozenset.intersection(*(topic.racks[number] for topic, number in zip(topics, numbers, strict=True)))
        waiting = [line[0] for rack in (*common, None) if (line := _with_room(lines[rack], first))]
        if waiting:
            _turn, member = min(waiting)
            for topic, number in zip(topics, numbers, strict=True):
                topic.give(member, [number])


def _with_room(line: deque[tuple[int, str]], topic: _Topic) -> deque[tuple[int, str]]:
    """*line* without those at its head that may take no more: they never will."""
    while line and not topic.room(line[0][1]):
        line.popleft()
    return line
