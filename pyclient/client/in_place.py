"""Runs a call, with the requests and answers that it waits for, in the thread that makes it, in place of the loop.

A transaction's call is a request or two and their answers. Handing it to the loop's thread and back takes longer than
all that the client does for it: two threads wake, and wait for each other. While the loop sleeps, the caller takes the
turns and reads the sockets itself; as soon as the loop has something else to do, it takes all back. Knows connections
and the driver; which requests there are is decided elsewhere.
"""
from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from typing import Final

from pyclient.client.driver import Driver
from pyclient.net.connection import Connection
from pyclient.net.lent_connection import LONGEST_WAIT, LoopLender, read_once
from pyclient.net.pool import ConnectionPool

PATIENCE: Final = 0.02
"""Seconds for which the loop waits for the end of a call before it takes it over: that takes longer than most calls."""


class InPlace:
    """Of one sync client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lender: LoopLender, driver: Driver, connections: ConnectionPool) -> None:
        self._loop = loop
        self._lender = lender
        self._driver = driver
        self._answers = Answers(lender, connections)

    def run(self, function: Callable[[], object]) -> bool:
        """Call *function*, which does not wait; False if it was not called, because the loop does not sleep."""
        return self._lender.run(lambda: self._as_loop(function), PATIENCE)

    @property
    def signalled(self) -> bool:
        """Whether a handler of a signal may raise when the call has ended."""
        return self._lender.signalled

    def run_until(self, start: Callable[[], bool], done: Callable[[], bool], seconds: float | None) -> bool:
        """Call *start*, then send and receive until *done()*; False if it was not called: the loop does not sleep.

        *start* returns whether that was all: then no socket is touched. May end before, after *seconds* at the latest:
        the loop goes on.
        """
        until = time.monotonic() + (LONGEST_WAIT if seconds is None else min(seconds, LONGEST_WAIT))
        return self.run(lambda: self._start(start, done, until))

    def _as_loop(self, function: Callable[[], object]) -> None:
        """What asks for the running loop finds the client's, and the loop wakes for what was scheduled meanwhile."""
        outer, selector = asyncio._get_running_loop(), self._lender.selector
        selector.scheduled = False
        asyncio._set_running_loop(self._loop)
        try:
            function()
        finally:
            asyncio._set_running_loop(outer)
            self._lender.wake_for_scheduled()

    def _start(self, start: Callable[[], bool], done: Callable[[], bool], until: float) -> None:
        answers, selector = self._answers, self._lender.selector

        def begin() -> None:
            if not start():
                selector.answer()  # a ring of before; `wanted` and `signalled` know those that count
                answers.open()

        selector.patience = PATIENCE
        try:
            self._driver.act(begin, done, lambda: not (selector.wanted or self.signalled) and answers.handle_next(until))
        finally:
            selector.patience = 0.0
            answers.close()


class Answers:
    """The answers that come while a thread acts in place of the loop."""

    def __init__(self, lender: LoopLender, connections: ConnectionPool) -> None:
        self._selector = lender.selector
        self._connections = connections
        self._muted: dict[int, Connection] = {}  # by the number of the socket
        self._used: dict[Connection, None] = {}  # by the last call
        self._poll = select.poll()
        self._poll.register(self._selector.bell, select.POLLIN)

    def open(self) -> None:
        """Begin with the connections of the last call: an answer that comes soon must not wake the loop."""
        for connection in self._used:
            if connection.is_readable:
                self._mute(connection)
        self._used.clear()

    def handle_next(self, until: float) -> bool:
        """Wait for answers and handle them; False after *until*, and when the loop has something to do.

        What was scheduled meanwhile the loop does after `PATIENCE`.
        """
        if not self._watch():
            return False
        left = until - time.monotonic()
        events = self._poll.poll(max(0.0, min(left, PATIENCE) if self._selector.scheduled else left) * 1000)
        for descriptor, event in events:
            if descriptor == self._selector.bell:
                self._selector.answer()
                return False
            if event != select.POLLIN or not read_once(self._muted[descriptor]):
                return False  # a broken socket is the loop's
        return bool(events)

    def _watch(self) -> bool:
        """Keep the loop asleep when an answer comes; False if nothing is awaited, or only the loop can read it."""
        awaited = self._connections.awaiting()
        for connection in awaited:
            if not connection.is_readable:
                return False
            self._used[connection] = None
            self._mute(connection)
        return bool(awaited)

    def _mute(self, connection: Connection) -> None:
        descriptor = -1 if connection.socket is None else connection.socket.fileno()
        if descriptor not in self._muted:
            self._selector.mute(descriptor)
            self._muted[descriptor] = connection
            self._poll.register(descriptor, select.POLLIN)

    def close(self) -> None:
        """The loop reads all sockets again."""
        for descriptor in self._muted:
            self._poll.unregister(descriptor)
            self._selector.unmute(descriptor)
        self._muted.clear()
