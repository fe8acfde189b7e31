"""The measured consumers, each in a process of its own.

``python -m benchmarks._consumers`` reads jobs and prints figures, each as a line of JSON. A client is a class without
partitions. ``run`` gets the partitions and returns the number of records whose values it has read; ``position`` is then
the sum of its positions; ``close`` ends it. Loops are inside ``run``, so that only the client's own calls are measured
and no wrapper. None commits.
"""
from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import itertools
import resource
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from benchmarks._access import OPEN, Access, confluents, ours
from benchmarks._process import Clock, NotMeasuredError, latencies_us, serve, waiting

LIMIT_S: Final = 180
"""A run that lasts longer has lost records: the process ends and shows where it stood."""
WAIT_S: Final = 10.0
ROWS: Final = 100_000
"""Most records of a table."""


class Job(NamedTuple):
    """What to read, where from, and with which settings."""

    client: str
    tuned: bool
    bootstrap: str
    topic: str
    partitions: int
    records: int
    """All that the topic holds."""
    size: int
    measure: str = "throughput"
    access: Access = OPEN

    @property
    def subscribes(self) -> bool:
        """Whether partitions come from a group, a new one, instead of `assign`."""
        return self.measure == "first"


def new_group() -> str:
    return f"bench-{uuid.uuid4().hex[:8]}"


