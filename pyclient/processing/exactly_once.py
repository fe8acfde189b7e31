"""`ExactlyOnce` and `AsyncExactlyOnce`: the consume-transform-produce loop for each kind of client."""
from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import tenacity

from pyclient.buffers.records_view import Records
from pyclient.consumer.async_facade import AsyncConsumer
from pyclient.consumer.facade import Consumer
from pyclient.held_lock import Held
from pyclient.processing.dead_letters import Failure, raw
from pyclient.processing.outputs import UNSENDABLE, Output, send_each
from pyclient.processing.work import (
    COMMIT_INTERVAL_S, RESTART, RETRY, Attempts, BadOutputError, Loop, Progress, Step, already_running, as_outputs, check_dead_letters,
)
from pyclient.producer.facade import AsyncProducer, Producer
from pyclient.records import TopicPartition
from pyclient.records.record import Record
from pyclient.runtime.steps import await_steps, run_steps

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")
Outputs: TypeAlias = Iterable[Output] | Output | None
Transform: TypeAlias = Callable[[Record[K, V]], Outputs]
"""One record → its outputs: an iterable (a generator is fine), one, or None."""
AsyncTransform: TypeAlias = Callable[[Record[K, V]], Awaitable[Outputs] | Outputs]
TableTransform: TypeAlias = "Callable[[pa.Table], pa.Table | None]"
"""Records in the columns of `Records.to_arrow` → rows in those of `Producer.send_arrow`, None: no output."""


