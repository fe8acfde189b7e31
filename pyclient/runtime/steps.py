"""One driver for sync clients and one for async clients, for work that is written once as a generator.

A generator of steps yields what must be done or waited for (a step). The driver performs the step and sends its result back, or throws what
it raised. The generator holds the logic and knows neither threads nor ``await``; only *perform* knows how this client waits.

    def commit_before_leaving(self) -> Steps[Step, None]:
        yield WaitFor(lambda: self._core.commit(offsets))
        yield OnLoop(self._core.leave)

    run_steps(self.commit_before_leaving(), lambda step: step.run(self._portal))      # Consumer
    await await_steps(self.commit_before_leaving(), lambda step: step.run_async())    # AsyncConsumer

Rule: everything that *perform* raises is thrown into the generator, Ctrl-C and cancellation too. The generator is always closed in the end,
so its ``finally`` blocks run whatever interrupts the driver.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import attrs

from pyclient.runtime.loop_thread import Portal

S = TypeVar("S")
T = TypeVar("T")
Steps: TypeAlias = Generator[S, Any, T]
"""Yields steps of type S, is sent the result of each, and returns a T."""


class Step(Protocol):
    """A step that both kinds of client can perform."""

    def run(self, portal: Portal) -> Any:
        """Perform it for a sync client, in the thread of the caller."""

    async def run_async(self) -> Any:
        """Perform it for an async client, on its loop."""


@attrs.frozen
class OnLoop(Generic[T]):
    """Call *function*, which does not wait, on the client's loop."""

    function: Callable[[], T]

    def run(self, portal: Portal) -> T:
        """As `Step.run`."""
        return portal.run(self.function)

    async def run_async(self) -> T:
        """As `Step.run_async`."""
        return self.function()


@attrs.frozen
class WaitFor(Generic[T]):
    """Await the coroutine that *make* returns, on the client's loop."""

    make: Callable[[], Coroutine[Any, Any, T]]

    def run(self, portal: Portal) -> T:
        """As `Step.run`."""
        return portal.call(self.make)

    async def run_async(self) -> T:
        """As `Step.run_async`."""
        return await self.make()


def run_steps(steps: Steps[S, T], perform: Callable[[S], Any]) -> T:
    """Perform the steps in the calling thread; returns what the generator returns."""
    answer: Any = None
    error: BaseException | None = None
    try:
        while True:
            step = steps.send(answer) if error is None else steps.throw(error)
            try:
                answer, error = perform(step), None
            except BaseException as raised:  # noqa: BLE001 only the generator knows what must still be done
                error = raised
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        error = None  # its traceback refers to this frame: a reference cycle otherwise
        steps.close()


async def await_steps(steps: Steps[S, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """Perform the steps in the calling task; returns what the generator returns."""
    answer: Any = None
    error: BaseException | None = None
    try:
        while True:
            step = steps.send(answer) if error is None else steps.throw(error)
            try:
                answer, error = await perform(step), None
            except BaseException as raised:  # noqa: BLE001 as in run_steps
                error = raised
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        error = None  # as in run_steps
        steps.close()
