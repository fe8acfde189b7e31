"""The state of each transactional id (KIP-98, KIP-890): one table of states, and the coordinator's decisions."""
from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.refusal import RefusalError

LAST_EPOCH: Final = 2**15 - 2
"""After it a transactional id gets another producer id; the greatest number is for the coordinator's own fencing."""
NONE: Final = -1
Place = tuple[str, int]
"""Topic and partition."""


class State(enum.Enum):
    """The names of DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


class Event(enum.Enum):
    """What moves a transaction on."""

    INIT = "init"
    ADD = "add"
    COMMIT = "commit"
    ABORT = "abort"
    WRITTEN = "markers written"


RESTING: Final = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
"""No transaction is open."""
MOVES: Final[Mapping[tuple[State, Event], State]] = {
    **{(state, Event.INIT): State.EMPTY for state in RESTING},
    **{(state, Event.ADD): State.ONGOING for state in (*RESTING, State.ONGOING)},
    **{(state, Event.ABORT): State.PREPARE_ABORT for state in (*RESTING, State.ONGOING)},  # at rest: only with protocol V2
    (State.ONGOING, Event.COMMIT): State.PREPARE_COMMIT,
    (State.PREPARE_COMMIT, Event.WRITTEN): State.COMPLETE_COMMIT,
    (State.PREPARE_ABORT, Event.WRITTEN): State.COMPLETE_ABORT,
}
COMPLETING: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
DONE: Final = {Event.COMMIT: State.COMPLETE_COMMIT, Event.ABORT: State.COMPLETE_ABORT}
"""In these an EndTxn is a repetition."""


class Producer(NamedTuple):
    """A producer id and its epoch."""

    id: int
    epoch: int


@attrs.define(eq=False)
class Transaction:
    """What the coordinator keeps of one transactional id. Refusals are `RefusalError` and change nothing."""

    id: str
    producer_id: int
    timeout_ms: int
    epoch: int = NONE
    state: State = State.EMPTY
    last_epoch: int = NONE
    """That before the present one, whose owner may repeat its request."""
    previous_producer_id: int = NONE
    next_producer_id: int = NONE
    """Takes over once the markers of the exhausted one are written (V2)."""
    bumped: bool = False
    """The last end was V2's: it went on to the next epoch."""
    began_ms: int = NONE
    partitions: set[Place] = attrs.field(factory=set)

    @property
    def producer(self) -> Producer:
        """The present owner."""
        return Producer(self.producer_id, self.epoch)

    @property
    def following(self) -> Producer:
        """Who goes on after the end: the owner, or a new producer id."""
        return self.producer if self.next_producer_id == NONE else Producer(self.next_producer_id, 0)

    @property
    def is_exhausted(self) -> bool:
        """Whether the next epoch needs another producer id."""
        return self.epoch >= LAST_EPOCH

    # ---- InitProducerId ----------------------------------------------------------------------------------------------

    def init(self, timeout_ms: int, expected: Producer | None, fresh_id: Callable[[], int]) -> None:
        """Let a producer take over, or go on under its next epoch if it names itself (KIP-360). None may be open."""
        if self.is_exhausted and (expected is None or expected.epoch == self.epoch):
            self.last_epoch = self.epoch if expected else NONE
            self._rotate(fresh_id())
        else:
            self._bump(expected)
        self.timeout_ms, self.began_ms = timeout_ms, NONE
        self._move(Event.INIT)

    def check_owner(self, expected: Producer | None) -> None:
        """Whether it may initialize: a new producer, the owner, or who was it before its epochs were exhausted."""
        self._must_be_settled()
        if expected is None or self.epoch == NONE or expected.id == self.producer_id:
            return
        if expected.id != self.previous_producer_id or expected.epoch < LAST_EPOCH:
            raise RefusalError(ErrorCode.producer_fenced)

    def _bump(self, expected: Producer | None) -> None:
        if expected is None:
            self.last_epoch, self.epoch = NONE, self.epoch + 1
        elif expected.epoch == self.epoch or self.epoch == NONE:
            self.last_epoch, self.epoch = self.epoch, self.epoch + 1
        elif expected.epoch != self.last_epoch:
            raise RefusalError(ErrorCode.producer_fenced)

    def _rotate(self, producer_id: int) -> None:
        self.previous_producer_id, self.producer_id, self.epoch = self.producer_id, producer_id, 0

    # ---- adding ------------------------------------------------------------------------------------------------------

    def add(self, producer: Producer, partitions: Iterable[Place], now_ms: int) -> bool:
        """Partitions join the transaction, which begins with the first; returns whether it began now."""
        self.check(producer)
        begins = self.state is not State.ONGOING
        if begins:
            self.began_ms = now_ms
        self.bumped = False if begins else self.bumped
        self.partitions.update(partitions)
        self._move(Event.ADD)
        return begins

    def check(self, producer: Producer) -> None:
        """Whether no end is being written, and the request is of the present owner."""
        self._must_be_settled()
        if producer.id != self.producer_id:
            raise RefusalError(ErrorCode.invalid_producer_id_mapping)
        if producer.epoch != self.epoch:
            raise RefusalError(ErrorCode.producer_fenced)

    def verify(self, producer: Producer, partition: Place) -> None:
        """Whether this partition belongs to the transaction."""
        self.check(producer)
        if partition not in self.partitions:
            raise RefusalError(ErrorCode.transaction_abortable)

    # ---- ending ------------------------------------------------------------------------------------------------------

    def end(self, producer: Producer, event: Event) -> bool:
        """EndTxn up to version 4; returns whether markers must be written now, else it is a repetition."""
        if producer.id != self.producer_id:
            raise RefusalError(ErrorCode.invalid_producer_id_mapping)
        if producer.epoch != self.epoch:
            raise RefusalError(ErrorCode.producer_fenced)
        if self.state is not State.ONGOING:
            self._must_repeat(event)
            return False
        self.bumped = False
        self._move(event)
        return True

    def end_and_bump(self, producer: Producer, event: Event, now_ms: int, fresh_id: Callable[[], int]) -> bool:
        """EndTxn since version 5: each end begins the next epoch, and also an empty transaction can be aborted."""
        exhausted = producer == (self.previous_producer_id, LAST_EPOCH) and self.epoch == 0
        repeats = exhausted or (self.bumped and producer.epoch + 1 == self.epoch)
        if producer.id != self.producer_id and not exhausted:
            raise RefusalError(ErrorCode.invalid_producer_id_mapping)
        present = producer.epoch == self.epoch and self.state not in COMPLETING
        if not present and not (repeats and self.state in (*COMPLETING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)):
            raise RefusalError(ErrorCode.producer_fenced)
        if repeats:
            self._must_repeat(event)
            return False
        if self.state is not State.ONGOING and event is Event.COMMIT:
            raise RefusalError(ErrorCode.invalid_txn_state)
        if self.state is not State.ONGOING:
            self.began_ms = now_ms
        if self.is_exhausted:
            self.next_producer_id = fresh_id()
        self._next_epoch()
        self._move(event)
        return True

    def fence(self, *, bump: bool) -> None:
        """Abort an open transaction and shut its owner out; *bump* with protocol V2."""
        if bump:
            self._next_epoch()
        else:
            self.last_epoch, self.epoch, self.bumped = NONE, self.epoch + 1, False
        self._move(Event.ABORT)

    def _next_epoch(self) -> None:
        self.last_epoch, self.epoch, self.bumped = self.epoch, self.epoch + 1, True

    def complete(self) -> None:
        """All markers are written."""
        if self.next_producer_id != NONE:
            self.last_epoch = self.epoch
            self._rotate(self.next_producer_id)
            self.next_producer_id = NONE
        self.partitions.clear()
        self._move(Event.WRITTEN)

    def _must_repeat(self, event: Event) -> None:
        self._must_be_settled()
        if self.state is not DONE[event]:
            raise RefusalError(ErrorCode.invalid_txn_state)

    def _must_be_settled(self) -> None:
        if self.state in COMPLETING:
            raise RefusalError(ErrorCode.concurrent_transactions)

    def _move(self, event: Event) -> None:
        self.state = MOVES[self.state, event]
