"""Lets another thread act in place of a loop's own thread while that sleeps in `select`.

The loop's thread holds a lock except while it sleeps. A thread that gets the lock meanwhile is alone with all that the
loop owns, as if it ran on the loop. When the loop wakes, it rings for the lock and no other thread gets it first. Linux
only (epoll and eventfd); elsewhere, and on other loops, nothing is lent.
"""
from __future__ import annotations

import asyncio
import contextlib
import os
import select
import selectors
import socket
import sys
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, TypeVarTuple

from pyclient.held_lock import Held
from pyclient.runtime.epoll_sleep import EpollSleep, new_timer

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Ts = TypeVarTuple("Ts")

if sys.platform == "linux":
    class LendingSelector(selectors.EpollSelector):
        """The selector of a loop that lends itself."""

        def __init__(self) -> None:
            super().__init__()
            self._lock = threading.Lock()
            self._lock.acquire()
            self.give_back = self._lock.release
            """After `borrow`: the loop may wake."""
            self.acquire = self._lock.acquire
            """As `borrow`, without `on_taken`, and without regard to `wanted`."""
            self.wanted = False
            """Whether the loop waits to wake."""
            self.on_sleep: Callable[[], object] = _ignore
            """Called before the loop sleeps."""
            self.on_woken: Callable[[], object] = _ignore
            """Called before the loop goes on."""
            self.on_borrowed: Callable[[], object] = _ignore
            """Called by `borrow`."""
            self.on_readable: Callable[[int], bool] = _wakes
            """Called by the loop's thread with a descriptor that it would wake for; whether it may sleep on."""
            self._epoll = select.epoll.fromfd(os.dup(self.fileno()))
            self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            """Readable when the loop, or a signal, wants the lock back from a thread that waits."""
            self._bell_lock = threading.RLock()  # the number may be another file's once closed; reentrant for signal handlers
            self.patience = 0.0
            """Seconds for which the loop waits for the lock before it wants it back."""
            self._sleep = EpollSleep(self.fileno(), self, self.acquire, self.give_back).sleep
            self._timers: list[int] = []
            self.scheduled = False
            """Set with each callback of the loop: it has to be woken for those of a thread that acts in its place."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """As `selectors.BaseSelector.select`; lends the loop meanwhile."""
            if timeout is None or timeout > 0:
                self.on_sleep()
                self._sleep(timeout)
                self.on_woken()
            return super().select(0)

        def take_back(self) -> None:
            """As the loop's thread, which wakes: get the lock from the thread that has it."""
            if not (self.patience and self._lock.acquire(timeout=self.patience)):
                self.wanted = True  # first: a thread that borrows again and again would leave no gap
                self.ring()
                self._lock.acquire()
                self.wanted = False

        @property
        def asleep(self) -> bool:
            """Whether `borrow` may succeed."""
            return not self.wanted and not self._lock.locked()

        def borrow(self, wait: float = 0.0) -> bool:
            """Take the place of the loop's thread, once that sleeps, for which to wait so many seconds; then call
            `give_back`.
            """
            if self.wanted or not (self._lock.acquire(timeout=wait) if wait else self._lock.acquire(blocking=False)):
                return False
            try:
                self.on_borrowed()
            except BaseException:  # the caller cannot give back what it was not given
                self._lock.release()
                raise
            return True

        @property
        def descriptor(self) -> int:
            """Of the epoll that the loop sleeps on."""
            return self._epoll.fileno()

        def ring(self) -> None:
            """Ask a thread that waits with the lock to give it back; nothing once closed. Any thread may call it."""
            with Held(self._bell_lock):
                if self.bell >= 0:
                    os.eventfd_write(self.bell, 1)

        def answer(self) -> None:
            """The bell was heard."""
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.bell)

        def open_timer(self) -> int:
            """A descriptor that becomes readable at the time it is set to, by any thread that has the lock."""
            self._timers.append(new_timer())
            return self._timers[-1]

        def reads_only(self, sock: socket.socket) -> bool:
            """Whether the loop waits for nothing but bytes on *sock*."""
            key = self._fd_to_key.get(sock.fileno())  # type: ignore[attr-defined]
            return key is not None and key.events == selectors.EVENT_READ

        def mute(self, fd: FileDescriptorLike) -> None:
            """A socket does not wake the loop: the thread that has the lock reads it."""
            self._epoll.modify(fd, 0)

        def unmute(self, fd: FileDescriptorLike) -> None:
            """The loop reads it again, unless it was closed meanwhile."""
            key = self._fd_to_key.get(fd)  # type: ignore[attr-defined]  # `get_key` takes five calls
            if key is None:
                return
            with contextlib.suppress(OSError):
                self._epoll.modify(fd, (key.events & selectors.EVENT_READ and select.EPOLLIN) | (key.events & selectors.EVENT_WRITE and select.EPOLLOUT))

        def close(self) -> None:
            """As `selectors.BaseSelector.close`."""
            with Held(self._bell_lock):
                bell, self.bell = self.bell, -1
                os.close(bell)
            while self._timers:
                os.close(self._timers.pop())
            self._epoll.close()
            super().close()


    class LendingLoop(asyncio.SelectorEventLoop):
        """The loop of a `LendingSelector`. A thread that acts in its place may schedule callbacks as on the loop."""

        def __init__(self, selector: LendingSelector) -> None:
            self._lending = selector
            super().__init__(selector)

        def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
            """As `asyncio.AbstractEventLoop.call_soon`."""
            self._lending.scheduled = True
            return super().call_soon(callback, *args, context=context)

        def call_at(self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.TimerHandle:
            """As `asyncio.AbstractEventLoop.call_at`."""
            self._lending.scheduled = True
            return super().call_at(when, callback, *args, context=context)


def _ignore() -> None:
    """The default of a call that nothing needs."""


def _wakes(_descriptor: int) -> bool:
    """The default of `LendingSelector.on_readable`: the loop wakes."""
    return False


def lending_loop() -> tuple[asyncio.AbstractEventLoop, LendingSelector | None]:
    """A new loop, and its selector if it lends itself: asyncio's own loop does, others do not."""
    loop = asyncio.new_event_loop()
    if sys.platform != "linux" or type(loop) is not asyncio.SelectorEventLoop or loop.get_debug():
        return loop, None
    loop.close()
    selector = LendingSelector()
    try:
        return LendingLoop(selector), selector
    except BaseException:  # most likely no descriptor is left: the bell's would be lost, too
        selector.close()
        raise
