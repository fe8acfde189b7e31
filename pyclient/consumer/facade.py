"""The consumer's two faces, sync and async: they wait and translate. No protocol logic lives here."""
from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from pyclient.buffers.records_view import Records
from pyclient.buffers.record_iterator import Iteration, RecordCursor
from pyclient.codec.record import Record
from pyclient.core.fetching.lookups import EARLIEST, LATEST
from pyclient.errors import KafkaError, raisable
from pyclient.plugins import AsyncRebalanceListener, RebalanceListener
from pyclient.records import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from pyclient.consumer.facade_base import Commit, ConsumerBase, Offsets
from pyclient.client.facade_base import OPTION, AsyncFacade, seconds
from pyclient.consumer.arguments import as_offsets, as_partition, as_partitions, as_time
from pyclient.runtime.loop_thread import Portal
from pyclient.consumer.rebalance import OnLoop, Step, Steps, Tell, WaitFor, next_step

T = TypeVar("T")
CLOSE_TIMEOUT_MS: Final = 30_000


class Consumer(ConsumerBase):
    """Reads records from Kafka; used by one thread at a time.

    Options as in `pyclient.Producer`; see docs/options.md. With *topics* (names, or a compiled pattern) and a ``group_id`` it shares their
    partitions with the other members of its group, and goes on where the group has committed; `assign` gives it partitions without membership.
    *rebalance_listener* is told of partitions that come and go (`pyclient.plugins.RebalanceListener`), *interceptors* see records before they are
    handed out, and every commit (`pyclient.plugins.ConsumerInterceptor`). Deserializers run when records are polled.

    Raises:
        ConfigurationError: an option that is unknown, of a wrong type or out of range.
        UnsupportedFeatureError: something a later release brings.
    """

    def _start(self) -> None:
        self._portal = Portal("pyclient-consumer")
        self._portal.call(self._core.start)

    def _now(self, work: Callable[[], T]) -> T:
        return self._portal.run(work)

    def _user(self) -> object:
        return threading.get_ident()

    def _soon(self, make: Callable[[], Coroutine[Any, Any, None]]) -> Commit:
        return self._portal.submit(make)

    # ---- assignment -------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those kept go on where they are. An empty list reads nothing."""
        self._assign(partitions)

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], *, rebalance_listener: RebalanceListener | None = None) -> None:
        """Read these topics as a member of the group from the next `poll` on, instead of what was subscribed to before.

        A pattern has to match a topic's whole name; topics that come later are read too, within ``metadata_max_age_ms``.

        Raises:
            ConfigurationError: there is no ``group_id``.
            IllegalStateError: partitions were given by `assign`.
        """
        with self._single_user.outside_listeners:
            self._now(lambda: self._subscribe(topics, rebalance_listener))

    def unsubscribe(self) -> None:
        """Read nothing any more. A member commits (when enable_auto_commit applies), gives its partitions up and leaves the group."""
        with self._single_user.outside_listeners:
            if self._core.subscribed:
                self._consumed_positions.settle()
                self._walk(self._rebalancing.part("unsubscribed", None, clean=True))
                return
        self.assign([])

    def _walk(self, steps: Steps) -> None:
        """Do what *steps* yield, in this thread; what is raised is raised there."""
        step, error = next(steps, None), None
        while step is not None:
            answer: Any = None
            try:
                answer, error = self._take_step(step), None
            except BaseException as raised:  # noqa: BLE001 the steps know what must still be done, Ctrl-C or not
                error = raised
            step = next_step(steps, answer, error)

    def _take_step(self, step: Step) -> Any:
        match step:
            case OnLoop(work):
                return self._now(work)
            case WaitFor(make):
                return self._portal.call(make)
            case Tell(method, partitions):
                with self._single_user.as_listener():
                    return method(partitions)

    # ---- reading ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None, max_records: int | None = None) -> Records:
        """Up to *max_records* (left out: ``max_poll_records``) records, as soon as there is at least one.

        ``timeout`` is in seconds: an empty result when nothing came; None waits without end (Ctrl-C and `wakeup` end it).
        What the poll before returned counts as consumed from now on.

        Raises:
            KafkaError: what stands in a partition's way, named in the message; the others go on.
            SerializationError: a deserializer refuses the next record of a partition: the error has it, with its bytes. The records before it were
                returned. It is tried again by each poll until you `seek` past it; ``on_deserialization_error`` leaves such records out instead.
            BootstrapError: no broker answered for ``default_api_timeout_ms``, over all polls; also in an iteration.
            WakeupError: `wakeup` was called.
        """
        limit, wait = self._limit(max_records), seconds(timeout, 0)
        self._tell()
        with self._single_user.outside_listeners:
            self._consumed_positions.settle()
            self._save()
            records = self._wait_for_records(limit, wait)
            self._consumed_positions.hand(records)
            return records

    def __iter__(self) -> Iterator[Record]:
        """Every record, without end. A record counts as consumed when the next one is asked for.

        Raises what `poll` raises, after the records before it; the next iteration goes on there.
        """
        return Iteration(self._begin, self._consumed_positions.exhausted, self._consumed_positions.abandon)

    def _begin(self) -> RecordCursor:
        """What an iteration goes through next; a seek, pause, poll or other loop in its body ends it there."""
        self._tell()
        with self._single_user.outside_listeners:
            self._consumed_positions.settle()
            self._save()
            return self._consumed_positions.begin(self._wait_for_records(self._config.max_poll_records, None))

    def _wait_for_records(self, limit: int, timeout: float | None) -> Records:
        core = self._core
        deadline = None if timeout is None else core.clock() + timeout
        self._rebalancing.begin_poll()
        try:
            while True:
                if self._rebalancing.due:
                    self._walk(self._rebalancing.carry_out())
                records = self._take(limit)
                if records:
                    return records
                self._skip(records)
                came = core.buffer.wait(self._patience(deadline))
                if not (came or core.buffer.woken) and deadline is not None and core.clock() >= deadline:
                    return records
                self._save()
        finally:
            self._rebalancing.end_poll()

    # ---- positions --------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, *, timeout: float | None = OPTION) -> int:
        """The offset of the next record that is not consumed yet."""
        tp, limit = as_partition(partition), self._timeout(timeout)
        with self._single_user:
            known = self._consumed_positions.position(tp)
            return known if known is not None else self._portal.call(lambda: self._core.position(tp, limit))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at *offset*; nothing fetched before is handed out any more."""
        self._seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on at the first offset of each partition (none given: of all assigned ones)."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on after the last record of each partition (none given: of all assigned ones)."""
        self._reset(partitions, LATEST)

    def beginning_offsets(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._ends(partitions, EARLIEST, timeout)

    def end_offsets(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition (read_committed: the last stable offset)."""
        return self._ends(partitions, LATEST, timeout)

    def offsets_for_times(self, times: Mapping[TopicPartition, int], *, timeout: float | None = OPTION) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time in ms since the epoch; None where there is none."""
        targets, limit = {as_partition(tp): as_time(when) for tp, when in times.items()}, self._timeout(timeout)
        return self._call(lambda: self._core.offsets(targets, limit))

    def lag(self, *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition is behind the end of its log."""
        ends = self.end_offsets(self.assignment(), timeout=timeout)
        return {tp: max(0, end - self.position(tp, timeout=timeout)) for tp, end in ends.items()}

    def _ends(self, partitions: Iterable[TopicPartition], which: int, timeout: float | None) -> dict[TopicPartition, int]:
        targets, limit = dict.fromkeys(as_partitions(partitions), which), self._timeout(timeout)
        found = self._call(lambda: self._core.offsets(targets, limit))
        return {tp: answer.offset for tp, answer in found.items() if answer is not None}

    # ---- commits ----------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, *, timeout: float | None = OPTION) -> None:
        """Store positions for the group: what was handed out so far, or *offsets* (of the next record to read).

        Inside an iteration the current record counts as done.

        Raises:
            IllegalStateError: the consumer has no ``group_id``.
            KafkaTimeoutError: not confirmed within the time; it may be stored.
        """
        limit = self._timeout(timeout)
        with self._single_user:
            given = self._to_commit(offsets)
            self._portal.call(lambda: self._core.commit(given, limit))
            self._consumed_positions.note_commits()
        self._tell()

    def committed(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for each partition; None where nothing is."""
        wanted, limit = as_partitions(partitions), self._timeout(timeout)
        return self._call(lambda: self._core.commits.committed(wanted, limit))

    # ---- life -------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = OPTION) -> None:
        """Commit what is consumed (when enable_auto_commit applies) and close, within *timeout* seconds (left out: 30). Idempotent."""
        self._core.check_process()
        self._close(seconds(timeout, CLOSE_TIMEOUT_MS), clean=True)

    def __enter__(self) -> Self:
        if self._core.closed is not None:
            raise raisable(self._core.closed)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._close(CLOSE_TIMEOUT_MS / 1000, clean=error is None)
        except KafkaError:
            if error is None:
                raise

    def _forget(self) -> None:
        self._portal.end_after(self._core.close)

    def _close(self, limit: float | None, *, clean: bool) -> None:
        if self._core.closed is not None:
            return
        with self._single_user.outside_listeners:
            try:
                self._part(limit, clean=clean)
            finally:
                self._portal.call(self._core.close)
                self._portal.stop()
                self._tell()
                self._consumed_positions.close()

    def _part(self, limit: float | None, *, clean: bool) -> None:
        settle = self._consumed_positions.settle if clean else self._consumed_positions.discard_returned
        settle()
        if self._core.subscribed:
            self._walk(self._rebalancing.part("closed", limit, clean=clean))
        elif clean:
            self._save_all(limit)

    def _save_all(self, limit: float | None) -> None:
        uncommitted = self._consumed_positions.uncommitted() if self._consumed_positions.auto_commits else {}
        if uncommitted or self._commits:
            self._portal.call(lambda: self._core.commit(as_offsets(uncommitted), limit, automatic=True))
            self._consumed_positions.note_commits()

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self._single_user:
            return self._portal.call(make)


class AsyncConsumer(AsyncFacade, ConsumerBase):
    """`Consumer` for asyncio: the same names, awaited where they can wait. Bound to the loop of ``async with``."""

    def _now(self, work: Callable[[], T]) -> T:
        self._core.check_open()
        return work()

    def _user(self) -> object:
        return asyncio.current_task()

    def _soon(self, make: Callable[[], Coroutine[Any, Any, None]]) -> Commit:
        self._core.check_open()
        return asyncio.get_running_loop().create_task(make())

    # ---- assignment -------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.assign`."""
        self._assign(partitions)

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], *,
                  rebalance_listener: AsyncRebalanceListener | RebalanceListener | None = None) -> None:
        """As `Consumer.subscribe`. The listener's methods may be plain functions, or awaited."""
        with self._single_user.outside_listeners:
            self._now(lambda: self._subscribe(topics, rebalance_listener))

    async def unsubscribe(self) -> None:
        """As `Consumer.unsubscribe`."""
        with self._single_user.outside_listeners:
            self._core.check_open()
            if self._core.subscribed:
                self._consumed_positions.settle()
                await self._walk(self._rebalancing.part("unsubscribed", None, clean=True))
                return
        self.assign([])

    async def _walk(self, steps: Steps) -> None:
        """As `Consumer._walk`; a listener's coroutine is awaited here."""
        step, error = next(steps, None), None
        while step is not None:
            answer: Any = None
            try:
                answer, error = await self._take_step(step), None
            except BaseException as raised:  # noqa: BLE001 the steps know what must still be done, cancelled or not
                error = raised
            step = next_step(steps, answer, error)

    async def _take_step(self, step: Step) -> Any:
        match step:
            case OnLoop(work):
                return work()
            case WaitFor(make):
                await self._let_earlier_ones_begin()
                return await make()
            case Tell(method, partitions):
                with self._single_user.as_listener():
                    answer = method(partitions)
                    return await answer if inspect.isawaitable(answer) else answer

    # ---- reading ----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float | None = None, max_records: int | None = None) -> Records:
        """As `Consumer.poll`. A cancelled poll takes nothing."""
        limit, wait = self._limit(max_records), seconds(timeout, 0)
        self._core.check_open()
        self._tell()
        with self._single_user.outside_listeners:
            self._consumed_positions.settle()
            self._save()
            records = await self._wait_for_records(limit, wait)
            self._consumed_positions.hand(records)
            return records

    async def __aiter__(self) -> AsyncIterator[Record]:
        """As `Consumer.__iter__`."""
        progress = self._consumed_positions
        while True:
            self._core.check_open()
            self._tell()
            with self._single_user.outside_listeners:
                progress.settle()
                self._save()
                walk = progress.begin(await self._wait_for_records(self._config.max_poll_records, None))
            try:
                for record in walk:
                    yield record
                if not walk.stopped:
                    progress.exhausted()
            except BaseException:
                progress.abandon(walk)
                raise

    async def _wait_for_records(self, limit: int, timeout: float | None) -> Records:
        core = self._core
        deadline = None if timeout is None else core.clock() + timeout
        self._rebalancing.begin_poll()
        try:
            while True:
                if self._rebalancing.due:
                    await self._walk(self._rebalancing.carry_out())
                records = self._take(limit)
                if records:
                    return records
                if self._skip(records):
                    await asyncio.sleep(0)  # the loop has other work, and a long line may be left out
                came = await core.data(self._patience(deadline))
                if not came and deadline is not None and core.clock() >= deadline:
                    return records
                self._save()
        finally:
            self._rebalancing.end_poll()

    # ---- positions --------------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition, *, timeout: float | None = OPTION) -> int:
        """As `Consumer.position`."""
        tp, limit = as_partition(partition), self._timeout(timeout)
        with self._single_user:
            self._core.check_open()
            known = self._consumed_positions.position(tp)
            return known if known is not None else await self._core.position(tp, limit)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """As `Consumer.seek`."""
        self._seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """As `Consumer.seek_to_beginning`."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """As `Consumer.seek_to_end`."""
        self._reset(partitions, LATEST)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        return await self._ends(partitions, EARLIEST, timeout)

    async def end_offsets(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return await self._ends(partitions, LATEST, timeout)

    async def offsets_for_times(self, times: Mapping[TopicPartition, int], *, timeout: float | None = OPTION) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As `Consumer.offsets_for_times`."""
        return await self._core.offsets({as_partition(tp): as_time(when) for tp, when in times.items()}, self._timeout(timeout))

    async def lag(self, *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """As `Consumer.lag`."""
        ends = await self.end_offsets(self.assignment(), timeout=timeout)
        return {tp: max(0, end - await self.position(tp, timeout=timeout)) for tp, end in ends.items()}

    async def _ends(self, partitions: Iterable[TopicPartition], which: int, timeout: float | None) -> dict[TopicPartition, int]:
        found = await self._core.offsets(dict.fromkeys(as_partitions(partitions), which), self._timeout(timeout))
        return {tp: answer.offset for tp, answer in found.items() if answer is not None}

    # ---- commits ----------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, *, timeout: float | None = OPTION) -> None:
        """As `Consumer.commit`."""
        limit = self._timeout(timeout)
        with self._single_user:
            given = self._to_commit(offsets)
            await self._let_earlier_ones_begin()
            await self._core.commit(given, limit)
            self._consumed_positions.note_commits()
        self._tell()

    async def committed(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As `Consumer.committed`."""
        return await self._core.commits.committed(as_partitions(partitions), self._timeout(timeout))

    # ---- life -------------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = OPTION) -> None:
        """As `Consumer.close`."""
        self._core.check_process()
        await self._close(seconds(timeout, CLOSE_TIMEOUT_MS), clean=True)

    async def __aenter__(self) -> Self:
        self._core.buffer.on_data = self._core.tell
        await self._core.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._close(CLOSE_TIMEOUT_MS / 1000, clean=error is None)
        except KafkaError:
            if error is None:
                raise

    async def _close(self, limit: float | None, *, clean: bool) -> None:
        if self._core.closed is not None:
            return
        self._core.check_loop()
        try:
            await self._part(limit, clean=clean)
        finally:
            await self._core.close()
            await asyncio.gather(*(commit for commit, _, _ in self._commits if isinstance(commit, asyncio.Task)), return_exceptions=True)
            self._tell()
            self._consumed_positions.close()

    async def _part(self, limit: float | None, *, clean: bool) -> None:
        settle = self._consumed_positions.settle if clean else self._consumed_positions.discard_returned
        settle()
        if self._core.subscribed:
            await self._walk(self._rebalancing.part("closed", limit, clean=clean))
        elif clean:
            await self._save_all(limit)

    async def _save_all(self, limit: float | None) -> None:
        uncommitted = self._consumed_positions.uncommitted() if self._consumed_positions.auto_commits else {}
        if uncommitted or self._commits:
            await self._let_earlier_ones_begin()
            await self._core.commit(as_offsets(uncommitted), limit, automatic=True)
            self._consumed_positions.note_commits()

    async def _let_earlier_ones_begin(self) -> None:
        """C24: the task of a commit_async takes its place in line with its first step, which must come before this call's."""
        await asyncio.sleep(0)
