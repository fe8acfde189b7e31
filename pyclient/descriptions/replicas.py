"""Replicas: who leads, where they lie, and where they are being moved."""
from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

import attrs

from pyclient.descriptions.configs import ConfigResource
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
    *sizes* has the bytes of one replica of each partition, as they were when the plan was made; those that no broker
    has said are missing.
    """

    before: Mapping[TopicPartition, tuple[int, ...]]
    after: Mapping[TopicPartition, tuple[int, ...]]
    sizes: Mapping[TopicPartition, int] = attrs.field(factory=dict)

    def undo(self) -> ReassignmentPlan:
        """The plan that moves everything back."""
        return ReassignmentPlan(self.after, self.before, self.sizes)

    def copied_bytes(self, tp: TopicPartition) -> int | None:
        """What brokers copy for a partition: its size for each new replica, 0 for another order; None: unknown."""
        copies = len(set(self.after[tp]) - set(self.before[tp]))
        size = self.sizes.get(tp)
        return None if copies and size is None else copies * (size or 0)

    @property
    def total_bytes(self) -> int:
        """The sum of all `copied_bytes` that are known."""
        return sum(self.copied_bytes(tp) or 0 for tp in self.after)

    def __bool__(self) -> bool:
        return bool(self.after)

    def __str__(self) -> str:
        lines = [f"{tp}: {_listed(self.before[tp])} -> {_listed(self.after[tp])}, {_copies(self.copied_bytes(tp))}" for tp in self.after]
        return "\n".join(lines) or "nothing to move"


@attrs.frozen
class ReplicationThrottle:
    """A limit for the copies of a plan, and what the cluster had set before: what the end of the limit restores.

    *before* has each config that is set, of brokers and topics; None: it was not set. ``str(throttle)`` shows them.
    """

    plan: ReassignmentPlan
    bytes_per_second: int
    before: Mapping[ConfigResource, Mapping[str, str | None]]

    def __str__(self) -> str:
        return "\n".join(f"{resource}: {name} was {'not set' if value is None else value}"
                         for resource, configs in self.before.items() for name, value in configs.items())


def _listed(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def _copies(count: int | None) -> str:
    return "copies an unknown number of bytes" if count is None else f"copies {count:,} bytes" if count else "copies nothing"
