"""The background thread of a sync client: one asyncio loop, and calls into it from any other thread.

Rule: a call that was let in ends, by its result or by the end of the portal; none is let in after `stop` began.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from pyclient.errors import ClientClosedError, IllegalStateError

_log = logging.getLogger(__name__)
_here: Final = threading.local()
T = TypeVar("T")


class Portal:
    """A daemon thread that runs a loop until `stop` or `end_after`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._gate = threading.RLock()  # between letting calls in and the end; the handler of a signal may call while its thread does
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        _here.portal = self
        while not self._ran():
            pass
        self.loop.close()

    def _ran(self) -> bool:
        """Run the loop; False when a user's function ended it that wanted to end the program: whoever waits for it must not wait forever."""
        try:
            self.loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            _log.exception("a function that a client called raised what ends programs; the client goes on")
            return False
        return True

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop and wait for its result. Ctrl-C cancels it.

        Raises:
            IllegalStateError: called on the loop's own thread, where waiting would never end.
            ClientClosedError: the portal has ended, or ended meanwhile.
        """
        self._check_thread()
        future = self.submit(make)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise _closed() from None
        except BaseException:
            future.cancel()
            raise

    def submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop without waiting for it."""
        with self._gate:
            self._check_open()
            work = make()
            try:
                return asyncio.run_coroutine_threadsafe(work, self.loop)
            except RuntimeError:  # such a handler has ended the portal meanwhile
                work.close()
                raise _closed() from None

    def run(self, function: Callable[[], T]) -> T:
        """Run a plain function on the loop and wait for its result; raises as `call` does."""
        async def work() -> T:
            return function()

        return self.call(work)

    def stop(self) -> None:
        """End the loop and the thread; what still runs there is cancelled, and nothing is left."""
        self._check_thread()
        self._end(None)
        self._thread.join()

    def end_after(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run one more coroutine, then end as `stop` does; nobody waits for it."""
        self._end(last)

    def join(self, timeout: float) -> bool:
        """Wait for the end, at most *timeout* seconds; whether it came."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _end(self, last: Callable[[], Coroutine[Any, Any, object]] | None) -> None:
        with self._gate:
            if not self._ending:
                self._ending = True
                asyncio.run_coroutine_threadsafe(self._wind_up(last), self.loop)

    async def _wind_up(self, last: Callable[[], Coroutine[Any, Any, object]] | None) -> None:
        """Every call let in has its task by now: the loop runs what it is handed in order."""
        if last is not None:
            try:
                await last()
            except Exception as error:  # noqa: BLE001 nobody is left to raise it to
                _log.warning("ending an unclosed client: %s", error)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.loop.call_soon(self.loop.stop)

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise IllegalStateError("a blocking call inside the client's own thread would wait for itself: use another thread")

    def _check_open(self) -> None:
        if self._ending:
            raise _closed()


def _closed() -> ClientClosedError:
    return ClientClosedError("this client is closed: open a new one")


def in_portal() -> bool:
    """Whether the running thread is a portal's: nobody but the client waits for its loop."""
    return hasattr(_here, "portal")
