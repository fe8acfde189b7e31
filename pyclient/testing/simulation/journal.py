"""What happened in a simulated world, in order: a running hash that two runs can be compared by, and the last events to read."""
from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final

KEPT: Final = 400


class Journal:
    """Lines of (virtual time, who, what). Every line goes into the hash; the last ones are kept."""

    def __init__(self, clock: Callable[[], float], kept: int = KEPT) -> None:
        self._clock = clock
        self._hash = hashlib.sha256()
        self._last: deque[tuple[float, str, str]] = deque(maxlen=kept)
        self.counts: Counter[str] = Counter()
        self.lines = 0

    def note(self, who: str, what: str) -> None:
        """Write a line."""
        now = self._clock()
        self.lines += 1
        self._hash.update(f"{now!r} {who} {what}\n".encode())
        self._last.append((now, who, what))

    def count(self, what: str) -> None:
        """Count something without a line."""
        self.counts[what] += 1

    @property
    def digest(self) -> str:
        """The hash of all lines so far."""
        return self._hash.hexdigest()

    def timeline(self, last: int = KEPT) -> str:
        """The last events, a line each."""
        return "\n".join(_lines(list(self._last)[-last:]))


def _lines(events: Iterable[tuple[float, str, str]]) -> Iterable[str]:
    for when, who, what in events:
        yield f"{when:11.4f}  {who:<14} {what}"
