"""Topics and their partitions: what `Admin` creates and describes."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from pyclient.descriptions.acls import AclOperation
from pyclient.foreign_calls import answers_foreign_calls


@answers_foreign_calls("NewTopic")
class NewTopic(NamedTuple):
    """A topic to create. -1 partitions or replicas: the broker's default. ``configs`` are topic configs by name."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | int] = {}
    replica_assignments: Mapping[int, Sequence[int]] = {}


class NewPartitions(NamedTuple):
    """How many partitions a topic shall have in total. ``replica_assignments`` are the replicas' node ids of each
    partition that is added, the leader first; without them the cluster chooses."""

    total: int
    replica_assignments: Sequence[Sequence[int]] = ()


class PartitionDescription(NamedTuple):
    """A partition with its leader (None while it has none), replicas and in-sync replicas, as node ids."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


class TopicDescription(NamedTuple):
    """A topic with its id (None on brokers before 2.8) and its partitions, ordered by number.

    ``authorized_operations`` are what this client's user may do with it; None when they were not asked for.
    """

    name: str
    topic_id: UUID | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None
