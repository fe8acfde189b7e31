# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Takes records out of a `FetchBuffer`, whose only reader this is. Independent of brokers and groups.

Rule: whatever is raised while records are taken, each record is returned, dropped on purpose, or still buffered: never
lost (C06).
"""
from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from pyclient.buffers.fetch_buffer import Chunk, Failure, FetchBuffer
from pyclient.buffers.record_run import RecordRun, placed
from pyclient.buffers.records_view import NOTHING, Records
from pyclient.codec.batches import RecordBatch
from pyclient.errors import CorruptRecordError, raisable
from pyclient.records import OffsetAndMetadata, TopicPartition
from pyclient.records.record import Record

Decode: TypeAlias = Callable[[Record[Any, Any]], Record[Any, Any] | None]
"""Returns the record with decoded key and value; None drops it."""


class Bounds:
    """What one `collect` may take of memory (B06): it ends behind the batch that passes one of these."""

    def __init__(self, memory: int = sys.maxsize, inline: int = sys.maxsize) -> None:
        self.memory = memory
        """Bytes of batches while they are open."""
        self.inline = inline
        """Bytes that this thread may decompress. A larger batch is refused; another opens it (`Chunk.refused`)."""


UNBOUNDED: Final = Bounds()


class Taking:
    """What a `collect` has taken, and how much more it may take."""

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
            bounds: Bounds = UNBOUNDED) -> Records[Any, Any]:
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
            _raise_in_order(buffer, entry, entry.error, not taking.positions, entry.lasting)
            return
        try:
            refused = _take(entry, taking, decode)
        except CorruptRecordError as error:
            _raise_in_order(buffer, entry, _located(entry, error), not taking.positions, True)
            return
        except Exception as error:  # noqa: BLE001 from the user's code: raised once the records before it are returned
            _raise_in_order(buffer, entry, error, not taking.positions, True)
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
    return stop, list(done.runs(bytes([each is not None for each in made]))), failure


def _raise_in_order(buffer: FetchBuffer, entry: Chunk | Failure, error: Exception, first: bool, again: bool) -> None:
    """Raise *error* if nothing was collected before it; otherwise the next poll does."""
    if not first:
        buffer.give_back(entry)
        return
    if again:
        buffer.give_back(entry, True)  # other partitions go on between two times it is raised
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
