"""Records as a poll returns them: views of fetched batches.

An object is made when a record is looked at; deserializers run when it is taken. Independent of brokers and groups.
`collect` is the only reader of a `FetchBuffer`. Rule: whatever is raised while records are taken, each record is
returned, dropped on purpose, or still buffered: never lost (C06).
"""
from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

import attrs

from pyclient.buffers.fetch_buffer import Chunk, Failure, FetchBuffer
from pyclient.codec.batches import RecordBatch
from pyclient.buffers.decoded_columns import decoded
from pyclient.codec.columns import to_arrow
from pyclient.codec.record import Record
from pyclient.errors import CorruptRecordError, raisable
from pyclient.foreign_calls import answers_foreign_calls
from pyclient.records import NO_LEADER_EPOCH, K_co, OffsetAndMetadata, TopicPartition, V_co

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.plugins import ColumnDecoder

Decode: TypeAlias = Callable[[Record[Any, Any]], Record[Any, Any] | None]
"""Returns the record with decoded key and value; None drops it."""


@attrs.frozen
class RecordRun:
    """Consecutive records of one batch, by index. *made* is what deserializers made of them, from index *first* on."""

    tp: TopicPartition
    batch: RecordBatch
    start: int
    stop: int
    made: Sequence[Any] | None = None
    first: int = 0

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


@answers_foreign_calls("records")
class Records(Sequence[Record[K_co, V_co]]):
    """What one poll returned: sized, iterable, sliceable, by partition, or as Arrow columns without record objects.

    Within a partition records are in the order of their offsets. Without deserializers a record is decoded when it is
    looked at.
    """

    __slots__ = ("_count", "_positions", "_runs")

    def __init__(self, runs: Iterable[RecordRun] = (), positions: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        self._runs = list(runs)
        self._positions = dict(positions) if positions else {}
        self._count = sum([len(run) for run in self._runs])  # a list: faster than a generator for the usual single run

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record[K_co, V_co]]:
        return itertools.chain.from_iterable(runs_of(self))  # in C: no Python frame runs per record

    @overload
    def __getitem__(self, index: int) -> Record[K_co, V_co]: ...
    @overload
    def __getitem__(self, index: slice) -> Records[K_co, V_co]: ...
    def __getitem__(self, index: int | slice) -> Record[K_co, V_co] | Records[K_co, V_co]:
        if isinstance(index, slice):
            return self._slice(index)
        at = range(self._count)[index]
        for run in self._runs:
            if at < len(run):
                return next(run.some(at, at + 1).records())
            at -= len(run)
        raise AssertionError("an index within the count is within a run")

    def __repr__(self) -> str:
        return f"<Records {self._count} of {', '.join(map(str, self.partitions())) or 'no partition'}>"

    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions with at least one record."""
        return tuple(dict.fromkeys(run.tp for run in self._runs))

    def by_partition(self) -> Iterator[tuple[TopicPartition, Records[K_co, V_co]]]:
        """Each partition with its records."""
        for tp in self.partitions():
            yield tp, self.of(tp)

    def of(self, tp: TopicPartition) -> Records[K_co, V_co]:
        """The records of one partition; none if it has none here."""
        position = {tp: self._positions[tp]} if tp in self._positions else {}
        return Records((run for run in self._runs if run.tp == tp), position)

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """For each partition the offset to go on with after these records: what a commit of them stores."""
        return dict(self._positions)

    def positions(self) -> dict[TopicPartition, int]:
        """`next_offsets` as plain numbers."""
        return {tp: position.offset for tp, position in self._positions.items()}

    def to_arrow(self, *, headers: bool = True, key: ColumnDecoder | None = None, value: ColumnDecoder | None = None) -> pa.Table:
        """The records as a ``pyarrow.Table``.

        Its columns: topic, partition, offset, timestamp (ms, UTC), timestamp_type, key, value, headers. Keys and values
        are the bytes on the wire, or what *key* and *value* decode, such as an `AvroDecoder`: deserializers are not
        applied. Needs the extra ``arrow``.

        Raises:
            SerializationError: a key or value cannot be decoded; the message has topic, partition and offset.
        """
        parts = [(run.tp.topic, run.tp.partition, run.batch, run.start, run.stop) for run in self._runs]
        if key is None and value is None:
            return to_arrow(parts, headers=headers)
        table: pa.Table = decoded(to_arrow(parts), self.__getitem__, key, value, headers=headers)
        return table

    # ---- leaving records out ----------------------------------------------------------------------------------------

    def filter(self, predicate: Callable[[Record[K_co, V_co]], object]) -> Records[K_co, V_co]:
        """The records for which *predicate* is true. `next_offsets` stays: the others count as read.

        It makes an object of every record; `select` does not.
        """
        return self._flagged(bytes(map(bool, map(predicate, self))))

    def select(self, mask: Iterable[Any]) -> Records[K_co, V_co]:
        """The records for which *mask* is true, with `next_offsets` as it is: the others count as read.

        *mask* has a boolean for each record, in their order: a list, a NumPy array, or what Arrow computes of
        `to_arrow`'s columns, such as ``pyarrow.compute.starts_with(table["key"], "a")``. A null is false, as it is for
        Arrow.

        Raises:
            TypeError: it holds something else than booleans.
            ValueError: it is longer or shorter than these records are many.
        """
        flags = _flags(mask)
        if len(flags) != self._count:
            raise ValueError(f"the mask has {len(flags)} values, and there are {self._count} records: one for each is needed")
        return self._flagged(flags)

    def _flagged(self, flags: bytes) -> Records[K_co, V_co]:
        runs: list[RecordRun] = []
        at = 0
        for run in self._runs:
            runs += run.runs(flags[at : at + len(run)])
            at += len(run)
        return Records(runs, self._positions)

    def _slice(self, index: slice) -> Records[K_co, V_co]:
        """What an index with a step leaves out counts as read."""
        chosen = range(self._count)[index]
        first, last = (min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1])) if chosen else (0, -1)
        between, _ = split_at(split_at(self, first)[1], last + 1 - first)
        if chosen.step == 1:
            return between
        runs = [run.some(at, at + 1) for run in between._runs for at in range(len(run))]
        return Records(runs[:: chosen.step], between._positions)


# --- parts of records, for consumers and interceptors ----------------------------------------------------------------


def runs_of(records: Records[Any, Any]) -> Iterator[Iterator[Record[Any, Any]]]:
    """The same records, those of one batch at a time."""
    return map(RecordRun.records, records._runs)


def split_at(records: Records[Any, Any], count: int) -> tuple[Records[Any, Any], Records[Any, Any]]:
    """The first *count* records and the rest; each with the positions that fit it."""
    head: list[RecordRun] = []
    tail = list(records._runs)
    while tail and count >= len(tail[0]):
        count -= len(tail[0])
        head.append(tail.pop(0))
    if tail and count:
        first, tail[0] = tail[0].cut(count)
        head.append(first)
    later = dict.fromkeys(run.tp for run in tail)  # in order, so that a run can be repeated exactly
    ends = {run.tp: run.behind() for run in head if run.tp in later}
    done = {tp: position for tp, position in records._positions.items() if tp not in later}
    rest = {tp: records._positions[tp] for tp in later}
    return Records(head, {**done, **ends}), Records(tail, rest)


def positions_before(records: Records[Any, Any], record: Record[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Positions after everything that comes before *record* in this order."""
    run, place = _find(records, record)
    positions = split_at(records, place)[0].next_offsets()
    if run is not None:
        positions[run.tp] = placed(record.offset, run.batch.leader_epoch)
    return positions


