"""How many records a loop over a consumer is given at a time."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyclient.config import ConsumerConfig

MOMENT_S: Final = 0.02
LONGEST: Final = 16_000


class Stride:
    """``max_poll_records`` when that was set, else so many that the loop's body works on them for a moment.

    Between two strides commits are looked after and partitions are given up and taken over; what that costs is shared by the stride.
    """

    def __init__(self, config: ConsumerConfig, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._least = config.max_poll_records
        self._most = self._least if "max_poll_records" in config.given else max(self._least, LONGEST)
        self._size = self._least
        self._began = clock()
        self._full = False

    def next(self) -> int:
        """Records to take now, as the loop's body has taken its time for the last ones."""
        took = self._clock() - self._began
        if took > 2 * MOMENT_S:
            self._size = max(self._least, self._size // 4)
        elif took < MOMENT_S and self._full:
            self._size = min(self._most, 2 * self._size)
        return self._size

    def begin(self, count: int) -> None:
        """The loop begins with so many."""
        self._began, self._full = self._clock(), count >= self._size
