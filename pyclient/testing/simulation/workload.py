"""The users of a simulated world: services that produce or consume; the seed draws their options and habits."""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final

import attrs

from pyclient.consumer.async_facade import AsyncConsumer
from pyclient.errors import (
    ClientClosedError, DeliveryError, KafkaError, KafkaTimeoutError, LogTruncationError, NoOffsetForPartitionError, OffsetOutOfRangeError,
)
from pyclient.producer.facade import AsyncProducer
from pyclient.buffers.deliveries import NO_PARTITION
from pyclient.buffers.delivery import Delivery
from pyclient.buffers.records_view import Records
from pyclient.records import TopicPartition
from pyclient.records.record import Record
from pyclient.testing.simulation.facts import Entry, Facts, Reading, Sent
from pyclient.testing.simulation.invariants import Judge
from pyclient.testing.simulation.observers import observe_batches, observe_consumer, observe_metadata, poison_returned_buffers
from pyclient.testing.simulation.world import World

SEPARATOR: Final = b"|"
REMEMBERED: Final = 5
"""How many batches of a producer and partition a broker recognizes when they are repeated."""
NO_POSITION: Final = (NoOffsetForPartitionError, OffsetOutOfRangeError)
CLOSES_EARLY_SHARE: Final = 0.2
AWAY_S: Final = (0.0, 1.0, 8.0)
"""How long a restless consumer is away before it comes back to what it has committed."""
UNKNOWN_END: Final = 2**63
"""In place of a log end that is not known."""
READ_TO_THE_END_S: Final = 60.0
"""How long a consumer may take to read to the end after the last fault."""


class CallbackFailedError(Exception):
    """Raised by a delivery callback on purpose."""


@attrs.frozen(kw_only=True)
class Plan:
    """What a run's services do."""

    topics: Mapping[str, int]
    """Topic → partitions."""
    producers: list[Mapping[str, Any]]
    consumers: list[Mapping[str, Any]]
    records: int
    """Per producer."""
    working_s: float
    """Producers spread their records over this time."""
    largest_batch: int
    """The topics' max.message.bytes: producers split larger batches."""
    closes_at: float | None
    """When the first producer is closed in the middle of its work; it exists in addition to the others."""


