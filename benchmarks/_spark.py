"""Every way of reading and writing Kafka in one Spark: what the child process of `spark` runs.

Records are counted and compared by the benchmark's own process. CPU is that of the driver's Python, of the JVM and of
Python's workers, from ``/proc``.
"""
from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from benchmarks._process import ROOT, serve

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
TICKS: Final = os.sysconf("SC_CLK_TCK")
OURS: Final = "pyclient"
JVM: Final = "JVM connector"
FLOOR: Final = "constant, no broker"
ONCE: Final = "exactly once"
TUNED: Final = {"kafka.batch.size": "262144", "kafka.linger.ms": "5", "kafka.buffer.memory": "33554432", "kafka.max.request.size": "1048576"}
"""Our producer's defaults for Java's."""


class Job(NamedTuple):
    """What a client does with a topic."""

    client: str
    measure: str
    bootstrap: str
    source: str = ""
    topic: str = ""
    records: int = 0
    per_batch: int = 0
    size: int = 100


# --- the session -----------------------------------------------------------------------------------------------------

FETCH: Final = """
import sys
from pyspark.sql import SparkSession
made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars.packages", sys.argv[1]).getOrCreate()
print(made.sparkContext.getConf().get("spark.jars"))
made.stop()
"""


def connector_jars(version: str) -> str:
    """The JVM connector and what it needs, for ``spark.jars``; downloaded by a session of its own.

    ``spark.jars.packages`` would put these JARs on the path of all Python processes, where each import looks for its
    module: 0.5 s of CPU for each start, which a query without Python does not pay.
    """
    kept = ROOT / "build" / f"connector-{version}.txt"
    if not kept.exists() or not all(Path(jar.removeprefix("file://")).exists() for jar in kept.read_text().split(",")):
        found = subprocess.run([sys.executable, "-c", FETCH, f"{CONNECTOR}:{version}"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1]
        kept.write_text(found)
    return kept.read_text()


@functools.cache
def session() -> Any:
    """This process's Spark, with the connector's jars. One for all clients: each would start workers of its own."""
    import pyspark
    from pyspark.sql import SparkSession

    from benchmarks._floor import Floor
    from pyclient.integration.spark import register
    from pyclient.integration.spark.java_home import prepare_environment

    prepare_environment(local=True)
    settings: dict[str, Any] = {
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "2g", "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC", "spark.local.dir": tempfile.mkdtemp(prefix="spark-"),
        "spark.jars": connector_jars(pyspark.__version__),
    }
    made = SparkSession.builder.master("local[2]").appName("benchmarks").config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    register(made)
    made.dataSource.register(Floor)
    return made


def source(client: str, job: Job, reader: Any) -> Any:
    """The topic as a table or a stream, by our source or the connector's; or as many rows that are no topic's."""
    if client == FLOOR:
        return reader.format("floor").options(records=str(job.records), perBatch=str(job.per_batch)).load()
    limit = {"maxOffsetsPerTrigger": str(job.per_batch)} if job.per_batch else {}
    options = {"kafka.bootstrap.servers": job.bootstrap, "subscribe": job.source, "startingOffsets": "earliest", **limit}
    return reader.format("pyclient" if client.startswith(OURS) else "kafka").options(**options).load()


# --- CPU -------------------------------------------------------------------------------------------------------------


class Process(NamedTuple):
    """A line of ``/proc/N/stat``."""

    parent: int
    name: str
    cpu: float


def processes() -> dict[int, Process]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                found[int(entry.name)] = parsed((entry / "stat").read_text())
    return found


def parsed(stat: str) -> Process:
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    return Process(int(fields[1]), name, sum(map(int, fields[11:13])) / TICKS)


def ancestors(pid: int, alive: Mapping[int, Process]) -> Iterator[int]:
    while pid in alive:
        pid = alive[pid].parent
        yield pid


class Cpu:
    """Seconds used in a block by this process, its JVM, and all processes below these, those that end in it included.

    Looked at twice a second: Spark kills its workers, and what they have used is known nowhere afterwards.
    """

    def __init__(self) -> None:
        self._first: dict[int, float] = {}
        self._last: dict[int, Process] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._first = {pid: process.cpu for pid, process in self._last.items()}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def used(self) -> dict[str, float]:
        found = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
        for pid, process in self._last.items():
            kind = "driver" if pid == os.getpid() else "jvm" if process.name == "java" else "workers"
            found[kind] += process.cpu - self._first.get(pid, 0.0)
        return found

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self._look()

    def _look(self) -> None:
        alive, own = processes(), os.getpid()
        self._last.update((pid, process) for pid, process in alive.items() if pid == own or own in ancestors(pid, alive))


def measured(work: Callable[[], int]) -> dict[str, Any]:
    """Time and CPU of *work*, which returns the number of records."""
    session().range(0, 2, 1, 2).mapInArrow(warm, "id bigint").collect()  # Spark ends workers that were idle for a minute
    with Cpu() as cpu:
        began = time.perf_counter()
        records = work()
        seconds = time.perf_counter() - began
    used = cpu.used()
    return {"records": records, "seconds": seconds, "cpu": sum(used.values()), **used}


def warm(batches: Iterator[Any]) -> Iterator[Any]:
    """A worker imports what it needs."""
    import confluent_kafka  # noqa: F401

    import pyclient.integration.spark.reading
    import pyclient.integration.spark.slots  # noqa: F401
    from benchmarks._floor import one_batch

    one_batch()
    yield from batches


# --- reading ---------------------------------------------------------------------------------------------------------


def read(job: Job) -> dict[str, Any]:
    """The topic as a table, every column read, none kept."""
    spark = session()

    def once() -> int:
        source(job.client, job, spark.read).write.format("noop").mode("overwrite").save()
        return job.records

    answer = measured(once)
    counted = source(job.client, job, spark.read).count()
    assert counted == job.records, f"{job.client} counted {counted} records of {job.records}"
    return answer


def stream(job: Job) -> dict[str, Any]:
    """The topic as a stream that ends when it has read everything."""
    frame = source(job.client, job, session().readStream)
    return measured(lambda: finished(frame.writeStream.format("noop"), job))


def finished(writer: Any, job: Job) -> int:
    with tempfile.TemporaryDirectory() as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    return sum(int(each["numInputRows"]) for each in query.recentProgress)


# --- writing ---------------------------------------------------------------------------------------------------------


def write(job: Job) -> dict[str, Any]:
    """Rows that Spark makes, as records with a key."""
    spark = session()
    rows = spark.range(0, job.records, 1, 2).selectExpr("CAST(id AS STRING) AS key", f"rpad(CAST(id AS STRING), {job.size}, 'x') AS value")

    def once() -> int:
        written(rows, job)
        return job.records

    return measured(once)


def sink(job: Job) -> dict[str, Any]:
    """From topic to topic in micro-batches, by foreachBatch."""
    frame = source(job.client, job, session().readStream).select("key", "value")
    return measured(lambda: finished(frame.writeStream.foreachBatch(batch_writer(job)), job))


def batch_writer(job: Job) -> Callable[[Any, int], None]:
    if not job.client.startswith(OURS):
        return lambda batch, _: written(batch, job)
    from pyclient.integration.spark import KafkaSink

    if ONCE not in job.client:
        return KafkaSink(job.topic, bootstrap_servers=job.bootstrap)
    prefix = f"{job.topic}-{time.time_ns()}"
    return KafkaSink(job.topic, bootstrap_servers=job.bootstrap, delivery="exactly-once", transactional_id_prefix=prefix, slots=slots_of(job.client))


def slots_of(client: str) -> int:
    """``pyclient, exactly once, 2 slots``"""
    return int(client.split()[-2])


def written(rows: Any, job: Job) -> None:
    if job.client.startswith("confluent"):
        rows.foreachPartition(Confluent(job.bootstrap, job.topic))
        return
    ours = job.client.startswith(OURS)
    options = TUNED if "tuned" in job.client else {}
    rows.write.format("pyclient" if ours else "kafka").options(**{"kafka.bootstrap.servers": job.bootstrap, "topic": job.topic, **options}).mode("append").save()


class Confluent(NamedTuple):
    """What Python programs do today: a producer for each task, which sends its rows one by one."""

    bootstrap: str
    topic: str

    def __call__(self, rows: Iterable[Any]) -> None:
        from confluent_kafka import Producer

        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for row in rows:
            while True:
                try:
                    producer.produce(self.topic, row.value, row.key, on_delivery=lambda error, _: failed.append(error) if error else None)
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
        producer.flush()
        if failed:
            raise RuntimeError(f"{len(failed)} records failed: {failed[0]}")


KINDS: Final = {"read": read, "stream": stream, "write": write, "sink": sink}

if __name__ == "__main__":
    sys.stdout = os.fdopen(os.dup(1), "w")  # answers; the JVM and its libraries may print what they like
    os.dup2(2, 1)
    serve(Job, KINDS)
