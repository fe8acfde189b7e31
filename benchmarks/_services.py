"""The measured clients as services use them: idle, with a few records a second, beside threads that compute.

``python -m benchmarks._services`` reads jobs and prints figures, each as a line of JSON. Each client is opened, given
time to settle, and measured for the job's seconds. All producers are idempotent with acks=all.
"""
from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from benchmarks._access import OPEN, PLAINTEXT, TLS, Access, Login, confluents, ours
from benchmarks._consumers import new_group
from benchmarks._one_socket import OneSocket, fetch_at_the_end, poll, produce
from benchmarks._process import Clock, serve

SETTLE_S: Final = 2.0
JOIN_S: Final = 7.0
"""A group's coordinator waits three seconds for further members; the next heartbeat is three seconds later."""
WAIT_S: Final = 10.0
SIZE: Final = 100
STEADY: Final = 1_000
"""Records a second of a quiet service, one at a time."""
BATCH: Final = 6
"""Of them come within a linger of 5 ms, the first included."""
BUSY: Final = 20_000
"""Records a second beside threads that compute, in packets of one millisecond."""
UNNAMED: Final = -1
"""For librdkafka: its partitioner chooses."""
CROWD: Final = 200
"""Consumers in one process."""


class Job(NamedTuple):
    """Who does what, where, and for how many seconds."""

    measure: str
    client: str
    bootstrap: str
    topic: str
    seconds: float
    partitions: int = 1
    access: Access = OPEN


T = TypeVar("T")
Figures: TypeAlias = dict[str, float]
Measure: TypeAlias = Callable[[Job], Figures]


class Case(NamedTuple):
    """What is measured, by which clients, over which listener, and how many partitions the topic has."""

    clients: Mapping[str, Measure]
    partitions: int = 1
    login: Login = PLAINTEXT


def spent(seconds: float, act: Callable[[], object], settle_s: float = SETTLE_S) -> Figures:
    """CPU in ms a second of this process while *act* is called again and again."""
    settled = time.monotonic() + min(settle_s, seconds)
    while time.monotonic() < settled:
        act()
    clock = Clock()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        act()
    read = clock.read()
    return {"cpu_ms": read["cpu"] / read["seconds"] * 1000}


async def spent_async(seconds: float, act: Callable[[], Any], settle_s: float = SETTLE_S) -> Figures:
    """As `spent`, on the loop."""
    settled = time.monotonic() + min(settle_s, seconds)
    while time.monotonic() < settled:
        await act()
    clock = Clock()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        await act()
    read = clock.read()
    return {"cpu_ms": read["cpu"] / read["seconds"] * 1000}


def rest() -> None:
    time.sleep(0.5)


# --- producers -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def our_producer(job: Job, **options: Any) -> Iterator[Any]:
    from pyclient import Producer

    with Producer(bootstrap_servers=job.bootstrap, **options, **ours(job.access)) as producer:
        producer.send(job.topic, b"first").result(WAIT_S)
        yield producer


@contextlib.contextmanager
def confluent_producer(job: Job, **options: Any) -> Iterator[Any]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": job.bootstrap, "enable.idempotence": True, **options, **confluents(job.access)})
    producer.produce(job.topic, b"first")
    producer.flush(WAIT_S)
    yield producer
    producer.flush(WAIT_S)


def our_idle_producer(job: Job) -> Figures:
    with our_producer(job):
        return spent(job.seconds, rest)


def confluent_idle_producer(job: Job) -> Figures:
    with confluent_producer(job):
        return spent(job.seconds, rest)


def aiokafka_idle_producer(job: Job) -> Figures:
    from aiokafka import AIOKafkaProducer

    async def idle() -> Figures:
        producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            await producer.send_and_wait(job.topic, b"first")
            return await spent_async(job.seconds, lambda: asyncio.sleep(0.5))
        finally:
            await producer.stop()

    return asyncio.run(idle())


def paced(per_s: int, at_once: int, send: Callable[[], object]) -> Callable[[], None]:
    """A function that sends *at_once* records and waits for the time of the next ones."""
    due = time.monotonic()

    def act() -> None:
        nonlocal due
        for _ in range(at_once):
            send()
        due += at_once / per_s
        time.sleep(max(0.0, due - time.monotonic()))

    return act


