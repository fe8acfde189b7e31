"""Sticky shares for members that all want the same topics: each keeps what it had up to its quota, the rest goes round.

Every member ends with ``low`` partitions, and ``extra`` of them with one more. Racks are matched as far as the quotas allow: what a member
had in another rack it does not keep, what is free goes to a member near it first.
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
"""The order in which a member gives up what is too much: high numbers first, whatever their topic."""


class EqualShares:
    """One sharing out; `made` gives it, once.

    *members* are asked in their order whether they keep one more than ``low``: where more could than may, the first ones do.
    """

    def __init__(self, members: Sequence[str], partitions: Sequence[TopicPartition], owned: Mapping[str, Iterable[TopicPartition]], racks: Racks) -> None:
        self._partitions = partitions
        self._owned = owned
        self._racks = racks
        self._shares: Shares = {member: [] for member in members}
        self._low, self._extra = divmod(len(partitions), len(members))
        self._full = 0  # members that have more than low; extra at last
        self._below: list[str] = []  # members that have less than low
        self._ready: list[str] = []  # members that have low, and get one more while there is any

    def made(self) -> Shares:
        """Every partition given to one member."""
        for member in self._shares:
            self._keep(member)
        kept = set(chain.from_iterable(self._shares.values()))
        left = [partition for partition in self._partitions if partition not in kept]
        self._below.sort(key=text_key)
        self._ready.sort(key=text_key)
        if self._racks.used:
            left = self._give_within_racks(sorted(left, key=self._racks.members_near))  # the hardest to place first
        self._give_in_turn(left)
        return self._shares

    def _keep(self, member: str) -> None:
        """Let a member have of its own what it may."""
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

    def _give_within_racks(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """To each of *partitions* the next member near it that may take more; returns those that found none."""
        rest = []
        turn = 0
        for partition in partitions:
            at = self._next_near(partition, self._below, turn)
            if at is not None:
                turn = self._give_below(at, partition)
            elif self._full < self._extra and (at := self._next_near(partition, self._ready, 0)) is not None:
                self._shares[self._ready.pop(at)].append(partition)
                self._full += 1
            else:
                rest.append(partition)
        return rest

    def _next_near(self, partition: TopicPartition, line: Sequence[str], begin: int) -> int | None:
        """The place in *line*, from *begin* on and then from its head, of a member in a rack of *partition*."""
        racks = self._racks.of(partition)
        of_member = self._racks.of_member
        for at in chain(range(begin, len(line)), range(begin)):
            if of_member.get(line[at]) in racks:
                return at
        return None

    def _give_below(self, at: int, partition: TopicPartition) -> int:
        """Give to a member that has less than low; returns whose turn is next."""
        member = self._below[at]
        self._shares[member].append(partition)
        if len(self._shares[member]) < self._low:
            at += 1
        else:
            del self._below[at]
            self._ready.append(member)
        return at % len(self._below) if self._below else 0

    def _give_in_turn(self, partitions: Iterable[TopicPartition]) -> None:
        """One to each member below low in turn until none is, then one more to those that are ready."""
        below, ready = deque(self._below), deque(self._ready)
        for partition in partitions:
            member = (below or ready).popleft()
            share = self._shares[member]
            share.append(partition)
            if len(share) < self._low:
                below.append(member)
            elif len(share) == self._low:
                ready.append(member)
