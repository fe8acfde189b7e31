"""How fast the user takes what is fetched, and so how long brokers may wait for records (C14). Knows times only."""
from __future__ import annotations

from typing import Final

SHORT_WAIT: Final = 0.02
"""Seconds a broker may hold a fetch that leaves partitions out: once those are drained they must not wait for it."""
SHARE_OF_PACE: Final = 0.25
"""Or this share of the time between two drains: a slow user is not worth fifty requests a second."""
SHARE_OF_HOLDING: Final = 0.1
"""Or this share of the time since data came or was drained last."""


class FetchWait:
    """The times at which data came and was drained."""

    def __init__(self) -> None:
        self._moved = 0.0  # when data came last, or some was drained
        self._taken = 0.0  # when some was drained last
        self._between = 0.0  # seconds between two drains

    def came(self, now: float) -> None:
        """Data came."""
        self._moved = now

    def drained(self, now: float) -> None:
        """The user took some. A longer time between drains is accepted step by step, a shorter one at once."""
        self._between = min(now - self._taken, 2 * self._between + SHORT_WAIT)
        self._moved = self._taken = now

    def max_wait(self, now: float) -> float:
        """Seconds that a broker may wait for records while the user works on what is buffered.

        Partitions with buffered data are left out of the request. Once drained, they wait for its end. So the wait is
        short, or short beside the time of each drain, in which they are fetched again.
        """
        return max(SHORT_WAIT, SHARE_OF_PACE * self._between, SHARE_OF_HOLDING * (now - self._moved))
