"""Up to which offset of each partition all work is done, where records are done in any order.

Knows the offsets that were returned, not those of the log: what is missing between two of them (compacted records,
markers of transactions, records that were dropped) holds up nothing. Independent of records, threads and commits.
Rule: the position of a partition is its first returned offset that is not done; there is none behind it that is lost.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import TypeAlias

from pyclient.records import OffsetAndMetadata, TopicPartition

Range: TypeAlias = tuple[int, int]
"""Offsets from the first to before the second."""
_first = itemgetter(0)


class DoneOffsets:
    """What was returned of each partition and is not done, as ranges: memory grows with the gaps, not with the records.
    """

    def __init__(self) -> None:
        self._open: dict[TopicPartition, _OpenOffsets] = {}

    @property
    def waits(self) -> bool:
        """Whether anything was returned that is not done."""
        return any(each.ranges for each in self._open.values())

    def returned(self, tp: TopicPartition, offsets: Iterable[Range], end: OffsetAndMetadata) -> None:
        """*offsets* are the user's, and reading goes on at *end*. What is known already may come again."""
        self._open.setdefault(tp, _OpenOffsets()).add(offsets, end)

    def done(self, tp: TopicPartition, offset: int) -> OffsetAndMetadata | None:
        """The position once this offset is done too; None if the user does not have it, or it was done before."""
        known = self._open.get(tp)
        return known.position() if known is not None and known.close(offset) else None

    def forget(self, tp: TopicPartition) -> None:
        """The partition was sought or taken away: what was returned before does not count any more."""
        self._open.pop(tp, None)


class _OpenOffsets:
    """Of one partition."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []
        """What is not done, in order, none next to another that continues it."""
        self.end = OffsetAndMetadata(0)

    def add(self, offsets: Iterable[Range], end: OffsetAndMetadata) -> None:
        for first, stop in offsets:
            self._add(first, stop)
        self.end = end

    def _add(self, first: int, stop: int) -> None:
        later: list[Range] = []
        while self.ranges and self.ranges[-1][1] >= first:  # more than the last one only where known ones come again
            other = self.ranges.pop()
            if other[0] > stop:
                later.append(other)
            else:
                first, stop = min(first, other[0]), max(stop, other[1])
        self.ranges += [(first, stop), *reversed(later)]

    def close(self, offset: int) -> bool:
        at = bisect_right(self.ranges, offset, key=_first) - 1
        if at < 0 or offset >= self.ranges[at][1]:
            return False
        first, stop = self.ranges[at]
        self.ranges[at:at + 1] = [each for each in ((first, offset), (offset + 1, stop)) if each[0] < each[1]]
        return True

    def position(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.ranges[0][0]) if self.ranges else self.end
