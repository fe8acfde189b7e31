"""Where users' delivery callbacks run: one thread per sync producer, or the loop of an async one.

Callbacks run in the order their batches ended; what they raise is logged and harms nobody.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

from pyclient.buffers.delivery import BatchResult, Observer
from pyclient.errors import IllegalStateError, KafkaError, raisable
from pyclient.records import TopicPartition

_log = logging.getLogger(__name__)
LAST_CALLBACKS: Final = 1.0
"""Seconds that callbacks may take at least when a producer is closed with less."""


def _run(work: Callable[[], object]) -> None:
    try:
        work()
    except BaseException:  # noqa: BLE001 also sys.exit(): it would end this thread in silence, and no other callback would run
        _log_raised()


def _log_raised() -> None:
    _log.exception("a delivery callback raised; the record's outcome stands")


def _raise_on_the_loop(stop: BaseException) -> None:
    """Let the loop end by it, but not here: the answer that is being handled concerns others too."""
    def leave() -> None:
        raise stop

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise stop from None
    loop.call_soon(leave)


class LoopObserver(Observer):
    """Deliveries of an async producer: callbacks are plain functions on the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: KafkaError | None = None
        """Set in a forked child: nothing that is pending will ever be settled there."""
        self.on_failed: Callable[[TopicPartition, int], object] = _nothing
        """Is told of every failure, partition and number of records, before anybody can see it."""

    def failed(self, where: TopicPartition, count: int, error: KafkaError) -> int:
        """As `Observer.failed`."""
        self.on_failed(where, count)
        return super().failed(where, count, error)

    def dispatch(self, work: Callable[[], object]) -> None:
        """Run it now: outcomes are told on the loop. Only what ends programs is raised."""
        try:
            work()
        except (KeyboardInterrupt, SystemExit) as stop:
            _raise_on_the_loop(stop)
        except BaseException:  # noqa: BLE001 a user's error must not reach the client, not even a CancelledError
            _log_raised()

    async def awaiting(self, result: BatchResult) -> None:
        """Wait on whatever loop the caller runs."""
        if self.closed is not None:
            raise raisable(self.closed)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        def gate() -> None:
            loop.call_soon_threadsafe(done)

        result.when_done(gate)
        try:
            await future
        finally:
            result.forget(gate)

    def on_callback_thread(self) -> bool:
        """Whether the caller is a callback that must not block; the loop's callbacks cannot."""
        return False

    def check_wait(self) -> None:
        """A blocking wait on the loop would never end."""
        if self.closed is not None:
            raise raisable(self.closed)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise IllegalStateError("result() would block the event loop: `await` the delivery instead")


class ThreadObserver(LoopObserver):
    """Deliveries of a sync producer: callbacks run on a thread of their own, started with the first."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._ended = False

    def dispatch(self, work: Callable[[], object]) -> None:
        """Queue it for the callback thread; after the end, run it now: outcomes are final then."""
        self._work.put(work)
        if self._ended:
            self._run_queued()
        elif self._thread is None:
            self._start()

    def on_callback_thread(self) -> bool:
        """Whether the caller is a callback, which must not block."""
        return threading.current_thread() is self._thread

    def check_wait(self) -> None:
        """A callback that waits would hold back the ones it waits for."""
        if self.closed is not None:
            raise raisable(self.closed)
        if self.on_callback_thread():
            raise IllegalStateError("a delivery callback must not block: result(), flush() and close() cannot be called in it")

    def close(self, timeout: float | None) -> None:
        """Run what is queued, then end the thread. Waits for it at most *timeout* seconds, and not when it calls this itself."""
        with self._starting:
            thread = self._thread
            self._ended = self._ended or thread is None
        if thread is None:
            return
        self._work.put(None)
        if thread is not threading.current_thread():
            thread.join(None if timeout is None else max(timeout, LAST_CALLBACKS))
            if thread.is_alive():
                _log.warning("a delivery callback is still running; it is not waited for any longer")

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                self._run_thread(self._thread)
        if self._ended:
            self._run_queued()

    def _run_thread(self, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending and starts no threads any more: whoever has work runs it
            self._ended = True

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            _run(work)
        self._ended = True
        self._run_queued()  # what came in behind the end; what comes from now on is run by whoever brings it

    def _run_queued(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                _run(self._work.get_nowait() or _nothing)


def _nothing(*_: object) -> None:
    """Stands for no work, and for nobody who listens."""
