"""Sticky assignment for equal subscriptions: each member keeps its partitions up to its quota, the rest is assigned in
turn.

Every member ends with ``low`` partitions, and ``extra`` members with one more. Racks are matched as far as the quotas
allow: a member does not keep partitions outside its rack, and a free partition goes to a member in one of its racks
first.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final

from pyclient.assignors.javas_order import text_key
from pyclient.assignors.ownership import Shares
from pyclient.assignors.racks import Racks
from pyclient.records import TopicPartition

BY_NUMBER: Final = itemgetter(1, 0)
"""A member over its quota gives up high partition numbers first, of any topic."""


class EqualShares:
    """One assignment; `build` returns it, once.

    If more members could keep ``low`` + 1 partitions than may, the first of *members* do.
    """

    def __init__(self, members: Sequence[str], partitions: Sequence[TopicPartition], owned: Mapping[str, Iterable[TopicPartition]], racks: Racks) -> None:
        self._partitions = partitions
        self._owned = owned
        self._racks = racks
        self._shares: Shares = {member: [] for member in members}
        self._low, self._extra = divmod(len(partitions), len(members))
        self._full = 0  # members with more than low; in the end equal to extra
        self._below: list[str] = []  # members with less than low
        self._ready: list[str] = []  # members with exactly low, which may get one more

    def build(self) -> Shares:
        """Assign every partition to one member."""
        for member in self._shares:
            self._keep(member)
        kept = set(chain.from_iterable(self._shares.values()))
        left = [partition for partition in self._partitions if partition not in kept]
        self._below.sort(key=text_key)
        self._ready.sort(key=text_key)
        if self._racks.used:
            left = self._assign_within_racks(sorted(left, key=self._racks.members_near))  # the hardest to place first
        self._assign_in_turn(left)
        return self._shares

    def _keep(self, member: str) -> None:
        """Let *member* keep its partitions up to its quota."""
        mine = sorted((each for each in self._owned[member] if self._racks.match(member, each)), key=BY_NUMBER)
        quota = self._low
        if len(mine) < self._low:
            self._below.append(member)
        elif len(mine) > self._low and self._full < self._extra:
            quota += 1
            self._full += 1
        else:
            self._ready.append(member)
        self._shares[member] += mine[:quota]

    def _assign_within_racks(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Assign each partition to the next member in one of its racks that has room; returns the rest."""
        rest = []
        turn = 0
        for partition in partitions:
            at = self._next_near(partition, self._below, turn)
            if at is not None:
                turn = self._assign_below(at, partition)
            elif self._full < self._extra and (at := self._next_near(partition, self._ready, 0)) is not None:
                self._shares[self._ready.pop(at)].append(partition)
                self._full += 1
            else:
                rest.append(partition)
        return rest

    def _next_near(self, partition: TopicPartition, candidates: Sequence[str], begin: int) -> int | None:
        """The index in *candidates*, from *begin* on and then from 0, of a member in a rack of *partition*."""
        racks = self._racks.of(partition)
        of_member = self._racks.of_member
        for at in chain(range(begin, len(candidates)), range(begin)):
            if of_member.get(candidates[at]) in racks:
                return at
        return None

    def _assign_below(self, at: int, partition: TopicPartition) -> int:
        """Assign to the member at this index of those below low; returns the index whose turn is next."""
        member = self._below[at]
        self._shares[member].append(partition)
        if len(self._shares[member]) < self._low:
            at += 1
        else:
            del self._below[at]
            self._ready.append(member)
        return at % len(self._below) if self._below else 0

    def _assign_in_turn(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign to members below low in turn until there are none, then one more to those that are ready."""
        below, ready = deque(self._below), deque(self._ready)
        for partition in partitions:
            member = (below or ready).popleft()
            share = self._shares[member]
            share.append(partition)
            if len(share) < self._low:
                below.append(member)
            elif len(share) == self._low:
                ready.append(member)
