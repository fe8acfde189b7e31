"""Several ways to the same end, begun one after the other: the first that leads there is taken (RFC 8305's idea)."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from pyclient.errors import KafkaError

T = TypeVar("T")
FAILURES: Final = (KafkaError, OSError)
"""What lets the others go on. Anything else is a defect, and ends the race."""


async def race(attempts: Sequence[Callable[[], asyncio.Task[T]]], *, stagger: float, lose: Callable[[T], None]) -> T:
    """The result of the first attempt that succeeds. The next begins when one has failed, or after *stagger* seconds.

    The others are cancelled (they end soon after); what one of them reached all the same is given to *lose*. Raises the
    last failure.
    """
    waiting = list(attempts)
    running: list[asyncio.Task[T]] = []
    try:
        while True:
            if waiting:
                running.append(waiting.pop(0)())
            done, _ = await asyncio.wait(running, timeout=stagger if waiting else None, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in running if task in done]:  # in the order of their begin
                running.remove(task)
                failure = _failure(task)
                if failure is None:
                    return task.result()
                if not waiting and not running:
                    raise failure
    finally:
        for task in running:
            _end(task, lose)


def _failure(task: asyncio.Task[Any]) -> BaseException | None:
    error = task.exception()
    if error is not None and not isinstance(error, FAILURES):
        raise error
    return error


def _end(task: asyncio.Task[T], lose: Callable[[T], None]) -> None:
    def ended(task: asyncio.Task[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            lose(task.result())

    if task.done():
        ended(task)
    else:
        task.cancel()
        task.add_done_callback(ended)
