"""Happy eyeballs (RFC 8305): attempts start one after the other and run in parallel; the first success wins."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from pyclient.errors import KafkaError
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import CancelledError, Task, first_done

T = TypeVar("T")
FAILURES: Final = (KafkaError, OSError)
"""After these the other attempts continue. Any other exception is a defect and ends the race."""


async def race(reactor: Reactor, attempts: Sequence[Callable[[], Task[T]]], *, stagger: float, discard: Callable[[T], None]) -> T:
    """The result of the first attempt that succeeds.

    The next one starts when one has failed, or after *stagger* seconds. When one has succeeded, the others are
    cancelled; if one of them succeeds nevertheless, *discard* gets its result. Raises the last failure.
    """
    waiting = list(attempts)
    running: list[Task[T]] = []
    try:
        while True:
            if waiting:
                running.append(waiting.pop(0)())
            await first_done(reactor, running, stagger if waiting else None)
            for task in [task for task in running if task.done()]:  # in the order of their start
                running.remove(task)
                failure = _failure(task)
                if failure is None:
                    return task.result()
                if not waiting and not running:
                    raise failure
    finally:
        for task in running:
            _cancel(task, discard)


def _failure(task: Task[Any]) -> BaseException | None:
    if task.cancelled():
        raise CancelledError
    error = task.exception()
    if error is not None and not isinstance(error, FAILURES):
        raise error
    return error


def _cancel(task: Task[T], discard: Callable[[T], None]) -> None:
    def ended(task: Task[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            discard(task.result())

    if task.done():
        ended(task)
    else:
        task.cancel()
        task.add_done_callback(ended)
