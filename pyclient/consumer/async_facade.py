"""`AsyncConsumer`: every public method. `facade_base` has the logic; here is how a task waits."""
from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Never, Self, TypeVar

from typing_extensions import Unpack

from pyclient.buffers.record_iterator import RecordCursor
from pyclient.buffers.records_view import Records
from pyclient.client.facade_base import OPTION, AsyncFacade, raise_or_note, seconds
from pyclient.codec.record import Record
from pyclient.config.declaration import with_hidden_secrets
from pyclient.consumer.arguments import as_partition, as_partitions, as_times
from pyclient.consumer.commit_order import Turn
from pyclient.consumer.facade_base import CLOSE_TIMEOUT_MS, Offsets, SomePartitions
from pyclient.consumer.metadata_calls import AsyncMetadataCalls
from pyclient.consumer.pending_commits import CommitTask, OnCommit
from pyclient.core.fetching.lookups import EARLIEST, LATEST
from pyclient.errors import KafkaError
from pyclient.foreign_calls import answers_foreign_calls, unknown_keywords
from pyclient.option_types import ConsumerOptions
from pyclient.plugins import AnyAsyncRebalanceListener
from pyclient.records import (
    ConsumerGroupMetadata, K_co, OffsetAndMetadata, OffsetAndTimestamp, SubscriptionPattern, TopicPartition, V_co)
from pyclient.serializing import AnyDeserializer
from pyclient.runtime.steps import Step, Steps, await_steps

T = TypeVar("T")


