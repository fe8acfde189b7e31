"""What every cell of the matrix does: one scenario of producers, transactions, errors and a member of a group.

Written once. With sync clients nothing in it is awaited, so that it runs without a loop.
"""
from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import attrs

from pyclient import Deliveries, Delivery, Record, TopicPartition
from tests.kafka import WRITTEN_AT

PARTITIONS: Final = 3
MOST_BYTES: Final = 300
"""Of a batch in the topic `Names.strict`."""
NOISE: Final = Random(7).randbytes(1_000)
"""No codec makes it smaller."""
PRODUCER: Final[Mapping[str, Any]] = {"metrics_sample_window_ms": 600_000}
"""No average is forgotten before it is read."""
BY_FLUSH: Final[Mapping[str, Any]] = {**PRODUCER, "linger_ms": 60_000}
"""`flush` alone sends, so that batches hold the same records everywhere."""
CONSUMER: Final[Mapping[str, Any]] = {
    **PRODUCER, "isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False,
    "session_timeout_ms": 200_000, "heartbeat_interval_ms": 60_000, "fetch_max_wait_ms": 100}
"""No heartbeat is due before the end, however slow the machine is."""
HEADERS: Final = [("trace", b"7"), ("trace", b"8"), ("empty", b""), ("null", None)]
SINGLES: Final = 6
BULK: Final = 40


class Names(NamedTuple):
    """What one run calls its topics, its group and its transactional id: no other run has the suffix."""

    suffix: str

    @property
    def topic(self) -> str:
        return f"matrix-{self.suffix}"

    @property
    def strict(self) -> str:
        """A topic that takes small batches only."""
        return f"strict-{self.suffix}"

    @property
    def group(self) -> str:
        return f"group-{self.suffix}"

    @property
    def transactional_id(self) -> str:
        return f"transactions-{self.suffix}"

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those of `topic`."""
        return [TopicPartition(self.topic, number) for number in range(PARTITIONS)]


class Clients(Protocol):
    """Makes the clients of a cell."""

    def producer(self, **options: Any) -> Any: ...

    def consumer(self, **options: Any) -> Any: ...


@attrs.define
class Seen:
    """What the clients have given to the program, by what it is."""

    delivered: dict[str, list[Any]] = attrs.field(factory=dict)
    read: dict[str, list[Record]] = attrs.field(factory=dict)
    committed: dict[TopicPartition, Any] = attrs.field(factory=dict)
    errors: dict[str, str] = attrs.field(factory=dict)
    metrics: dict[str, Mapping[str, float]] = attrs.field(factory=dict)


async def play(clients: Clients, names: Names) -> Seen:
    """The scenario."""
    seen = Seen()
    await produce(clients, names, seen)
    await transact(clients, names, seen)
    await fail(clients, names, seen)
    await consume(clients, names, seen)
    return seen


# ---- the four parts -------------------------------------------------------------------------------------------------


async def produce(clients: Clients, names: Names, seen: Seen) -> None:
    """Single records with and without a key, then a bulk."""
    called: list[Delivery] = []
    async with opened(clients.producer(**BY_FLUSH)) as producer:
        for number in range(SINGLES):
            await send(producer, names.topic, b"single %d" % number, b"key" if number % 2 else None, headers=HEADERS, on_delivery=called.append)
        await now(producer.flush())
        seen.delivered["singles"] = in_order(each.result(0) for each in called)
        bulk = await now(producer.send_many(
            names.topic, [b"bulk %d" % number * 20 for number in range(BULK - 1)] + [None], keys=[b"key %d" % (number % 7) for number in range(BULK)],
            headers=[{"number": b"%d" % number} for number in range(BULK - 1)] + [None], timestamps=range(WRITTEN_AT, WRITTEN_AT + BULK)))
        await now(producer.flush())
        seen.delivered["bulk"] = in_order(each.result(0) for each in bulk)
        seen.metrics["producer"] = producer.metrics()


async def transact(clients: Clients, names: Names, seen: Seen) -> None:
    """One transaction is committed, one is aborted, and one is fenced by a producer of the same id."""
    async with opened(clients.producer(transactional_id=names.transactional_id, **BY_FLUSH)) as producer:
        async with opened(producer.transaction()):
            await send_to_each(producer, names, b"committed")
        with contextlib.suppress(ReasonToAbortError):
            async with opened(producer.transaction()):
                await send_to_each(producer, names, b"aborted")
                await now(producer.flush())
                unsent = await send(producer, names.topic, b"not sent")
                raise ReasonToAbortError
        seen.errors["not sent before the abort"] = await error_of(lambda: unsent.result(0))
        seen.metrics["transactions"] = producer.metrics()
        await take_over(clients, names)
        seen.errors["fenced"] = await error_of(lambda: of_a_zombie(producer, names))


async def fail(clients: Clients, names: Names, seen: Seen) -> None:
    """Records that the client refuses, records that the broker refuses, also of a bulk, and a callback that raises."""
    async with opened(clients.producer(**BY_FLUSH)) as producer:
        for what, call in {
            "too large for the client": lambda: producer.send(names.topic, bytes(2_000_000)),
            "no bytes": lambda: producer.send(names.topic, "text"),
            "no topic": lambda: producer.send("no/topic", b""),
        }.items():
            seen.errors[what] = await error_of(call)
        large = await send(producer, names.strict, NOISE)
        seen.errors["flush"] = await error_of(producer.flush)
        seen.errors["too large for the broker"] = await error_of(lambda: large.result(0))
        bulk = await now(producer.send_many(names.strict, [b"small", NOISE * 2_000, NOISE], timestamps=[WRITTEN_AT] * 3))
        seen.errors["flush of the bulk"] = await error_of(producer.flush)
        seen.errors["bulk"] = await error_of(lambda: bulk.result(0))
        await send(producer, names.strict, b"last", on_delivery=raise_always)
        await now(producer.flush())
        seen.metrics["failures"] = producer.metrics()


async def consume(clients: Clients, names: Names, seen: Seen) -> None:
    """A member of a group reads all that is committed, commits, seeks back and reads again."""
    async with opened(clients.consumer(topics=[names.topic], group_id=names.group, **CONSUMER)) as consumer:
        records = seen.read["all"] = await read(consumer, SINGLES + BULK + PARTITIONS)
        await now(consumer.commit())
        seen.committed = await now(consumer.committed(names.partitions))
        reset, back, _ = names.partitions
        consumer.seek(reset, 1_000_000)  # nothing is there: auto_offset_reset goes on at the first record
        consumer.seek(back, 2)
        again = [each for each in records if each.partition == reset.partition or (each.partition == back.partition and each.offset >= 2)]
        seen.read["again"] = await read(consumer, len(again))
        assert seen.read["again"] == again
        seen.errors["seek"] = await error_of(lambda: consumer.seek(TopicPartition(names.strict, 0), 0))
        seen.metrics["consumer"] = consumer.metrics()


# ---- steps ----------------------------------------------------------------------------------------------------------


class ReasonToAbortError(Exception):
    """Ends a transaction."""


def raise_always(_: Delivery) -> None:
    """A user's callback."""
    raise ValueError("the callback's own error")


