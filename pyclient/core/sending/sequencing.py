# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The order in which one partition's batches are sent, and their producer id, epoch and sequence.

Covers P15–P17, P19 and I01–I09. Independent of leaders, requests and clocks. Rules:

- Up to five batches are in flight, to one leader only, and only after it has stored one. A broker takes any first
  sequence of a producer it does not know: of two batches in flight it could store the second and never see the first.
  After a failure, and after a silence in which the broker may have forgotten the producer, there is one in flight
  again.
- A batch keeps its producer id, epoch and sequence through all attempts: by them the broker recognizes a repetition.
  When the broker lacks a sequence (a gap), the partition waits until nothing is in flight, starts a new epoch of its
  own, and numbers the waiting batches again.
"""
from __future__ import annotations

import enum
from typing import Final

from pyclient.buffers.batch import Batch
from pyclient.core.sending.produce_outcome import GiveUp, ProduceOutcome, Stored, TryAgain
from pyclient.core.transitions import Transitions
from pyclient.errors import DuplicateSequenceError, InvalidProducerEpochError, OutOfOrderSequenceError, UnknownProducerIdError

LAST_EPOCH: Final = 2**15 - 1
SEQUENCES: Final = 2**31
"""After the last one comes 0 again (I01)."""
PRODUCER_EXPIRATION: Final = 60.0
"""Seconds of silence after which a broker may have forgotten a producer: shorter than any sensible
``producer.id.expiration.ms``.
"""


class SequenceState(enum.Enum):
    """How many batches a partition may have in flight."""

    __hash__ = object.__hash__  # as of `pyclient.core.manager.Use`

    PROBING = "one batch at a time"
    FLOWING = "as many as the broker remembers, to recognize repetitions"
    DRAINING = "no more; when none is in flight, a new epoch starts"


class SequenceEvent(enum.Enum):
    """What happens to a partition's batches."""

    __hash__ = object.__hash__

    STORED = "the broker has stored one"
    FAILED = "one will be sent again, or was given up though the broker may have it"
    MOVED = "the next leader may not know the producer"
    GAP = "the broker lacks a sequence before the next ones"
    BEGUN = "a new epoch starts"


SEQUENCE_TRANSITIONS: Final[Transitions[SequenceState, SequenceEvent]] = Transitions("sequence", {
    (SequenceState.PROBING, SequenceEvent.STORED): SequenceState.FLOWING,
    (SequenceState.PROBING, SequenceEvent.FAILED): SequenceState.PROBING,
    (SequenceState.PROBING, SequenceEvent.MOVED): SequenceState.PROBING,
    (SequenceState.PROBING, SequenceEvent.GAP): SequenceState.DRAINING,
    (SequenceState.FLOWING, SequenceEvent.STORED): SequenceState.FLOWING,
    (SequenceState.FLOWING, SequenceEvent.FAILED): SequenceState.PROBING,
    (SequenceState.FLOWING, SequenceEvent.MOVED): SequenceState.PROBING,
    (SequenceState.FLOWING, SequenceEvent.GAP): SequenceState.DRAINING,
    (SequenceState.DRAINING, SequenceEvent.STORED): SequenceState.DRAINING,
    (SequenceState.DRAINING, SequenceEvent.FAILED): SequenceState.DRAINING,
    (SequenceState.DRAINING, SequenceEvent.GAP): SequenceState.DRAINING,
    (SequenceState.DRAINING, SequenceEvent.BEGUN): SequenceState.PROBING,
})


PROBING, FLOWING, DRAINING = SequenceState.PROBING, SequenceState.FLOWING, SequenceState.DRAINING
STORED, FAILED, MOVED, GAP, BEGUN = (
    SequenceEvent.STORED, SequenceEvent.FAILED, SequenceEvent.MOVED, SequenceEvent.GAP, SequenceEvent.BEGUN)
_TABLE: Final = SEQUENCE_TRANSITIONS


class Leader:
    """A partition's leader: the node, the topic's id as in requests (None: the brokers have none), its epoch."""

    def __init__(self, node: int, topic_id: bytes | None = None, epoch: int = -1) -> None:
        self.node = node
        self.topic_id = topic_id
        self.epoch = epoch

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Leader) and (self.node, self.topic_id, self.epoch) == (other.node, other.topic_id, other.epoch))

    def __repr__(self) -> str:
        return f"Leader({self.node}, {self.topic_id!r}, {self.epoch})"


