"""Reactors for tests of what runs in their steps."""
from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import attrs

from pyclient.reactor.pollers import Sink
from pyclient.reactor.reactor import Reactor
from pyclient.runtime.environment import environment, loop_reactor, thread_reactor, using
from pyclient.runtime.portals import LoopPortal, ThreadPortal

T = TypeVar("T")


class Sleepless:
    """A poller in which no thread sleeps; it has no descriptors, of which thousands of examples would have too many."""

    shared = False
    wakes_any = False
    arms = False

    def register(self, descriptor: int, sink: Sink) -> int:
        raise NotImplementedError

    def arm(self, token: int, events: int) -> None:
        raise NotImplementedError

    def unregister(self, token: int) -> None:
        raise NotImplementedError

    def sleep(self, timeout: float | None) -> list[tuple[Sink, int]]:
        raise NotImplementedError

    def wake(self) -> None:
        pass

    def set_deadline(self, at: float | None) -> None:
        pass

    def close(self) -> None:
        pass


def idle_portal() -> ThreadPortal:
    """One that is not started: the thread that posts to its reactor leads it."""
    with using(attrs.evolve(environment(), poller=Sleepless)):
        return ThreadPortal("test", thread_reactor())


async def open_portal() -> LoopPortal:
    """One on the running loop."""
    portal = LoopPortal("test", loop_reactor())
    await portal.open(_nothing)
    return portal


async def _nothing() -> None:
    """There is no client to open."""


def run_in_task(main: Callable[[Reactor], Coroutine[Any, Any, T]]) -> T:
    """Run *main* as a task of a reactor that a new asyncio loop leads."""
    return run_with_portal(lambda portal: main(portal.reactor))


def run_with_portal(main: Callable[[LoopPortal], Coroutine[Any, Any, T]]) -> T:
    """The same, with the portal."""
    async def run() -> T:
        portal = await open_portal()
        return await portal.call(lambda: main(portal))

    return asyncio.run(run())


class InSteps:
    """An object whose methods are called in steps of a reactor, as its owner would do."""

    def __init__(self, portal: LoopPortal, made: Any) -> None:
        self._portal, self._made = portal, made

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._made, name)
        if inspect.iscoroutinefunction(found):
            return lambda *given, **named: self._portal.call(lambda: found(*given, **named))
        if inspect.ismethod(found):
            return lambda *given, **named: self._portal.run(lambda: found(*given, **named))
        return found
