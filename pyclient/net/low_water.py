# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""How many bytes of a large response must have come before its reader is woken (SO_RCVLOWAT).

Brokers send about 40 KB at a time, and a part of a response is useless.
"""
from __future__ import annotations

from typing import Final

LEAST: Final = 65_536
"""Missing bytes from which on the low-water mark is raised."""
MOST: Final = 262_144
"""Well below what the system's receive buffer holds."""
SLACK: Final = 32_768
"""More than one TLS record (RFC 8446, 5.2): OpenSSL may hold so many of the missing bytes already."""


class LowWater:
    """The low-water mark of one connection."""

    def __init__(self) -> None:
        self.bytes = 1

    def update(self, missing: int) -> bool:
        """The response being read still lacks *missing* bytes (0: none is incomplete). Whether `bytes` has changed."""
        wanted = min(missing - SLACK, MOST) if missing >= LEAST else 1
        changed = wanted != self.bytes
        self.bytes = wanted
        return changed
