"""What is common to both loops: outputs, figures, policies, and the order of calls that makes each input count once.

`Loop` is written once as a generator of steps; `exactly_once` performs them for a sync and for an async client. One
transaction holds the outputs of one poll, of the records that are buffered behind it, and the offsets behind all of
them. No transaction is open inside a poll, where partitions come and go: buffered records are taken without one, until
a rebalance waits for a poll.
"""
from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import tenacity

from pyclient.buffers.records_view import Records, first_offsets
from pyclient.core.transactions.states import TransactionEvent, TransactionState
from pyclient.errors import (
    ClientClosedError, ClientForkedError, ConfigurationError, IllegalStateError, KafkaError, KafkaTimeoutError, WakeupError, WrongEventLoopError,
)
from pyclient.processing.dead_letters import Failure
from pyclient.processing.outputs import Output
from pyclient.producer.transactions import after_fatal
from pyclient.records import OffsetAndMetadata, TopicPartition
from pyclient.records.record import Record
from pyclient.runtime.steps import Steps

log = logging.getLogger(__name__)

Step: TypeAlias = Callable[[], Any]
"""A call; its result is awaited where clients are async."""
POLL_S: Final = 1.0
"""Longest poll, and part of the wait for a producer id, in seconds. `Loop.stop` ends a poll at once."""
COMMIT_INTERVAL_S: Final = 0.1
"""How long a transaction goes on with buffered records, as Kafka Streams' commit.interval.ms under exactly-once."""
TIMEOUT_PER_INTERVAL: Final = 10
"""So many times the commit interval fits at least into ``transaction_timeout_ms``: a transaction takes longer, by its
last poll's records and its commit."""
RETRY: Final = tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_exponential(multiplier=0.1, max=5))
"""How often a function is called with one record."""
RESTART: Final = tenacity.Retrying(stop=tenacity.stop_after_delay(600), wait=tenacity.wait_exponential(multiplier=0.1, max=10))
"""How often transactions may fail in a row."""
MISUSE: Final = (IllegalStateError, ClientClosedError, ClientForkedError, WrongEventLoopError)
"""What is not allowed later, either."""


@attrs.define
class Progress:
    """What a loop has done: figures of committed transactions, and how many were aborted."""

    records: int = 0
    outputs: int = 0
    dead_letters: int = 0
    transactions: int = 0
    aborted: int = 0

    def add(self, other: Progress) -> None:
        """Count a committed transaction."""
        self.records += other.records
        self.outputs += other.outputs
        self.dead_letters += other.dead_letters
        self.transactions += 1


class Attempts:
    """A tenacity policy, asked after each failure of a row. Costs nothing before the first one."""

    __slots__ = ("_policy", "_state")

    def __init__(self, policy: tenacity.BaseRetrying) -> None:
        self._policy = policy
        self._state: tenacity.RetryCallState | None = None

    def reset(self) -> None:
        """It has succeeded: the next failure is the first of a row."""
        self._state = None

    @property
    def count(self) -> int:
        """The number of this attempt, from 1."""
        return 1 if self._state is None else self._state.attempt_number

    def pause(self, error: BaseException) -> float | None:
        """Seconds to wait before the next attempt; None: that was the last."""
        if self._state is None:
            self._state = tenacity.RetryCallState(self._policy, None, (), {})  # no function: it is called by the loop
        self._state.set_exception((type(error), error, error.__traceback__))
        if self._policy.stop(self._state):
            return None
        seconds = self._policy.wait(self._state)
        self._state.prepare_for_next_attempt()
        return float(seconds)


class BadOutputError(Exception):
    """An output cannot be sent: its record is given up, and the transaction begins again without it."""

    def __init__(self, record: Any, error: BaseException) -> None:
        super().__init__(str(error))
        self.record = record
        self.error = error


