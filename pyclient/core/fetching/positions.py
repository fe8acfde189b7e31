# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The position of each assigned partition: one table of phases (C01). Independent of requests."""
from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple

from pyclient.codec.batches import RecordBatch
from pyclient.core.transitions import Transitions
from pyclient.records import NO_LEADER_EPOCH, TopicPartition


class Phase(enum.Enum):
    """What is known of where to read."""

    INITIALIZING = "the committed offset is being looked up"
    AWAIT_RESET = "the start or end of the log is being looked up"
    FETCHING = "the position is known"
    STUCK = "no position and no policy to get one: a seek must come"


class Event(enum.Enum):
    """What can happen to a position."""

    FOUND = "an offset was found or given"
    NOT_FOUND = "nothing is committed"
    OUT_OF_RANGE = "the log does not hold the position any more"
    DIVERGED = "the log was cut back below the position"
    SOUGHT = "the user asked for the start, the end or a time"
    NO_POLICY = "auto_offset_reset is none"


POSITION: Final[Transitions[Phase, Event]] = Transitions("position", {
    (Phase.INITIALIZING, Event.FOUND): Phase.FETCHING,
    (Phase.INITIALIZING, Event.NOT_FOUND): Phase.AWAIT_RESET,
    (Phase.AWAIT_RESET, Event.FOUND): Phase.FETCHING,
    (Phase.AWAIT_RESET, Event.NO_POLICY): Phase.STUCK,
    (Phase.FETCHING, Event.FOUND): Phase.FETCHING,
    (Phase.FETCHING, Event.OUT_OF_RANGE): Phase.AWAIT_RESET,
    (Phase.FETCHING, Event.DIVERGED): Phase.AWAIT_RESET,
    (Phase.STUCK, Event.FOUND): Phase.FETCHING,
    **{(phase, Event.SOUGHT): Phase.AWAIT_RESET for phase in Phase},
})


FETCHING: Final = Phase.FETCHING


class FromEpoch(NamedTuple):
    """From this offset on, what was read was written under this leader epoch."""

    start: int
    epoch: int


class Lost(NamedTuple):
    """A position that the log does not hold any more, and why."""

    offset: int
    why: str
    same_log: bool  # else its offsets cannot be compared with those of the log that is read now


class Position:
    """One assigned partition: where the next fetch begins, and for which generation of the assignment or seek."""

    def __init__(self, tp: TopicPartition, generation: int, phase: Phase = Phase.INITIALIZING) -> None:
        self.tp = tp
        self.generation = generation
        self.phase = phase
        self.known = phase is FETCHING
        """Whether fetching may go on."""
        self.offset = -1
        self.start = -1
        """Where reading of this generation began."""
        self.reset_to: int | None = None
        """A timestamp to look up; None: what auto_offset_reset says."""
        self.lost: Lost | None = None
        """Until auto_offset_reset has found another position."""
        self.high_watermark: int | None = None
        self.failures = 0
        self.history: list[FromEpoch] = []
        """Of what was read: one entry for each change of the epoch."""

    def advance(self, event: Event) -> None:
        """Move to the phase the table names."""
        self.phase = POSITION.after(self.phase, event)
        self.known = self.phase is FETCHING

    def found(self, offset: int, epoch: int = NO_LEADER_EPOCH) -> None:
        """The next record to fetch is at *offset*, and the one before it was read under *epoch*."""
        self.advance(Event.FOUND)
        self.offset = self.start = offset
        self.reset_to = None
        self.history = [FromEpoch(offset - 1, epoch)] if offset > 0 and epoch > NO_LEADER_EPOCH else []

    # ---- the epochs of what was read (KIP-320) ----------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The leader epoch of the last batch before the offset; -1 when it is not known."""
        return self.history[-1].epoch if self.history else NO_LEADER_EPOCH

    def read(self, batches: Iterable[RecordBatch], next_offset: int) -> int:
        """These came; the next record to fetch is at *next_offset*. Returns `epoch` as it is then."""
        epoch = self.epoch
        for batch in batches:
            if batch.leader_epoch > epoch:
                epoch = batch.leader_epoch
                self.history.append(FromEpoch(batch.base_offset, epoch))
        self.offset = next_offset
        return epoch

    def divergence(self, epoch: int, end: int) -> int:
        """The offset up to which what was read is in the leader's log as well (C11).

        *epoch* is the leader's last epoch that is not above ours, and ends at *end* there. In what was read it may have
        ended earlier: both logs can have continued with other epochs from there.
        """
        for each in self.history:
            if each.epoch > epoch:
                return min(each.start, end)
        return min(self.offset, end)

    def back_to(self, offset: int) -> None:
        """What was read from *offset* on does not count any more."""
        self.advance(Event.FOUND)
        self.offset = self.start = offset
        self.history = [each for each in self.history if each.start < offset]
