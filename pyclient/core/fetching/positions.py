"""The position of each assigned partition: one table of phases (C01). Knows no requests."""
from __future__ import annotations

import enum
from typing import Final

import attrs

from pyclient.core.transitions import Transitions
from pyclient.records import TopicPartition


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
    SOUGHT = "the user asked for the start, the end or a time"
    NO_POLICY = "auto_offset_reset is none"


POSITION: Final = Transitions("position", {
    (Phase.INITIALIZING, Event.FOUND): Phase.FETCHING,
    (Phase.INITIALIZING, Event.NOT_FOUND): Phase.AWAIT_RESET,
    (Phase.AWAIT_RESET, Event.FOUND): Phase.FETCHING,
    (Phase.AWAIT_RESET, Event.NO_POLICY): Phase.STUCK,
    (Phase.FETCHING, Event.FOUND): Phase.FETCHING,
    (Phase.FETCHING, Event.OUT_OF_RANGE): Phase.AWAIT_RESET,
    (Phase.STUCK, Event.FOUND): Phase.FETCHING,
    **{(phase, Event.SOUGHT): Phase.AWAIT_RESET for phase in Phase},
})


@attrs.define(eq=False)
class Position:
    """One assigned partition: where the next fetch begins, and for which generation of the assignment or seek."""

    where: TopicPartition
    generation: int
    phase: Phase = Phase.INITIALIZING
    offset: int = -1
    start: int = -1  # where reading of this generation began
    reset_to: int | None = None  # a timestamp to look up; None: what auto_offset_reset says
    high_watermark: int | None = None
    failures: int = 0

    def advance(self, event: Event) -> None:
        """Move to the phase the table names."""
        self.phase = POSITION.after(self.phase, event)

    def found(self, offset: int) -> None:
        """The next record to fetch is at *offset*."""
        self.advance(Event.FOUND)
        self.offset = self.start = offset
        self.reset_to = None

    @property
    def known(self) -> bool:
        """Whether fetching may go on."""
        return self.phase is Phase.FETCHING