def in_turns(partitions: int, unnamed: T) -> Iterator[int | T]:
    """The partition of each record; *unnamed* if there is but one."""
    return itertools.cycle(range(partitions)) if partitions > 1 else itertools.repeat(unnamed)


def our_steady(job: Job) -> Figures:
    value, turns = bytes(SIZE), in_turns(job.partitions, None)
    with our_producer(job, linger_ms=5) as producer:
        return spent(job.seconds, paced(STEADY, 1, lambda: producer.send(job.topic, value, partition=next(turns))))


def confluent_steady(job: Job) -> Figures:
    """`poll(0)` behind each record, as its documentation asks for."""
    value, turns = bytes(SIZE), in_turns(job.partitions, UNNAMED)
    with confluent_producer(job, **{"linger.ms": 5}) as producer:
        def send() -> None:
            producer.produce(job.topic, value, partition=next(turns))
            producer.poll(0)

        return spent(job.seconds, paced(STEADY, 1, send))


def one_socket_steady(job: Job) -> Figures:
    """As many records as come within the linger in one request of the thread that makes them; no second thread."""
    connection, value, turns = OneSocket(job.bootstrap, job.access), bytes(SIZE), in_turns(job.partitions, 0)
    batches = Counter[int]()

    def send() -> None:
        batches[next(turns)] += 1
        if batches.total() == BATCH:
            connection.write(produce(job.topic, {partition: [value] * count for partition, count in batches.items()}))
            batches.clear()
            connection.read_within(0.0)

    return spent(job.seconds, paced(STEADY, 1, send))


# --- beside threads that compute -------------------------------------------------------------------------------------