class ExactlyOnce:
    """Reads records, calls *transform* with each, writes its outputs, and commits all of it together: exactly once.

    The consumer needs a ``group_id``, ``enable_auto_commit=False`` and ``isolation_level="read_committed"``; the
    producer a ``transactional_id`` that no other running producer has. An aborted transaction is repeated, so
    *transform* may see a record again: its outputs count once, what else it does does not.

    A transaction holds the records of a poll, and goes on with those that are fetched already: for *commit_interval*
    seconds, or until none are left, a rebalance waits, or `stop` is called. So a loop that keeps up commits each poll
    at once; one with a backlog commits less often. 0 commits each poll (at most ``max_poll_records`` records) alone.

    *retry* says how often it is called with a record that makes it raise (default: 3 times). After that the record goes
    to the topic *dead_letters* in the same transaction, with the cause in its headers; without that topic `run` aborts
    and raises. *restart* says how often transactions may fail in a row (default: for 10 minutes).

    Raises:
        ConfigurationError: an option of a client does not allow it, or *commit_interval* is negative or more than a
            tenth of ``transaction_timeout_ms``.
        IllegalStateError: the producer is not transactional.
    """

    def __init__(self, consumer: Consumer[K, V], producer: Producer, transform: Transform[K, V], *, dead_letters: str | None = None,
                 retry: tenacity.BaseRetrying = RETRY, restart: tenacity.BaseRetrying = RESTART, commit_interval: float = COMMIT_INTERVAL_S) -> None:
        self._loop = Loop(consumer, producer, self._process, self._pause, restart, commit_interval)
        check_dead_letters(dead_letters, producer)
        self._producer = producer
        self._transform = transform
        self._dead_letters = dead_letters
        self._retry = retry
        self._stopped = Stopped()
        self._running = threading.Lock()

    @classmethod
    def of_tables(cls, consumer: Consumer[Any, Any], producer: Producer, transform: TableTransform, topic: str | None, *,
                  retry: tenacity.BaseRetrying = RETRY, restart: tenacity.BaseRetrying = RESTART, commit_interval: float = COMMIT_INTERVAL_S,
                  **columns: Any) -> ExactlyOnce:
        """With Arrow: *transform* gets the records of a poll as a table; its result goes to `Producer.send_arrow`.

        A transaction may hold several tables, each of at most ``max_poll_records`` rows; larger ones cost less a row.
        *topic* and *columns* are those of `send_arrow`. What *transform* raises in its last attempt ends `run`.
        """
        made = _OfTables(consumer, producer, lambda _: None, retry=retry, restart=restart, commit_interval=commit_interval)
        made.table_transform, made.topic, made.columns = transform, topic, columns
        return made

    @property
    def progress(self) -> Progress:
        """What was done since the loop was made."""
        return self._loop.progress

    def run(self, *, stop_on: Iterable[signal.Signals] = (signal.SIGTERM,)) -> None:
        """Process until `stop`, or one of the signals *stop_on*; the present transaction is finished first.

        Signals are handled while it runs, in the main thread only; earlier handlers come back afterwards.

        Raises:
            KafkaError: it is fatal (close both clients), or transactions failed as often as *restart* allows.
            IllegalStateError: your code has begun or ended a transaction of the producer, or closed a client.
            Exception: what *transform* raised, if there is no topic for dead letters. The transaction was aborted.
        """
        with Held(self._running, 0) as alone:
            if not alone:
                raise already_running()
            with stopped_by(stop_on, self.stop):
                run_steps(self._loop.run(), perform)

    def stop(self) -> None:
        """Let `run` return after the present transaction. Any thread may call it, or a signal handler."""
        self._stopped.set()
        self._loop.stop()

    def _pause(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    def _process(self, records: Records[Any, Any], done: Progress) -> None:
        if not self._loop.given_up:
            self._process_each(records, done)
            return
        for record in records:
            failure = self._loop.failure_of(record)
            if failure is None:
                self._process_each((record,), done)
            else:
                self._give_up(record, failure, done)

    def _process_each(self, records: Iterable[Record[Any, Any]], done: Progress) -> None:
        sent = send_each(records, self._transform, self._producer.send, partial(self._otherwise, done))
        done.outputs += sent  # behind what `_otherwise` has added

    def _otherwise(self, done: Progress, record: Record[Any, Any], given: Any, error: Exception | None) -> None:
        """The function has *given* something else than one output, or an output that was refused, or raised *error*."""
        failure: Failure | None
        if error is None:
            failure = self._send_given(record, given, done)
        elif isinstance(given, Output):
            failure = Failure(error, 1)
        else:
            failure = self._try_again(record, error, done)
        if failure is not None:
            self._give_up(record, failure, done)

    def _send_given(self, record: Record[Any, Any], given: Outputs, done: Progress) -> Failure | None:
        try:
            outputs = as_outputs(given)
        except Exception as error:  # noqa: BLE001  # of a user's generator
            return self._try_again(record, error, done)
        return self._send_outputs(record, outputs, 1, done)

    def _try_again(self, record: Record[Any, Any], error: Exception, done: Progress) -> Failure | None:
        """The function has raised *error*."""
        attempts = Attempts(self._retry)
        while True:
            seconds = attempts.pause(error)
            if seconds is None:
                return Failure(error, attempts.count)
            self._pause(seconds)
            self._loop.check_running()
            try:
                outputs = as_outputs(self._transform(record))
            except Exception as again:  # noqa: BLE001  # whatever a user's function raises
                error = again
                continue
            return self._send_outputs(record, outputs, attempts.count, done)

    def _send_outputs(self, record: Record[Any, Any], outputs: Iterable[Output], attempts: int, done: Progress) -> Failure | None:
        send, sent = self._producer.send, 0
        try:
            for each in outputs:
                send(each.topic, each.value, each.key, partition=each.partition, timestamp=each.timestamp, headers=each.headers)
                sent += 1
        except UNSENDABLE as error:
            return _unsendable(self._loop, record, Failure(error, attempts), sent)
        done.outputs += sent
        return None

    def _give_up(self, record: Record[Any, Any], failure: Failure, done: Progress) -> None:
        if self._dead_letters is None:
            raise failure.error
        key, value = raw(record)
        self._producer.send(self._dead_letters, value, key, timestamp=record.timestamp, headers=failure.headers(record))
        _log_dead_letter(record, failure, self._dead_letters)
        done.dead_letters += 1


class _OfTables(ExactlyOnce):
    table_transform: TableTransform
    topic: str | None
    columns: dict[str, Any]

    def _process(self, records: Records[Any, Any], done: Progress) -> None:
        table = self._transformed(records.to_arrow())
        if table is not None and table.num_rows:
            deliveries = self._producer.send_arrow(self.topic, table, **self.columns)
            refused = deliveries.exception() if deliveries.done() else None  # a row that was not even queued would be missing
            if refused is not None:
                raise refused
            done.outputs += table.num_rows


    def _transformed(self, table: pa.Table) -> pa.Table | None:
        attempts = Attempts(self._retry)
        while True:
            try:
                return self.table_transform(table)
            except Exception as error:  # whatever a user's function raises
                seconds = attempts.pause(error)
                if seconds is None:
                    raise
                self._pause(seconds)
                self._loop.check_running()


class AsyncExactlyOnce:
    """`ExactlyOnce` for async clients; *transform* may be a coroutine function."""

    def __init__(self, consumer: AsyncConsumer[K, V], producer: AsyncProducer, transform: AsyncTransform[K, V], *, dead_letters: str | None = None,
                 retry: tenacity.BaseRetrying = RETRY, restart: tenacity.BaseRetrying = RESTART, commit_interval: float = COMMIT_INTERVAL_S) -> None:
        self._loop = Loop(consumer, producer, self._process, self._pause, restart, commit_interval)
        check_dead_letters(dead_letters, producer)
        self._producer = producer
        self._transform = transform
        self._dead_letters = dead_letters
        self._retry = retry
        self._stopped = asyncio.Event()
        self._running = False

    @property
    def progress(self) -> Progress:
        """What was done since the loop was made."""
        return self._loop.progress

    async def run(self) -> None:
        """Process until `stop`. A cancellation aborts the present transaction.

        Call `stop` from a handler of the event loop: ``loop.add_signal_handler(signal.SIGTERM, processing.stop)``.

        Raises:
            KafkaError, Exception: as `ExactlyOnce.run`.
        """
        if self._running:
            raise already_running()
        self._running = True
        try:
            await await_steps(self._loop.run(), perform_async)
        finally:
            self._running = False

    def stop(self) -> None:
        """Let `run` return after the present transaction."""
        self._stopped.set()
        self._loop.stop()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    async def _process(self, records: Records[Any, Any], done: Progress) -> None:
        for record in records:
            failure = self._loop.failure_of(record)
            if failure is None:
                failure = await self._send_outputs(record, done)
            if failure is not None:
                await self._give_up(record, failure, done)

    async def _send_outputs(self, record: Record[Any, Any], done: Progress) -> Failure | None:
        attempts = Attempts(self._retry)
        while True:
            try:
                given = self._transform(record)
                outputs = as_outputs(await given if inspect.isawaitable(given) else given)
            except Exception as error:  # noqa: BLE001  # whatever a user's function raises
                seconds = attempts.pause(error)
                if seconds is None:
                    return Failure(error, attempts.count)
                await self._pause(seconds)
                self._loop.check_running()
                continue
            sent = 0
            try:
                for each in outputs:
                    await self._producer.send(each.topic, each.value, each.key, partition=each.partition, timestamp=each.timestamp, headers=each.headers)
                    sent += 1
            except UNSENDABLE as error:
                return _unsendable(self._loop, record, Failure(error, attempts.count), sent)
            done.outputs += sent
            return None

    async def _give_up(self, record: Record[Any, Any], failure: Failure, done: Progress) -> None:
        if self._dead_letters is None:
            raise failure.error
        key, value = raw(record)
        await self._producer.send(self._dead_letters, value, key, timestamp=record.timestamp, headers=failure.headers(record))
        _log_dead_letter(record, failure, self._dead_letters)
        done.dead_letters += 1


def _unsendable(loop: Loop, record: Record[Any, Any], failure: Failure, sent: int) -> Failure:
    """The failure, if nothing was sent; else that is in the transaction, which has to begin again."""
    if not sent:
        return failure
    loop.given_up[TopicPartition(record.topic, record.partition), record.offset] = failure
    raise BadOutputError(record, failure.error)


def _log_dead_letter(record: Record[Any, Any], failure: Failure, topic: str) -> None:
    log.warning("record %d of %s-%d goes to %s after %d attempts: %s: %s", record.offset, record.topic, record.partition, topic, failure.attempts,
                type(failure.error).__name__, failure.error)


def perform(step: Step) -> Any:
    """Make a call of sync clients."""
    return step()


async def perform_async(step: Step) -> Any:
    """Make a call of async clients."""
    result = step()
    return await result if inspect.isawaitable(result) else result


class Stopped:
    """An event that a signal handler may set while its own thread waits for it; threading's would wait for a lock."""

    def __init__(self) -> None:
        self._is_set = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        """End each wait, those to come too."""
        self._is_set = True
        with suppress(RuntimeError):  # it is open already
            self._gate.release()

    def wait(self, seconds: float) -> None:
        """Wait until it is set, at most so many seconds. One thread at a time."""
        if not self._is_set and self._gate.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            self.set()


@contextmanager
def stopped_by(signals: Iterable[signal.Signals], stop: Callable[[], None]) -> Iterator[None]:
    """While it is open these signals call *stop*; in another thread than the main one it does nothing."""
    chosen = list(signals) if threading.current_thread() is threading.main_thread() else []

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop()

    before = {each: signal.getsignal(each) for each in chosen}
    try:
        for each in chosen:
            signal.signal(each, handle)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


