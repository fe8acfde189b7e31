"""The background thread of a sync client: one asyncio loop, and calls into it from any other thread.

Rule: an accepted call ends with its result or with the portal; none is accepted after `stop` began.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from pyclient.errors import ClientClosedError, IllegalStateError
from pyclient.runtime.loop_call import LoopCall

_log = logging.getLogger(__name__)
_here: Final = threading.local()
T = TypeVar("T")
CANCEL_S: Final = 1.0
"""Longest time for which a call that Ctrl-C ended waits until the loop has cancelled it."""


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether *loop* runs in this thread now: only other threads must wake it, with system calls."""
    return asyncio._get_running_loop() is loop


class Portal:
    """A daemon thread that runs an asyncio loop until `stop` or `stop_after`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._accepted: deque[LoopCall[Any]] = deque()  # and not begun. No lock: Ctrl-C or a signal handler could hold it
        self.ends = False
        """Whether `end` has begun: an earlier close may go on, although Ctrl-C ended the wait for it."""
        self._closed = False
        """By `end`."""
        self._stopping = False
        self._last: Callable[[], Coroutine[Any, Any, object]] | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._refuses = False
        """On the loop: what was accepted, but has not begun, does not begin any more."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        _here.portal = self
        while not self._run_loop():
            pass
        self.loop.close()
        self._begin_accepted()  # what came until then; a later caller finds the loop closed

    def _run_loop(self) -> bool:
        """Run the loop; False if a user's function raised KeyboardInterrupt or SystemExit.

        It must then run again, or waiting callers would hang.
        """
        try:
            self.loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            _log.exception("a user's function raised an exception that ends programs in the client's thread; the client continues")
            return False
        return True

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop and wait for its result. Ctrl-C cancels it.

        Raises:
            IllegalStateError: called on the loop's own thread, where it would deadlock.
            ClientClosedError: the portal has stopped, before or during the call.
        """
        self._check_thread()
        self._check_open()
        call = LoopCall(make, self.loop)
        try:
            self._accept(call)
            return call.result()
        except concurrent.futures.CancelledError:
            raise _closed() from None
        except BaseException:
            call.cancel()
            call.wait(CANCEL_S)  # otherwise it could begin, or change something, behind the back of the next call
            raise

    def submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> LoopCall[T]:
        """Start a coroutine on the loop without waiting for it."""
        self._check_open()
        call = LoopCall(make, self.loop)
        self._accept(call)
        return call

    def _accept(self, call: LoopCall[Any]) -> None:
        if self._stopping:  # a signal handler has stopped the portal meanwhile
            call.drop()
            raise _closed()
        self._accepted.append(call)
        try:
            self.loop.call_soon_threadsafe(self._begin_accepted)
        except RuntimeError:
            self._begin_accepted()  # the loop's thread may have ended before the call was there
            raise _closed() from None

    def _begin_accepted(self) -> None:
        """In their order. On the loop, or when that is closed: in any thread."""
        while self._accepted:
            try:
                call = self._accepted.popleft()
            except IndexError:
                return
            if self._refuses:
                call.drop()
            else:
                call.begin()

    def run(self, function: Callable[[], T]) -> T:
        """Run a plain function on the loop and wait for its result; raises as `call` does."""
        async def work() -> T:
            return function()

        return self.call(work)

    def end(self, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run *close*, then stop; after Ctrl-C the next call does what is left. *close* must be repeatable, too."""
        self.ends = True
        if not self._closed:
            with contextlib.suppress(ClientClosedError):  # another thread's end has stopped this portal meanwhile
                self.call(close)
        self._closed = True
        self.stop()

    def stop(self) -> None:
        """Cancel all tasks, stop the loop and join the thread."""
        self._check_thread()
        self._stop(None)
        self._thread.join()

    def stop_after(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run one more coroutine, then stop; does not wait."""
        self._stop(last)

    def join(self, timeout: float) -> bool:
        """Wait for the thread at most *timeout* seconds; whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _stop(self, last: Callable[[], Coroutine[Any, Any, object]] | None) -> None:
        """Repeatable: Ctrl-C may have ended an earlier one anywhere."""
        if not self._stopping:
            self._last = last
        self._stopping = True
        with contextlib.suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self._begin_to_finish)

    def _begin_to_finish(self) -> None:
        if self._finishing is None:
            self._finishing = self.loop.create_task(self._finish(self._last))

    async def _finish(self, last: Callable[[], Coroutine[Any, Any, object]] | None) -> None:
        """Every accepted call has its task already, or is refused: the loop runs callbacks in order."""
        if last is not None:
            try:
                await last()
            except Exception as error:  # noqa: BLE001 no caller is left to raise it to
                _log.warning("closing a client that was not closed: %s", error)
        self._begin_accepted()
        self._refuses = True
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.loop.call_soon(self.loop.stop)

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise IllegalStateError("a blocking call in the client's own thread would deadlock: call it from another thread")

    def _check_open(self) -> None:
        if self._stopping:
            raise _closed()


def _closed() -> ClientClosedError:
    return ClientClosedError("this client is closed: open a new one")


def in_portal() -> bool:
    """Whether the running thread is a portal's, whose loop only the client uses."""
    return hasattr(_here, "portal")
