"""The background thread of a sync client: one asyncio loop, and calls into it from any other thread."""
from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pyclient.errors import IllegalState

T = TypeVar("T")


class Portal:
    """A daemon thread that runs a loop until `stop`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop and wait for its result. Ctrl-C cancels it.

        Raises:
            IllegalState: called on the loop's own thread, where waiting would never end.
        """
        if threading.current_thread() is self._thread:
            raise IllegalState("a blocking call inside the client's own thread would wait for itself: use another thread")
        future = asyncio.run_coroutine_threadsafe(make(), self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def run(self, function: Callable[[], T]) -> T:
        """Run a plain function on the loop and wait for its result."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            try:
                done.set_result(function())
            except BaseException as error:  # noqa: BLE001 it belongs to the caller
                done.set_exception(error)

        self.loop.call_soon_threadsafe(work)
        return done.result()

    def stop(self) -> None:
        """End the loop and the thread; nothing of them is left."""
        self.call(self.loop.shutdown_default_executor)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
