"""Deliberate bugs of transactional producers, found by chains."""
from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from pyclient.core.transactions.meaning import Meaning
from pyclient.core.transactions.states import TransactionState
from pyclient.errors import InvalidProducerEpochError, KafkaTimeoutError, ProducerFencedError, TransactionAbortableError
from pyclient.records import ConsumerGroupMetadata
from pyclient.testing.simulation.chains import sends_offsets_twice, splits_batches, transaction_version
from pyclient.testing.simulation.invariants import TRANSACTIONS
from tests.simulation.mutation import Museum, Target, nothing, returns

MUSEUM: Final = Museum(TRANSACTIONS)
bug = MUSEUM.bug
MANAGER: Final = "pyclient.core.transactions.manager:Transactions"
CALL: Final = "pyclient.producer.transactions:TransactionCall"
SENDER: Final = "pyclient.core.sending.sender:Sender"
LOOP: Final = "pyclient.processing.work:Loop"
SEQUENCE: Final = "pyclient.core.sending.transactional_sequence:TransactionalSequence"


def speaks_v1(seed: int) -> bool:
    """Its brokers allow protocol V1 only."""
    return transaction_version(seed) < 2


def speaks_v2(seed: int) -> bool:
    """Its brokers allow protocol V2 (KIP-890)."""
    return transaction_version(seed) >= 2


def _remembers(original: Target, what: str) -> Target:
    """A transaction begins with what those before it had."""
    def begin(self: Any, now: float) -> Any:
        known = getattr(self, "known", None)
        if known is None:
            known = self.known = type(getattr(self._progress, what))()
        pending = original(self, now)
        setattr(self._progress, what, known)
        return pending
    return begin


bug("transactions", "a batch that failed does not fail its transaction", "aiokafka: commits without failed records", f"{MANAGER}.batch_failed")(nothing)
bug("transactions", "the end does not wait for the records", "T01", f"{MANAGER}._records_idle")(returns(True))


@bug("transactions", "an abort commits", "T03", f"{MANAGER}._end")
def _(original: Target) -> Target:
    return lambda self, *, commit: original(self, commit=True)


@bug("transactions", "offsets are left out of the transaction", "T04", f"{MANAGER}.send_offsets")
def _(original: Target) -> Target:
    return lambda self, offsets, member: original(self, {}, member)


@bug("transactions", "a refused commit of offsets counts as done", "T09", f"{MANAGER}._on_offsets")
def _(original: Target) -> Target:
    return lambda self, commit, _error: original(self, commit, None)


bug("transactions", "a commit is not sent to the coordinator", "T01", f"{MANAGER}._end")(lambda _original: lambda self, *, commit: self._after_end())
bug("transactions", "the loop goes on behind records whose transaction was aborted", "T09", f"{LOOP}._rewind")(nothing)


@bug("transactions", "sequences go on in the next epoch", "T05: KIP-890", f"{SEQUENCE}._follow_epoch", speaks_v2)
def _(original: Target) -> Target:
    def follow_epoch(self: Any) -> None:
        before = self.next_sequence
        original(self)
        self.next_sequence = before
    return follow_epoch


@bug("transactions", "partitions stay part of the next transaction", "T01", f"{MANAGER}.begin", speaks_v1)
def _(original: Target) -> Target:
    return _remembers(original, "partitions")


@bug("transactions", "a group stays part of the next transaction", "T01", f"{MANAGER}.begin", speaks_v1)
def _(original: Target) -> Target:
    return _remembers(original, "groups")


@bug("transactions", "the epoch in the answer to a commit is ignored", "T05: KIP-890", f"{MANAGER}._on_end", speaks_v2)
def _(original: Target) -> Target:
    return lambda self, _following, error, *, commit: original(self, None, error, commit=commit)


@bug("transactions", "offsets are read without those of open transactions", "T04: KIP-447", "pyclient.consumer.commits:committed_call")
def _(original: Target) -> Target:
    return lambda *given, **_: original(*given, stable=False)


@bug("transactions", "offsets name the last record instead of the next", "KIP-447", f"{MANAGER}.send_offsets")
def _(original: Target) -> Target:
    return lambda self, offsets, member: original(self, {tp: each._replace(offset=max(0, each.offset - 1)) for tp, each in offsets.items()}, member)


@bug("transactions", "a call that ran out of time counts as done", "T02", f"{CALL}._wait")
def _(original: Target) -> Target:
    async def wait(self: Any) -> None:
        with suppress(KafkaTimeoutError):
            await original(self)
    return wait


@bug("transactions", "offsets are sent without the member's identity", "T04: KIP-447", f"{MANAGER}.send_offsets")
def _(original: Target) -> Target:
    return lambda self, offsets, member: original(self, offsets, ConsumerGroupMetadata(member.group_id))


bug("transactions", "records that have not left outlive an abort", "T03", f"{SENDER}.fail_unsent")(returns(False))


@bug("transactions", "an abort does not wait for records that have not left", "T03", f"{MANAGER}._advance")
def _(original: Target) -> Target:
    """They leave in the next transaction."""
    def advance(self: Any) -> None:
        if self.state is TransactionState.ABORTING:
            self._end(commit=False)
        else:
            original(self)
    return advance


@bug("transactions", "an abort does not wait for its outcome", "T01", f"{MANAGER}._end")
def _(original: Target) -> Target:
    def end(self: Any, *, commit: bool) -> None:
        original(self, commit=commit)
        if not commit and self._call is not None:
            self._call = None
            self._after_end()
    return end


@bug("transactions", "an abort is done as soon as it is called", "T02", f"{MANAGER}.abort")
def _(original: Target) -> Target:
    def abort(self: Any) -> Any:
        pending = original(self)
        pending.end()
        return pending
    return abort


