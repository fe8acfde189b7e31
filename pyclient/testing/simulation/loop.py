"""An asyncio loop whose time is virtual: it moves only when nothing can run, straight to the next timer.

Ready callbacks run in a seeded order. Two callbacks scheduled by the same callback keep their order, as programs may
rely on it; callbacks of different origin may overtake each other, as they may where threads and sockets schedule them.
"""
from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
OVERTAKING: Final = 0.25
"""How often what is ready may be overtaken."""
LOOK_AHEAD: Final = 6
"""How many ready callbacks are looked at for one to overtake."""
BUSY: Final = 50_000
"""Callbacks at one instant after which the loop calls it a busy loop."""
LOOKED_AT: Final = 64
"""After so many at one instant those within them are counted too."""
FIRST_DESCRIPTOR: Final = 3
READS, WRITES = False, True


class SimulationStuckError(Exception):
    """Nothing can ever happen again, and a call still waits."""


class BusyLoopError(Exception):
    """Callbacks schedule each other without end while time stands still."""


class _Soon(asyncio.Handle):
    """A ready callback, and which callback scheduled it. Not asyncio's own handle: its checks for the debug mode
    cost as much as the rest."""

    __slots__ = ("origin",)
    _callback: Callable[..., object]
    _context: contextvars.Context
    _loop: SimulationLoop
    _repr: str | None
    _source_traceback: None

    def __init__(self, callback: Callable[..., object], args: Sequence[Any], loop: SimulationLoop, context: contextvars.Context | None,
                 origin: int) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None
        self.origin = origin


