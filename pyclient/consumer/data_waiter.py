# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""How a poll waits for data, a wakeup or a rebalance: its thread leads meanwhile, or its task awaits an event."""
from __future__ import annotations

from collections.abc import Callable

from pyclient.buffers.fetch_buffer import FetchBuffer
from pyclient.clocks import seconds_of
from pyclient.reactor.reactor import Reactor, Waiter
from pyclient.reactor.tasks import Event, Timeout


class DataWaiter:
    """One poll's wait. Its `notify` is the buffer's ``on_data``."""

    def __init__(self, buffer: FetchBuffer, reactor: Reactor, clock: Callable[[], float]) -> None:
        self._buffer = buffer
        self._reactor = reactor
        self._clock = clock
        self._event = Event(reactor)
        self._waiter: Waiter | None = None
        self.is_awaited = False
        """Whether tasks wait, and not threads."""

    def wait(self, timeout: float | None) -> bool:
        """Wait in this thread until there is data. A wakeup or a rebalance without data counts as False, as does the
        end of *timeout* seconds."""
        buffer = self._buffer
        until = 0.0 if timeout is None else seconds_of(self._clock) + timeout
        try:
            while True:
                waiter = self._waiter = Waiter(self._reactor)
                if buffer.woken or buffer.poll_requested or buffer.ready():
                    break
                if not self._reactor.run_until(waiter, None if timeout is None else max(0.0, until - seconds_of(self._clock))):
                    break
        finally:
            self._waiter = None
        return buffer.ready()

    async def until(self, has_data: Callable[[], bool], timeout: float | None) -> bool:
        """Await data, a wakeup or a rebalance; False when *timeout* seconds passed without."""
        try:
            async with Timeout(self._reactor, timeout):
                while not (has_data() or self._buffer.woken or self._buffer.poll_requested):
                    self._event.clear()
                    await self._event.wait()
        except TimeoutError:
            return False
        return True

    def notify(self) -> None:
        """There is data, or a wakeup. Any thread may call it."""
        waiter = self._waiter
        if waiter is not None:
            waiter.end()
        elif self.is_awaited:
            self._reactor.call_soon(self._event.set)

    def look_again(self) -> None:
        """In a step: what a task waits for may be there."""
        self._event.set()
