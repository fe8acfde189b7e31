"""Where users' delivery callbacks run: one thread per sync producer, or the loop of an async one.

Callbacks run in the order their batches ended; what they raise is logged and harms nobody.
"""
from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable

from pyclient.buffers.delivery import BatchResult, Observer
from pyclient.errors import IllegalState, KafkaError

_log = logging.getLogger(__name__)


def _run(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:  # noqa: BLE001 a user's error must not stop the thread
        _log.exception("a delivery callback raised; the record's outcome stands")


class LoopObserver(Observer):
    """Deliveries of an async producer: callbacks are plain functions on the loop."""

    def dispatch(self, work: Callable[[], object]) -> None:
        """Run it now: outcomes are told on the loop."""
        _run(work)

    async def awaiting(self, result: BatchResult) -> None:
        """Wait on whatever loop the caller runs."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        result.when_done(lambda: loop.call_soon_threadsafe(done))
        await future

    def check_wait(self) -> None:
        """A blocking wait on the loop would never end."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise IllegalState("result() would block the event loop: `await` the delivery instead")


class ThreadObserver(LoopObserver):
    """Deliveries of a sync producer: callbacks run on a thread of their own, started with the first."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.closed: KafkaError | None = None

    def dispatch(self, work: Callable[[], object]) -> None:
        """Queue it for the callback thread."""
        self._work.put(work)
        if self._thread is None:
            self._start()

    def on_callback_thread(self) -> bool:
        """Whether the caller is a callback, which must not block."""
        return threading.current_thread() is self._thread

    def check_wait(self) -> None:
        """A callback that waits would hold back the ones it waits for."""
        if self.closed is not None:
            raise self.closed
        if self.on_callback_thread():
            raise IllegalState("a delivery callback must not block: result(), flush() and close() cannot be called in it")

    def close(self) -> None:
        """Run what is queued, then end the thread (the thread itself may call this: then it ends after its work)."""
        thread = self._thread
        if thread is None:
            return
        self._work.put(None)
        if thread is not threading.current_thread():
            thread.join()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                self._thread.start()

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            _run(work)
