"""Records as a poll hands them out: views of fetched batches, decoded when looked at.

Knows batches and offsets; knows no brokers and no groups. `collect` is the only reader of a `FetchBuffer`.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, overload

import attrs

from pyclient.buffers.fetchbuffer import Chunk, Failure, FetchBuffer
from pyclient.codec.batches import RecordBatch
from pyclient.codec.columns import to_arrow
from pyclient.codec.record import Record
from pyclient.errors import CorruptRecordError, KafkaError, raisable
from pyclient.records import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

Decode: TypeAlias = Callable[[Record], Record]


@attrs.frozen
class Part:
    """Consecutive records of one batch, by index."""

    where: TopicPartition
    batch: RecordBatch
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def cut(self, count: int) -> tuple[Part, Part]:
        """The first *count* records, and the others."""
        middle = self.start + count
        return attrs.evolve(self, stop=middle), attrs.evolve(self, start=middle)

    def holds(self, record: Record) -> bool:
        """Whether *record* is one of these."""
        same = (record.topic, record.partition) == self.where
        return same and self.batch.offset_of(self.start) <= record.offset < self.end()

    def end(self) -> int:
        """The offset to read next after it."""
        return self.batch.next_offset if self.stop == self.batch.count else self.batch.offset_of(self.stop)

    def behind(self) -> OffsetAndMetadata:
        """The position after it."""
        return placed(self.end(), self.batch.leader_epoch)


class Records(Sequence[Record]):
    """What one poll returned: sized, iterable, sliceable, by partition, or as Arrow columns without an object per record.

    Within a partition records stand in the order of their offsets. Nothing is decoded before it is looked at.
    """

    __slots__ = ("_count", "_decode", "_parts", "_positions")

    def __init__(self, parts: Iterable[Part] = (), positions: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
                 decode: Decode | None = None) -> None:
        self._parts = list(parts)
        self._positions = dict(positions) if positions else {}
        self._decode = decode
        self._count = sum([part.stop - part.start for part in self._parts])  # a list: every poll comes by here, mostly with one part

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        # chain and map are C: no Python frame runs per record.
        records: Iterator[Record] = itertools.chain.from_iterable(
            part.batch.iter_records(part.where.topic, part.where.partition, part.start, part.stop) for part in self._parts)
        return records if self._decode is None else map(self._decode, records)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            return self._slice(index)
        at = range(self._count)[index]
        return next(iter(self.split(at)[1]))

    def __repr__(self) -> str:
        return f"<Records {self._count} of {', '.join(map(str, self.partitions())) or 'no partition'}>"

    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions with at least one record."""
        return tuple(dict.fromkeys(part.where for part in self._parts))

    def by_partition(self) -> Iterator[tuple[TopicPartition, Records]]:
        """Each partition with its records."""
        for where in self.partitions():
            yield where, self.of(where)

    def of(self, where: TopicPartition) -> Records:
        """The records of one partition; none if it has none here."""
        position = {where: self._positions[where]} if where in self._positions else {}
        return Records((part for part in self._parts if part.where == where), position, self._decode)

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """For each partition the offset to go on with after these records: what a commit of them stores."""
        return dict(self._positions)

    def positions(self) -> dict[TopicPartition, int]:
        """`next_offsets` as plain numbers."""
        return {where: position.offset for where, position in self._positions.items()}

    def to_arrow(self, *, headers: bool = True) -> pa.Table:
        """The records as a ``pyarrow.Table``: topic, partition, offset, timestamp (ms, UTC), timestamp_type, key, value, headers.

        Keys and values are the bytes on the wire: deserializers are not applied. Needs the extra ``arrow``.
        """
        return to_arrow([(part.where.topic, part.where.partition, part.batch, part.start, part.stop) for part in self._parts],
                        headers=headers)

    def split(self, count: int) -> tuple[Records, Records]:
        """The first *count* records and the rest; each with the positions that fit it."""
        head: list[Part] = []
        tail = list(self._parts)
        while tail and count >= len(tail[0]):
            count -= len(tail[0])
            head.append(tail.pop(0))
        if tail and count:
            first, tail[0] = tail[0].cut(count)
            head.append(first)
        later = {part.where for part in tail}
        ends = {part.where: part.behind() for part in head if part.where in later}
        done = {where: position for where, position in self._positions.items() if where not in later}
        rest = {where: self._positions[where] for where in later}
        return Records(head, {**done, **ends}, self._decode), Records(tail, rest, self._decode)

    def through(self, record: Record, *, inclusive: bool) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions after everything before *record* in this order, and with *inclusive* after *record* too."""
        positions: dict[TopicPartition, OffsetAndMetadata] = {}
        for part in self._parts:
            if part.holds(record):
                positions[part.where] = placed(record.offset + inclusive, part.batch.leader_epoch)
                break
            positions[part.where] = part.behind()
        return positions

    def after(self, record: Record) -> Records:
        """The records that come after *record*."""
        count = 0
        for part in self._parts:
            if part.holds(record):
                return self.split(count + part.batch.index_of(record.offset) - part.start + 1)[1]
            count += len(part)
        return Records()

    def without(self, partitions: Iterable[TopicPartition]) -> Records:
        """The records of the other partitions."""
        if not self._positions and not self._parts:
            return self
        gone = set(partitions)
        return Records((part for part in self._parts if part.where not in gone),
                       {where: position for where, position in self._positions.items() if where not in gone}, self._decode)

    def only(self, partitions: Iterable[TopicPartition]) -> Records:
        """The records of these partitions."""
        kept = set(partitions)
        return self.without(where for where in self._positions if where not in kept)

    def joined(self, others: Records) -> Records:
        """These records and then *others*."""
        if not others._positions and not others._parts:
            return self
        if not self._positions and not self._parts:
            return others
        return Records([*self._parts, *others._parts], {**self._positions, **others._positions}, self._decode or others._decode)

    def _slice(self, index: slice) -> Sequence[Record]:
        start, stop, step = index.indices(self._count)
        if step == 1:
            return self.split(start)[1].split(max(0, stop - start))[0]
        return list(self)[index]


def placed(offset: int, epoch: int) -> OffsetAndMetadata:
    """The position at *offset*, with the leader epoch of what stands before it."""
    return OffsetAndMetadata(offset, leader_epoch=epoch if epoch > NO_LEADER_EPOCH else None)


def collect(buffer: FetchBuffer, limit: int, decode: Decode | None) -> Records:
    """Take up to *limit* records that are there now. Checks and decompresses; decodes nothing.

    Raises:
        KafkaError: the next thing in line is an error; records before it were handed out earlier.
    """
    parts: list[Part] = []
    positions: dict[TopicPartition, OffsetAndMetadata] = {}
    while limit > 0 and (entry := buffer.take()) is not None:
        if isinstance(entry, Failure):
            _meet(buffer, entry, entry.error, first=not positions, again=entry.lasting)
            break
        try:
            limit = _take(entry, limit, parts, positions)
        except CorruptRecordError as error:
            _meet(buffer, entry, _located(entry, error), first=not positions, again=True)
            break
        if entry.batches:
            buffer.give_back(entry)
    return Records(parts, positions, decode)


def _take(chunk: Chunk, limit: int, parts: list[Part], positions: dict[TopicPartition, OffsetAndMetadata]) -> int:
    """Move up to *limit* records of *chunk* to *parts*; the new limit."""
    while chunk.batches and limit > 0:
        batch: RecordBatch = chunk.batches[0]
        batch.open()
        start = max(chunk.index, batch.index_of(chunk.position))
        stop = min(batch.count, start + limit)
        if start < stop:
            parts.append(Part(chunk.where, batch, start, stop))
            limit -= stop - start
        if stop < batch.count:
            chunk.index = stop
            chunk.position = batch.offset_of(stop)
        else:
            chunk.batches.popleft()
            chunk.index = 0
            chunk.position = max(chunk.position, batch.next_offset)
        positions[chunk.where] = placed(chunk.position, batch.leader_epoch)
    if not chunk.batches:
        chunk.position = chunk.next_offset
        positions[chunk.where] = placed(chunk.next_offset, chunk.epoch)
    return limit


def _meet(buffer: FetchBuffer, entry: Chunk | Failure, error: KafkaError, *, first: bool, again: bool) -> None:
    """An error in line: raised when nothing was collected before it, else by the next poll."""
    if not first:
        buffer.give_back(entry)
        return
    if again:
        buffer.give_back(entry, last=True)  # other partitions go on between two times it is raised
    raise raisable(error)


def _located(chunk: Chunk, error: CorruptRecordError) -> CorruptRecordError:
    return CorruptRecordError(
        f"the data of {chunk.where} from offset {chunk.position} on is damaged: {error.message}. seek() past it to go on.",
        topic_partition=chunk.where)
