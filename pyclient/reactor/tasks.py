# cython: language_level=3, freethreading_compatible=True
"""Futures and tasks of a reactor: coroutines that run in its steps, without asyncio.

Names and rules are asyncio's: a task is cancelled by an exception in what it awaits, and counts the requests to do so.
Rule: callbacks of a future run in the reactor's next pass, never inside the call that ends it. Everything here is
called in a step. Compiled, so that no exception from outside can leave a task without its next step.
"""
import cython

import contextvars
import functools


class CancelledError(BaseException):
    """What a cancelled task raises where it waits."""


@cython.cclass
class Future:
    """A result that comes later, or an exception. Ends once. The fields are declared in tasks.pxd."""

    def __init__(self, reactor):
        self.reactor = reactor
        self._callbacks = None

    def done(self):
        """Whether it has ended, in any way."""
        return self._done

    def cancelled(self):
        """Whether it ended by `cancel`."""
        return self._cancelled

    def result(self):
        """The result, or raises how it ended otherwise."""
        if self._cancelled:
            raise CancelledError
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self):
        """What it raises, if it ended by an exception."""
        return self._error

    def set_result(self, result):
        """End it; it must not have ended."""
        self._end(result, None, False)

    def set_exception(self, error):
        """End it by an exception; it must not have ended."""
        self._end(None, error, False)

    def cancel(self):
        """End it as cancelled; False if it had ended."""
        if self._done:
            return False
        self._end(None, None, True)
        return True

    @cython.cfunc
    def _end(self, result, error, cancelled: cython.bint) -> object:
        if self._done:
            raise RuntimeError(f"{self!r} has ended already")
        self._result, self._error, self._cancelled = result, error, cancelled
        self._done = True
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                self.reactor.call_soon(functools.partial(callback, self))

    def add_done_callback(self, callback):
        """Call *callback* with this future in the pass after its end."""
        if self._done:
            self.reactor.call_soon(functools.partial(callback, self))
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def remove_done_callback(self, callback):
        """Forget it, if it waits."""
        if self._callbacks is not None:
            self._callbacks = [each for each in self._callbacks if each != callback]

    def __await__(self):
        if not self._done:
            yield self
        return self.result()


@cython.final
@cython.cclass
class Task(Future):
    """Runs a coroutine: step by step, each from what it awaits to what it awaits next. It begins in the next pass.

    The fields are declared in tasks.pxd.
    """

    def __init__(self, reactor, coro, *, name="", context=None):
        Future.__init__(self, reactor)
        self.name = name
        self._coro = coro
        self._context = contextvars.copy_context() if context is None else context
        reactor.tasks += 1
        reactor.call_soon(self.wake)

    def __repr__(self):
        state = "cancelled" if self._cancelled else "done" if self._done else "waits" if self._awaited is not None else "ready"
        return f"<Task {self.name or self._coro!r}: {state}>"

    def cancelling(self):
        """How many requests to cancel it stand."""
        return self._cancel_requests

    def uncancel(self):
        """Take one request back; how many stand."""
        if self._cancel_requests:
            self._cancel_requests -= 1
        if not self._cancel_requests:
            self._must_cancel = False
        return self._cancel_requests

    def cancel(self):
        """Raise CancelledError where the coroutine waits; False if it has ended."""
        if self._done:
            return False
        self._cancel_requests += 1
        if self._awaited is None or not self._awaited.cancel():
            self._must_cancel = True
        return True

    def wake(self, _=None):
        """Run the coroutine's next step."""
        if self._done:
            return
        self._awaited = None
        must_cancel: cython.bint = self._must_cancel
        self._must_cancel = False
        reactor = self.reactor
        before, reactor.current = reactor.current, self
        try:
            if must_cancel:
                awaited = self._context.run(self._coro.throw, CancelledError())
            else:
                awaited = self._context.run(self._coro.send, None)
        except StopIteration as stop:
            if self._must_cancel:  # cancelled by its own last step
                Future.cancel(self)
            else:
                self.set_result(stop.value)
        except CancelledError:
            Future.cancel(self)
        except (KeyboardInterrupt, SystemExit) as error:
            self.set_exception(error)
            raise
        except BaseException as error:
            self.set_exception(error)
        else:
            self._wait_for(awaited)
        finally:
            reactor.current = before
            if self._done:
                reactor.tasks -= 1

    @cython.cfunc
    def _wait_for(self, awaited) -> object:
        if not isinstance(awaited, Future):
            self._coro.close()
            self.set_exception(TypeError(f"a coroutine of the client awaited {awaited!r}: expected a future of its reactor"))
            return
        self._awaited = awaited
        awaited.add_done_callback(self.wake)
        if self._must_cancel and self._awaited.cancel():
            self._must_cancel = False


