"""The consumer's two faces, sync and async: they check, wait and translate. No protocol logic lives here."""
from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeAlias, TypeVar

from typing_extensions import Unpack

from pyclient.buffers.fetched import Records
from pyclient.codec.record import Record
from pyclient.config import ConsumerConfig
from pyclient.core.fetching.lookups import EARLIEST, LATEST
from pyclient.errors import ConcurrentUse, KafkaError, UnsupportedFeature, WakeupError, raisable
from pyclient.option_types import ConsumerOptions
from pyclient.records import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from pyclient.runtime.consuming import MAX_OFFSET, ConsumerCore, Progress, as_offsets, as_partition, as_partitions
from pyclient.runtime.facade import OPTION, AsyncFacade, Facade, left, seconds, sooner
from pyclient.runtime.portal import Portal

_log = logging.getLogger(__name__)
T = TypeVar("T")
CLOSE_TIMEOUT_MS: Final = 30_000
Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]
OnCommit: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata], BaseException | None], object]
_Commit: TypeAlias = "concurrent.futures.Future[None] | asyncio.Task[None]"


class _Consumer(Facade):
    """What both faces share: state of the one thread or task that uses the consumer."""

    _core: ConsumerCore

    def __init__(self, config: Mapping[str, object] | None = None, /, *, topics: Any = None, rebalance_listener: Any = None,
                 key_deserializer: Any = None, value_deserializer: Any = None, interceptors: Any = (), assignors: Any = None,
                 **options: Unpack[ConsumerOptions]) -> None:
        if topics is not None or rebalance_listener is not None:
            raise _no_membership()
        if interceptors:
            raise UnsupportedFeature("interceptors come in a later release; until then wrap poll()", option="interceptors")
        self._config = ConsumerConfig.parse(config, {
            **options, "key_deserializer": key_deserializer, "value_deserializer": value_deserializer, "assignors": assignors})
        self._core = ConsumerCore(self._config)
        self._progress = Progress(self._core)
        self._commits: deque[tuple[_Commit, dict[TopicPartition, OffsetAndMetadata], OnCommit]] = deque()
        self._busy = threading.Lock()
        self._telling = threading.RLock()  # a callback may use the consumer, and so tell the next ones
        self._start()

    def _start(self) -> None:
        """What a face does before its first call."""

    def _now(self, work: Callable[[], T]) -> T:
        """Do *work*, which does not wait, on the client's loop."""
        raise NotImplementedError

    def _soon(self, make: Callable[[], Coroutine[Any, Any, None]]) -> _Commit:
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
        with self._alone():
            self._now(lambda: self._core.pause(wanted))
            self._progress.interrupt()

    def resume(self, *partitions: TopicPartition) -> None:
        """End `pause` for these."""
        wanted = as_partitions(partitions)
        with self._alone():
            self._now(lambda: self._core.resume(wanted))

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        self._open_core()
        return self._core.fetcher.paused

    def commit_async(self, offsets: Offsets | None = None, callback: OnCommit | None = None) -> None:
        """As `commit`, without waiting. ``callback(offsets, error)`` runs at the start of a later poll or at the end of a commit.

        There it may use the consumer, whose call goes on afterwards. The close, too, tells what is left; then nothing may be called.
        """
        with self._alone():
            self._core.group()
            self._commit_soon(self._given(offsets), callback or _unheard)

    def subscription(self) -> frozenset[str]:
        """The subscribed topics: none, until group membership comes in a later release."""
        self._open_core()
        return frozenset()

    def subscribe(self, topics: Any, *, rebalance_listener: Any = None) -> NoReturn:
        """Group membership comes in a later release: raises UnsupportedFeature and names `assign`."""
        raise _no_membership()

    def group_metadata(self) -> NoReturn:
        """Group membership comes in a later release: raises UnsupportedFeature."""
        raise _no_membership()

    def wakeup(self) -> None:
        """Make a poll that waits, or the next one, raise `WakeupError`. For any thread."""
        self._core.check_process()
        self._core.buffer.wake()

    def metrics(self) -> dict[str, float]:
        """Figures by Kafka's names, as they stand now."""
        return self._core.figures()

    # ---- shared by poll and iteration -------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One user at a time; a second one gets an error, not a queue."""
        if self._core.closed is not None:
            raise raisable(self._core.closed)
        if not self._busy.acquire(blocking=False):
            raise ConcurrentUse("this consumer is being used by another thread or task: only wakeup() may be called meanwhile. "
                                "Give each its own consumer.")
        try:
            yield
        finally:
            self._busy.release()

    def _take(self, limit: int) -> Records:
        """What is there; a pending wakeup comes first."""
        if self._core.buffer.take_wake():
            raise raisable(self._core.closed or WakeupError("wakeup() was called"))
        return self._progress.take(limit)

    def _limit(self, max_records: int | None) -> int:
        limit = self._config.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records {limit} is below 1: a poll that may return nothing never gets on")
        return limit

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = as_partitions(partitions)
        with self._alone():
            gone = set(self._core.fetcher.positions) - set(wanted)
            self._now(lambda: self._core.assign(wanted))
            self._progress.forget(gone)

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        where = as_partition(partition)
        _check_offset(offset)
        with self._alone():
            self._now(lambda: self._core.seek(where, offset))
            self._progress.start_at(where, offset)

    def _reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        wanted = as_partitions(partitions)
        with self._alone():
            chosen = wanted or list(self._core.fetcher.positions)
            self._now(lambda: self._core.reset(chosen, timestamp))
            self._progress.forget(chosen)

    def _limit_s(self, timeout: float | None) -> float | None:
        return seconds(timeout, self._config.default_api_timeout_ms)

    # ---- commits ----------------------------------------------------------------------------------------------------

    def _given(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        return as_offsets(self._progress.committable() if offsets is None else offsets)

    def _save(self) -> None:
        """Automatic commits: what earlier polls handed out, every auto_commit_interval_ms."""
        due = self._progress.due()
        if due and not self._commits:
            self._commit_soon(as_offsets(due), _unheard)

    def _commit_soon(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: OnCommit) -> None:
        limit = self._config.default_api_timeout_ms / 1000
        self._commits.append((self._soon(lambda: self._core.commit(offsets, limit)), offsets, callback))

    def _tell(self) -> None:
        """Tell the outcome of commits that have ended, in their order; while nothing else runs, so that callbacks may use the consumer.

        A second thread is told later that it must not be here: until then it leaves the telling to the first, who looks again.
        """
        while self._one_has_ended() and self._telling.acquire(blocking=False):
            try:
                if self._one_has_ended():
                    self._tell_one()
            finally:
                self._telling.release()

    def _one_has_ended(self) -> bool:
        try:
            return self._commits[0][0].done()
        except IndexError:
            return False

    def _tell_one(self) -> None:
        commit, offsets, callback = self._commits.popleft()
        error = self._core.closed if commit.cancelled() else commit.exception()
        if error is None:
            self._progress.saved(offsets)
        try:
            callback(offsets, error)
        except Exception:  # noqa: BLE001 a user's error does not undo the commit
            _log.exception("a commit callback raised")


class Consumer(_Consumer):
    """Reads records from Kafka; used by one thread at a time.

    Options as in `pyclient.Producer`; see docs/options.md. Give it partitions with `assign`; group membership comes in
    a later release. With a ``group_id``, positions begin at the group's committed offsets and can be committed.

    Raises:
        ConfigurationError: an option that is unknown, of a wrong type or out of range.
        UnsupportedFeature: something a later release brings.
    """

    def _start(self) -> None:
        self._portal = Portal("pyclient-consumer")
        self._portal.call(self._core.start)

    def _now(self, work: Callable[[], T]) -> T:
        return self._portal.run(work)

    def _soon(self, make: Callable[[], Coroutine[Any, Any, None]]) -> _Commit:
        return self._portal.submit(make)

    # ---- assignment -------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those kept go on where they are. An empty list reads nothing."""
        self._assign(partitions)

    def unsubscribe(self) -> None:
        """Read nothing any more: the same as ``assign([])``."""
        self.assign([])

    # ---- reading ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None, max_records: int | None = None) -> Records:
        """Up to *max_records* (left out: ``max_poll_records``) records, as soon as there is at least one.

        ``timeout`` is in seconds: an empty result when nothing came; None waits without end (Ctrl-C and `wakeup` end it).
        What the poll before returned counts as consumed from now on.

        Raises:
            KafkaError: what stands in a partition's way, named in the message; the others go on.
            BootstrapFailed: no broker answered for ``default_api_timeout_ms``, over all polls; also in an iteration.
            WakeupError: `wakeup` was called.
        """
        limit, wait = self._limit(max_records), seconds(timeout, 0)
        self._tell()
        with self._alone():
            self._progress.settle()
            self._save()
            records = self._wait_for_records(limit, wait)
            self._progress.hand(records)
            return records

    def __iter__(self) -> Iterator[Record]:
        """Every record, without end. A record counts as consumed when the next one is asked for."""
        limit = self._config.max_poll_records
        progress = self._progress
        while True:
            self._tell()
            with self._alone():
                progress.settle()
                self._save()
                records = self._wait_for_records(limit, None)
                progress.begin(records)
            last: Record | None = None
            try:
                for record in records:
                    progress.current = last = record
                    yield record
                    if progress.current is not record:
                        break  # a seek, pause, poll or other loop in this one's body: go on with what is next now
                else:
                    progress.exhausted()
            except BaseException:
                progress.abandon(last)
                raise

    def _wait_for_records(self, limit: int, timeout: float | None) -> Records:
        core = self._core
        deadline = None if timeout is None else core.clock() + timeout
        while True:
            records = self._take(limit)
            if records:
                return records
            self._progress.hand(records)  # positions can move over what is not handed out
            came = core.buffer.wait(sooner(core.patience(), None if deadline is None else left(deadline, core.clock)))
            if not (came or core.buffer.woken) and deadline is not None and core.clock() >= deadline:
                return records

    # ---- positions --------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, *, timeout: float | None = OPTION) -> int:
        """The offset of the next record that is not consumed yet."""
        where, limit = as_partition(partition), self._limit_s(timeout)
        with self._alone():
            known = self._progress.position(where)
            return known if known is not None else self._portal.call(lambda: self._core.position(where, limit))

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
        targets, limit = {as_partition(where): _time(when) for where, when in times.items()}, self._limit_s(timeout)
        return self._call(lambda: self._core.offsets(targets, limit))

    def lag(self, *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition is behind the end of its log."""
        ends = self.end_offsets(self.assignment(), timeout=timeout)
        return {where: max(0, end - self.position(where, timeout=timeout)) for where, end in ends.items()}

    def _ends(self, partitions: Iterable[TopicPartition], which: int, timeout: float | None) -> dict[TopicPartition, int]:
        targets, limit = dict.fromkeys(as_partitions(partitions), which), self._limit_s(timeout)
        found = self._call(lambda: self._core.offsets(targets, limit))
        return {where: answer.offset for where, answer in found.items() if answer is not None}

    # ---- commits ----------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, *, timeout: float | None = OPTION) -> None:
        """Store positions for the group: what was handed out so far, or *offsets* (of the next record to read).

        Inside an iteration the current record counts as done.

        Raises:
            IllegalState: the consumer has no ``group_id``.
            KafkaTimeout: not confirmed within the time; it may be stored.
        """
        limit = self._limit_s(timeout)
        with self._alone():
            given = self._given(offsets)
            self._portal.call(lambda: self._core.commit(given, limit))
            self._progress.saved(given)
        self._tell()

    def committed(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for each partition; None where nothing is."""
        wanted, limit = as_partitions(partitions), self._limit_s(timeout)
        return self._call(lambda: self._core.committed(wanted, limit))

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
        with self._alone():
            try:
                if clean:
                    self._save_all(limit)
            finally:
                self._portal.call(self._core.close)
                self._portal.stop()
                self._tell()

    def _save_all(self, limit: float | None) -> None:
        self._progress.settle()
        unsaved = self._progress.unsaved() if self._progress.commits_itself else {}
        if unsaved or self._commits:
            self._portal.call(lambda: self._core.commit(as_offsets(unsaved), limit))

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self._alone():
            return self._portal.call(make)


class AsyncConsumer(AsyncFacade, _Consumer):
    """`Consumer` for asyncio: the same names, awaited where they can wait. Bound to the loop of ``async with``."""

    def _now(self, work: Callable[[], T]) -> T:
        self._core.check_open()
        return work()

    def _soon(self, make: Callable[[], Coroutine[Any, Any, None]]) -> _Commit:
        self._core.check_open()
        return asyncio.get_running_loop().create_task(make())

    # ---- assignment -------------------------------------------------------------------------------------------------

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.assign`."""
        self._assign(partitions)

    async def unsubscribe(self) -> None:
        """As `Consumer.unsubscribe`."""
        await self.assign([])

    # ---- reading ----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float | None = None, max_records: int | None = None) -> Records:
        """As `Consumer.poll`. A cancelled poll takes nothing."""
        limit, wait = self._limit(max_records), seconds(timeout, 0)
        self._core.check_open()
        self._tell()
        with self._alone():
            self._progress.settle()
            self._save()
            records = await self._wait_for_records(limit, wait)
            self._progress.hand(records)
            return records

    async def __aiter__(self) -> AsyncIterator[Record]:
        """As `Consumer.__iter__`."""
        limit = self._config.max_poll_records
        progress = self._progress
        while True:
            self._core.check_open()
            self._tell()
            with self._alone():
                progress.settle()
                self._save()
                records = await self._wait_for_records(limit, None)
                progress.begin(records)
            last: Record | None = None
            try:
                for record in records:
                    progress.current = last = record
                    yield record
                    if progress.current is not record:
                        break  # as in Consumer.__iter__
                else:
                    progress.exhausted()
            except BaseException:
                progress.abandon(last)
                raise

    async def _wait_for_records(self, limit: int, timeout: float | None) -> Records:
        core = self._core
        deadline = None if timeout is None else core.clock() + timeout
        while True:
            records = self._take(limit)
            if records:
                return records
            self._progress.hand(records)
            came = await core.data(sooner(core.patience(), None if deadline is None else left(deadline, core.clock)))
            if not came and deadline is not None and core.clock() >= deadline:
                return records

    # ---- positions --------------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition, *, timeout: float | None = OPTION) -> int:
        """As `Consumer.position`."""
        where, limit = as_partition(partition), self._limit_s(timeout)
        with self._alone():
            self._core.check_open()
            known = self._progress.position(where)
            return known if known is not None else await self._core.position(where, limit)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """As `Consumer.seek`."""
        self._seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """As `Consumer.seek_to_beginning`."""
        self._reset(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
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
        return await self._core.offsets({as_partition(where): _time(when) for where, when in times.items()}, self._limit_s(timeout))

    async def lag(self, *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """As `Consumer.lag`."""
        ends = await self.end_offsets(self.assignment(), timeout=timeout)
        return {where: max(0, end - await self.position(where, timeout=timeout)) for where, end in ends.items()}

    async def _ends(self, partitions: Iterable[TopicPartition], which: int, timeout: float | None) -> dict[TopicPartition, int]:
        found = await self._core.offsets(dict.fromkeys(as_partitions(partitions), which), self._limit_s(timeout))
        return {where: answer.offset for where, answer in found.items() if answer is not None}

    # ---- commits ----------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, *, timeout: float | None = OPTION) -> None:
        """As `Consumer.commit`."""
        limit = self._limit_s(timeout)
        with self._alone():
            given = self._given(offsets)
            await self._let_earlier_ones_begin()
            await self._core.commit(given, limit)
            self._progress.saved(given)
        self._tell()

    async def committed(self, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As `Consumer.committed`."""
        return await self._core.committed(as_partitions(partitions), self._limit_s(timeout))

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
            if clean:
                await self._save_all(limit)
        finally:
            await self._core.close()
            await asyncio.gather(*(commit for commit, _, _ in self._commits if isinstance(commit, asyncio.Task)), return_exceptions=True)
            self._tell()

    async def _save_all(self, limit: float | None) -> None:
        self._progress.settle()
        unsaved = self._progress.unsaved() if self._progress.commits_itself else {}
        if unsaved or self._commits:
            await self._let_earlier_ones_begin()
            await self._core.commit(as_offsets(unsaved), limit)

    async def _let_earlier_ones_begin(self) -> None:
        """C24: the task of a commit_async takes its place in line with its first step, which must come before this call's."""
        await asyncio.sleep(0)


def _no_membership() -> UnsupportedFeature:
    return UnsupportedFeature("group membership (topics=, subscribe) comes in a later release: assign([TopicPartition(...)]) "
                              "the partitions; commits and committed offsets work with a group_id", option="topics")


def _check_offset(offset: object) -> None:
    if not isinstance(offset, int) or not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"offset {offset!r} is not between 0 and {MAX_OFFSET}; seek_to_beginning() and seek_to_end() go to the ends")


def _time(when: object) -> int:
    if not isinstance(when, int) or not 0 <= when <= MAX_OFFSET:
        raise ValueError(f"time {when!r} is not a number from 0 to {MAX_OFFSET}: give ms since the epoch; beginning_offsets() and end_offsets() give the ends")
    return when


def _unheard(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: BaseException | None) -> None:
    """Nobody asked for the outcome: a failure is logged, the next commit stores newer positions."""
    if error is not None:
        _log.warning("committing %d offsets failed: %s", len(offsets), error)
