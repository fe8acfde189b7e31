"""What `Consumer` and `AsyncConsumer` share. Calls that wait are generators of steps, which each drives in its way.

Holds the state of the one thread or task that uses the consumer.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from pyclient.buffers.collect import Bounds
from pyclient.buffers.records_view import Records
from pyclient.client.facade_base import Facade, seconds
from pyclient.config import ConsumerConfig
from pyclient.consumer.arguments import as_offsets, as_partition, as_partitions, as_subscription, as_sought, check_callback, some_partitions
from pyclient.consumer.commit_order import Turn
from pyclient.consumer.consumed_positions import ConsumedPositions
from pyclient.consumer.core import ConsumerCore
from pyclient.consumer.description import description
from pyclient.consumer.pending_commits import CommitTask, OnCommit, PendingCommits, log_failure
from pyclient.consumer.polls import Polls
from pyclient.consumer.rebalance import Rebalancing, check_listener
from pyclient.consumer.single_user import SingleUser
from pyclient.core.fetching.lookups import LATEST
from pyclient.errors import IllegalStateError
from pyclient.records import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from pyclient.records.record import Record
from pyclient.runtime.portals import Portal
from pyclient.runtime.steps import Step, Steps, WaitFor

T = TypeVar("T")
Offsets: TypeAlias = Mapping[TopicPartition, int] | Mapping[TopicPartition, OffsetAndMetadata] | Mapping[TopicPartition, int | OffsetAndMetadata] | Record[Any, Any]
SomePartitions: TypeAlias = TopicPartition | Iterable[TopicPartition]
CLOSE_TIMEOUT_MS: Final = 5_000
"""Long enough for the last commit and to leave the group, when brokers are there; short when they are gone."""


class ConsumerBase(Facade):
    """The logic of both consumers; their public methods are in `facade` and `async_facade`."""

    _core: ConsumerCore
    _awaits: ClassVar[bool]
    """Whether the methods of a listener may be coroutine functions."""
    _current_user: Callable[[], object]
    """Returns the caller: a thread or a task."""

    def __init__(self, portal: Portal, config: Mapping[str, object] | None, options: Mapping[str, object], interceptors: Any, topics: Any,
                 rebalance_listener: Any) -> None:
        plugins = {"interceptors": None if interceptors == () else interceptors}
        self._config = ConsumerConfig.parse(config, {**options, **plugins})
        self._core = ConsumerCore(self._config, portal)
        self._consumed_positions = ConsumedPositions(self._core, self._bounds(), self._awaits)
        self._single_user = SingleUser(self._open_core, self._current_user)
        self._rebalancing = Rebalancing(self._core, self._consumed_positions, self._single_user)
        self._pending_commits = PendingCommits(self._core, self._consumed_positions)
        self._polls = Polls(self._core, self._consumed_positions, self._rebalancing, self._pending_commits, self._start_auto_commit)
        check_listener(rebalance_listener, awaited=self._awaits)
        self._rebalancing.listener = rebalance_listener
        if topics is not None:
            self._subscribe(topics, None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {description(self._core) if hasattr(self, '_core') else 'without options yet'}>"

    def _bounds(self) -> Bounds:
        """A thread opens any batch itself, a loop only small ones."""
        inline = self._core.environment.open_inline_bytes if self._awaits else sys.maxsize
        return Bounds(self._config.fetch_buffer_memory, inline)

    def _run_on_loop(self, function: Callable[[], T]) -> T:
        """Call *function*, which does not wait, in a step."""
        raise NotImplementedError

    def _start(self, make: Callable[[Turn | None], Coroutine[Any, Any, None]]) -> CommitTask:
        """Start a commit in a step, without waiting for it. Without a turn it announces one as it begins."""
        raise NotImplementedError

    # ---- assignment -------------------------------------------------------------------------------------------------

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = as_partitions(partitions)
        with self._single_user.outside_listeners:
            if self._core.subscribed:
                raise IllegalStateError("this consumer is subscribed to topics, and its group assigns its partitions: unsubscribe() first")
            self._replace_assignment(wanted)

    def _replace_assignment(self, wanted: list[TopicPartition]) -> None:
        gone = set(self._core.fetcher.positions) - set(wanted)
        self._run_on_loop(lambda: self._core.assign(wanted))
        self._consumed_positions.forget(gone)

    def _change_subscription(self, topics: Any, listener: Any) -> None:
        with self._single_user.outside_listeners:
            self._run_on_loop(lambda: self._subscribe(topics, listener))
            self._consumed_positions.stop_iteration()

    def _subscribe(self, topics: Any, listener: Any) -> None:
        """Runs in a step, or before there is one."""
        wanted = as_subscription(topics, internal=not self._config.exclude_internal_topics)
        check_listener(listener, awaited=self._awaits)
        if self._core.fetcher.positions and not self._core.subscribed:
            raise IllegalStateError("this consumer has partitions by assign(): unsubscribe() first, or leave the topics to assign()")
        self._core.subscribe(wanted)
        self._rebalancing.listener = self._rebalancing.listener if listener is None else listener

    def _unsubscribe(self) -> Steps[Step, None]:
        if self._core.subscribed:
            self._consumed_positions.settle()
            yield from self._rebalancing.leave("unsubscribed", None, clean=True)
        else:
            self._replace_assignment([])

    def _enforce_rebalance(self, reason: str | None) -> None:
        said = reason or "the user enforced a rebalance"
        with self._single_user:
            self._run_on_loop(lambda: self._core.enforce_rebalance(said))

    def _pause(self, partitions: Iterable[object]) -> None:
        wanted = some_partitions(partitions)
        with self._single_user:
            self._run_on_loop(lambda: self._core.pause(wanted))
            self._consumed_positions.stop_iteration()

    def _resume(self, partitions: Iterable[object]) -> None:
        wanted = some_partitions(partitions)
        with self._single_user:
            self._run_on_loop(lambda: self._core.resume(wanted))

    # ---- poll and iteration -----------------------------------------------------------------------------------------

    def _poll_buffered(self) -> Records[Any, Any]:
        """Up to ``max_poll_records`` records that are there now, as a poll returns them. Nothing of the group is done.

        For a transaction, which no rebalance may interrupt. None are returned once a rebalance or a wakeup waits for a
        poll, which then comes first.
        """
        held = self._single_user.outside_listeners.__enter__()
        try:
            records = self._polls.read_on(self._config.max_poll_records)
            returned = self._consumed_positions.returned_with(records)
        except BaseException:
            held.clear()
            raise
        self._consumed_positions.returned, self._consumed_positions.in_transit = returned, None  # as in `poll`
        del held[None]
        return records

    # ---- positions and offsets --------------------------------------------------------------------------------------

    def _seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        tp = as_partition(partition)
        position = as_sought(tp, offset)
        with self._single_user:
            self._run_on_loop(lambda: self._core.seek(tp, position))
            self._consumed_positions.start_at(tp, position)

    def _reset(self, partitions: Iterable[object], timestamp: int) -> None:
        wanted = some_partitions(partitions)
        with self._single_user:
            chosen = wanted or list(self._core.fetcher.positions)
            self._run_on_loop(lambda: self._core.reset(chosen, timestamp))
            self._consumed_positions.move(chosen)

    def _position(self, tp: TopicPartition, timeout: float | None) -> Steps[Step, int]:
        known = self._consumed_positions.position(tp)
        if known is not None:
            return known
        start: int = yield WaitFor(lambda: self._core.position(tp, timeout))
        return start

    def _offsets(self, times: Mapping[TopicPartition, int], timeout: float | None,
                 ) -> Steps[Step, dict[TopicPartition, OffsetAndTimestamp | None]]:
        found: dict[TopicPartition, OffsetAndTimestamp | None] = yield WaitFor(lambda: self._core.offsets(times, timeout))
        return found

    def _log_ends(self, partitions: Iterable[TopicPartition], which: int, timeout: float | None) -> Steps[Step, dict[TopicPartition, int]]:
        """The first or last offset of each partition: *which* is EARLIEST or LATEST."""
        found = yield from self._offsets(dict.fromkeys(partitions, which), timeout)
        return {tp: answer.offset for tp, answer in found.items() if answer is not None}

    def _lag(self, timeout: float | None) -> Steps[Step, dict[TopicPartition, int]]:
        ends = yield from self._log_ends(self._core.fetcher.positions, LATEST, timeout)
        lag = {}
        for tp, end in ends.items():
            position = yield from self._position(tp, timeout)
            lag[tp] = max(0, end - position)
        return lag

    def _timeout(self, timeout: float | None) -> float | None:
        return seconds(timeout, self._config.default_api_timeout_ms)

    # ---- commits ----------------------------------------------------------------------------------------------------

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        return as_offsets(self._consumed_positions.committable() if offsets is None else offsets)

    def _commit(self, offsets: Offsets | None, timeout: float | None) -> Steps[Step, None]:
        given = self._to_commit(offsets)
        yield WaitFor(lambda: self._core.commit(given, timeout))
        self._consumed_positions.note_commits()

    def _commit_async(self, offsets: Offsets | None, callback: OnCommit | None) -> None:
        check_callback(callback)
        with self._single_user:
            self._core.commits.group()
            self._start_commit(self._to_commit(offsets), callback or log_failure)

    def _store_offsets(self, offsets: Offsets) -> None:
        given = as_offsets(offsets)
        if self._config.enable_auto_offset_store:
            raise IllegalStateError("store_offsets() needs enable_auto_offset_store=False: without it, positions count as consumed when the next poll "
                                    "begins, and would replace what is stored here")
        with self._single_user:
            self._core.commits.group()
            for tp in given:
                self._core.check_assigned(tp)
            self._consumed_positions.store(given)

    def _done(self, record: Record[Any, Any]) -> None:
        if not isinstance(record, Record):
            raise TypeError(f"done() takes a record that a poll returned, got {type(record).__name__} {record!r}")
        if self._config.enable_auto_offset_store:
            raise IllegalStateError("done() needs enable_auto_offset_store=False: without it, all records count as consumed when the next poll begins")
        self._open_core()
        self._core.commits.group()
        self._consumed_positions.done(TopicPartition(record.topic, record.partition), record.offset)

    def _committed(self, partitions: list[TopicPartition], timeout: float | None,
                   ) -> Steps[Step, dict[TopicPartition, OffsetAndMetadata | None]]:
        found: dict[TopicPartition, OffsetAndMetadata | None] = yield WaitFor(lambda: self._core.commits.committed(partitions, timeout))
        return found

    def _start_auto_commit(self, positions: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self._start_commit(as_offsets(positions), log_failure, automatic=True)

    def _start_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: OnCommit, *, automatic: bool = False) -> None:
        timeout = self._config.default_api_timeout_ms / 1000
        task = self._start(lambda turn: self._core.commit(offsets, timeout, automatic=automatic, turn=turn))
        self._pending_commits.add(task, offsets, callback)

    # ---- close ------------------------------------------------------------------------------------------------------

    def _finish(self, timeout: float | None, *, clean: bool, leave: bool | None = None) -> Steps[Step, None]:
        """Leave the group and commit what is consumed. Not *clean*: the last records do not count as consumed."""
        if clean:
            self._consumed_positions.settle()
        else:
            self._consumed_positions.discard_returned()
        if self._core.subscribed:
            yield from self._rebalancing.leave("closed", timeout, clean=clean, leaves=leave)
        elif clean:
            yield from self._last_commit(timeout)

    def _last_commit(self, timeout: float | None) -> Steps[Step, None]:
        uncommitted = self._consumed_positions.uncommitted() if self._consumed_positions.auto_commits else {}
        if uncommitted or self._pending_commits:
            yield WaitFor(lambda: self._core.commit(as_offsets(uncommitted), timeout, automatic=True))
            self._consumed_positions.note_commits()
