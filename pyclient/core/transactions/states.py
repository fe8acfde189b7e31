"""The states of a transactional producer as one table, and which calls it allows in each."""
from __future__ import annotations

import enum
import functools
from typing import Final

from pyclient.core.transitions import Transitions


class TransactionState(enum.Enum):
    """What a transactional producer does now; the values complete "the producer …"."""

    UNINITIALIZED = "has no producer id yet"
    INITIALIZING = "is getting its producer id"
    READY = "has no open transaction"
    IN_TRANSACTION = "is in a transaction"
    COMMITTING = "is committing"
    ABORTING = "is aborting"
    ABORTABLE_ERROR = "has a transaction that can only be aborted"
    FATAL_ERROR = "cannot continue"

    __hash__ = object.__hash__  # the inherited one is Python, and hashes the name: half of a transaction's look-ups


class TransactionEvent(enum.Enum):
    """What happens to it: calls of the user, named as these, and outcomes."""

    INITIALIZE = "init_transactions"
    BEGIN = "begin_transaction"
    SEND_OFFSETS = "send_offsets"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    INITIALIZED = "the coordinator gave a producer id"
    REFUSED = "the coordinator refused, and may accept later"
    ENDED = "the coordinator has ended the transaction"
    FAILED = "the transaction cannot be committed any more"
    FATAL = "another producer has taken over, or the protocol is broken"

    __hash__ = object.__hash__  # as above


_S, _E = TransactionState, TransactionEvent
TRANSACTION: Final[Transitions[TransactionState, TransactionEvent]] = Transitions("transaction", {
    (_S.UNINITIALIZED, _E.INITIALIZE): _S.INITIALIZING,
    (_S.READY, _E.INITIALIZE): _S.INITIALIZING,
    (_S.INITIALIZING, _E.INITIALIZED): _S.READY,
    (_S.INITIALIZING, _E.REFUSED): _S.UNINITIALIZED,
    (_S.READY, _E.BEGIN): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _E.SEND_OFFSETS): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _E.COMMIT): _S.COMMITTING,
    (_S.IN_TRANSACTION, _E.ABORT): _S.ABORTING,
    (_S.IN_TRANSACTION, _E.FAILED): _S.ABORTABLE_ERROR,
    (_S.COMMITTING, _E.FAILED): _S.ABORTABLE_ERROR,
    (_S.COMMITTING, _E.ENDED): _S.READY,
    (_S.ABORTABLE_ERROR, _E.FAILED): _S.ABORTABLE_ERROR,
    (_S.ABORTABLE_ERROR, _E.ABORT): _S.ABORTING,
    (_S.ABORTING, _E.FAILED): _S.ABORTING,
    (_S.ABORTING, _E.ENDED): _S.READY,
    **{(state, _E.FATAL): _S.FATAL_ERROR for state in _S if state is not _S.FATAL_ERROR},
})
CALLS: Final = (_E.INITIALIZE, _E.BEGIN, _E.SEND_OFFSETS, _E.COMMIT, _E.ABORT)


def is_legal(state: TransactionState, call: TransactionEvent) -> bool:
    """Whether the user may make this call now."""
    return (state, call) in TRANSACTION.rows


@functools.cache
def legal_calls(state: TransactionState) -> tuple[str, ...]:
    """The names of the calls that are allowed now."""
    return tuple(call.value for call in CALLS if is_legal(state, call))
