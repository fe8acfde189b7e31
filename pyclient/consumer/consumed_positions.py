# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Which records a consumer has returned, which count as consumed, and which positions are committed.

Belongs to the one thread or task that uses the consumer. All positions of a partition and their owners are in the
project's page on consuming.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from pyclient.buffers.record_iterator import RecordCursor
from pyclient.buffers.collect import Bounds, Taking, collect
from pyclient.buffers.records_view import (
    NOTHING, Records, join, memory_of, offset_ranges, only, positions_after, positions_before, records_after, runs_of, split_at, without)
from pyclient.client.interceptors import consumer_interceptors
from pyclient.clocks import seconds_of
from pyclient.consumer.core import ConsumerCore
from pyclient.consumer.decoding import PrepareRecord, UnpreparedError, decoder
from pyclient.core.done_offsets import DoneOffsets
from pyclient.metrics import RECORDS_CONSUMED
from pyclient.records import OffsetAndMetadata, TopicPartition
from pyclient.records.record import Record


class ConsumedPositions:
    """What was returned to the user and what counts as consumed.

    The result of a poll counts as consumed when the next poll, a commit or a clean close follows. A record of an
    iteration counts when the next one is requested, or at a commit inside the loop's body.
    """

    def __init__(self, core: ConsumerCore, bounds: Bounds, awaits: bool = False) -> None:
        self._core = core
        self._buffer = core.buffer
        self._clock = core.clock
        self._records_consumed = core.metrics.total(RECORDS_CONSUMED)
        self._bounds = bounds
        self._decoder = decoder(core.config, awaits=awaits)
        self._decode = None if self._decoder is None else self._decoder.decode
        self._unprepared: Record[Any, Any] | None = None  # it stays in the buffer until a deserializer's preparation was awaited
        self._interceptors = consumer_interceptors(core.config.interceptors)
        self._consumed = CommitState() if core.config.enable_auto_offset_store else StoredOffsets()
        self._auto_commit_interval = core.config.auto_commit_interval_ms / 1000
        self._next_auto_commit = core.clock() + self._auto_commit_interval
        self._leftover = Records()  # seen by the interceptors, not returned yet
        self._not_intercepted = Records()  # taken from the buffer before Ctrl-C was raised in a user's function
        self._taking: Taking | None = None  # what is being taken from the buffer; of an interrupted call what it had taken
        self._iterated = NOTHING
        self._cursor: RecordCursor | None = None
        self.in_transit: Records[Any, Any] | None = None
        """What a poll has taken. The poll itself ends this: Ctrl-C may come before its caller has them."""
        self.returned: dict[TopicPartition, OffsetAndMetadata] = {}
        """The positions after what the last poll returned."""
        self.auto_commits = bool(core.config.enable_auto_commit and core.config.group_id)
        """Whether enable_auto_commit applies."""

    # ---- poll -------------------------------------------------------------------------------------------------------

    def take(self, limit: int) -> Records[Any, Any]:
        """At most *limit* records of those that are there now. Positions may move even if there are none.

        The records come first in the next call, unless they are returned, or `begin_iteration`, `move_on` or `skip`
        follows.
        """
        if self._taking is not None:
            self._recover()
        try:
            if self._interceptors is None and not self._leftover and not self._not_intercepted:
                return self._collect_in_transit(limit, self._bounds)
            return self._take_leftover_first(limit, self._core.fetcher.withheld)
        except UnpreparedError as unprepared:
            self._unprepared = unprepared.record
            return NOTHING

    def preparation(self) -> PrepareRecord | None:
        """What must be awaited before the next `take`; None: nothing. Only the first call returns it."""
        record, self._unprepared = self._unprepared, None
        return None if record is None or self._decoder is None else PrepareRecord(self._decoder, record)

    def _take_leftover_first(self, limit: int, withheld: frozenset[TopicPartition]) -> Records[Any, Any]:
        leftover = without(self._leftover, withheld)
        if leftover:
            records, later = split_at(leftover, limit)
            # One statement: no interrupt can come between the two.
            self.in_transit, self._leftover = records, join(later, only(self._leftover, withheld))
        elif self._interceptors is None and not self._not_intercepted:
            records = self._collect_in_transit(limit, self._bounds_left())
        else:
            records = self._intercepted(limit, withheld)
        return records

    def _collect(self, limit: int, bounds: Bounds) -> Records[Any, Any]:
        """They are in `_taking` until they are put elsewhere, in one statement."""
        return collect(self._buffer, limit, self._decode, self._begin, bounds)

    def _begin(self, taking: Taking) -> None:
        self._taking = taking

    def _collect_in_transit(self, limit: int, bounds: Bounds) -> Records[Any, Any]:
        records = self._collect(limit, bounds)
        self._consumed.taken(records)
        self.in_transit, self._taking = records, None
        return records

    def _recover(self) -> None:
        """What was taken last and put nowhere comes first in the next poll."""
        if self._taking is not None:
            self._not_intercepted, self._taking = join(self._not_intercepted, self._taking.taken()), None

    def _bounds_left(self) -> Bounds:
        """Without the memory of what was taken before and is kept, such as records of paused partitions."""
        kept = memory_of(self._leftover) + memory_of(self._not_intercepted)
        return Bounds(max(1, self._bounds.memory - kept), self._bounds.inline)

    def _intercepted(self, limit: int, withheld: frozenset[TopicPartition]) -> Records[Any, Any]:
        """What the interceptors leave of the next records.

        The records stay in `_not_intercepted` until the interceptors have returned.
        """
        if not without(self._not_intercepted, withheld):
            self._collect(limit, self._bounds_left())
            self._recover()
        records, later = split_at(without(self._not_intercepted, withheld), limit)
        shown = records if self._interceptors is None else self._interceptors.on_consume(records)
        self._consumed.taken(shown)
        self.in_transit, self._not_intercepted = shown, join(later, only(self._not_intercepted, withheld))
        return shown

    def returned_with(self, records: Records[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What `returned` is once *records* are returned. Changes nothing yet."""
        positions = () if records is NOTHING else records.next_offsets()
        if not positions:  # nor are there records
            return self.returned
        self._records_consumed.add(len(records))
        return {**self.returned, **positions}

    def move_on(self, records: Records[Any, Any]) -> None:
        """A poll goes on after *records*, which are none: only positions moved."""
        self.returned, self.in_transit = self.returned_with(records), None

    def _put_back(self) -> None:
        """The records that an interrupted poll took come first in the next one."""
        if self.in_transit is not None:
            self._leftover, self.in_transit = join(self.in_transit, self._leftover), None

    @property
    def may_drop_records(self) -> bool:
        """Whether records may be taken that the user never gets."""
        return self._interceptors is not None or self._core.config.on_deserialization_error is not None

    def skip(self, records: Records[Any, Any]) -> None:
        """A poll goes on after *records*, all of which were dropped: they count as consumed at once."""
        self._consumed.update(records.next_offsets())
        self.in_transit = None

    def settle(self) -> None:
        """What was returned counts as consumed from now on. An iteration gives back the records it has not shown."""
        if self.in_transit is not None:
            self._put_back()
        if self._cursor is not None:
            self.stop_iteration()
        if self.returned:
            self._consume_returned()

    def _consume_returned(self) -> None:
        if self.returned:
            self._consumed.update(self.returned)
            self.returned = {}

    def discard_returned(self) -> None:
        """What was returned last does not count as consumed: the user's code raised while it processed it."""
        self.stop_iteration()
        self.returned.clear()

    # ---- iteration --------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Record[Any, Any] | None:
        """The record that the running iteration has returned last."""
        return None if self._cursor is None else self._cursor.current

    def begin_iteration(self, records: Records[Any, Any]) -> RecordCursor:
        """Iterate over *records*. Positions that moved while it waited are behind them, so they count first."""
        self._consume_returned()
        self._iterated, self._cursor, self.in_transit = records, (cursor := RecordCursor(runs_of(records))), None
        return cursor

    def exhausted(self) -> None:
        """The iteration needs more records: all it had are consumed."""
        self._records_consumed.add(len(self._iterated))
        self._consumed.update(self._iterated.next_offsets())
        self._iterated, self._cursor = NOTHING, None

    def abandon(self, cursor: RecordCursor) -> None:
        """The loop over *cursor* was left early; nothing to do if it was stopped before."""
        if cursor is self._cursor:
            self.stop_iteration()

    def stop_iteration(self) -> None:
        """End the running iteration: its last record counts as returned, the others come first in the next poll."""
        if self._cursor is None:
            return
        self._cursor.stop()
        rest = self._iterated
        if self.current is not None:
            tp = TopicPartition(self.current.topic, self.current.partition)
            self._consumed.update(positions_before(self._iterated, self.current))
            self.returned[tp] = positions_after(self._iterated, self.current)[tp]
            rest = records_after(self._iterated, self.current)
        self._records_consumed.add(len(self._iterated) - len(rest))
        # One statement, as in `_take_leftover_first`: a second end of the same iteration would double the rest.
        self._leftover, self._iterated, self._cursor = join(rest, self._leftover), NOTHING, None

    # ---- positions --------------------------------------------------------------------------------------------------

    def position(self, tp: TopicPartition) -> int | None:
        """The offset of the next record that the user gets; None: where reading begins, which the core knows.

        A reset moves it before any record of the new place is returned.
        """
        returned = self._after_returned(tp)
        if self._holds(tp):
            return returned
        lost = self._core.fetcher.is_lost(tp)  # asked first: the other way round, a reset could end between the two
        unread = self._buffer.unread(tp)
        if unread is not None:
            return unread
        return None if lost else returned

    def _after_returned(self, tp: TopicPartition) -> int | None:
        inside = {} if self.current is None else positions_after(self._iterated, self.current)
        position = inside.get(tp) or self.returned.get(tp) or self._consumed.get(tp)
        return None if position is None else position.offset

    def _holds(self, tp: TopicPartition) -> bool:
        """Whether records of it were taken from the buffer that the user has not got."""
        self._recover()
        iterated = self._iterated if self.current is None else records_after(self._iterated, self.current)
        for records in (iterated, self._leftover, self._not_intercepted, self.in_transit):
            if records and tp in records.next_offsets():
                return True
        return False

    def consumed(self, tp: TopicPartition) -> int | None:
        """The consumed position; None before anything of the partition was consumed."""
        inside = {} if self.current is None else positions_before(self._iterated, self.current)
        position = inside.get(tp) or self._consumed.get(tp)
        return None if position is None else position.offset

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What ``commit()`` stores: the positions after all returned records, with the current one of an iteration.

        With enable_auto_offset_store off, what `store` was given.
        """
        inside = {} if self.current is None else positions_after(self._iterated, self.current)
        self._consume_returned()
        return self._consumed.committable(inside)

    def store(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The user is done with the records before these, which are the next to be committed."""
        self._consumed.store(positions)

    def done(self, tp: TopicPartition, offset: int) -> None:
        """The user is done with this record. Any thread may call it."""
        self._consumed.done(tp, offset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These were assigned again: no earlier record or position of them counts, nor what was stored."""
        for tp in (gone := set(partitions)):
            self._consumed.drop_stored(tp)
        self.move(gone)

    def move(self, partitions: Iterable[TopicPartition]) -> None:
        """These were sought: no earlier record or position of them counts."""
        gone = set(partitions)
        self._put_back()
        self._recover()
        self.stop_iteration()  # the next record of a running loop comes from the new position
        self._leftover, self._not_intercepted = without(self._leftover, gone), without(self._not_intercepted, gone)
        for tp in gone:
            self._consumed.forget(tp)
            self.returned.pop(tp, None)

    def start_at(self, tp: TopicPartition, position: OffsetAndMetadata) -> None:
        """A seek to *position*."""
        self.move([tp])
        self._consumed.update({tp: position})

    # ---- commits ----------------------------------------------------------------------------------------------------

    def auto_commit_is_due(self) -> bool:
        """Whether the interval between automatic commits has passed."""
        return self.auto_commits and seconds_of(self._clock) >= self._next_auto_commit

    def begin_auto_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions to commit now; the next interval begins."""
        self._next_auto_commit = seconds_of(self._clock) + self._auto_commit_interval
        return self.uncommitted()

    def auto_commit_in(self) -> float | None:
        """Seconds until an automatic commit is due; None while there is nothing to commit."""
        if not self.auto_commits or not self._consumed.any_uncommitted:
            return None
        return max(0.0, self._next_auto_commit - seconds_of(self._clock))

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Consumed positions that are not committed yet."""
        return self._consumed.uncommitted()

    def note_commits(self) -> None:
        """Record the commits that succeeded since the last call, and report them to the interceptors in order (C24)."""
        while (offsets := self._next_finished()) is not None:
            self._consumed.committed(offsets)
            if self._interceptors is not None:
                self._interceptors.on_commit(offsets)

    def _next_finished(self) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        try:
            return self._core.finished_commits.popleft()
        except IndexError:  # the end; or a second thread, which is about to get a ConcurrentUseError, took it
            return None

    def close(self) -> None:
        """Close the interceptors, after the last commit was reported. The next call does what Ctrl-C ended."""
        if self._interceptors is not None:
            self._interceptors.close()
            self._interceptors = None


class CommitState:
    """For each partition: the consumed position, and whether it is committed.

    Every poll looks for uncommitted positions, so they are kept apart.
    """

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}
        self._uncommitted: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed: dict[TopicPartition, int] = {}

    def get(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """The consumed position; None before anything of the partition was consumed."""
        return self._positions.get(tp)

    def committable(self, current: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every consumed position, with those of an iteration's *current* record."""
        return {**self._positions, **current}

    def store(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The user stores these positions."""
        self.update(positions)

    def drop_stored(self, tp: TopicPartition) -> None:
        """What the user has stored of a partition does not count any more."""

    def update(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These partitions are consumed up to there."""
        self._positions.update(positions)
        for tp, position in positions.items():
            self._compare(tp, position)

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions that are not committed yet."""
        return dict(self._uncommitted)

    @property
    def any_uncommitted(self) -> bool:
        """Whether there are such, or may be before the next poll."""
        return bool(self._uncommitted)

    def taken(self, records: Records[Any, Any]) -> None:
        """A poll is about to return these; if Ctrl-C comes first, a later one does."""

    def done(self, tp: TopicPartition, offset: int) -> None:
        """The user is done with this record."""

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A commit of these succeeded."""
        for tp, position in offsets.items():
            self._committed[tp] = position.offset
            if tp in self._positions:
                self._compare(tp, self._positions[tp])

    def _compare(self, tp: TopicPartition, position: OffsetAndMetadata) -> None:
        if self._committed.get(tp) == position.offset:
            self._uncommitted.pop(tp, None)
        else:
            self._uncommitted[tp] = position

    def forget(self, tp: TopicPartition) -> None:
        """The partition has no position any more."""
        for each in (self._positions, self._uncommitted, self._committed):
            each.pop(tp, None)


class StoredOffsets(CommitState):
    """The same for a consumer whose user stores what is to be committed (enable_auto_offset_store=False).

    A seek leaves what is stored: the records before it are done, wherever reading goes on.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self._done_offsets = DoneOffsets()
        self._done: deque[tuple[TopicPartition, int]] = deque()  # from any thread; the consumer's own looks at it

    def taken(self, records: Records[Any, Any]) -> None:
        """As `CommitState.taken`: the user has to be done with them."""
        offsets = offset_ranges(records)
        for tp, end in records.next_offsets().items():
            self._done_offsets.returned(tp, offsets.get(tp, ()), end)

    def done(self, tp: TopicPartition, offset: int) -> None:
        """As `CommitState.done`. One step, for other threads."""
        self._done.append((tp, offset))

    def _store_done(self) -> None:
        """Store the positions before which all is done."""
        while self._done:
            tp, offset = self._done.popleft()
            if (position := self._done_offsets.done(tp, offset)) is not None:
                self.store({tp: position})

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As `CommitState.uncommitted`."""
        self._store_done()
        return super().uncommitted()

    @property
    def any_uncommitted(self) -> bool:
        """As `CommitState.any_uncommitted`: what threads work on may be done while a poll waits."""
        return super().any_uncommitted or bool(self._done) or self._done_offsets.waits

    def update(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """They were read up to there, which says nothing about what is done."""
        self._positions.update(positions)

    def committable(self, current: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything that is stored."""
        self._store_done()
        return dict(self._stored)

    def store(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """As `CommitState.store`."""
        self._stored.update(positions)
        for tp, position in positions.items():
            self._compare(tp, position)

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """As `CommitState.committed`."""
        for tp, position in offsets.items():
            self._committed[tp] = position.offset
            if tp in self._stored:
                self._compare(tp, self._stored[tp])

    def forget(self, tp: TopicPartition) -> None:
        """As `CommitState.forget`; what is stored stays."""
        self._store_done()
        self._done_offsets.forget(tp)
        self._positions.pop(tp, None)

    def drop_stored(self, tp: TopicPartition) -> None:
        """As `CommitState.drop_stored`."""
        self._store_done()
        self._done_offsets.forget(tp)
        self._stored.pop(tp, None)
        super().forget(tp)
