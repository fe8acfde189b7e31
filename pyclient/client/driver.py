"""The loop of one client: polls the managers in a fixed order until none emits a request, then sleeps.

Knows managers, connections and the clock; knows no topics. Everything runs on one asyncio loop.
"""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from pyclient.core.manager import AskForLone, Manager, Request, earliest
from pyclient.core.silence import LONGEST_PATIENCE
from pyclient.errors import KafkaError, raisable
from pyclient.net.connection import Connection
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
        self._acting = False  # a thread acts in place of the loop
        self._again = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._waiters: dict[asyncio.Future[Any], Callable[[], Any]] = {}
        self._lone: AskForLone = lambda now, ready: None
        self.take_turn_here: Callable[[Callable[[], None]], bool] | None = None
        """Runs a function in place of a turn in the thread that sends; False if that is not possible now."""
        self.on_lone: Callable[[Connection | None], None] | None = None
        """Called with the connection that a lone request was written to."""
        self.before_turn: Callable[[], object] | None = None
        """Called when the client has to look after something, or takes a turn, before it does."""
        self._looks = True  # the next turn has to poll the managers
        self._closed = False
        self._stopped_by: KafkaError | None = None
        self.on_sleep: Callable[[float], object] = lambda at: None
        """Called with the time of the next turn, when the loop goes to sleep."""
        self.turns = 0

    def start(self, connections: ConnectionPool, managers: Iterable[Manager], lone: AskForLone | None = None) -> None:
        """Start on the running loop. *lone* is asked first after `wake_for_records`."""
        self._loop = asyncio.get_running_loop()
        self._connections = connections
        self._managers = list(managers)
        self._lone = lone or self._lone
        self.wake()

    # ---- waking up --------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """An event on the loop: take a turn soon."""
        self._looks = True
        if self.before_turn is not None:
            self.before_turn()
        if self._turning:
            self._again = True
        elif not self._acting:
            self._schedule()

    def wake_by(self, deadline: float) -> None:
        """An event that concerns no manager: take a turn soon if a caller waits for a condition, else by *deadline*."""
        if self._waiters:
            self.wake()
        elif not self._closed and not self._turning:
            self._set_timer(deadline)

    def wake_from_anywhere(self) -> None:
        """As `wake`, from any thread. Many calls before the turn cost one."""
        self._looks = True
        self.wake_for_records()

    def wake_for_records(self) -> None:
        """As `wake_from_anywhere`, but only because of new records: the turn may send a lone one, and end."""
        if self._scheduled or self._loop is None:
            return
        if self.take_turn_here is None or not self.take_turn_here(self.send_now):
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

    def quiet_until(self) -> float:
        """Until when no turn is needed if nothing happens; 0.0 if one is needed now."""
        busy = self._looks or self._scheduled or self._turning or self._waiters or self._closed
        return 0.0 if busy or self._timer_at is None else self._timer_at

    # ---- the turn ---------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if not self._scheduled or self._closed or self._connections is None:
            return  # not scheduled: a thread took it in place. Another one may set it now, so nothing is reset here
        not_before = self._take_turn(self._connections)
        if not_before is not None:
            self._sleep(self._connections, not_before)

    def _take_turn(self, connections: ConnectionPool) -> float | None:
        """Returns before when no timer may be; None if a lone record was all there was to do."""
        self.turns += 1
        if self.before_turn is not None:
            self.before_turn()
        self._scheduled = False
        self._turning = True
        looks, self._looks = self._looks, False
        not_before = 0.0
        try:
            if not looks and self._send_lone(connections):
                return None
            connections.tick(self._clock())
            self._poll_managers(connections)
        except Exception:  # noqa: BLE001 one defect must not stop the other managers
            _log.exception("a defect in the client: a manager raised; the client continues with the next event")
            not_before = self._clock() + DEFECT_PAUSE
            self._disarm()
        finally:
            self._turning = False
        if self._waiters:
            self._settle_waiters()
        return not_before

    def act(self, start: Callable[[], object], done: Callable[[], bool], answer: Callable[[], bool]) -> None:
        """In place of the loop, whose thread sleeps: *start*, and turns until *done()* or until *answer* returns False.

        *answer* waits for a response and handles it. What is left to do then, the loop does.
        """
        self._acting = True
        not_before: float | None = None
        try:
            start()
            while self._connections is not None and not self._closed:
                if self._looks:
                    not_before = self._take_turn(self._connections)
                if done() or not answer():
                    break
        finally:
            self._acting = False
            if self._looks:
                self._schedule()
            elif not_before is not None and self._connections is not None and not self._closed:
                self._sleep(self._connections, not_before)

    def send_now(self) -> None:
        """In place of a turn: send a lone record; if there is more to do, the loop's turn comes soon.

        The caller is alone with the client, but perhaps not on the loop's thread.
        """
        if self._turning or self._looks or self._closed or self._connections is None:
            self._schedule()
            return
        self._turning = True
        try:
            if not self._send_lone(self._connections):
                self._looks = True
        except Exception:  # noqa: BLE001 the next turn goes on
            self._looks = True
            _log.exception("a defect in the client: a lone record could not be sent; the client continues with the next turn")
        except BaseException:  # in an async client's task
            self._looks = True
            raise
        finally:
            self._turning = False
            if self._looks:
                self._schedule()

    def _send_lone(self, connections: ConnectionPool) -> bool:
        """Write a request that is the only thing to do; returns whether it was."""
        now = self._clock()
        lone = self._lone(now, connections)
        if lone is None:
            return False
        connections.start_window(now)
        connection = connections.send(lone.request)
        if self.on_lone is not None:
            self.on_lone(connection)
        self._set_timer(now + min(lone.request.timeout, LONGEST_PATIENCE))
        return not (lone.more or self._looks)

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
        if not runs_here(self._loop):  # a thread acts in its place: only the loop can set timers
            self._looks = True
            self._schedule()
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
        first = now if self._connections is None or self._looks or self._waiters else self._first_deadline(self._connections, now)
        if first is None or first > now:
            self._sleep_until(first)
            return
        self._looks = self._scheduled = True
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
