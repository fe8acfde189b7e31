"""Decides what a transactional producer asks of its coordinators, and when (T01–T11).

Covers init, begin, offsets, commit and abort. Knows states, calls and errors; the `Sender` sends the records and is
asked here whether a partition's batches may leave. One request is in flight at a time; `Calls` finds the coordinator
and repeats what may be repeated.
Rules: the send gate is open in state IN_TRANSACTION only. The protocol (V1 or V2, KIP-890) changes only between
transactions. After a failure of protocol V1 the producer gets a new epoch, as sequences may be missing. No
request of a transaction leaves before `MarkerPause` allows it.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyclient.codec.apis import Api, VersionRange
from pyclient.core.calls import Call, Calls
from pyclient.core.handshake import Features
from pyclient.core.manager import Manager, Ready, Request
from pyclient.core.transactions.calls import (
    NO_ID, V1, V2, OpenTransaction, ProducerId, add_offsets_call, add_partitions_call, end_call, init_call, offsets_call,
)
from pyclient.core.transactions.marker_pause import MarkerPause
from pyclient.core.transactions.meaning import Meaning, meaning
from pyclient.core.transactions.progress import OffsetCommit, Pending, Progress, Records
from pyclient.core.transactions.states import TRANSACTION, TransactionEvent, TransactionState, is_legal, legal_calls
from pyclient.errors import (
    ApplicationRecoverableError, IllegalStateError, KafkaError, TransactionAbortableError, UnknownProducerIdError, raisable, sentence,
)
from pyclient.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

FEATURE: Final = "transaction.version"
V2_LEVEL: Final = 2
_OPEN: Final = (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING)
_ENDING: Final = (TransactionState.COMMITTING, TransactionState.ABORTING)
_ADVANCING: Final = frozenset((TransactionState.INITIALIZING, TransactionState.ABORTABLE_ERROR, *_ENDING))
"""What a poll does something in, whatever else there is."""


class Transactions(Manager):
    """The manager of one producer's transactions."""

    def __init__(self, transactional_id: str, timeout: float, calls: Calls, features: Callable[[], Features]) -> None:
        """*timeout* is transaction_timeout_ms in seconds."""
        self.needs_poll = False
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.producer = NO_ID
        self.protocol = V1
        self.records: Records | None = None
        self.on_gate: Callable[[KafkaError | None], object] = lambda error: None
        self.on_failure: Callable[[KafkaError], object] = lambda error: None
        self.markers = MarkerPause()
        self._timeout = timeout
        self._calls = calls
        self._features = features
        self._call: Call | None = None
        self._pending: Pending | None = None
        self._progress = Progress()
        self._admitted = 0
        self._holds = False  # batches, until the markers of the last transaction are written
        self._fatal: KafkaError | None = None

    # ---- calls of the user ------------------------------------------------------------------------------------------

    def initialize(self, transactional_id: str | None = None) -> Pending:
        """Get a producer id; under another id while no transaction is open.

        Raises:
            IllegalStateError: a transaction is open, or it is initialized already.
        """
        if self._repeats(TransactionEvent.INITIALIZE) is None:
            if self.state is TransactionState.READY and transactional_id is None:
                raise self._illegal(TransactionEvent.INITIALIZE, "It is initialized already; another transactional_id may be given.")
            self._step(TransactionEvent.INITIALIZE)
            self.transactional_id = transactional_id or self.transactional_id
        return self._begin_pending(TransactionEvent.INITIALIZE)

    def begin(self, now: float) -> Pending:
        """Open a transaction; records may be sent from now on."""
        self._check(TransactionEvent.BEGIN)
        if self.protocol is V2 and not self.allows_v2():
            self.protocol = V1
        self._progress = Progress(deadline=now + self._timeout)
        self._step(TransactionEvent.BEGIN)
        return Pending(TransactionEvent.BEGIN, done=True)

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: ConsumerGroupMetadata) -> Pending:
        """Commit *offsets* of a group with the transaction."""
        self._check(TransactionEvent.SEND_OFFSETS)
        commit = OffsetCommit(member, dict(offsets), Pending(TransactionEvent.SEND_OFFSETS))
        if offsets:
            self._progress.offsets.append(commit)
        else:
            commit.pending.end()
        return commit.pending

    def commit(self) -> Pending:
        """Commit the transaction once all its records are acknowledged."""
        if self._repeats(TransactionEvent.COMMIT) is None:
            self._step(TransactionEvent.COMMIT)
            if self.records is not None:
                self.records.flush()
        return self._begin_pending(TransactionEvent.COMMIT)

    def abort(self) -> Pending:
        """Abort the transaction: records that have not left fail at once (T03)."""
        if self._repeats(TransactionEvent.ABORT) is None:
            self._step(TransactionEvent.ABORT)
            self._drop_offsets(_aborted())
        return self._begin_pending(TransactionEvent.ABORT)

    def take(self, pending: Pending) -> bool | None:
        """As `Pending.outcome`; the caller has it then, and other calls may follow."""
        try:
            taken = pending.outcome()
        except KafkaError:
            self._forget(pending)
            raise
        if taken:
            self._forget(pending)
        return taken

    @property
    def untaken(self) -> TransactionEvent | None:
        """The call whose outcome its caller has not got: it must be made again."""
        return None if self._pending is None else self._pending.call

    def has_ended(self, call: TransactionEvent) -> bool:
        """Whether this call has ended well, and its caller has not got the outcome."""
        pending = self._pending
        return pending is not None and pending.call is call and pending.done and pending.error is None

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that `abort` would end."""
        return is_legal(self.state, TransactionEvent.ABORT)

    def _forget(self, pending: Pending) -> None:
        if self._pending is pending:
            self._pending = None

    def _begin_pending(self, call: TransactionEvent) -> Pending:
        if self._pending is None:
            self._pending = Pending(call)
        return self._pending

    def _repeats(self, call: TransactionEvent) -> Pending | None:
        """The call of this kind whose caller has not got its outcome; None if *call* begins now.

        Raises:
            KafkaError: it is not allowed.
        """
        if self._pending is not None and self._pending.error is not None and self._pending.call is not call:
            self._pending = None  # it failed after its caller had stopped waiting: what follows is allowed or not by the state
        if self._pending is not None and self._pending.call is call:
            return self._pending
        self._check(call)
        return None

    def _check(self, call: TransactionEvent) -> None:
        if self._fatal is not None:
            raise raisable(self._fatal)
        if self._pending is not None and self._pending.call is not call:
            name = self._pending.call.value
            raise IllegalStateError(f"{call.value} is not allowed: {name} did not finish in time, and its outcome is not known. Call {name} again.")
        if not is_legal(self.state, call):
            if self.state is TransactionState.ABORTABLE_ERROR and call is not TransactionEvent.BEGIN and self._progress.error is not None:
                raise raisable(self._progress.error)
            raise self._illegal(call)

    def _illegal(self, call: TransactionEvent, why: str = "") -> IllegalStateError:
        legal = legal_calls(self.state)
        allowed = f"Allowed now: {', '.join(legal)}." if legal else "Wait until that has ended."
        return IllegalStateError(f"{call.value} is not allowed in state {self.state.name}: the producer {self.state.value}. {why or allowed}")

    # ---- the sender's questions -------------------------------------------------------------------------------------

    @property
    def current(self) -> int | None:
        """The producer id; None before there is one."""
        return None if self.producer is NO_ID else self.producer.id

    def want(self) -> None:
        """A batch waits for an id: it was sent in a transaction, so there is one."""

    def retire(self, producer_id: int) -> None:
        """Never needed: the coordinator gives a new id before the epochs of one are used up."""

    @property
    def last_error(self) -> KafkaError | None:
        """The last error of the request in flight."""
        return self._call.last_error if self._call is not None else None

    @property
    def produce_versions(self) -> VersionRange:
        """Of Produce, in the present protocol."""
        return self.protocol.produce

    def admits(self, tp: TopicPartition, now: float, *, repeated: bool) -> bool:
        """Whether a batch of this partition may leave; *repeated*: it left before (P15).

        In protocol V1 a partition is first added to the transaction; `admitted` rises when it is.
        """
        if self.state not in _OPEN:
            return repeated and self.state is not TransactionState.FATAL_ERROR
        if tp in self._progress.partitions:
            return True
        if self.protocol is V2:
            self._holds |= now < self.markers.due
            return now >= self.markers.due
        self._progress.wanted[tp] = None
        return False

    def admitted(self, now: float) -> int:
        """Rises when waiting batches may leave."""
        if self._holds and now >= self.markers.due:
            self._holds = False
            self._admitted += 1
        return self._admitted

    def left(self, tp: TopicPartition, now: float) -> None:
        """A batch of this partition leaves; in protocol V2 its broker adds it to the transaction."""
        self._progress.partitions[tp] = None
        self._progress.started = True
        self.markers.left(now)

    def batch_failed(self, error: KafkaError) -> None:
        """A batch of the transaction was given up."""
        self._progress.doubtful = True
        self._fail(Api.PRODUCE, error)

    def record_refused(self, error: KafkaError) -> None:
        """A record of a bulk was refused before it was queued: the transaction must not be committed without it."""
        if self.state is TransactionState.IN_TRANSACTION:
            self._break(error)

    # ---- the manager ------------------------------------------------------------------------------------------------

    def must_be_polled(self) -> bool:
        """As `Manager.must_be_polled`."""
        progress = self._progress
        return self._holds or (self._call is None and (bool(progress.wanted or progress.offsets) or self.state in _ADVANCING))

    def poll(self, now: float, ready: Ready) -> Iterable[Request]:
        """Submit the next call, if none is in flight; `Calls` emits its request."""
        if self._call is None:
            self._advance()
        return ()

    def next_deadline(self) -> float | None:
        """When batches may leave that wait for the markers of the last transaction."""
        return self.markers.due if self._holds else None

    def _advance(self) -> None:
        match self.state:
            case TransactionState.INITIALIZING:
                self._submit(init_call(self.transactional_id, self._timeout, self._on_id))
            case TransactionState.IN_TRANSACTION | TransactionState.COMMITTING:
                if not self._add_next() and self.state is TransactionState.COMMITTING and self._records_idle():
                    self._end_if_committing()
            case TransactionState.ABORTABLE_ERROR:
                self._fail_unsent()
            case TransactionState.ABORTING:
                self._fail_unsent()
                if self._records_idle():
                    self._end(commit=False)

    def _fail_unsent(self) -> None:
        """T03: no record that has not left may be stored now; who waits for one hears of it before the abort."""
        if self.records is not None:
            self._progress.doubtful |= self.records.fail_unsent(self._progress.error or _aborted())

    def _end_if_committing(self) -> None:
        """Finding that the records are settled may have found a failure."""
        if self.state is TransactionState.COMMITTING:
            self._end(commit=True)

    def _records_idle(self) -> bool:
        return self.records is None or self.records.idle()

    def _submit(self, call: Call) -> None:
        self._call = call
        call.not_before = self.markers.due
        self._calls.submit(call)

    def _transaction(self) -> OpenTransaction:
        return OpenTransaction(self.transactional_id, self.producer)

    # ---- partitions and offsets -------------------------------------------------------------------------------------

    def _add_next(self) -> bool:
        """Submit what the coordinators have to know before the end; returns False if that is nothing (T01)."""
        progress = self._progress
        if progress.wanted:
            wanted, progress.wanted = progress.wanted, {}
            self._submit(add_partitions_call(
                self._transaction(), wanted, lambda _, error: self._on_partitions(wanted, error), early=None if progress.partitions else self._too_early,
                deadline=progress.deadline))
        elif progress.offsets:
            self._send_offsets(progress.offsets[0])
        return self._call is not None

    def _send_offsets(self, commit: OffsetCommit) -> None:
        progress, group = self._progress, commit.member.group_id
        early = None if progress.started else self._too_early
        if self.protocol is V1 and group not in progress.groups:
            self._submit(add_offsets_call(self._transaction(), group, lambda _, error: self._on_group(group, error), early=early, deadline=progress.deadline))
            return
        progress.started = True
        self._submit(offsets_call(self._transaction(), commit.member, commit.offsets, self.protocol,
                                  lambda _, error: self._on_offsets(commit, error), early=early, deadline=progress.deadline))

    def _too_early(self) -> None:
        """The first request was refused. A batch that leaves before it is repeated must not count as the first."""
        self.markers.answered(0.0, refused=True)

    def _answered(self) -> None:
        """The call has ended that adds something to the transaction."""
        call, self._call = self._call, None
        if call is not None and call.sent_at:
            self.markers.answered(self._calls.took(call), refused=False)

    def _on_partitions(self, added: Mapping[TopicPartition, None], error: BaseException | None) -> None:
        self._answered()
        self._progress.partitions.update(added if error is None else {})
        self._progress.started |= error is None
        self._admitted += 1
        self._fail(Api.ADD_PARTITIONS_TO_TXN, error)

    def _on_group(self, group: str, error: BaseException | None) -> None:
        self._answered()
        if error is None:
            self._progress.groups.add(group)
            self._progress.started = True
        self._fail(Api.ADD_OFFSETS_TO_TXN, error)

    def _on_offsets(self, commit: OffsetCommit, error: BaseException | None) -> bool:
        self._answered()
        if error is None and commit in self._progress.offsets:
            self._progress.offsets.remove(commit)
            commit.pending.end()
        self._fail(Api.TXN_OFFSET_COMMIT, error)
        return self.state is TransactionState.IN_TRANSACTION and not self._progress.offsets and not self._progress.wanted

    def _drop_offsets(self, error: KafkaError) -> None:
        dropped, self._progress.offsets = self._progress.offsets, []
        self._progress.wanted = {}
        for commit in dropped:
            commit.pending.end(error)

    # ---- beginning and end ------------------------------------------------------------------------------------------

    def _on_id(self, producer: ProducerId | None, error: BaseException | None) -> None:
        self._call = None
        if producer is not None:
            self.markers.clear()
            self.producer = producer
            self.protocol = V2 if self.allows_v2() else V1
            self._step(TransactionEvent.INITIALIZED)
            self._end_pending(None)
        elif isinstance(error, KafkaError):
            if meaning(Api.INIT_PRODUCER_ID, error) is Meaning.REFUSED:
                self._step(TransactionEvent.REFUSED)
                self._end_pending(error)
            else:
                self._poison(error)

    def _end(self, *, commit: bool) -> None:
        if not self._progress.started:
            self._after_end()
        else:
            self._submit(self._end_call(commit=commit))

    def _end_call(self, *, commit: bool) -> Call:
        return end_call(self._transaction(), self.protocol, lambda following, error: self._on_end(following, error, commit=commit), commit=commit)

    def _on_end(self, following: ProducerId | None, error: BaseException | None, *, commit: bool) -> bool:
        call, self._call = self._call, None
        if call is not None:
            self.markers.ended(call.sent_at + self._calls.took(call), self._calls.took(call))
        if isinstance(error, KafkaError):
            self._fail(Api.END_TXN, error, aborting=not commit)
        else:
            if following is not None and following.id >= 0:
                self.producer = following
            self._after_end()
        return self.state is TransactionState.READY

    @property
    def is_ending(self) -> bool:
        """Whether a commit or an abort has begun: it ends when all records are settled."""
        return self.state in _ENDING

    def _after_end(self) -> None:
        """The transaction has ended: get the next epoch if sequences are missing, or for protocol V2 (T06)."""
        upgrades = self.protocol is V1 and self.allows_v2()
        if upgrades or (self.protocol is V1 and self._progress.doubtful):
            self._submit(init_call(self.transactional_id, self._timeout, lambda following, error: self._on_epoch(following, error, upgrades=upgrades),
                                   present=self.producer))
        else:
            self._finish()

    def _on_epoch(self, following: ProducerId | None, error: BaseException | None, *, upgrades: bool) -> None:
        self._call = None
        if following is not None:
            self.producer = following
            self.protocol = V2 if upgrades else self.protocol
            self._finish()
        elif isinstance(error, KafkaError):
            self._poison(error)

    def _finish(self) -> None:
        self._progress = Progress()
        self._step(TransactionEvent.ENDED)
        self._end_pending(None)

    def allows_v2(self) -> bool:
        """Whether the cluster has the protocol V2; it may change at any time."""
        return self._features().level(FEATURE) >= V2_LEVEL

    # ---- failures ---------------------------------------------------------------------------------------------------

    def _fail(self, api: Api, error: BaseException | None, *, aborting: bool = False) -> None:
        if not isinstance(error, KafkaError) or self._fatal is not None:
            return
        if meaning(api, error, aborting=aborting) is Meaning.FATAL:
            self._poison(error)
        elif (self.state, TransactionEvent.FAILED) in TRANSACTION.rows:
            self._break(error)

    def _break(self, error: KafkaError) -> None:
        """The transaction can only be aborted."""
        if self._progress.error is None:
            self._progress.error = _abortable(error)
        self._progress.doubtful |= isinstance(error, UnknownProducerIdError)
        committing = self.state is TransactionState.COMMITTING
        self._step(TransactionEvent.FAILED)
        self._drop_offsets(self._progress.error)
        if committing:
            self._end_pending(self._progress.error)

    def _poison(self, error: KafkaError) -> None:
        """This producer cannot continue; every record and call fails."""
        self._fatal = error if error.fatal else _fatal(error)
        self._step(TransactionEvent.FATAL)
        self._drop_offsets(self._fatal)
        if self._call is not None:
            self._calls.cancel(self._call)
            self._call = None
        if self.records is not None:
            self.records.abandon(self._fatal)
        self._end_pending(self._fatal)

    def _end_pending(self, error: KafkaError | None) -> None:
        if self._pending is not None:
            self._pending.end(error)

    # ---- the send gate ----------------------------------------------------------------------------------------------

    def _step(self, event: TransactionEvent) -> None:
        self.state = TRANSACTION.after(self.state, event)
        self.on_gate(self.gate())

    def gate(self) -> KafkaError | None:
        """Why no record may be sent now; None in a transaction."""
        if self.state is TransactionState.IN_TRANSACTION:
            return None
        if self.state is TransactionState.ABORTABLE_ERROR and self._progress.error is not None:
            return self._progress.error
        if self._fatal is not None:
            return self._fatal
        return _between(self.state)


@functools.cache
def _between(state: TransactionState) -> KafkaError:
    """Why no record may be sent in this state. It is raised as a copy."""
    legal = legal_calls(state)
    return IllegalStateError(
        f"a transactional producer sends records in a transaction only, and this one {state.value}; nothing was queued. "
        + (f"Allowed now: {', '.join(legal)}." if legal else "Wait until that has ended, then begin a transaction."))


def _abortable(error: KafkaError) -> KafkaError:
    """As the user gets it: abort, and go on with the same producer."""
    if isinstance(error, TransactionAbortableError):
        return error
    wrapped = TransactionAbortableError(f"the transaction cannot be committed: {sentence(str(error))} Abort it, then begin a new one.")
    wrapped.__cause__ = error
    return wrapped


def _fatal(error: KafkaError) -> KafkaError:
    """As the user gets it: close this producer."""
    wrapped = ApplicationRecoverableError(f"this transactional producer cannot continue: {sentence(str(error))} Close it and open a new one.")
    wrapped.__cause__ = error
    return wrapped


def _aborted() -> KafkaError:
    return TransactionAbortableError("the transaction was aborted before the record was sent")