class _Timer(asyncio.TimerHandle):
    """A callback that can run at its time, of an origin of its own; see `_Soon`."""

    __slots__ = ("origin",)
    _callback: Callable[..., object]
    _context: contextvars.Context
    _loop: SimulationLoop
    _repr: str | None
    _source_traceback: None

    def __init__(self, when: float, callback: Callable[..., object], args: Sequence[Any], loop: SimulationLoop,
                 context: contextvars.Context | None, origin: int) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None
        self._when = when
        self.origin = origin

    def cancel(self) -> None:
        """Let it not run: it is dropped when its time comes."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class _Watched:
    """A callback for a descriptor that can be read, or written."""

    __slots__ = ("callback", "handle")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.handle: asyncio.Handle | None = None
        """Of the call that is due."""


class SimulationLoop(asyncio.AbstractEventLoop):
    """Single-threaded, without signals or subprocesses; its sockets are simulated. Time begins at *start* seconds."""

    def __init__(self, random: Random, start: float = 0.0) -> None:
        self._random = random
        self._now = start
        self._ready: list[_Soon | _Timer] = []
        self._timers: list[tuple[float, float, int, _Timer]] = []
        self._number = 0
        self._origin = 0
        self._running = False
        self._stopping = False
        self._closed = False
        self._at_this_instant = 0
        self._inner_before = 0
        self._callbacks = 0
        self._descriptors: dict[int, tuple[Callable[[], bool], Callable[[], bool]]] = {}
        self._watched: dict[tuple[int, bool], _Watched] = {}
        self.inner: Callable[[], int] = lambda: 0
        """How many callbacks ran within its own so far: reactors run many in one."""
        self.after_turn: Callable[[], None] | None = None
        """Called after every callback: for invariants."""
        self.defects: list[dict[str, Any]] = []
        """What was reported to the loop's exception handler: tasks and callbacks that failed unobserved."""

    # ---- time and order ----------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts,
                  context: contextvars.Context | None = None) -> asyncio.Handle:
        """Run it at this instant."""
        if self._closed:
            _refuse_closed()
        handle = _Soon(callback, args, self, context, self._origin)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts,
                             context: contextvars.Context | None = None) -> asyncio.Handle:
        """The same: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts,
                   context: contextvars.Context | None = None) -> asyncio.TimerHandle:
        """Run it after *delay* virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts,
                context: contextvars.Context | None = None) -> asyncio.TimerHandle:
        """Run it at *when*; what is due at the same instant runs in any order."""
        if self._closed:
            _refuse_closed()
        self._number = number = self._number + 1
        handle = _Timer(when, callback, args, self, context, -number)
        heapq.heappush(self._timers, (when, self._random.random(), number, handle))
        return handle

    @property
    def next_timer(self) -> float | None:
        """When the next timer is due."""
        timers = self._timers
        while timers and timers[0][3]._cancelled:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def timers(self) -> list[asyncio.TimerHandle]:
        """Those that are set and not cancelled, in no order."""
        return [handle for _, _, _, handle in self._timers if not handle.cancelled()]

    @property
    def turns(self) -> int:
        """Callbacks run so far."""
        return self._callbacks + self.inner()

    # ---- descriptors -------------------------------------------------------------------------------------------------

    def open_descriptor(self, readable: Callable[[], bool], writable: Callable[[], bool]) -> int:
        """The lowest number that is free, as of systems; its owner calls `look_at` when it may have changed."""
        descriptor = next(number for number in itertools.count(FIRST_DESCRIPTOR) if number not in self._descriptors)
        self._descriptors[descriptor] = readable, writable
        return descriptor

    def close_descriptor(self, descriptor: int) -> None:
        """Free its number. As with asyncio, who watches it must have ended that before."""
        del self._descriptors[descriptor]
        if any((descriptor, writes) in self._watched for writes in (READS, WRITES)):
            raise RuntimeError(f"descriptor {descriptor} is closed, and still watched")

    def look_at(self, descriptor: int) -> None:
        """Call soon who watches it, if it is ready: as long as it is, again and again."""
        for writes in (READS, WRITES):
            watched = self._watched.get((descriptor, writes))
            if watched is not None and watched.handle is None and self._descriptors[descriptor][writes]():
                watched.handle = self.call_soon(self._report, descriptor, writes, watched)

    def _report(self, descriptor: int, writes: bool, watched: _Watched) -> None:
        watched.handle = None
        if self._descriptors[descriptor][writes]():
            watched.callback()
        if descriptor in self._descriptors:
            self.look_at(descriptor)

    def _watch(self, descriptor: int, writes: bool, callback: Callable[[], object]) -> None:
        self._forget(descriptor, writes)
        self._watched[descriptor, writes] = _Watched(callback)
        self.look_at(descriptor)

    def _forget(self, descriptor: int, writes: bool) -> bool:
        watched = self._watched.pop((descriptor, writes), None)
        if watched is not None and watched.handle is not None:
            watched.handle.cancel()
        return watched is not None

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Call it while the descriptor can be read."""
        self._watch(fd, READS, lambda: callback(*args))

    def remove_reader(self, fd: Any) -> bool:
        """Whether it was watched."""
        return self._forget(fd, READS)

    def add_writer(self, fd: Any, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Call it while the descriptor can be written."""
        self._watch(fd, WRITES, lambda: callback(*args))

    def remove_writer(self, fd: Any) -> bool:
        """Whether it was watched."""
        return self._forget(fd, WRITES)

    # ---- running -----------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        """Run until *future* is done, and give its result.

        Raises:
            SimulationStuckError: it can never be done, for nothing is left that could happen.
        """
        task: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        with _running(self):
            while not task.done():
                if not self.step():
                    raise SimulationStuckError(f"nothing can happen any more, and {task!r} still waits")
        return task.result()

    def run_until(self, when: float) -> None:
        """Run everything up to this virtual time; time stands there afterwards."""
        with _running(self):
            while self._ready or ((due := self.next_timer) is not None and due <= when):
                self.step()
        self._now = max(self._now, when)

    def run_forever(self) -> None:
        """Run until `stop`, or until nothing can happen any more."""
        with _running(self):
            while not self._stopping and self.step():
                pass
        self._stopping = False

    def step(self) -> bool:
        """Run one callback, moving time when none is ready; False when nothing is left."""
        ready = self._ready
        if not ready and not self._advance():
            return False
        handle = ready.pop(self._choose()) if len(ready) > 1 else ready.pop()
        if handle._cancelled:
            return True
        self._origin = self._callbacks = self._callbacks + 1
        self._at_this_instant += 1
        if not self._at_this_instant % LOOKED_AT:
            self._check_busy(handle)
        try:
            handle._context.run(handle._callback, *handle._args)  # as its own `_run` would, of which it costs the half
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 a callback's: asyncio reports it too
            self.call_exception_handler({"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle})
        self._origin = 0
        if self.after_turn is not None:
            self.after_turn()
        return True

    def _check_busy(self, handle: asyncio.Handle) -> None:
        inner = self.inner()
        if self._at_this_instant == LOOKED_AT:
            self._inner_before = inner
        if self._at_this_instant + inner - self._inner_before > BUSY:
            raise BusyLoopError(f"{BUSY} callbacks ran at {self._now:.6f} s and time did not move; the last one: {handle!r}")

    def _advance(self) -> bool:
        """Move time to the next timer, and make ready all that is due then."""
        when = self.next_timer
        if when is None:
            return False
        if when > self._now:
            self._now = when
            self._at_this_instant = 0
        timers, now = self._timers, self._now
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[3]
            if not handle._cancelled:
                self._ready.append(handle)
        return True

    def _choose(self) -> int:
        """Mostly the first; sometimes a later one that the ones before it did not come from the same callback as."""
        if self._random.random() >= OVERTAKING:
            return 0
        ready = self._ready
        seen: set[int] = set()
        free = []
        for position in range(min(len(ready), LOOK_AHEAD)):
            if ready[position].origin not in seen:
                seen.add(ready[position].origin)
                free.append(position)
        return free[self._random.randrange(len(free))]

    # ---- asyncio's loop ----------------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None, **_: Any) -> asyncio.Task[Any]:
        """A task of this loop."""
        if self._closed:
            _refuse_closed()
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Run it a little later, on this thread: what an executor would do at some time."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 it belongs to the waiting caller
                future.set_exception(error)

        self.call_later(self._random.random() * 0.01, run)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep it: an unobserved exception is a defect of the run."""
        self.defects.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """The same."""
        self.call_exception_handler(context)

    def is_running(self) -> bool:
        """Whether a callback may be running."""
        return self._running

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def stop(self) -> None:
        """Let `run_forever` end."""
        self._stopping = True

    def close(self) -> None:
        """Forget everything that has not run."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        self._watched.clear()

    def get_debug(self) -> bool:
        """Never."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Not supported: debugging reads the real clock."""

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do."""


class _running:  # noqa: N801 used as a context manager, like a function
    """Marks a loop as the running one of this thread."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self._before: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> None:
        self._before = asyncio._get_running_loop()
        if self._before is not None:
            _refuse()
        self._loop._running = True
        asyncio._set_running_loop(self._loop)

    def __exit__(self, *_: object) -> None:
        self._loop._running = False
        asyncio._set_running_loop(self._before)


def _nothing() -> None:
    """Stands for the callback of a cancelled timer: what it held is let go."""


def _refuse_closed() -> NoReturn:
    raise RuntimeError("Event loop is closed")


def _refuse() -> NoReturn:
    raise RuntimeError("a simulation cannot run inside a running event loop")
