"""`Consumer`: every public method. `facade_base` has the logic; here is how a thread waits."""
from __future__ import annotations

import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar, Unpack

from pyclient.buffers.record_iterator import RecordIterator, RecordCursor
from pyclient.buffers.records_view import Records
from pyclient.client.facade_base import OPTION, raise_or_note, seconds
from pyclient.config.declaration import with_hidden_secrets
from pyclient.consumer.arguments import as_partition, as_partitions, as_times
from pyclient.consumer.commit_order import Turn
from pyclient.consumer.facade_base import CLOSE_TIMEOUT_MS, Offsets, SomePartitions
from pyclient.consumer.metadata_calls import MetadataCalls
from pyclient.consumer.pending_commits import CommitTask, OnCommit
from pyclient.core.fetching.lookups import EARLIEST, LATEST
from pyclient.errors import KafkaError, raisable
from pyclient.foreign_calls import answers_foreign_calls, unknown_keywords
from pyclient.plugins import AnyRebalanceListener
from pyclient.records import (
    ConsumerGroupMetadata, K_co, OffsetAndMetadata, OffsetAndTimestamp, SubscriptionPattern, TopicPartition, V_co)
from pyclient.records.record import Record
from pyclient.runtime.environment import thread_reactor
from pyclient.runtime.portals import ThreadPortal
from pyclient.serializing import AnyDeserializer
from pyclient.runtime.steps import Step, Steps, run_steps

if TYPE_CHECKING:
    from pyclient.option_types import ConsumerOptions

T = TypeVar("T")


