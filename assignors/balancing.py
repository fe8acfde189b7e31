"""Sticky shares for members that want different topics: as even as their wishes allow, with as little moved as that takes.

Each keeps what it had. What is free goes to whoever has least; then partitions move, one by one, from members that have more than one
more than somebody else who wants the topic, until none does. If all that moving made nothing more even, it is taken back.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, groupby
from operator import itemgetter
from typing import Final, TypeAlias

from pyclient.assignors.group import Members, Subscribers
from pyclient.assignors.javas_order import text_key
from pyclient.assignors.movements import Movements
from pyclient.assignors.ownership import Shares
from pyclient.assignors.racks import Racks
from pyclient.records import TopicPartition

BY_TOPIC: Final = itemgetter(0)
PATIENCE: Final = 10
"""Rounds of moves that may make nothing more even. Moves that undo others (`Movements.better`) can, and might then go on for ever."""
Owners: TypeAlias = dict[TopicPartition, str]


class Balance:
    """One sharing out; `made` gives it, once."""

    def __init__(
        self, members: Members, topics: Mapping[str, Sequence[TopicPartition]], owned: Mapping[str, Iterable[TopicPartition]],
        earlier: Mapping[TopicPartition, str], racks: Racks,
    ) -> None:
        by_id = sorted(members, key=text_key)
        self._members = members
        self._rank = {member: rank for rank, member in enumerate(by_id)}
        self._subscribers = Subscribers(members, by_id)
        self._owned = owned
        self._earlier = earlier
        self._racks = racks
        self._partitions = list(chain.from_iterable(topics[topic] for topic in sorted(topics, key=self._fewest_subscribers)))
        self._owners: Owners = {}
        self._loads = dict.fromkeys(members, 0)
        self._movements = Movements()
        self._last_line = _Line((), self._loads, self._rank, {})

    def made(self, *, moving: bool = True) -> Shares:
        """Every partition given to one member that wants its topic; without *moving*, only of what is free."""
        everything_kept = self._keep()
        free = [partition for partition in self._partitions if partition not in self._owners]
        self._give(free)
        self._level(free, everything_kept=everything_kept or not moving, moving=moving)
        shares: Shares = {member: [] for member in self._members}
        for partition, member in self._owners.items():
            shares[member].append(partition)
        return shares

    def _level(self, free: list[TopicPartition], *, everything_kept: bool, moving: bool) -> None:
        """Until nobody has more than one more than somebody else who wants the topic; if that makes nothing more even, it is taken back."""
        before, unevenness = dict(self._owners), self._unevenness()
        if everything_kept:
            self._even_out(self._shared(free))  # who is to lose something should lose what it has not begun to read
        if moving:
            self._even_out(self._shared(self._partitions))
        if self._unevenness() >= unevenness:
            self._owners = before

    def _fewest_subscribers(self, topic: str) -> tuple[int, str]:
        return len(self._subscribers.of(topic)), topic

    def _shared(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that could go to another member."""
        return [partition for partition in partitions if len(self._subscribers.of(partition.topic)) > 1]

    # ── giving ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _keep(self) -> bool:
        """Let members have what they had, but for topics they do not want now and partitions in other racks; whether that was all."""
        all_kept = True
        for member, partitions in self._owned.items():
            wanted = set(self._members[member].topics)
            for partition in partitions:
                if partition.topic in wanted and self._racks.match(member, partition):
                    self._owners[partition] = member
                    self._loads[member] += 1
                else:
                    all_kept = False
        return all_kept

    def _give(self, partitions: Sequence[TopicPartition]) -> None:
        """To whoever has least; where racks count, first to whoever has least of those near the partition."""
        if self._racks.used:
            partitions = self._given(partitions, near=True)
        self._given(partitions, near=False)

    def _given(self, partitions: Iterable[TopicPartition], *, near: bool) -> list[TopicPartition]:
        """Give out *partitions*; returns those that no member is near."""
        rest = []
        for topic, several in groupby(partitions, key=BY_TOPIC):
            line = self._line(topic)
            for partition in several:
                member = line.least_near(self._racks.of(partition)) if near else line.least()
                if member is None:
                    rest.append(partition)
                else:
                    self._owners[partition] = member
                    self._loads[member] += 1
                    line.changed(member)
        return rest

    def _line(self, topic: str) -> _Line:
        """The subscribers of *topic*. All loads that change while a topic is looked at are theirs, so the last line is still right."""
        members = self._subscribers.of(topic)
        if self._last_line.members is not members:
            self._last_line = _Line(members, self._loads, self._rank, self._racks.of_member)
        return self._last_line

    # ── evening out ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _even_out(self, partitions: Sequence[TopicPartition]) -> None:
        """Move *partitions* until no move helps."""
        patience, least = PATIENCE, self._unevenness()
        while patience and self._round(partitions):
            unevenness = self._unevenness()
            patience = PATIENCE if unevenness < least else patience - 1
            least = min(least, unevenness)

    def _unevenness(self) -> int:
        """Every move to a member that has less by two or more lowers it."""
        return sum(load * load for load in self._loads.values())

    def _round(self, partitions: Iterable[TopicPartition]) -> bool:
        any_moved = False
        for topic, several in groupby(partitions, key=BY_TOPIC):
            line = self._line(topic)
            for partition in several:
                target = self._better_owner(partition, line)
                if target is not None:
                    self._move(partition, target, line)
                    any_moved = True
        return any_moved

    def _better_owner(self, partition: TopicPartition, line: _Line) -> str | None:
        """Who has less by two or more: its owner of an earlier generation, else whoever has least."""
        most = self._loads[self._owners[partition]] - 2
        earlier = self._earlier.get(partition)
        if earlier is not None and self._loads[earlier] <= most and partition.topic in self._members[earlier].topics:
            return earlier
        least = line.least()
        return least if least is not None and self._loads[least] <= most else None

    def _move(self, partition: TopicPartition, target: str, line: _Line) -> None:
        """Give *target* the partition, or one of the topic that had come from there."""
        moving = self._movements.better(partition, self._owners[partition], target)
        source = self._owners[moving]
        self._movements.moved(moving, source, target)
        self._owners[moving] = target
        self._loads[source] -= 1
        self._loads[target] += 1
        line.changed(source)
        line.changed(target)


class _Line:
    """Some members by their load, the least loaded first, by rack; among equals by id."""

    def __init__(self, members: tuple[str, ...], loads: Mapping[str, int], rank: Mapping[str, int], rack_of: Mapping[str, str]) -> None:
        self.members = members
        self._loads = loads
        self._rank = rank
        self._rack_of = rack_of
        self._heaps: dict[str | None, list[tuple[int, int, str]]] = defaultdict(list)
        for member in members:
            self.changed(member)

    def changed(self, member: str) -> None:
        """*member* has another load now. What was entered before is passed over when it is met."""
        heappush(self._heaps[self._rack_of.get(member)], (self._loads[member], self._rank[member], member))

    def least(self) -> str | None:
        """Who has least."""
        return self._least_of(self._heaps)

    def least_near(self, racks: frozenset[str]) -> str | None:
        """Who has least of those in *racks*, or in none."""
        return self._least_of(rack for rack in (*racks, None) if rack in self._heaps)

    def _least_of(self, racks: Iterable[str | None]) -> str | None:
        heads = [head for rack in racks if (head := self._head(self._heaps[rack]))]
        return min(heads)[2] if heads else None

    def _head(self, heap: list[tuple[int, int, str]]) -> tuple[int, int, str] | None:
        while heap and heap[0][0] != self._loads[heap[0][2]]:
            heappop(heap)
        return heap[0] if heap else None
