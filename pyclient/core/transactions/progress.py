"""What is known of one transaction, of the calls that wait for it, and of its records."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol as Interface

import attrs

from pyclient.core.transactions.states import TransactionEvent
from pyclient.errors import KafkaError, raisable
from pyclient.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class Records(Interface):
    """The records of the transaction, as the sender has them."""

    def flush(self) -> object:
        """Let every open batch leave at once."""

    def fail_unsent(self, error: KafkaError) -> bool:
        """Fail the batches that never left, and those behind a gap; returns whether a broker may have one."""

    def idle(self) -> bool:
        """Whether every record is acknowledged or has failed, and no request is in flight."""

    def abandon(self, error: KafkaError) -> object:
        """Fail every record."""


@attrs.define(eq=False)
class Pending:
    """The outcome of a call: init, commit, abort or send_offsets. It is kept until the caller takes it (T02)."""

    call: TransactionEvent
    done: bool = False
    error: KafkaError | None = None

    def outcome(self) -> bool | None:
        """True once it has succeeded, None while it is not known.

        Raises:
            KafkaError: it failed.
        """
        if self.error is not None:
            raise raisable(self.error)
        return self.done or None

    def end(self, error: KafkaError | None = None) -> None:
        """The outcome is known; only the first one counts."""
        if not self.done:
            self.done, self.error = True, error


@attrs.define(eq=False)
class OffsetCommit:
    """Offsets of a group that are to be committed in the transaction."""

    member: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    pending: Pending


@attrs.define(eq=False)
class Progress:
    """What the coordinators know of one transaction."""

    deadline: float = float("inf")
    """When the coordinator aborts it, in seconds of the client's clock."""
    partitions: dict[TopicPartition, None] = attrs.field(factory=dict)
    wanted: dict[TopicPartition, None] = attrs.field(factory=dict)
    """Partitions that are not yet part of it (V1)."""
    offsets: list[OffsetCommit] = attrs.field(factory=list)
    groups: set[str] = attrs.field(factory=set)
    started: bool = False
    """The coordinator knows it, so it has to be ended (T07)."""
    doubtful: bool = False
    """Brokers may lack a sequence or the producer, or have records that failed: the next one needs a new epoch."""
    error: KafkaError | None = None
