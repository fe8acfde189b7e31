"""The asynchronous heart of a consumer: positions, fetches, commits; and what its facades remember between calls."""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pyclient.buffers.fetchbuffer import FetchBuffer
from pyclient.buffers.fetched import Records, collect
from pyclient.codec.record import Record, decoded
from pyclient.config import ConsumerConfig
from pyclient.core.fetching.fetcher import Fetcher
from pyclient.core.fetching.limits import READ_COMMITTED, FetchLimits
from pyclient.core.fetching.lookups import EARLIEST, LATEST, OffsetLookups
from pyclient.core.group.offsets import commit_call, committed_call
from pyclient.core.manager import Manager
from pyclient.errors import BootstrapFailed, IllegalState, KafkaError, KafkaTimeout, SerializationError, raisable
from pyclient.metrics import FETCH_BUFFERED, RECORDS_CONSUMED
from pyclient.plugins import as_deserializer
from pyclient.records import Headers, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from pyclient.runtime.client import ClientCore

PARTING: Final = 0.1
"""Seconds that brokers may take to answer to the end of a fetch session: what is written reaches them all the same."""
MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1
MAX_EPOCH: Final = 2**31 - 1
MAX_NOTE_BYTES: Final = 2**15 - 1
"""A broker hangs up on a longer string instead of refusing it."""


