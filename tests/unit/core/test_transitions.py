"""Tables of states: rows and nothing else, listed by name, and observable."""
from __future__ import annotations

import enum
from collections.abc import Iterator

import pytest

from pyclient.core.connection import CONNECTION
from pyclient.core.fetching.positions import POSITION
from pyclient.core.transitions import TABLES, Transitions
from pyclient.errors import IllegalTransitionError


class Door(enum.Enum):
    OPEN = "open"
    SHUT = "shut"


class Hand(enum.Enum):
    PUSH = "push"
    PULL = "pull"


@pytest.fixture
def doors() -> Iterator[Transitions[Door, Hand]]:
    yield Transitions("door", {(Door.OPEN, Hand.PUSH): Door.SHUT, (Door.SHUT, Hand.PULL): Door.OPEN})
    del TABLES["door"]


def test_a_row_is_taken_and_any_other_pair_is_refused_with_both_its_names(doors: Transitions[Door, Hand]) -> None:
    assert doors.after(Door.OPEN, Hand.PUSH) is Door.SHUT
    with pytest.raises(IllegalTransitionError, match="defect of the client") as caught:
        doors.after(Door.OPEN, Hand.PULL)
    assert (caught.value.state, caught.value.event) == (repr(Door.OPEN), repr(Hand.PULL))


def test_an_observer_sees_each_row_that_is_taken_and_no_other_pair(doors: Transitions[Door, Hand]) -> None:
    taken: list[tuple[Door, Hand]] = []
    doors.observer = lambda state, event: taken.append((state, event))
    doors.after(Door.OPEN, Hand.PUSH)
    with pytest.raises(IllegalTransitionError):
        doors.after(Door.OPEN, Hand.PULL)
    doors.observer = None
    doors.after(Door.SHUT, Hand.PULL)
    assert taken == [(Door.OPEN, Hand.PUSH)]


def test_every_table_of_the_client_is_listed_by_its_name() -> None:
    assert (TABLES["connection"], TABLES["position"]) == (CONNECTION, POSITION)
    assert all(table.name == name and table.rows for name, table in TABLES.items())


def test_two_tables_cannot_have_one_name_and_no_row_can_be_changed(doors: Transitions[Door, Hand]) -> None:
    with pytest.raises(ValueError, match="'door'"):
        Transitions("door", doors.rows)
    with pytest.raises(TypeError):
        doors.rows[Door.OPEN, Hand.PULL] = Door.OPEN  # type: ignore[index]


def test_the_repr_has_the_name_and_the_number_of_rows(doors: Transitions[Door, Hand]) -> None:
    assert repr(doors) == "<Transitions door, 2 rows>"
