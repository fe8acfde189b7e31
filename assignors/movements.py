"""The moves made while an assignment is balanced, so that partitions of one topic are not swapped between two members.
"""
from __future__ import annotations

from pyclient.assignors.javas_order import MIN_BUCKETS, bucket, partition_hash, table_size
from pyclient.records import TopicPartition


class Movements:
    """Each moved partition with its first and its current owner."""

    def __init__(self) -> None:
        self._of: dict[TopicPartition, tuple[str, str]] = {}
        self._between: dict[tuple[str, str, str], _HashSet] = {}

    def preferred(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """The partition to move to *target*: one of the same topic that earlier from there to the first owner of
        *partition*, else *partition*.
        """
        origin = self._of[partition][0] if partition in self._of else source
        earlier = self._between.get((partition.topic, target, origin))
        return earlier.first() if earlier else partition

    def moved(self, partition: TopicPartition, source: str, target: str) -> None:
        """Record a move. A partition that is back at its first owner has not moved."""
        before = self._of.pop(partition, None)
        origin = before[0] if before else source
        if before:
            self._between[partition.topic, *before].discard(partition)
        if origin != target:
            self._of[partition] = origin, target
            self._between.setdefault((partition.topic, origin, target), _HashSet()).add(partition)


class _HashSet:
    """A Java HashSet, as far as needed to find its first element."""

    def __init__(self) -> None:
        self._items: dict[TopicPartition, None] = {}
        self._size = MIN_BUCKETS

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: TopicPartition) -> None:
        """Add *item*; the table grows, and never shrinks."""
        self._items[item] = None
        self._size = max(self._size, table_size(len(self._items)))

    def discard(self, item: TopicPartition) -> None:
        """Remove *item*."""
        del self._items[item]

    def first(self) -> TopicPartition:
        """The first item of the first bucket that is not empty."""
        return min(self._items, key=lambda item: bucket(partition_hash(item), self._size))