@bug("transactions", "batches leave before their partition is added", "P15", f"{MANAGER}.admits", speaks_v1)
def _(original: Target) -> Target:
    return lambda self, tp, *, repeated: original(self, tp, repeated=repeated) or self.state is TransactionState.IN_TRANSACTION


@bug("transactions", "an aborting producer sends what has not left", "T03", f"{MANAGER}.admits")
def _(original: Target) -> Target:
    return lambda self, tp, *, repeated: self.state is TransactionState.ABORTING or original(self, tp, repeated=repeated)


@bug("transactions", "a failure in protocol V1 is followed by no new epoch", "KIP-360", f"{MANAGER}._after_end", speaks_v1)
def _(original: Target) -> Target:
    def after_end(self: Any) -> None:
        self._progress.doubtful = False
        original(self)
    return after_end


@bug("transactions", "an error of EndTxn is a commit", "T10", f"{MANAGER}._on_end")
def _(original: Target) -> Target:
    return lambda self, following, error, *, commit: original(self, following, None if commit else error, commit=commit)


@bug("transactions", "a producer that is fenced at the end goes on", "T list: EndTxn", f"{MANAGER}._on_end")
def _(original: Target) -> Target:
    def on_end(self: Any, following: Any, error: Any, *, commit: bool) -> Any:
        fenced = isinstance(error, ProducerFencedError | InvalidProducerEpochError)
        return original(self, following, TransactionAbortableError("mild") if fenced else error, commit=commit)
    return on_end


@bug("transactions", "another producer id in the answer to EndTxn is ignored", "T05: KIP-890", f"{MANAGER}._on_end", speaks_v2)
def _(original: Target) -> Target:
    def on_end(self: Any, following: Any, error: Any, *, commit: bool) -> Any:
        return original(self, following and following._replace(id=self.producer.id), error, commit=commit)
    return on_end


@bug("transactions", "the epoch in the answer to an abort is ignored", "T05: KIP-890", f"{MANAGER}._on_end", speaks_v2)
def _(original: Target) -> Target:
    return lambda self, following, error, *, commit: original(self, following if commit else None, error, commit=commit)


@bug("transactions", "a commit does not wait for its offsets", "T01", f"{MANAGER}._add_next")
def _(original: Target) -> Target:
    def add_next(self: Any) -> Any:
        if self.state is TransactionState.COMMITTING:
            self._progress.offsets = []
        return original(self)
    return add_next


@bug("transactions", "offsets are done before they are answered", "T01", f"{MANAGER}.send_offsets")
def _(original: Target) -> Target:
    def send_offsets(self: Any, offsets: Any, member: Any) -> Any:
        pending = original(self, offsets, member)
        pending.end()
        return pending
    return send_offsets


@bug("transactions", "a batch that left does not begin the transaction", "T07", f"{MANAGER}.left", speaks_v2)
def _(original: Target) -> Target:
    def left(self: Any, tp: Any) -> None:
        before = self._progress.started
        original(self, tp)
        self._progress.started = before
    return left


@bug("transactions", "a coordinator that moved is not looked up", "T list: NOT_COORDINATOR", "pyclient.core.transactions.meaning:answer_meaning")
def _(original: Target) -> Target:
    return lambda api, error: Meaning.RETRY if original(api, error) is Meaning.FIND else original(api, error)


@bug("transactions", "the end does not wait for batches that have to be sent again", "T01", f"{SENDER}.idle")
def _(_original: Target) -> Target:
    return lambda self: not self._in_flight


@bug("transactions", "the end does not wait for requests of batches whose time is over", "T03", f"{SENDER}.idle")
def _(_original: Target) -> Target:
    return lambda self: self._accumulator.oldest() is None


bug("transactions", "an abort fails what brokers may have", "T03", f"{SENDER}._goes_on")(returns(False))
bug("transactions", "a commit waits until the linger is over", "T01", f"{SENDER}.flush")(nothing)


@bug("transactions", "a partition that sat out a transaction goes on with its sequences", "T05: KIP-890", f"{SEQUENCE}._follow_epoch", speaks_v2)
def _(original: Target) -> Target:
    def follow_epoch(self: Any) -> None:
        epoch = self.epochs.producer.epoch
        before = self.next_sequence if self.producer_id is not None and epoch > self.epoch + 1 else None
        original(self)
        self.next_sequence = self.next_sequence if before is None else before
    return follow_epoch


@bug("transactions", "offsets that were sent later are committed first", "T04", f"{MANAGER}._send_offsets", sends_offsets_twice)
def _(original: Target) -> Target:
    return lambda self, _commit: original(self, self._progress.offsets[-1])


@bug("transactions", "the halves of a split batch keep the sequence of the whole", "P20", f"{SEQUENCE}.renumber", splits_batches)
def _(_original: Target) -> Target:
    def renumber(self: Any, halves: Any, first: int) -> None:
        for half in halves:
            self._number(half, first)
    return renumber


@bug("transactions", "the loop goes back in one partition only", "T09", f"{LOOP}._rewind")
def _(_original: Target) -> Target:
    def rewind(self: Any, records: Any) -> None:
        tp, own = next(iter(records.by_partition()))
        self.consumer.seek(tp, own[0].offset)
    return rewind


@bug("transactions", "a commit that ran out of time is not asked for again", "T02", f"{LOOP}._end")
def _(_original: Target) -> Target:
    def end(_self: Any, call: Any) -> Any:
        with suppress(KafkaTimeoutError):
            yield call
    return end


@bug("transactions", "a commit that ran out of time is aborted", "T02", f"{LOOP}._end")
def _(_original: Target) -> Target:
    def end(_self: Any, call: Any) -> Any:
        yield call
    return end
