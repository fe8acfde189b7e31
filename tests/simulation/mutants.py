"""The deliberate bugs that the simulation must find: every row of every state table, and the best of the bug museum."""
from __future__ import annotations

from collections.abc import Iterator

from pyclient.testing.simulation.families import FAMILIES
from pyclient.testing.simulation.sweep import rows
from tests.simulation import mutants_of_connections, mutants_of_groups, mutants_of_producers, mutants_of_readers, mutants_of_the_reactor, mutants_of_transactions
from tests.simulation.mutation import DroppedRow, Mutant
from tests.simulation.situations import needs


def museum() -> list[Mutant]:
    """The bugs that other clients had, or that this one could have."""
    return [
        *mutants_of_producers.MUSEUM.mutants, *mutants_of_readers.MUSEUM.mutants, *mutants_of_connections.MUSEUM.mutants,
        *mutants_of_groups.MUSEUM.mutants, *mutants_of_transactions.MUSEUM.mutants, *mutants_of_the_reactor.MUSEUM.mutants,
        *mutants_of_the_reactor.OF_CHAINS.mutants]


def dropped_rows() -> Iterator[Mutant]:
    """Each row of each state table, dropped."""
    for family in FAMILIES.values():
        for row in rows(family):
            yield Mutant(row_name(*row), "table", "state tables", DroppedRow(*row), family.name, needs(*row))


def row_name(table: str, state: str, event: str) -> str:
    """The name of the mutant that lacks this row."""
    return f"{table} without {state} + {event}"


def every_mutant() -> list[Mutant]:
    """All mutants; their names are unique."""
    return [*museum(), *dropped_rows()]


def named(name: str) -> Mutant:
    """The mutant of this name."""
    return next(each for each in every_mutant() if each.name == name)
