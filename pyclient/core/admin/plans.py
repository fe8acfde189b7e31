"""Where replicas should lie: plans that raise a replication factor, empty brokers, or spread replicas evenly.

Rules of every plan: replicas of a partition lie on different brokers, on as many racks as there are; no replica moves
without need; brokers with fewer replicas get the next one.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from pyclient.errors import InvalidReplicationFactorError
from pyclient.records import TopicPartition

Placement: TypeAlias = Mapping[TopicPartition, tuple[int, ...]]
Racks: TypeAlias = Mapping[int, str | None]
"""The brokers that can take replicas, each with its rack, if it has one."""


def with_factors(placed: Placement, racks: Racks, factors: Mapping[str, int]) -> dict[TopicPartition, tuple[int, ...]]:
    """Partitions of topics with other numbers of replicas: the first ones stay, and lead as before.

    Raises:
        InvalidReplicationFactorError: there are not so many brokers.
    """
    places = _Places(placed, racks)
    for tp in sorted(placed):
        factor = factors.get(tp.topic, len(placed[tp]))
        places.check(factor, tp)
        while len(places.of(tp)) > factor:
            places.drop(tp)
        while len(places.of(tp)) < factor:
            places.put(tp, (*places.of(tp), places.best(places.of(tp))))
    return places.changed()


def without(placed: Placement, racks: Racks, leaving: Collection[int]) -> dict[TopicPartition, tuple[int, ...]]:
    """No replica on brokers that are *leaving*: another broker takes the place of each.

    Raises:
        InvalidReplicationFactorError: too few brokers would be left.
    """
    places = _Places(placed, {broker: rack for broker, rack in racks.items() if broker not in leaving})
    for tp in sorted(placed):
        for broker in [each for each in placed[tp] if each in leaving]:
            places.check(len(placed[tp]), tp)
            stays = tuple(each for each in places.of(tp) if each != broker)
            places.put(tp, _replaced(places.of(tp), broker, places.best(stays)))
    return places.changed()


def spread(placed: Placement, racks: Racks) -> dict[TopicPartition, tuple[int, ...]]:
    """As many racks for each partition as there are, then as many replicas, and preferred leaders, on each broker."""
    places = _Places(placed, racks)
    places.use_all_racks()
    while places.move_one():
        pass
    places.balance_leaders()
    return places.changed()


class _Places:
    """A placement that is being changed, with the number of replicas of each broker."""

    def __init__(self, placed: Placement, racks: Racks) -> None:
        self._before = placed
        self._now = dict(placed)
        self._racks = racks
        self._replicas = Counter(dict.fromkeys(racks, 0))
        for replicas in placed.values():
            self._replicas.update(replicas)

    def of(self, tp: TopicPartition) -> tuple[int, ...]:
        """The replicas of a partition."""
        return self._now[tp]

    def changed(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The partitions whose replicas are others than before."""
        return {tp: replicas for tp, replicas in sorted(self._now.items()) if replicas != self._before[tp]}

    def check(self, factor: int, tp: TopicPartition) -> None:
        if factor > len(self._racks):
            raise InvalidReplicationFactorError(
                f"{factor} replicas need as many brokers, and there are {len(self._racks)}: {sorted(self._racks)}", topic_partition=tp)

    def put(self, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
        """The partition has these replicas now."""
        self._replicas.subtract(self._now[tp])
        self._replicas.update(replicas)
        self._now[tp] = replicas

    def best(self, replicas: tuple[int, ...]) -> int:
        """The broker for one replica more: of a rack that has none, if there is one; with the fewest replicas."""
        used = self._racks_of(replicas)
        return min((broker for broker in self._racks if broker not in replicas), key=lambda each: (self._rack(each) in used, self._replicas[each], each))

    def drop(self, tp: TopicPartition) -> None:
        """Without one replica, but not the first: one whose rack has another, of the broker with the most."""
        replicas = self._now[tp]

        def rank(broker: int) -> tuple[bool, int, int]:
            others = self._racks_of(each for each in replicas if each != broker)
            return self._rack(broker) in others, self._replicas[broker], replicas.index(broker)

        worst = max(replicas[1:], key=rank)
        self.put(tp, tuple(each for each in replicas if each != worst))

    def use_all_racks(self) -> None:
        """Move replicas that share a rack to racks that have none of the partition."""
        everywhere = self._racks_of(self._racks)
        for tp in sorted(self._now):
            while len(self._racks_of(self._now[tp])) < min(len(self._now[tp]), len(everywhere)):
                self.put(tp, _replaced(self._now[tp], self._second_of_a_rack(self._now[tp]), self.best(self._now[tp])))

    def _second_of_a_rack(self, replicas: tuple[int, ...]) -> int:
        """The last replica whose rack has an earlier one."""
        return next(broker for at, broker in reversed(list(enumerate(replicas))) if self._rack(broker) in self._racks_of(replicas[:at]))

    def move_one(self) -> bool:
        """Move a replica from a broker with many to one with at least two fewer; False: there is none to move."""
        by_load = sorted(self._racks, key=lambda each: (self._replicas[each], each))
        for source in reversed(by_load):
            for target in by_load:
                if self._replicas[source] - self._replicas[target] < 2:
                    break
                if self._move(source, target):
                    return True
        return False

    def _move(self, source: int, target: int) -> bool:
        for tp, replicas in sorted(self._now.items()):
            if source in replicas and target not in replicas:
                moved = _replaced(replicas, source, target)
                if len(self._racks_of(moved)) >= len(self._racks_of(replicas)):
                    self.put(tp, moved)
                    return True
        return False

    def balance_leaders(self) -> None:
        """Reorder replicas while a broker is the first of at least two partitions more than another one of them."""
        leads = Counter(replicas[0] for replicas in self._now.values())
        swapped = True
        while swapped:
            swapped = False
            for tp, replicas in sorted(self._now.items()):
                least = min(replicas, key=lambda each: (leads[each], replicas.index(each)))
                if leads[replicas[0]] - leads[least] >= 2:
                    leads[replicas[0]] -= 1
                    leads[least] += 1
                    self._now[tp] = (least, *(each for each in replicas if each != least))
                    swapped = True

    def _racks_of(self, brokers: Iterable[int]) -> set[object]:
        return {self._rack(each) for each in brokers}

    def _rack(self, broker: int) -> object:
        """Without racks each broker counts as one."""
        return self._racks.get(broker) or broker


def _replaced(replicas: tuple[int, ...], old: int, new: int) -> tuple[int, ...]:
    return tuple(new if each == old else each for each in replicas)
