"""The poller of an async client: the user's asyncio loop watches its sockets, and calls its steps.

For a loop that cannot watch sockets, as Windows' proactor, a thread watches them. In a simulation the loop is the
simulated one. The only module of the reactor that knows asyncio's loops.
"""
from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from pyclient.reactor.pollers import READABLE, WRITABLE, Poller, SelectorPoller, Sink
from pyclient.reactor.reactor import Reactor

AGAIN_S: Final = 0.001
"""A loop may call too early: uvloop rounds to milliseconds, and asyncio's clock is read before the reactor's."""


class LoopPoller:
    """Nothing sleeps in it: events lead to steps of the reactor. `bind` comes first."""

    shared = False
    wakes_any = False
    arms = True

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._step: Callable[..., object] = _unbound
        self._watched: dict[int, _Watched] = {}
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: _Watcher | None = None
        self._deadline = 0.0
        """Of the timer."""

    def bind(self, loop: asyncio.AbstractEventLoop, reactor: Reactor) -> None:
        """Call the steps of *reactor* on *loop*, which runs in this thread."""
        self._loop, self._step = loop, reactor.step
        reactor.bind(self.wake)

    def register(self, descriptor: int, sink: Sink) -> int:
        """As `Poller.register`."""
        assert self._loop is not None
        if self._watcher is None:
            try:
                self._loop.add_reader(descriptor, self._readable, descriptor)
            except NotImplementedError:
                self._watcher = _Watcher(self._loop, self._step, SelectorPoller(self._clock))
        if self._watcher is not None:
            return self._watcher.poller.register(descriptor, sink)
        self._watched[descriptor] = _Watched(sink)
        return descriptor

    def arm(self, token: int, events: int) -> None:
        """As `Poller.arm`."""
        if self._watcher is not None:
            self._watcher.poller.arm(token, events)
        elif self._loop is not None and (watched := self._watched.get(token)) is not None:
            if events & READABLE:
                watched.armed = True
                if not watched.is_read:
                    watched.is_read = True
                    self._loop.add_reader(token, self._readable, token)
            if events & WRITABLE:
                self._loop.add_writer(token, self._writable, token)

    def _readable(self, descriptor: int) -> None:
        """Report it once. A loop calls as long as there is something to read: let it not, until `arm`."""
        watched = self._watched[descriptor]
        if watched.armed:
            watched.armed = False
            self._step(((watched.sink, READABLE),))
        else:
            assert self._loop is not None
            watched.is_read = False
            self._loop.remove_reader(descriptor)

    def _writable(self, descriptor: int) -> None:
        assert self._loop is not None
        self._loop.remove_writer(descriptor)
        self._step(((self._watched[descriptor].sink, WRITABLE),))

    def unregister(self, token: int) -> None:
        """As `Poller.unregister`."""
        if self._watcher is not None:
            self._watcher.poller.unregister(token)
        elif self._watched.pop(token, None) is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(token)
            self._loop.remove_writer(token)

    def sleep(self, timeout: float | None) -> list[tuple[Sink, int]]:
        """The loop sleeps."""
        raise NotImplementedError

    def wake(self) -> None:
        """As `Poller.wake`: step soon. Any thread may call it."""
        if self._scheduled or self._loop is None or self._loop.is_closed():
            return
        self._scheduled = True
        try:
            here = asyncio._get_running_loop() is self._loop
            (self._loop.call_soon if here else self._loop.call_soon_threadsafe)(self._on_wake)
        except BaseException as error:
            self._scheduled = False
            if type(error) is not RuntimeError:  # the loop was closed meanwhile; a RecursionError is one too
                raise

    def _on_wake(self) -> None:
        self._scheduled = False
        self._step()

    def set_deadline(self, at: float | None) -> None:
        """As `Poller.set_deadline`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None and self._loop is not None and not self._loop.is_closed():
            self._deadline = at
            self._timer = self._loop.call_later(max(0.0, at - self._clock()), self._on_timer)

    def _on_timer(self) -> None:
        assert self._loop is not None
        self._timer = None
        left = self._deadline - self._clock()
        if left > 0:
            self._timer = self._loop.call_later(max(left, AGAIN_S), self._on_timer)
        else:
            self._step()

    def close(self) -> None:
        """As `Poller.close`. From now on the loop is left alone: in a forked child it watches the parent's sockets."""
        self.set_deadline(None)
        if self._watcher is not None:
            self._watcher.close()
        self._loop = self._watcher = None


class _Watched:
    """What is reported of a descriptor, and to whom."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.armed = self.is_read = True


class _Watcher:
    """A daemon thread that sleeps in *poller* and has *loop* call *step* with what has come, until `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, step: Callable[..., object], poller: Poller) -> None:
        self.poller = poller
        self._loop, self._step = loop, step
        self._closed = self._ended = False
        self._end = threading.Lock()  # behind the end of the thread nothing can be woken
        self._thread = threading.Thread(target=self._run, name="pyclient-sockets", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            events = self.poller.sleep(None)
            if events and not self._hand_over(events):
                break
        with self._end:
            self._ended = True
            self.poller.close()

    def _hand_over(self, events: list[tuple[Sink, int]]) -> bool:
        """Whether the loop still runs."""
        try:
            self._loop.call_soon_threadsafe(self._step, events)
        except RuntimeError:
            return False
        return True

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        with self._end:
            if not self._ended:
                self.poller.wake()
        self._thread.join()


def _unbound(*_: object) -> None:
    raise AssertionError("the client is not open yet")
