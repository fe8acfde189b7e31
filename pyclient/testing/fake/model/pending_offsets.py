"""Offsets that open transactions have committed to groups: pending until the transaction's marker."""
from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from pyclient.testing.fake.model.group import Committed
from pyclient.testing.fake.model.homes import offsets_partition
from pyclient.testing.fake.model.transactions import Place


class Pending(NamedTuple):
    """An offset, and the client that committed it."""

    committed: Committed
    client: str | None


class Ended(NamedTuple):
    """An offset whose transaction has ended."""

    group: str
    place: Place
    pending: Pending


class PendingOffsets:
    """Group → producer id → partition → offset; None in place of one that a later commit has overtaken."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        """How many the topic of offsets has."""
        self._pending: dict[str, dict[int, dict[Place, Pending | None]]] = {}

    def add(self, group: str, producer_id: int, place: Place, pending: Pending) -> None:
        """A transaction commits an offset."""
        self._pending.setdefault(group, {}).setdefault(producer_id, {})[place] = pending

    def places(self, group: str) -> set[Place]:
        """The partitions of which a transaction has committed an offset to this group, and is still open."""
        return {place for offsets in self._pending.get(group, {}).values() for place in offsets}

    def overtake(self, group: str, place: Place) -> None:
        """An offset is committed without transaction, and later than those that are pending."""
        for offsets in self._pending.get(group, {}).values():
            if place in offsets:
                offsets[place] = None

    def groups(self, partition: int, producer_id: int) -> list[str]:
        """The groups of this partition of the topic of offsets to which the transaction has committed."""
        return [group for group, by_producer in self._pending.items() if producer_id in by_producer and offsets_partition(group, self._partitions) == partition]

    def end(self, groups: Collection[str], producer_id: int) -> Iterator[Ended]:
        """The transaction has ended: what it had committed, which is not pending any more."""
        for group in groups:
            for place, pending in self._pending[group].pop(producer_id).items():
                if pending is not None:
                    yield Ended(group, place, pending)
            if not self._pending[group]:
                del self._pending[group]

    def forget(self, group: str, place: Place) -> None:
        """The offset was deleted."""
        for offsets in self._pending.get(group, {}).values():
            offsets.pop(place, None)

    def forget_group(self, group: str) -> None:
        """The group was deleted."""
        self._pending.pop(group, None)

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted."""
        for by_producer in self._pending.values():
            for offsets in by_producer.values():
                for place in [place for place in offsets if place[0] == topic]:
                    del offsets[place]
