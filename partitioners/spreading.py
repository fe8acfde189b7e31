"""Partitioners that look at no key: they spread records over the partitions that have a leader, or leave the choice to others.

When none has one they use all: the records wait for a leader like any others.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

from pyclient.plugins import STICKY, Partitions


class RoundRobinPartitioner:
    """Each partition in turn, for every topic by itself, as Java's. Even, at the price of smaller batches than sticky ones."""

    def __init__(self) -> None:
        self._turns: dict[str, Iterator[int]] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """The next partition with a leader."""
        turns = self._turns.get(topic)
        if turns is None:
            turns = self._turns.setdefault(topic, count())  # one of two racing threads wins, for both
        choices = _choices(partitions)
        return choices[next(turns) % len(choices)]


class RandomPartitioner:
    """Any partition with a leader, each as likely. ``random`` makes the choice repeatable in tests."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or Random()

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """A partition with a leader, drawn anew for each record."""
        return self._random.choice(_choices(partitions))


class StickyPartitioner:
    """Sticky batches for all records, with a key or without: as Java's default with ``partitioner.ignore.keys``."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """Always `STICKY`."""
        return STICKY


class ExplicitPartitioner:
    """None chooses: each record must name its partition, and one that does not is refused."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """Raises ValueError: asked only for a record that names no partition."""
        raise ValueError(
            f"a record for topic {topic!r} names no partition, and the partitioner is 'explicit'. Nothing was queued. "
            f"Pass partition=0 to {len(partitions) - 1}, or choose another partitioner."
        )


def _choices(partitions: Partitions) -> Sequence[int]:
    return partitions.available or range(len(partitions))
