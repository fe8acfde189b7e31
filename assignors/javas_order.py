"""Java's orders of strings and partitions, where they decide assignments.

When several members could keep one partition more than the others, the iteration order of Java's HashMap decides. A
group must get the same assignment from every leader, so that order is reproduced here: by bucket, and within a bucket
by insertion. (Java turns nine or more entries in one bucket into a tree with another order; that is not reproduced.)
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from struct import iter_unpack
from typing import Final, TypeVar

from pyclient.records import TopicPartition

T = TypeVar("T")
MIN_BUCKETS: Final = 16
LOAD_FACTOR: Final = 0.75  # the load factor above which a table doubles its buckets


def text_key(text: str) -> bytes:
    """Sort key for ``String.compareTo``: by UTF-16 code units, so that characters above U+FFFF come before U+E000."""
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
    """The number of buckets of a HashMap into which *count* keys were put one by one."""
    size = MIN_BUCKETS
    while count > LOAD_FACTOR * size:
        size *= 2
    return size


def bucket(hashed: int, size: int) -> int:
    """The bucket of a hash code in a table of *size* buckets."""
    return (hashed ^ hashed >> 16) & size - 1


def hash_order(keys: Collection[T], hashed: Callable[[T], int]) -> list[T]:
    """Distinct *keys* in the iteration order of a HashMap into which they were put in the given order."""
    size = table_size(len(keys))
    return sorted(keys, key=lambda key: bucket(hashed(key), size))


def members_in_hash_order(members: Iterable[str]) -> list[str]:
    """Member ids in the iteration order of a Java leader, if the coordinator listed them sorted."""
    return hash_order(sorted(members, key=text_key), hash_code)
