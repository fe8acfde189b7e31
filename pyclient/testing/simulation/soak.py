"""New seeds until Ctrl-C: what a sweep of fixed length never reaches."""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final, NoReturn

import attrs

from pyclient.testing.simulation.invariants import ALONE
from pyclient.testing.simulation.run import Outcome
from pyclient.testing.simulation.sweep import sweep

BATCH: Final = 200
"""Seeds after which worker processes are replaced and counters reset, so that memory does not grow over days."""


@attrs.define
class Soaked:
    """Result of a soak."""

    seeds: int = 0
    broken: list[int] = attrs.field(factory=list)
    """Seeds that broke an invariant."""

    def add(self, outcome: Outcome) -> None:
        """Count one seed in."""
        self.seeds += 1
        if outcome.broken is not None:
            self.broken.append(outcome.seed)


def soak(first: int, found: Soaked, *, jobs: int | None = None, seen: Callable[[Outcome], object] = lambda _: None,
         family: str = ALONE) -> NoReturn:
    """Run a *family*'s seeds from *first* on and count them into *found*; failing seeds do not end it, Ctrl-C does."""
    def count(outcome: Outcome) -> None:
        found.add(outcome)
        seen(outcome)

    for start in itertools.count(first, BATCH):
        sweep(range(start, start + BATCH), jobs=jobs, seen=count, family=family)
    raise AssertionError("numbers have no end")
