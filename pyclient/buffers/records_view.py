"""Records as a poll returns them: views of fetched batches.

An object is made when a record is looked at. Independent of brokers and groups.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, overload

from pyclient.buffers.decoded_columns import decoded
from pyclient.buffers.record_run import RecordRun, RecordRuns, placed
from pyclient.codec.columns import to_arrow
from pyclient.foreign_calls import answers_foreign_calls
from pyclient.records import K_co, OffsetAndMetadata, TopicPartition, V_co
from pyclient.records.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.column_serializers import ColumnDecoder

@answers_foreign_calls("records")
class Records(RecordRuns, Sequence[Record[K_co, V_co]]):
    """What one poll returned: sized, iterable, sliceable, by partition, or as Arrow columns without record objects.

    Within a partition records are in the order of their offsets. Without deserializers a record is decoded when it is
    looked at.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        def __init__(self, runs: Iterable[RecordRun] = (), positions: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None: ...
        def __iter__(self) -> Iterator[Record[K_co, V_co]]: ...

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


NOTHING: Final[Records[Any, Any]] = Records()
"""No records, and no position that moved: what most polls find first."""


def _flags(mask: Any) -> bytes:
    """A byte, 0 or 1, for each value."""
    values = mask.to_pylist() if hasattr(mask, "to_pylist") else mask.tolist() if hasattr(mask, "tolist") else list(mask)
    others = set(map(type, values)) - {bool, NoneType}
    if others:
        raise TypeError(f"a mask holds a boolean for each record, and this one has {', '.join(sorted(each.__name__ for each in others))}")
    return bytes(map(bool, values))
