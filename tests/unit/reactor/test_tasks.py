"""Tasks of a reactor: results, cancellation, timeouts, and what waits for several of them. In virtual time."""
from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings, strategies as st

from pyclient.reactor.tasks import CancelledError, Event, Future, Task, Timeout, all_done, first_done, gather, shielded, sleep
from tests.unit.reactor.test_reactor_order import idle

T = TypeVar("T")
Main = Callable[[], Coroutine[Any, Any, T]]
TICKS = 60
LAST_TICK = 26
"""By which six waits of four ticks have ended."""
quick = settings(max_examples=40, deadline=None)


class World:
    """A reactor whose time passes in `run`."""

    def __init__(self) -> None:
        self.reactor, _, self.clock = idle()

    def start(self, coro: Coroutine[Any, Any, T]) -> Task[T]:
        return Task(self.reactor, coro)

    def run(self, task: Future[T]) -> T:
        """Let time pass, a tick at a time, until *task* has ended; its result."""
        for _ in range(TICKS):
            self.reactor.step()
            if task.done():
                return task.result()
            self.clock.now += 1
        raise AssertionError(f"{task!r} did not end")

    def pass_ticks(self, count: int) -> None:
        for _ in range(count):
            self.reactor.step()
            self.clock.now += 1
        self.reactor.step()

    async def sleep(self, ticks: float) -> None:
        await sleep(self.reactor, ticks)


@pytest.fixture
def world() -> World:
    return World()


def outcome(future: Future[Any]) -> object:
    """As a value that can be compared."""
    if not future.done():
        return "pending"
    if future.cancelled():
        return "cancelled"
    error = future.exception()
    return future.result() if error is None else type(error)


# ---- futures --------------------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[Future[str]], object]] = {
    "result": lambda future: future.set_result("result"),
    "error": lambda future: future.set_exception(LookupError()),
    "cancelled": lambda future: future.cancel(),
}
OUTCOMES = {"result": "result", "error": LookupError, "cancelled": "cancelled"}


@quick
@given(first=st.sampled_from(sorted(ENDS)), then=st.lists(st.sampled_from(sorted(ENDS)), max_size=3),
       before=st.integers(0, 3), after=st.integers(0, 3))
def test_a_future_ends_once_and_calls_each_callback_once_in_a_later_pass(first: str, then: list[str], before: int, after: int) -> None:
    world, seen = World(), []
    future: Future[str] = Future(world.reactor)

    def in_a_step() -> None:
        for number in range(before):
            future.add_done_callback(lambda ended, number=number: seen.append((number, outcome(ended))))  # type: ignore[misc]
        future.add_done_callback(seen.append)
        future.remove_done_callback(seen.append)
        ENDS[first](future)
        for each in then:
            if each == "cancelled":
                assert future.cancel() is False
            else:
                with pytest.raises(RuntimeError, match="ended already"):
                    ENDS[each](future)
        for number in range(before, before + after):
            future.add_done_callback(lambda ended, number=number: seen.append((number, outcome(ended))))  # type: ignore[misc]
        assert not seen

    world.reactor.call_soon(in_a_step)
    assert outcome(future) == OUTCOMES[first]
    assert seen == [(number, OUTCOMES[first]) for number in range(before + after)]


# ---- tasks ----------------------------------------------------------------------------------------------------------


async def given_back(value: T) -> T:
    return value


def test_a_task_has_the_result_or_the_error_of_its_coroutine(world: World) -> None:
    async def fail() -> None:
        await world.sleep(1)
        raise LookupError("no such thing")

    assert world.run(world.start(given_back(1))) == 1
    with pytest.raises(LookupError, match="no such thing"):
        world.run(world.start(fail()))


def test_a_task_runs_in_its_own_context_and_is_the_current_one_in_its_steps(world: World) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen: list[object] = []

    async def work(number: int) -> None:
        variable.set(number)
        for _ in range(3):
            seen.append((variable.get(), world.reactor.current is tasks[number - 1]))
            await world.sleep(1)

    tasks: list[Task[None]] = []
    world.reactor.call_soon(lambda: tasks.extend([Task(world.reactor, work(1)), Task(world.reactor, work(2))]))
    world.run(world.start(all_done(world.reactor, tasks)))
    assert seen == [(1, True), (2, True)] * 3
    assert variable.get() == 0
    assert world.reactor.current is None


