"""Transactions as producers offer them: the calls, in steps of the client's reactor, and the context manager.

What to ask the coordinators is decided in `pyclient.core.transactions`; here the caller waits for it.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from pyclient.buffers.records_view import Records
from pyclient.client.facade_base import OPTION, left, seconds
from pyclient.core.transactions.manager import Transactions
from pyclient.core.transactions.progress import Pending
from pyclient.core.transactions.states import TransactionEvent, TransactionState
from pyclient.errors import ClientClosedError, IllegalStateError, KafkaError, KafkaTimeoutError, sentence
from pyclient.metrics import TXN_ABORT, TXN_BEGIN, TXN_COMMIT, TXN_INIT, TXN_OFFSETS, Metric
from pyclient.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from pyclient.runtime.portals import LoopPortal, ThreadPortal
from pyclient.runtime.steps import Step, Steps, WaitFor

if TYPE_CHECKING:
    from pyclient.producer.core import ProducerCore
    from pyclient.producer.facade import AsyncProducer, Producer

TIMES: Final[Mapping[TransactionEvent, Metric]] = {
    TransactionEvent.INITIALIZE: TXN_INIT, TransactionEvent.BEGIN: TXN_BEGIN, TransactionEvent.SEND_OFFSETS: TXN_OFFSETS,
    TransactionEvent.COMMIT: TXN_COMMIT, TransactionEvent.ABORT: TXN_ABORT,
}


@attrs.define(eq=False)
class TransactionCall:
    """A call of a user, as a step that sync and async clients perform."""

    event: TransactionEvent
    _calls: TransactionCalls
    _core: ProducerCore
    _manager: Transactions
    _start: Callable[[], Pending]
    _limit: float | None = None
    _pending: Pending | None = None
    _until: float | None = None

    def run(self, portal: ThreadPortal) -> None:
        """As `Step.run`."""
        began = self._core.clock()
        try:
            portal.call(self._wait)
        except ClientClosedError:
            if not self._manager.has_ended(self.event):  # else a close has awaited it, and was faster than this thread
                raise
        except KafkaError as error:
            self._report(error)
            raise
        finally:
            self._calls.spend(self.event, began)

    async def run_async(self, portal: LoopPortal) -> None:
        """As `Step.run_async`."""
        await portal.call(self.awaited)

    async def awaited(self) -> None:
        """Perform it in a task of the reactor."""
        began = self._core.clock()
        try:
            await self._wait()
        except KafkaError as error:
            self._report(error)
            raise
        finally:
            self._calls.spend(self.event, began)

    def _begin(self) -> Pending:
        if self._pending is None:
            self._core.check_open()
            self._core.note_refused()
            self._until = None if self._limit is None else self._core.clock() + self._limit
            self._pending = self._start()
            if not self._pending.done:
                self._core.driver.wake()
        return self._pending

    async def _wait(self) -> None:
        pending, driver = self._begin(), self._core.driver
        left_s = None if self._until is None else left(self._until, self._core.clock)
        await driver.until(lambda: self._take(pending), left_s, self._late)

    def _take(self, pending: Pending) -> bool | None:
        """Take the outcome and do what follows from it: no cancellation comes between.

        After an abort the failures of its records need not be looked at.
        """
        taken = self._manager.take(pending)
        if taken and self.event is TransactionEvent.ABORT:
            self._core.observer.take_failures()
        return taken

    def _report(self, error: KafkaError) -> None:
        """Unless the transaction goes on, this error reports the failed records: `close` does not raise them again."""
        if not isinstance(error, (KafkaTimeoutError, IllegalStateError)):
            self._core.observer.take_failures()

    def _late(self) -> KafkaError:
        name, cause = self.event.value, self._manager.last_error or self._core.metadata.last_error
        said = f" The last error was: {sentence(str(cause))}" if cause is not None else ""
        return KafkaTimeoutError(f"{name} did not finish within {self._limit} s; its outcome is not known, and it goes on.{said} Call {name} again.")


class TransactionCalls:
    """The calls of a user. Timeouts are in seconds; left out they are ``max_block_ms``."""

    def __init__(self, core: ProducerCore, transactions: Transactions | None) -> None:
        self._core = core
        self._transactions = transactions
        self._spent = dict.fromkeys(TIMES, 0.0)
        if transactions is not None:
            for call, metric in TIMES.items():
                core.metrics.watch(metric, lambda call=call: round(self._spent[call] * 1e9))  # type: ignore[misc]

    def initialize(self, transactional_id: str | None, timeout: float | None) -> TransactionCall:
        """Get a producer id, and fence older producers of the transactional id."""
        manager = self._manager(TransactionEvent.INITIALIZE)
        return self._call(TransactionEvent.INITIALIZE, lambda: manager.initialize(transactional_id), timeout)

    def begin(self) -> TransactionCall:
        """Open a transaction."""
        manager = self._manager(TransactionEvent.BEGIN)
        return TransactionCall(TransactionEvent.BEGIN, self, self._core, manager, lambda: manager.begin(self._core.clock()))

    def send_offsets(self, offsets: object, member: ConsumerGroupMetadata, timeout: float | None) -> TransactionCall:
        """Commit offsets of a group with the transaction."""
        manager = self._manager(TransactionEvent.SEND_OFFSETS)
        given = positions(offsets)
        if not isinstance(member, ConsumerGroupMetadata):
            raise TypeError(f"the second argument is consumer.group_metadata(), got {type(member).__name__} {member!r}")
        return self._call(TransactionEvent.SEND_OFFSETS, lambda: manager.send_offsets(given, member), timeout)

    def commit(self, timeout: float | None) -> TransactionCall:
        """Commit the open transaction."""
        return self._call(TransactionEvent.COMMIT, self._manager(TransactionEvent.COMMIT).commit, timeout)

    def abort(self, timeout: float | None) -> TransactionCall:
        """Abort the open transaction."""
        return self._call(TransactionEvent.ABORT, self._manager(TransactionEvent.ABORT).abort, timeout)

    async def report_failures(self) -> None:
        """The user has the fatal error that the records failed with: `close` does not raise their failures again."""
        self._core.observer.take_failures()

    async def end_open(self, timeout: float | None) -> None:
        """At the end of the client: abort the open transaction; an end that another call has begun is awaited."""
        manager = self._transactions
        if manager is None:
            return
        until = None if timeout is None else self._core.clock() + timeout
        if manager.is_ending:
            await self._core.driver.until(lambda: None if manager.is_ending else True, timeout, _unfinished)
        if manager.is_open:
            await self.abort(None if until is None else left(until, self._core.clock)).awaited()

    def check(self) -> None:
        """Raise unless the producer is transactional."""
        self._manager(TransactionEvent.BEGIN)

    @property
    def state(self) -> TransactionState:
        """The present state."""
        return self._manager(TransactionEvent.BEGIN).state

    @property
    def untaken(self) -> TransactionEvent | None:
        """As `Transactions.untaken`."""
        return None if self._transactions is None else self._transactions.untaken

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that can be aborted."""
        return self._transactions is not None and self._transactions.is_open

    def spend(self, call: TransactionEvent, began: float) -> None:
        """A call has ended, for the metrics."""
        self._spent[call] += self._core.clock() - began

    def _manager(self, call: TransactionEvent) -> Transactions:
        if self._transactions is None:
            raise IllegalStateError(f"{call.value} needs a transactional producer: open it with transactional_id='…', one id for each running producer")
        return self._transactions

    def _call(self, call: TransactionEvent, start: Callable[[], Pending], timeout: float | None) -> TransactionCall:
        return TransactionCall(call, self, self._core, self._manager(call), start, seconds(timeout, self._core.config.max_block_ms))


