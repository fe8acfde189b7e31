"""Transaction coordinators: which broker keeps which transactional id, and when its transactions end."""
from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.homes import TRANSACTION, Homes
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.markers import End, Markers
from pyclient.testing.fake.model.producer_ids import fresh_id
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.transactions import COMPLETING, Event, Place, Producer, State, Transaction

FEATURE: Final = "transaction.version"
V2: Final = 2
"""The level of the feature from which on each end begins the next epoch (KIP-890)."""

FORGETS_START_SINCE: Final = "4.0"
"""Before this release the start of the last transaction is described until the next one."""


class TransactionCoordinator:
    """The transactional ids of a cluster, each on one broker. After a move the new broker loads the same state."""

    def __init__(self, kafka: Kafka) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.homes = Homes(kafka, TRANSACTION, self._move)
        self._kafka = kafka
        self._markers = kafka.part(Markers)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._epochs: dict[str, int] = {}
        """How often each id moved; markers name it."""

    # ---- requests ----------------------------------------------------------------------------------------------------

    def find(self, broker: int, transactional_id: str) -> Transaction:
        """The state of a transactional id, requested from *broker*.

        Raises:
            RefusalError: the id is unknown or none, this broker does not coordinate it, or is still loading it.
        """
        if not transactional_id:
            raise RefusalError(ErrorCode.invalid_request)
        self.homes.check(broker, transactional_id)
        found = self.transactions.get(transactional_id)
        if found is None:
            raise RefusalError(ErrorCode.invalid_producer_id_mapping)
        return found

    def of(self, broker: int) -> list[Transaction]:
        """The transactional ids that a broker coordinates.

        Raises:
            RefusalError: it is still loading one of them.
        """
        mine = [each for each in self.transactions.values() if self.homes.of(each.id) == broker]
        if any(self.homes.loading(each.id) for each in mine):
            raise RefusalError(ErrorCode.coordinator_load_in_progress)
        return mine

    def initialize(self, broker: int, transactional_id: str, timeout_ms: int, expected: Producer | None) -> Producer:
        """Let a producer take over; what its predecessor left open is aborted first.

        Raises:
            RefusalError: concurrent_transactions while a transaction is being ended; or the producer is fenced.
        """
        if timeout_ms > self._kafka.settings.transaction_max_timeout_ms or timeout_ms <= 0:
            raise RefusalError(ErrorCode.invalid_transaction_timeout)
        self.homes.check(broker, transactional_id)
        found = self.transactions.get(transactional_id)
        if found is None:
            found = self.transactions[transactional_id] = Transaction(transactional_id, fresh_id(self._kafka, broker), timeout_ms)
            self.homes.put(transactional_id)
        found.check_owner(expected)
        if found.state is State.ONGOING:
            self._abort(found)
            raise RefusalError(ErrorCode.concurrent_transactions)
        began_ms = found.began_ms
        found.init(timeout_ms, expected, lambda: fresh_id(self._kafka, broker))
        if not self._kafka.profile.is_since(FORGETS_START_SINCE):
            found.began_ms = began_ms
        self._report(found)
        return found.producer

    def add(self, broker: int, transactional_id: str, producer: Producer, partitions: Iterable[Place]) -> None:
        """Add partitions to the producer's transaction, which begins with the first.

        Raises:
            RefusalError: the producer is not the owner, or the end of its last transaction is not written yet.
        """
        found = self.find(broker, transactional_id)
        if found.add(producer, partitions, self._kafka.wall()):
            self._limit(found)
        self._report(found)

    def join(self, transactional_id: str, producer: Producer, place: Place, *, adds: bool, knows_abortable: bool) -> None:
        """What another broker asks before a transaction's first batch or offset there: *adds* it, or must be added.

        Raises:
            RefusalError: as of `add`, with codes that answers to Produce have; and it is not added.
        """
        home = self._kafka.coordinator(TRANSACTION, transactional_id)
        try:
            if adds:
                self.add(home, transactional_id, producer, [place])
            else:
                self.find(home, transactional_id).verify(producer, place)
        except RefusalError as refused:
            code = ErrorCode.invalid_producer_epoch if refused.code == ErrorCode.producer_fenced else refused.code
            abortable = code == ErrorCode.transaction_abortable and not knows_abortable
            raise RefusalError(ErrorCode.invalid_txn_state if abortable else code) from None

    def end(self, broker: int, transactional_id: str, producer: Producer, event: Event, *, bump: bool) -> Producer:
        """Commit or abort; returns who goes on. *bump*: as since version 5 of EndTxn.

        Raises:
            RefusalError: the producer is not the owner, or there is nothing to end so.
        """
        found = self.find(broker, transactional_id)
        if bump:
            begins = found.end_and_bump(producer, event, self._kafka.wall(), lambda: fresh_id(self._kafka, broker))
        else:
            begins = found.end(producer, event)
        if begins:
            following = found.following
            self._write(found)
            return following
        return found.producer

    # ---- ends --------------------------------------------------------------------------------------------------------

    def _limit(self, transaction: Transaction) -> None:
        """Abort it when its time is over."""
        left = (transaction.began_ms + transaction.timeout_ms - self._kafka.wall()) / 1000
        self._timers[transaction.id] = asyncio.get_running_loop().call_later(max(0.0, left), self._abort, transaction)

    def _abort(self, transaction: Transaction) -> None:
        transaction.fence(bump=self._kafka.profile.level(FEATURE) >= V2)
        self._write(transaction)

    def _write(self, transaction: Transaction) -> None:
        self._forget_timer(transaction.id)
        self._report(transaction)
        delay = self._kafka.settings.transaction_marker_ms / 1000
        if delay:
            self._timers[transaction.id] = asyncio.get_running_loop().call_later(delay, self._write_markers, transaction)
        else:
            self._write_markers(transaction)

    def _write_markers(self, transaction: Transaction) -> None:
        end = End(producer=transaction.producer, commits=transaction.state is State.PREPARE_COMMIT,
                  coordinator_epoch=self._epochs.get(transaction.id, 0))
        self._markers.write(transaction.id, end, transaction.partitions, lambda: self._complete(transaction))

    def _complete(self, transaction: Transaction) -> None:
        transaction.complete()
        self._report(transaction)

    def _forget_timer(self, transactional_id: str) -> None:
        timer = self._timers.pop(transactional_id, None)
        if timer is not None:
            timer.cancel()

    # ---- moving ------------------------------------------------------------------------------------------------------

    def _move(self, transactional_id: str) -> None:
        """Another broker loads it, and goes on when that is done."""
        self._markers.forget(transactional_id)
        self._forget_timer(transactional_id)
        self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        if self.homes.of(transactional_id) in self._kafka.brokers:
            load_s = self._kafka.settings.coordinator_load_ms / 1000
            self._timers[transactional_id] = asyncio.get_running_loop().call_later(load_s, self._resume, self.transactions[transactional_id])

    def _resume(self, transaction: Transaction) -> None:
        if transaction.state in COMPLETING:
            self._write_markers(transaction)
        elif transaction.state is State.ONGOING:
            self._limit(transaction)

    def _report(self, transaction: Transaction) -> None:
        self._kafka.report("transaction", id=transaction.id, state=transaction.state.value, producer_id=transaction.producer_id,
                           epoch=transaction.epoch, partitions=sorted(transaction.partitions))