class Inputs:
    """What a transaction has read: the newest poll's records, and where all its polls begin and end.

    Earlier records are not kept, for they hold memory.
    """

    __slots__ = ("_first", "_next", "newest")

    def __init__(self) -> None:
        self.newest: Records[Any, Any] = Records()
        self._first: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, OffsetAndMetadata] = {}

    def __bool__(self) -> bool:
        return bool(self.newest) or bool(self._first)

    def first_offsets(self) -> Mapping[TopicPartition, int]:
        """The offset of each partition's first record."""
        self.add_newest()
        return self._first

    def next_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The positions behind all records."""
        self.add_newest()
        return self._next

    def add_newest(self) -> None:
        """Count the newest records in. Repeatable: Ctrl-C may come between a poll and this."""
        self._first = {**first_offsets(self.newest), **self._first}
        self._next = {**self._next, **self.newest.next_offsets()}


class Loop:
    """The order of calls. *consumer* and *producer* are both sync or both async."""

    def __init__(self, consumer: Any, producer: Any, process: Callable[[Records[Any, Any], Progress], Any], pause: Callable[[float], Any],
                 restart: tenacity.BaseRetrying, commit_interval: float) -> None:
        check_clients(consumer, producer)
        check_commit_interval(commit_interval, producer)
        self.consumer = consumer
        self.producer = producer
        self.progress = Progress()
        self.stopping = False
        self.given_up: dict[tuple[TopicPartition, int], Failure] = {}
        """Records whose outputs cannot be sent; they go to the dead letters."""
        self._inputs = Inputs()
        """Of a turn that has not ended; the next `run` ends one that Ctrl-C broke off."""
        self._poll_error: Exception | None = None
        """What the consumer raised behind records of a transaction; raised once they are committed."""
        self._repeats = False
        """Records of an aborted transaction come again: each poll is committed alone, so that less is repeated."""
        self._begun = False
        self._commits = False
        self._done = Progress()
        self._process = process
        self._pause = pause
        self._attempts = Attempts(restart)
        self._commit_interval = commit_interval
        self._clock = consumer._core.clock

    def stop(self) -> None:
        """End after the present transaction. Any thread may call it, and a signal handler."""
        self.stopping = True
        self.consumer.wakeup()

    def failure_of(self, record: Record[Any, Any]) -> Failure | None:
        """Why the record was given up, if it was."""
        return self.given_up.get((TopicPartition(record.topic, record.partition), record.offset)) if self.given_up else None

    def check_running(self) -> None:
        """Between two attempts with one record: a loop that was stopped does not go on with it.

        Raises:
            WakeupError: it was stopped; the transaction is to be aborted.
        """
        if self.stopping:
            raise WakeupError("the loop was stopped")

    def run(self) -> Steps[Step, None]:
        """Process until `stop`.

        Raises:
            KafkaError: it is fatal, or transactions failed as often as the policy allows.
            IllegalStateError: someone else uses the clients.
            ClientClosedError: one of them was closed.
            Exception: what the function raised, when there is no topic for dead letters.
        """
        yield from self._initialize()
        yield from self._undo(None)
        while not self.stopping:
            try:
                yield from self._turn()
                self._attempts.reset()
            except WakeupError:
                continue  # `stop`, or the user's own
            except BadOutputError:
                continue  # its record is given up: the next attempt gets further
            except KafkaError as error:
                yield from self._wait_after(error)

    def _initialize(self) -> Steps[Step, None]:
        """Get a producer id within ``max_block_ms``, unless `stop` comes first.

        A call that ran out of time goes on (T02).
        """
        calls, limit = self.producer._transaction_calls(), self.producer._core.config.max_block_ms / 1000
        left, wanted = limit, calls.untaken is TransactionEvent.INITIALIZE or calls.state in (
            TransactionState.UNINITIALIZED, TransactionState.INITIALIZING)
        while wanted and not self.stopping:
            part = min(left, POLL_S)
            try:
                yield partial(self.producer.init_transactions, timeout=part)
                wanted = False
            except KafkaTimeoutError as error:
                left -= part
                if left <= 0:
                    error.add_note(f"ExactlyOnce has waited for {limit} s, max_block_ms.")
                    raise

    def _wait_after(self, error: KafkaError) -> Steps[Step, None]:
        seconds = None if error.fatal or isinstance(error, MISUSE) else self._attempts.pause(error)
        if seconds is None:
            raise error
        log.warning("a transaction of %s was aborted and is repeated after %.1f s (attempt %d): %s", self.producer, seconds, self._attempts.count, error)
        yield lambda: self._pause(seconds)

    def _turn(self) -> Steps[Step, None]:
        self._begun, self._commits, self._done = False, False, Progress()
        try:
            yield self._poll
            if self._inputs.newest:
                yield from self._transact(self._inputs, self._done)
            else:
                self._repeats = False
        except BaseException as error:
            yield from self._undo(error)
            raise

    def _poll(self) -> Any:
        """Keep what was polled: Ctrl-C may come before a step's result has arrived."""
        if (error := self._poll_error) is not None and not self._repeats:
            self._poll_error = None
            raise error
        self._inputs.newest = found = self.consumer.poll(POLL_S)
        if inspect.isawaitable(found):
            self._inputs.newest = Records()
            return self._keep(found)
        return None

    async def _keep(self, found: Awaitable[Records[Any, Any]]) -> None:
        self._inputs.newest = await found

    def _poll_buffered(self) -> None:
        """Records that are there already. What is raised instead concerns none of the transaction's records."""
        self._inputs.add_newest()
        try:
            self._inputs.newest = self.consumer._poll_buffered()
        except Exception as error:  # noqa: BLE001  # a partition that cannot be read, or a user's deserializer
            self._inputs.newest, self._poll_error = Records(), error

    def _transact(self, inputs: Inputs, done: Progress) -> Steps[Step, None]:
        until = self._clock() + (0 if self._repeats else self._commit_interval)
        self._begun = True
        try:
            yield self.producer.begin_transaction
        except IllegalStateError:
            self._begun = False  # the one that is open is not this loop's
            raise
        while inputs.newest:
            yield lambda: self._process(inputs.newest, done)
            done.records += len(inputs.newest)
            if self._clock() >= until:
                break
            yield self._poll_buffered  # none once `stop` was called: it wakes the consumer
        yield lambda: self.producer.send_offsets(inputs.next_offsets(), self.consumer.group_metadata())
        self._commits = True
        yield from self._end(self.producer.commit_transaction)
        self._committed(inputs)

    def _committed(self, inputs: Inputs) -> None:
        self._inputs, self._repeats = Inputs(), False
        self.progress.add(self._done)
        self._forget_before(inputs.next_offsets())

    def _undo(self, error: BaseException | None) -> Steps[Step, None]:
        """After *error*, or at the beginning of a run (None): abort what is open, and go back to before its records.

        Nothing if the producer cannot continue. A commit that Ctrl-C broke off ends first.
        """
        inputs = self._inputs
        if isinstance(error, KafkaError) and error.fatal and inputs:
            self._inputs = Inputs()
            yield lambda: self.producer._run(after_fatal(self.producer._transaction_calls(), error))
        elif inputs and not isinstance(error, Exception) and (yield from self._has_committed()):
            self._committed(inputs)
        elif inputs:
            yield from self._abort(inputs, error)

    def _has_committed(self) -> Steps[Step, bool]:
        calls = self.producer._transaction_calls()
        if self._commits and calls.untaken is TransactionEvent.COMMIT:
            try:
                yield from self._end(self.producer.commit_transaction)
            except KafkaError:
                return False
        return self._commits and calls.state is TransactionState.READY

    def _abort(self, inputs: Inputs, error: BaseException | None) -> Steps[Step, None]:
        calls = self.producer._transaction_calls()
        self._commits = False
        if self._begun and (isinstance(error, Exception) or calls.is_open or calls.untaken is TransactionEvent.ABORT):
            self.progress.aborted += 1
            try:
                yield from self._end(self.producer.abort_transaction)
            except KafkaError as failed:
                self._commits = calls.untaken is TransactionEvent.COMMIT
                if error is None:
                    raise
                if failed.fatal and isinstance(error, KafkaError | BadOutputError):
                    raise failed from error
                error.add_note(f"Aborting the transaction failed too: {failed}")
                return
        yield lambda: self._rewind(inputs.first_offsets())
        self._inputs, self._repeats = Inputs(), True

    def _end(self, call: Step) -> Steps[Step, None]:
        """Commit or abort; a call that ran out of time goes on, and is made again to learn its outcome."""
        attempts = Attempts(RESTART)
        while True:
            try:
                yield call
            except KafkaTimeoutError as error:
                seconds = attempts.pause(error)
                if seconds is None:
                    raise
                yield partial(self._pause, seconds)
                continue
            return

    def _forget_before(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Records that were given up, and whose transaction is committed now."""
        self.given_up = {(tp, offset): failure for (tp, offset), failure in self.given_up.items() if tp not in positions or offset >= positions[tp].offset}

    def _rewind(self, first_offsets: Mapping[TopicPartition, int]) -> None:
        """Partitions that were lost meanwhile are read by their new owner, from the committed offsets."""
        assigned = self.consumer.assignment()
        for tp, offset in first_offsets.items():
            if tp in assigned:
                self.consumer.seek(tp, offset)


def check_clients(consumer: Any, producer: Any) -> None:
    """Whether these clients can process exactly once.

    Raises:
        ConfigurationError: an option of the consumer does not allow it.
        IllegalStateError: the producer is not transactional.
    """
    config = consumer._config
    if config.group_id is None:
        raise ConfigurationError("ExactlyOnce commits offsets of a group: give the consumer a group_id", option="group_id")
    if config.enable_auto_commit:
        raise ConfigurationError("ExactlyOnce commits offsets in its transactions: give the consumer enable_auto_commit=False", option="enable_auto_commit")
    if config.isolation_level != "read_committed":
        raise ConfigurationError("ExactlyOnce must not see records of transactions that are aborted: give the consumer isolation_level='read_committed'",
                                 option="isolation_level")
    producer._transaction_calls().check()


def check_commit_interval(seconds: object, producer: Any) -> None:
    """Whether a transaction that goes on for so long ends well before its coordinator would abort it.

    Raises:
        ConfigurationError: it is no number, negative, or too long.
    """
    config = producer._core.config
    timeout_ms = config.transaction_timeout_ms
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds >= 0:
        raise ConfigurationError(f"commit_interval is {seconds!r}: give seconds, 0 or more; 0 commits after each poll", option="commit_interval")
    if not config.transaction_two_phase_commit_enable and seconds > timeout_ms / (1000 * TIMEOUT_PER_INTERVAL):
        raise ConfigurationError(
            f"commit_interval={seconds} is too long for the producer's transaction_timeout_ms={timeout_ms}: transactions that take longer are aborted. Give "
            f"at most {timeout_ms / 1000 / TIMEOUT_PER_INTERVAL:g} s, a {TIMEOUT_PER_INTERVAL}th of it, or raise transaction_timeout_ms.", option="commit_interval")


def check_dead_letters(topic: str | None, producer: Any) -> None:
    """Dead letters are written byte for byte, which a serializer would not allow.

    Raises:
        ConfigurationError: the producer has a serializer.
    """
    config = producer._core.config
    given = [name for name in ("key_serializer", "value_serializer") if getattr(config, name) is not None]
    if topic is not None and given:
        raise ConfigurationError(f"dead_letters needs a producer without {' and '.join(given)}: failed records are written byte for byte. Serialize outputs in "
                                 "your function.", option=given[0])


def as_outputs(given: Iterable[Output] | Output | None) -> list[Output]:
    """What a function returned, as a list.

    Raises:
        TypeError: it is something else.
    """
    if given is None:
        return []
    if isinstance(given, Output):
        return [given]
    outputs = list(given)
    for each in outputs:
        if not isinstance(each, Output):
            raise TypeError(f"the function returned {type(each).__name__} {each!r} among its outputs: expected Output(topic, value, key, ...)")
    return outputs


def already_running() -> IllegalStateError:
    """One loop runs once at a time."""
    return IllegalStateError("this loop is running already")