@answers_foreign_calls("consumer")
class Consumer(MetadataCalls, Generic[K_co, V_co]):
    """Reads records from Kafka; used by one thread at a time.

    Options as in `pyclient.Producer`; ``help('pyclient.option_types.ConsumerOptions')`` lists them. With *topics*
    (names, or a compiled pattern) and a ``group_id`` it shares their partitions with the other members of its
    group and continues at the committed offsets.
    `assign` gives it partitions without membership. *rebalance_listener* is called when partitions come and go
    (`pyclient.plugins.RebalanceListener`). *interceptors* see records before they are returned, and every commit
    (`pyclient.plugins.ConsumerInterceptor`). Deserializers run when records are polled.

    Raises:
        ConfigurationError: an option that is unknown, of a wrong type or out of range.
        UnsupportedFeatureError: a feature of a later release.
    """

    _awaits = False
    _current_user = staticmethod(threading.get_ident)

    def __init__(self, config: Mapping[str, object] | None = None, /, *, topics: Any = None, rebalance_listener: AnyRebalanceListener | None = None,
                 key_deserializer: AnyDeserializer[K_co] | None = None, value_deserializer: AnyDeserializer[V_co] | None = None,
                 interceptors: Any = (), assignors: Any = None, **options: Unpack[ConsumerOptions]) -> None:
        """A consumer with these options.

        *config* has options by Kafka's dotted names; *options* are the same ones in snake_case, and win. Those set most
        often: ``bootstrap_servers``, ``group_id``, ``auto_offset_reset``, ``enable_auto_commit``, ``isolation_level``,
        ``max_poll_records``. ``help('pyclient.option_types.ConsumerOptions')`` has all of them.

        *topics* are names, or a compiled pattern, to read as a member of the group; `assign` reads without membership.
        *rebalance_listener* is called when partitions come and go. *key_deserializer* and *value_deserializer* make
        keys and values of bytes: a function, an object, or a name such as ``json``. *interceptors* see records before
        they are returned, and every commit. *assignors* are those that the group may agree on, the best first.

        With threads, this opens it.

        Raises:
            ConfigurationError: an option that is unknown, of a wrong type or out of range.
            UnsupportedFeatureError: an option of a later release.
        """
        config, options = with_hidden_secrets(config), with_hidden_secrets(options)
        plugins = {"key_deserializer": key_deserializer, "value_deserializer": value_deserializer, "assignors": assignors}
        self._portal = ThreadPortal("pyclient-consumer", thread_reactor())
        super().__init__(self._portal, config, {**options, **plugins}, interceptors, topics, rebalance_listener)
        self._ended = False
        self._portal.start()
        self._portal.call(self._core.start)

    # ---- assignment -------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these *partitions*; those kept continue at their positions. An empty list reads nothing.

        Raises:
            IllegalStateError: the consumer is subscribed to topics.
        """
        self._assign(partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        self._open_core()
        return frozenset(self._core.fetcher.positions)

    def subscribe(self, topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern, *,
                  rebalance_listener: AnyRebalanceListener | None = None) -> None:
        """Read these *topics* as a member of the group, from the next `poll` on. Replaces an earlier subscription.

        A pattern has to match a topic's whole name. It also finds new topics, within ``metadata_max_age_ms``. Without a
        *rebalance_listener* the one given before stays.

        Raises:
            ConfigurationError: there is no ``group_id``.
            IllegalStateError: partitions were given by `assign`.
        """
        self._change_subscription(topics, rebalance_listener)

    def subscription(self) -> frozenset[str]:
        """The subscribed topics; of a pattern those that match it now."""
        self._open_core()
        return self._core.member().topics if self._core.subscribed else frozenset()

    def unsubscribe(self) -> None:
        """Stop reading. A member commits (if enable_auto_commit), gives up its partitions and leaves the group."""
        with self._single_user.outside_listeners:
            self._drive(self._unsubscribe())

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Make the group assign its partitions again, for an assignor whose decision depends on what has changed since.

        *reason* is logged by the broker (KIP-568, KIP-800). The rebalance begins once the group is stable.

        Raises:
            IllegalStateError: nothing is subscribed, or ``group_protocol=consumer``, where the broker assigns.
        """
        self._enforce_rebalance(reason)

    def pause(self, *partitions: SomePartitions) -> None:
        """Return no records of these *partitions* (or lists of them) until `resume`; fetched records are kept."""
        self._pause(partitions)

    def resume(self, *partitions: SomePartitions) -> None:
        """End `pause` for these *partitions* (or lists of them)."""
        self._resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        self._open_core()
        return self._core.fetcher.paused

    # ---- reading ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None, max_records: int | None = None, **foreign: Never,
             ) -> Records[K_co, V_co]:
        """Up to *max_records* (left out: ``max_poll_records``) records, as soon as there is at least one.

        *timeout* is in seconds: the result is empty when no record came. None waits without limit (Ctrl-C and `wakeup`
        end it). What the poll before returned counts as consumed from now on.

        Raises:
            KafkaError: a partition cannot be read; the message names it. Other partitions go on. One that does not
                exist is raised once, and read when it exists.
            SerializationError: a deserializer rejects the next record of a partition. The error has the record with
                its bytes; the records before it were returned. Each poll tries it again until you `seek` past it;
                ``on_deserialization_error`` skips such records instead.
            SchemaRegistryUnavailableError: no schema registry answers for the next record's schema. The next poll tries
                that record again, also with ``on_deserialization_error``: it is not bad.
            BootstrapError: no broker answered for ``default_api_timeout_ms``, over all polls; also in an iteration.
            WakeupError: `wakeup` was called.
            IllegalStateError: nothing is subscribed or assigned.
        """
        if foreign:
            raise unknown_keywords("consumer", "poll", foreign, type(self))
        limit, wait = self._polls.limit(max_records), self._polls.timeout(timeout)
        if self._pending_commits.commits:
            self._pending_commits.run_callbacks()
        held = self._single_user.outside_listeners.__enter__()
        try:
            records = self._poll_records(limit, wait)
            returned = self._consumed_positions.returned_with(records)  # until it ends, Ctrl-C leaves them to the next poll
        except BaseException:
            held.clear()
            raise
        # No call follows, nor a `with`: Ctrl-C may be raised behind calls, and no poll would return these records.
        self._consumed_positions.returned, self._consumed_positions.in_transit = returned, None
        del held[None]
        return records

    def __iter__(self) -> Iterator[Record[K_co, V_co]]:
        """Every record, without end. A record counts as consumed when the next one is requested.

        Raises what `poll` raises, after the records before it; the next iteration continues there.
        """
        return RecordIterator(self._next_cursor, self._consumed_positions.exhausted, self._consumed_positions.abandon)

    def _next_cursor(self) -> RecordCursor:
        """The records of an iteration until the next poll. A seek, pause, poll or other loop in its body ends it."""
        self._pending_commits.run_callbacks()
        with self._single_user.outside_listeners:
            return self._consumed_positions.begin_iteration(self._poll_records(self._config.max_poll_records, None))

    def _poll_records(self, limit: int, timeout: float | None) -> Records[K_co, V_co]:
        taken = self._polls.begin(limit)
        return taken or self._drive(self._polls.wait(taken, limit, timeout))

    def wakeup(self) -> None:
        """Make a waiting poll, or the next one, raise `WakeupError`. Any thread may call it."""
        self._core.check_process()
        self._core.buffer.wake()

    # ---- positions and offsets --------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, *, timeout: float | None = OPTION) -> int:
        """The offset of the next record of *partition* to be returned. A commit stores it once the records before it
        are consumed.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            IllegalStateError: the partition is not assigned.
            UnknownTopicOrPartitionError: it was assigned and does not exist.
            KafkaTimeoutError: the position is not known within the time.
        """
        tp, limit = as_partition(partition), self._timeout(timeout)
        with self._single_user:
            return self._drive(self._position(tp, limit))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue *partition* at *offset*; records fetched before are not returned.

        The leader epoch of an `OffsetAndMetadata`, as `committed` returns it, lets the brokers find out whether the log
        was truncated below it since (KIP-320).
        """
        self._seek(partition, offset)

    def seek_to_beginning(self, *partitions: SomePartitions) -> None:
        """Continue at the first offset of each of *partitions* (none given, or an empty list: of all assigned ones)."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: SomePartitions) -> None:
        """Continue after the last record of each of *partitions* (none, or an empty list: of all assigned ones)."""
        self._reset(partitions, LATEST)

    def beginning_offsets(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """The first offset of each of *partitions*.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.
        """
        wanted, limit = as_partitions(partitions), self._timeout(timeout)
        with self._single_user:
            return self._drive(self._log_ends(wanted, EARLIEST, limit))

    def end_offsets(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """The offset after the last record of each of *partitions* (read_committed: the last stable offset).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.
        """
        wanted, limit = as_partitions(partitions), self._timeout(timeout)
        with self._single_user:
            return self._drive(self._log_ends(wanted, LATEST, limit))

    def offsets_for_times(self, times: Mapping[TopicPartition, int], *, timeout: float | None = OPTION,
                          ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after its time in *times*; None where there is none.

        Times are in ms since the epoch.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.
        """
        wanted, limit = as_times(times), self._timeout(timeout)
        with self._single_user:
            return self._drive(self._offsets(wanted, limit))

    def lag(self, *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition is behind the end of its log.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.
        """
        limit = self._timeout(timeout)
        with self._single_user:
            return self._drive(self._lag(limit))

    # ---- commits ----------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, *, timeout: float | None = OPTION) -> None:
        """Store the group's positions: after all records returned so far, or *offsets* (of the next record to read). A
        record as *offsets* stores the position after it.

        Inside an iteration the current record counts as consumed.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            IllegalStateError: the consumer has no ``group_id``.
            KafkaTimeoutError: not confirmed within the time; it may be stored.
        """
        limit = self._timeout(timeout)
        with self._single_user:
            self._drive(self._commit(offsets, limit))
        self._pending_commits.run_callbacks()

    def commit_async(self, offsets: Offsets | None = None, callback: OnCommit | None = None) -> None:
        """Store *offsets* as `commit` does, without waiting. ``callback(offsets, error)`` runs when a later poll begins
        or a commit ends.

        The callback may use the consumer. `close` runs the callbacks that are left; those may not.
        """
        self._commit_async(offsets, callback)

    def done(self, record: Record[Any, Any]) -> None:
        """Say that *record* is done, in any order and from any thread: what threads and tasks of yours work on.

        For ``enable_auto_offset_store=False``. Commits without offsets, and automatic ones, store the position before
        which every returned record is done; one that is not done holds up its partition. A record that was done before,
        or whose partition was sought or taken away since, changes nothing: it is read again.

        Raises:
            IllegalStateError: there is no ``group_id``, ``enable_auto_offset_store`` is on, or the consumer is closed.
            TypeError: it is no record.
        """
        self._done(record)

    def store_offsets(self, offsets: Offsets) -> None:
        """Say that records before these offsets are done: commits without offsets, and automatic ones, store them.

        For ``enable_auto_offset_store=False``, where reading alone marks nothing as consumed. *offsets* as in `commit`;
        a record means the position after it, also if records before it are not done: of several threads the last call
        wins (`done` waits for those before). What was stored of a partition is dropped when the group takes it away.

        Raises:
            IllegalStateError: a partition is not assigned, there is no ``group_id``, or ``enable_auto_offset_store`` is
                on.
        """
        self._store_offsets(offsets)

    def committed(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION,
                  ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed position of each of *partitions*; None where nothing is committed.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.
        """
        wanted, limit = as_partitions(partitions), self._timeout(timeout)
        with self._single_user:
            return self._drive(self._committed(wanted, limit))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member id and generation by which its partitions are owned; they fence a transaction (KIP-447).

        A rebalance between two polls that takes no partitions gives a newer generation; one that takes them does not.

        Raises:
            IllegalStateError: the consumer has no ``group_id``.
        """
        self._open_core()
        return self._rebalancing.metadata()

    def metrics(self) -> dict[str, float]:
        """The current metrics, by Kafka's names."""
        return self._core.metric_values()

    # ---- close ------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = OPTION, *, leave: bool | None = None) -> None:
        """Commit what is consumed (if enable_auto_commit) and close, in *timeout* seconds (default 5). Idempotent.

        *leave* (KIP-1092): True leaves the group, so that others get the partitions at once; False keeps them until the
        session ends, as for a quick restart; None leaves unless there is a ``group_instance_id``.
        """
        self._core.check_process()
        self._close(seconds(timeout, CLOSE_TIMEOUT_MS), clean=True, leave=leave)

    def __enter__(self) -> Self:
        if self._core.closed is not None:
            raise raisable(self._core.closed)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._close(CLOSE_TIMEOUT_MS / 1000, clean=error is None)
        except KafkaError as failed:
            raise_or_note(failed, error, "consumer")

    def _close(self, timeout: float | None, *, clean: bool, leave: bool | None = None) -> None:
        if self._ended or self._core.is_forked:
            return
        if self._portal.ends:  # Ctrl-C ended an earlier close, which may not have reached the core yet
            self._end()
            return
        with self._single_user.outside_listeners:
            try:
                self._drive(self._finish(timeout, clean=clean, leave=leave))
            finally:
                self._end()

    def _end(self) -> None:
        """Repeatable."""
        self._portal.end(self._core.close)
        self._pending_commits.run_callbacks()
        self._consumed_positions.close()
        self._ended = True

    # ---- how a sync consumer waits ----------------------------------------------------------------------------------

    def _drive(self, steps: Steps[Step, T]) -> T:
        return run_steps(steps, self._perform)

    def _perform(self, step: Step) -> Any:
        return step.run(self._portal)

    def _run_on_loop(self, function: Callable[[], T]) -> T:
        return self._portal.run(function)

    def _start(self, make: Callable[[Turn | None], Coroutine[Any, Any, None]]) -> CommitTask:
        return self._portal.submit(lambda: make(None))  # a turn announced here would be left behind by Ctrl-C; calls begin in order

    def _forget(self) -> None:
        self._portal.stop_after(self._core.close)
