"""Sticky assignment for unequal subscriptions: as balanced as the subscriptions allow, with as few moves as that takes.

Members keep their partitions, and free partitions go to the subscriber with the fewest. Then partitions move, one by
one, while a member has at least two more than another subscriber of the topic. If all moves together did not improve
the balance, they are undone.
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
MAX_IDLE_ROUNDS: Final = 10
"""How many rounds of moves may go without an improvement.

Moves that undo others (`Movements.preferred`) could go on forever.
"""
Owners: TypeAlias = dict[TopicPartition, str]


class Balance:
    """One assignment; `build` returns it, once."""

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
        self._last_heap = _LoadHeap((), self._loads, self._rank, {})

    def build(self, *, moving: bool = True) -> Shares:
        """Assign every partition to one subscriber of its topic; without *moving*, assign only free partitions."""
        everything_kept = self._keep()
        free = [partition for partition in self._partitions if partition not in self._owners]
        self._assign(free)
        self._balance(free, everything_kept=everything_kept or not moving, moving=moving)
        shares: Shares = {member: [] for member in self._members}
        for partition, member in self._owners.items():
            shares[member].append(partition)
        return shares

    def _balance(self, free: list[TopicPartition], *, everything_kept: bool, moving: bool) -> None:
        """Move partitions until none should move; undo all moves if they did not improve the balance."""
        before, imbalance = dict(self._owners), self._imbalance()
        if everything_kept:
            # A member should rather lose a partition that it has not begun to read.
            self._move_while_better(self._movable(free))
        if moving:
            self._move_while_better(self._movable(self._partitions))
        if self._imbalance() >= imbalance:
            self._owners = before

    def _fewest_subscribers(self, topic: str) -> tuple[int, str]:
        return len(self._subscribers.of(topic)), topic

    def _movable(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that could move to another member."""
        return [partition for partition in partitions if len(self._subscribers.of(partition.topic)) > 1]

    # ── assigning ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _keep(self) -> bool:
        """Let members keep their partitions, except of topics they no longer subscribe to and in other racks; whether
        they keep all.
        """
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

    def _assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Assign to the subscriber with the fewest partitions; if racks count, first to the one with the fewest in a
        rack of the partition.
        """
        if self._racks.used:
            partitions = self._assign_to_least(partitions, near=True)
        self._assign_to_least(partitions, near=False)

    def _assign_to_least(self, partitions: Iterable[TopicPartition], *, near: bool) -> list[TopicPartition]:
        """Assign *partitions*; returns those without a subscriber in one of their racks."""
        rest = []
        for topic, several in groupby(partitions, key=BY_TOPIC):
            heap = self._heap(topic)
            for partition in several:
                member = heap.least_near(self._racks.of(partition)) if near else heap.least()
                if member is None:
                    rest.append(partition)
                else:
                    self._owners[partition] = member
                    self._loads[member] += 1
                    heap.changed(member)
        return rest

    def _heap(self, topic: str) -> _LoadHeap:
        """The subscribers of *topic* by load.

        Only their loads change while a topic is handled, so the last heap stays correct.
        """
        members = self._subscribers.of(topic)
        if self._last_heap.members is not members:
            self._last_heap = _LoadHeap(members, self._loads, self._rank, self._racks.of_member)
        return self._last_heap

    # ── balancing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _move_while_better(self, partitions: Sequence[TopicPartition]) -> None:
        """Move *partitions* until no move improves the balance."""
        idle_rounds_left, least = MAX_IDLE_ROUNDS, self._imbalance()
        while idle_rounds_left and self._round(partitions):
            imbalance = self._imbalance()
            idle_rounds_left = MAX_IDLE_ROUNDS if imbalance < least else idle_rounds_left - 1
            least = min(least, imbalance)

    def _imbalance(self) -> int:
        """A number that every move to a member with at least two partitions fewer reduces."""
        return sum(load * load for load in self._loads.values())

    def _round(self, partitions: Iterable[TopicPartition]) -> bool:
        any_moved = False
        for topic, several in groupby(partitions, key=BY_TOPIC):
            heap = self._heap(topic)
            for partition in several:
                target = self._better_owner(partition, heap)
                if target is not None:
                    self._move(partition, target, heap)
                    any_moved = True
        return any_moved

    def _better_owner(self, partition: TopicPartition, heap: _LoadHeap) -> str | None:
        """A subscriber with at least two partitions fewer: the owner of an earlier generation, else the one with the
        fewest.
        """
        most = self._loads[self._owners[partition]] - 2
        earlier = self._earlier.get(partition)
        if earlier is not None and self._loads[earlier] <= most and partition.topic in self._members[earlier].topics:
            return earlier
        least = heap.least()
        return least if least is not None and self._loads[least] <= most else None

    def _move(self, partition: TopicPartition, target: str, heap: _LoadHeap) -> None:
        """Move the partition to *target*, or one of the same topic that had come from there."""
        moving = self._movements.preferred(partition, self._owners[partition], target)
        source = self._owners[moving]
        self._movements.moved(moving, source, target)
        self._owners[moving] = target
        self._loads[source] -= 1
        self._loads[target] += 1
        heap.changed(source)
        heap.changed(target)


class _LoadHeap:
    """Some members by rack and by load, the least loaded first; among equals by id."""

    def __init__(self, members: tuple[str, ...], loads: Mapping[str, int], rank: Mapping[str, int], rack_of: Mapping[str, str]) -> None:
        self.members = members
        self._loads = loads
        self._rank = rank
        self._rack_of = rack_of
        self._heaps: dict[str | None, list[tuple[int, int, str]]] = defaultdict(list)
        for member in members:
            self.changed(member)

    def changed(self, member: str) -> None:
        """*member* has another load now. Its outdated entries are skipped later."""
        heappush(self._heaps[self._rack_of.get(member)], (self._loads[member], self._rank[member], member))

    def least(self) -> str | None:
        """The member with the fewest partitions."""
        return self._least_of(self._heaps)

    def least_near(self, racks: frozenset[str]) -> str | None:
        """The member with the fewest partitions of those in *racks* or without a rack."""
        return self._least_of(rack for rack in (*racks, None) if rack in self._heaps)

    def _least_of(self, racks: Iterable[str | None]) -> str | None:
        heads = [head for rack in racks if (head := self._head(self._heaps[rack]))]
        return min(heads)[2] if heads else None

    def _head(self, heap: list[tuple[int, int, str]]) -> tuple[int, int, str] | None:
        while heap and heap[0][0] != self._loads[heap[0][2]]:
            heappop(heap)
        return heap[0] if heap else None
