# cython: language_level=3, freethreading_compatible=True
"""Byte buffers for batches: how many bytes may be held, which are free, who waits for some.

Knows sizes and waiters; knows no records, partitions or clocks. Every call is made under the Accumulator's lock.
Rules: what is handed out, charged and kept free never exceeds ``total``; waiters are served strictly in order of
arrival, and nobody overtakes them (P03), save those that stand aside because they may take nothing yet.
Compiled, though nothing here is hot: between two lines of an interpreted function Ctrl-C could raise, and lose a buffer.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

SMALLEST: Final = 2048


class Waiter:
    """One sender that waits for a buffer. ``notify`` is called once, under the lock, when ``grant`` was filled.

    The sender makes it before it gets in line: it can always leave, whatever interrupts it. While ``allowed()`` is false it
    stands aside and holds up nobody.
    """

    __slots__ = ("allowed", "grant", "notify", "size")

    def __init__(self, notify: Callable[[], object]) -> None:
        self.notify = notify
        self.size = 0
        self.allowed: Callable[[], bool] = _always
        self.grant: bytearray | None = None


def _always() -> bool:
    return True


class WaitStats:
    """How long senders wait for memory. Also read without the lock, by whoever asks for metrics."""

    def __init__(self) -> None:
        self._since: dict[Waiter, float] = {}
        self._ended = 0.0

    def __len__(self) -> int:
        """How many wait now, also those who stand aside."""
        return len(self._since)

    def begin(self, waiter: Waiter, now: float) -> None:
        """It waits from *now* (seconds) on."""
        self._since[waiter] = now

    def end(self, waiter: Waiter, now: float) -> None:
        """It waits no longer, if it did."""
        self._ended += now - self._since.pop(waiter, now)

    def seconds(self, now: float) -> float:
        """All waits together, those that have not ended up to *now*."""
        return self._ended + sum(now - since for since in list(self._since.values()))


class Pool:
    """Buffers of size classes from 2 KiB doubling up to *largest*; last returned, first reused."""

    def __init__(self, total: int, largest: int) -> None:
        self.total = total
        self.used = 0
        self.free_bytes = 0
        self._classes = _size_classes(min(largest, total))
        self._free: dict[int, list[bytearray]] = {size: [] for size in self._classes}
        self._waiters: deque[Waiter] = deque()
        self._aside: deque[Waiter] = deque()

    def __repr__(self) -> str:
        return f"<Pool {self.used} of {self.total} B used, {self.free_bytes} B kept free, {len(self._waiters)} waiting>"

    @property
    def waiting(self) -> int:
        """How many senders wait for memory; those who stand aside do not count."""
        return len(self._waiters)

    def size_for(self, need: int) -> int:
        """Bytes a buffer for *need* bytes takes: its size class, or exactly *need* above the largest."""
        for size in self._classes:
            if size >= need:
                return size
        return need

    def take(self, size: int) -> bytearray | None:
        """A buffer of *size* bytes, or None when there is no room or others wait for it already."""
        return None if self._waiters else self._grab(size)

    def give(self, buffer: bytearray) -> None:
        """Take a buffer back and serve who waits."""
        size = len(buffer)
        self.used -= size
        free = self._free.get(size)
        if free is not None and self.used + self.free_bytes + size <= self.total:
            free.append(buffer)
            self.free_bytes += size
        self._serve()

    def swap(self, buffer: bytearray, size: int) -> None:
        """Take a buffer back and account *size* bytes held elsewhere for it (smaller: compressed output)."""
        self.used += size
        self.give(buffer)

    def discharge(self, size: int) -> None:
        """The *size* bytes that `swap` accounted are free."""
        self.used -= size
        self._serve()

    def wait(self, waiter: Waiter, size: int, allowed: Callable[[], bool] = _always) -> None:
        """Queue for a buffer of *size* bytes; it may be granted at once."""
        waiter.size, waiter.allowed = size, allowed
        (self._waiters if allowed() else self._aside).append(waiter)
        self._serve()

    def readmit(self) -> None:
        """Whoever stands aside and is allowed now gets in line: at its end, for it could not have been served before."""
        aside, self._aside = self._aside, deque()
        for waiter in aside:
            (self._waiters if waiter.allowed() else self._aside).append(waiter)
        self._serve()

    def leave(self, waiter: Waiter) -> None:
        """Stop waiting: a grant already made goes back, and whoever is next is served."""
        if waiter.grant is not None:
            grant, waiter.grant = waiter.grant, None
            self.give(grant)
        elif waiter in self._aside:
            self._aside.remove(waiter)
        elif waiter in self._waiters:
            self._waiters.remove(waiter)
            self._serve()

    def turn_away(self) -> None:
        """Nobody will be served any more: let everybody look again (P08)."""
        waiters = [*self._waiters, *self._aside]
        self._waiters.clear()
        self._aside.clear()
        for waiter in waiters:
            waiter.notify()

    def _serve(self) -> None:
        while self._waiters:
            head = self._waiters[0]
            grant = self._grab(head.size)
            if grant is None:
                return
            self._waiters.popleft()
            head.grant = grant
            head.notify()

    def _grab(self, size: int) -> bytearray | None:
        free = self._free.get(size)
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
        for kept in reversed(self._classes):
            free = self._free[kept]
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
