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
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from benchmarks import _consumers
from benchmarks._access import OPEN, Access, aiokafkas, confluents, ours
from benchmarks._one_socket import OneSocket, check_stored, produce
from benchmarks._process import serve
from benchmarks._timeline import Counts, Timeline

if TYPE_CHECKING:
    from pyclient import Delivery
    from pyclient.records import Headers, RecordMetadata

WARM_UP: Final = 200
"""So many records do not count at first; fewer where fewer are measured."""
SIZE: Final = 100
WAIT_S: Final = 10.0
Beside: TypeAlias = Literal["nothing", "interceptor", "callback"]
"""What else is called for each record. confluent-kafka has no interceptors, and waits for its callback in any case."""


class Job(NamedTuple):
    """Who sends, where to, how, and how many records."""

    client: str
    bootstrap: str
    topic: str
    records: int
    access: Access = OPEN
    codec: Any = "none"
    beside: Beside = "nothing"
    measure: str = "latency"


One: TypeAlias = Callable[[bytes], Any]
Client: TypeAlias = AbstractContextManager[One] | AbstractAsyncContextManager[One]
IGNORE: Final = Timeline()


def our_options(job: Job) -> dict[str, Any]:
    return {"bootstrap_servers": job.bootstrap, "linger_ms": 0, "compression_type": job.codec, **ours(job.access)}


class Outcomes:
    """Counts the stored records: an interceptor that changes nothing, or a callback."""

    def __init__(self) -> None:
        self.stored = 0

    def on_send(self, topic: str, key: object, value: object, headers: Headers) -> tuple[object, object, Headers]:
        return key, value, headers

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.stored += error is None

    def on_delivery(self, delivery: Delivery) -> None:
        self.stored += delivery.exception(0) is None

    def check(self, job: Job) -> None:
        """Raises unless it was called for every record."""
        sent = job.records + warm_up(job.records)
        if job.beside != "nothing" and self.stored != sent:
            raise RuntimeError(f"{job.client}: the {job.beside} has seen {self.stored} of {sent} records")


@contextlib.contextmanager
def our_sends(job: Job) -> Iterator[Callable[..., Any]]:
    """A producer's `send`, with what is beside it."""
    from pyclient import Producer

    outcomes = Outcomes()
    with Producer(**our_options(job), interceptors=[outcomes] if job.beside == "interceptor" else []) as producer:
        yield partial(producer.send, on_delivery=outcomes.on_delivery) if job.beside == "callback" else producer.send
    outcomes.check(job)


@contextlib.contextmanager
def our_send(job: Job, marks: Timeline = IGNORE) -> Iterator[One]:
    """`send(...).result()`. The thread that calls a callback may still run when the next record is sent."""
    with our_sends(job) as send:
        topic = job.topic

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

    async with AsyncProducer(**our_options(job)) as producer:
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

    producer = Producer({
        "bootstrap.servers": job.bootstrap, "enable.idempotence": True, "linger.ms": 0, "compression.type": job.codec, **confluents(job.access)})
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

    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap, enable_idempotence=True, linger_ms=0, **aiokafkas(job.access))
    await producer.start()
    try:
        yield lambda value: producer.send_and_wait(job.topic, value)
    finally:
        await producer.stop()


@contextlib.contextmanager
def one_socket(job: Job) -> Iterator[One]:
    """A request that was encoded once, written to a blocking socket, and its answer: no client."""
    request = produce(job.topic, {0: [bytes(SIZE)]})
    with contextlib.closing(OneSocket(job.bootstrap, job.access)) as connection:
        check_stored(connection.exchange(request))
        yield lambda _value: connection.exchange(request)


def to_poll(client: str) -> Callable[[Job], AbstractContextManager[One]]:
    """`send`, then `poll` until the record comes, in one thread."""
    trips = {"pyclient": _consumers.our_trips, "confluent": _consumers.confluent_trips}[client]

    @contextlib.contextmanager
    def trip(job: Job) -> Iterator[One]:
        mark = uuid.uuid4().hex.encode()
        numbers = iter(range(1 << 62))
        with trips(_consumers.Job(client, False, job.bootstrap, job.topic, 1, job.records, SIZE, access=job.access)) as send_to_poll:
            yield lambda _value: send_to_poll((mark + b" %d" % next(numbers)).ljust(SIZE))

    return trip


CONFLUENT: Final = "confluent, callback and poll"
SEND: Final = "pyclient send().result()"
AIOKAFKA: Final = "aiokafka send_and_wait"
AWAIT: Final = "pyclient await (await send())"
CONFLUENT_POLL: Final = "confluent send to poll"
POLL: Final = "pyclient send to poll"
ONE_SOCKET: Final = "one socket"
CLIENTS: Final[dict[str, Callable[..., Client]]] = {
    CONFLUENT: confluent_callback,
    SEND: our_send,
    AIOKAFKA: aiokafka_send_and_wait,
    AWAIT: our_async_send,
    "kafka-python .get()": kafka_python_get,
    CONFLUENT_POLL: to_poll("confluent"),
    POLL: to_poll("pyclient"),
    ONE_SOCKET: one_socket,
}


# --- measuring -------------------------------------------------------------------------------------------------------


def warm_up(records: int) -> int:
    """How many are sent before *records* that count."""
    return min(WARM_UP, records)


class Stopwatch:
    """Times records one by one; *warmed* is called when those that do not count are over."""

    def __init__(self, records: int, warmed: Callable[[], None]) -> None:
        self._records = records
        self._warm_up = warm_up(records)
        self._warmed = warmed
        self._taken: list[float] = []
        self._cpu = 0.0

    def records(self) -> Iterator[bytes]:
        """The values to send. Each is timed until the next one is taken."""
        for number in range(self._records + self._warm_up):
            if number == self._warm_up:
                self._warmed()
                self._cpu = time.process_time()
            began = time.perf_counter()
            yield b"x" * SIZE
            self._taken.append((time.perf_counter() - began) * 1e6)
        self._cpu = time.process_time() - self._cpu

    def figures(self) -> dict[str, float]:
        """p50 and p99 in µs, and µs of CPU a record."""
        counted = sorted(self._taken[self._warm_up:])
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
    return marks.stages_us(warm_up(job.records))


def counts(job: Job) -> dict[str, float]:
    """Python calls, and sleeps of loops and reactors, a record."""
    counted = Counts()
    with _consumers.watched(), counted.watching():
        timed(CLIENTS[job.client](job), job.records, counted.start)
    return {"calls": counted.calls / job.records, "turns": counted.turns / job.records}


if __name__ == "__main__":
    serve(Job, {"latency": latency, "stages": stages, "counts": counts})
