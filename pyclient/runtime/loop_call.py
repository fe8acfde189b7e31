"""A coroutine that another thread runs on a loop, and waits for without a lock that Ctrl-C could leave held.

``concurrent.futures.Future`` has a condition, whose lock stays held if a signal's handler raises in the thread that
just took it; the loop would then wait for it for ever. Here one thread waits, for a gate that the loop opens once.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class LoopCall(Generic[T]):
    """One call. Its maker's thread may wait for it; the loop begins and ends it.

    The loop calls *make*: between a coroutine and its task, Ctrl-C would leave one that nothing awaits.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop) -> None:
        self._make = make
        self._loop = loop
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False
        self._ended = False
        self._gate = threading.Lock()
        self._gate.acquire()

    # ---- on the loop ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Run the coroutine, unless the call was cancelled."""
        if self._cancelled:
            self.drop()
            return
        self._task = self._loop.create_task(self._run(), context=self._context)
        self._task.add_done_callback(self._end)

    async def _run(self) -> T:
        return await self._make()

    def drop(self) -> None:
        """End as cancelled, unless it has begun. Any thread may call it for an ended loop."""
        if self._task is None and not self._ended:
            self._cancelled = True
            self._open_gate()

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # so that asyncio reports none that a thread will not look at
        self._open_gate()

    def _open_gate(self) -> None:
        self._ended = True
        self._gate.release()

    def _cancel_task(self) -> None:
        if self._task is None:
            self.drop()
        else:
            self._task.cancel()

    # ---- in another thread ------------------------------------------------------------------------------------------

    def result(self) -> T:
        """Wait for the result, or raise what the coroutine raised.

        Raises:
            concurrent.futures.CancelledError: it was cancelled.
        """
        if not self._ended:
            self._gate.acquire()
        if self.cancelled() or self._task is None:
            raise concurrent.futures.CancelledError
        try:
            return self._task.result()
        finally:
            del self  # an exception's traceback refers to this frame: a reference cycle otherwise

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, at most so long."""
        if not self._ended:
            self._gate.acquire(timeout=seconds)

    def cancel(self) -> None:
        """Ask the loop to cancel it."""
        self._cancelled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the call
            self._loop.call_soon_threadsafe(self._cancel_task)

    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended

    def cancelled(self) -> bool:
        """Whether it ended as cancelled."""
        return self._ended and (self._task is None or self._task.cancelled())

    def exception(self) -> BaseException | None:
        """What it raised; call it only when it is `done` and was not `cancelled`."""
        return None if self._task is None else self._task.exception()
