"""Search for a seed that finds a mutant."""
from __future__ import annotations

import signal
from collections.abc import Iterable
from types import FrameType

import attrs

from pyclient.testing.simulation.families import FAMILIES
from tests.simulation.mutants import named
from tests.simulation import rewritten
from tests.simulation.mutation import Mutant, Rewrite, applied

HANGS_AFTER_S = 25.0
"""Of the processor. A seed takes about a second; one that takes this long is in a loop that no virtual clock sees."""


@attrs.frozen
class Finding:
    """The outcome of one search."""

    mutant: str
    tried: int
    seed: int
    """The last seed tried: the one that found the mutant, if any did."""
    invariant: str | None
    """The invariant that failed; None: the mutant survived."""
    defect: str | None = None
    """An error of the mutant itself, which proves nothing about the simulation."""


class _HangError(SystemExit):
    """Ends the loop, too: it reports every other error of a callback, and goes on."""


def hunt(name: str, seeds: Iterable[int]) -> Finding:
    """Run seeds until one finds the mutant of that name."""
    mutant = named(name)
    if isinstance(mutant.change, Rewrite):
        assert rewritten.is_loaded(mutant.change.module), f"{name}: the process must have loaded its module"
    finding = Finding(name, 0, 0, None)
    for tried, seed in enumerate(seeds, 1):
        finding = _tried(mutant, tried, seed)
        if finding.invariant is not None or finding.defect is not None:
            break
    return finding


def _tried(mutant: Mutant, tried: int, seed: int) -> Finding:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise _HangError

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, HANGS_AFTER_S, 1.0)
    try:
        with applied(mutant) as defects:
            try:
                invariant = FAMILIES[mutant.family].run(seed, None).invariant
            except (_HangError, BaseExceptionGroup):  # a group when it was raised in a task
                signal.setitimer(signal.ITIMER_PROF, 0)
                invariant = "hangs"
        return Finding(mutant.name, tried, seed, invariant, defects[0] if defects else None)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