def offset_ranges(records: Records[Any, Any]) -> dict[TopicPartition, list[tuple[int, int]]]:
    """The offsets of each partition's *records*, in order, each range from the first to before the second."""
    ranges: dict[TopicPartition, list[tuple[int, int]]] = {}
    for run in records._runs:
        ranges.setdefault(run.tp, []).extend(run.offset_ranges())
    return ranges


def positions_after(records: Records[Any, Any], record: Record[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Positions after *record* and everything that comes before it in this order."""
    return split_at(records, _find(records, record)[1] + 1)[0].next_offsets()


def first_offsets(records: Records[Any, Any]) -> dict[TopicPartition, int]:
    """The offset of each partition's first record."""
    return {run.tp: run.batch.offset_of(run.start) for run in reversed(records._runs)}


def records_after(records: Records[Any, Any], record: Record[Any, Any]) -> Records[Any, Any]:
    """Those that come after *record*."""
    return split_at(records, _find(records, record)[1] + 1)[1]


def _find(records: Records[Any, Any], record: Record[Any, Any]) -> tuple[RecordRun | None, int]:
    """The run that *record* is in, and its index among all records; if it is not here, None and their number."""
    count = 0
    for run in records._runs:
        if run.holds(record):
            return run, count + run.batch.index_of(record.offset) - run.start
        count += len(run)
    return None, count


def narrow(records: Records[Any, Any], some: Records[Any, Any]) -> Records[Any, Any]:
    """The records of *some*, which must be from *records* and in their order, with all positions of *records*.

    The others count as read.

    Raises:
        ValueError: there are others among them.
    """
    left = records._runs[::-1]
    for run in some._runs:
        while left and not left[-1].has(run):
            left.pop()
        if not left:
            raise ValueError(f"{some!r} has a record of {run.tp} that {records!r} has not, or not in this order")
        left[-1] = left[-1].cut(run.stop - left[-1].start)[1]
    return Records(some._runs, records._positions)


def without(records: Records[Any, Any], partitions: Iterable[TopicPartition]) -> Records[Any, Any]:
    """The records of the other partitions."""
    if not records._positions and not records._runs:
        return records
    gone = set(partitions)
    return Records((run for run in records._runs if run.tp not in gone),
                   {tp: position for tp, position in records._positions.items() if tp not in gone})


def only(records: Records[Any, Any], partitions: Iterable[TopicPartition]) -> Records[Any, Any]:
    """The records of these partitions."""
    kept = set(partitions)
    return without(records, (tp for tp in records._positions if tp not in kept))


def join(records: Records[Any, Any], others: Records[Any, Any]) -> Records[Any, Any]:
    """The records and then *others*."""
    if not others._positions and not others._runs:
        return records
    if not records._positions and not records._runs:
        return others
    return Records([*records._runs, *others._runs], {**records._positions, **others._positions})


def memory_of(records: Records[Any, Any]) -> int:
    """Bytes that the batches of these records take."""
    return sum(batch.held for batch in {run.batch for run in records._runs})


def placed(offset: int, epoch: int) -> OffsetAndMetadata:
    """The position at *offset*, with the leader epoch of the record before it."""
    return OffsetAndMetadata(offset, leader_epoch=epoch if epoch > NO_LEADER_EPOCH else None)


@attrs.frozen
class Bounds:
    """What one `collect` may take of memory (B06): it ends behind the batch that passes one of these."""

    memory: int = sys.maxsize
    """Bytes of batches while they are open."""
    inline: int = sys.maxsize
    """Bytes that this thread may decompress. A larger batch is refused; another thread opens it (`Chunk.refused`)."""


NOTHING: Final[Records[Any, Any]] = Records()
"""No records, and no position that moved: what most polls find first."""


class Taking:
    """What a `collect` has taken, and how much more it may take."""

    __slots__ = ("inline", "memory", "positions", "records", "runs")

    def __init__(self, records: int, bounds: Bounds) -> None:
        self.records = records
        self.memory = bounds.memory
        self.inline = bounds.inline
        self.runs: list[RecordRun] = []
        self.positions: dict[TopicPartition, OffsetAndMetadata] = {}

    def taken(self) -> Records[Any, Any]:
        """What was taken so far."""
        return Records(self.runs, self.positions)


def collect(buffer: FetchBuffer, limit: int, decode: Decode | None, begin: Callable[[Taking], object] = id,
            bounds: Bounds = Bounds()) -> Records[Any, Any]:
    """Take up to *limit* records that are there now: checked, decompressed, and decoded by *decode* if there is one.

    It takes those of one batch at least, unless that is larger than ``bounds.inline``. *begin* gets what will hold the
    records before there is one: if Ctrl-C ends the call, however often it is pressed, those taken before are there.

    Raises:
        KafkaError: an error comes next; the records before it were returned earlier.
        Exception: *decode* raised for the next record, which stays in the buffer.
    """
    if buffer.is_empty():
        return NOTHING
    taking = Taking(limit, bounds)
    begin(taking)
    _collect(buffer, taking, decode)
    return taking.taken()


def _collect(buffer: FetchBuffer, taking: Taking, decode: Decode | None) -> None:
    """As `collect`, into *taking*. If it is interrupted, the next `FetchBuffer.take` puts the entry back."""
    while taking.records > 0 and taking.memory > 0 and (entry := buffer.take()) is not None:
        if isinstance(entry, Failure):
            _raise_in_order(buffer, entry, entry.error, first=not taking.positions, again=entry.lasting)
            return
        try:
            refused = _take(entry, taking, decode)
        except CorruptRecordError as error:
            _raise_in_order(buffer, entry, _located(entry, error), first=not taking.positions, again=True)
            return
        except Exception as error:  # noqa: BLE001 from the user's code: raised once the records before it are returned
            _raise_in_order(buffer, entry, error, first=not taking.positions, again=True)
            return
        if not entry.batches:
            buffer.use_up(entry)
            continue
        buffer.give_back(entry)
        if refused:
            return


def _take(chunk: Chunk, taking: Taking, decode: Decode | None) -> bool:
    """Move records of *chunk* to *taking*; returns whether its next batch was refused.

    What *decode* raises is raised with *chunk* at that record.
    """
    runs, positions, wanted, memory, inline = taking.runs, taking.positions, taking.records, taking.memory, taking.inline
    while chunk.batches and wanted > 0 and memory > 0:
        held = _opened(chunk, inline)
        if held < 0:
            chunk.refused = 0 if positions else wanted
            return True
        batch = chunk.batches[0]
        start = batch.index_of(chunk.position)
        stop = min(batch.count, start + wanted)
        more: Sequence[RecordRun] = [RecordRun(chunk.tp, batch, start, stop)] if start < stop else ()
        failure: BaseException | None = None
        if more and decode is not None:
            stop, more, failure = _decode(more[0], decode)
        position = batch.offset_of(stop) if stop < batch.count else max(chunk.position, batch.next_offset)
        behind = placed(position, batch.leader_epoch)
        # Ctrl-C is raised behind calls: in these lines there are none, so all of it is done or nothing.
        runs += more
        chunk.position = position
        if failure is None or start < stop:
            positions[chunk.tp] = behind
        if failure is not None:
            raise failure
        if stop == batch.count:
            chunk.batches.popleft().forget_source()
        wanted -= stop - start
        memory -= held
        inline -= held
    taking.records, taking.memory, taking.inline = wanted, memory, inline
    if not chunk.batches:
        chunk.position = chunk.next_offset
        positions[chunk.tp] = placed(chunk.next_offset, chunk.epoch)
    return False


def _opened(chunk: Chunk, most: int) -> int:
    """Open the next batch within *most* bytes, as `RecordBatch.open_within`.

    Old messages before a damaged one are read without it.
    """
    try:
        held = chunk.batches[0].open_within(most)
    except CorruptRecordError:
        if not (parts := chunk.batches[0].parts()):
            raise
        chunk.batches = deque([*parts, *itertools.islice(chunk.batches, 1, None)])
        held = chunk.batches[0].open_within(most)
    if held < 0 and chunk.fault is not None:
        fault, chunk.fault = chunk.fault, None
        raise fault
    return held


def open_ahead(batches: Iterable[RecordBatch], limit: int, memory: int, wanted: Callable[[], bool]) -> None:
    """Open batches of a chunk, the first of which was refused, as `collect` would for *limit* records while *wanted*.

    Any thread may do this. What is wrong with a batch behind the first is raised when that one is taken.
    """
    for number, batch in enumerate(batches):
        try:
            memory -= batch.open_within(sys.maxsize)
        except Exception:
            if number == 0:
                raise
            return
        limit -= batch.count
        if limit <= 0 or memory <= 0 or not wanted():
            return


def _decode(run: RecordRun, decode: Decode) -> tuple[int, list[RecordRun], BaseException | None]:
    """Decode *run*'s records up to the first for which *decode* raises.

    Returns the index after the last one, the records that are not dropped, and what was raised.
    """
    made: list[Record[Any, Any] | None] = []
    failure: BaseException | None = None
    try:
        for record in run.records():
            made.append(decode(record))  # kept when the next one fails
    except BaseException as error:  # noqa: BLE001 raised again when the chunk stands at this record
        failure = error
    stop = run.start + len(made)
    done = RecordRun(run.tp, run.batch, run.start, stop, made, run.start)
    return stop, list(done.runs(bytes(each is not None for each in made))), failure


def _flags(mask: Any) -> bytes:
    """A byte, 0 or 1, for each value."""
    values = mask.to_pylist() if hasattr(mask, "to_pylist") else mask.tolist() if hasattr(mask, "tolist") else list(mask)
    others = set(map(type, values)) - {bool, NoneType}
    if others:
        raise TypeError(f"a mask holds a boolean for each record, and this one has {', '.join(sorted(each.__name__ for each in others))}")
    return bytes(map(bool, values))


def _raise_in_order(buffer: FetchBuffer, entry: Chunk | Failure, error: Exception, *, first: bool, again: bool) -> None:
    """Raise *error* if nothing was collected before it; otherwise the next poll does."""
    if not first:
        buffer.give_back(entry)
        return
    if again:
        buffer.give_back(entry, last=True)  # other partitions go on between two times it is raised
    else:
        buffer.use_up(entry)
    raise raisable(error) if isinstance(entry, Failure) else error  # what is kept is raised as a copy


def _located(chunk: Chunk, error: CorruptRecordError) -> CorruptRecordError:
    behind = _behind_first(chunk)
    return CorruptRecordError(
        f"the data of {chunk.tp} from offset {chunk.position} on is damaged: {error.message}. seek() past it to go on: "
        f"the next offset is {behind}.", topic_partition=chunk.tp, next_offset=behind)


def _behind_first(chunk: Chunk) -> int:
    """The offset after the first batch, never at the position or behind the next batch: its header may be damaged."""
    behind = max(chunk.batches[0].next_offset, chunk.position + 1)
    return min(behind, chunk.batches[1].base_offset) if len(chunk.batches) > 1 and chunk.batches[1].base_offset > chunk.position else behind
