"""What the consumer's two faces share: checks, and the state of the one thread or task that uses the consumer."""
from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from typing_extensions import Unpack

from pyclient.buffers.records_view import Records
from pyclient.config import ConsumerConfig
from pyclient.errors import ConfigurationError, IllegalStateError, WakeupError, raisable
from pyclient.option_types import ConsumerOptions
from pyclient.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from pyclient.consumer.single_user import SingleUser
from pyclient.consumer.core import ConsumerCore
from pyclient.client.facade_base import Facade, left, seconds, sooner
from pyclient.consumer.arguments import as_offsets, as_partition, as_partitions, as_subscription, check_offset
from pyclient.consumer.consumed_positions import ConsumedPositions
from pyclient.consumer.rebalance import Rebalancing, check_listener

_log = logging.getLogger(__name__)
T = TypeVar("T")
Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]
OnCommit: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata], BaseException | None], object]
Commit: TypeAlias = "concurrent.futures.Future[None] | asyncio.Task[None]"
MIN_POLL_WAIT: Final = 0.1
"""Seconds that a waiting poll lets pass at least before it looks whether an automatic commit is due."""


class ConsumerBase(Facade):
    """What both faces share: state of the one thread or task that uses the consumer."""

    _core: ConsumerCore

    def __init__(self, config: Mapping[str, object] | None = None, /, *, topics: Any = None, rebalance_listener: Any = None,
                 key_deserializer: Any = None, value_deserializer: Any = None, interceptors: Any = (), assignors: Any = None,
                 **options: Unpack[ConsumerOptions]) -> None:
        self._config = ConsumerConfig.parse(config, {
            **options, "key_deserializer": key_deserializer, "value_deserializer": value_deserializer, "assignors": assignors,
            "interceptors": None if interceptors == () else interceptors})
        self._core = ConsumerCore(self._config)
        self._consumed_positions = ConsumedPositions(self._core)
        self._rebalancing = Rebalancing(self._core, self._consumed_positions)
        self._single_user = SingleUser(self._open_core, self._user)
        self._commits: deque[tuple[Commit, dict[TopicPartition, OffsetAndMetadata], OnCommit]] = deque()
        self._callback_lock = threading.RLock()  # a callback may use the consumer, and so tell the next ones
        if topics is not None:
            self._subscribe(topics, rebalance_listener)
        elif rebalance_listener is not None:
            raise ConfigurationError("a rebalance_listener is told of the partitions of topics=: give both, or subscribe()", option="rebalance_listener")
        self._start()

    def _start(self) -> None:
        """What a face does before its first call."""

    def _now(self, work: Callable[[], T]) -> T:
        """Do *work*, which does not wait, on the client's loop."""
        raise NotImplementedError

    def _soon(self, make: Callable[[], Coroutine[Any, Any, None]]) -> Commit:
        """Begin *make*'s work on the client's loop; nobody waits for it."""
        raise NotImplementedError

    # ---- without waiting --------------------------------------------------------------------------------------------

    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        self._open_core()
        return frozenset(self._core.fetcher.positions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until `resume`; what is fetched is kept."""
        wanted = as_partitions(partitions)
        with self._single_user:
            self._now(lambda: self._core.pause(wanted))
            self._consumed_positions.interrupt()

    def resume(self, *partitions: TopicPartition) -> None:
        """End `pause` for these."""
        wanted = as_partitions(partitions)
        with self._single_user:
            self._now(lambda: self._core.resume(wanted))

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        self._open_core()
        return self._core.fetcher.paused

    def commit_async(self, offsets: Offsets | None = None, callback: OnCommit | None = None) -> None:
        """As `commit`, without waiting. ``callback(offsets, error)`` runs at the start of a later poll or at the end of a commit.

        There it may use the consumer, whose call goes on afterwards. The close, too, tells what is left; then nothing may be called.
        """
        with self._single_user:
            self._core.commits.group()
            self._submit_commit(self._to_commit(offsets), callback or _log_failure)

    def subscription(self) -> frozenset[str]:
        """The subscribed topics; of a pattern those that match it now."""
        self._open_core()
        return self._core.member().topics if self._core.subscribed else frozenset()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom the last poll ended: what a transaction that commits these offsets is fenced by (KIP-447).

        Raises:
            IllegalStateError: the consumer has no ``group_id``.
        """
        self._open_core()
        return self._rebalancing.metadata()

    def wakeup(self) -> None:
        """Make a poll that waits, or the next one, raise `WakeupError`. For any thread."""
        self._core.check_process()
        self._core.buffer.wake()

    def metrics(self) -> dict[str, float]:
        """Figures by Kafka's names, as they stand now."""
        return self._core.figures()

    # ---- shared by poll and iteration -------------------------------------------------------------------------------

    def _user(self) -> object:
        """Who calls: a thread or a task."""
        raise NotImplementedError

    def _take(self, limit: int) -> Records:
        """What is there; a pending wakeup comes first."""
        if self._core.buffer.take_wake():
            raise raisable(self._core.closed or WakeupError("wakeup() was called"))
        return self._consumed_positions.take(limit)

    def _skip(self, records: Records) -> bool:
        """A poll goes on behind what it does not hand out. Whether that may go on for long, since records are left out: that is committed meanwhile."""
        if not (self._consumed_positions.may_drop_records and records.next_offsets()):
            self._consumed_positions.hand(records)
            return False
        self._consumed_positions.skip(records)
        self._save()
        return True

    def _limit(self, max_records: int | None) -> int:
        limit = self._config.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records {limit} is below 1: a poll that may return nothing never gets on")
        return limit

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = as_partitions(partitions)
        with self._single_user.outside_listeners:
            if self._core.subscribed:
                raise IllegalStateError("this consumer is subscribed to topics, and its group gives it partitions: unsubscribe() first")
            gone = set(self._core.fetcher.positions) - set(wanted)
            self._now(lambda: self._core.assign(wanted))
            self._consumed_positions.forget(gone)

    def _subscribe(self, topics: Any, listener: Any) -> None:
        """On the loop, or before there is one."""
        wanted = as_subscription(topics, internal=not self._config.exclude_internal_topics)
        check_listener(listener)
        if self._core.fetcher.positions and not self._core.subscribed:
            raise IllegalStateError("this consumer has partitions by assign(): unsubscribe() first, or leave the topics to assign()")
        self._core.subscribe(wanted)
        self._rebalancing.listener = listener

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        tp = as_partition(partition)
        check_offset(offset)
        with self._single_user:
            self._now(lambda: self._core.seek(tp, offset))
            self._consumed_positions.start_at(tp, offset)

    def _reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        wanted = as_partitions(partitions)
        with self._single_user:
            chosen = wanted or list(self._core.fetcher.positions)
            self._now(lambda: self._core.reset(chosen, timestamp))
            self._consumed_positions.forget(chosen)

    def _timeout(self, timeout: float | None) -> float | None:
        return seconds(timeout, self._config.default_api_timeout_ms)

    # ---- commits ----------------------------------------------------------------------------------------------------

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        return as_offsets(self._consumed_positions.committable() if offsets is None else offsets)

    def _save(self) -> None:
        """Automatic commits: what earlier polls handed out, every auto_commit_interval_ms, also while a poll waits (C21)."""
        self._tell(_log_failure)
        if not self._commits and self._core.may_auto_commit and (due := self._consumed_positions.due()):
            self._submit_commit(as_offsets(due), _log_failure, automatic=True)

    def _patience(self, deadline: float | None) -> float | None:
        """Seconds that a poll may wait before it has to look after something; None: without end."""
        ends = None if deadline is None else left(deadline, self._core.clock)
        auto_commit_in = self._consumed_positions.auto_commit_in()
        return sooner(sooner(self._core.patience(), ends), None if auto_commit_in is None else max(auto_commit_in, MIN_POLL_WAIT))

    def _submit_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: OnCommit, *, automatic: bool = False) -> None:
        limit = self._config.default_api_timeout_ms / 1000
        self._commits.append((self._soon(lambda: self._core.commit(offsets, limit, automatic=automatic)), offsets, callback))

    def _tell(self, only: OnCommit | None = None) -> None:
        """Tell the outcome of commits that have ended, in their order; while nothing else runs, so that callbacks may use the consumer.

        In the middle of a call *only* those with this callback, which does not use it, up to the first with another one.

        A second thread is told later that it must not be here: until then it leaves the telling to the first, who looks again.
        """
        while self._commits and self._first_is_done(only) and self._callback_lock.acquire(blocking=False):
            try:
                if self._first_is_done(only):
                    self._complete_first()
            finally:
                self._callback_lock.release()

    def _first_is_done(self, only: OnCommit | None) -> bool:
        try:
            commit, _, callback = self._commits[0]
            return only in (None, callback) and commit.done()
        except IndexError:
            return False

    def _complete_first(self) -> None:
        commit, offsets, callback = self._commits.popleft()
        error = self._core.closed if commit.cancelled() else commit.exception()
        if error is None:
            self._consumed_positions.note_commits()
        try:
            callback(offsets, error)
        except Exception:  # noqa: BLE001 a user's error does not undo the commit
            _log.exception("a commit callback raised")


def _log_failure(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: BaseException | None) -> None:
    """Nobody asked for the outcome: a failure is logged, the next commit stores newer positions."""
    if error is not None:
        _log.warning("committing %d offsets failed: %s", len(offsets), error)
