"""One partition's order of sending: what may leave next, under which producer id, epoch and sequence (P15–P17, P19, I01–I09).

Knows batches and what became of them; knows no leaders, requests or clocks. Rules:

- Up to five batches are under way, to one leader only, and not before it has stored one (a broker takes any first sequence
  of a producer it does not know, so of two the first may be lost unseen). After any failure they go one by one again, and after
  a silence in which the broker may have forgotten the producer.
- A batch keeps its stamp through all attempts: the broker tells repetitions by it. A sequence that the broker lacks is a gap:
  the partition waits until nothing is under way, takes a new epoch of its own, and stamps what waits anew.
"""
from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, NamedTuple

import attrs

from pyclient.buffers.batch import Batch
from pyclient.core.sending.produce_outcome import GiveUp, Stored, TryAgain, Verdict
from pyclient.core.transitions import Transitions
from pyclient.errors import DuplicateSequenceError, InvalidProducerEpochError, OutOfOrderSequenceError, UnknownProducerIdError

LAST_EPOCH: Final = 2**15 - 1
SEQUENCES: Final = 2**31
"""After the last one comes 0 again (I01)."""
REMEMBERED: Final = 60.0
"""Seconds of silence after which a broker may have forgotten a producer: by far the least that somebody would set as producer.id.expiration.ms."""


class SequenceState(enum.Enum):
    """How much a partition may have under way."""

    PROBING = "one batch at a time"
    FLOWING = "as many as the broker remembers"
    DRAINING = "nothing more; when nothing is under way, a new epoch begins"


class SequenceEvent(enum.Enum):
    """What happens to a partition's batches."""

    STORED = "the broker has one"
    FAILED = "one came back, or is given up, and may be stored or not"
    MOVED = "a leader is to take them that may not know the producer"
    GAP = "the broker lacks a sequence before those that come"
    BEGUN = "a new epoch begins"


LANES: Final = Transitions("lane", {
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


class Leader(NamedTuple):
    """Who takes a partition's batches: the node, which topic of that name it was (None: brokers that have no ids), and the epoch it leads in."""

    node: int
    topic_id: object = None
    epoch: int = -1


@attrs.define(eq=False)
class PartitionSequence:
    """The batches of one partition that were sent, in the order of their sequences. *limit* is how many may be under way."""

    limit: int
    stamps: bool = True
    """False: nothing is stamped, and one batch at a time keeps the order (P17)."""
    state: SequenceState = SequenceState.PROBING
    under_way: list[Batch] = attrs.field(factory=list)
    idle_since: float = 0.0
    """When the last request ended, in seconds of the client's clock."""
    leader: Leader | None = None
    producer_id: int | None = None
    epoch: int = 0
    next_sequence: int = 0

    def has_room(self, to: Leader) -> bool:
        """Whether anything may leave now. Beside what is under way only to the same leader."""
        if not self.under_way:
            return True
        return self.stamps and self.state is SequenceState.FLOWING and to == self.leader and len(self.under_way) < self.limit

    def may_send(self, batch: Batch) -> bool:
        """Whether this one may, the partition's next: what was sent before goes alone."""
        return not self.under_way or not batch.stamped

    def prepare(self, now: float, to: Leader, producer_id: int, unstamp: Callable[[], object]) -> None:
        """Before a batch leaves with nothing under way: follow the leader, and begin a new epoch where one is needed.

        *producer_id* is for who has none, or has used up its epochs; *unstamp* takes the stamps off what waits.
        """
        if self.under_way:
            return
        if self.leader is not None and self.state is not SequenceState.DRAINING:
            self._follow(self.leader, to, idle=now - self.idle_since)
        if self.state is SequenceState.DRAINING:
            unstamp()
            self._begin(producer_id)
        elif self.producer_id is None:
            self.producer_id = producer_id

    def _follow(self, before: Leader, to: Leader, *, idle: float) -> None:
        if before.topic_id not in (None, to.topic_id):
            self._step(SequenceEvent.GAP)  # a topic made anew knows nothing of what its namesake was told
        elif before != to or idle > REMEMBERED:
            self._step(SequenceEvent.MOVED)

    def _begin(self, producer_id: int) -> None:
        self.epoch, self.next_sequence = self.epoch + 1, 0
        if self.epoch > LAST_EPOCH:
            self.producer_id, self.epoch = producer_id, 0
        self._step(SequenceEvent.BEGUN)

    @property
    def has_spent_its_id(self) -> bool:
        """Whether the next epoch needs another producer id."""
        return self.state is SequenceState.DRAINING and self.epoch == LAST_EPOCH

    def sent(self, batch: Batch, to: Leader) -> None:
        """The batch leaves; with its first attempt it gets its stamp, once and for all (P16)."""
        if self.stamps and not batch.stamped:
            assert self.producer_id is not None
            batch.stamp(self.producer_id, self.epoch, self.next_sequence)
            self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES
        self.leader = to
        self.under_way.append(batch)

    def ended(self, batch: Batch, now: float) -> None:
        """Its request has ended, however."""
        self.under_way.remove(batch)
        self.idle_since = now

    def stored(self) -> None:
        """The broker has a batch that had just ended."""
        self._step(SequenceEvent.STORED)

    def failed(self) -> None:
        """A batch came back, or was given up though the broker may have it: its sequence counts as used."""
        self._step(SequenceEvent.FAILED)

    def judged(self, batch: Batch, verdict: Verdict, *, first: bool) -> Verdict:
        """What an answer about sequences means here; *first*: no batch of the partition stands before this one."""
        if not isinstance(verdict, GiveUp) or not batch.stamped:
            return verdict
        match verdict.error:
            case DuplicateSequenceError():
                return Stored(-1)  # an earlier attempt was stored, where is forgotten (I03)
            case OutOfOrderSequenceError() as error if not first:
                return TryAgain(error)  # those before it come first (I04)
            case OutOfOrderSequenceError() | UnknownProducerIdError() as error:
                # The broker would know a repetition of any batch that was under way: none of those that wait is stored.
                batch.in_doubt = False
                self.gap()
                return TryAgain(error)
            case InvalidProducerEpochError() as error if not batch.in_doubt:
                self.disown()
                return TryAgain(error)
        return verdict

    def gap(self) -> None:
        """The broker will not take what comes under the sequences it has."""
        self._step(SequenceEvent.GAP)

    def disown(self) -> None:
        """Somebody else has written under this producer id: the next epoch begins under another."""
        self.epoch = LAST_EPOCH
        self._step(SequenceEvent.GAP)

    def _step(self, event: SequenceEvent) -> None:
        self.state = LANES.after(self.state, event)
