"""The plain values users meet: where a record is, what the broker said of it, what a topic looks like.

Each is immutable, hashable and pickles. `Record` itself is compiled and lives in ``pyclient.codec.record``.
"""
from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = Sequence[Header]

NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_GENERATION: Final = -1


class TopicPartition(NamedTuple):
    """One partition of a topic; ``partition`` is 0-based."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class SubscriptionPattern(str):
    """A regular expression in RE2's syntax that brokers match with whole topic names (``group_protocol="consumer"``, Kafka 4.0 or newer).

    A ``re.Pattern`` is matched by the client instead, with every topic it may describe.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"SubscriptionPattern({str(self)!r})"


class TimestampType(enum.IntEnum):
    """Who set a record's timestamp: its producer, or the broker when it appended the batch."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class RecordMetadata(NamedTuple):
    """What is known of an acknowledged record.

    ``offset`` is None when the broker was not asked (``acks=0``); ``timestamp`` is in ms since the epoch:
    the producer's, or the broker's where the topic has ``message.timestamp.type=LogAppendTime``.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp: int


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, with the committer's own note."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """Answer to a look-up by time: the first record at or after it (ms since the epoch)."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class ConsumerGroupMetadata(NamedTuple):
    """As whom a consumer speaks for its group; what a transaction that commits its offsets is fenced by (KIP-447).

    ``generation_id`` is -1 and ``member_id`` empty as long as it is no member; with ``group_protocol=consumer`` the first is the member's epoch.
    """

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


class Node(NamedTuple):
    """A broker's id and the address it advertises."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (node {self.id})"


class NewTopic(NamedTuple):
    """A topic to create. -1 partitions or replicas leave the number to the broker; ``configs`` are topic configs by name."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    replica_assignments: Mapping[int, Sequence[int]] = {}


class PartitionDescription(NamedTuple):
    """A partition with its leader (None while it has none), replicas and in-sync replicas, as node ids."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


class TopicDescription(NamedTuple):
    """A topic with its id (None on brokers before 2.8) and partitions, in order of their numbers."""

    name: str
    topic_id: UUID | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]


class ClusterDescription(NamedTuple):
    """The cluster's id, its live brokers and the node id of the controller (None while unknown)."""

    cluster_id: str | None
    nodes: tuple[Node, ...]
    controller: int | None
