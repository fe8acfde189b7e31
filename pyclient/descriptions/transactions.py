"""Transactions and the producers of partitions, as `Admin` returns them."""
from __future__ import annotations

from typing import NamedTuple

from pyclient.records import TopicPartition


class TransactionListing(NamedTuple):
    """A transactional id as `Admin.list_transactions` finds it.

    ``state`` is Kafka's: ``Ongoing``, ``PrepareCommit``, ``CompleteCommit``, ``Empty`` …
    """

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id, and the transaction that is open or ended last.

    ``timeout`` is transaction_timeout_ms in seconds. ``started_at`` is in ms since 1970; None while no transaction is
    open. ``partitions`` are those that the open transaction has written to and that have no marker yet.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout: float
    started_at: int | None
    partitions: tuple[TopicPartition, ...]


class ProducerState(NamedTuple):
    """What the leader of a partition remembers of a producer that wrote to it.

    ``last_sequence`` is the last record's sequence number, ``last_timestamp`` its time in ms since 1970; None: no
    record is remembered. ``transaction_start_offset`` is where its open transaction begins in this partition; None
    while it has none. ``coordinator_epoch`` is that of the last transaction marker; None before the first.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None
    transaction_start_offset: int | None


class FencedProducer(NamedTuple):
    """The producer id and epoch that a transactional id has since `Admin.fence_producers`; older epochs are refused."""

    producer_id: int
    producer_epoch: int
