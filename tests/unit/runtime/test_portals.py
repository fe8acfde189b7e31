"""Calls of users' threads and tasks into a client's reactor: results, errors, cancellation, Ctrl-C and the end."""
from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import signal
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from pyclient.errors import ClientClosedError, IllegalStateError, WrongEventLoopError
from pyclient.reactor.tasks import CancelledError, Event, Future, sleep
from pyclient.runtime.environment import loop_reactor, thread_reactor
from pyclient.runtime.portals import Call, LoopPortal, ThreadPortal
from tests.interrupted_at import interrupted_at
from tests.reactors import idle_portal, open_portal
from tests.waiting import eventually

# Ctrl-C in what the garbage collector calls is printed; a coroutine that nothing awaits would be printed too.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <function WeakSet:pytest.PytestUnraisableExceptionWarning")
LIMIT_S = 20.0
T = TypeVar("T")
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def started() -> ThreadPortal:
    portal = ThreadPortal("portal", thread_reactor())
    portal.start()
    return portal


@pytest.fixture
def portal() -> Iterator[ThreadPortal]:
    made = started()
    yield made
    made.stop()


async def one() -> int:
    return 1


async def refused() -> None:
    raise LookupError("no such thing")


async def value_of_variable() -> str:
    return variable.get()


def in_a_thread(work: Callable[[], object]) -> list[object]:
    """What *work* returns or raises, in another thread."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:  # noqa: BLE001 returned
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return found


def works(portal: ThreadPortal) -> bool:
    return in_a_thread(lambda: portal.call(one)) == [1]


def press() -> None:
    """As the terminal: the handler of the signal raises KeyboardInterrupt."""
    signal.raise_signal(signal.SIGINT)


# ---- a call of a thread ---------------------------------------------------------------------------------------------


def test_a_call_returns_the_result_of_its_coroutine_or_raises_its_error(portal: ThreadPortal) -> None:
    assert portal.call(one) == 1
    with pytest.raises(LookupError, match="no such thing"):
        portal.call(refused)
    assert portal.run(lambda: 2) == 2


def test_a_call_runs_in_the_context_of_its_caller(portal: ThreadPortal) -> None:
    token = variable.set("the caller's")
    try:
        assert portal.call(value_of_variable) == "the caller's"
    finally:
        variable.reset(token)


def test_a_blocking_call_within_a_step_is_refused(portal: ThreadPortal) -> None:
    async def nested() -> None:
        for call in (lambda: portal.call(one), lambda: portal.run(lambda: 1), portal.stop):
            with pytest.raises(IllegalStateError, match="would deadlock"):
                call()

    portal.call(nested)


def test_a_function_that_ends_programs_ends_neither_the_clients_thread_nor_later_calls(
        portal: ThreadPortal, caplog: pytest.LogCaptureFixture) -> None:
    def exit_program() -> None:
        raise SystemExit

    portal.reactor.post(exit_program)  # in the client's thread
    eventually(lambda: "ends programs" in caplog.text)
    assert works(portal)


class Held:
    """What the coroutine of a call refers to."""


async def failing(held: Held) -> None:
    raise LookupError(str(held))


def test_what_an_error_of_a_call_refers_to_is_freed_without_the_collector(portal: ThreadPortal) -> None:
    def call(held: Held) -> None:
        with pytest.raises(LookupError):
            portal.call(lambda: failing(held))

    held = Held()
    watched = weakref.ref(held)
    gc.disable()
    try:
        call(held)
        del held
        eventually(lambda: watched() is None)  # the client's thread may be about to end the step
    finally:
        gc.enable()


# ---- a call without a caller that waits -----------------------------------------------------------------------------


def test_a_submitted_call_says_how_it_ended(portal: ThreadPortal) -> None:
    given, failed, endless = portal.submit(one), portal.submit(refused), portal.submit(lambda: Event(portal.reactor).wait())
    eventually(lambda: given.done() and failed.done())
    assert (given.result(), given.exception(), given.cancelled()) == (1, None, False)
    assert isinstance(failed.exception(), LookupError)
    assert not failed.cancelled()
    assert not endless.done()
    endless.cancel()
    eventually(endless.done)
    assert endless.cancelled()
    with pytest.raises(CancelledError):
        endless.result()


def test_a_call_that_is_cancelled_before_it_begins_makes_no_coroutine_and_ends_once() -> None:
    ends: list[bool] = []
    made: list[bool] = []

    def make() -> Coroutine[Any, Any, int]:
        made.append(True)
        return one()

    call = Call(thread_reactor(), make, lambda: ends.append(True))
    call.cancel()
    call.begin()
    call.drop()
    assert (call.done(), call.cancelled(), ends, made) == (True, True, [True], [])
    with pytest.raises(CancelledError):
        call.result()


def test_a_coroutine_may_end_with_a_result_although_it_was_cancelled() -> None:
    async def stubborn() -> str:
        try:
            await sleep(idle.reactor, LIMIT_S)
        except CancelledError:
            return "result"
        return "slept"

    idle = idle_portal()
    call = idle.submit(stubborn)
    call.cancel()
    assert (call.done(), call.cancelled(), call.result()) == (True, False, "result")


# ---- Ctrl-C ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_at_any_byte_code_of_a_call_leaves_a_reactor_that_takes_the_next_one() -> None:
    portal, number = started(), 1
    while interrupted_at(number, lambda: portal.call(one), press):
        assert works(portal), f"byte code {number}"
        number += 1
    assert number > 50
    portal.stop()


def test_a_call_that_ctrl_c_ended_does_nothing_behind_the_next_one() -> None:
    portal, number, going_on = started(), 1, True
    did: list[str] = []

    async def work() -> None:
        did.append("began")
        try:
            for _ in range(20):
                await sleep(portal.reactor, 0)
        finally:
            did.append("ended")

    while going_on:
        going_on = interrupted_at(number, lambda: portal.call(work), press)
        before = list(did)
        portal.call(one)
        assert did == before, f"byte code {number}"
        assert before.count("began") == before.count("ended"), f"byte code {number}"
        number += 3
    portal.stop()


def test_ctrl_c_at_any_byte_code_of_an_end_is_made_up_for_by_the_next_end() -> None:
    number, going_on = 1, True
    while going_on:
        portal = started()
        going_on = interrupted_at(number, lambda portal=portal: portal.end(one), press)  # type: ignore[misc]
        portal.end(one)
        assert portal.join(0), f"byte code {number}"
        number += 7  # each has a thread of its own
    assert number > 50


# ---- the end --------------------------------------------------------------------------------------------------------


def test_a_stopped_portal_cancels_its_calls_and_accepts_none() -> None:
    portal, began = started(), threading.Event()

    async def endless() -> None:
        began.set()
        await Event(portal.reactor).wait()

    outcomes: list[object] = []
    caller = threading.Thread(target=lambda: outcomes.extend(in_a_thread(lambda: portal.call(endless))))
    caller.start()
    assert began.wait(LIMIT_S)
    submitted = portal.submit(endless)
    portal.stop()
    caller.join(LIMIT_S)
    assert [type(each) for each in outcomes] == [ClientClosedError]
    assert submitted.cancelled()
    for call in (portal.call, portal.submit):
        with pytest.raises(ClientClosedError):
            call(one)
    portal.stop()
    assert portal.join(0)


def test_a_portal_stops_after_its_last_coroutine_however_that_ends(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    async def last(error: Exception | None) -> None:
        ran.append("last")
        if error is not None:
            raise error

    for error in (None, LookupError("at the end")):
        portal = started()
        portal.stop_after(lambda error=error: last(error))  # type: ignore[misc]
        assert portal.join(LIMIT_S)
    assert ran == ["last", "last"]
    assert [each.levelno for each in caplog.records if "at the end" in each.getMessage()] == [logging.WARNING]


def test_an_end_closes_once_and_then_only_stops() -> None:
    portal, closed = started(), []

    async def close() -> None:
        closed.append(True)

    portal.end(close)
    portal.end(close)
    assert closed == [True]
    assert portal.join(0)


# ---- an asyncio loop ------------------------------------------------------------------------------------------------

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def on_uvloop(main: Coroutine[Any, Any, Any]) -> Any:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


@pytest.fixture(params=[asyncio.run, on_uvloop], ids=["asyncio", "uvloop"])
def on_loop(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on a new loop."""
    run: Run = request.param
    return run


