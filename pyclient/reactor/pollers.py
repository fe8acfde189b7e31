"""What a reactor sleeps in: the interface, and one for every system that Python's `selectors` knows."""
from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

Sink: TypeAlias = Callable[[int], object]
"""Called with READABLE, WRITABLE or both, and perhaps ENDS."""
READABLE: Final = 1
WRITABLE: Final = 2
ENDS: Final = 4
"""Beside READABLE: behind what can be read now comes the end of the stream, or an error."""


class Poller(Protocol):
    """Where threads sleep until a descriptor changes, a deadline comes, or `wake` is called.

    Each change is reported once: a sink that is called with READABLE reads until nothing is left, and then calls `arm`.
    An end that was reported with ENDS is not reported again, whatever is armed.
    """

    @property
    def shared(self) -> bool:
        """Whether several threads may sleep in it."""

    @property
    def wakes_any(self) -> bool:
        """Whether the system chooses which one of them an event wakes: then the background thread stands aside."""

    @property
    def arms(self) -> bool:
        """Whether it reports a change only after `arm`; else it reports each, and `arm` does nothing."""

    def register(self, descriptor: int, sink: Sink) -> int:
        """Report changes of *descriptor*; returns the token for the other calls. Nothing is reported before `arm`."""

    def arm(self, token: int, events: int) -> None:
        """The system had nothing to read, or no room to write (READABLE, WRITABLE): report it when that changes."""

    def unregister(self, token: int) -> None:
        """Call it before the descriptor is closed. A change that a thread has got already may still be reported."""

    def sleep(self, timeout: float | None) -> list[tuple[Sink, int]]:
        """Changes, after at most *timeout* seconds (None: no limit). Runs the handlers of signals, which may raise."""

    def wake(self) -> None:
        """A sleeper returns; without one the next does. Any thread, and any signal handler, may call it."""

    def set_deadline(self, at: float | None) -> None:
        """A sleeper returns at this time of the monotonic clock (None: no deadline)."""

    def close(self) -> None:
        """Free its descriptors. Idempotent."""


class SelectorPoller:
    """A `selectors` selector, and a pair of sockets that wakes it. One thread at a time sleeps in it.

    Any thread may call the other methods meanwhile: what they change, the sleeper does before it sleeps again.
    """

    shared = False
    wakes_any = False
    arms = True

    def __init__(self, clock: Callable[[], float], make: Callable[[], selectors.BaseSelector] = selectors.DefaultSelector) -> None:
        self._clock = clock
        self._selector = make()
        self._heard, self._bell = socket.socketpair()
        for each in (self._heard, self._bell):
            each.setblocking(False)
        self._selector.register(self._heard, selectors.EVENT_READ)
        self._armed: deque[tuple[int, int]] = deque()
        self._sinks: dict[int, tuple[int, Sink]] = {}
        self._lock = threading.Lock()
        """Of `_sinks` and of what the selector watches; never held in a sleep."""
        self._gone = 0
        """How often a descriptor was unregistered."""
        self._last = 0
        self._deadline: float | None = None

    def register(self, descriptor: int, sink: Sink) -> int:
        """As `Poller.register`."""
        self._last += 1
        self._sinks[self._last] = (descriptor, sink)
        return self._last

    def arm(self, token: int, events: int) -> None:
        """As `Poller.arm`."""
        self._armed.append((token, events))
        self.wake()

    def unregister(self, token: int) -> None:
        """As `Poller.unregister`."""
        with self._lock:
            self._gone += 1
            descriptor, _ = self._sinks.pop(token, (-1, None))
            with contextlib.suppress(KeyError, ValueError):  # it was not armed
                self._selector.unregister(descriptor)

    def sleep(self, timeout: float | None) -> list[tuple[Sink, int]]:
        """As `Poller.sleep`."""
        with self._lock:
            while self._armed:
                self._watch(*self._armed.popleft())
        ready = self._select(self._until_deadline(timeout))
        found = []
        with self._lock:
            for key, mask in ready:
                if key.fileobj is self._heard:
                    self._hear()
                elif key.data in self._sinks:
                    self._watch_less(key, mask)
                    found.append((self._sinks[key.data][1], _events(mask)))
        return found

    def _select(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        gone = self._gone
        try:
            return self._selector.select(timeout)
        except OSError:
            if self._gone == gone:
                raise
            return []  # a descriptor was closed meanwhile

    def _until_deadline(self, timeout: float | None) -> float | None:
        if self._deadline is None:
            return timeout
        left = max(0.0, self._deadline - self._clock())
        return left if timeout is None else min(left, timeout)

    def _watch(self, token: int, events: int) -> None:
        if token not in self._sinks:
            return
        descriptor, _ = self._sinks[token]
        try:
            watched = self._selector.get_key(descriptor).events
        except KeyError:
            self._selector.register(descriptor, _mask(events), token)
        else:
            self._selector.modify(descriptor, watched | _mask(events), token)

    def _watch_less(self, key: selectors.SelectorKey, mask: int) -> None:
        """What was reported is not watched until it is armed again: the selector would report it again and again."""
        left = key.events & ~mask
        if left:
            self._selector.modify(key.fileobj, left, key.data)
        else:
            self._selector.unregister(key.fileobj)

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._heard.recv(4096):
                pass

    def wake(self) -> None:
        """As `Poller.wake`."""
        with contextlib.suppress(BlockingIOError):  # full: it wakes anyway
            self._bell.send(b"\0")

    def set_deadline(self, at: float | None) -> None:
        """As `Poller.set_deadline`."""
        earlier = at is not None and (self._deadline is None or at < self._deadline)
        self._deadline = at
        if earlier:
            self.wake()

    def close(self) -> None:
        """As `Poller.close`."""
        self._selector.close()
        self._heard.close()
        self._bell.close()


def _mask(events: int) -> int:
    return (selectors.EVENT_READ if events & READABLE else 0) | (selectors.EVENT_WRITE if events & WRITABLE else 0)


def _events(mask: int) -> int:
    return (READABLE if mask & selectors.EVENT_READ else 0) | (WRITABLE if mask & selectors.EVENT_WRITE else 0)