@cython.final
@cython.cclass
class Event:
    """Tasks wait until it is set. The fields are declared in tasks.pxd."""

    def __init__(self, reactor):
        self._reactor = reactor
        self._waiting = []

    def is_set(self):
        """Whether `set` was called last."""
        return self._set

    def set(self):
        """Let all go on."""
        self._set = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def clear(self):
        """Let the next ones wait."""
        self._set = False

    async def wait(self):
        """Until it is set."""
        if not self._set:
            future = Future(self._reactor)
            self._waiting.append(future)
            try:
                await future
            finally:
                if future in self._waiting:
                    self._waiting.remove(future)


@cython.final
@cython.cclass
class Timeout:
    """``async with Timeout(reactor, seconds):`` raises TimeoutError behind the block if that takes longer.

    None: no limit. The task that enters it is cancelled when the time is over. The fields are declared in tasks.pxd.
    """

    def __init__(self, reactor, seconds):
        self._reactor = reactor
        self._when = None if seconds is None else reactor.clock() + max(0.0, seconds)

    def reschedule(self, when):
        """End the block at *when*, in seconds of the reactor's clock (None: no limit)."""
        self._disarm()
        self._when = when
        if when is not None and self._task is not None:
            self._timer = self._reactor.call_at(when, self._expire)

    def expired(self):
        """Whether the time was over before the block's end."""
        return self._expired

    async def __aenter__(self):
        task = self._reactor.current
        if task is None:
            raise RuntimeError("a Timeout is for a task of the reactor")
        self._task = task
        self._requests_before = self._task._cancel_requests
        self.reschedule(self._when)
        return self

    async def __aexit__(self, kind, error, trace):
        self._disarm()
        task, self._task = self._task, None
        if self._expired and task.uncancel() <= self._requests_before and kind is not None and issubclass(kind, CancelledError):
            raise TimeoutError from error

    def _expire(self):
        self._timer = None
        if self._task is not None:
            self._expired = True
            self._task.cancel()

    @cython.cfunc
    def _disarm(self) -> object:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def sleep(reactor, seconds):
    """Wait for so many seconds."""
    future = Future(reactor)
    timer = reactor.call_at(reactor.clock() + seconds, functools.partial(_end_sleep, future))
    try:
        await future
    finally:
        timer.cancel()


def _end_sleep(future):
    if not future.done():
        future.set_result(None)


async def first_done(reactor, futures, timeout=None):
    """Wait until one of *futures* has ended, at most *timeout* seconds; cancels none. Those that have ended."""
    futures = list(futures)
    ended = Future(reactor)
    end = functools.partial(_end_first, ended)
    timer = None
    if not any([each.done() for each in futures]):
        for each in futures:
            each.add_done_callback(end)
        if timeout is not None:
            timer = reactor.call_at(reactor.clock() + timeout, end)
        try:
            await ended
        finally:
            if timer is not None:
                timer.cancel()
            for each in futures:
                each.remove_done_callback(end)
    return [each for each in futures if each.done()]


def _end_first(ended, _=None):
    if not ended.done():
        ended.set_result(None)


async def all_done(reactor, futures):
    """Wait until all *futures* have ended, in any way; cancels none."""
    for each in list(futures):
        if not each.done():
            await first_done(reactor, [each])


async def gather(reactor, coros):
    """The results of *coros*, run as tasks. If one raises, or this is cancelled, the others are cancelled first."""
    tasks = [Task(reactor, each) for each in coros]
    left = tasks
    try:
        while left:
            for each in await first_done(reactor, left):
                each.result()
            left = [each for each in left if not each.done()]
    except BaseException:
        for each in tasks:
            each.cancel()
        raise
    return [each.result() for each in tasks]


async def shielded(future):
    """The result of *future*, which goes on if the caller is cancelled."""
    if not future.done():
        await first_done(future.reactor, [future])
    return future.result()