def drawn(random: Random) -> Plan:
    """Draw a plan."""
    topics = {f"topic-{number}": random.choice((1, 2, 3, 5)) for number in range(random.choice((1, 1, 2)))}
    producers = random.choice((1, 1, 2))
    closes_at = random.uniform(2.0, 40.0) if random.random() < CLOSES_EARLY_SHARE else None
    return Plan(
        topics=topics, largest_batch=random.choice((1_048_588, 1_048_588, 2000)),
        producers=[producer_options(random) for _ in range(producers + (closes_at is not None))],
        consumers=[_consumer_options(random) for _ in range(random.choice((1, 1, 1, 1, 1, 1, 1, 2)))],
        records=-(-1020 // producers), working_s=random.uniform(38.0, 46.0), closes_at=closes_at)


def producer_options(random: Random) -> dict[str, Any]:
    """Draw a producer's options."""
    request_timeout = random.choice((1500, 3000))
    linger = random.choice((0, 5, 50))
    batch_size = random.choice((1000, 4096, 4096, 16_384, 16_384))
    return {
        "acks": "all", "enable_idempotence": random.random() < 0.75, "max_in_flight_requests_per_connection": random.choice((1, 2, 5, 5, 5)),
        "linger_ms": linger, "batch_size": batch_size,
        "compression_type": random.choice(("none", "none", "lz4", "snappy", "gzip", "zstd")),
        "buffer_memory": max(batch_size, random.choice((8192, 65_536, 65_536, 1 << 20, 1 << 20))), "max_block_ms": random.choice((500, 5000)),
        "request_timeout_ms": request_timeout, "delivery_timeout_ms": request_timeout + linger + random.choice((0, 0, 4000, 4000, 20_000, 60_000)),
        "retry_backoff_ms": random.choice((20, 100)), "retry_backoff_max_ms": 1000, "reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 1000,
        "metadata_max_age_ms": random.choice((4000, 30_000)), "socket_connection_setup_timeout_ms": 2000, "socket_connection_setup_timeout_max_ms": 4000,
        "connections_max_idle_ms": random.choice((5000, 540_000)),
    }


def _consumer_options(random: Random) -> dict[str, Any]:
    per_partition = random.choice((1000, 4096, 4096, 1 << 20, 1 << 20, 1 << 20))
    return {
        "auto_offset_reset": random.choice(("earliest", "earliest", "earliest", "latest", "none")), "enable_auto_commit": random.random() < 0.3, "auto_commit_interval_ms": 3000,
        "max_poll_records": random.choice((20, 100, 500, 500)), "fetch_min_bytes": min(per_partition, random.choice((1, *[20_000] * 5))), "fetch_max_wait_ms": random.choice((1000, 3000, 3000)),
        "max_partition_fetch_bytes": per_partition, "request_timeout_ms": 4000, "retry_backoff_ms": 50,
        "reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 1000, "metadata_max_age_ms": random.choice((3000, 30_000)),
        "socket_connection_setup_timeout_ms": 2000, "socket_connection_setup_timeout_max_ms": 4000, "default_api_timeout_ms": 15_000,
        "connections_max_idle_ms": random.choice((5000, 540_000)),
    }


class ProducingService:
    """Sends records in bursts, with keys, flushes and callbacks, and records every outcome."""

    def __init__(self, world: World, facts: Facts, judge: Judge, plan: Plan, number: int) -> None:
        self.name = f"producer-{number}"
        self._world, self._facts, self._judge, self._plan = world, facts, judge, plan
        self._random = world.random(self.name)
        self._bulks = world.random(f"{self.name} in bulks")
        self._bulky = self._bulks.choice((0.0, 0.0, 0.5))
        """The share of bursts that are one `send_many`."""
        self._options = plan.producers[number]
        self._topics = list(plan.topics)
        self._producer: AsyncProducer = world.producer(self.name, **self._options)
        self._accepted = 0
        self._asked = 0
        self._closing = False
        poison_returned_buffers(self._producer._core.accumulator.pool)
        observe_metadata(self.name, self._producer._core.metadata, judge)
        observe_batches(self.name, self._producer._core.sender, judge)
        self._due_s = self._options["delivery_timeout_ms"] / 1000
        config = self._producer._core.config
        facts.block_s[self.name] = config.max_block_ms / 1000
        facts.pipelines[self.name] = config.max_in_flight_requests_per_connection
        facts.in_line[self.name] = min(REMEMBERED, config.max_in_flight_requests_per_connection) if config.enable_idempotence else 1
        facts.max_age[self.name] = config.metadata_max_age_ms / 1000

    async def run(self) -> None:
        """Work, then close."""
        closes_at = self._plan.closes_at if self.name == "producer-0" else None
        try:
            async with asyncio.timeout_at(closes_at):
                await self._work()
        except TimeoutError:
            self._world.journal.note(self.name, "closes in the middle of its work")
        await self._close(0.0 if closes_at is not None and self._random.random() < 0.5 else None)

    async def _work(self) -> None:
        await self._producer.__aenter__()
        gap = self._plan.working_s / self._plan.records
        while self._asked < self._plan.records:
            burst = min(self._random.choice((1, 20, 60)), self._plan.records - self._asked)
            if burst > 1 and self._bulks.random() < self._bulky:
                await self._send_many(burst)
            else:
                for _ in range(burst):
                    await self._send()
            self._account()
            await asyncio.sleep(self._random.expovariate(1 / (gap * burst)))
            if self._random.random() < 0.05:
                await self._flush()

    async def _send(self) -> None:
        topic = self._random.choice(self._topics)
        sent, key = self._made()
        partition = self._random.randrange(self._plan.topics[topic]) if self._random.random() < 0.2 else None
        try:
            delivery = await self._producer.send(topic, sent.value, key, partition=partition)
        except KafkaError as error:
            self._refused(sent, error)
        else:
            self._take(sent)
            self._observe_delivery(sent, delivery)

    async def _send_many(self, count: int) -> None:
        """Accept all records before the call: some may be stored before it returns."""
        topic = self._random.choice(self._topics)
        made = [self._made() for _ in range(count)]
        keys = [key for _, key in made] if self._bulks.random() < 0.5 else None
        for sent, _ in made:
            self._take(sent)
        try:
            deliveries = await self._producer.send_many(topic, [sent.value for sent, _ in made], keys=keys)
        except KafkaError as error:
            for sent, _ in made:
                self._facts.refuse(sent)
                self._refused(sent, error)
        except asyncio.CancelledError:
            for sent, _ in made:
                self._facts.lose_sight(sent)
            raise
        else:
            for (sent, _), delivery in zip(made, deliveries, strict=True):
                self._take_or_refuse(sent, delivery)

    def _take_or_refuse(self, sent: Sent, delivery: Delivery) -> None:
        error = delivery.exception() if delivery.partition == NO_PARTITION else None
        if error is None:
            self._observe_delivery(sent, delivery)
        else:
            self._facts.refuse(sent)
            self._refused(sent, error)

    def _made(self) -> tuple[Sent, bytes | None]:
        """A new record, and a key for it."""
        name = f"{self.name}.{self._asked}".encode()
        value = name + SEPARATOR + b"x" * self._random.choice((0, 10, 100, 100, 700))
        key = f"key-{self._random.randrange(20)}".encode() if self._random.random() < 0.5 else None
        self._asked += 1
        return Sent(name=name, producer=self.name, value=value, once=self._options["enable_idempotence"]), key

    def _refused(self, sent: Sent, error: KafkaError) -> None:
        self._world.journal.note(self.name, f"could not send {sent.name!r}: {type(error).__name__}")
        self._judge.after("refused", self.name, error)

    def _take(self, sent: Sent) -> None:
        sent.order = self._accepted
        sent.at = self._world.loop.time()
        sent.due_from = sent.at + self._due_s
        self._accepted += 1
        self._facts.accept(sent)

    def _observe_delivery(self, sent: Sent, delivery: Delivery) -> None:
        sent.delivery = delivery
        sent.due = self._world.loop.time() + self._due_s
        self._facts.second.records += 1
        self._world.journal.note(self.name, f"sent {sent.name!r} to {delivery.topic}-{delivery.partition}")
        delivery.add_done_callback(lambda _delivery: self._on_settled(sent))

    def _on_settled(self, sent: Sent) -> None:
        sent.settled += 1
        sent.settled_at = self._world.loop.time()
        self._facts.unsettled.pop(sent.name, None)
        assert sent.delivery is not None
        error = sent.delivery.exception()
        self._world.journal.note(self.name, f"settled {sent.name!r}: {type(error).__name__ if error else 'stored'}")
        if error is None:
            sent.offset = sent.delivery.result().offset
            self._facts.acked += 1
            self._judge.after("acked", sent)
        else:
            sent.error = error
            self._facts.failed += 1
            if not self._closing:
                self._judge.after("failed", sent)
        self._judge.after("settled", sent)
        if self._world.raising:
            self._world.raising.pop(0)()
            raise CallbackFailedError("on purpose")

    async def _flush(self) -> None:
        with contextlib.suppress(DeliveryError, KafkaTimeoutError):
            await self._producer.flush(self._random.choice((0.1, 2.0, None)))
        self._account()

    def _account(self) -> None:
        pool = self._producer._core.accumulator.pool
        self._judge.after("produced", self.name, pool.used, pool.total)

    async def _close(self, timeout: float | None) -> None:
        self._closing = timeout is not None
        pool = self._producer._core.accumulator.pool
        if timeout is None:
            with contextlib.suppress(DeliveryError, KafkaTimeoutError):
                await self._producer.flush(None)
        with contextlib.suppress(DeliveryError, ClientClosedError):
            await self._producer.close(timeout)
        self._judge.after("idle", self.name, pool.used)
        self._world.journal.note(self.name, "closed")


def rack_of(world: World, consumer: int) -> str:
    """The rack of the consumer of this number; empty: it reads from leaders only."""
    return world.random(f"consumer-{consumer} in a rack").choice(("", "", "rack-1", "rack-2", "rack-3"))


class ConsumingService:
    """Polls every partition, commits, seeks, closes and starts again; evaluates each record."""

    def __init__(self, world: World, facts: Facts, judge: Judge, plan: Plan, number: int) -> None:
        self.name = f"consumer-{number}"
        self._world, self._facts, self._judge, self._plan = world, facts, judge, plan
        self._random = world.random(self.name)
        self._options = plan.consumers[number]
        self._group = f"group-{number}"
        world.groups.append(self._group)
        self._partitions = [TopicPartition(topic, each) for topic, count in plan.topics.items() for each in range(count)]
        self._seeks = self._random.choice((0, 1, 3, 6))
        """How many seeks are left; each may repeat everything read so far."""
        self._restless = self._random.random() < 0.5
        self._wanders = True
        """Where it may read from followers, it is busy at times, and seeks ahead."""
        self._pause = self._random.choice((0.0, 0.2, 0.6))
        self._rack = rack_of(world, number)
        self._followers = world.random(f"{self.name} and followers")
        """Decides what it does for the sake of the followers that it may read."""
        self._leaving = False
        self._consumer: AsyncConsumer = self._made()

    def _made(self) -> AsyncConsumer:
        consumer = self._world.consumer(self.name, group_id=self._group, **{"client_rack": self._rack, **self._options})
        observe_consumer(self.name, consumer._core, self._judge)
        self._facts.resets[self.name] = consumer._core.config.auto_offset_reset
        return consumer

    async def run(self, done: asyncio.Event) -> None:
        """Read until the producers are done and everything was read; restless ones restart meanwhile."""
        while not self._leaving:
            try:
                async with self._consumer:
                    await self._begin()
                    await self._live(done)
            except KafkaTimeoutError:  # the last commit, while faults last
                if self._leaving:
                    raise
            self._world.journal.note(self.name, "closed")
            if not self._leaving:
                await asyncio.sleep(min(self._random.choice(AWAY_S), max(0.0, self._facts.calm_from - self._world.loop.time())))
                self._consumer = self._made()

    async def _begin(self) -> None:
        self._consumer.assign(self._partitions)
        for each in self._partitions:
            reading = self._reading(each)
            place = self._facts.committed.get((self._group, (each.topic, each.partition)))
            if place is None:
                reading.begin(None, self._cuts(each))
            else:
                self._facts.resumed(self.name, (each.topic, each.partition), *place)
            if self._options["auto_offset_reset"] == "latest":
                reading.handed = UNKNOWN_END
        if self._jumps(0.5):
            await self._seek()

    async def _live(self, done: asyncio.Event) -> None:
        leaves_at = self._world.loop.time() + self._random.uniform(5.0, 25.0) if self._restless else float("inf")
        until = float("inf")
        while self._world.loop.time() < until and not (self._leaving and self._at_the_end()):
            if done.is_set() and not self._leaving:
                self._leaving = True
                until = self._world.loop.time() + READ_TO_THE_END_S
            if not self._leaving and self._world.loop.time() >= leaves_at:
                await self._try(self._commit)
                return
            await self._try(self._step)

    async def _step(self) -> None:
        records = await self._consumer.poll(self._random.choice((0.0, 0.3, 2.0)))
        for record in records:
            self._on_record(record)
        self._check_position_behind(records)
        await self._check_positions()
        if self._random.random() < 0.1:
            await self._commit()
        if not self._leaving and self._jumps(0.02):
            await self._seek()
        if self._rack and self._wanders and not self._leaving:
            await self._as_near_readers_do()

    async def _as_near_readers_do(self) -> None:
        """Be busy at times, while what is fetched stays unread, and skip what a follower may not have yet."""
        if self._followers.random() < 0.04:
            self._seek_ahead(self._followers.choice(self._partitions))
        if self._followers.random() < 0.04:
            await asyncio.sleep(self._followers.choice((0.5, 1.0, 3.0)))

    def _seek_ahead(self, tp: TopicPartition) -> None:
        end, reading = self._facts.committed_end((tp.topic, tp.partition)), self._reading(tp)
        if reading.next is None or reading.next >= end:
            return
        target = self._followers.randint(reading.next + 1, end)
        self._world.journal.note(self.name, f"seeks ahead to {target} of {tp}")
        self._consumer.seek(tp, target)
        self._facts.sought(self.name, (tp.topic, tp.partition), target)
        reading.handed = max(reading.handed, target)

    async def _try(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except LogTruncationError as error:
            await self._seek_to_the_divergence(error)
        except NO_POSITION as error:
            self._judge.after("refused", self.name, error)
            self._world.journal.note(self.name, f"gets {type(error).__name__} and starts at the beginning")
            if self._random.random() < 0.5:
                await self._seek_to_an_end(begin=True)
            else:
                await self._seek_to_log_starts()
        except KafkaError as error:
            self._world.journal.note(self.name, f"gets {type(error).__name__}")
            self._judge.after("refused", self.name, error)
        if not self._leaving:
            await asyncio.sleep(self._pause * self._random.uniform(0.5, 1.5))

    def _on_record(self, record: Record) -> None:
        name = (record.value or b"").split(SEPARATOR)[0]
        tp = record.topic, record.partition
        self._facts.consumed += 1
        self._facts.second.records += 1
        self._world.journal.note(self.name, f"got {name!r} at {tp[0]}-{tp[1]} offset {record.offset}")
        handed = self._facts.handed(self.name, tp, record.offset, Entry(name, record.leader_epoch or 0))
        self._judge.after("consumed", handed)
        self._facts.read(handed)

    def _check_position_behind(self, records: Records) -> None:
        """Evaluate what `position` returns without waiting, of each partition of a poll's *records*."""
        for tp in records.partitions():
            position = self._consumer._consumed_positions.position(tp)
            if position is not None:
                self._judge.after("returned", self.name, (tp.topic, tp.partition), position)

    async def _check_positions(self) -> None:
        """Evaluate what counts as consumed."""
        for each in self._partitions:
            reading = self._reading(each)
            position = self._consumer._consumed_positions.consumed(each)
            if position is None and self._leaving:
                position = await self._consumer.position(each, timeout=5.0)
            begin = self._facts.start_for(reading, (each.topic, each.partition))
            if position is None or (reading.next is not None and position > reading.next >= begin):
                continue  # not known yet, or consumed before the log was cut back: what was handed out since counts with the next poll
            self._judge.after("position", self.name, (each.topic, each.partition), reading, position)
            self._facts.moved(self.name, (each.topic, each.partition), position)

    async def _commit(self) -> None:
        await self._consumer.commit(timeout=5.0)
        for tp, stored in (await self._consumer.committed(self._partitions, timeout=5.0)).items():
            if stored is not None:
                self._judge.after("committed", self.name, (tp.topic, tp.partition), stored.offset, stored.leader_epoch)

    def _jumps(self, chance: float) -> bool:
        return self._seeks > 0 and self._random.random() < chance

    async def _seek(self) -> None:
        self._seeks -= 1
        tp = self._random.choice(self._partitions)
        reading = self._reading(tp)
        if reading.position > 0 and self._random.random() < 0.7:
            target = self._random.randrange(reading.position)
            self._world.journal.note(self.name, f"seeks to {target} of {tp}")
            self._consumer.seek(tp, target)
            self._facts.sought(self.name, (tp.topic, tp.partition), target)
        else:
            begin = self._random.random() < 0.7
            if self._random.random() < 0.3:
                await self._seek_to_an_end(begin=not begin)  # and changes its mind
            await self._seek_to_an_end(begin=begin)

    async def _seek_to_log_starts(self) -> None:
        for each in self._partitions:
            start = self._facts.log_start[each.topic, each.partition]
            self._consumer.seek(each, start)
            self._reading(each).begin(start, self._cuts(each))

    async def _seek_to_an_end(self, *, begin: bool) -> None:
        self._world.journal.note(self.name, f"seeks to the {'beginning' if begin else 'end'}")
        self._consumer.seek_to_beginning() if begin else self._consumer.seek_to_end()
        for each in self._partitions:
            reading = self._reading(each)
            reading.begin(None, self._cuts(each))
            if not begin:
                reading.handed = UNKNOWN_END

    async def _seek_to_the_divergence(self, error: LogTruncationError) -> None:
        """Seek to the divergence, as users must without auto_offset_reset."""
        assert error.topic_partition is not None
        self._world.journal.note(self.name, f"gets {error}")
        self._judge.after("truncated", self.name, error)
        self._consumer.seek(error.topic_partition, error.divergent_offset)
        self._reading(error.topic_partition).begin(error.divergent_offset, self._cuts(error.topic_partition))

    def _cuts(self, tp: TopicPartition) -> int:
        return len(self._facts.cuts[tp.topic, tp.partition])

    def _reading(self, tp: TopicPartition) -> Reading:
        return self._facts.readings[self.name, (tp.topic, tp.partition)]

    def _at_the_end(self) -> bool:
        return all(self._reading(each).position == self._end(each) for each in self._partitions)

    def _end(self, tp: TopicPartition) -> int:
        return self._facts.end((tp.topic, tp.partition))
