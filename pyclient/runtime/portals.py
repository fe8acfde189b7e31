"""How users' threads and tasks call into a client's reactor: one portal for sync clients, one for async clients.

Rule: an accepted call ends with its result or with the portal; none is accepted after `ThreadPortal.stop` began.
"""
from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from pyclient.errors import ClientClosedError, IllegalStateError, WrongEventLoopError
from pyclient.reactor.reactor import Reactor, Waiter
from pyclient.reactor.tasks import CancelledError, Future, Task, all_done

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger(__name__)
T = TypeVar("T")
CANCEL_S: Final = 1.0
"""Longest time for which a call that Ctrl-C ended waits until it is cancelled."""


class Call(Generic[T]):
    """A coroutine that a user's thread or task runs as a task of a reactor. *on_end* is called once, in a step."""

    def __init__(self, reactor: Reactor, make: Callable[[], Coroutine[Any, Any, T]], on_end: Callable[[], object]) -> None:
        self._reactor = reactor
        self._make = make
        self._on_end = on_end
        self._context = contextvars.copy_context()
        self._task: Task[T] | None = None
        self._cancelled = self._ended = False

    # ---- in a step --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Run the coroutine, unless the call was cancelled."""
        if self._cancelled:
            self.drop()
        elif not self._ended:
            self._task = Task(self._reactor, _awaited(self._make), context=self._context)
            self._task.add_done_callback(self._end)

    def drop(self) -> None:
        """End as cancelled, unless it has begun."""
        if self._task is None:
            self._end()

    def _end(self, _: object = None) -> None:
        if not self._ended:
            self._ended = True
            self._on_end()

    @property
    def task(self) -> Task[T] | None:
        """What it runs in, once it has begun."""
        return self._task

    # ---- for its maker ----------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel it in a step."""
        self._cancelled = True
        self._reactor.call_soon(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is None:
            self._end()
        else:
            self._task.cancel()

    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended

    def cancelled(self) -> bool:
        """Whether it ended without result and without error."""
        return self._ended and (self._task is None or self._task.cancelled())

    def exception(self) -> BaseException | None:
        """What it raised, once it has ended."""
        return None if self._task is None else self._task.exception()

    def result(self) -> T:
        """The result, once it has ended, or raises what the coroutine raised; CancelledError if it was cancelled."""
        if self._task is None:
            raise CancelledError
        try:
            return self._task.result()
        finally:
            del self  # an exception's traceback refers to this frame: a reference cycle otherwise


class Portal(Protocol):
    """What a client's core knows of its user's side."""

    reactor: Reactor

    def start(self) -> None:
        """The client is opened, here."""

    def check_here(self) -> None:
        """Raise WrongEventLoopError when this client may not be used here."""

    def run(self, function: Callable[[], T]) -> T:
        """Call *function*, which does not wait, in a step; its result."""

    def submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Call[T]:
        """Start a coroutine as a task of the reactor, without waiting for it."""

    @property
    def awaits(self) -> Callable[[Awaitable[T]], Coroutine[Any, Any, T]] | None:
        """Awaits a user's awaitable on the user's loop, for a task of the reactor; None: there is no such loop."""


class ThreadPortal:
    """A reactor with a daemon thread that leads it when no caller does, until `stop` or `stop_after`."""

    awaits = None

    def __init__(self, name: str, reactor: Reactor) -> None:
        self.reactor = reactor
        self._name = name
        self._calls: dict[Call[Any], None] = {}
        self.ends = False
        """Whether `end` has begun: an earlier close may go on, although Ctrl-C ended the wait for it."""
        self._closed = False
        """By `end`."""
        self._stopping = False
        self._last: Callable[[], Coroutine[Any, Any, object]] | None = None
        self._finishing: Task[None] | None = None
        self._refuses = False
        """In steps: what was accepted, but has not begun, does not begin any more."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def check_here(self) -> None:
        """Any thread may use it."""

    def _run(self) -> None:
        while not self._lead():
            pass
        self.reactor.poller.close()

    def _lead(self) -> bool:
        """Lead until the end; False if a user's function raised KeyboardInterrupt or SystemExit."""
        try:
            self.reactor.run_forever()
        except (KeyboardInterrupt, SystemExit):
            _log.exception("a user's function raised an exception that ends programs in the client's thread; the client continues")
            return False
        return True

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine as a task of the reactor and wait for its result. Ctrl-C cancels it.

        Raises:
            IllegalStateError: called in a step, where it would deadlock.
            ClientClosedError: the portal has stopped, before or during the call.
        """
        self._check_thread()
        self._check_open()
        waiter = Waiter(self.reactor)
        call = Call(self.reactor, make, waiter.end)
        try:
            self._accept(call)
            self.reactor.run_until(waiter)
            return call.result()
        except CancelledError:
            raise _closed() from None
        except BaseException:
            if not call.done():
                call.cancel()
                self.reactor.run_until(waiter, CANCEL_S)  # otherwise it could change something behind the back of the next call
            raise
        finally:
            del call  # an exception's traceback refers to this frame: a reference cycle otherwise

    def submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Call[T]:
        """As `Portal.submit`."""
        self._check_open()
        call = Call(self.reactor, make, _nothing)
        self._accept(call)
        return call

    def _accept(self, call: Call[Any]) -> None:
        self.reactor.call_soon(lambda: self._begin(call))

    def _begin(self, call: Call[Any]) -> None:
        if self._refuses:
            call.drop()
            return
        call.begin()
        self._calls[call] = None
        if call.task is not None:
            call.task.add_done_callback(lambda _: self._calls.pop(call, None))

    def run(self, function: Callable[[], T]) -> T:
        """As `Portal.run`; raises as `call` does."""
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
        """Cancel all calls, end the thread and join it."""
        self._check_thread()
        self._stop(None)
        self._thread.join()

    def stop_after(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run one more coroutine, then stop; does not wait. For finalizers."""
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
        self.reactor.post(self._begin_to_finish)

    def _begin_to_finish(self) -> None:
        if self._finishing is None:
            self._finishing = Task(self.reactor, self._finish(self._last), name=f"{self._name} stops")

    async def _finish(self, last: Callable[[], Coroutine[Any, Any, object]] | None) -> None:
        """Every accepted call has begun, or is refused: the reactor runs callbacks in order."""
        if last is not None:
            try:
                await last()
            except Exception as error:  # noqa: BLE001 no caller is left to raise it to
                _log.warning("closing a client that was not closed: %s", error)
        self._refuses = True
        tasks = [call.task for call in self._calls if call.task is not None]
        for task in tasks:
            task.cancel()
        await all_done(self.reactor, tasks)
        self.reactor.close()

    def _check_thread(self) -> None:
        if self.reactor.leads or threading.current_thread() is self._thread:
            raise IllegalStateError("a blocking call in the client's own thread would deadlock: call it from another thread")

    def _check_open(self) -> None:
        if self._stopping:
            raise _closed()


class LoopPortal:
    """A reactor that the user's asyncio loop leads."""

    def __init__(self, role: str, reactor: Reactor) -> None:
        """*role* names the client in errors."""
        self.reactor = reactor
        self._role = role
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Bind it to the running loop."""
        import asyncio

        from pyclient.reactor.loop_poller import LoopPoller

        self.loop = asyncio.get_running_loop()
        assert isinstance(self.reactor.poller, LoopPoller)
        self.reactor.poller.bind(self.loop, self.reactor)

    def check_here(self) -> None:
        """As `Portal.check_here`."""
        import asyncio

        running = asyncio._get_running_loop()  # None in a forked child, where the client refuses every call
        if self.loop is not None and running is not None and running is not self.loop:
            raise WrongEventLoopError(f"this {self._role} belongs to another event loop, the one it was entered on: use it there")

    async def open(self, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Bind it, unless it is bound, and run *start*."""
        if self.loop is None:
            self.start()
        await self.call(start)

    async def close(self, close: Callable[[], Coroutine[Any, Any, None]], *, closed: bool) -> None:
        """Run *close*, which does what an earlier one has left, if the client is *closed* already."""
        import asyncio

        if self.loop is None:
            self.start()
        if closed and asyncio._get_running_loop() is not self.loop:
            return
        ended = False

        async def last() -> None:
            nonlocal ended
            ended = True
            try:
                await close()
            except CancelledError:
                ended = False  # the next close goes on from here
                raise

        try:
            await self.call(last)
        finally:
            if ended:
                self.reactor.poller.close()
                self.reactor.close()

    async def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine as a task of the reactor, and await its result; a cancellation goes on to it.

        Of a call that has ended meanwhile a cancellation takes the result, as where asyncio awaits a task.
        """
        import asyncio

        if self.loop is None:
            raise IllegalStateError(f"this {self._role} is not open yet: use it inside `async with`, or `await` its start()")
        self.check_here()
        ended: asyncio.Future[None] | None = None

        def on_end() -> None:
            if ended is not None and not ended.done():
                ended.set_result(None)

        call = Call(self.reactor, make, on_end)
        cancelled = None
        self.reactor.call_soon(call.begin)
        while not call.done():
            ended = self.loop.create_future()
            try:
                await ended
            except asyncio.CancelledError as error:
                if call.done():
                    raise
                cancelled = error
                call.cancel()
        try:
            return call.result()
        except CancelledError:
            raise (cancelled or asyncio.CancelledError()) from None
        finally:
            del call, cancelled

    def run(self, function: Callable[[], T]) -> T:
        """As `Portal.run`; raises RecursionError where the stack has no room for a step."""
        if self.reactor.leads:
            return function()
        found: list[Any] = []
        refused = False

        def step() -> None:
            if not refused:
                found.append(_outcome(function))

        self.reactor.call_soon(step)
        refused = not found
        if refused:
            raise RecursionError("an async client was called where calls are nested too deep for a step of it")
        result, error = found[0]
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Call[T]:
        """As `Portal.submit`."""
        call = Call(self.reactor, make, _nothing)
        self.reactor.call_soon(call.begin)
        return call

    def stop_after(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run one more coroutine, if the loop still runs. For finalizers."""
        if self.loop is not None and self.loop.is_running():
            self.reactor.post(lambda: Task(self.reactor, last(), name="pyclient ends an unclosed client"))

    async def awaits(self, awaitable: Awaitable[T]) -> T:
        """As `Portal.awaits`. The user's code runs in a task of the loop, behind the step."""
        done: Future[T] = Future(self.reactor)
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            assert self.loop is not None
            if not done.done():
                tasks.append(self.loop.create_task(_as_coroutine(awaitable)))
                tasks[0].add_done_callback(lambda task: self.reactor.call_soon(lambda: _settle(done, task)))

        assert self.loop is not None
        self.loop.call_soon(start)
        try:
            return await done
        finally:
            for task in tasks:
                self.loop.call_soon(task.cancel)


async def _awaited(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await make()


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _settle(done: Future[T], task: asyncio.Task[T]) -> None:
    if done.done():
        return
    if task.cancelled():
        done.set_exception(CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


def _outcome(function: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:  # noqa: BLE001 raised to the caller
        return None, error


def _closed() -> ClientClosedError:
    return ClientClosedError("this client is closed: open a new one")


def _nothing() -> None:
    """Who submits a call looks at it later."""
