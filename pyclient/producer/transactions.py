"""Transactions as producers offer them: the calls on the client's loop, and the context manager around them.

What to ask the coordinators is decided in `pyclient.core.transactions`; here the caller waits for it.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pyclient.buffers.records_view import Records
from pyclient.client.facade_base import OPTION, seconds
from pyclient.core.transactions.manager import Pending, Transactions
from pyclient.core.transactions.states import TransactionEvent, TransactionState
from pyclient.errors import IllegalStateError, KafkaError, KafkaTimeoutError, sentence
from pyclient.metrics import TXN_ABORT, TXN_BEGIN, TXN_COMMIT, TXN_INIT, TXN_OFFSETS, Metric
from pyclient.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from pyclient.runtime.steps import Step, Steps, WaitFor

if TYPE_CHECKING:
    from pyclient.producer.core import ProducerCore
    from pyclient.producer.facade import AsyncProducer, Producer

TIMES: Final[Mapping[TransactionEvent, Metric]] = {
    TransactionEvent.INITIALIZE: TXN_INIT, TransactionEvent.BEGIN: TXN_BEGIN, TransactionEvent.SEND_OFFSETS: TXN_OFFSETS,
    TransactionEvent.COMMIT: TXN_COMMIT, TransactionEvent.ABORT: TXN_ABORT,
}


class TransactionCalls:
    """The calls of a user, on the client's loop. Timeouts are in seconds; left out they are ``max_block_ms``."""

    def __init__(self, core: ProducerCore, transactions: Transactions | None) -> None:
        self._core = core
        self._transactions = transactions
        self._spent = dict.fromkeys(TIMES, 0.0)
        if transactions is not None:
            for call, metric in TIMES.items():
                core.metrics.watch(metric, lambda call=call: round(self._spent[call] * 1e9))  # type: ignore[misc]

    async def initialize(self, transactional_id: str | None, timeout: float | None) -> None:
        """Get a producer id, and fence older producers of the transactional id."""
        manager = self._manager(TransactionEvent.INITIALIZE)
        await self._done(TransactionEvent.INITIALIZE, lambda: manager.initialize(transactional_id), timeout)

    async def begin(self) -> None:
        """Open a transaction."""
        manager = self._manager(TransactionEvent.BEGIN)
        self._core.check_open()
        with self._timed(TransactionEvent.BEGIN):
            manager.begin(self._core.clock())

    async def send_offsets(self, offsets: object, member: ConsumerGroupMetadata, timeout: float | None) -> None:
        """Commit offsets of a group with the transaction."""
        manager = self._manager(TransactionEvent.SEND_OFFSETS)
        given = positions(offsets)
        if not isinstance(member, ConsumerGroupMetadata):
            raise TypeError(f"the second argument is consumer.group_metadata(), got {type(member).__name__} {member!r}")
        await self._done(TransactionEvent.SEND_OFFSETS, lambda: manager.send_offsets(given, member), timeout)

    async def commit(self, timeout: float | None) -> None:
        """Commit the open transaction."""
        await self._done(TransactionEvent.COMMIT, self._manager(TransactionEvent.COMMIT).commit, timeout)

    async def abort(self, timeout: float | None) -> None:
        """Abort the open transaction. The failures of its records need not be looked at then."""
        await self._done(TransactionEvent.ABORT, self._manager(TransactionEvent.ABORT).abort, timeout)
        self._core.observer.take_failures()

    async def report_failures(self) -> None:
        """The user has the fatal error that the records failed with: `close` does not raise their failures again."""
        self._core.observer.take_failures()

    async def abort_open(self, timeout: float | None) -> None:
        """Abort at the end of the client, if a transaction is open; its coordinator ends it in time otherwise."""
        if self._transactions is not None and self._transactions.is_open:
            await self.abort(timeout)

    def check(self) -> None:
        """Raise unless the producer is transactional."""
        self._manager(TransactionEvent.BEGIN)

    @property
    def state(self) -> TransactionState:
        """The present state."""
        return self._manager(TransactionEvent.BEGIN).state

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that can be aborted."""
        return self._transactions is not None and self._transactions.is_open

    def _manager(self, call: TransactionEvent) -> Transactions:
        if self._transactions is None:
            raise IllegalStateError(f"{call.value} needs a transactional producer: open it with transactional_id='…', one id for each running producer")
        return self._transactions

    async def _done(self, call: TransactionEvent, start: Callable[[], Pending], timeout: float | None) -> None:
        core, manager = self._core, self._manager(call)
        core.check_open()
        limit = seconds(timeout, core.config.max_block_ms)
        with self._timed(call):
            try:
                pending = start()
                core.driver.wake()
                await core.driver.until(lambda: manager.take(pending), limit, lambda: self._late(call, limit))
            except (KafkaTimeoutError, IllegalStateError):
                raise  # the transaction goes on
            except KafkaError:
                core.observer.take_failures()  # this error reports them: `close` does not raise them again
                raise

    def _late(self, call: TransactionEvent, limit: float | None) -> KafkaError:
        cause = self._manager(call).last_error or self._core.metadata.last_error
        said = f" The last error was: {sentence(str(cause))}" if cause is not None else ""
        return KafkaTimeoutError(f"{call.value} did not finish within {limit} s; its outcome is not known, and it goes on.{said} Call {call.value} again.")

    @contextmanager
    def _timed(self, call: TransactionEvent) -> Generator[None]:
        began = self._core.clock()
        try:
            yield
        finally:
            self._spent[call] += self._core.clock() - began


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
        yield WaitFor(lambda: calls.initialize(None, OPTION))
    yield WaitFor(calls.begin)


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
        yield WaitFor(lambda: calls.commit(OPTION))
    except KafkaError as failed:
        if calls.is_open:
            yield from _abort(calls, failed)
        raise


def _abort(calls: TransactionCalls, error: BaseException) -> Steps[Step, None]:
    try:
        yield WaitFor(lambda: calls.abort(OPTION))
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
