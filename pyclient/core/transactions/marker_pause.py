"""When the first request of a transaction may leave: not while the markers of the last one are being written.

A coordinator answers EndTxn before the partitions have their markers, and begins no other transaction of the id until
they have. Asked too early, it answers CONCURRENT_TRANSACTIONS (V1), or the broker asks it again after 20 ms (V2). A
client that begins at once is sooner done if it waits a millisecond or two; how long is learned from the answers.
"""
from __future__ import annotations

from typing import Final

FIRST_S: Final = 0.0005
"""The first pause, after a transaction that came too early."""
LONGEST_S: Final = 0.016
"""A longer pause gains too little on the 20 ms of the broker: begin again without one."""
GROWTH: Final = 1.5
DECAY: Final = 127 / 128
"""Of each transaction that did not come too early."""
LATE_S: Final = 0.015
"""An answer that took so much longer than that of EndTxn was to a request that came too early."""


class MarkerPause:
    """Of one transactional producer. Times are those of the client's clock, in seconds."""

    def __init__(self) -> None:
        self.pause = 0.0
        self.left_at = 0.0
        self._end_took = 0.0
        self.clear()

    def clear(self) -> None:
        """The coordinator has no transaction that ends: that of another id, or one that InitProducerId has awaited."""
        self.due, self._first = 0.0, False

    def ended(self, now: float, took: float) -> None:
        """EndTxn was answered *now*, *took* seconds after it was sent."""
        self.due, self._end_took, self._first, self.left_at = now + self.pause, took, True, 0.0

    def left(self, now: float) -> None:
        """A Produce request of the next transaction leaves; the first one counts."""
        if not self.left_at:
            self.left_at = now

    def stored(self, now: float) -> None:
        """The answer to a Produce request came."""
        if self._first:
            self.answered(now - self.left_at, refused=False)

    def answered(self, took: float, *, refused: bool) -> None:
        """The answer to a request of the next transaction came *took* seconds after the request; the first one counts.

        *refused*: with CONCURRENT_TRANSACTIONS.
        """
        if not self._first:
            return
        self._first = False
        if refused or took >= self._end_took + LATE_S:
            self.pause = max(FIRST_S, self.pause * GROWTH)
            if self.pause > LONGEST_S:
                self.pause = 0.0
        else:
            self.pause *= DECAY
