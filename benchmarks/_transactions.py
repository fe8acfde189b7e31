"""The measured transactional clients, each in a process of its own.

``python -m benchmarks._transactions`` reads jobs and prints figures, each as a line of JSON. *batches* are transactions
of so many records; *loop* reads a topic and writes each record to another, with its offsets. The other clients' loops
are written by hand, with one transaction for each poll. So is ours with an interval of 0; by default its transactions
go on with records that are fetched already.
"""
from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from benchmarks._process import Clock, serve

SIZE: Final = 100
WARM_UP: Final = 5
"""Transactions that do not count."""
POLL: Final = 500
"""Records of a poll at most; of a transaction of the loop too, if each poll has its own."""


class Job(NamedTuple):
    """What to measure."""

    client: str
    servers: str
    topic: str
    measure: str
    records: int
    """Of one transaction (batches), or of the source (loop)."""
    transactions: int = 0
    source: str = ""
    partitions: int = 1
    run: str = ""
    """A name of this run: its group and transactional id."""
    keyed: bool = False
    """Each record of a transaction has a key of its own, so they go to all partitions."""


class Spans:
    """How long each commit took."""

    def __init__(self) -> None:
        self._us: list[float] = []

    def add(self, began: float) -> None:
        self._us.append((time.perf_counter() - began) * 1e6)

    def figures(self) -> dict[str, float]:
        self._us.sort()
        return {"p50": statistics.median(self._us), "p99": self._us[len(self._us) * 99 // 100]}


def payload() -> bytes:
    return os.urandom(SIZE)


def keys_of(job: Job) -> list[bytes | None]:
    """Those of the records of a transaction."""
    return [b"%d" % number if job.keyed else None for number in range(job.records)]


# --- transactions of so many records ----------------------------------------------------------------------------------


def by_turns(job: Job, begin: Callable[[], object], send: Callable[[], object], commit: Callable[[], object]) -> dict[str, Any]:
    """Transactions one after the other; *send* sends the records of one."""
    spans, clock = Spans(), Clock()
    for number in range(WARM_UP + job.transactions):
        if number == WARM_UP:
            spans, clock = Spans(), Clock()
        begin()
        send()
        began = time.perf_counter()
        commit()
        spans.add(began)
    return {"records": job.records * job.transactions, **clock.read(), **spans.figures()}


async def by_turns_async(job: Job, begin: Callable[[], Awaitable[object]], send: Callable[[], Awaitable[object]], commit: Callable[[], Awaitable[object]]) -> dict[str, Any]:
    """As `by_turns`."""
    spans, clock = Spans(), Clock()
    for number in range(WARM_UP + job.transactions):
        if number == WARM_UP:
            spans, clock = Spans(), Clock()
        await begin()
        await send()
        began = time.perf_counter()
        await commit()
        spans.add(began)
    return {"records": job.records * job.transactions, **clock.read(), **spans.figures()}


def ours(job: Job) -> dict[str, Any]:
    """``send`` for each record."""
    from pyclient import Producer

    value, keys = payload(), keys_of(job)
    with Producer(bootstrap_servers=job.servers, transactional_id=job.run) as producer:
        producer.init_transactions()

        def send() -> None:
            one, topic = producer.send, job.topic
            for key in keys:
                one(topic, value, key)

        return by_turns(job, producer.begin_transaction, send, producer.commit_transaction)


def ours_arrow(job: Job) -> dict[str, Any]:
    """``send_arrow`` for the records of a transaction."""
    import pyarrow as pa

    from pyclient import Producer

    table = pa.table({"value": pa.array([payload()] * job.records, pa.binary())})
    if job.keyed:
        table = table.append_column("key", pa.array(keys_of(job), pa.binary()))
    with Producer(bootstrap_servers=job.servers, transactional_id=job.run) as producer:
        producer.init_transactions()
        return by_turns(job, producer.begin_transaction, lambda: producer.send_arrow(job.topic, table), producer.commit_transaction)


def ours_async(job: Job) -> dict[str, Any]:
    """``await send`` for each record."""
    from pyclient import AsyncProducer

    async def run() -> dict[str, Any]:
        value, keys = payload(), keys_of(job)
        async with AsyncProducer(bootstrap_servers=job.servers, transactional_id=job.run) as producer:
            await producer.init_transactions()

            async def send() -> None:
                for key in keys:
                    await producer.send(job.topic, value, key)

            return await by_turns_async(job, producer.begin_transaction, send, producer.commit_transaction)

    return asyncio.run(run())


def confluents_producer(job: Job) -> Any:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": job.servers, "transactional.id": job.run, "queue.buffering.max.messages": 1_000_000})
    producer.init_transactions()
    return producer


def confluent(job: Job) -> dict[str, Any]:
    """``produce`` for each record, its events served as often as its documents say."""
    producer, value, keys = confluents_producer(job), payload(), keys_of(job)

    def send() -> None:
        one, poll, topic = producer.produce, producer.poll, job.topic
        for key in keys:
            one(topic, value, key)
            poll(0)

    return by_turns(job, producer.begin_transaction, send, producer.commit_transaction)


def aiokafka(job: Job) -> dict[str, Any]:
    """``await send`` for each record."""
    from aiokafka import AIOKafkaProducer

    async def run() -> dict[str, Any]:
        value, keys = payload(), keys_of(job)
        producer = AIOKafkaProducer(bootstrap_servers=job.servers, transactional_id=job.run)
        await producer.start()

        async def send() -> None:
            for key in keys:
                await producer.send(job.topic, value, key)

        try:
            return await by_turns_async(job, producer.begin_transaction, send, producer.commit_transaction)
        finally:
            await producer.stop()

    return asyncio.run(run())


BATCHES: Final[Mapping[str, Callable[[Job], dict[str, Any]]]] = {
    "pyclient send": ours, "pyclient send_arrow": ours_arrow, "pyclient async": ours_async, "confluent": confluent, "aiokafka": aiokafka,
}


# --- the loop ---------------------------------------------------------------------------------------------------------


def ours_loop(job: Job, **options: Any) -> dict[str, Any]:
    """`ExactlyOnce`, by record."""
    from pyclient import Record
    from pyclient.processing import ExactlyOnce, Output

    with our_clients(job) as (consumer, producer):
        seen = 0

        def same(record: Record) -> Output:
            nonlocal seen
            seen += 1
            if seen == job.records:
                loop.stop()
            return Output(job.topic, record.value)

        loop = ExactlyOnce(consumer, producer, same, **options)
        clock = Clock()
        loop.run()
        return {"records": loop.progress.records, **clock.read()}


def ours_loop_arrow(job: Job, **options: Any) -> dict[str, Any]:
    """`ExactlyOnce`, by Arrow table."""
    import pyarrow as pa

    from pyclient.processing import ExactlyOnce

    with our_clients(job) as (consumer, producer):
        seen = 0

        def same(table: pa.Table) -> pa.Table:
            nonlocal seen
            seen += table.num_rows
            if seen == job.records:
                loop.stop()
            return table.select(["value"])

        loop = ExactlyOnce.of_tables(consumer, producer, same, job.topic, **options)
        clock = Clock()
        loop.run()
        return {"records": loop.progress.records, **clock.read()}


def our_clients(job: Job) -> Any:
    import contextlib

    from pyclient import Consumer, Producer

    @contextlib.contextmanager
    def opened() -> Iterator[tuple[Consumer, Producer]]:
        with (Consumer(topics=[job.source], group_id=job.run, enable_auto_commit=False, isolation_level="read_committed", auto_offset_reset="earliest",
                       max_poll_records=POLL, bootstrap_servers=job.servers) as consumer,
              Producer(bootstrap_servers=job.servers, transactional_id=job.run) as producer):
            yield consumer, producer

    return opened()


def confluent_loop(job: Job) -> dict[str, Any]:
    """``consume`` and ``send_offsets_to_transaction``."""
    import confluent_kafka

    producer = confluents_producer(job)
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": job.servers, "group.id": job.run, "enable.auto.commit": False, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    consumer.subscribe([job.source])
    seen, clock = 0, Clock()
    while seen < job.records:
        messages = consumer.consume(POLL, 1.0)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(job.topic, message.value())
            producer.poll(0)
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
        producer.commit_transaction()
        seen += len(messages)
    taken = clock.read()
    consumer.close()
    return {"records": seen, **taken}


def aiokafka_loop(job: Job) -> dict[str, Any]:
    """``getmany`` and ``send_offsets_to_transaction``."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def run() -> dict[str, Any]:
        consumer = AIOKafkaConsumer(job.source, bootstrap_servers=job.servers, group_id=job.run, enable_auto_commit=False, isolation_level="read_committed",
                                    auto_offset_reset="earliest")
        producer = AIOKafkaProducer(bootstrap_servers=job.servers, transactional_id=job.run)
        await consumer.start()
        await producer.start()
        try:
            seen, clock = 0, Clock()
            while seen < job.records:
                found = await consumer.getmany(max_records=POLL, timeout_ms=1000)
                if not found:
                    continue
                await producer.begin_transaction()
                for messages in found.values():
                    for message in messages:
                        await producer.send(job.topic, message.value)
                    seen += len(messages)
                await producer.send_offsets_to_transaction({tp: messages[-1].offset + 1 for tp, messages in found.items()}, job.run)
                await producer.commit_transaction()
            return {"records": seen, **clock.read()}
        finally:
            await producer.stop()
            await consumer.stop()

    return asyncio.run(run())


LOOPS: Final[Mapping[str, Callable[[Job], dict[str, Any]]]] = {
    "pyclient ExactlyOnce": ours_loop, "pyclient ExactlyOnce, Arrow": ours_loop_arrow,
    "pyclient ExactlyOnce, a poll each": partial(ours_loop, commit_interval=0), "pyclient ExactlyOnce, Arrow, a poll each": partial(ours_loop_arrow, commit_interval=0),
    "confluent": confluent_loop, "aiokafka": aiokafka_loop,
}


if __name__ == "__main__":
    serve(Job, {"batches": lambda job: BATCHES[job.client](job), "loop": lambda job: LOOPS[job.client](job)})
