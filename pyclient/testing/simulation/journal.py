"""The events of a simulated world, in order: a running hash to compare two runs by, and the last events as text."""
from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final

KEPT: Final = 400
AT_ONCE: Final = 256
"""Lines that go into the hash together: as one text they cost a tenth."""


class Journal:
    """Lines of (virtual time, who, what). Every line goes into the hash; the last ones are kept."""

    def __init__(self, clock: Callable[[], float], kept: int = KEPT) -> None:
        self._clock = clock
        self._hash = hashlib.sha256()
        self._last: deque[tuple[float, str, str]] = deque(maxlen=kept)
        self._unhashed: list[str] = []
        self._now = -1.0
        self._time = repr(self._now)
        self.counts: Counter[str] = Counter()
        self.lines = 0

    def note(self, who: str, what: str) -> None:
        """Write a line."""
        now = self._clock()
        if now != self._now:
            self._now, self._time = now, repr(now)
        self.lines += 1
        self._unhashed.append(f"{self._time} {who} {what}\n")
        self._last.append((now, who, what))
        if len(self._unhashed) == AT_ONCE:
            self._catch_up()

    def _catch_up(self) -> None:
        self._hash.update("".join(self._unhashed).encode())
        self._unhashed.clear()

    def count(self, what: str) -> None:
        """Count something without a line."""
        self.counts[what] += 1

    @property
    def digest(self) -> str:
        """The hash of all lines so far."""
        self._catch_up()
        return self._hash.hexdigest()

    def timeline(self, last: int = KEPT) -> str:
        """The last events, a line each."""
        return "\n".join(_lines(list(self._last)[-last:]))


def _lines(events: Iterable[tuple[float, str, str]]) -> Iterable[str]:
    for when, who, what in events:
        yield f"{when:11.4f}  {who:<14} {what}"
