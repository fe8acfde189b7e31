"""Replicas: who leads, where they lie, and where they are being moved."""
from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

import attrs

from pyclient.errors import KafkaError
from pyclient.records import TopicPartition


class ElectionType(enum.IntEnum):
    """Which replica may become the leader, by Kafka's number (KIP-460)."""

    PREFERRED = 0
    """The first of the partition's replicas, if it is in sync."""
    UNCLEAN = 1
    """Where no replica is in sync: any that is alive. Records that it misses are lost."""


class ReplicaSize(NamedTuple):
    """A replica in a log directory: its bytes, and how many offsets it is behind the high watermark.

    *is_future* replicas are being moved into this directory from another one of the broker.
    """

    size: int
    lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A log directory of a broker. *error*: the directory failed. Bytes of its volume are None before Kafka 3.3."""

    path: str
    error: KafkaError | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: Mapping[TopicPartition, ReplicaSize]


class Reassignment(NamedTuple):
    """Replicas that are being moved (KIP-455): all of the partition now, those that come, those that go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@attrs.frozen
class ReassignmentPlan:
    """Where replicas lie and where they shall: what `Admin.alter_partition_reassignments` takes is ``plan.after``.

    Only partitions that change are in it; ``str(plan)`` has a line for each. A plan is false when nothing changes.
    """

    before: Mapping[TopicPartition, tuple[int, ...]]
    after: Mapping[TopicPartition, tuple[int, ...]]

    def undo(self) -> ReassignmentPlan:
        """The plan that moves everything back."""
        return ReassignmentPlan(self.after, self.before)

    def __bool__(self) -> bool:
        return bool(self.after)

    def __str__(self) -> str:
        return "\n".join(f"{tp}: {_listed(self.before[tp])} -> {_listed(replicas)}" for tp, replicas in self.after.items()) or "nothing to move"


def _listed(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
