"""Deliberate bugs of transactional producers, found by chains."""
from __future__ import annotations

from typing import Any, Final

from pyclient.testing.simulation.chains import transaction_version
from pyclient.testing.simulation.invariants import TRANSACTIONS
from tests.simulation.mutation import Museum, Target, nothing, returns

MUSEUM: Final = Museum(TRANSACTIONS)
bug = MUSEUM.bug
MANAGER: Final = "pyclient.core.transactions.manager:Transactions"
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
