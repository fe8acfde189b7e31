# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The driver of one client: polls the managers in a fixed order until none emits a request, then sleeps.

Independent of topics. Everything runs in steps of the client's reactor.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from pyclient.clocks import seconds_of
from pyclient.core.manager import Manager, Request, earlier, earliest
from pyclient.errors import KafkaError, raisable
from pyclient.net.pool import ConnectionPool, Waker
from pyclient.reactor.reactor import Reactor, Timer
from pyclient.reactor.tasks import Future, Timeout

_log = logging.getLogger(__name__)
T = TypeVar("T")
ROUNDS: Final = 1000
"""Most rounds of one turn; more is a defect."""
_ROUNDS: Final = ROUNDS
DEFECT_PAUSE: Final = 1.0
"""Seconds without a timer after a manager raised: its deadline may stay in the past, which would spin the reactor."""


class Driver(Waker):
    """Runs managers over connections."""

    def __init__(self, reactor: Reactor, clock: Callable[[], float]) -> None:
        self._reactor = reactor
        self._clock = clock
        self._managers: list[Manager] = []
        self._data: Manager | None = None
        self._only_data: list[Manager] = []
        self._others: list[Manager] = []
        self._deriving: list[Manager] = []
        """Those of the others that are asked by a call."""
        self._others_deadline: float | None = None
        self._everyone = True
        """In the next turn every manager is polled, not only that of the records."""
        self._connections: ConnectionPool | None = None
        self._take_turn = self._turn
        self._scheduled = False
        self._turning = False
        self._again = False
        self._timer: Timer | None = None
        self._timer_at: float | None = None
        self._waiters: dict[Future[Any], Callable[[], Any]] = {}
        self._closed = False
        self._stopped_by: KafkaError | None = None
        self.on_sleep: Callable[[float], object] = lambda at: None
        """Called with the time of the next turn, at the end of one."""
        self.turns = 0

    def start(self, connections: ConnectionPool, managers: Iterable[Manager], data: Manager | None = None) -> None:
        """Take the first turn soon. *data* is the manager that sends or fetches records: most events concern it."""
        self._connections = connections
        self._managers = list(managers)
        self._data = data
        self._only_data = [] if data is None else [data]
        self._others = [each for each in self._managers if each is not data]
        self._deriving = [each for each in self._others if _overrides(type(each), Manager, "must_be_polled")]
        self.wake()

    # ---- waking up --------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """An event in a step that may concern every manager: take a turn soon."""
        self._everyone = True
        self.wake_data()

    def wake_data(self) -> None:
        """An event in a step that concerns the manager of the records alone."""
        if self._turning:
            self._again = True
        else:
            self._schedule()

    def wake_by(self, deadline: float) -> None:
        """As `Waker.wake_by`: take a turn soon if a caller waits for a condition."""
        if self._waiters:
            self.wake_data()
        elif not self._closed and not self._turning:
            self._set_timer(deadline)

    def wake_from_anywhere(self) -> None:
        """As `wake_data`, from any thread. Many calls before the turn cost one."""
        self._schedule()

    def _schedule(self) -> None:
        if self._scheduled or self._closed or self._connections is None:
            return
        self._scheduled = True
        self._reactor.call_soon(self._take_turn)

    # ---- the turn ---------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._closed or self._connections is None:
            return
        self.turns += 1
        self._scheduled = False
        self._turning = True
        not_before = 0.0
        try:
            self._poll(self._connections)
        except Exception:  # noqa: BLE001 one defect must not stop the other managers
            _log.exception("a defect in the client: a manager raised; the client continues with the next event")
            not_before = self._clock() + DEFECT_PAUSE
            self._everyone = True
            self._disarm()
        finally:
            self._turning = False
        if self._waiters:
            self._settle_waiters()
        self._sleep(self._connections, not_before)

    def _poll(self, connections: ConnectionPool) -> None:
        """Poll the manager of the records; all if there was something for the others before, or is now."""
        if self._data is not None and not self._concerns_others():
            connections.start_window(seconds_of(self._clock))
            self._poll_managers(connections, self._only_data)
        if self._data is None or self._concerns_others():
            self._everyone = True
            connections.tick(seconds_of(self._clock))
            self._poll_managers(connections, self._managers)

    def _concerns_others(self) -> bool:
        if self._everyone:
            return True
        for each in self._others:  # a generator takes longer than all of this
            if each.needs_poll:
                return True
        for each in self._deriving:  # noqa: SIM110
            if each.must_be_polled():
                return True
        return False

    def _poll_managers(self, connections: ConnectionPool, managers: list[Manager]) -> None:
        for _ in range(_ROUNDS):
            self._again = False
            now = seconds_of(self._clock)
            for manager in managers:
                for request in manager.poll(now, connections):
                    self._send(connections, request)
            if not self._again:
                return
        _log.error("a defect in the client: managers still emit requests after %d rounds: %s", ROUNDS, self._managers)

    def _send(self, connections: ConnectionPool, request: Request) -> None:
        connections.send(request)
        if not request.answered:  # acks=0: it occupies no slot, so more may follow; but the reactor has other work too
            self._schedule()

    def _sleep(self, connections: ConnectionPool, not_before: float) -> None:
        deadline = self._deadline(connections)
        self._sleep_until(not_before if deadline is not None and deadline < not_before else deadline)

    def _deadline(self, connections: ConnectionPool) -> float | None:
        """Behind a turn. Managers that were not polled, and connections that nothing was written to, keep theirs."""
        if self._everyone or self._data is None:
            self._everyone = False
            self._others_deadline = earliest(*[each.next_deadline() for each in self._others])
            mine = None if self._data is None else self._data.next_deadline()
            first = earliest(mine, self._others_deadline)
            return earliest(first, connections.next_deadline(first))
        return earlier(earlier(self._data.next_deadline(), self._others_deadline), connections.due)

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
        if self._timer_at is not None and self._timer_at <= deadline:
            return
        self._disarm()
        self._timer_at = deadline
        self._timer = self._reactor.call_at(deadline, self._on_timer)

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
        self._everyone = True
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
        future: Future[T] = Future(self._reactor)
        self._waiters[future] = condition
        self.wake()
        try:
            async with Timeout(self._reactor, timeout):
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
            raise KafkaError("the client's reactor has stopped") if self._stopped_by is None else raisable(self._stopped_by)

    # ---- stopping ---------------------------------------------------------------------------------------------------

    def stop(self, error: KafkaError) -> None:
        """No turn and no timer after this; waiting callers get *error*."""
        self._closed, self._stopped_by = True, error
        self._disarm()
        for future in list(self._waiters):
            if not future.done():
                future.set_exception(error)


def _overrides(kind: type, base: type, name: str) -> bool:
    """By name, because Cython makes a new object for each look at a method of a class that it knows."""
    return getattr(kind, name) is not getattr(base, name)


def _settle(future: Future[Any], condition: Callable[[], Any]) -> None:
    try:
        found = condition()
    except Exception as error:  # noqa: BLE001 raised to the waiting caller
        future.set_exception(error)
    else:
        if found is not None:
            future.set_result(found)