class Client:
    """What the clients have in common."""

    value: object = b""
    """The last one."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.consumer: Any = None

    def close(self) -> Any:
        return self.consumer.close()


# --- ours ------------------------------------------------------------------------------------------------------------


def our_options(job: Job) -> dict[str, Any]:
    group = {"topics": [job.topic], "group_id": new_group(), "enable_auto_commit": False} if job.subscribes else {}
    return {"bootstrap_servers": job.bootstrap, "auto_offset_reset": "earliest", **group, **ours(job.access)}


def our_partitions(job: Job) -> list[Any]:
    from pyclient import TopicPartition

    return [TopicPartition(job.topic, number) for number in range(job.partitions)]


def made_by_us(kind: Callable[..., Any], job: Job) -> Any:
    from pyclient.errors import UnsupportedFeatureError

    try:
        return kind(**our_options(job))
    except UnsupportedFeatureError as lacking:
        raise NotMeasuredError(f"not measured, it cannot do this yet: {lacking}") from lacking


class PyClient(Client):
    """`for record in consumer`."""

    def __init__(self, job: Job) -> None:
        from pyclient import Consumer

        super().__init__(job)
        self.partitions = our_partitions(job)
        self.consumer = made_by_us(Consumer, job)

    def begin(self) -> None:
        if not self.job.subscribes:
            self.consumer.assign(self.partitions)

    def run(self, count: int) -> int:
        self.begin()
        value: object = None
        for record in itertools.islice(self.consumer, count):
            value = record.value
        self.value = value
        return count

    def position(self) -> int:
        assert not self.consumer.poll(0), "there is more than was counted"
        return sum(self.consumer.position(tp) for tp in self.partitions)


class PyClientPoll(PyClient):
    """`poll`, with its default of records at most, and a loop over them."""

    EXTRA: ClassVar[dict[str, int]] = {}

    def run(self, count: int) -> int:
        self.begin()
        poll, extra, seen, value = self.consumer.poll, self.EXTRA, 0, self.value
        while seen < count:
            records = poll(WAIT_S, **extra)
            for record in records:
                value = record.value
            seen += len(records)
        self.value = value
        return seen


class PyClientPollMore(PyClientPoll):
    """The same, ten thousand records a poll at most."""

    EXTRA: ClassVar[dict[str, int]] = {"max_records": 10_000}


class PyClientArrow(PyClient):
    """`poll` and `to_arrow`, all columns."""

    def run(self, count: int) -> int:
        self.begin()
        poll, seen, table = self.consumer.poll, 0, None
        while seen < count:
            table = poll(WAIT_S, ROWS).to_arrow()
            seen += table.num_rows
        self.value = last_of(table)
        return seen


def last_of(table: Any) -> object:
    assert len(table.column_names) == 8, table.column_names
    value: object = table["value"][-1].as_py()
    return value


class PyClientAsync(PyClient):
    """`async for record in consumer`."""

    def __init__(self, job: Job) -> None:
        from pyclient import AsyncConsumer

        Client.__init__(self, job)
        self.partitions = our_partitions(job)
        self.consumer = made_by_us(AsyncConsumer, job)

    async def open(self) -> None:
        await self.consumer.__aenter__()

    async def begin(self) -> None:  # type: ignore[override]  # each client is either sync or async
        if not self.job.subscribes:
            self.consumer.assign(self.partitions)

    async def run(self, count: int) -> int:  # type: ignore[override]
        await self.begin()
        left, value = count, self.value
        async for record in self.consumer:
            value = record.value
            left -= 1
            if not left:
                break
        self.value = value
        return count

    async def position(self) -> int:  # type: ignore[override]
        await asyncio.sleep(0)  # a loop that was left ends in a task of its own
        assert not await self.consumer.poll(0), "there is more than was counted"
        return sum([await self.consumer.position(tp) for tp in self.partitions])


class PyClientAsyncPoll(PyClientAsync):
    """`await poll`, ten thousand records at most, and a loop over them."""

    async def run(self, count: int) -> int:  # type: ignore[override]
        await self.begin()
        poll, seen, value = self.consumer.poll, 0, self.value
        while seen < count:
            records = await poll(WAIT_S, 10_000)
            for record in records:
                value = record.value
            seen += len(records)
        self.value = value
        return seen


class PyClientAsyncArrow(PyClientAsync):
    """`await poll` and `to_arrow`, all columns."""

    async def run(self, count: int) -> int:  # type: ignore[override]
        await self.begin()
        poll, seen, table = self.consumer.poll, 0, None
        while seen < count:
            table = (await poll(WAIT_S, ROWS)).to_arrow()
            seen += table.num_rows
        self.value = last_of(table)
        return seen


# --- confluent-kafka -------------------------------------------------------------------------------------------------


def confluent_options(job: Job) -> dict[str, Any]:
    """Tuned: a full queue is checked again after 10 ms instead of a second, and small fetches stay in the caches."""
    tuned = {"fetch.queue.backoff.ms": 10, "fetch.message.max.bytes": 262_144}
    return {"bootstrap.servers": job.bootstrap, "group.id": new_group(), "enable.auto.commit": False, "auto.offset.reset": "earliest",
            **(tuned if job.tuned else {}), **confluents(job.access)}


def confluent_partitions(job: Job) -> list[Any]:
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    return [TopicPartition(job.topic, number, OFFSET_BEGINNING) for number in range(job.partitions)]


def confluent_sum(positions: list[Any]) -> int:
    return sum(max(each.offset, 0) for each in positions)  # below 0: nothing was read of it


class Confluent(Client):
    """`poll`, a message a call."""

    def __init__(self, job: Job) -> None:
        from confluent_kafka import Consumer

        super().__init__(job)
        self.partitions = confluent_partitions(job)
        self.consumer = Consumer(confluent_options(job))
        if not job.subscribes:
            self.consumer.list_topics(job.topic, WAIT_S)  # without metadata it would look for leaders half a second later

    def begin(self) -> None:
        if self.job.subscribes:
            self.consumer.subscribe([self.job.topic])
        else:
            self.consumer.assign(self.partitions)

    def run(self, count: int) -> int:
        self.begin()
        poll, value = self.consumer.poll, self.value
        for _ in range(count):
            value = poll(WAIT_S).value()
        self.value = value
        return count

    def position(self) -> int:
        return confluent_sum(self.consumer.position(self.partitions))


class ConfluentConsume(Confluent):
    """`consume(500)`."""

    def run(self, count: int) -> int:
        self.begin()
        consume, seen, value = self.consumer.consume, 0, self.value
        while seen < count:
            messages = consume(min(500, count - seen), WAIT_S)  # it waits for all that it is asked for
            for message in messages:
                value = message.value()
            seen += len(messages)
        self.value = value
        return seen


class ConfluentAsync(Client):
    """AIOConsumer, `await consume(500)`."""

    async def open(self) -> None:
        from confluent_kafka.aio import AIOConsumer

        self.partitions = confluent_partitions(self.job)
        self.consumer = AIOConsumer(confluent_options(self.job))
        await self.consumer.list_topics(self.job.topic, timeout=WAIT_S)  # as above

    async def run(self, count: int) -> int:
        self.consumer.assign(self.partitions)
        consume, seen, value = self.consumer.consume, 0, self.value
        while seen < count:
            messages = await consume(min(500, count - seen), WAIT_S)
            for message in messages:
                value = message.value()
            seen += len(messages)
        self.value = value
        return seen

    async def position(self) -> int:
        return confluent_sum(await self.consumer.position(self.partitions))


# --- kafka-python, aiokafka ------------------------------------------------------------------------------------------


def python_options(job: Job) -> dict[str, Any]:
    """Of kafka-python and aiokafka, which share these names."""
    group = {"group_id": new_group()} if job.subscribes else {}
    tuned = {"max_partition_fetch_bytes": 4_194_304, "max_poll_records": 10_000} if job.tuned else {}
    return {"bootstrap_servers": job.bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False, **group, **tuned}


class KafkaPython(Client):
    """`for message in consumer`."""

    def __init__(self, job: Job) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from kafka import KafkaConsumer, TopicPartition

        super().__init__(job)
        self.partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]
        self.consumer = KafkaConsumer(**python_options(job))

    def run(self, count: int) -> int:
        from kafka.errors import UnsupportedCodecError

        if self.job.subscribes:
            self.consumer.subscribe([self.job.topic])
        else:
            self.consumer.assign(self.partitions)
        try:
            return self.read(count)
        except (UnsupportedCodecError, AssertionError) as lacking:
            raise NotMeasuredError(f"kafka-python without a library for the codec: {lacking}") from lacking

    def read(self, count: int) -> int:
        value: object = None
        for message in itertools.islice(self.consumer, count):
            value = message.value
        self.value = value
        return count

    def position(self) -> int:
        return sum(self.consumer.position(tp) or 0 for tp in self.partitions)


class KafkaPythonPoll(KafkaPython):
    """`poll` and a loop over what each partition gave."""

    def read(self, count: int) -> int:
        poll, seen, value = self.consumer.poll, 0, self.value
        while seen < count:
            for messages in poll(WAIT_S * 1000).values():
                for message in messages:
                    value = message.value
                seen += len(messages)
        self.value = value
        return seen


class AioKafka(Client):
    """`async for message in consumer`."""

    async def open(self) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        self.partitions = [TopicPartition(self.job.topic, number) for number in range(self.job.partitions)]
        self.consumer = AIOKafkaConsumer(**python_options(self.job))
        await self.consumer.start()

    def begin(self) -> None:
        if self.job.subscribes:
            self.consumer.subscribe([self.job.topic])
        else:
            self.consumer.assign(self.partitions)

    async def run(self, count: int) -> int:
        self.begin()
        left, value = count, self.value
        async for message in self.consumer:
            value = message.value
            left -= 1
            if not left:
                break
        self.value = value
        return count

    async def position(self) -> int:
        return sum([await self.consumer.position(tp) for tp in self.partitions])

    async def close(self) -> None:
        await self.consumer.stop()


class AioKafkaMany(AioKafka):
    """`getmany` and a loop over what each partition gave."""

    async def run(self, count: int) -> int:
        self.begin()
        getmany, seen, value = self.consumer.getmany, 0, self.value
        while seen < count:
            for messages in (await getmany(timeout_ms=WAIT_S * 1000)).values():
                for message in messages:
                    value = message.value
                seen += len(messages)
        self.value = value
        return seen


CLIENTS: Final[dict[str, Callable[[Job], Any]]] = {
    "pyclient for": PyClient,
    "pyclient poll": PyClientPoll,
    "pyclient poll(10,000)": PyClientPollMore,
    "pyclient to_arrow": PyClientArrow,
    "pyclient async for": PyClientAsync,
    "pyclient async poll(10,000)": PyClientAsyncPoll,
    "pyclient async to_arrow": PyClientAsyncArrow,
    "confluent poll": Confluent,
    "confluent consume(500)": ConfluentConsume,
    "confluent AIO consume(500)": ConfluentAsync,
    "kafka-python for": KafkaPython,
    "kafka-python poll": KafkaPythonPoll,
    "aiokafka for": AioKafka,
    "aiokafka getmany": AioKafkaMany,
}
JAVA: Final = "Java"


# --- Java's own measure ----------------------------------------------------------------------------------------------

SHELL_FLAGS: Final = ("-server", "-Xmx512M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""As kafka-consumer-perf-test.sh gives them."""


