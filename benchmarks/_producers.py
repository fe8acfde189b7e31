"""The measured producers, each in a process of its own.

``python -m benchmarks._producers`` reads jobs and prints figures, each as a line of JSON. A client is a class whose
objects are ready to send. ``run`` returns when every record's outcome is known, and raises if one failed; ``close``
ends it. Loops are inside ``run``, so that only the client's own calls are measured and no wrapper.
"""
from __future__ import annotations

import contextlib
import itertools
import random
import resource
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from benchmarks._access import OPEN, Access, confluents, ours
from benchmarks._process import Clock, NotMeasuredError, latencies_us, serve, waiting
from benchmarks.codec import values as json_values

DISTINCT: Final = 5000
WARM_UP: Final = 2000
CHUNK: Final = 5000


class Job(NamedTuple):
    """What to send, where to, and with which settings."""

    client: str
    tuned: bool
    bootstrap: str
    topic: str
    partitions: int
    records: int
    size: int
    spread: str
    """``sticky``: no keys; ``keys``: a few thousand keys; ``random``: a key per record; ``turns``: round robin."""
    codec: Any
    measure: str = "throughput"
    access: Access = OPEN


class Load(NamedTuple):
    """The records of a job: as many values, keys (all None without) and partitions (all None unless in turns)."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None]
    partitions: Sequence[int | None]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def rows(self) -> Iterator[tuple[bytes, bytes | None, int | None]]:
        return zip(self.values, self.keys, self.partitions, strict=True)

    @property
    def plain(self) -> bool:
        """Values and nothing else: clients may call with two arguments."""
        return self.keys[0] is None and self.partitions[0] is None


def values_of(size: int) -> list[bytes]:
    """A few thousand different values of *size* bytes that look like data."""
    return [(text * (size // len(text) + 1))[:size] for text in json_values(DISTINCT)]


def load(job: Job, count: int) -> Load:
    """Values that look like data, as long as the job says."""
    texts = values_of(job.size)
    chance = random.Random(1)
    keys: Sequence[bytes | None] = [None] * count
    if job.spread == "keys":
        keys = _repeated([b"key-%d" % chance.randrange(10**9) for _ in range(DISTINCT)], count)
    elif job.spread == "random":
        keys = [chance.randbytes(8) for _ in range(count)]
    turns = range(job.partitions) if job.spread == "turns" else [None]
    return Load(_repeated(texts, count), keys, _repeated(list(turns), count))


def _repeated(items: list[Any], count: int) -> list[Any]:
    return list(itertools.islice(itertools.cycle(items), count))


# --- ours ------------------------------------------------------------------------------------------------------------


class PyClient:
    """`send`; `flush` raises for failures."""

    EXTRA: ClassVar[dict[str, Any]] = {}

    def __init__(self, job: Job) -> None:
        from pyclient import Producer

        self.topic = job.topic
        self.producer: Any = Producer(bootstrap_servers=job.bootstrap, compression_type=job.codec, **self.EXTRA, **ours(job.access))

    def run(self, load: Load) -> None:
        send, topic = self.producer.send, self.topic
        if load.plain:
            for value in load.values:
                send(topic, value)
        else:
            for value, key, partition in load.rows:
                send(topic, value, key, partition=partition)
        self.producer.flush()

    def close(self) -> None:
        self.producer.close()


class PyClientLooking(PyClient):
    """`send`; every Delivery is kept, and looked at."""

    def run(self, load: Load) -> None:
        send, topic = self.producer.send, self.topic
        sent = [send(topic, value, key, partition=partition) for value, key, partition in load.rows]
        self.producer.flush()
        for each in sent:
            each.result(0)


class PyClientMany(PyClient):
    """`send_many`, a few thousand values a call."""

    METHOD: ClassVar[str] = "send_many"

    def __init__(self, job: Job) -> None:
        if job.spread == "turns":
            raise NotMeasuredError(f"{self.METHOD} has one partition for all its records")
        super().__init__(job)

    def run(self, load: Load) -> None:
        for first in range(0, len(load), CHUNK):
            keys = load.keys[first:first + CHUNK]
            self.producer.send_many(self.topic, load.values[first:first + CHUNK], keys=None if keys[0] is None else keys)
        self.producer.flush()


class PyClientArrow(PyClientMany):
    """`send_arrow`, record batches of a few thousand rows; making them is not measured."""

    METHOD = "send_arrow"

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.made: list[Any] = []

    def prepare(self, load: Load) -> None:
        import pyarrow

        def batch(first: int) -> Any:
            part = slice(first, first + CHUNK)
            columns = {"value": pyarrow.array(load.values[part], pyarrow.binary())}
            if load.keys[0] is not None:
                columns["key"] = pyarrow.array(load.keys[part], pyarrow.binary())
            return pyarrow.record_batch(columns)

        self.made = [batch(first) for first in range(0, len(load), CHUNK)]

    def run(self, load: Load) -> None:
        for batch in self.made:
            self.producer.send_arrow(self.topic, batch)
        self.producer.flush()


class PyClientAsync(PyClient):
    """`await send`."""

    def __init__(self, job: Job) -> None:
        from pyclient import AsyncProducer

        self.topic = job.topic
        self.producer = AsyncProducer(bootstrap_servers=job.bootstrap, compression_type=job.codec, **ours(job.access))

    async def open(self) -> None:
        await self.producer.__aenter__()

    async def run(self, load: Load) -> None:  # type: ignore[override]  # each client is either sync or async
        send, topic = self.producer.send, self.topic
        if load.plain:
            for value in load.values:
                await send(topic, value)
        else:
            for value, key, partition in load.rows:
                await send(topic, value, key, partition=partition)
        await self.producer.flush()

    async def close(self) -> None:  # type: ignore[override]
        await self.producer.close()


# --- confluent-kafka -------------------------------------------------------------------------------------------------


def confluent_options(job: Job) -> dict[str, Any]:
    """As ours by default: idempotent, acks=all; tuned: the batches and the queue as large as they help."""
    tuned = {"linger.ms": 20, "batch.size": 1_000_000, "batch.num.messages": 100_000, "queue.buffering.max.messages": 1_000_000}
    return {"bootstrap.servers": job.bootstrap, "enable.idempotence": True, "compression.type": job.codec, **(tuned if job.tuned else {}), **confluents(job.access)}


class Confluent:
    """`produce` with a callback for every record."""

    def __init__(self, job: Job) -> None:
        from confluent_kafka import Producer

        self.topic = job.topic
        self.producer: Any = Producer(confluent_options(job))
        self.delivered, self.failures = 0, list[Any]()

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failures.append(error)

    def run(self, load: Load) -> None:
        self.delivered = 0
        self._produce(load, self._on_delivery)
        if self.failures or self.delivered != len(load):
            raise RuntimeError(f"{self.delivered} of {len(load)} delivered: {self.failures[:3]}")

    def _produce(self, load: Load, on_delivery: Callable[[Any, Any], None] | None) -> None:
        produce, poll, topic = self.producer.produce, self.producer.poll, self.topic
        for number, (value, key, partition) in enumerate(load.rows):
            while True:
                try:
                    if partition is None:
                        produce(topic, value, key, on_delivery=on_delivery)
                    else:
                        produce(topic, value, key, partition, on_delivery)
                    break
                except BufferError:  # its queue is full
                    poll(0.01)
            if not number % 500:
                poll(0)
        if left := self.producer.flush(120):
            raise RuntimeError(f"{left} records were not delivered")

    def close(self) -> None:
        self.producer.flush(10)


class ConfluentUntold(Confluent):
    """`produce` without callbacks: only the end offsets show that all records arrived."""

    def run(self, load: Load) -> None:
        self._produce(load, None)


class ConfluentAsync:
    """AIOProducer; every future is awaited."""

    def __init__(self, job: Job) -> None:
        self.job, self.topic = job, job.topic
        self.producer: Any = None

    async def open(self) -> None:
        from confluent_kafka.aio import AIOProducer

        self.producer = AIOProducer(confluent_options(self.job), batch_size=10_000 if self.job.tuned else 1000)

    async def run(self, load: Load) -> None:
        produce, topic = self.producer.produce, self.topic
        sent = []
        for value, key, partition in load.rows:
            extra = {} if partition is None else {"partition": partition}
            sent.append(await produce(topic, value, key, **extra))
        await self.producer.flush()
        for each in sent:
            await each

    async def close(self) -> None:
        await self.producer.close()


# --- kafka-python, aiokafka ------------------------------------------------------------------------------------------


class KafkaPython:
    """`send`; every future is looked at."""

    def __init__(self, job: Job) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from kafka import KafkaProducer

        self.topic = job.topic
        tuned = {"linger_ms": 20, "batch_size": 262_144} if job.tuned else {}
        try:
            self.producer = KafkaProducer(bootstrap_servers=job.bootstrap, acks="all", enable_idempotence=True,
                                          compression_type=None if job.codec == "none" else job.codec, **tuned)
        except (AssertionError, RuntimeError) as lacking:
            raise NotMeasuredError(f"kafka-python without a library for {job.codec}: {lacking}") from lacking

    def run(self, load: Load) -> None:
        send, topic = self.producer.send, self.topic
        sent = [send(topic, value, key=key, partition=partition) for value, key, partition in load.rows]
        self.producer.flush()
        for each in sent:
            each.get(0)

    def close(self) -> None:
        self.producer.close()


class AioKafka:
    """`await send`; every future is awaited."""

    def __init__(self, job: Job) -> None:
        self.job, self.topic = job, job.topic
        self.producer: Any = None

    async def open(self) -> None:
        from aiokafka import AIOKafkaProducer

        tuned = {"linger_ms": 20, "max_batch_size": 262_144} if self.job.tuned else {}
        codec = None if self.job.codec == "none" else self.job.codec
        try:
            self.producer = AIOKafkaProducer(bootstrap_servers=self.job.bootstrap, enable_idempotence=True, compression_type=codec, **tuned)
        except RuntimeError as lacking:
            raise NotMeasuredError(f"aiokafka without a library for {codec}: {lacking}") from lacking
        await self.producer.start()

    async def run(self, load: Load) -> None:
        send, topic = self.producer.send, self.topic
        sent = [await send(topic, value, key, partition) for value, key, partition in load.rows]
        await self.producer.flush()
        for each in sent:
            await each

    async def close(self) -> None:
        await self.producer.stop()


CLIENTS: Final[dict[str, Callable[[Job], Any]]] = {
    "pyclient send": PyClient,
    "pyclient send, each looked at": PyClientLooking,
    "pyclient send_many": PyClientMany,
    "pyclient send_arrow": PyClientArrow,
    "pyclient async": PyClientAsync,
    "confluent + callback": Confluent,
    "confluent": ConfluentUntold,
    "confluent AIO": ConfluentAsync,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}


# --- measuring -------------------------------------------------------------------------------------------------------


def throughput(job: Job) -> dict[str, float]:
    """CPU and time from the first call until the last outcome is known; connections and metadata were there before."""
    with waiting() as wait:
        client = CLIENTS[job.client](job)
        warm, records = load(job, max(WARM_UP, job.partitions)), load(job, job.records)
        prepare = getattr(client, "prepare", lambda _load: None)
        wait(getattr(client, "open", lambda: None)())
        try:
            prepare(warm)
            wait(client.run(warm))
            prepare(records)
            clock = Clock()
            wait(client.run(records))
            used = clock.read()
        finally:
            wait(client.close())
    return {**used, "records": len(records), "stored": len(records) + len(warm)}


def latency(job: Job) -> dict[str, float]:
    """µs from `send` to the acknowledgement of one record at a time, linger 0, the caller waiting."""
    one = {"pyclient send": _our_one, "confluent + callback": _confluent_one}[job.client](job)
    value = load(job, 1).values[0]
    return latencies_us(lambda _number: one(value), job.records)


def _our_one(job: Job) -> Callable[[bytes], object]:
    from pyclient import Producer

    producer = Producer(bootstrap_servers=job.bootstrap, linger_ms=0)
    return lambda value: producer.send(job.topic, value).result()


def _confluent_one(job: Job) -> Callable[[bytes], object]:
    from confluent_kafka import Producer

    producer = Producer({**confluent_options(job), "linger.ms": 0})

    def one(value: bytes) -> None:
        producer.produce(job.topic, value, on_delivery=lambda *_: None)
        producer.flush()

    return one


def memory(job: Job) -> dict[str, float]:
    """How much the process grows, at its peak, while it sends to a frozen broker until send fails.

    Deliveries are dropped.
    """
    from pyclient import Producer
    from pyclient.errors import BufferExhaustedError

    producer: Any = Producer(bootstrap_servers=job.bootstrap, compression_type=job.codec, max_block_ms=1000, delivery_timeout_ms=600_000)
    records = load(job, DISTINCT)
    producer.send(job.topic, b"warm").result()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _status("VmRSS")
    print("ready", flush=True)
    sys.stdin.readline()  # the broker is frozen now
    sent = 0
    with contextlib.suppress(BufferExhaustedError):
        for value in itertools.cycle(records.values):
            producer.send(job.topic, value)
            sent += 1
    with contextlib.suppress(Exception):
        producer.close(0)  # the rest fails: that is the point
    return {"grown": _status("VmHWM") - before, "buffer": 33_554_432, "sent": sent, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def _status(name: str) -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


if __name__ == "__main__":
    serve(Job, {"throughput": throughput, "latency": latency, "memory": memory})
