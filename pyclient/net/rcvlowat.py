"""SO_RCVLOWAT: how many bytes of a large response must have arrived before the loop is woken.

With TLS each wake-up costs a dozen asyncio calls, and brokers send about 40 KB at a time. A part of a response is
useless.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

LEAST: Final = 65_536
"""Missing bytes from which on the low-water mark is raised."""
MOST: Final = 262_144
"""asyncio reads at most that many bytes at a time."""
SLACK: Final = 32_768
"""More than one TLS record (RFC 8446, 5.2): OpenSSL may hold so many of the missing bytes already."""


class ReceiveLowWater:
    """The low-water mark of one connection.

    *set_low_water*: wake the loop at that many bytes, or at the end of the stream.
    """

    def __init__(self, set_low_water: Callable[[int], None]) -> None:
        self._set_low_water = set_low_water
        self._bytes = 1

    def update(self, missing: int) -> None:
        """The response being read still lacks *missing* bytes; 0 if no response is incomplete."""
        wanted = min(missing - SLACK, MOST) if missing >= LEAST else 1
        if wanted != self._bytes:
            self._bytes = wanted
            self._set_low_water(wanted)
