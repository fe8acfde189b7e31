"""Lends the client's loop, with an idle connection, to the thread that sends a lone record and waits for its answer.

While the loop sleeps, that thread takes a turn in its place and writes the request; in ``result()`` it reads the socket
itself. So no second thread wakes, which takes longer than all else that the client does for a record. The loop takes
all back as soon as anything else is to be done. Knows sockets and the loop; what may be sent is decided elsewhere.
"""
from __future__ import annotations

import asyncio
import functools
import logging
import select
import sys
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from pyclient.errors import KafkaError
from pyclient.net.connection import Connection
from pyclient.runtime.deferred_exceptions import DeferredExceptions
from pyclient.runtime.deferred_signals import DeferredSignals
from pyclient.runtime.loop_lending import LendingSelector

_log = logging.getLogger(__name__)
LONGEST_WAIT: Final = 0.1
"""Seconds. An answer that takes longer costs no more when the loop reads it."""
DEPTH: Final = 200
"""Calls that must fit into the caller's stack: the client's own thread has all of one."""


class Awaited(Protocol):
    """What a thread waits for."""

    @property
    def done(self) -> bool:
        """Whether it has come."""


class LoopLender:
    """Lets any thread act in place of the loop's own, one at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, selector: LendingSelector) -> None:
        self._loop = loop
        self.selector = selector
        self._signals = DeferredSignals(selector.ring)
        self.hold_signals, self.release_signals = self._signals.hold, self._signals.release
        """As of `DeferredSignals`."""
        self._connection: Connection | None = None
        self._poll = select.poll()
        self.wait_on_lane: Callable[[Any, float | None], bool] | None = None
        """Tried first by `wait`, of a request that it may know; returns whether it is done."""
        self.on_read: Callable[[Connection], object] | None = None
        """Called with the loop lent, when all that was awaited on a connection has come."""

    def sent_on(self, connection: Connection | None) -> None:
        """A lone request was written here: the thread that waits may read its answer."""
        if connection is not self._connection:
            self._connection = connection
            self._poll = select.poll()
            self._poll.register(self.selector.bell, select.POLLIN)
            if connection is not None and connection.socket is not None:
                self._poll.register(connection.socket, select.POLLIN)

    def run(self, work: Callable[[], object], wait: float = 0.0) -> bool:
        """Run *work* in place of the loop's thread; False unless that sleeps, or begins to within *wait* seconds, and
        the caller has enough of a stack.
        """
        if (not wait and not self.selector.asleep) or not _has_stack():
            return False
        with DeferredExceptions():
            held = self._signals.hold()
            try:
                return self._run(work, wait)
            finally:
                self._signals.release(held)

    def _run(self, work: Callable[[], object], wait: float) -> bool:
        """Nothing is raised into this thread meanwhile: that would leave the client half changed, or the lock held."""
        if not self.selector.borrow(wait):
            return False
        try:
            work()
            self._wake_if_closing()
        finally:
            self.selector.give_back()
        return True

    def wait(self, awaited: Awaited, seconds: float | None) -> None:
        """Read the answer to a lone request in place of the loop.

        Ends when *awaited* is done or after *seconds*, but also when the loop has something else to do, when the answer
        takes long, when the socket is broken, and when a signal comes, whose handler runs then.
        """
        until = time.monotonic() + (LONGEST_WAIT if seconds is None else min(seconds, LONGEST_WAIT))
        if self.wait_on_lane is not None and self.wait_on_lane(awaited, seconds):
            return
        if self._connection is not None and (seconds is None or seconds > 0):
            self.run(functools.partial(self._read, awaited, until))

    def read_here(self, descriptor: int) -> bool:
        """On the loop's thread, which would wake for *descriptor*: read the answer to the lone request, as `wait` does.

        Returns whether it was read here.
        """
        connection = self._connection
        sock = None if connection is None or not connection.awaits_one_answer else connection.socket
        if connection is None or sock is None or sock.fileno() != descriptor or not self._read_once(connection):
            return False
        if self.on_read is not None and not connection.in_flight:
            self.on_read(connection)
        return True

    @property
    def signalled(self) -> bool:
        """Whether a signal has come while a thread acts, whose handler may raise once the loop has been given back."""
        return self._signals.noted

    def forked(self) -> None:
        """This process is a forked child, which uses no connection."""
        self._signals.forked()

    def _read(self, awaited: Awaited, until: float) -> None:
        connection = self._connection
        sock = None if connection is None else connection.socket
        if sock is None or connection is None:
            return
        descriptor = sock.fileno()
        self.selector.mute(descriptor)
        try:
            while not awaited.done and connection.awaits_one_answer and self._readable(descriptor, until) and self._read_once(connection):
                pass
        finally:
            self.selector.unmute(descriptor)
        if awaited.done and self.on_read is not None:
            self.on_read(connection)

    def _readable(self, descriptor: int, until: float) -> bool:
        """Wait for the socket only; False after *until*, on a bell, and on a broken socket, which the loop must see."""
        events = self._poll.poll(max(0.0, until - time.monotonic()) * 1000)
        if events == [(descriptor, select.POLLIN)]:
            return True
        if any(ready == self.selector.bell for ready, _ in events):
            self.selector.answer()
        return False

    def _read_once(self, connection: Connection) -> bool:
        """As `read_once`."""
        return read_once(connection)

    def wake_for_scheduled(self) -> None:
        """With the loop lent: it wakes for what was scheduled since `selector.scheduled` was reset."""
        if self.selector.scheduled:
            self._loop.call_soon_threadsafe(_nothing)

    def _wake_if_closing(self) -> None:
        """The transport closes in a later turn of the loop, and does not wake it for that: it believes to run on it."""
        if self._connection is not None and self._connection.is_closing():
            self._loop.call_soon_threadsafe(_nothing)


def read_once(connection: Connection) -> bool:
    """Take what has arrived; False at the end of the stream."""
    assert connection.socket is not None
    try:
        size = connection.socket.recv_into(connection.get_buffer(-1))
    except OSError:
        return False
    if not size:
        return False
    try:
        connection.buffer_updated(size)
    except Exception as error:  # noqa: BLE001 asyncio's transport would close the connection too
        _log.exception("a defect in the client: a response could not be handled; closing the connection")
        connection.close(KafkaError(f"a response could not be handled: {error!r}"))
    return True


def _has_stack() -> bool:
    """Whether the caller is not so deep in its stack that a RecursionError would leave the client half changed."""
    try:
        sys._getframe(max(0, sys.getrecursionlimit() - DEPTH))
    except ValueError:
        return True
    return False


def _nothing() -> None:
    """Wakes the loop."""