class PartitionSequence:
    """The batches of one partition that are in flight, in the order of their sequences; at most *limit*.

    *stamps* is False for a producer that is not idempotent: no batch is numbered, and one at a time keeps the order
    (P17).
    """

    def __init__(self, limit: int, stamps: bool = True) -> None:
        self.limit = limit
        self.stamps = stamps
        self.state = SequenceState.PROBING
        self.in_flight: list[Batch] = []
        self.idle_since = 0.0
        """When the last request ended, in seconds of the client's clock."""
        self.leader: Leader | None = None
        self.producer_id: int | None = None
        self.epoch = 0
        self.next_sequence = 0

    def has_room(self, to: Leader) -> bool:
        """Whether a batch may leave now. While others are in flight, only to the same leader."""
        if not self.in_flight:
            return True
        return self.stamps and self.state is FLOWING and len(self.in_flight) < self.limit and (to is self.leader or to == self.leader)

    def may_send(self, batch: Batch) -> bool:
        """Whether the partition's next batch may leave: one that was sent before goes alone."""
        return not self.in_flight or not batch.stamped

    def prepare(self, now: float, to: Leader, producer_id: int) -> bool:
        """Before a batch leaves while none is in flight: follow the leader, and start a new epoch if one is needed.

        *producer_id* is taken by a partition that has none, or has used its last epoch. True: a new epoch has started,
        so the waiting batches have no numbers any more.
        """
        if self.in_flight:
            return False
        if self.leader is not None and self.state is not DRAINING:
            self._follow(self.leader, to, now - self.idle_since)
        if self.state is DRAINING:
            self._begin(producer_id)
            return True
        if self.producer_id is None:
            self.producer_id = producer_id
        return False

    def _follow(self, before: Leader, to: Leader, idle: float) -> None:
        same = before is to  # nearly always: comparing ids of topics takes longer
        if not same and before.topic_id not in (None, to.topic_id):
            self._step(GAP)  # the topic was deleted and created again: the new one has no batch of the old one
        elif (not same and before != to) or idle > PRODUCER_EXPIRATION:
            self._step(MOVED)

    def _begin(self, producer_id: int) -> None:
        self.epoch, self.next_sequence = self.epoch + 1, 0
        if self.epoch > LAST_EPOCH:
            self.producer_id, self.epoch = producer_id, 0
        self._step(BEGUN)

    @property
    def needs_new_id(self) -> bool:
        """Whether the next epoch needs another producer id."""
        return self.state is DRAINING and self.epoch == LAST_EPOCH

    def sent(self, batch: Batch, to: Leader) -> None:
        """The batch leaves. Its first attempt numbers it, and it keeps the number (P16)."""
        if self.stamps and not batch.stamped:
            assert self.producer_id is not None
            batch.stamp(self.producer_id, self.epoch, self.next_sequence)
            self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES
        self.leader = to
        self.in_flight.append(batch)

    def ended(self, batch: Batch, now: float) -> None:
        """Its request has ended, with or without an answer."""
        if self.in_flight[0] is batch:  # nearly always
            del self.in_flight[0]
        else:
            self.in_flight.remove(batch)
        self.idle_since = now

    def stored(self) -> None:
        """The broker has stored the batch whose request just ended."""
        self._step(STORED)

    def failed(self) -> None:
        """A batch will be sent again, or was given up though the broker may have it: its sequence counts as used."""
        self._step(FAILED)

    def interpret(self, batch: Batch, outcome: ProduceOutcome, first: bool) -> ProduceOutcome:
        """What a sequence error means for this partition; *first*: no unsettled batch of it precedes this one."""
        if not isinstance(outcome, GiveUp) or not batch.stamped:
            return outcome
        error = outcome.error
        if isinstance(error, DuplicateSequenceError):
            return Stored(-1)  # an earlier attempt was stored; the broker has forgotten the offset (I03)
        if isinstance(error, OutOfOrderSequenceError) and not first:
            return TryAgain(error)  # the batches before it must be stored first (I04)
        if isinstance(error, OutOfOrderSequenceError | UnknownProducerIdError):
            # The broker would recognize a repetition of any batch that was in flight: no waiting batch is stored.
            batch.in_doubt = False
            self.gap()
            return TryAgain(error)
        if isinstance(error, InvalidProducerEpochError) and not batch.in_doubt:
            self.leave_id()
            return TryAgain(error)
        return outcome

    def gap(self) -> None:
        """The broker will refuse the next sequences, as it lacks one before them."""
        self._step(GAP)

    def leave_id(self) -> None:
        """Another producer has written under this producer id: the next epoch starts under another id."""
        self.epoch = LAST_EPOCH
        self._step(GAP)

    def _step(self, event: SequenceEvent) -> None:
        self.state = _TABLE.after(self.state, event)