@answers_foreign_calls("consumer")
class AsyncConsumer(AsyncFacade, AsyncMetadataCalls, Generic[K_co, V_co]):
    """`Consumer` for asyncio: the same names, awaited where they can wait. Bound to the loop of ``async with``."""

    _awaits = True

    def __init__(self, config: Mapping[str, object] | None = None, /, *, topics: Any = None, rebalance_listener: AnyAsyncRebalanceListener | None = None,
                 key_deserializer: AnyDeserializer[K_co] | None = None, value_deserializer: AnyDeserializer[V_co] | None = None,
                 interceptors: Any = (), assignors: Any = None, **options: Unpack[ConsumerOptions]) -> None:
        config, options = with_hidden_secrets(config), with_hidden_secrets(options)
        plugins = {"key_deserializer": key_deserializer, "value_deserializer": value_deserializer, "assignors": assignors}
        super().__init__(config, {**options, **plugins}, interceptors, topics, rebalance_listener)

    # ---- assignment: plain functions, since they never wait ---------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.assign`."""
        self._assign(partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        """As `Consumer.assignment`."""
        self._open_core()
        return frozenset(self._core.fetcher.positions)

    def subscribe(self, topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern, *,
                  rebalance_listener: AnyAsyncRebalanceListener | None = None) -> None:
        """As `Consumer.subscribe`. The listener's methods may be plain functions or coroutine functions."""
        self._change_subscription(topics, rebalance_listener)

    def subscription(self) -> frozenset[str]:
        """As `Consumer.subscription`."""
        self._open_core()
        return self._core.member().topics if self._core.subscribed else frozenset()

    async def unsubscribe(self) -> None:
        """As `Consumer.unsubscribe`."""
        with self._single_user.outside_listeners:
            await self._drive(self._unsubscribe())

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """As `Consumer.enforce_rebalance`."""
        self._enforce_rebalance(reason)

    def pause(self, *partitions: SomePartitions) -> None:
        """As `Consumer.pause`."""
        self._pause(partitions)

    def resume(self, *partitions: SomePartitions) -> None:
        """As `Consumer.resume`."""
        self._resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """As `Consumer.paused`."""
        self._open_core()
        return self._core.fetcher.paused

    # ---- reading ----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float | None = None, max_records: int | None = None, **foreign: Never,
                   ) -> Records[K_co, V_co]:
        """As `Consumer.poll`. A cancelled poll takes no records."""
        if foreign:
            raise unknown_keywords("consumer", "poll", foreign, type(self))
        limit, wait = self._limit(max_records), self._poll_time(timeout)
        self._core.check_open()
        self._pending_commits.run_callbacks()
        held = self._single_user.outside_listeners.__enter__()
        try:
            records = await self._poll_records(limit, wait)
            returned = self._consumed_positions.returned_with(records)
        except BaseException:
            held.clear()
            raise
        self._consumed_positions.returned, self._consumed_positions.in_transit = returned, None  # as in `Consumer.poll`
        del held[None]
        return records

    async def __aiter__(self) -> AsyncIterator[Record[K_co, V_co]]:
        """As `Consumer.__iter__`."""
        while True:
            cursor = await self._next_cursor()
            try:
                for record in cursor:
                    yield record
                if not cursor.stopped:
                    self._consumed_positions.exhausted()
            except BaseException:
                self._consumed_positions.abandon(cursor)
                raise

    async def _next_cursor(self) -> RecordCursor:
        """As `Consumer._next_cursor`."""
        self._core.check_open()
        self._pending_commits.run_callbacks()
        with self._single_user.outside_listeners:
            return self._consumed_positions.begin_iteration(await self._poll_records(self._config.max_poll_records, None))

    async def _poll_records(self, limit: int, timeout: float | None) -> Records[K_co, V_co]:
        taken = self._take_at_once(limit)
        return taken or await self._drive(self._wait_for_records(taken, limit, timeout))

    def wakeup(self) -> None:
        """As `Consumer.wakeup`."""
        self._core.check_process()
        self._core.buffer.wake()

    # ---- positions and offsets --------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition, *, timeout: float | None = OPTION) -> int:
        """As `Consumer.position`."""
        tp, limit = as_partition(partition), self._timeout(timeout)
        with self._single_user:
            return await self._drive(self._position(tp, limit))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """As `Consumer.seek`."""
        self._seek(partition, offset)

    def seek_to_beginning(self, *partitions: SomePartitions) -> None:
        """As `Consumer.seek_to_beginning`."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: SomePartitions) -> None:
        """As `Consumer.seek_to_end`."""
        self._reset(partitions, LATEST)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        return await self._drive(self._log_ends(as_partitions(partitions), EARLIEST, self._timeout(timeout)))

    async def end_offsets(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return await self._drive(self._log_ends(as_partitions(partitions), LATEST, self._timeout(timeout)))

    async def offsets_for_times(self, times: Mapping[TopicPartition, int], *, timeout: float | None = OPTION,
                                ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As `Consumer.offsets_for_times`."""
        return await self._drive(self._offsets(as_times(times), self._timeout(timeout)))

    async def lag(self, *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """As `Consumer.lag`."""
        limit = self._timeout(timeout)
        with self._single_user:
            return await self._drive(self._lag(limit))

    # ---- commits ----------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, *, timeout: float | None = OPTION) -> None:
        """As `Consumer.commit`."""
        limit = self._timeout(timeout)
        with self._single_user:
            await self._drive(self._commit(offsets, limit))
        self._pending_commits.run_callbacks()

    def commit_async(self, offsets: Offsets | None = None, callback: OnCommit | None = None) -> None:
        """As `Consumer.commit_async`."""
        self._commit_async(offsets, callback)

    def done(self, record: Record[Any, Any]) -> None:
        """As `Consumer.done`."""
        self._done(record)

    def store_offsets(self, offsets: Offsets) -> None:
        """As `Consumer.store_offsets`."""
        self._store_offsets(offsets)

    async def committed(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION,
                        ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As `Consumer.committed`."""
        return await self._drive(self._committed(as_partitions(partitions), self._timeout(timeout)))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """As `Consumer.group_metadata`."""
        self._open_core()
        return self._rebalancing.metadata()

    def metrics(self) -> dict[str, float]:
        """As `Consumer.metrics`."""
        return self._core.figures()

    # ---- close ------------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = OPTION, *, leave: bool | None = None) -> None:
        """As `Consumer.close`."""
        self._core.check_process()
        await self._close(seconds(timeout, CLOSE_TIMEOUT_MS), clean=True, leave=leave)

    async def start(self) -> Self:
        """Open it, as ``async with`` does; `stop` closes it again."""
        return await self.__aenter__()

    async def stop(self, timeout: float | None = OPTION, *, leave: bool | None = None) -> None:
        """`close` by another name."""
        await self.close(timeout, leave=leave)

    async def __aenter__(self) -> Self:
        self._core.buffer.on_data = self._core.notify_data
        await self._core.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._close(CLOSE_TIMEOUT_MS / 1000, clean=error is None)
        except KafkaError as failed:
            raise_or_note(failed, error, "consumer")

    async def _close(self, timeout: float | None, *, clean: bool, leave: bool | None = None) -> None:
        if self._core.closed is not None:
            return
        self._core.check_loop()
        try:
            await await_steps(self._finish(timeout, clean=clean, leave=leave), _perform)
        finally:
            await self._core.close()
            await self._pending_commits.wait()
            self._pending_commits.run_callbacks()
            self._consumed_positions.close()

    # ---- how an async consumer waits --------------------------------------------------------------------------------

    async def _drive(self, steps: Steps[Step, T]) -> T:
        self._core.check_open()
        return await await_steps(steps, _perform)

    def _run_on_loop(self, function: Callable[[], T]) -> T:
        self._core.check_open()
        return function()

    def _start(self, make: Callable[[Turn | None], Coroutine[Any, Any, None]]) -> CommitTask:
        self._core.check_open()
        turn = self._core.commits.order.announce()  # now: a commit that is awaited before the task begins comes after it
        task = asyncio.get_running_loop().create_task(make(turn))
        task.add_done_callback(lambda _: turn.end())  # it may be cancelled before it runs
        return task

    def _user(self) -> object:
        return asyncio.current_task()


def _perform(step: Step) -> Coroutine[Any, Any, Any]:
    return step.run_async()