class ConsumerCore(ClientCore):
    """Everything of a consumer that runs on the loop."""

    config: ConsumerConfig

    def __init__(self, config: ConsumerConfig) -> None:
        super().__init__(config, create_topics=config.allow_auto_create_topics)
        isolation = READ_COMMITTED if config.isolation_level == "read_committed" else 0
        self.buffer = FetchBuffer()
        self.lookups = OffsetLookups(self.metadata, isolation=isolation, request_timeout=self.request_timeout, backoff=self.backoff)
        self.fetcher = Fetcher(
            self.buffer, self.metadata, self.lookups, _limits(config, isolation), backoff=self.backoff,
            reset_time=lambda: reset_time(config, self.environment.wall()),
            find_committed=self._find_committed if config.group_id else None)
        self._commit_order = asyncio.Lock()
        self._news = asyncio.Event()
        self._unanswered_since: float | None = None
        self.metrics.watch(FETCH_BUFFERED, lambda: self.buffer.bytes)

    def managers(self) -> Sequence[Manager]:
        """The fetcher first: what it wants to know is asked in the same turn."""
        return [self.fetcher, *super().managers(), self.lookups]

    async def start(self) -> None:
        """Begin; taking data makes room for more."""
        await super().start()
        self.buffer.on_room = self.driver.wake_from_anywhere

    async def data(self, timeout: float | None) -> bool:
        """Wait for data or a wakeup; False when *timeout* seconds passed without."""
        self.check_open()
        try:
            async with asyncio.timeout(timeout):
                while not (self.buffer.ready() or self.buffer.woken):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def patience(self) -> float | None:
        """Seconds that reading may go on waiting for a first broker to answer; None when one has.

        Raises:
            BootstrapFailed: none has for ``default_api_timeout_ms``, counted from the first poll that waited for it.
        """
        if self.metadata.cluster.nodes or not self.fetcher.positions:
            self._unanswered_since = None
            return None
        now = self.clock()
        since = self._unanswered_since = now if self._unanswered_since is None else self._unanswered_since
        left = since + self.config.default_api_timeout_ms / 1000 - now
        if left <= 0:
            self._unanswered_since = None  # whoever polls on waits as long again
            raise BootstrapFailed(self.links.troubles(), waited_s=now - since)
        return left

    def tell(self) -> None:
        """There is data, or a wakeup; called by any thread."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._news.set)

    # ---- assignment and positions -----------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        self.fetcher.assign(partitions, self.clock())
        self.driver.wake()

    def seek(self, where: TopicPartition, offset: int) -> None:
        """Read on at *offset*."""
        self.check_assigned(where)
        self.fetcher.seek(where, offset)
        self.driver.wake()

    def reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        """Read on at the start or the end of the log."""
        for where in self._all_assigned(partitions):
            self.fetcher.reset(where, timestamp, self.clock())
        self.driver.wake()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these for now."""
        self.fetcher.pause(self._all_assigned(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End `pause`."""
        self.fetcher.resume(self._all_assigned(partitions))
        self.driver.wake()

    async def position(self, where: TopicPartition, timeout: float | None) -> int:
        """Where reading began, once that is known."""
        self.check_open()
        self.check_assigned(where)

        def known() -> int | None:
            obstacle = self.fetcher.obstacles.get(where)
            if obstacle is not None:
                raise raisable(obstacle)
            position = self.fetcher.positions[where]
            return position.start if position.known else None

        return await self.driver.until(known, timeout, lambda: KafkaTimeout(
            f"the position of {where} is not known after {timeout} s; {self.metadata.last_error or 'its leader did not answer'}"))

    def check_assigned(self, where: TopicPartition) -> None:
        """Raise when the partition is not assigned."""
        if where not in self.fetcher.positions:
            raise IllegalState(f"{where} is not assigned to this consumer: assign([...]) it first")

    def _all_assigned(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        wanted = list(partitions)
        for where in wanted:
            self.check_assigned(where)
        return wanted

    # ---- offsets ----------------------------------------------------------------------------------------------------

    async def offsets(self, targets: Mapping[TopicPartition, int], timeout: float | None) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The offsets at these timestamps (ms, or `EARLIEST`, `LATEST`); None where no record is that late."""
        self.check_open()
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        errors: list[KafkaError] = []

        def note(where: TopicPartition, answer: OffsetAndTimestamp | None, error: KafkaError | None, _now: float) -> None:
            found[where] = answer
            errors.extend([error] if error is not None else [])

        now = self.clock()
        deadline = None if timeout is None else now + timeout
        lookups = self.lookups.submit(targets, note, deadline=deadline, now=now)
        try:
            await self.driver.until(lambda: True if errors or len(found) == len(targets) else None, None, _never)
        finally:
            for lookup in lookups:
                self.lookups.cancel(lookup)
        if errors:
            raise self._unreachable(errors[0], timeout)
        return {where: found[where] for where in targets}

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: float | None) -> None:
        """Store offsets for the group; commits of one consumer are carried out in the order they were asked for (C24)."""
        self.check_open()
        group = self.group()
        deadline = None if timeout is None else self.clock() + timeout
        await self._my_turn(timeout)
        try:
            if offsets:
                left = None if deadline is None else max(0.0, deadline - self.clock())
                await self.call(lambda finish, until: commit_call(group, offsets, finish, until), left)
        finally:
            self._commit_order.release()

    async def _my_turn(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._commit_order.acquire()
        except TimeoutError:
            raise KafkaTimeout(f"commits asked for before this one have not ended after {timeout} s; nothing was sent for it") from None

    async def committed(self, partitions: Iterable[TopicPartition], timeout: float | None) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where nothing is."""
        group, wanted = self.group(), list(partitions)
        found: dict[TopicPartition, OffsetAndMetadata | None] = await self.call(
            lambda finish, deadline: committed_call(group, wanted, finish, deadline), timeout)
        return found

    def group(self) -> str:
        """The group id.

        Raises:
            IllegalState: there is none.
        """
        if not self.config.group_id:
            raise IllegalState("committing needs a group: give the consumer a group_id")
        return self.config.group_id

    def _find_committed(self, partitions: Sequence[TopicPartition],
                        tell: Callable[[TopicPartition, OffsetAndMetadata | None, KafkaError | None, float], None],
                        ) -> Callable[[TopicPartition], None]:
        wanted = set(partitions)

        def finish(found: Any, error: BaseException | None) -> None:
            for where in partitions:
                if isinstance(error, KafkaError):
                    tell(where, None, error, self.clock())
                elif found is not None:
                    tell(where, found[where], None, self.clock())

        def unwanted(where: TopicPartition) -> None:
            wanted.discard(where)
            if not wanted:
                self.calls.cancel(call)

        call = committed_call(self.group(), partitions, finish, None)
        self.calls.submit(call)
        return unwanted

    async def close(self) -> None:
        """Close, and end a poll that waits."""
        try:
            if self.closed is None and self.loop is not None:
                self.check_loop()
                await self._part()
        finally:
            await super().close()
            self.buffer.wake()

    async def _part(self) -> None:
        """C07: tell brokers that the fetch sessions are over, where that can be written at once; the answers may take a moment."""
        for request in self.fetcher.parting.requests(self.links.free):
            self.links.send(request)
        with contextlib.suppress(KafkaError):
            await self.driver.until(lambda: self.fetcher.parting.over or None, PARTING, _late)


class Progress:
    """What was handed out and what counts as consumed. Belongs to the one thread that uses the consumer.

    A result of poll counts as consumed when the next poll, a commit or a clean close follows; a record of an iteration
    when the next one is asked for, or at a commit inside the loop's body.
    """

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._decode = decoder(core.config)
        self._consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._handed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._saved: dict[TopicPartition, int] = {}
        self._save_at = core.clock() + core.config.auto_commit_interval_ms / 1000
        self._rest = Records()
        self._iterated = Records()
        self.current: Record | None = None
        """The record an iteration has handed out last; the iteration sets it."""

    # ---- poll -------------------------------------------------------------------------------------------------------

    def take(self, limit: int) -> Records:
        """What is there now, at most *limit* records; positions may move even if there is none."""
        paused = self._core.fetcher.paused
        rest = self._rest.without(paused)
        if rest:
            records, later = rest.split(limit)
            self._rest = later.joined(self._rest.only(paused))
            return records
        return collect(self._core.buffer, limit, self._decode)

    def hand(self, records: Records) -> None:
        """A poll returns *records*."""
        self._core.metrics.add(RECORDS_CONSUMED, len(records))
        self._handed.update(records.next_offsets())

    def settle(self) -> None:
        """What was handed out counts as consumed from now on; an iteration under way gives back what it has not shown."""
        self.interrupt()
        self._consumed.update(self._handed)
        self._handed.clear()

    # ---- iteration --------------------------------------------------------------------------------------------------

    def begin(self, records: Records) -> None:
        """An iteration goes through *records*."""
        self._iterated, self.current = records, None

    def exhausted(self) -> None:
        """The iteration asks for more: all of it is consumed."""
        self._core.metrics.add(RECORDS_CONSUMED, len(self._iterated))
        self._consumed.update(self._iterated.next_offsets())
        self.begin(Records())

    def abandon(self, last: Record | None) -> None:
        """An iteration that has shown *last* ended early; one that was interrupted before has nothing to say any more."""
        if last is self.current:
            self.interrupt()

    def interrupt(self) -> None:
        """The iteration under way, if any, ends here: its last record counts like a poll's, the others come first in the next poll."""
        if self.current is not None:
            self._consumed.update(self._iterated.through(self.current, inclusive=False))
            self._handed[TopicPartition(self.current.topic, self.current.partition)] = OffsetAndMetadata(
                self.current.offset + 1, leader_epoch=self.current.leader_epoch)
            rest = self._iterated.after(self.current)
            if not rest:
                self._handed.update(self._iterated.next_offsets())  # with what lies behind the last record and is not handed out
        else:
            rest = self._iterated
        self._core.metrics.add(RECORDS_CONSUMED, len(self._iterated) - len(rest))
        self._rest = rest.joined(self._rest)
        self.begin(Records())

    # ---- positions --------------------------------------------------------------------------------------------------

    def position(self, where: TopicPartition) -> int | None:
        """The consumed position; None before anything of the partition was consumed."""
        inside = {} if self.current is None else self._iterated.through(self.current, inclusive=False)
        consumed = inside.get(where, self._consumed.get(where))
        return None if consumed is None else consumed.offset

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What ``commit()`` stores: everything handed out, of an iteration up to and with the current record."""
        inside = {} if self.current is None else self._iterated.through(self.current, inclusive=True)
        self._consumed.update(self._handed)
        self._handed.clear()
        return {**self._consumed, **inside}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These were assigned anew or sought: nothing from before counts."""
        gone = set(partitions)
        self.interrupt()  # in the body of a loop: its next record comes from the new position
        self._rest = self._rest.without(gone)
        for where in gone:
            for each in (self._consumed, self._handed, self._saved):
                each.pop(where, None)

    def start_at(self, where: TopicPartition, offset: int) -> None:
        """A seek: the position is *offset*."""
        self.forget([where])
        self._consumed[where] = OffsetAndMetadata(offset)

    # ---- automatic commits ------------------------------------------------------------------------------------------

    def due(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions to commit automatically now; empty most of the time."""
        now = self._core.clock()
        if not self.commits_itself or now < self._save_at:
            return {}
        self._save_at = now + self._core.config.auto_commit_interval_ms / 1000
        return self.unsaved()

    @property
    def commits_itself(self) -> bool:
        """Whether enable_auto_commit applies."""
        return bool(self._core.config.enable_auto_commit and self._core.config.group_id)

    def unsaved(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Consumed positions that were not committed yet."""
        return {where: position for where, position in self._consumed.items() if self._saved.get(where) != position.offset}

    def saved(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were committed."""
        self._saved.update({where: position.offset for where, position in offsets.items()})


def decoder(config: ConsumerConfig) -> Callable[[Record], Record] | None:
    """A function that applies the deserializers to a record; None when there are none."""
    if config.key_deserializer is None and config.value_deserializer is None:
        return None
    key = _unchanged if config.key_deserializer is None else as_deserializer(config.key_deserializer)
    value = _unchanged if config.value_deserializer is None else as_deserializer(config.value_deserializer)

    def decode(record: Record) -> Record:
        try:
            return decoded(record, key(record.topic, record.key, record.headers), value(record.topic, record.value, record.headers))
        except SerializationError as error:
            where = TopicPartition(record.topic, record.partition)
            raise SerializationError(f"the record at offset {record.offset}: {error.message}. seek() past it to go on.",
                                     topic_partition=where) from error

    return decode


def _unchanged(topic: str, data: bytes | None, headers: Headers) -> bytes | None:
    return data


def as_partition(given: object) -> TopicPartition:
    """A partition as users may write it, checked: what cannot be sent would stop every request it is part of."""
    match given:
        case (str(topic), int(number)) if topic and 0 <= number <= MAX_PARTITION:
            return TopicPartition(topic, number)
    raise ValueError(f"{given!r} is no partition: give TopicPartition(topic, number), with a number from 0 on")


def as_partitions(given: Iterable[object]) -> list[TopicPartition]:
    """Partitions as users may write them, checked."""
    return [as_partition(each) for each in given]


def as_offsets(offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Plain numbers or `OffsetAndMetadata`, checked."""
    return {as_partition(where): _as_position(where, given) for where, given in offsets.items()}


def _as_position(where: TopicPartition, given: object) -> OffsetAndMetadata:
    match given:
        case int():
            position = OffsetAndMetadata(given)
        case OffsetAndMetadata(offset=int(), metadata=str(), leader_epoch=None | int()):
            position = given
        case _:
            raise ValueError(f"{given!r} is no position of {where}: give an offset or OffsetAndMetadata")
    if not 0 <= position.offset <= MAX_OFFSET:
        raise ValueError(f"offset {position.offset} of {where} is negative or too large: commit the offset of the next record to read")
    if position.leader_epoch is not None and not 0 <= position.leader_epoch <= MAX_EPOCH:
        raise ValueError(f"leader epoch {position.leader_epoch} of {where} is negative or too large: leave it out when it is not known")
    if len(position.metadata.encode()) > MAX_NOTE_BYTES:
        raise ValueError(f"the metadata of {where} is longer than {MAX_NOTE_BYTES} bytes: brokers take at most "
                         "offset.metadata.max.bytes, by default 4096")
    return position


def reset_time(config: ConsumerConfig, now: int) -> int | None:
    """What auto_offset_reset asks for: a timestamp to look up, or None for an error; *now* is in ms since the epoch."""
    if config.reset_duration_ms is not None:
        return now - config.reset_duration_ms
    return {"earliest": EARLIEST, "latest": LATEST}.get(config.auto_offset_reset)


def _limits(config: ConsumerConfig, isolation: int) -> FetchLimits:
    return FetchLimits(
        min_bytes=config.fetch_min_bytes, max_wait=config.fetch_max_wait_ms / 1000, max_bytes=config.fetch_max_bytes,
        max_partition_bytes=config.max_partition_fetch_bytes, buffer_memory=config.fetch_buffer_memory,
        decompression_limit=config.decompression_limit_bytes, check_crcs=config.check_crcs, isolation=isolation,
        rack=config.client_rack, request_timeout=config.request_timeout_ms / 1000, replica_lease=config.metadata_max_age_ms / 1000)


def _late() -> KafkaError:
    return KafkaTimeout("not every broker has answered to the end of its fetch session")


def _never() -> KafkaError:
    raise AssertionError("waits without a limit of its own")
