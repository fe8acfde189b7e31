"""How much of a large answer has to be there before the loop is woken for it.

With TLS each time costs a dozen calls of asyncio's, and brokers send some 40 KB at a time; what is not complete is of no use to anybody.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

LEAST: Final = 65_536
"""Bytes still to come: worth it."""
MOST: Final = 262_144
"""asyncio reads so many bytes at a time."""
SLACK: Final = 32_768
"""More than one record of TLS (RFC 8446, 5.2): of those bytes that are to come, so many may have left the system, as the beginning of a record."""


class ReceiveLowWater:
    """Of one connection. *wake_at* has the system tell of what came when it is so many bytes, or all that will ever come."""

    def __init__(self, wake_at: Callable[[int], None]) -> None:
        self._wake_at = wake_at
        self._bytes = 1

    def lacks(self, missing: int) -> None:
        """The answer that was just read on, with all there is, lacks so many bytes; 0 if there is none such."""
        wanted = min(missing - SLACK, MOST) if missing >= LEAST else 1
        if wanted != self._bytes:
            self._bytes = wanted
            self._wake_at(wanted)