def test_a_coroutine_that_awaits_what_no_reactor_knows_fails_and_is_closed(world: World) -> None:
    closed: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(TypeError, match="expected a future of its reactor"):
        world.run(world.start(work()))
    assert closed == [True]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_task_that_ends_programs_has_ended_and_the_step_raises(world: World, stop: type[BaseException]) -> None:
    async def work() -> None:
        raise stop

    tasks: list[Task[None]] = []
    world.reactor.post(lambda: tasks.append(Task(world.reactor, work())))
    with pytest.raises(stop):
        world.reactor.step()
    assert outcome(tasks[0]) is stop


# ---- cancellation ---------------------------------------------------------------------------------------------------


def test_a_task_that_is_cancelled_before_it_begins_runs_nothing(world: World) -> None:
    ran: list[bool] = []

    async def work() -> None:
        ran.append(True)

    def start() -> None:
        tasks.append(Task(world.reactor, work()))
        tasks[0].cancel()

    tasks: list[Task[None]] = []
    world.reactor.call_soon(start)
    assert (outcome(tasks[0]), ran) == ("cancelled", [])
    assert tasks[0].cancel() is False


def test_a_cancelled_task_cleans_up_in_steps_and_ends_as_cancelled(world: World) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await world.sleep(50)
        finally:
            await world.sleep(2)
            seen.append("cleaned up")

    task = world.start(work())
    world.pass_ticks(1)
    assert task.cancel() is True
    world.pass_ticks(1)
    assert (outcome(task), task.cancelling()) == ("pending", 1)
    world.pass_ticks(2)
    assert (outcome(task), seen) == ("cancelled", ["cleaned up"])


def test_a_task_may_suppress_its_cancellation(world: World) -> None:
    async def stubborn() -> str:
        try:
            await world.sleep(50)
        except CancelledError:
            await world.sleep(1)
        return "result"

    task = world.start(stubborn())
    world.pass_ticks(1)
    task.cancel()
    assert world.run(task) == "result"


def test_a_task_that_awaits_another_cancels_it_and_shielded_does_not(world: World) -> None:
    inner = [world.start(world.sleep(5)), world.start(world.sleep(5))]

    async def wait(awaitable: Awaitable[None]) -> None:
        await awaitable

    outer = [world.start(wait(inner[0])), world.start(wait(shielded(inner[1])))]
    world.pass_ticks(1)
    for each in outer:
        each.cancel()
    world.pass_ticks(10)
    assert [outcome(each) for each in (*outer, *inner)] == ["cancelled", "cancelled", "cancelled", None]


def test_shielded_has_the_result_or_the_error_of_its_future(world: World) -> None:
    for end, expected in OUTCOMES.items():
        future: Future[str] = Future(world.reactor)
        task = world.start(shielded(future))
        world.pass_ticks(1)
        ENDS[end](future)
        world.pass_ticks(1)
        assert outcome(task) == expected
        task = world.start(shielded(future))
        world.pass_ticks(1)
        assert outcome(task) == expected


# Cancellation, beside asyncio: both run the same coroutine, and get the same requests at the same times.


