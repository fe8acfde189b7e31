# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The order of one partition's batches in transactions: as `PartitionSequence`, under the transactions' producer epoch.

A gap cannot be closed by an epoch of the partition's own: it ends the transaction. The partition sends no more until
the transactions have a new epoch, and begins with sequence 0 then.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pyclient.buffers.batch import Batch
from pyclient.core.sending.produce_outcome import ProduceOutcome, GiveUp, Stored, TryAgain
from pyclient.core.sending.sequencing import PRODUCER_EXPIRATION, SEQUENCES, Leader, PartitionSequence, SequenceEvent, SequenceState
from pyclient.core.transactions.calls import ProducerId
from pyclient.errors import DuplicateSequenceError, OutOfOrderSequenceError


class Epochs(Protocol):
    """Where the present producer id and epoch come from."""

    producer: ProducerId


class TransactionalSequence(PartitionSequence):
    """The batches of one partition that are in flight, within transactions."""

    def __init__(self, limit: int, epochs: Epochs) -> None:
        PartitionSequence.__init__(self, limit)
        self.epochs = epochs

    @property
    def is_broken(self) -> bool:
        """Whether the broker would refuse the next sequences of this epoch."""
        return self.state is SequenceState.DRAINING

    @property
    def needs_new_id(self) -> bool:
        """False: the coordinator gives a new one in time."""
        return False

    def has_room(self, to: Leader) -> bool:
        """As `PartitionSequence.has_room`; none while it is broken."""
        self._follow_epoch()
        return not self.is_broken and PartitionSequence.has_room(self, to)

    def prepare(self, now: float, to: Leader, producer_id: int) -> bool:
        """Before a batch leaves while none is in flight: follow the leader. Epochs are the coordinator's: False."""
        if not self.in_flight and self.leader is not None and (self.leader != to or now - self.idle_since > PRODUCER_EXPIRATION):
            self._step(SequenceEvent.MOVED)
        return False

    def sent(self, batch: Batch, to: Leader) -> None:
        """As `PartitionSequence.sent`; the batch is part of the transaction."""
        if not batch.stamped:
            self._number(batch, self.next_sequence)
            self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES
        PartitionSequence.sent(self, batch, to)

    def renumber(self, halves: Iterable[Batch], first: int) -> None:
        """The halves of a batch take its sequences, from *first* on (P20)."""
        for half in halves:
            self._number(half, first)
            first = (first + half.count) % SEQUENCES

    def interpret(self, batch: Batch, outcome: ProduceOutcome, first: bool) -> ProduceOutcome:
        """What a sequence error means here: only those before it may still be missing."""
        if isinstance(outcome, GiveUp) and batch.stamped:
            if isinstance(outcome.error, DuplicateSequenceError):
                return Stored(-1)
            if isinstance(outcome.error, OutOfOrderSequenceError) and not first:
                return TryAgain(outcome.error)
        return outcome

    def _number(self, batch: Batch, sequence: int) -> None:
        assert self.producer_id is not None
        batch.stamp(self.producer_id, self.epoch, sequence, transactional=True)

    def _follow_epoch(self) -> None:
        """Begin with sequence 0 in a new epoch; between transactions nothing is in flight."""
        present = self.epochs.producer
        if (self.producer_id, self.epoch) != present and not self.in_flight:
            self.producer_id, self.epoch = present
            self.next_sequence = 0
            self._step(SequenceEvent.BEGUN if self.is_broken else SequenceEvent.MOVED)
