"""Transactions: list and describe them, the producers of partitions; fence a producer, abort what one left open."""
from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from pyclient.admin.calls import AsyncCalls, BlockingCalls, outcomes
from pyclient.admin.given import known, names, numbers
from pyclient.admin.given import partitions as partitions_of
from pyclient.admin.routing import by_leader, each
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.transactions import (
    abort_marker_call, describe_producers_call, describe_transaction_call, hanging, left_open, list_transactions_call,
)
from pyclient.core.transactions.calls import ProducerId, init_call
from pyclient.descriptions.transactions import FencedProducer, ProducerState, TransactionDescription, TransactionListing
from pyclient.errors import InvalidTxnStateError, TransactionalIdNotFoundError
from pyclient.records import TopicPartition

OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""The states of a transaction that has not ended."""
STATES: Final = ("Empty", *OPEN, "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")
SHORTEST: Final = 0.001
"""Seconds; the least transaction timeout that brokers accept."""
LONGEST: Final = 900.0
"""Seconds; the default of ``transaction.max.timeout.ms``."""


class AsyncTransactionCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern transactions and producers."""

    async def list_transactions(self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), running_longer_than: float | None = None,
                                timeout: float | None = OPTION) -> list[TransactionListing]:
        """The transactional ids of all coordinators, by name; only those in one of *states* and of *producer_ids*, if
        any are given.

        States are Kafka's: ``Ongoing``, ``PrepareCommit``, ``CompleteAbort``, ``Empty`` … *running_longer_than* is in
        seconds: only transactions that are open for longer (KIP-994; brokers from 3.8 on), not those that have ended.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            PartialFailureError: some brokers did not answer; ``results`` has those of the others, by node id.
        """
        left, wanted, ids = self._left_of(timeout), known(states, "states", STATES), numbers(producer_ids, "producer_ids")
        longer = None if running_longer_than is None else _ms(running_longer_than)
        if longer is not None and not wanted:
            wanted = list(OPEN)  # for brokers, one that has ended has run for ever
        cluster = await self._describe([], left())

        def ask(node: int) -> Any:
            return lambda finish, deadline: list_transactions_call(
                node=node, states=wanted, producer_ids=ids, longer_than_ms=longer, finish=finish, deadline=deadline)

        answers = await each(self._core, {node: ask(node) for node in cluster.nodes}, left())
        found = outcomes(list(cluster.nodes), answers, what="broker")
        return sorted({listed.transactional_id: listed for those in found.values() for listed in those}.values())

    async def describe_transactions(self, transactional_ids: Iterable[str], *, timeout: float | None = OPTION) -> dict[str, TransactionDescription]:
        """The state of *transactional_ids*, with the partitions of their open transactions.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            TransactionalIdNotFoundError, TransactionalIdAuthorizationError, …: for a single one; PartialFailureError:
                for several.
        """
        wanted = _ids(transactional_ids)
        answers = await each(self._core, {name: _describing(name) for name in wanted}, self._limit(timeout))
        return outcomes(wanted, answers, what="transactional id")

    async def describe_producers(self, partitions: Iterable[TopicPartition], *,
                                 timeout: float | None = OPTION) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The idempotent and transactional producers that the leader of each of *partitions* remembers, by producer id.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationError, …: for a single partition; PartialFailureError: for
                several.
        """
        wanted = partitions_of(partitions)
        answers = await by_leader(self._core, wanted, lambda node, those, finish, deadline: describe_producers_call(
            those, node=node, finish=finish, deadline=deadline), self._limit(timeout), what="describing producers")
        return {tp: tuple(sorted(found)) for tp, found in outcomes(wanted, answers, what="partition").items()}

    async def find_hanging_transactions(self, partitions: Iterable[TopicPartition] | None = None, *, older_than: float = LONGEST,
                                        timeout: float | None = OPTION) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The open transactions of *partitions* (None: of all) that no coordinator knows, by partition and producer id.

        Nothing ends them, and readers with ``read_committed`` stop before them, until `abort_transaction` does. Only
        those whose last record is older than *older_than* seconds are meant: at least the brokers'
        ``transaction.max.timeout.ms``, as younger ones may still become known. As ``kafka-transactions.sh
        find-hanging`` (KIP-664).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationError, ClusterAuthorizationError, …
            PartialFailureError: some partitions or brokers did not answer.
        """
        left, before_ms = self._left_of(timeout), time.time() * 1000 - _ms(older_than, "older_than")
        wanted = await self._partitions(left()) if partitions is None else partitions_of(partitions)
        found = left_open(await self.describe_producers(wanted, timeout=left()), before_ms)
        if not found:
            return {}
        listed = await self.list_transactions(states=OPEN, producer_ids={each.producer_id for those in found.values() for each in those}, timeout=left())
        return hanging(found, await self._still_known([each.transactional_id for each in listed], left()))

    async def _partitions(self, timeout: float | None) -> list[TopicPartition]:
        cluster = await self._describe(None, timeout)
        return sorted(TopicPartition(name, number) for name, topic in cluster.topics.items() for number in range(len(topic.partitions)))

    async def _still_known(self, transactional_ids: Iterable[str], timeout: float | None) -> list[TransactionDescription]:
        """Those of the transactional ids that their coordinators still know."""
        answers = await each(self._core, {name: _describing(name) for name in transactional_ids}, timeout)
        known = {name: answer for name, answer in answers.items() if not isinstance(answer, TransactionalIdNotFoundError)}
        return list(outcomes(list(known), known, what="transactional id").values())

    async def abort_transaction(self, partition: TopicPartition, start_offset: int, *, timeout: float | None = OPTION) -> ProducerState:
        """Abort the transaction that begins at *start_offset* of *partition* and that its coordinator has forgotten.

        Such a transaction "hangs": readers with ``read_committed`` stop before it. `find_hanging_transactions` has
        where they begin. Only the partition gets a marker, so do not use it for a transaction that its coordinator
        knows (`describe_transactions`): that one ends by its producer, its timeout, or `fence_producers`.

        Returns the producer whose transaction it was.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidTxnStateError: no transaction that is open begins there.
            ClusterAuthorizationError, UnknownTopicOrPartitionError, …
        """
        left = self._left_of(timeout)
        producers = (await self.describe_producers([partition], timeout=left()))[partition]
        producer = next((each for each in producers if each.transaction_start_offset == start_offset), None)
        if producer is None:
            raise InvalidTxnStateError(_no_such_transaction(producers, start_offset), topic_partition=partition)
        answers = await by_leader(self._core, [partition], lambda node, those, finish, deadline: abort_marker_call(
            partition, producer, node=node, finish=finish, deadline=deadline), left(), what="aborting the transaction")
        outcomes([partition], answers, what="partition")
        return producer

    async def fence_producers(self, transactional_ids: Iterable[str], *, timeout: float | None = OPTION) -> dict[str, FencedProducer]:
        """Refuse whatever the present producers of *transactional_ids* send from now on; their open transactions abort.

        Commit or abort then raise `ProducerFencedError`; records fail with `InvalidProducerEpochError`. *timeout* is in
        seconds (KIP-588). It is also how long coordinators wait for their replicas, at most ``request_timeout_ms``: it
        must not be above the brokers' ``transaction.max.timeout.ms``.

        Raises:
            TransactionalIdAuthorizationError, InvalidTxnTimeoutError (*timeout* is above that limit), …: for a single
                one; PartialFailureError: for several.
        """
        wanted, limit = _ids(transactional_ids), self._limit(timeout)
        # Coordinators wait as long as this for the replicas of their log: too short, they abort but do not fence.
        replicated_within = max(SHORTEST, self._broker_limit(limit))

        def ask(name: str) -> Any:
            return lambda finish, deadline: init_call(name, replicated_within, finish, deadline=deadline)

        answers = await each(self._core, {name: ask(name) for name in wanted}, limit)
        found: dict[str, ProducerId] = outcomes(wanted, answers, what="transactional id")
        return {name: FencedProducer(*producer) for name, producer in found.items()}


