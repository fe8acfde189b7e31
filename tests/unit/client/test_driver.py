"""The driver's turns: what wakes it, how long it sleeps, and that no defect stops or spins it."""
from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.core.manager import Manager, NotSent, Outcome, Ready, Reply, Request, Use
from pyclient.errors import ClientClosedError, KafkaError, KafkaTimeoutError
from pyclient.metrics import Metrics
from pyclient.client.driver import DEFECT_PAUSE, ROUNDS, Driver
from pyclient.net.pool import ConnectionPool
from pyclient.runtime.network import SocketNetwork
from pyclient.runtime.portals import LoopPortal
from tests.reactors import InSteps, open_portal
from tests.twins import needs_twins
from tests.unit.net.test_connection import Clock, until
from tests.unit.net.test_pool import options, run


class Polled(Manager):
    """Emits what it is given, and wants to be polled at its deadline."""

    def __init__(self) -> None:
        self.needs_poll = False
        self.emit: list[Callable[[], Request]] = []
        self.deadline: float | None = None
        self.polled_at: list[float] = []
        self.outcomes: list[Outcome] = []
        self.always = False
        self.unanswered = 0  # requests left of the kind that has no answer, one per round
        self.defect: Exception | None = None
        self.overdue_for_good = False

    def poll(self, now: float, ready: Ready) -> Iterator[Request]:
        self.polled_at.append(now)
        if self.deadline is not None and now >= self.deadline and not self.overdue_for_good:
            self.deadline = None
        if self.defect is not None:
            raise self.defect
        if self.always:
            yield self.request()
        if self.unanswered:
            self.unanswered -= 1
            yield self.request(answered=False)
        while self.emit:
            yield self.emit.pop(0)()

    def next_deadline(self) -> float | None:
        return self.deadline

    def request(self, *, answered: bool = True) -> Request:
        """For a node that does not exist: its outcome comes at once."""
        return Request(node=99, use=Use.CONTROL, api=Api.METADATA, timeout=1, answered=answered, fields=lambda version: {},
                       done=lambda now, outcome: self.outcomes.append(outcome))


class Rig:
    def __init__(self, portal: LoopPortal, driver: InSteps, clock: Clock, managers: list[Polled]) -> None:
        self.portal = portal
        self.driver = driver
        self.made: Driver = driver._made
        self.clock = clock
        self.first, self.second = managers

    def turn(self) -> int:
        """Wake the driver, which takes its turns at once; the turns so far."""
        self.driver.wake()
        assert not self.driver._scheduled
        return self.made.turns

    def together(self, *functions: Callable[[], object]) -> None:
        """Call them in one step: no turn comes in between."""
        self.portal.run(lambda: [each() for each in functions])


@asynccontextmanager
async def driven(*, data: bool = False) -> AsyncIterator[Rig]:
    """*data*: the first manager is that of the records."""
    clock = Clock()
    portal = await open_portal()
    driver = Driver(portal.reactor, clock)
    managers = [Polled(), Polled()]
    connections = ConnectionPool(portal.reactor, options(), SocketNetwork(), clock=clock, random=Random(7), bootstrap=[], metrics=Metrics(samples=2, window_s=30),
                  waker=driver, on_failure=lambda cause: None, on_refused=lambda refusal: None)
    driven = InSteps(portal, driver)
    driven.start(connections, managers, managers[0] if data else None)
    try:
        yield Rig(portal, driven, clock, managers)
    finally:
        driven.stop(ClientClosedError("the test is over"))
        await portal.call(connections.close)


def test_managers_are_polled_in_their_order_until_none_emits() -> None:
    async def test() -> None:
        async with driven() as here:
            here.first.emit = [here.first.request, here.first.request]
            here.second.emit = [here.second.request]
            here.turn()
            assert all(isinstance(each, NotSent) for each in here.first.outcomes + here.second.outcomes)
            assert (len(here.first.outcomes), len(here.second.outcomes)) == (2, 1)
            # in the first turn nothing was there; in this one came a round that emits, and one that does not
            assert (len(here.first.polled_at), len(here.second.polled_at)) == (3, 3)
            assert here.driver.turns == 2

    run(test())


def test_many_wake_ups_before_a_turn_make_one_turn() -> None:
    async def test() -> None:
        async with driven() as here:
            before = here.driver.turns
            here.together(*[here.made.wake, here.made.wake_from_anywhere] * 100)
            assert here.driver.turns == before + 1

    run(test())


def test_a_wake_up_from_another_thread_causes_a_turn() -> None:
    async def test() -> None:
        async with driven() as here:
            before = here.driver.turns
            thread = threading.Thread(target=here.made.wake_from_anywhere)
            thread.start()
            await until(lambda: here.driver.turns == before + 1)
            thread.join()

    run(test())