def java(job: Job) -> dict[str, float]:
    """ConsumerPerformance, less what the same program takes for one record; time is its own, from the assignment on."""
    idle, _ = java_run(job, 1)
    cpu, figures = java_run(job, job.records)
    megabytes = job.records * job.size / 2**20
    if int(figures["data.consumed.in.nMsg"]) != job.records or abs(float(figures["data.consumed.in.MB"]) - megabytes) > 0.001:
        raise RuntimeError(f"Java's client read {figures}, and the topic holds {job.records} records of {megabytes} MB")
    return {"seconds": int(figures["fetch.time.ms"]) / 1000, "cpu": cpu - idle, "records": job.records}


def java_run(job: Job, records: int) -> tuple[float, dict[str, str]]:
    """The seconds of CPU that the whole process took, and what it says of itself."""
    from pyclient.testing.jvm import prepare_jvm

    jvm = prepare_jvm()
    before = _children_cpu()
    with tempfile.TemporaryDirectory(prefix="bench-java-") as folder:
        logging = Path(folder, "log4j2.properties")
        logging.write_text("rootLogger.level=OFF\n")
        done = subprocess.run(
            [str(jvm.java.path), *SHELL_FLAGS, f"-Dlog4j2.configurationFile={logging}", "org.apache.kafka.tools.ConsumerPerformance",
             "--bootstrap-server", job.bootstrap, "--topic", job.topic, "--num-records", str(records), "--timeout", str(LIMIT_S * 1000), *_java_tuning(job, folder)],
            env={name: value for name, value in jvm.environment().items() if name != "_JAVA_OPTIONS"},  # they are the broker's
            capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode or len(lines := [line for line in done.stdout.splitlines() if "," in line]) != 2:
        raise RuntimeError(f"ConsumerPerformance ended with {done.returncode}: {done.stdout}{done.stderr}")
    names, values = ([each.strip() for each in line.split(",")] for line in lines)
    return _children_cpu() - before, dict(zip(names, values, strict=True))


def _java_tuning(job: Job, folder: str) -> list[str]:
    if not job.tuned:
        return []
    settings = Path(folder, "consumer.properties")
    settings.write_text("max.partition.fetch.bytes=4194304\nmax.poll.records=10000\n")
    return ["--command-config", str(settings), "--fetch-size", "4194304"]


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# --- measuring -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """What lasts longer than LIMIT_S ends the process, with a traceback of every thread."""
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def throughput(job: Job) -> dict[str, float]:
    """CPU and time from the assignment until the last value was seen, of a client that has been made before."""
    if job.client == JAVA:
        return java(job)
    with waiting() as wait:
        client = CLIENTS[job.client](job)
        wait(getattr(client, "open", lambda: None)())
        try:
            with watched():
                clock = Clock()
                seen = wait(client.run(job.records))
                used = clock.read()
            check(job, seen, wait(client.position()), client.value)
        finally:
            wait(client.close())
    return {**used, "records": seen}


def check(job: Job, seen: int, position: int, value: object) -> None:
    """All came, once each: as many as there are, and the positions of all partitions are behind the last one."""
    if seen != job.records or position != job.records:
        raise RuntimeError(f"{job.client}: {job.records} records are there, {seen} were seen, positions add up to {position}")
    if not isinstance(value, bytes) or len(value) != job.size:
        raise RuntimeError(f"{job.client}: the last value is {value!r}, not {job.size} bytes")


def first(job: Job) -> dict[str, float]:
    """Milliseconds from making a client, with a new group, to its first record."""
    with waiting() as wait, watched():
        clock = Clock()
        client = CLIENTS[job.client](job)
        wait(getattr(client, "open", lambda: None)())
        try:
            wait(client.run(1))
            took = clock.read()["seconds"]
        finally:
            wait(client.close())
    return {"ms": took * 1000}


def latency(job: Job) -> dict[str, float]:
    """µs from `send` to the poll that returns the record.

    One record at a time, linger 0, producer and consumer of one client in one thread.
    """
    trips = {"pyclient": our_trips, "confluent": confluent_trips}[job.client]
    mark = uuid.uuid4().hex
    with watched(), trips(job) as trip:
        return latencies_us(lambda number: trip(f"{mark} {number}".encode().ljust(job.size)), job.records)


@contextlib.contextmanager
def our_trips(job: Job) -> Iterator[Callable[[bytes], None]]:
    from pyclient import Consumer, Producer

    with Producer(bootstrap_servers=job.bootstrap, linger_ms=0, **ours(job.access)) as producer, Consumer(**our_options(job)) as consumer:
        consumer.assign(our_partitions(job))
        send, poll = producer.send, consumer.poll

        def trip(value: bytes) -> None:
            send(job.topic, value)
            while True:
                for record in poll(WAIT_S):
                    if record.value == value:
                        return

        yield trip


@contextlib.contextmanager
def confluent_trips(job: Job) -> Iterator[Callable[[bytes], None]]:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": job.bootstrap, "enable.idempotence": True, "linger.ms": 0, **confluents(job.access)})
    consumer = Consumer(confluent_options(job))
    consumer.assign(confluent_partitions(job))
    produce, poll = producer.produce, consumer.poll

    def trip(value: bytes) -> None:
        produce(job.topic, value)
        while (message := poll(WAIT_S)) is None or message.value() != value:
            pass

    try:
        yield trip
    finally:
        producer.flush(WAIT_S)
        consumer.close()


if __name__ == "__main__":
    serve(Job, {"throughput": throughput, "first": first, "latency": latency})