class TransactionCalls(BlockingCalls):
    """Calls of `Admin` that concern transactions and producers."""

    _admin: AsyncTransactionCalls

    def list_transactions(self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), running_longer_than: float | None = None,
                          timeout: float | None = OPTION) -> list[TransactionListing]:
        """The transactional ids of all coordinators, by name; only those in one of *states* and of *producer_ids*, if
        any are given.

        States are Kafka's: ``Ongoing``, ``PrepareCommit``, ``CompleteAbort``, ``Empty`` … *running_longer_than* is in
        seconds: only transactions that are open for longer (KIP-994; brokers from 3.8 on), not those that have ended.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            PartialFailureError: some brokers did not answer; ``results`` has those of the others, by node id.
        """
        return self._call(lambda: self._admin.list_transactions(
            states=states, producer_ids=producer_ids, running_longer_than=running_longer_than, timeout=timeout))

    def describe_transactions(self, transactional_ids: Iterable[str], *, timeout: float | None = OPTION) -> dict[str, TransactionDescription]:
        """The state of *transactional_ids*, with the partitions of their open transactions.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            TransactionalIdNotFoundError, TransactionalIdAuthorizationError, …: for a single one; PartialFailureError:
                for several.
        """
        return self._call(lambda: self._admin.describe_transactions(transactional_ids, timeout=timeout))

    def describe_producers(self, partitions: Iterable[TopicPartition], *,
                           timeout: float | None = OPTION) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The idempotent and transactional producers that the leader of each of *partitions* remembers, by producer id.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationError, …: for a single partition; PartialFailureError: for
                several.
        """
        return self._call(lambda: self._admin.describe_producers(partitions, timeout=timeout))

    def find_hanging_transactions(self, partitions: Iterable[TopicPartition] | None = None, *, older_than: float = LONGEST,
                                  timeout: float | None = OPTION) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The open transactions of *partitions* (None: of all) that no coordinator knows, by partition and producer id.

        Nothing ends them, and readers with ``read_committed`` stop before them, until `abort_transaction` does. Only
        those whose last record is older than *older_than* seconds are meant: at least the brokers'
        ``transaction.max.timeout.ms``, as younger ones may still become known. As ``kafka-transactions.sh
        find-hanging`` (KIP-664).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationError, ClusterAuthorizationError, …
            PartialFailureError: some partitions or brokers did not answer.
        """
        return self._call(lambda: self._admin.find_hanging_transactions(partitions, older_than=older_than, timeout=timeout))

    def abort_transaction(self, partition: TopicPartition, start_offset: int, *, timeout: float | None = OPTION) -> ProducerState:
        """Abort the transaction that begins at *start_offset* of *partition* and that its coordinator has forgotten.

        Such a transaction "hangs": readers with ``read_committed`` stop before it. `find_hanging_transactions` has
        where they begin. Only the partition gets a marker, so do not use it for a transaction that its coordinator
        knows (`describe_transactions`): that one ends by its producer, its timeout, or `fence_producers`.

        Returns the producer whose transaction it was.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidTxnStateError: no transaction that is open begins there.
            ClusterAuthorizationError, UnknownTopicOrPartitionError, …
        """
        return self._call(lambda: self._admin.abort_transaction(partition, start_offset, timeout=timeout))

    def fence_producers(self, transactional_ids: Iterable[str], *, timeout: float | None = OPTION) -> dict[str, FencedProducer]:
        """Refuse whatever the present producers of *transactional_ids* send from now on; their open transactions abort.

        Commit or abort then raise `ProducerFencedError`; records fail with `InvalidProducerEpochError`. *timeout* is in
        seconds (KIP-588). It is also how long coordinators wait for their replicas, at most ``request_timeout_ms``: it
        must not be above the brokers' ``transaction.max.timeout.ms``.

        Raises:
            TransactionalIdAuthorizationError, InvalidTxnTimeoutError (*timeout* is above that limit), …: for a single
                one; PartialFailureError: for several.
        """
        return self._call(lambda: self._admin.fence_producers(transactional_ids, timeout=timeout))


def _no_such_transaction(producers: Iterable[ProducerState], start_offset: int) -> str:
    open_at = sorted(each.transaction_start_offset for each in producers if each.transaction_start_offset is not None)
    known = f"those that are open begin at {', '.join(map(str, open_at))}" if open_at else "none is open"
    return f"no open transaction begins at offset {start_offset!r}: {known}"


def _ids(given: Iterable[object]) -> list[str]:
    found = names(given, "transactional_ids")
    if not all(found):
        raise ValueError("a transactional id must not be empty")
    return list(dict.fromkeys(found))


def _describing(transactional_id: str) -> Any:
    return lambda finish, deadline: describe_transaction_call(transactional_id, finish=finish, deadline=deadline)


def _ms(seconds: object, what: str = "running_longer_than") -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ValueError(f"{what}={seconds!r}: expected a number of seconds")
    return round(seconds * 1000)
