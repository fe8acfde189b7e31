"""One driver for sync clients and one for async clients, for work that is written once as a generator.

A generator of steps yields what must be done or waited for (a step). The driver performs the step and sends its result
back, or throws what it raised. The generator holds the logic and knows neither threads nor ``await``; only *perform*
knows how this client waits.

    def commit_before_leaving(self) -> Steps[Step, None]:
        yield WaitFor(lambda: self._core.commit(offsets))
        yield InStep(self._core.leave)

    run_steps(self.commit_before_leaving(), lambda step: step.run(self._portal))      # Consumer
    await await_steps(self.commit_before_leaving(), lambda step: step.run_async(self._portal))    # AsyncConsumer

Rule: whatever is raised while the generator is alive is thrown into it, by *perform* or by Ctrl-C in the driver itself.
The generator decides what must still be done, and its ``finally`` blocks may yield steps. To close it instead would
raise GeneratorExit at its current step, and it could not yield any more.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import attrs

from pyclient.runtime.portals import LoopPortal, ThreadPortal

S = TypeVar("S")
T = TypeVar("T")
Steps: TypeAlias = Generator[S, Any, T]
"""Yields steps of type S, is sent the result of each, and returns a T."""


class Step(Protocol):
    """A step that both kinds of client can perform."""

    def run(self, portal: ThreadPortal) -> Any:
        """Perform it for a sync client, in the thread of the caller."""

    async def run_async(self, portal: LoopPortal) -> Any:
        """Perform it for an async client, in the caller's task."""


@attrs.frozen
class InStep(Generic[T]):
    """Call *function*, which does not wait, in a step of the client's reactor."""

    function: Callable[[], T]

    def run(self, portal: ThreadPortal) -> T:
        """As `Step.run`."""
        return portal.run(self.function)

    async def run_async(self, portal: LoopPortal) -> T:
        """As `Step.run_async`."""
        return portal.run(self.function)


@attrs.frozen
class WaitFor(Generic[T]):
    """Await the coroutine that *make* returns, as a task of the client's reactor."""

    make: Callable[[], Coroutine[Any, Any, T]]

    def run(self, portal: ThreadPortal) -> T:
        """As `Step.run`."""
        return portal.call(self.make)

    async def run_async(self, portal: LoopPortal) -> T:
        """As `Step.run_async`."""
        return await portal.call(self.make)


def run_steps(steps: Steps[S, T], perform: Callable[[S], Any], error: BaseException | None = None) -> T:
    """Perform the steps in the calling thread; returns what the generator returns.

    If *error* is given, it is thrown into the generator first.
    """
    try:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
                answer, error = perform(step), None
            except BaseException as raised:
                if not _has_ended(steps):
                    error = raised
                elif isinstance(raised, StopIteration):
                    result: T = raised.value
                    return result
                else:
                    raise
    except BaseException as raised:
        if _has_ended(steps):
            raise
        return run_steps(steps, perform, raised)  # Ctrl-C outside the inner try, as the loop begins again
    finally:
        error = None  # its traceback refers to this frame: a reference cycle otherwise
        steps.close()


async def await_steps(steps: Steps[S, T], perform: Callable[[S], Awaitable[Any]], error: BaseException | None = None) -> T:
    """Perform the steps in the calling task; as `run_steps`."""
    try:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
                answer, error = await perform(step), None
            except BaseException as raised:
                if not _has_ended(steps):
                    error = raised
                elif isinstance(raised, StopIteration):
                    result: T = raised.value
                    return result
                else:
                    raise
    except BaseException as raised:
        if _has_ended(steps):
            raise
        return await await_steps(steps, perform, raised)  # as in run_steps
    finally:
        error = None  # as in run_steps
        steps.close()


def _has_ended(steps: Steps[S, T]) -> bool:
    return steps.gi_frame is None  # type: ignore[attr-defined]
