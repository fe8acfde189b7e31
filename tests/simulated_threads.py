"""Sync clients in a simulated world, whose time moves on while the user's thread waits for one of them.

The one user's thread runs the world's loop whenever it would sleep. Another client's event then comes to that client's
background thread, which runs until it sleeps again, while the loop stands still. So threads take turns, and the seed
decides them, as it decides everything else.
"""
from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

import attrs

from pyclient.reactor.pollers import READABLE, WRITABLE, Sink
from pyclient.runtime.environment import using
from pyclient.testing import World
from pyclient.testing.simulation.loop import SimulationLoop


@contextlib.contextmanager
def inside(world: World, client: str) -> Iterator[None]:
    """As `World.inside`, for sync clients. The thread that makes them alone uses them, and closes them."""
    with using(attrs.evolve(world.environment(client), poller=lambda: SimulatedPoller(world.loop))):
        yield


class SimulatedPoller:
    """Implements `pyclient.reactor.pollers.Poller`. Made by the user's thread, before the background thread begins."""

    shared = True
    wakes_any = False
    arms = True

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self._user = threading.get_ident()
        self._background = Background()
        self._sinks: dict[int, Sink] = {}
        self._came: list[tuple[Sink, int]] = []
        self._woken = False
        self._sleep: asyncio.Future[None] | None = None
        """Of the user's thread, if it sleeps in this poller and not in another client's."""
        self._deadline: asyncio.TimerHandle | None = None

    def register(self, descriptor: int, sink: Sink) -> int:
        """As `Poller.register`."""
        self._sinks[descriptor] = sink
        return descriptor

    def arm(self, token: int, events: int) -> None:
        """As `Poller.arm`."""
        if events & READABLE:
            self._loop.add_reader(token, self._report, token, READABLE)
        if events & WRITABLE:
            self._loop.add_writer(token, self._report, token, WRITABLE)

    def _report(self, descriptor: int, event: int) -> None:
        self._disarm(descriptor, event)
        self._came.append((self._sinks[descriptor], event))
        self._rouse()

    def _disarm(self, descriptor: int, events: int) -> None:
        if events & READABLE:
            self._loop.remove_reader(descriptor)
        if events & WRITABLE:
            self._loop.remove_writer(descriptor)

    def unregister(self, token: int) -> None:
        """As `Poller.unregister`."""
        if self._sinks.pop(token, None) is not None:
            self._disarm(token, READABLE | WRITABLE)

    def sleep(self, timeout: float | None) -> list[tuple[Sink, int]]:
        """As `Poller.sleep`."""
        if threading.get_ident() != self._user:
            self._background.rest(self._has_news)
        else:
            self._background.await_rest()
            if not self._has_news():
                self._run_world(timeout)
        came, self._came, self._woken = self._came, [], False
        return came

    def _has_news(self) -> bool:
        return self._woken or bool(self._came)

    def _run_world(self, timeout: float | None) -> None:
        self._sleep = self._loop.create_future()
        alarm = None if timeout is None else self._loop.call_later(timeout, self._rouse)
        try:
            self._loop.run_until_complete(self._sleep)
        finally:
            self._sleep = None
            if alarm is not None:
                alarm.cancel()

    def _rouse(self) -> None:
        """Let a thread of this client go on: the user's if it sleeps here, else the background thread."""
        if self._sleep is not None:
            if not self._sleep.done():
                self._sleep.set_result(None)
        elif threading.get_ident() == self._user:
            self._background.run()

    def wake(self) -> None:
        """As `Poller.wake`."""
        self._woken = True
        self._rouse()

    def set_deadline(self, at: float | None) -> None:
        """As `Poller.set_deadline`."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if at is None else self._loop.call_at(max(at, self._loop.time()), self.wake)

    def close(self) -> None:
        """As `Poller.close`: the background thread calls it last."""
        self.set_deadline(None)
        self._background.end()


class Background:
    """Lends the user's turn to the background thread, which gives it back when it sleeps or ends."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rests = self._ended = False

    def rest(self, has_news: Callable[[], bool]) -> None:
        """In the background thread: sleep until `run`, unless there is something to do."""
        with self._changed:
            if not has_news():
                self._rests = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._rests)

    def run(self) -> None:
        """In the user's thread: let it run until it sleeps again."""
        self.await_rest()
        with self._changed:
            self._rests = False
            self._changed.notify_all()
        self.await_rest()

    def await_rest(self) -> None:
        """It has begun, and sleeps now, or has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._rests or self._ended)

    def end(self) -> None:
        """In the background thread, at its end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
