"""Where delivery callbacks run: in one thread per sync producer, or on the loop of an async one.

Callbacks run in the order in which their batches ended. What they raise is logged and affects no other callback and no
delivery.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from pyclient.buffers.delivery import BatchResult, Observer
from pyclient.errors import IllegalStateError, KafkaError, raisable
from pyclient.held_lock import Held
from pyclient.records import TopicPartition
from pyclient.reactor.reactor import Reactor

_log = logging.getLogger(__name__)
LAST_CALLBACKS: Final = 1.0
"""Seconds that a close waits for callbacks at least, however short its own timeout is."""


def _run(work: Callable[[], object]) -> None:
    try:
        work()
    except BaseException:  # noqa: BLE001 SystemExit too: it would end this thread silently, and no other callback would run
        _log_raised()


def _log_raised() -> None:
    _log.exception("a delivery callback raised; the delivery itself is unaffected")


def _run_on_the_loop(work: Callable[[], object]) -> None:
    try:
        work()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 an error of the user's code must not reach the loop, CancelledError included
        _log_raised()


class LoopObserver(Observer):
    """Deliveries of an async producer: callbacks are plain functions on the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: KafkaError | None = None
        """Set in a forked child, where no pending record is ever settled."""
        self.on_failed: Callable[[TopicPartition, int, KafkaError], object] = _nothing
        """Called with the partition, the number of records and the error of each failure, before any waiter sees it.

        Records of a bulk that were refused before they were queued have no partition (-1)."""

    def failed(self, tp: TopicPartition, count: int, error: KafkaError) -> int:
        """As `Observer.failed`."""
        self.on_failed(tp, count, error)
        return super().failed(tp, count, error)

    def dispatch(self, work: Callable[[], object]) -> None:
        """Run it behind this step, as it is the user's. KeyboardInterrupt and SystemExit are raised on the loop."""
        loop = asyncio._get_running_loop()
        if loop is None:
            _run_on_the_loop(work)
        else:
            loop.call_soon(_run_on_the_loop, work)

    def waker(self, callback: Callable[[Any], object]) -> Callable[[Callable[[Any], object], object], object] | None:
        """As `Observer.waker`. `asyncio.wait` is not safe for threads, and its loop need not be the client's."""
        if getattr(callback, "__module__", None) != asyncio.wait.__module__:
            return None
        try:
            return asyncio.get_running_loop().call_soon_threadsafe
        except RuntimeError:
            return None

    async def awaiting(self, result: BatchResult) -> None:
        """Wait for the batch's end on the running loop, which need not be the client's."""
        if self.closed is not None:
            raise raisable(self.closed)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        def gate() -> None:
            if asyncio._get_running_loop() is loop:
                done()
            else:
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
        """Raise in a thread that runs a loop: a blocking wait there might never end."""
        if self.closed is not None:
            raise raisable(self.closed)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise IllegalStateError("result() would block the event loop: `await` the delivery instead")


class ThreadObserver(LoopObserver):
    """Deliveries of a sync producer: callbacks run in a thread of their own, started with the first one."""

    def __init__(self, name: str, reactor: Reactor) -> None:
        super().__init__()
        self._reactor = reactor
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._ended = False

    def wait(self, result: BatchResult, timeout: float | None) -> bool:
        """As `Observer.wait`; the thread leads the reactor meanwhile."""
        if self.closed is not None or self._thread is not None:
            self.check_wait()
        return self._reactor.run_until_done(result, timeout)

    def dispatch(self, work: Callable[[], object]) -> None:
        """Queue it for the callback thread. After the thread's end, run it in the caller's."""
        self._work.put(work)
        if self._ended:
            self._run_queued()
        elif self._thread is None:
            self._start()

    def on_callback_thread(self) -> bool:
        """Whether the caller is a delivery callback, which must not block."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def check_wait(self) -> None:
        """Raise in a callback: its wait would delay the callbacks that it may wait for."""
        if self.closed is not None:
            raise raisable(self.closed)
        if self.on_callback_thread():
            raise IllegalStateError("a delivery callback must not block: result(), flush() and close() cannot be called in it")

    def wait_for_callbacks(self, timeout: float | None) -> bool:
        """Wait until every callback that was dispatched before this call has run, at most *timeout* seconds.

        Returns whether they have.
        """
        if self._thread is None and self._work.empty():
            return True
        gate = threading.Lock()
        gate.acquire()
        self.dispatch(gate.release)  # callbacks run in the order of the queue
        return gate.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX))

    def close(self, timeout: float | None) -> None:
        """Run the queued callbacks, then end the thread; wait for that at most *timeout* seconds.

        Called in the thread itself it does not wait.
        """
        with Held(self._starting):
            thread = self._thread
            self._ended = self._ended or thread is None
        if thread is None:
            return
        self._work.put(None)
        if thread is not threading.current_thread():
            thread.join(None if timeout is None else max(timeout, LAST_CALLBACKS))
            if thread.is_alive():
                _log.warning("a delivery callback is still running after the close timeout; the producer is closed without waiting for it")

    def _start(self) -> None:
        with Held(self._starting):
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._run_callbacks, name=self._name, daemon=True)
                self._run_thread(self._thread)
        if self._ended:
            self._run_queued()

    def _run_thread(self, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down and starts no threads: the thread that has work runs it
            self._ended = True

    def _run_callbacks(self) -> None:
        while (work := self._work.get()) is not None:
            _run(work)
        self._ended = True
        self._run_queued()  # callbacks queued after the end; later ones run in the thread that dispatches them

    def _run_queued(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                _run(self._work.get_nowait() or _nothing)


def _nothing(*_: object) -> None:
    """No work; the default of `on_failed`."""
