"""The log of one replica: batches byte for byte, their epochs and producers, and the high watermark."""
from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.batch import Batch
from pyclient.testing.fake.model.epochs import Epochs
from pyclient.testing.fake.model.producers import Aborted, Producers
from pyclient.testing.fake.model.refusal import RefusalError

NO_TIMESTAMP: Final = -1


class Found(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    epoch: int


class Log:
    """Offsets from *start* to before *end*; readers see those below the *high_watermark*."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        self.end = 0
        self.high_watermark = 0
        self.size = 0
        self.epochs = Epochs()
        self.producers = Producers()

    def __repr__(self) -> str:
        return f"<log {self.start} to {self.end}, committed to {self.high_watermark}, {self.size} B>"

    @property
    def last_stable(self) -> int:
        """The last stable offset, where read_committed stops."""
        unstable = self.producers.first_unstable(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    # ---- writing -----------------------------------------------------------------------------------------------------

    def append(self, batch: Batch) -> None:
        """Append the next batch, produced here or copied from the leader."""
        self.epochs.assign(batch.epoch, batch.base_offset)
        self.batches.append(batch)
        self.size += len(batch.data)
        self.end = batch.last_offset + 1
        self.producers.appended(batch)

    def truncate(self, end: int) -> bool:
        """Remove everything from this offset on; returns whether there was anything.

        Producer state is rebuilt from the remaining batches.
        """
        self.epochs.truncate(end)
        if end >= self.end:
            return False
        if end < self.start:
            self.restart_at(end)
            return True
        while self.batches and self.batches[-1].last_offset >= end:
            self.size -= self.batches.pop().size
        self.end = end
        self.high_watermark = min(self.high_watermark, self.end)
        self._learn_producers()
        return True

    def restart_at(self, offset: int) -> None:
        """Drop everything; the log is empty and starts here."""
        self.batches.clear()
        self.size = 0
        self.start = self.end = self.high_watermark = offset
        self.epochs = Epochs()
        self.producers = Producers()

    def begin_at(self, start: int) -> None:
        """Remove records before this offset. A batch that contains it stays whole."""
        if start <= self.start:
            return
        self.start = start
        gone = bisect_right(self.batches, start, key=_next_offset)
        self.size -= sum(each.size for each in self.batches[:gone])
        del self.batches[:gone]
        self.epochs.begin_at(start)
        self.producers.begin_at(start)
        self.high_watermark = max(self.high_watermark, start)

    def _learn_producers(self) -> None:
        self.producers = Producers()
        for batch in self.batches:
            self.producers.appended(batch)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, before: int, *, at_least_one: bool) -> bytes:
        """Whole batches, the last one cut at the limit; from the one that holds *offset*, none that begins at *before*.

        With *at_least_one* the first batch is whole, however large; else a first batch that does not fit is nothing.

        Raises:
            RefusalError: the offset is out of range.
        """
        if not self.start <= offset <= self.end:
            raise RefusalError(ErrorCode.offset_out_of_range)
        if offset >= before:
            return b""
        found = self.range(offset, before)
        if not found:
            return b""
        first = found[0].size
        if first > max_bytes:
            return found[0].data if at_least_one else b""
        return _joined(found, max_bytes)

    def range(self, offset: int, before: int) -> list[Batch]:
        """The batches from the one that holds *offset* to the last that begins before *before*."""
        if offset >= before:
            return []
        batches = self.batches
        return batches[self._place(offset):bisect_right(batches, before - 1, key=_base_offset)]

    def available(self, offset: int, before: int) -> int:
        """Total size of the batches in `range`."""
        return sum(each.size for each in self.range(offset, before)) if offset < before else 0

    def aborted(self, offset: int, before: int) -> list[Aborted]:
        """Aborted transactions with records in this range."""
        return [each for each in self.producers.aborted if each.last_offset >= offset and each.first_offset < before]

    def _place(self, offset: int) -> int:
        """The index of the first batch that ends at or after this offset."""
        return bisect_right(self.batches, offset, key=_next_offset)

    # ---- looking up --------------------------------------------------------------------------------------------------

    def since(self, timestamp: int) -> Found | None:
        """The first record that is not older than *timestamp*."""
        for batch in self.batches:
            found = batch.since(timestamp, self.start)
            if found is not None:
                return Found(*found, batch.epoch)
        return None

    def newest(self) -> Found | None:
        """The first record with the greatest timestamp."""
        best = max(self.batches, key=_max_timestamp, default=None)
        if best is None or best.max_timestamp == NO_TIMESTAMP:
            return None
        found = best.since(best.max_timestamp, self.start)
        return None if found is None else Found(*found, best.epoch)


def _next_offset(batch: Batch) -> int:
    return batch.last_offset + 1


def _base_offset(batch: Batch) -> int:
    return batch.base_offset


def _max_timestamp(batch: Batch) -> int:
    return batch.max_timestamp


def _joined(batches: list[Batch], max_bytes: int) -> bytes:
    if len(batches) == 1:
        return batches[0].data
    taken: list[bytes] = []
    left = max_bytes
    for batch in batches:
        taken.append(batch.data[:left])
        left -= len(taken[-1])
        if not left:
            break
    return b"".join(taken)
