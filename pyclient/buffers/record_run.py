# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Consecutive records of fetched batches. Independent of where they came from, and of who reads them."""
from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyclient.codec.batches import RecordBatch
from pyclient.records import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition
from pyclient.records.record import Record

NO_EPOCH: Final = NO_LEADER_EPOCH


class RecordRun:
    """Consecutive records of one batch, by index. *made* is what deserializers made of them, from index *first* on."""

    def __init__(self, tp: TopicPartition, batch: RecordBatch, start: int, stop: int, made: Sequence[Any] | None = None, first: int = 0) -> None:
        self.tp = tp
        self.batch = batch
        self.start = start
        self.stop = stop
        self.made = made
        self.first = first

    def __len__(self) -> int:
        return self.stop - self.start

    def records(self) -> Iterator[Record[Any, Any]]:
        """The records, one after another."""
        if self.made is None:
            return self.batch.iter_records(self.tp.topic, self.tp.partition, self.start, self.stop)
        return iter(self.made[self.start - self.first : self.stop - self.first])

    def some(self, start: int, stop: int) -> RecordRun:
        """From the record at *start* to before the one at *stop*, counted from 0 here."""
        return RecordRun(self.tp, self.batch, self.start + start, self.start + stop, self.made, self.first)

    def cut(self, count: int) -> tuple[RecordRun, RecordRun]:
        """The first *count* records, and the others."""
        return self.some(0, count), self.some(count, len(self))

    def runs(self, flags: bytes) -> Iterator[RecordRun]:
        """The records whose flag is 1, consecutive ones as one run."""
        start = flags.find(1)
        while start >= 0:
            stop = flags.find(0, start)
            stop = len(flags) if stop < 0 else stop
            yield self.some(start, stop)
            start = flags.find(1, stop)

    def has(self, other: RecordRun) -> bool:
        """Whether *other*'s records are among these."""
        return self.batch is other.batch and self.start <= other.start < other.stop <= self.stop

    def holds(self, record: Record[Any, Any]) -> bool:
        """Whether *record* is one of these."""
        same = (record.topic, record.partition) == self.tp
        return same and self.batch.offset_of(self.start) <= record.offset < self.end()

    def offset_ranges(self) -> Iterator[tuple[int, int]]:
        """The offsets of its records, each range from the first to before the second."""
        first, last = self.batch.offset_of(self.start), self.batch.offset_of(self.stop - 1)
        if last - first == self.stop - 1 - self.start:
            yield first, last + 1
        else:  # compacted
            for index in range(self.start, self.stop):
                yield (offset := self.batch.offset_of(index)), offset + 1

    def end(self) -> int:
        """The offset to read next after it."""
        return self.batch.next_offset if self.stop == self.batch.count else self.batch.offset_of(self.stop)

    def behind(self) -> OffsetAndMetadata:
        """The position after it."""
        return placed(self.end(), self.batch.leader_epoch)


class RecordRuns:
    """Runs, one after another, and the position after them of each partition. The base of `Records`."""

    def __init__(self, runs: Iterable[RecordRun] = (), positions: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        self._runs = list(runs)
        self._positions = dict(positions) if positions else {}
        self._count = 0
        for run in self._runs:
            self._count += run.stop - run.start

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(map(RecordRun.records, self._runs))  # in C: no Python frame runs per record

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """For each partition the offset to go on with after these records: what a commit of them stores."""
        return dict(self._positions)


def placed(offset: int, epoch: int) -> OffsetAndMetadata:
    """The position at *offset*, with the leader epoch of the record before it."""
    return tuple.__new__(OffsetAndMetadata, (offset, "", epoch if epoch > NO_EPOCH else None))  # its own `__new__` is interpreted
