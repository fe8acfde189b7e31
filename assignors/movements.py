"""What changed hands while a group is balanced, so that of one topic nothing goes back and forth between two members."""
from __future__ import annotations

from pyclient.assignors.javas_order import SMALLEST_TABLE, bucket, partition_hash, table_size
from pyclient.records import TopicPartition


class Movements:
    """Each partition that moved: from whom, over all its moves, to whom."""

    def __init__(self) -> None:
        self._of: dict[TopicPartition, tuple[str, str]] = {}
        self._between: dict[tuple[str, str, str], _HashSet] = {}

    def better(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """What to move to *target* in place of *partition*: one of its topic that came from there to where *partition* was, if any."""
        origin = self._of[partition][0] if partition in self._of else source
        came = self._between.get((partition.topic, target, origin))
        return came.first() if came else partition

    def moved(self, partition: TopicPartition, source: str, target: str) -> None:
        """*partition* went from *source* to *target*. One that is back where it was at first has not moved."""
        before = self._of.pop(partition, None)
        origin = before[0] if before else source
        if before:
            self._between[partition.topic, *before].discard(partition)
        if origin != target:
            self._of[partition] = origin, target
            self._between.setdefault((partition.topic, origin, target), _HashSet()).add(partition)


class _HashSet:
    """A Java HashSet, as far as to tell which element comes first."""

    def __init__(self) -> None:
        self._items: dict[TopicPartition, None] = {}
        self._size = SMALLEST_TABLE

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: TopicPartition) -> None:
        """It has been added; the table grows, and never shrinks."""
        self._items[item] = None
        self._size = max(self._size, table_size(len(self._items)))

    def discard(self, item: TopicPartition) -> None:
        """It is gone."""
        del self._items[item]

    def first(self) -> TopicPartition:
        """The first one in the first bucket that has any."""
        return min(self._items, key=lambda item: bucket(partition_hash(item), self._size))
