"""The shortest plan that still fails: faults are taken away while what is left breaks the same invariant."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from pyclient.testing.simulation.faults import Fault
from pyclient.testing.simulation.run import Outcome, run_seed


def shrunk(outcome: Outcome, *, run: Callable[[int, Sequence[Fault]], Outcome] = run_seed) -> Outcome:
    """The outcome of the same seed with as few faults as possible; *outcome* itself when none can go."""
    best, size = outcome, max(1, len(outcome.faults) // 2)
    while size:
        best, size = _without(best, size, run)
    return best


def _without(outcome: Outcome, size: int, run: Callable[[int, Sequence[Fault]], Outcome]) -> tuple[Outcome, int]:
    """Try to take away *size* faults at a time; gives the best outcome and the size to go on with (0: done)."""
    at = 0
    while at < len(outcome.faults):
        rest = [*outcome.faults[:at], *outcome.faults[at + size:]]
        tried = run(outcome.seed, rest)
        if tried.invariant == outcome.invariant:
            outcome = tried
        else:
            at += size
    return outcome, size // 2
