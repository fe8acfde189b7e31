"""The leader epochs of a log with their start offsets (KIP-101), by which diverged logs are found."""
from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

UNKNOWN: Final = -1


class EpochStart(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    offset: int


class Epochs:
    """The epochs of one log, ascending in epoch and offset."""

    def __init__(self) -> None:
        self.entries: list[EpochStart] = []

    @property
    def latest(self) -> int:
        """The newest epoch; -1 when there is none."""
        return self.entries[-1].epoch if self.entries else UNKNOWN

    def assign(self, epoch: int, offset: int) -> None:
        """An epoch starts here, unless it is known already. Contradicting entries are removed."""
        if self.entries and self.entries[-1].epoch == epoch:
            return
        while self.entries and (self.entries[-1].epoch >= epoch or self.entries[-1].offset >= offset):
            self.entries.pop()
        self.entries.append(EpochStart(epoch, offset))

    def truncate(self, end: int) -> None:
        """The log ends here now."""
        while self.entries and self.entries[-1].offset >= end:
            self.entries.pop()

    def begin_at(self, start: int) -> None:
        """The log begins here now."""
        before: EpochStart | None = None
        while self.entries and self.entries[0].offset <= start:
            before = self.entries.pop(0)
        if before is not None:
            self.entries.insert(0, EpochStart(before.epoch, start))

    def of(self, offset: int) -> int:
        """The epoch of the record at this offset; -1 when unknown."""
        found = bisect_right(self.entries, offset, key=lambda each: each.offset)
        return self.entries[found - 1].epoch if found else UNKNOWN

    def end_of(self, epoch: int, log_end: int) -> EpochStart:
        """The newest known epoch not above this one, and its end offset; (-1, -1) when unknown."""
        if epoch == UNKNOWN or not self.entries or epoch > self.latest:
            return EpochStart(UNKNOWN, UNKNOWN)
        if epoch == self.latest:
            return EpochStart(epoch, log_end)
        above = bisect_right(self.entries, epoch, key=lambda each: each.epoch)
        known = self.entries[above - 1].epoch if above else epoch
        return EpochStart(known, self.entries[above].offset)