def test_an_event_of_records_polls_their_manager_alone_unless_it_touches_another_one() -> None:
    async def test() -> None:
        async with driven(data=True) as here:
            first, second = len(here.first.polled_at), len(here.second.polled_at)
            here.driver.wake_data()
            assert (len(here.first.polled_at), len(here.second.polled_at)) == (first + 1, second)
            here.second.needs_poll = True
            here.driver.wake_data()
            assert (len(here.first.polled_at), len(here.second.polled_at)) == (first + 2, second + 1)
            here.second.needs_poll = False
            here.first.emit = [here.first.request]  # it fails at once, which may concern all
            here.driver.wake_data()
            assert len(here.second.polled_at) > second + 1

    run(test())


def test_the_deadline_of_a_manager_that_was_not_polled_is_kept() -> None:
    async def test() -> None:
        async with driven(data=True) as here:
            here.second.deadline = here.clock() + 0.05
            here.turn()
            polls = len(here.second.polled_at)
            for _ in range(10):
                here.driver.wake_data()
            assert len(here.second.polled_at) == polls
            await until(lambda: here.second.deadline is None)

    run(test())


# --- sleep -----------------------------------------------------------------------------------------------------------


def test_M14_with_nothing_to_do_there_is_no_timer_and_no_turn() -> None:
    async def test() -> None:
        async with driven() as here:
            before = here.turn()
            assert here.driver._timer is None
            for _ in range(1000):
                await asyncio.sleep(0)
            assert here.driver.turns == before

    run(test())


def test_the_driver_sleeps_to_the_earliest_deadline_and_polls_then() -> None:
    async def test() -> None:
        async with driven() as here:
            before = here.driver.turns
            here.first.deadline = here.clock() + 1000
            here.second.deadline = here.clock() + 0.05
            here.driver.wake()
            await until(lambda: here.driver.turns == before + 2)
            assert here.second.deadline is None
            assert here.driver._timer_at == here.first.deadline

    run(test())