class Recorder:
    """What a coroutine of the property below has seen, in the reactor or in asyncio."""

    def __init__(self, sleep: Callable[[float], Awaitable[object]], timeout: Callable[[float], Any],
                 cancelled: type[BaseException], current: Callable[[], Any]) -> None:
        self.sleep, self.timeout, self.cancelled, self.current = sleep, timeout, cancelled, current
        self.log: list[object] = []

    async def work(self, waits: list[tuple[int, int | None, str]]) -> str:
        """Each wait takes so long, within a timeout or without one, and does what its script says when cancelled."""
        for number, (ticks, limit, how) in enumerate(waits):
            try:
                await self._wait(ticks, limit)
                self.log.append((number, "waited"))
            except TimeoutError:
                self.log.append((number, "timeout"))
            except self.cancelled:
                self.log.append((number, "cancelled", self.current().cancelling()))
                if how == "raise":
                    raise
                if how == "uncancel":
                    self.current().uncancel()
        return "result"

    async def _wait(self, ticks: int, limit: int | None) -> None:
        if limit is None:
            await self.sleep(ticks)
        else:
            async with self.timeout(limit):
                await self.sleep(ticks)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time passes without help."""

    now = 0.0

    def time(self) -> float:
        return self.now


def in_asyncio(waits: list[tuple[int, int | None, str]], cancels: list[int]) -> tuple[list[object], object]:
    loop = VirtualLoop()
    try:
        recorder = Recorder(asyncio.sleep, asyncio.timeout, asyncio.CancelledError, asyncio.current_task)
        task = loop.create_task(recorder.work(waits))

        async def settle() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        for tick in range(LAST_TICK):
            loop.now = float(tick)
            loop.run_until_complete(settle())
            for _ in range(cancels.count(tick)):
                task.cancel()
            loop.run_until_complete(settle())
        assert task.done()
        return recorder.log, "cancelled" if task.cancelled() else task.result()
    finally:
        loop.close()


def in_reactor(waits: list[tuple[int, int | None, str]], cancels: list[int]) -> tuple[list[object], object]:
    world = World()
    recorder = Recorder(functools.partial(sleep, world.reactor), functools.partial(Timeout, world.reactor),
                        CancelledError, lambda: world.reactor.current)
    task = world.start(recorder.work(waits))
    for tick in range(LAST_TICK):
        world.clock.now = float(tick)
        world.reactor.step()
        world.reactor.call_soon(lambda tick=tick: [task.cancel() for _ in range(cancels.count(tick))])  # type: ignore[misc]
    return recorder.log, outcome(task)


wait_plans = st.lists(st.tuples(st.integers(1, 4), st.none() | st.integers(1, 4),
                                st.sampled_from(["raise", "uncancel", "suppress"])), max_size=6)


def ends_in_doubt(waits: list[tuple[int, int | None, str]]) -> bool:
    """Whether a wait and its timeout end at the same time: which one is first is not a rule."""
    return any(ticks == limit for ticks, limit, _ in waits)


@quick
@given(waits=wait_plans.filter(lambda waits: not ends_in_doubt(waits)), cancels=st.lists(st.integers(0, 12), max_size=4))
def test_cancellation_and_timeouts_follow_asyncios_rules(waits: list[tuple[int, int | None, str]], cancels: list[int]) -> None:
    assert in_reactor(waits, cancels) == in_asyncio(waits, cancels)


# ---- timeouts -------------------------------------------------------------------------------------------------------


def test_a_timeout_raises_behind_its_block_and_says_that_it_expired(world: World) -> None:
    async def work(limit: float | None) -> tuple[bool, bool]:
        timeout = Timeout(world.reactor, limit)
        late = False
        try:
            async with timeout:
                await world.sleep(3)
        except TimeoutError:
            late = True
        return late, timeout.expired()

    for late in (-1, 0, 2):
        assert world.run(world.start(work(late))) == (True, True)
    for enough in (4, None):
        assert world.run(world.start(work(enough))) == (False, False)


@pytest.mark.parametrize("first", ["timeout", "user"])
def test_a_cancellation_from_outside_in_the_step_in_which_the_time_is_over_is_no_timeout(world: World, first: str) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            async with Timeout(world.reactor, 3):
                await world.sleep(50)
        except TimeoutError:
            seen.append("timeout")

    def cancel() -> None:
        tasks[0].cancel()

    tasks: list[Task[None]] = []
    starts: list[Callable[[], object]] = [lambda: tasks.append(Task(world.reactor, work())), lambda: world.reactor.call_at(3, cancel)]
    for start in starts if first == "timeout" else reversed(starts):
        world.reactor.call_soon(start)
    world.pass_ticks(5)
    assert (outcome(tasks[0]), seen) == ("cancelled", [])


def test_nested_timeouts_raise_where_the_earlier_one_stands(world: World) -> None:
    async def work(inner: float, outer: float) -> list[str]:
        seen: list[str] = []
        try:
            async with Timeout(world.reactor, outer):
                try:
                    async with Timeout(world.reactor, inner):
                        await world.sleep(50)
                except TimeoutError:
                    seen.append("inner")
                    await world.sleep(10)
        except TimeoutError:
            seen.append("outer")
        return seen

    assert world.run(world.start(work(2, 30))) == ["inner"]
    assert world.run(world.start(work(2, 5))) == ["inner", "outer"]
    assert world.run(world.start(work(5, 2))) == ["outer"]


def test_a_timeout_may_be_moved(world: World) -> None:
    async def work(first: float | None, then: float | None) -> float:
        start = world.clock.now
        try:
            async with Timeout(world.reactor, first) as timeout:
                timeout.reschedule(None if then is None else start + then)
                await world.sleep(10)
        except TimeoutError:
            pass
        return world.clock.now - start

    assert world.run(world.start(work(2, 5))) == 5
    assert world.run(world.start(work(5, 2))) == 2
    assert world.run(world.start(work(2, None))) == 10
    assert world.run(world.start(work(None, 2))) == 2


def test_a_timeout_that_is_moved_in_the_pass_in_which_it_is_over_does_not_expire(world: World) -> None:
    timeouts: list[Timeout] = []

    async def work() -> str:
        async with Timeout(world.reactor, 3) as timeout:
            timeouts.append(timeout)
            await world.sleep(5)
        return "in time"

    world.reactor.call_soon(lambda: world.reactor.call_at(3, lambda: timeouts[0].reschedule(10)))
    assert world.run(world.start(work())) == "in time"


def test_what_a_block_raises_itself_is_raised(world: World) -> None:
    async def work() -> None:
        async with Timeout(world.reactor, 3):
            raise LookupError

    with pytest.raises(LookupError):
        world.run(world.start(work()))


def test_a_timeout_outside_of_a_task_is_refused(world: World) -> None:
    timeout = Timeout(world.reactor, 1)
    with pytest.raises(RuntimeError, match="for a task of the reactor"):
        timeout.__aenter__().send(None)


# ---- several --------------------------------------------------------------------------------------------------------


def test_an_event_lets_all_go_on_until_it_is_cleared(world: World) -> None:
    event = Event(world.reactor)
    tasks = [world.start(event.wait()) for _ in range(3)]
    world.pass_ticks(1)
    tasks[0].cancel()
    event.set()
    world.pass_ticks(1)
    assert [outcome(each) for each in tasks] == ["cancelled", None, None]
    assert event.is_set()
    assert outcome(world.start(event.wait())) is None
    event.clear()
    late = world.start(event.wait())
    world.pass_ticks(1)
    assert (outcome(late), event.is_set()) == ("pending", False)


@st.composite
def several(draw: st.DrawFn) -> list[tuple[int, str]]:
    """When each of some futures ends, and how; no two at the same time."""
    times = draw(st.lists(st.integers(0, 10), min_size=1, max_size=5, unique=True))
    return [(at, draw(st.sampled_from(sorted(ENDS)))) for at in times]


def planned(world: World, plan: list[tuple[int, str]]) -> list[Future[str]]:
    futures: list[Future[str]] = [Future(world.reactor) for _ in plan]

    def set_up() -> None:
        for future, (at, how) in zip(futures, plan, strict=True):
            world.reactor.call_at(at, functools.partial(ENDS[how], future))

    world.reactor.call_soon(set_up)
    return futures


@quick
@given(plan=several(), limit=st.none() | st.integers(0, 10))
def test_first_done_ends_with_the_first_one_or_its_limit_and_cancels_none(plan: list[tuple[int, str]], limit: int | None) -> None:
    world = World()
    futures = planned(world, plan)

    async def wait() -> tuple[float, int]:
        found = await first_done(world.reactor, futures, limit)
        return world.clock.now, len(found)

    first = min(at for at, _ in plan)
    ended, count = world.run(world.start(wait()))
    assert ended == (first if limit is None else min(first, limit))
    assert count == (0 if limit is not None and limit < first else 1)
    world.pass_ticks(12)
    assert [outcome(each) for each in futures] == [OUTCOMES[how] for _, how in plan]


@quick
@given(plan=several())
def test_all_done_ends_with_the_last_one_however_they_end(plan: list[tuple[int, str]]) -> None:
    world = World()
    futures = planned(world, plan)

    async def wait() -> float:
        await all_done(world.reactor, futures)
        return world.clock.now

    assert world.run(world.start(wait())) == max(at for at, _ in plan)
    assert [outcome(each) for each in futures] == [OUTCOMES[how] for _, how in plan]


@quick
@given(plan=several(), cancel_at=st.none() | st.integers(0, 10).map(lambda at: at + 0.5))
def test_gather_has_all_results_or_the_first_error_and_cancels_what_is_left(plan: list[tuple[int, str]], cancel_at: float | None) -> None:
    world = World()
    ends: dict[int, object] = {}

    async def work(number: int, at: int, how: str) -> int:
        try:
            await world.sleep(at)
        except CancelledError:
            ends[number] = "cancelled from outside"
            raise
        ends[number] = how
        if how == "error":
            raise LookupError(str(number))
        if how == "cancelled":
            raise CancelledError
        return number

    async def main() -> object:
        try:
            return await gather(world.reactor, [work(number, at, how) for number, (at, how) in enumerate(plan)])
        finally:
            ended.append(world.clock.now)

    ended: list[float] = []
    task = world.start(main())
    world.reactor.call_soon(lambda: cancel_at is not None and world.reactor.call_at(cancel_at, task.cancel))
    for _ in range(25):
        world.reactor.step()
        world.clock.now += 0.5
    bad = [(at, how) for at, how in plan if how != "result"]
    natural = min(bad)[0] if bad else max(at for at, _ in plan)
    end = natural if cancel_at is None else min(natural, cancel_at)
    assert ended == [end]
    expected = "cancelled" if end == cancel_at else {"error": LookupError, "cancelled": "cancelled"}[min(bad)[1]] if bad else list(range(len(plan)))
    assert outcome(task) == expected
    assert ends == {number: how if at <= end else "cancelled from outside" for number, (at, how) in enumerate(plan)}
