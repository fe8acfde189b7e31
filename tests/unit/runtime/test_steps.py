"""Both drivers of a generator of steps: what is performed, sent back, thrown in and closed."""
from __future__ import annotations

import asyncio
import contextlib
import dis
import gc
import itertools
import sys
import weakref
from collections.abc import Callable, Generator, Iterator
from types import CodeType, FrameType
from typing import Any

import attrs
import pytest

from pyclient.runtime.environment import thread_reactor
from pyclient.runtime.portals import ThreadPortal
from pyclient.runtime.steps import InStep, Step, Steps, WaitFor, await_steps, run_steps
from tests.reactors import open_portal

Drive = Callable[[Steps[Any, Any], Callable[[Any], Any]], Any]


def awaited(steps: Steps[Any, Any], perform: Callable[[Any], Any]) -> Any:
    """As `run_steps`, by the async driver."""
    return asyncio.run(await_steps(steps, lambda step: Performed(perform, step)))


@attrs.frozen
class Performed:
    """Performs a step when awaited; unlike a coroutine it does not warn if it is not."""

    perform: Callable[[Any], Any]
    step: Any

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0).__await__()
        return self.perform(self.step)


drivers = pytest.mark.parametrize("drive", [run_steps, awaited])


@drivers
def test_each_answer_is_sent_back_and_the_generators_result_is_returned(drive: Drive) -> None:
    def steps() -> Steps[int, tuple[int, int]]:
        first = yield 1
        second = yield first + 1
        return first, second

    assert drive(steps(), lambda step: step * 10) == (10, 110)


@drivers
@pytest.mark.parametrize("stop", [LookupError, KeyboardInterrupt, asyncio.CancelledError])
def test_an_error_of_a_step_is_thrown_into_the_generator_which_may_go_on(drive: Drive, stop: type[BaseException]) -> None:
    def perform(step: str) -> str:
        if step == "fail":
            raise stop
        return step

    def steps() -> Steps[str, Any]:
        try:
            yield "fail"
        except stop:
            return (yield "cleaned up")

    assert drive(steps(), perform) == "cleaned up"


@drivers
def test_an_error_that_the_generator_does_not_catch_is_raised_and_keeps_no_reference_cycle(drive: Drive) -> None:
    class Held:
        """Anything that the generator holds."""

    def steps(held: Held) -> Steps[str, None]:
        yield "fail"
        raise AssertionError(held)

    def perform(_step: str) -> None:
        raise LookupError

    held = Held()
    watched = weakref.ref(held)
    gc.disable()
    try:
        with pytest.raises(LookupError):
            drive(steps(held), perform)
        del held
        assert watched() is None or drive is awaited  # asyncio.run has cycles of its own
    finally:
        gc.enable()


def test_cancelling_a_task_while_it_waits_closes_the_generator() -> None:
    closed = []

    def steps() -> Steps[str, None]:
        try:
            yield "wait"
        finally:
            closed.append(True)

    async def perform(_step: str) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(await_steps(steps(), perform))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert closed == [True]


@drivers
def test_ctrl_c_at_any_point_of_the_driver_is_thrown_into_a_generator_that_cleans_up_in_steps(drive: Drive) -> None:
    """A signal handler may raise between two instructions of the driver, not only while a step is performed."""
    driver = (run_steps if drive is run_steps else await_steps).__code__
    for instruction in itertools.count():
        log: list[str] = []
        if not interrupted(drive, driver, instruction, log):
            break
        at = log.index("Ctrl-C")
        if "begin" in log[:at] and "end" not in log[:at]:
            assert log[at + 1:] == ["end", "clean up"], f"interrupted at instruction {instruction}: {log}"
    assert instruction > 20


def interrupted(drive: Drive, driver: CodeType, instruction: int, log: list[str]) -> bool:
    """Interrupt the driver at its nth instruction; False when it has fewer."""
    left = instruction

    def steps() -> Steps[str, None]:
        try:
            log.append("begin")
            yield "work"
            with contextlib.suppress(LookupError):
                yield "fail"
        finally:
            log.append("end")
            yield "clean up"

    def perform(step: str) -> None:
        log.append(step)
        if step == "fail":
            raise LookupError

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if frame.f_code is not driver:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code.co_code[frame.f_lasti] != dis.opmap["NOP"]:  # no handler runs there
            left -= 1
            if left < 0:
                sys.settrace(None)
                log.append("Ctrl-C")
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        drive(steps(), perform)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.fixture
def portal() -> Iterator[ThreadPortal]:
    """A reactor with its own thread."""
    portal = ThreadPortal("pyclient-test", thread_reactor())
    portal.start()
    yield portal
    portal.stop()


def steps_that_report(leads: Callable[[], bool]) -> list[Step]:
    """Both kinds of step; each reports whether it is performed in a step of the reactor."""
    async def leads_too() -> bool:
        return leads()

    return [InStep(leads), WaitFor(leads_too)]


def test_a_sync_client_performs_each_step_in_its_reactor(portal: ThreadPortal) -> None:
    for step in steps_that_report(lambda: portal.reactor.leads):
        assert step.run(portal) is True


def test_an_async_client_performs_each_step_in_its_reactor() -> None:
    async def main() -> list[bool]:
        portal = await open_portal()
        return [await step.run_async(portal) for step in steps_that_report(lambda: portal.reactor.leads)]

    assert asyncio.run(main()) == [True, True]


def test_an_async_client_performs_InStep_within_a_step_too() -> None:
    async def main() -> object:
        portal = await open_portal()
        return await portal.call(lambda: InStep(lambda: portal.reactor.leads).run_async(portal))

    assert asyncio.run(main()) is True