@needs_twins
def test_connections_hear_when_the_managers_are_polled_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look for a silent broker waits for that, rather than to wake the client alone."""
    heard: list[float | None] = []
    monkeypatch.setattr(ConnectionPool, "next_deadline", lambda _connections, others=None: heard.append(others))

    async def test() -> None:
        async with driven() as here:
            here.second.deadline = here.clock() + 1000
            here.turn()
            assert heard[-1] == here.second.deadline

    run(test())


def test_an_earlier_deadline_replaces_the_timer_and_a_later_one_is_left_to_its_turn() -> None:
    async def test() -> None:
        async with driven() as here:
            here.first.deadline = here.clock() + 1000
            here.turn()
            timer = here.driver._timer
            assert timer is not None
            here.first.deadline += 1000
            here.driver.wake()
            here.turn()
            assert here.driver._timer is timer
            here.second.deadline = here.clock() + 0.05
            here.driver.wake()
            await until(lambda: here.second.deadline is None)
            assert timer.cancelled()
            assert here.driver._timer_at == here.first.deadline

    run(test())


def test_the_turn_of_an_obsolete_timer_sets_no_other() -> None:
    async def test() -> None:
        async with driven() as here:
            here.first.deadline = here.clock() + 0.05
            here.turn()
            here.first.deadline = None
            await until(lambda: here.driver._timer is None)
            assert here.driver._timer_at is None

    run(test())


def test_a_manager_that_raises_is_logged_and_the_client_continues_with_the_next_event(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with driven() as here:
            here.first.defect = ZeroDivisionError("a defect")
            here.turn()
            here.first.defect = None
            here.second.emit = [here.second.request]
            here.driver.wake()
            here.turn()
            assert len(here.second.outcomes) == 1

    with caplog.at_level(logging.ERROR, "pyclient"):
        run(test())
    assert [record.message for record in caplog.records] == ["a defect in the client: a manager raised; the client continues with the next event"]


def test_a_manager_that_never_stops_emitting_is_stopped_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with driven() as here:
            here.first.always = True
            here.turn()
            here.first.always = False
            assert len(here.first.outcomes) == ROUNDS

    with caplog.at_level(logging.ERROR, "pyclient"):
        run(test())
    assert "managers still emit requests after 1000 rounds" in caplog.text


@needs_twins
def test_any_number_of_requests_without_a_response_are_sent_without_blocking_the_loop(
        caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConnectionPool, "send", lambda _connections, request: request.done(0.0, Reply(0, None)))  # written, and that is all

    async def test() -> None:
        async with driven() as here:
            here.first.unanswered = 3 * ROUNDS
            here.driver.wake()
            await until(lambda: not here.first.unanswered)
            assert here.driver.turns > 3 * ROUNDS  # one each time it was asked: between them others had theirs

    with caplog.at_level(logging.ERROR, "pyclient"):
        run(test())
    assert not caplog.records


def test_the_pause_after_a_defect_is_kept_though_a_timer_was_set() -> None:
    async def test() -> None:
        async with driven() as here:
            here.first.deadline = here.clock() + 0.1
            here.turn()
            here.first.defect = ZeroDivisionError("a defect")
            here.driver.wake()
            here.turn()
            assert here.driver._timer_at is not None
            assert here.driver._timer_at > here.clock() + DEFECT_PAUSE / 2

    run(test())


def test_a_manager_that_raises_whenever_it_is_polled_does_not_spin_the_loop() -> None:
    async def test() -> None:
        async with driven() as here:
            here.first.defect, here.first.deadline = ZeroDivisionError("a defect"), here.clock()
            here.first.overdue_for_good = True
            before = here.turn()
            for _ in range(1000):
                await asyncio.sleep(0)
            assert here.driver.turns == before
            assert here.driver._timer_at is not None
            assert here.clock() < here.driver._timer_at <= here.clock() + DEFECT_PAUSE

    run(test())


# ---- waiting --------------------------------------------------------------------------------------------------------


def test_a_waiting_caller_gets_the_state_after_the_turn_that_brings_it() -> None:
    async def test() -> None:
        async with driven() as here:
            state: list[int] = []
            waiting = asyncio.create_task(here.driver.until(lambda: state or None, None, KafkaTimeoutError))
            here.turn()
            assert not waiting.done()
            state.append(5)
            here.driver.wake()
            assert await waiting == [5]
            assert not here.driver._waiters

    run(test())


def test_a_wait_that_takes_too_long_raises_what_its_caller_made() -> None:
    async def test() -> None:
        async with driven() as here:
            with pytest.raises(KafkaTimeoutError, match="too late"):
                await here.driver.until(lambda: None, 0.01, lambda: KafkaTimeoutError("too late"))
            assert not here.driver._waiters

    run(test())


def test_a_wait_whose_condition_holds_at_its_timeout_succeeds() -> None:
    async def test() -> None:
        async with driven() as here:
            state: list[int] = []
            waiting = asyncio.create_task(here.driver.until(lambda: state or None, 0.01, lambda: KafkaTimeoutError("too late")))
            here.turn()
            state.append(5)
            assert await waiting == [5]

    run(test())


def test_an_error_in_a_condition_is_raised_only_to_the_waiting_caller() -> None:
    async def test() -> None:
        async with driven() as here:
            broken: list[Exception] = []

            def condition() -> None:
                if broken:
                    raise broken[0]

            failing: asyncio.Task[object] = asyncio.create_task(here.driver.until(condition, None, KafkaTimeoutError))
            other = asyncio.create_task(here.driver.until(lambda: bool(broken) or None, None, KafkaTimeoutError))
            here.turn()
            broken.append(KafkaError("broken"))
            here.driver.wake()
            assert [str(each) for each in await asyncio.gather(failing, other, return_exceptions=True)] == ["broken", "True"]

    run(test())


def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async def test() -> None:
        async with driven() as here:
            waiting: asyncio.Task[Any] = asyncio.create_task(here.driver.until(lambda: None, None, KafkaTimeoutError))
            here.turn()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert not here.driver._waiters

    run(test())


# ---- the end --------------------------------------------------------------------------------------------------------


def end_of(driver: InSteps) -> Coroutine[Any, Any, Any]:
    return driver.until(lambda: None, None, KafkaTimeoutError)  # type: ignore[no-any-return]


def test_waiting_callers_get_the_error_when_the_driver_stops_and_later_ones_too() -> None:
    async def test() -> None:
        async with driven() as here:
            waiting = asyncio.create_task(end_of(here.driver))
            here.turn()
            here.driver.stop(ClientClosedError("the end"))
            assert str((await asyncio.gather(waiting, return_exceptions=True))[0]) == "the end"
            with pytest.raises(KafkaError):
                await end_of(here.driver)

    run(test())


def test_a_stopped_driver_takes_no_turn_and_has_no_timer() -> None:
    async def test() -> None:
        async with driven() as here:
            here.first.deadline = here.clock() + 0.01
            before = here.turn()
            timer = here.driver._timer
            assert timer is not None
            here.driver.stop(ClientClosedError("the end"))
            here.driver.wake()
            here.driver.wake_from_anywhere()
            for _ in range(100):
                await asyncio.sleep(0)
            assert timer.cancelled()
            assert here.driver.turns == before

    run(test())
