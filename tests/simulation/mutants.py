"""The deliberate bugs that the simulation must find: every row of every state table, and the best of the bug museum."""
from __future__ import annotations

from collections.abc import Iterator

from pyclient.testing.simulation.families import FAMILIES
from pyclient.testing.simulation.sweep import NOT_TAKEN, RARE, rows
from tests.simulation import mutants_of_connections, mutants_of_groups, mutants_of_producers, mutants_of_readers
from tests.simulation.mutation import DroppedRow, Mutant


def museum() -> list[Mutant]:
    """The bugs that other clients had, or that this one could have."""
    return [
        *mutants_of_producers.MUSEUM.mutants, *mutants_of_readers.MUSEUM.mutants, *mutants_of_connections.MUSEUM.mutants,
        *mutants_of_groups.MUSEUM.mutants]


def dropped_rows() -> Iterator[Mutant]:
    """Each row of each state table, dropped. No seed misses a row that no seed takes."""
    for family in FAMILIES.values():
        for table, state, event in rows(family):
            yield Mutant(f"{table} without {state} + {event}", "table", "state tables", DroppedRow(table, state, event), family.name,
                         {**NOT_TAKEN, **RARE}.get((table, state, event), ""))


def every_mutant() -> list[Mutant]:
    """All mutants; their names are unique."""
    return [*museum(), *dropped_rows()]