def _unfinished() -> KafkaError:
    return KafkaTimeoutError("the end of the transaction did not finish in time; its outcome is not known.")


def positions(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets by partition as numbers or `OffsetAndMetadata`, or the next ones of `Records`.

    Raises:
        TypeError: they are neither.
    """
    if isinstance(offsets, Records):
        return offsets.next_offsets()
    if not isinstance(offsets, Mapping):
        raise TypeError(f"expected records, records.next_offsets(), or {{TopicPartition(topic, partition): offset of the next record to read}}; "
                        f"got {type(offsets).__name__} {offsets!r}")
    return {TopicPartition(*tp): given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given) for tp, given in offsets.items()}


# ---- the context manager --------------------------------------------------------------------------------------------


def entered(calls: TransactionCalls) -> Steps[Step, None]:
    """Begin; the first transaction initializes."""
    if calls.state is TransactionState.UNINITIALIZED:
        yield calls.initialize(None, OPTION)
    yield calls.begin()


def left_by(calls: TransactionCalls, error: BaseException | None) -> Steps[Step, None]:
    """Commit, or abort after an *error*; nothing if the block has done it, or nothing can be done."""
    if error is None:
        if calls.state is not TransactionState.READY:
            yield from _commit(calls)
    elif calls.is_open:
        yield from _abort(calls, error)
    else:
        yield from after_fatal(calls, error)


def after_fatal(calls: TransactionCalls, error: BaseException) -> Steps[Step, None]:
    """The user gets *error*. If `send` raised it, no call has reported the failures of records sent before."""
    if calls.state is TransactionState.FATAL_ERROR and isinstance(error, KafkaError) and error.fatal:
        yield WaitFor(calls.report_failures)


def _commit(calls: TransactionCalls) -> Steps[Step, None]:
    try:
        yield calls.commit(OPTION)
    except KafkaError as failed:
        if calls.is_open:
            yield from _abort(calls, failed)
        raise


def _abort(calls: TransactionCalls, error: BaseException) -> Steps[Step, None]:
    try:
        yield calls.abort(OPTION)
    except KafkaError as failed:
        if failed.fatal and isinstance(error, KafkaError):
            raise failed from error  # the first error may say "begin again", which this producer cannot
        error.add_note(f"Aborting the transaction failed too: {failed}")


class Transaction:
    """One transaction of a `Producer` as a context manager: commits at the end, aborts when the block raises.

    After an error with ``abortable`` begin again; after one with ``fatal`` close the producer.
    """

    def __init__(self, producer: Producer[Any, Any]) -> None:
        self._producer = producer

    def send_offsets(self, offsets: Any, group_metadata: ConsumerGroupMetadata, timeout: float | None = OPTION) -> None:
        """As `Producer.send_offsets`."""
        self._producer.send_offsets(offsets, group_metadata, timeout)

    def __enter__(self) -> Self:
        self._producer._run(entered(self._producer._transaction_calls()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._producer._run(left_by(self._producer._transaction_calls(), error))


class AsyncTransaction:
    """`Transaction` of an `AsyncProducer`."""

    def __init__(self, producer: AsyncProducer[Any, Any]) -> None:
        self._producer = producer

    async def send_offsets(self, offsets: Any, group_metadata: ConsumerGroupMetadata, timeout: float | None = OPTION) -> None:
        """As `Producer.send_offsets`."""
        await self._producer.send_offsets(offsets, group_metadata, timeout)

    async def __aenter__(self) -> Self:
        await self._producer._run(entered(self._producer._transaction_calls()))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._producer._run(left_by(self._producer._transaction_calls(), error))
