"""Invariants of chains: each input has one committed output, no transaction is left, and calm ones commit."""
from __future__ import annotations

from collections import Counter
from typing import Final

import attrs

from pyclient.testing.simulation.invariants import INVARIANTS, TRANSACTIONS, Judge, breach, holds


@attrs.define
class Books:
    """What a chain did, read from the logs and from its workers."""

    expected: int
    """How many inputs there are, numbered from 0."""
    outputs: Counter[int] = attrs.field(factory=Counter)
    """Input -> its committed outputs."""
    open: list[str] = attrs.field(factory=list)
    """Partitions with a transaction that has not ended."""
    calm_aborted: int = 0
    """Transactions that were aborted in calm."""
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


RULES_OF_CHAINS: Final = tuple(each for each in INVARIANTS.values() if each.family == TRANSACTIONS)
