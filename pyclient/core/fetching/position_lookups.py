# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Finds where to read each partition: the committed offset, or the one of a reset (C10, C15, C20).

Knows positions and look-ups; does not fetch. A position is looked up at most once at a time. A look-up that fails is
repeated after a rest.
"""
from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from pyclient.core.fetching.assigned_positions import AssignedPositions
from pyclient.core.fetching.fetch_errors import no_offset, not_in_log
from pyclient.core.fetching.lookups import LATEST, OffsetLookups
from pyclient.core.fetching.placement import Placement
from pyclient.core.fetching.positions import Event, Lost, Phase, Position
from pyclient.core.metadata import Metadata
from pyclient.errors import KafkaError
from pyclient.records import NO_LEADER_EPOCH, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

_log = logging.getLogger(__name__)
FindCommitted: TypeAlias = Callable[
    [Sequence[TopicPartition], Callable[[TopicPartition, OffsetAndMetadata | None, KafkaError | None, float], None]],
    Callable[[TopicPartition], None]]
"""Looks up committed positions; calls back with (partition, position or None, error or None, now) for each.

Returns a function that cancels the lookup of one partition."""


class PositionLookups:
    """The look-ups of positions. ``reset_time()`` is the timestamp that auto_offset_reset means; None: raise."""

    def __init__(self, positions: AssignedPositions, placement: Placement, metadata: Metadata, offsets: OffsetLookups, *,
                 reset_time: Callable[[], int | None], find_committed: FindCommitted | None) -> None:
        self._positions = positions
        self._placement = placement
        self._view = metadata.view
        self._offsets = offsets
        self._reset_time = reset_time
        self._find_committed = find_committed
        self._cancels: dict[TopicPartition, Callable[[], None]] = {}  # of the look-ups under way
        self._topic_ids: dict[TopicPartition, bytes | None] = {}  # of the topics that the positions belong to

    # ---- begin and end ----------------------------------------------------------------------------------------------

    def locate(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Look up the positions together, except those that are known or whose look-up runs or waits."""
        positions = [self._positions.by_partition[tp] for tp in partitions if tp not in self._cancels and not self._placement.rests(tp)]
        self.begin([position for position in positions if position.phase is Phase.INITIALIZING], now)

    def repeat(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Look up again what has no position and no look-up under way."""
        positions = [self._positions.by_partition[tp] for tp in partitions if tp not in self._cancels]
        for position in positions:
            if position.phase is Phase.AWAIT_RESET:
                self.reset(position, now)
        self.begin([position for position in positions if position.phase is Phase.INITIALIZING], now)

    def cancel(self, tp: TopicPartition) -> None:
        """Cancel the look-up: otherwise one that cannot be answered would be repeated forever."""
        self._positions.lookup_errors.pop(tp, None)
        self._topic_ids.pop(tp, None)
        cancel = self._cancels.pop(tp, None)
        if cancel is not None:
            cancel()

    def renew(self, tp: TopicPartition) -> Position:
        """Begin another generation of the position, without a look-up and in no session."""
        self._placement.remove(tp)
        self.cancel(tp)
        return self._positions.renew(tp)

    # ---- look-ups ---------------------------------------------------------------------------------------------------

    def begin(self, positions: list[Position], now: float) -> None:
        """C20: begin at the committed offset if there is a group, else where auto_offset_reset says."""
        if self._find_committed is None:
            for position in positions:
                self._on_committed(position, None, None, now)
        elif positions:
            begun = {position.tp: position for position in positions}
            cancel = self._find_committed(
                list(begun), lambda tp, found, error, now: self._on_committed(begun[tp], found, error, now))
            self._cancels.update((tp, functools.partial(cancel, tp)) for tp in begun)

    def _on_committed(self, position: Position, found: OffsetAndMetadata | None, error: KafkaError | None,
                      now: float) -> None:
        if not self._positions.is_current(position) or position.phase is not Phase.INITIALIZING:
            return
        self._cancels.pop(position.tp, None)
        if error is not None:
            self._on_error(position, error, now)
        elif found is None:
            position.advance(Event.NOT_FOUND)
            self.reset(position, now)
        else:
            self._found(position, found.offset, NO_LEADER_EPOCH if found.leader_epoch is None else found.leader_epoch)

    def reset(self, position: Position, now: float) -> None:
        """Find the offset of the user's reset, else of auto_offset_reset."""
        timestamp = position.reset_to if position.reset_to is not None else self._reset_time()
        if timestamp is None:
            position.advance(Event.NO_POLICY)
            self._positions.fail(position, no_offset(position), lasting=True)
            return
        generation = position.generation

        def found(_tp: TopicPartition, found: OffsetAndTimestamp | None, error: KafkaError | None, now: float) -> None:
            if (self._positions.is_current(position) and position.generation == generation
                    and position.phase is Phase.AWAIT_RESET):
                self._on_offset(position, timestamp, found, error, now)

        (search,) = self._offsets.submit({position.tp: timestamp}, found, deadline=None, now=now)
        self._cancels[position.tp] = functools.partial(self._offsets.cancel, search)

    def _on_offset(self, position: Position, timestamp: int, found: OffsetAndTimestamp | None, error: KafkaError | None,
                   now: float) -> None:
        self._cancels.pop(position.tp, None)
        if error is not None:
            self._on_error(position, error, now)
        elif found is None and timestamp != LATEST:
            position.reset_to = LATEST  # every record is older: the next record to be written is read first
            self.reset(position, now)
        else:
            offset = found.offset if found is not None else 0
            _warn_of_reset(position, offset)
            self._found(position, offset)
            self._positions.show(position)
            position.lost = None  # last: until then no thread takes the lost position for the current one

    def _found(self, position: Position, offset: int, epoch: int = NO_LEADER_EPOCH) -> None:
        position.found(offset, epoch)
        self._positions.lookup_errors.pop(position.tp, None)
        self._placement.place(position.tp)

    def _on_error(self, position: Position, error: KafkaError, now: float) -> None:
        """C20: polls raise an error that waiting will hardly cure. The look-up is repeated: the cause may be mended."""
        self._positions.fail(position, error, lasting=False)
        self._positions.lookup_errors[position.tp] = error
        self._placement.rest(position, now)

    # ---- positions that are not valid any more ----------------------------------------------------------------------

    @property
    def resets(self) -> bool:
        """Whether auto_offset_reset finds another position for one that is not valid; otherwise polls raise."""
        return self._reset_time() is not None

    def is_of_current_topic(self, position: Position, now: float) -> bool:
        """C15: a topic that was deleted and created again is another topic. A position of the old one is reset."""
        current = self._view.cluster.topics[position.tp.topic].id_bytes
        known = self._topic_ids.setdefault(position.tp, current)
        if known == current or known is None or current is None:
            return True
        self._topic_ids[position.tp] = current
        self.on_out_of_range(now, position, f"is from before topic {position.tp.topic!r} was deleted and created again", same_log=False)
        return False

    def on_out_of_range(self, now: float, position: Position, why: str, *, same_log: bool = True) -> None:
        """C10: the log does not hold the position: reset it by policy, else raise an error and wait for a seek."""
        position.advance(Event.OUT_OF_RANGE)
        if self.resets:
            position.lost = Lost(position.offset, why, same_log)
            self._placement.rest(position, now)  # else it would loop without a pause if the offset found is refused too
            self.reset(position, now)
            return
        position.advance(Event.NO_POLICY)
        self._positions.fail(position, not_in_log(position, why), lasting=True)


def _warn_of_reset(position: Position, offset: int) -> None:
    """C10: records may be skipped or read again."""
    lost = position.lost
    if lost is not None:
        _log.warning("%s: offset %d %s, so auto_offset_reset continues at offset %d%s", position.tp, lost.offset, lost.why, offset,
                     _distance(offset - lost.offset) if lost.same_log else "")


def _distance(offsets: int) -> str:
    """What a reset by so many offsets means for the user."""
    records = "1 record" if abs(offsets) == 1 else f"{abs(offsets)} records"
    if offsets > 0:
        return f": {records} ahead, which skips what is between"
    return f": {records} back" if offsets < 0 else ""
