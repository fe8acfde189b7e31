"""How fast the user takes what is fetched, and how long brokers may wait for records beside that (C14). Knows times only."""
from __future__ import annotations

from typing import Final

SHORT_WAIT: Final = 0.02
"""Seconds a broker may hold a fetch that leaves partitions out: once those are drained they must not wait for it."""
SHARE_OF_PACE: Final = 0.25
"""It may be so much of the time that the user takes between two drains: a slow user is not worth fifty requests a second."""
SHARE_OF_HOLDING: Final = 0.1
"""Or so much of the time that nothing has been drained already."""


class FetchWait:
    """The times at which data came and was drained."""

    def __init__(self) -> None:
        self._moved = 0.0  # when data came last, or some was drained
        self._taken = 0.0  # when some was drained
        self._between = 0.0  # seconds that the user takes for what is drained

    def came(self, now: float) -> None:
        """Data came."""
        self._moved = now

    def drained(self, now: float) -> None:
        """The user took some. What he takes for it is believed step by step when it grows, at once when it falls."""
        self._between = min(now - self._taken, 2 * self._between + SHORT_WAIT)
        self._moved = self._taken = now

    def max_wait(self, now: float) -> float:
        """Seconds that a broker may wait for records while the user works on what is buffered.

        His partitions are left out of the request meanwhile, and once they are drained they wait behind it: so little, or little
        beside the time the user takes for each drain, in which they are fetched again.
        """
        return max(SHORT_WAIT, SHARE_OF_PACE * self._between, SHARE_OF_HOLDING * (now - self._moved))