@contextlib.contextmanager
def computing() -> Iterator[None]:
    """A thread that holds the GIL for as long as the interpreter lets it: 5 ms at a time."""
    ends = threading.Event()

    def compute() -> None:
        total = 0
        while not ends.is_set():
            for number in range(10_000):
                total += number

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def acknowledged(seconds: float, send: Callable[[Callable[[], None]], object], finish: Callable[[], object]) -> Figures:
    """p50 and p99 in ms from *send* until the function that it is given is called."""
    taken: list[float] = []

    def one() -> None:
        began = time.perf_counter()
        send(lambda: taken.append(time.perf_counter() - began))

    act, ends = paced(BUSY, BUSY // 1000, one), time.monotonic() + seconds
    with computing():
        while time.monotonic() < ends:
            act()
        sent = len(taken)
    finish()
    taken = sorted(taken[sent // 10:])
    return {"p50_ms": taken[len(taken) // 2] * 1000, "p99_ms": taken[len(taken) * 99 // 100] * 1000}


def our_busy(job: Job) -> Figures:
    value = bytes(SIZE)
    with our_producer(job) as producer:
        def send(done: Callable[[], None]) -> None:
            producer.send(job.topic, value, on_delivery=lambda delivery: done())

        return acknowledged(job.seconds, send, producer.flush)


def confluent_busy(job: Job) -> Figures:
    """A thread of its own calls the callbacks, as services with other work have it."""
    value, ends = bytes(SIZE), threading.Event()
    with confluent_producer(job) as producer:
        def poll() -> None:
            while not ends.is_set():
                producer.poll(0.1)

        thread = threading.Thread(target=poll)
        thread.start()

        def send(done: Callable[[], None]) -> None:
            producer.produce(job.topic, value, on_delivery=lambda error, message: done())

        try:
            return acknowledged(job.seconds, send, lambda: producer.flush(WAIT_S))
        finally:
            ends.set()
            thread.join()


# --- consumers -------------------------------------------------------------------------------------------------------


def our_idle_consumer(job: Job) -> Figures:
    from pyclient import Consumer

    with Consumer(bootstrap_servers=job.bootstrap, group_id=new_group(), topics=[job.topic], auto_offset_reset="latest") as consumer:
        return spent(job.seconds, lambda: consumer.poll(1.0), JOIN_S)


def confluent_idle_consumer(job: Job) -> Figures:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": new_group(), "auto.offset.reset": "latest"})
    consumer.subscribe([job.topic])
    try:
        return spent(job.seconds, lambda: consumer.poll(1.0), JOIN_S)
    finally:
        consumer.close()


def aiokafka_idle_consumer(job: Job) -> Figures:
    from aiokafka import AIOKafkaConsumer

    async def idle() -> Figures:
        consumer = AIOKafkaConsumer(job.topic, bootstrap_servers=job.bootstrap, group_id=new_group(), auto_offset_reset="latest")
        await consumer.start()
        try:
            return await spent_async(job.seconds, lambda: consumer.getmany(timeout_ms=1000), JOIN_S)
        finally:
            await consumer.stop()

    return asyncio.run(idle())


def one_socket_idle_consumer(job: Job) -> Figures:
    """Without a group, so without heartbeats."""
    connection = OneSocket(job.bootstrap)
    fetch = fetch_at_the_end(connection, job.topic)
    connection.write(fetch)
    return spent(job.seconds, lambda: poll(connection, fetch, 1.0))


async def crowd(job: Job, consumers: list[Any]) -> Figures:
    """CPU of all of them, idle, and how much memory each has added."""
    before = memory_mib()
    async with contextlib.AsyncExitStack() as opened:
        for consumer in consumers:
            await opened.enter_async_context(consumer)
        found = await spent_async(job.seconds, lambda: asyncio.sleep(0.5))
        return {**found, "mib_each": (memory_mib() - before) / CROWD}


def memory_mib() -> float:
    """What this process has in memory now; getrusage would return the most that it, or who has started it, has had."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def our_crowd(job: Job) -> Figures:
    from pyclient import AsyncConsumer, TopicPartition

    class Reading(AsyncConsumer[bytes, bytes]):
        async def __aenter__(self) -> Any:
            await super().__aenter__()
            self.assign([TopicPartition(job.topic, 0)])
            return self

    async def run() -> Figures:
        return await crowd(job, [Reading(bootstrap_servers=job.bootstrap, auto_offset_reset="latest") for _ in range(CROWD)])

    return asyncio.run(run())


def aiokafka_crowd(job: Job) -> Figures:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    class Reading:
        def __init__(self) -> None:
            self.consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap, auto_offset_reset="latest")

        async def __aenter__(self) -> None:
            await self.consumer.start()
            self.consumer.assign([TopicPartition(job.topic, 0)])

        async def __aexit__(self, *_: object) -> None:
            await self.consumer.stop()

    async def run() -> Figures:
        return await crowd(job, [Reading() for _ in range(CROWD)])

    return asyncio.run(run())


STEADY_CLIENTS: Final[Mapping[str, Measure]] = {"pyclient": our_steady, "confluent": confluent_steady, "one socket": one_socket_steady}
STEADY_CASES: Final = {
    "1,000 records/s, linger 5": Case(STEADY_CLIENTS),
    "1,000 records/s, linger 5, 12 partitions": Case(STEADY_CLIENTS, 12),
    "1,000 records/s, linger 5, TLS": Case(STEADY_CLIENTS, login=TLS),
    "1,000 records/s, linger 5, 12 partitions, TLS": Case(STEADY_CLIENTS, 12, TLS),
}
CASES: Final[Mapping[str, Case]] = {
    "an idle producer": Case({"pyclient": our_idle_producer, "confluent": confluent_idle_producer, "aiokafka": aiokafka_idle_producer}),
    "an idle consumer": Case({"pyclient": our_idle_consumer, "confluent": confluent_idle_consumer, "aiokafka": aiokafka_idle_consumer,
                              "one socket": one_socket_idle_consumer}),
    **STEADY_CASES,
    "20,000 records/s beside a thread that computes": Case({"pyclient": our_busy, "confluent": confluent_busy}),
    "200 idle consumers": Case({"pyclient": our_crowd, "aiokafka": aiokafka_crowd}),
}


def measured(job: Job) -> Figures:
    """The figures of one client in one case."""
    return CASES[job.measure].clients[job.client](job)


if __name__ == "__main__":
    serve(Job, dict.fromkeys(CASES, measured))
