"""Partitioners that ignore keys.

They spread records over the partitions with a leader, or leave the choice to the producer or the caller.

When no partition has a leader they use all; the records then wait for a leader.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

from pyclient.plugins import STICKY, Partitions


class RoundRobinPartitioner:
    """Each partition in turn, separately per topic, as Java's. Even, but with smaller batches than sticky ones."""

    def __init__(self) -> None:
        self._turns: dict[str, Iterator[int]] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """The next partition with a leader."""
        turns = self._turns.get(topic)
        if turns is None:
            turns = self._turns.setdefault(topic, count())  # atomic: two racing threads get the same counter
        choices = _choices(partitions)
        return choices[next(turns) % len(choices)]


class RandomPartitioner:
    """Any partition with a leader, each as likely. ``random`` makes the choice repeatable in tests."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or Random()

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """A partition with a leader, drawn again for each record."""
        return self._random.choice(_choices(partitions))


class StickyPartitioner:
    """Sticky batches for all records, with a key or without: as Java's default with ``partitioner.ignore.keys``."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """Always `STICKY`."""
        return STICKY


class ExplicitPartitioner:
    """Chooses nothing: each record must be sent with a partition, or it is rejected."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """Raises ValueError: it is called only for a record without a partition."""
        raise ValueError(
            f"a record for topic {topic!r} names no partition, and the partitioner is 'explicit'. Nothing was queued. "
            f"Pass partition=0 to {len(partitions) - 1}, or choose another partitioner."
        )


def _choices(partitions: Partitions) -> Sequence[int]:
    return partitions.available or range(len(partitions))
