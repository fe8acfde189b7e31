"""Invariants of chains: each input has one committed output, no transaction is left, and calm ones commit."""
from __future__ import annotations

from collections import Counter
from typing import Final

import attrs

from pyclient.testing.simulation.invariants import INVARIANTS, TRANSACTIONS, Judge, breach, holds

REPEATED_S: Final = 5.0
"""An abort in calm, a rewind and a poll take less; ``delivery_timeout_ms`` of the workers is longer."""


@attrs.define
class Books:
    """What a chain did, read from the logs and from its workers."""

    expected: int
    """How many inputs there are, numbered from 0."""
    outputs: Counter[int] = attrs.field(factory=Counter)
    """Input -> its committed outputs."""
    claimed: Counter[int] = attrs.field(factory=Counter)
    """Input -> to how many workers its commit was reported."""
    open: list[str] = attrs.field(factory=list)
    """Partitions with a transaction that has not ended."""
    calm_aborted: int = 0
    """Transactions that were aborted in calm, but for those that were given up on purpose."""
    slowest_repeat: float = 0.0
    """Longest time from when its worker last gave one up on purpose, in calm, to its repetition."""
    surprises: list[str] = attrs.field(factory=list)
    """Errors that no worker may get."""
    errors: list[str] = attrs.field(factory=list)
    """What the clients logged as errors."""


@holds("chain end", "T09", TRANSACTIONS)
def each_input_has_one_committed_output(_judge: Judge, books: Books) -> None:
    """Whatever happened to workers, brokers and connections."""
    if books.outputs != Counter(range(books.expected)):
        amiss = {value: count for value in range(books.expected) if (count := books.outputs[value]) != 1}
        raise breach(each_input_has_one_committed_output, f"input -> committed outputs: {amiss}")


@holds("chain end", "T10", TRANSACTIONS)
def a_commit_that_is_reported_is_one(_judge: Judge, books: Books) -> None:
    """The commit of one input is not reported to two workers: one of their transactions was not committed."""
    twice = {value: count for value, count in books.claimed.items() if count > 1}
    if twice:
        raise breach(a_commit_that_is_reported_is_one, f"input -> commits that were reported: {twice}")


@holds("chain end", "T03", TRANSACTIONS)
def no_transaction_is_left_open(_judge: Judge, books: Books) -> None:
    """Those of workers that are gone end by their timeout."""
    if books.open:
        raise breach(no_transaction_is_left_open, f"a transaction is open in {books.open}")


@holds("chain end", "S10", TRANSACTIONS)
def workers_get_no_other_error(_judge: Judge, books: Books) -> None:
    """Every error is one of Kafka's, or the function's own; nothing is logged as a defect."""
    if books.surprises or books.errors:
        raise breach(workers_get_no_other_error, f"{books.surprises} {books.errors}")


@holds("chain end", "T01", TRANSACTIONS)
def calm_transactions_commit(_judge: Judge, books: Books) -> None:
    """Long after the last fault transactions commit: what failed before has left nothing behind."""
    if books.calm_aborted:
        raise breach(calm_transactions_commit, f"{books.calm_aborted} transactions were aborted in calm")


@holds("chain end", "T03", TRANSACTIONS)
def calm_aborts_wait_for_nothing_that_cannot_leave(_judge: Judge, books: Books) -> None:
    """Records that have not left fail at once: the abort does not wait until their time is over."""
    if books.slowest_repeat > REPEATED_S:
        raise breach(calm_aborts_wait_for_nothing_that_cannot_leave, f"a transaction that was given up was repeated after {books.slowest_repeat:.1f} s only")


RULES_OF_CHAINS: Final = tuple(each for each in INVARIANTS.values() if each.family == TRANSACTIONS)
