"""A log's state of idempotent producers (KIP-98): epoch, last five batches, open transaction."""
from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.batch import NO_PRODUCER, Batch
from pyclient.testing.fake.model.refusal import RefusalError

REMEMBERED: Final = 5
"""Batches per producer that are recognised as duplicates; also the limit of requests in flight."""
NO_EPOCH: Final = -1
LAST_SEQUENCE: Final = 2**31 - 1


class Written(NamedTuple):
    """A batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Joining(NamedTuple):
    """A producer asked to join its first batch of a transaction here; none is in the log yet."""

    epoch: int
    lowest_sequence: int
    """Of those that it asked for in this epoch: a batch after it would leave a gap."""
    begins_at_0: bool
    """With protocol V2 each epoch does."""


class Aborted(NamedTuple):
    """A transaction that was rolled back; its records are still in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    """That of its marker."""


@attrs.define(eq=False)
class Producer:
    """One producer id."""

    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    timestamp: int = -1
    written: deque[Written] = attrs.field(factory=lambda: deque(maxlen=REMEMBERED))

    def take(self, epoch: int, timestamp: int) -> None:
        """Record a write; batches of an older epoch are dropped."""
        if epoch != self.epoch:
            self.written.clear()
            self.epoch = epoch
        self.timestamp = timestamp


class Producers:
    """All producers of one log."""

    def __init__(self) -> None:
        self.known: dict[int, Producer] = {}
        self.aborted: list[Aborted] = []
        self._joining: dict[int, Joining] = {}
        self._open: dict[int, int] = {}  # producer → first offset of its transaction; the oldest comes first
        self._deciding: list[tuple[int, int]] = []  # transactions that have ended: first offset, offset of the marker

    def repeated(self, batch: Batch) -> Written | None:
        """Where this batch is in the log already, if it is one of its producer's last five."""
        known = self.known.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            return None
        sequences = (batch.base_sequence, batch.last_sequence)
        return next((each for each in known.written if each[:2] == sequences), None)

    def check(self, batch: Batch) -> None:
        """Whether a client's batch may be appended next.

        Raises:
            RefusalError: its epoch is old, or records before it are missing.
        """
        known, joining = self.known.get(batch.producer_id), self._joining.get(batch.producer_id)
        is_new = known is None or known.epoch == NO_EPOCH
        if known is not None:
            _check_epoch(known, batch.producer_epoch)
        if joining is not None and (batch.base_sequence > joining.lowest_sequence or (is_new and joining.begins_at_0 and batch.base_sequence)):
            raise RefusalError(ErrorCode.out_of_order_sequence_number)
        if known is None or is_new:
            return  # forgotten, or never seen: any sequence is taken
        if batch.producer_id in self._open and not batch.is_transactional:
            raise RefusalError(ErrorCode.invalid_txn_state)
        if batch.producer_epoch > known.epoch:
            follows = batch.base_sequence == 0
        else:
            follows = _follows(known.written[-1].last_sequence if known.written else -1, batch.base_sequence)
        if not follows:
            raise RefusalError(ErrorCode.out_of_order_sequence_number)

    def check_marker(self, batch: Batch, coordinator_epoch: int) -> None:
        """Whether a marker may be appended: neither its producer nor its coordinator may be fenced."""
        known = self.known.get(batch.producer_id)
        if known is None:
            return
        _check_epoch(known, batch.producer_epoch)
        if coordinator_epoch < known.coordinator_epoch:
            raise RefusalError(ErrorCode.transaction_coordinator_fenced)

    def appended(self, batch: Batch) -> None:
        """A batch is in the log now."""
        if batch.producer_id == NO_PRODUCER:
            return
        known = self.known.setdefault(batch.producer_id, Producer())
        known.take(batch.producer_epoch, batch.max_timestamp)
        if batch.is_control:
            self._ended(known, batch)
            return
        known.written.append(Written(batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset,
                                     batch.max_timestamp))
        if batch.is_transactional:
            self._joining.pop(batch.producer_id, None)
            self._open.setdefault(batch.producer_id, batch.base_offset)

    def _ended(self, known: Producer, batch: Batch) -> None:
        marker = batch.marker()
        known.coordinator_epoch = marker.coordinator_epoch
        first = self._open.pop(batch.producer_id, None)
        if first is None:
            return
        self._deciding.append((first, batch.last_offset))
        if not marker.commits:
            self.aborted.append(Aborted(batch.producer_id, first, batch.last_offset))

    def opened_at(self, producer_id: int) -> int | None:
        """The first offset of a producer's open transaction; None while it has none."""
        return self._open.get(producer_id)

    def first_unstable(self, high_watermark: int) -> int | None:
        """Where the oldest transaction begins whose end is not committed yet."""
        if not self._open and not self._deciding:
            return None
        if self._deciding:
            self._deciding = [each for each in self._deciding if each[1] >= high_watermark]
        began = [*(first for first, _ in self._deciding), *self._open.values()]
        return min(began, default=None)

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer has a transaction open here, begun in this epoch."""
        return producer_id in self._open and self.known[producer_id].epoch == epoch

    def join(self, batch: Batch, *, begins_at_0: bool) -> None:
        """A producer asks to join its first batch of a transaction here."""
        before = self._joining.get(batch.producer_id)
        lowest, epoch = batch.base_sequence, batch.producer_epoch
        if before is not None and epoch <= before.epoch:
            lowest, epoch = min(lowest, before.lowest_sequence) if epoch == before.epoch else before.lowest_sequence, before.epoch
        self._joining[batch.producer_id] = Joining(epoch, lowest, before.begins_at_0 if before is not None else begins_at_0)

    def expire(self, older_than: int) -> None:
        """Forget producers that wrote nothing since this timestamp and have no transaction open."""
        for producer_id, known in list(self.known.items()):
            if known.timestamp <= older_than and producer_id not in self._open:
                del self.known[producer_id]

    def begin_at(self, start: int) -> None:
        """The log begins here now; aborted transactions before it are of no use."""
        if self.aborted:
            self.aborted = [each for each in self.aborted if each.last_offset >= start]


def _check_epoch(known: Producer, epoch: int) -> None:
    if epoch < known.epoch:
        raise RefusalError(ErrorCode.invalid_producer_epoch)


def _follows(last: int, following: int) -> bool:
    return following == last + 1 or (following == 0 and last == LAST_SEQUENCE)