async def send(producer: Any, topic: str, value: bytes, key: bytes | None = None, **options: Any) -> Delivery:
    """One record. All have one time, on which the size of a batch depends."""
    delivery: Delivery = await now(producer.send(topic, value, key, timestamp=WRITTEN_AT, **options))
    return delivery


async def send_to_each(producer: Any, names: Names, value: bytes) -> None:
    """A record for each partition."""
    for _, partition in names.partitions:
        await send(producer, names.topic, value * 10, partition=partition, headers=HEADERS)


async def take_over(clients: Clients, names: Names) -> None:
    """Fence the producer with this transactional id. Behind it the log holds every marker, too."""
    async with opened(clients.producer(transactional_id=names.transactional_id, **PRODUCER)) as successor:
        await now(successor.init_transactions())


async def of_a_zombie(producer: Any, names: Names) -> None:
    """A transaction of the producer that was fenced."""
    async with opened(producer.transaction()):
        await send(producer, names.topic, b"of a zombie", partition=0)


async def read(consumer: Any, count: int) -> list[Record]:
    """The next *count* records."""
    found: list[Record] = []
    while len(found) < count:
        records = await now(consumer.poll(20))
        assert records, f"{len(found)} of {count} records, and no more"
        found += records
    return in_order(found)


def in_order(found: Iterable[Any]) -> list[Any]:
    """By partition and offset: there is no order among partitions."""
    return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))


async def error_of(call: Callable[[], Any]) -> str:
    """What it raises."""
    try:
        await now(call())
    except Exception as error:  # noqa: BLE001 whatever it is, it is compared
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nothing was raised")


# ---- either kind of client ------------------------------------------------------------------------------------------


async def now(answer: Any) -> Any:
    """The result of a sync call, or of an async one once awaited. Both kinds of `send` give a delivery."""
    return await answer if inspect.isawaitable(answer) and not isinstance(answer, Delivery | Deliveries) else answer


@contextlib.asynccontextmanager
async def opened(made: Any) -> AsyncIterator[Any]:
    """By ``with`` or ``async with``, as *made* is entered."""
    if hasattr(made, "__aenter__"):
        async with made as entered:
            yield entered
    else:
        with made as entered:
            yield entered
