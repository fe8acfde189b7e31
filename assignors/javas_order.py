"""Java's orders of texts and partitions, where they decide who gets what in its assignors.

Where several members could keep a partition more than the others, Java's HashMap decides who does. The same group must get the same
answer whoever leads it, so the order of that map is made again here: by bucket, and within a bucket as things were put in.
(Chains of nine and more in one bucket become trees in Java, and are then gone through in another order: not made again.)
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from struct import iter_unpack
from typing import Final, TypeVar

from pyclient.records import TopicPartition

T = TypeVar("T")
SMALLEST_TABLE: Final = 16
FULLEST: Final = 0.75  # a table that holds more doubles its buckets


def text_key(text: str) -> bytes:
    """Sorts texts as ``String.compareTo``: by UTF-16 units, so that what lies beyond U+FFFF comes before U+E000."""
    return text.encode("utf-16-be", "surrogatepass")


def hash_code(text: str) -> int:
    """``String.hashCode()``, from 0 to 2^32 - 1."""
    state = 0
    for (unit,) in iter_unpack(">H", text_key(text)):
        state = (31 * state + unit) & 0xFFFFFFFF
    return state


def partition_hash(partition: TopicPartition) -> int:
    """``TopicPartition.hashCode()``, from 0 to 2^32 - 1."""
    return (31 * (31 + partition.partition) + hash_code(partition.topic)) & 0xFFFFFFFF


def table_size(count: int) -> int:
    """The buckets of a HashMap that *count* keys were put into one by one."""
    size = SMALLEST_TABLE
    while count > FULLEST * size:
        size *= 2
    return size


def bucket(hashed: int, size: int) -> int:
    """Where a hash code stands in a table of *size* buckets."""
    return (hashed ^ hashed >> 16) & size - 1


def hash_order(keys: Collection[T], hashed: Callable[[T], int]) -> list[T]:
    """Distinct *keys* in the order in which a HashMap goes through them that they were put into in this order."""
    size = table_size(len(keys))
    return sorted(keys, key=lambda key: bucket(hashed(key), size))


def members_in_hash_order(members: Iterable[str]) -> list[str]:
    """Member ids as a leader written in Java goes through them, when the coordinator named them in sorted order."""
    return hash_order(sorted(members, key=text_key), hash_code)
