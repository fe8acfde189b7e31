"""Plain values of the public interface: records, partitions, offsets, record metadata and brokers.

Each is immutable, hashable and can be pickled. `Record` itself is compiled: ``pyclient.records.record``.
"""
from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from typing_extensions import TypeVar

Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = Sequence[Header]

# Types of keys and values: of records, which are bytes without deserializers, and of producers. A producer accepts
# anything unless its serializers are typed: of a lambda and of a name, type checkers learn nothing.
K_co = TypeVar("K_co", covariant=True, default=bytes | None)
V_co = TypeVar("V_co", covariant=True, default=bytes | None)
K_contra = TypeVar("K_contra", contravariant=True, default=Any)
V_contra = TypeVar("V_contra", contravariant=True, default=Any)

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
    """A regular expression in RE2 syntax that brokers match with whole topic names.

    It needs ``group_protocol="consumer"`` and Kafka 4.0 or newer. A ``re.Pattern`` is matched by the client instead,
    with every topic that it may describe.
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
    """The partition, offset and timestamp of an acknowledged record.

    ``offset`` is None with ``acks=0``, where brokers send no response. ``timestamp`` is in ms since the epoch: the
    producer's, or the broker's if the topic has ``message.timestamp.type=LogAppendTime``.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp: int


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, and metadata of the committer."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """Result of a look-up by time: the first record at or after that time (ms since the epoch)."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's identity in its group. It fences transactions that commit the consumer's offsets (KIP-447).

    While the consumer is not a member, ``generation_id`` is -1 and ``member_id`` is empty. With
    ``group_protocol=consumer``, ``generation_id`` is the member's epoch.
    """

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


class Node(NamedTuple):
    """A broker's id and the address it advertises.

    A fenced broker is registered but serves no clients: it is shut down, or the controller does not hear from it.
    """

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (node {self.id})"
