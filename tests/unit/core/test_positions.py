"""The phases of a position: every row of the table, and nothing else (C01)."""
from __future__ import annotations

import pytest

from pyclient.core.fetching.positions import POSITION, Event, Phase, Position
from pyclient.errors import IllegalTransitionError
from pyclient.records import TopicPartition

P, E = Phase, Event
ROWS = {  # written from the rules, not from the table
    (P.INITIALIZING, E.FOUND): P.FETCHING,
    (P.INITIALIZING, E.NOT_FOUND): P.AWAIT_RESET,
    (P.AWAIT_RESET, E.FOUND): P.FETCHING,
    (P.AWAIT_RESET, E.NO_POLICY): P.STUCK,
    (P.FETCHING, E.FOUND): P.FETCHING,
    (P.FETCHING, E.OUT_OF_RANGE): P.AWAIT_RESET,
    (P.FETCHING, E.DIVERGED): P.AWAIT_RESET,
    (P.STUCK, E.FOUND): P.FETCHING,
    (P.INITIALIZING, E.SOUGHT): P.AWAIT_RESET,
    (P.AWAIT_RESET, E.SOUGHT): P.AWAIT_RESET,
    (P.FETCHING, E.SOUGHT): P.AWAIT_RESET,
    (P.STUCK, E.SOUGHT): P.AWAIT_RESET,
}


@pytest.mark.parametrize(("pair", "after"), ROWS.items(), ids=str)
def test_C01_every_row_of_the_table_is_taken(pair: tuple[Phase, Event], after: Phase) -> None:
    assert POSITION.after(*pair) is after


def test_C01_the_table_has_no_other_row() -> None:
    assert POSITION.rows == ROWS


NAMES = ("tp", "generation", "phase", "known", "offset", "start", "reset_to", "lost", "high_watermark", "failures", "history")


def vars_of(position: Position) -> dict[str, object]:
    return {name: getattr(position, name) for name in NAMES}


def position(phase: Phase) -> Position:
    return Position(TopicPartition("a", 0), 1, phase)


@pytest.mark.parametrize("phase", Phase)
def test_C01_a_position_may_be_fetched_only_while_it_is_known(phase: Phase) -> None:
    assert position(phase).known is (phase is Phase.FETCHING)


@pytest.mark.parametrize("phase", Phase)
def test_an_offset_may_be_found_in_any_phase_and_ends_what_was_sought(phase: Phase) -> None:
    found = position(phase)
    found.reset_to = -2
    found.found(7)
    assert (found.known, found.offset, found.start) == (True, 7, 7)
    assert vars_of(found)["reset_to"] is None


def test_an_event_that_is_refused_changes_nothing() -> None:
    stuck = position(Phase.STUCK)
    with pytest.raises(IllegalTransitionError):
        stuck.advance(Event.OUT_OF_RANGE)
    assert stuck.phase is Phase.STUCK
