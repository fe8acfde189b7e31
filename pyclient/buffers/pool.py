# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Byte buffers for batches: how many bytes are used, which buffers are free, which senders wait for one.

Independent of records, partitions and clocks. Every call is made under the Accumulator's lock.
Rules: used, charged and free bytes together never exceed ``total``. Waiters are served strictly in order of arrival
(P03), except those set aside because their partition may take no memory yet. Compiled also because between two lines
of an interpreted function Ctrl-C could raise, and lose a buffer.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

SMALLEST: Final = 2048


class Waiter:
    """One sender that waits for a buffer. ``notify`` is called once, under the lock, when ``grant`` is set.

    The sender creates it before it waits, so it can always leave, whatever interrupts it. While ``allowed()`` is
    false the waiter is set aside and blocks no other.
    """

    def __init__(self, notify: Callable[[], object]) -> None:
        self.notify = notify
        self.size = 0
        self.allowed: Callable[[], bool] = _always
        self.grant: bytearray | None = None


def _always() -> bool:
    return True


class WaitStats:
    """How long senders wait for memory. Metrics read it without the lock."""

    def __init__(self) -> None:
        self._since: dict[Waiter, float] = {}
        self._ended = 0.0

    def __len__(self) -> int:
        """The number of waiters now, those set aside included."""
        return len(self._since)

    def begin(self, waiter: Waiter, now: float) -> None:
        """*waiter* waits from *now* (seconds) on."""
        self._since[waiter] = now

    def end(self, waiter: Waiter, now: float) -> None:
        """End its wait, if there is one."""
        self._ended += now - self._since.pop(waiter, now)

    def seconds(self, now: float) -> float:
        """The sum of all waits, unfinished ones up to *now*."""
        return self._ended + sum(now - since for since in list(self._since.values()))


class Pool:
    """Buffers of size classes from 2 KiB doubling up to *largest*; last returned, first reused."""

    def __init__(self, total: int, largest: int) -> None:
        self.total = total
        self.used = 0
        self.free_bytes = 0
        self._classes = _size_classes(min(largest, total))
        self.on_return: Callable[[bytearray], object] | None = None
        """Called with each buffer that is returned, before it is reused: a simulation overwrites it."""
        self._free: list[list[bytearray]] = [[] for _ in self._classes]
        """The free buffers of each class."""
        self._waiters: deque[Waiter] = deque()
        self._aside: deque[Waiter] = deque()

    def __repr__(self) -> str:
        return f"<Pool {self.used} of {self.total} B used, {self.free_bytes} B kept free, {len(self._waiters)} waiting>"

    @property
    def waiting(self) -> int:
        """How many senders wait for memory, without those set aside."""
        return len(self._waiters)

    def size_for(self, need: int) -> int:
        """Bytes a buffer for *need* bytes takes: its size class, or exactly *need* above the largest."""
        for size in self._classes:
            if size >= need:
                return size
        return need

    def take(self, size: int) -> bytearray | None:
        """A buffer of *size* bytes; None when there is no room or other senders wait already."""
        return None if self._waiters else self._allocate(size)

    def give(self, buffer: bytearray) -> None:
        """Return a buffer to the pool, and serve waiters."""
        if self.on_return is not None:
            self.on_return(buffer)
        size = len(buffer)
        self.used -= size
        free = self._free_of(size)
        if free is not None and self.used + self.free_bytes + size <= self.total:
            free.append(buffer)
            self.free_bytes += size
        self._serve()

    def swap(self, buffer: bytearray, size: int) -> None:
        """Return a buffer, and charge *size* bytes (not more) for the compressed output that replaces it."""
        self.used += size
        self.give(buffer)

    def discharge(self, size: int) -> None:
        """Free *size* bytes that `swap` charged."""
        self.used -= size
        self._serve()

    def wait(self, waiter: Waiter, size: int, allowed: Callable[[], bool] = _always) -> None:
        """Queue for a buffer of *size* bytes; it may be granted at once."""
        waiter.size, waiter.allowed = size, allowed
        (self._waiters if allowed() else self._aside).append(waiter)
        self._serve()

    def readmit(self) -> None:
        """Queue the waiters set aside that are allowed now, at the end: they could not have been served before."""
        aside, self._aside = self._aside, deque()
        for waiter in aside:
            (self._waiters if waiter.allowed() else self._aside).append(waiter)
        self._serve()

    def leave(self, waiter: Waiter) -> None:
        """Stop waiting: a grant already made goes back, and the next waiter is served."""
        if waiter.grant is not None:
            grant, waiter.grant = waiter.grant, None
            self.give(grant)
        elif waiter in self._aside:
            self._aside.remove(waiter)
        elif waiter in self._waiters:
            self._waiters.remove(waiter)
            self._serve()

    def end_waits(self) -> None:
        """Notify every waiter without a grant: none will be served any more (P08)."""
        waiters = [*self._waiters, *self._aside]
        self._waiters.clear()
        self._aside.clear()
        for waiter in waiters:
            waiter.notify()

    def _serve(self) -> None:
        while self._waiters:
            head = self._waiters[0]
            grant = self._allocate(head.size)
            if grant is None:
                return
            self._waiters.popleft()
            head.grant = grant
            head.notify()

    def _free_of(self, size: int) -> list[bytearray] | None:
        """The free buffers of this size; None if it is no class."""
        for at, kept in enumerate(self._classes):
            if kept == size:
                return self._free[at]
        return None

    def _allocate(self, size: int) -> bytearray | None:
        free = self._free_of(size)
        if free:
            self.free_bytes -= size
            self.used += size
            return free.pop()
        if not self._make_room(size):
            return None
        self.used += size
        return bytearray(size)

    def _make_room(self, size: int) -> bool:
        """Drop free buffers, the largest first, until *size* new bytes fit."""
        if self.used + size > self.total:
            return False
        for at in range(len(self._classes) - 1, -1, -1):
            kept, free = self._classes[at], self._free[at]
            while free and self.used + self.free_bytes + size > self.total:
                free.pop()
                self.free_bytes -= kept
        return True


def _size_classes(largest: int) -> tuple[int, ...]:
    sizes: list[int] = []
    size = SMALLEST
    while size < largest:
        sizes.append(size)
        size *= 2
    return (*sizes, largest)
