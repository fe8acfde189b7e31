"""A user's plugin for pyclient: the partitions that a Java service chose by its keys' ``hashCode``.

Java's expression is ``Math.floorMod(key.hashCode(), partitions)``. Keys are texts in UTF-8; Java hashes their UTF-16
units.
"""
from __future__ import annotations

from struct import iter_unpack

from pyclient.plugins import STICKY, Partitions

__all__ = ["JavaHashCodePartitioner", "hash_code"]


class JavaHashCodePartitioner:
    """``String.hashCode()`` of the key; records without a key are sticky."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """The same text gives the same partition as in Java."""
        if key is None:
            return STICKY
        return hash_code(key.decode()) % len(partitions)  # Python's % is never negative, like Java's floorMod


def hash_code(text: str) -> int:
    """Java's ``String.hashCode()``, from -2^31 to 2^31 - 1."""
    state = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        state = (31 * state + unit) & 0xFFFFFFFF
    return state - 2**32 if state >= 2**31 else state
