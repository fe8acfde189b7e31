"""The measured clients with one record at a time, each in a process of its own.

``python -m benchmarks._latencies`` reads jobs and prints figures, each as a line of JSON. A client is a context that
yields a function, plain or async, which sends one record and returns when it is acknowledged (or polled). Linger is 0,
all producers are idempotent with acks=all.
"""
from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, NamedTuple, TypeAlias

from benchmarks import _consumers
from benchmarks._process import serve
from benchmarks._timeline import Counts, Timeline

WARM_UP: Final = 200
SIZE: Final = 100
WAIT_S: Final = 10.0


class Job(NamedTuple):
    """Who sends, where to, and how many records."""

    client: str
    bootstrap: str
    topic: str
    records: int
    measure: str = "latency"


One: TypeAlias = Callable[[bytes], Any]
Client: TypeAlias = AbstractContextManager[One] | AbstractAsyncContextManager[One]
IGNORE: Final = Timeline()


@contextlib.contextmanager
def our_send(job: Job, marks: Timeline = IGNORE) -> Iterator[One]:
    """`send(...).result()`."""
    from pyclient import Producer

    with Producer(bootstrap_servers=job.bootstrap, linger_ms=0) as producer:
        send, topic = producer.send, job.topic

        def marked(value: bytes) -> None:
            marks.begin()
            delivery = send(topic, value)
            marks.mark("send returns")
            delivery.result()
            marks.mark("result returns")

        yield (lambda value: send(topic, value).result()) if marks is IGNORE else marked


@contextlib.asynccontextmanager
async def our_async_send(job: Job, marks: Timeline = IGNORE) -> AsyncIterator[One]:
    """`await (await send(...))`."""
    from pyclient import AsyncProducer

    async with AsyncProducer(bootstrap_servers=job.bootstrap, linger_ms=0) as producer:
        send, topic = producer.send, job.topic

        async def plain(value: bytes) -> None:
            await (await send(topic, value))

        async def marked(value: bytes) -> None:
            marks.begin()
            delivery = await send(topic, value)
            marks.mark("send returns")
            await delivery
            marks.mark("result returns")

        yield plain if marks is IGNORE else marked


@contextlib.contextmanager
def confluent_callback(job: Job) -> Iterator[One]:
    """`produce` with a callback, then `poll` until it was called."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": job.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    produce, poll, topic = producer.produce, producer.poll, job.topic
    delivered: list[Any] = []

    def on_delivery(error: Any, _message: Any) -> None:
        delivered.append(error)

    def one(value: bytes) -> None:
        delivered.clear()
        produce(topic, value, on_delivery=on_delivery)
        while not delivered:
            poll(WAIT_S)
        if delivered[0] is not None:
            raise RuntimeError(f"confluent: {delivered[0]}")

    yield one
    producer.flush(WAIT_S)


@contextlib.contextmanager
def kafka_python_get(job: Job) -> Iterator[One]:
    """`send(...).get()`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=job.bootstrap, acks="all", enable_idempotence=True, linger_ms=0)
    try:
        yield lambda value: producer.send(job.topic, value).get(WAIT_S)
    finally:
        producer.close()


@contextlib.asynccontextmanager
async def aiokafka_send_and_wait(job: Job) -> AsyncIterator[One]:
    """`await send_and_wait(...)`."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap, enable_idempotence=True, linger_ms=0)
    await producer.start()
    try:
        yield lambda value: producer.send_and_wait(job.topic, value)
    finally:
        await producer.stop()


def to_poll(client: str) -> Callable[[Job], AbstractContextManager[One]]:
    """`send`, then `poll` until the record comes, in one thread."""
    trips = {"pyclient": _consumers.our_trips, "confluent": _consumers.confluent_trips}[client]

    @contextlib.contextmanager
    def trip(job: Job) -> Iterator[One]:
        mark = uuid.uuid4().hex.encode()
        numbers = iter(range(1 << 62))
        with trips(_consumers.Job(client, False, job.bootstrap, job.topic, 1, job.records, SIZE)) as send_to_poll:
            yield lambda _value: send_to_poll((mark + b" %d" % next(numbers)).ljust(SIZE))

    return trip


CLIENTS: Final[dict[str, Callable[..., Client]]] = {
    "confluent, callback and poll": confluent_callback,
    "pyclient send().result()": our_send,
    "aiokafka send_and_wait": aiokafka_send_and_wait,
    "pyclient await (await send())": our_async_send,
    "kafka-python .get()": kafka_python_get,
    "confluent send to poll": to_poll("confluent"),
    "pyclient send to poll": to_poll("pyclient"),
}


# --- measuring -------------------------------------------------------------------------------------------------------


class Stopwatch:
    """Times records one by one; *warmed* is called when those that do not count are over."""

    def __init__(self, records: int, warmed: Callable[[], None]) -> None:
        self._records = records
        self._warmed = warmed
        self._taken: list[float] = []
        self._cpu = 0.0

    def records(self) -> Iterator[bytes]:
        """The values to send. Each is timed until the next one is taken."""
        for number in range(self._records + WARM_UP):
            if number == WARM_UP:
                self._warmed()
                self._cpu = time.process_time()
            began = time.perf_counter()
            yield b"x" * SIZE
            self._taken.append((time.perf_counter() - began) * 1e6)
        self._cpu = time.process_time() - self._cpu

    def figures(self) -> dict[str, float]:
        """p50 and p99 in µs, and µs of CPU a record."""
        counted = sorted(self._taken[WARM_UP:])
        return {"p50": statistics.median(counted), "p99": counted[len(counted) * 99 // 100], "cpu": self._cpu / self._records * 1e6}


def timed(made: Client, records: int, warmed: Callable[[], None] = lambda: None) -> dict[str, float]:
    """With the client of that context; a plain function runs outside of any loop."""
    watch = Stopwatch(records, warmed)
    if isinstance(made, AbstractAsyncContextManager):
        asyncio.run(_in_a_loop(made, watch))
    else:
        with made as one:
            for value in watch.records():
                one(value)
    return watch.figures()


async def _in_a_loop(made: AbstractAsyncContextManager[One], watch: Stopwatch) -> None:
    async with made as one:
        for value in watch.records():
            await one(value)


def latency(job: Job) -> dict[str, float]:
    """One record at a time."""
    with _consumers.watched():
        return timed(CLIENTS[job.client](job), job.records)


def stages(job: Job) -> dict[str, float]:
    """The median µs of each stage of a record; ours only."""
    marks = Timeline()
    with _consumers.watched(), marks.watching():
        timed(CLIENTS[job.client](job, marks), job.records)
    return marks.stages_us(WARM_UP)


def counts(job: Job) -> dict[str, float]:
    """Python calls, and sleeps of loops and reactors, a record."""
    counted = Counts()
    with _consumers.watched(), counted.watching():
        timed(CLIENTS[job.client](job), job.records, counted.start)
    return {"calls": counted.calls / job.records, "turns": counted.turns / job.records}


if __name__ == "__main__":
    serve(Job, {"latency": latency, "stages": stages, "counts": counts})
