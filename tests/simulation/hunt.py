"""Looking for a seed that finds a mutant."""
from __future__ import annotations

import signal
from collections.abc import Sequence
from types import FrameType

import attrs

from pyclient.testing.simulation.families import FAMILIES
from tests.simulation.mutants import everything
from tests.simulation.mutation import Mutant, applied

HANGS_AFTER_S = 60.0
"""A seed takes a second; what takes so long has lost its way in a loop that no virtual clock sees."""


@attrs.frozen
class Finding:
    """What became of a mutant."""

    mutant: str
    tried: int
    seed: int
    """The last one that was tried: the one that found it."""
    invariant: str | None
    """Which invariant it broke; None: it survived."""


class _Hangs(BaseException):
    pass


def hunt(name: str, seeds: Sequence[int]) -> Finding:
    """Run seeds until one finds the mutant of that name."""
    mutant = next(each for each in everything() if each.name == name)
    finding = Finding(name, 0, 0, None)
    for tried, seed in enumerate(seeds, 1):
        finding = Finding(name, tried, seed, _tried(mutant, seed))
        if finding.invariant is not None:
            break
    return finding


def _tried(mutant: Mutant, seed: int) -> str | None:
    def late(_number: int, _frame: FrameType | None) -> None:
        raise _Hangs

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, HANGS_AFTER_S)
    try:
        with applied(mutant):
            return FAMILIES[mutant.family].run(seed, None).invariant
    except (_Hangs, BaseExceptionGroup):  # a group, when it was raised in a task
        return "hangs"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
