"""Deliberate bugs of transactional producers, found by chains."""
from __future__ import annotations

from typing import Final

from pyclient.testing.simulation.invariants import TRANSACTIONS
from tests.simulation.mutation import Museum, Target, nothing, returns

MUSEUM: Final = Museum(TRANSACTIONS)
bug = MUSEUM.bug
MANAGER: Final = "pyclient.core.transactions.manager:Transactions"

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
