"""Offsets of partitions: which are asked for, and what brokers answer."""
from __future__ import annotations

import enum
from typing import NamedTuple


class OffsetSpec(enum.IntEnum):
    """Which offset of a partition `Admin.list_offsets` returns, by Kafka's number."""

    LATEST = -1
    """Behind the last record; with read_committed behind the last one that such a consumer may read."""
    EARLIEST = -2
    """Of the first record."""
    MAX_TIMESTAMP = -3
    """Of the record with the largest timestamp (KIP-734; brokers since 3.0)."""
    EARLIEST_LOCAL = -4
    """Of the first record on the broker's own disk, with tiered storage (KIP-405; brokers since 3.4)."""
    LATEST_TIERED = -5
    """Of the last record that was copied to tiered storage (KIP-1005; brokers since 3.9); None without such storage."""


class ListedOffset(NamedTuple):
    """An offset with the timestamp of its record in ms (None where brokers return none) and the leader's epoch."""

    offset: int
    timestamp: int | None
    leader_epoch: int | None