def test_a_call_on_a_loop_returns_the_result_of_its_coroutine_or_raises_its_error(on_loop: Run) -> None:
    async def main() -> None:
        portal = await open_portal()
        variable.set("the caller's")
        assert await portal.call(one) == 1
        assert await portal.call(value_of_variable) == "the caller's"
        assert portal.run(lambda: 2) == 2
        with pytest.raises(LookupError, match="no such thing"):
            await portal.call(refused)
        with pytest.raises(LookupError, match="no such thing"):
            await portal.call(lambda: _raising(portal))

    on_loop(main())


async def _raising(portal: LoopPortal) -> None:
    """In a step `run` calls its function at once."""
    def fail() -> None:
        raise LookupError("no such thing")

    portal.run(fail)


def test_what_an_error_of_a_call_on_a_loop_refers_to_is_freed_without_the_collector(on_loop: Run) -> None:
    async def main() -> None:
        portal = await open_portal()

        async def call(held: Held) -> None:
            try:
                await portal.call(lambda: failing(held))
            except LookupError:
                return

        held = Held()
        watched = weakref.ref(held)
        await call(held)
        del held
        assert watched() is None

    gc.disable()
    try:
        on_loop(main())
    finally:
        gc.enable()


def test_a_function_that_raises_on_a_loop_raises_to_its_caller(on_loop: Run) -> None:
    async def main() -> None:
        portal = await open_portal()
        with pytest.raises(ZeroDivisionError):
            portal.run(lambda: 1 // 0)

    on_loop(main())


def test_a_cancelled_caller_cancels_its_call_and_waits_for_its_end(on_loop: Run) -> None:
    ends: list[str] = []

    async def main() -> None:
        portal = await open_portal()

        async def work() -> None:
            try:
                await sleep(portal.reactor, LIMIT_S)
            except CancelledError:
                await sleep(portal.reactor, 0)
                ends.append("call")
                raise

        caller = asyncio.create_task(portal.call(work))
        await asyncio.sleep(0)
        caller.cancel("by the user")
        with pytest.raises(asyncio.CancelledError, match="by the user"):
            await caller
        ends.append("caller")

    on_loop(main())
    assert ends == ["call", "caller"]


def test_a_caller_gets_the_result_of_a_call_that_was_not_to_be_cancelled(on_loop: Run) -> None:
    async def main() -> str:
        portal = await open_portal()

        async def stubborn() -> str:
            try:
                await sleep(portal.reactor, LIMIT_S)
            except CancelledError:
                return "result"
            return "slept"

        caller = asyncio.create_task(portal.call(stubborn))
        await asyncio.sleep(0)
        caller.cancel()
        return await caller

    assert on_loop(main()) == "result"


def test_a_caller_that_is_cancelled_behind_the_end_of_its_call_is_cancelled(on_loop: Run) -> None:
    async def main() -> None:
        portal = await open_portal()
        last: Future[int] = Future(portal.reactor)
        caller = asyncio.create_task(portal.call(lambda: _awaited(last)))

        def end_and_cancel() -> None:
            portal.run(lambda: last.set_result(1))
            caller.cancel("by the user")  # before the caller's task hears of the end

        asyncio.get_running_loop().call_soon(end_and_cancel)
        with pytest.raises(asyncio.CancelledError, match="by the user"):
            await caller

    on_loop(main())


@pytest.mark.parametrize("error", [None, LookupError(), CancelledError()], ids=["ends", "fails", "cancelled"])
def test_a_portal_closes_its_reactor_when_the_close_has_ended_and_not_when_it_was_cancelled(on_loop: Run, error: BaseException | None) -> None:
    async def main() -> bool:
        portal = await open_portal()

        async def close() -> None:
            if error is not None:
                raise error

        with contextlib.suppress(LookupError, asyncio.CancelledError):
            await portal.close(close, closed=False)
        return portal.reactor.closed

    assert on_loop(main()) is not isinstance(error, CancelledError)


def test_a_call_that_cancels_itself_raises_asyncios_error(on_loop: Run) -> None:
    async def main() -> None:
        portal = await open_portal()

        async def cancelled() -> None:
            raise CancelledError

        with pytest.raises(asyncio.CancelledError):
            await portal.call(cancelled)

    on_loop(main())


def test_a_portal_belongs_to_the_loop_that_opened_it() -> None:
    unopened = LoopPortal("producer", loop_reactor())
    with pytest.raises(IllegalStateError, match="this producer is not open yet"):
        asyncio.run(unopened.call(one))

    async def elsewhere(portal: LoopPortal) -> None:
        for use in (portal.call(one), asyncio.to_thread(lambda: asyncio.run(portal.call(one)))):
            with pytest.raises(WrongEventLoopError, match="belongs to another event loop"):
                await use

    asyncio.run(elsewhere(asyncio.run(open_portal())))


def test_a_users_awaitable_runs_in_a_task_of_its_loop_and_behind_the_step(on_loop: Run) -> None:
    async def main() -> None:
        portal = await open_portal()
        loop = asyncio.get_running_loop()

        async def users() -> bool:
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is loop
            assert asyncio.current_task() is not None
            return portal.reactor.leads

        assert await portal.call(lambda: portal.awaits(users())) is False

        async def failing() -> None:
            await asyncio.sleep(0)
            raise LookupError

        with pytest.raises(LookupError):
            await portal.call(lambda: portal.awaits(failing()))

    on_loop(main())


def test_the_cancellation_of_a_call_goes_on_to_the_users_awaitable(on_loop: Run) -> None:
    seen: list[str] = []

    async def main() -> None:
        portal = await open_portal()
        began = asyncio.Event()

        async def users() -> None:
            began.set()
            try:
                await asyncio.sleep(LIMIT_S)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        caller = asyncio.create_task(portal.call(lambda: portal.awaits(users())))
        await began.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        while not seen:  # noqa: ASYNC110 a pass or two
            await asyncio.sleep(0)
        seen.append("end")

    on_loop(main())
    assert seen == ["cancelled", "end"]


def test_a_users_awaitable_that_cancels_itself_cancels_the_call(on_loop: Run) -> None:
    async def main() -> None:
        portal = await open_portal()

        async def users() -> None:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await portal.call(lambda: portal.awaits(users()))

    on_loop(main())


def test_calls_that_are_submitted_on_a_loop_end_on_it(on_loop: Run) -> None:
    async def main() -> list[object]:
        portal = await open_portal()
        ended: list[object] = []
        last: Future[None] = Future(portal.reactor)

        async def at_the_end() -> None:
            ended.append("last")
            last.set_result(None)

        given, failed = portal.submit(one), portal.submit(refused)
        portal.stop_after(at_the_end)
        await portal.call(lambda: _awaited(last))
        return [given.result(), type(failed.exception()), *ended]

    assert on_loop(main()) == [1, LookupError, "last"]


async def _awaited(future: Future[T]) -> T:
    return await future
