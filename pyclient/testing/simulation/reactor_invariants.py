"""Invariants of the reactors that clients of a simulation run on: what callbacks rely on, tried in each of them."""
from __future__ import annotations

from functools import partial
from typing import Final

from pyclient.reactor.reactor import Reactor, Timer
from pyclient.testing.simulation.invariants import INVARIANTS, Judge, breach, holds

TRIAL_S: Final = 0.01
ORDER: Final = ["posted", "first", "second", "due earlier", "due later"]


@holds("tried", "S12")
def callbacks_run_in_their_order(judge: Judge, seen: list[str]) -> None:
    """Posted calls run in the order in which they came, timers in that of their times, none after it was cancelled."""
    if seen != ORDER:
        raise breach(callbacks_run_in_their_order, f"{seen} ran, not {ORDER}")


class Trial:
    """Callbacks and timers whose order is known, run by a reactor from now on."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self.seen: list[str] = []
        self._timers: list[Timer] = []
        reactor.call_soon(self._begin)

    def _begin(self) -> None:
        self.seen.append("posted")
        now = self.reactor.clock()
        self._timers = [self.reactor.call_at(now + seconds, partial(self.seen.append, name))
                        for name, seconds in (("due later", 0.002), ("due earlier", 0.001), ("cancelled", 0.001))]
        self._timers[-1].cancel()
        for name in ("first", "second"):
            self.reactor.call_soon(partial(self.seen.append, name))

    def end(self) -> None:
        """Leave no timer, also if the client was closed meanwhile."""
        self.reactor.call_soon(self._cancel)

    def _cancel(self) -> None:
        for each in self._timers:
            each.cancel()


RULES_OF_REACTORS: Final = (INVARIANTS[callbacks_run_in_their_order.__name__],)
"""Of each client's."""
