"""The invariants of reactors: a trial of one that does what it has to, and of others that do not."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pyclient.reactor.loop_poller import LoopPoller
from pyclient.reactor.reactor import Reactor
from pyclient.testing.simulation.facts import Facts
from pyclient.testing.simulation.invariants import InvariantError, Judge
from pyclient.testing.simulation.reactor_invariants import ORDER, RULES_OF_REACTORS, TRIAL_S, Trial
from pyclient.testing.simulation.world import World


class Other:
    """A reactor with one method replaced."""

    def __init__(self, reactor: Reactor, **methods: Callable[..., Any]) -> None:
        self._reactor, self._methods = reactor, methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name, getattr(self._reactor, name))


def tried(world: World, wrap: Callable[[Reactor], Any]) -> list[str]:
    async def steps() -> list[str]:
        reactor = Reactor(LoopPoller(world.loop.time), world.loop.time)
        reactor.poller.bind(world.loop, reactor)  # type: ignore[attr-defined]  # it is a LoopPoller
        trial = Trial(wrap(reactor))
        await asyncio.sleep(TRIAL_S)
        trial.end()
        assert reactor.timers == 0
        return trial.seen

    return world.run(steps())


def test_S12_a_reactor_runs_callbacks_in_their_order() -> None:
    with World(1) as world:
        judge = Judge(world, Facts(), RULES_OF_REACTORS)
        judge.after("tried", tried(world, lambda reactor: reactor))
        for wrong in (ORDER[:-1], [*ORDER, "cancelled"], [*ORDER[:3], ORDER[4], ORDER[3]]):
            with pytest.raises(InvariantError, match="ran, not"):
                judge.after("tried", wrong)


def test_S12_a_timer_that_is_late_is_seen() -> None:
    with World(1) as world:
        late = tried(world, lambda reactor: Other(reactor, call_at=lambda when, callback: reactor.call_at(when + 2 * TRIAL_S, callback)))
        assert late == ORDER[:3]
