"""The loop of one client: polls the managers in a fixed order until none emits a request, then sleeps.

Knows managers, connections and the clock; knows no topics. Everything runs on one asyncio loop.
"""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from pyclient.core.manager import Manager, Request, earliest
from pyclient.errors import KafkaError, raisable
from pyclient.net.pool import ConnectionPool
from pyclient.runtime.loop_thread import runs_here

_log = logging.getLogger(__name__)
T = TypeVar("T")
ROUNDS: Final = 1000
"""Most rounds of one turn; more is a defect."""
DEFECT_PAUSE: Final = 1.0
"""Seconds without a timer after a manager raised: its deadline may stay in the past, which would spin the loop."""


class Driver:
    """Runs managers over connections. `start` binds it to the running loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._managers: list[Manager] = []
        self._connections: ConnectionPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False
        self._turning = False
        self._again = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._waiters: dict[asyncio.Future[Any], Callable[[], Any]] = {}
        self._closed = False
        self._stopped_by: KafkaError | None = None
        self.on_sleep: Callable[[float], object] = lambda at: None
        """Called with the time of the next turn, when the loop goes to sleep."""
        self.turns = 0

    def start(self, connections: ConnectionPool, managers: Iterable[Manager]) -> None:
        """Start on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._connections = connections
        self._managers = list(managers)
        self.wake()

    # ---- waking up --------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """An event on the loop: take a turn soon."""
        if self._turning:
            self._again = True
        else:
            self._schedule()

    def wake_by(self, deadline: float) -> None:
        """An event that concerns no manager: take a turn soon if a caller waits for a condition, else by *deadline*."""
        if self._waiters:
            self.wake()
        elif not self._closed and not self._turning:
            self._set_timer(deadline)

    def wake_from_anywhere(self) -> None:
        """As `wake`, from any thread. Many calls before the turn cost one."""
        self._schedule()

    def _schedule(self) -> None:
        if self._scheduled or self._closed or self._loop is None:
            return
        try:
            self._scheduled = True
            schedule = self._loop.call_soon if runs_here(self._loop) else self._loop.call_soon_threadsafe
            schedule(self._turn)
        except BaseException as error:  # Ctrl-C, or the end of the stack, in a user's thread: the turn may not be scheduled
            self._scheduled = False
            if type(error) is not RuntimeError:  # a RecursionError is one too
                raise
            _log.debug("woken after the loop was closed")

    # ---- the turn ---------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._closed or self._connections is None:
            return
        self.turns += 1
        self._scheduled = False
        self._turning = True
        not_before = 0.0
        try:
            self._connections.tick(self._clock())
            self._poll_managers(self._connections)
        except Exception:  # noqa: BLE001 one defect must not stop the other managers
            _log.exception("a defect in the client: a manager raised; the client continues with the next event")
            not_before = self._clock() + DEFECT_PAUSE
            self._disarm()
        finally:
            self._turning = False
        if self._waiters:
            self._settle_waiters()
        self._sleep(self._connections, not_before)

    def _poll_managers(self, connections: ConnectionPool) -> None:
        for _ in range(ROUNDS):
            self._again = False
            now = self._clock()
            for manager in self._managers:
                for request in manager.poll(now, connections):
                    self._send(connections, request)
            if not self._again:
                return
        _log.error("a defect in the client: managers still emit requests after %d rounds: %s", ROUNDS, self._managers)

    def _send(self, connections: ConnectionPool, request: Request) -> None:
        connections.send(request)
        if not request.answered:  # acks=0: it occupies no slot, so more may follow; but the loop has other work too
            self._schedule()

    def _sleep(self, connections: ConnectionPool, not_before: float) -> None:
        deadline = earliest(*self._deadlines(connections))
        self._sleep_until(None if deadline is None else max(deadline, not_before))

    def _deadlines(self, connections: ConnectionPool) -> Iterator[float | None]:
        """The managers' first: those of connections take longer to find."""
        first = None
        for manager in self._managers:
            deadline = manager.next_deadline()
            first = earliest(first, deadline)
            yield deadline
        yield connections.next_deadline(first)

    def _sleep_until(self, deadline: float | None) -> None:
        if deadline is not None:
            self._set_timer(deadline)
        if self._timer_at is not None:
            self.on_sleep(self._timer_at)

    def _set_timer(self, deadline: float) -> None:
        """Keep an earlier timer: its turn sets the next one. Otherwise each request would cancel and set a timer."""
        if self._loop is None or (self._timer_at is not None and self._timer_at <= deadline):
            return
        self._disarm()
        self._timer_at = deadline
        self._timer = self._loop.call_at(self._loop.time() + max(0.0, deadline - self._clock()), self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_at = None

    def _on_timer(self) -> None:
        """Take a turn if a deadline has come. A response moves the deadline of silence, but not the timer.

        So every deadline has to stay until a turn has looked at it, also when its time has come.
        """
        self._timer = self._timer_at = None
        now = self._clock()
        first = now if self._connections is None or self._waiters else self._first_deadline(self._connections, now)
        if first is None or first > now:
            self._sleep_until(first)
            return
        self._turn()

    def _first_deadline(self, connections: ConnectionPool, now: float) -> float | None:
        """The earliest one, or any that has come."""
        first = None
        for deadline in self._deadlines(connections):
            first = earliest(first, deadline)
            if first is not None and first <= now:
                break
        return first

    # ---- waiting for conditions -------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], T | None], timeout: float | None, late: Callable[[], KafkaError]) -> T:
        """Wait until *condition* returns a value or raises; it is called after every turn.

        Raises:
            KafkaError: from *late*, after *timeout* seconds (None: never).
        """
        self._check_open()
        now = condition()
        if now is not None:
            return now
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiters[future] = condition
        self.wake()
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()
            now = condition()  # it may have become true since the last turn
            if now is not None:
                return now
            raise late() from None
        finally:
            self._waiters.pop(future, None)

    def _settle_waiters(self) -> None:
        for future, condition in list(self._waiters.items()):
            if not future.done():
                _settle(future, condition)

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaError("the client's loop has stopped") if self._stopped_by is None else raisable(self._stopped_by)

    # ---- stopping ---------------------------------------------------------------------------------------------------

    def stop(self, error: KafkaError) -> None:
        """No turn and no timer after this; waiting callers get *error*."""
        self._closed, self._stopped_by = True, error
        self._disarm()
        for future in list(self._waiters):
            if not future.done():
                future.set_exception(error)


def _settle(future: asyncio.Future[Any], condition: Callable[[], Any]) -> None:
    try:
        found = condition()
    except Exception as error:  # noqa: BLE001 raised to the waiting caller
        future.set_exception(error)
    else:
        if found is not None:
            future.set_result(found)
