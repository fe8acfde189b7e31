"""The Spark job: read the topic as a stream, add up delays per carrier and month, write each change to the other topic.

The query is stopped while it has work left, and a new one goes on from its checkpoint: sums survive, and nothing is
counted twice.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from examples.flights.topics import PARTITIONS, Names
from pyclient.integration.spark import KafkaSink, register
from pyclient.integration.spark.java_home import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCHES: Final = 5
QUERY_LIMIT_S: Final = 900.0
STOP_LIMIT_S: Final = 120.0
LOOK_S: Final = 0.5
HOLD_S: Final = 0.05
BATCHES_BEFORE_STOP: Final = 2
QUIET_LOG: Final = Path(__file__).with_name("log4j2.properties")
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A minute is too short for Java's second compiler to pay back its time."""
FIELDS: Final = "carrier STRING, month INT, dep_delay INT, arr_delay INT"

Show = Callable[[int], None]


class Outcome(NamedTuple):
    """What Spark says it did."""

    rows: int
    micro_batches: int
    restarts: int


@contextmanager
def session(scratch: Path) -> Iterator[SparkSession]:
    """A Spark of our own on two cores, quiet, with all its files in *scratch*."""
    prepare_environment(local=True)
    from pyspark.sql import SparkSession

    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{SHORT_LIVED} -Dlog4j2.configurationFile={QUIET_LOG.as_uri()} -Dderby.system.home={scratch}",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[2]").appName("flights").config(map=settings).getOrCreate()
    try:
        register(spark)
        yield spark
    finally:
        spark.stop()


def run(spark: SparkSession, bootstrap: str, names: Names, total: int, scratch: Path, show: Show) -> Outcome:
    """Aggregate everything that is in the topic, with one restart; *show* gets the number of rows read so far."""
    query = _Query(spark, bootstrap, names, total, scratch / "checkpoint", show)
    query.first_part()
    query.second_part()
    return query.outcome()


class _Query:
    """Two runs of one query, and the rows of each batch from its progress reports."""

    def __init__(self, spark: SparkSession, bootstrap: str, names: Names, total: int, checkpoint: Path, show: Show) -> None:
        self._changes = aggregated(flights(spark, bootstrap, names.flights, total // BATCHES + PARTITIONS))
        self._sink = KafkaSink(names.delays, bootstrap_servers=bootstrap)
        self._checkpoint = checkpoint
        self._show = show
        self._rows: dict[int, int] = {}
        self._runs: list[tuple[str, str]] = []
        self._held = threading.Event()
        self._to_stop: StreamingQuery | None = None

    def first_part(self) -> None:
        """Run until some batches are complete, then stop with the others still to do."""
        query = self._start()
        self._to_stop = query
        while not self._held.wait(LOOK_S):
            if not query.isActive:
                raise RuntimeError(f"the query ended before it could be stopped: {query.exception()}")
            self._note(query)
        query.stop()
        self._note(query)

    def second_part(self) -> None:
        """Go on from the checkpoint, to the end of the topic."""
        query = self._start()
        for _ in range(int(QUERY_LIMIT_S)):
            if query.awaitTermination(1):
                break
            self._note(query)
        else:
            query.stop()
            raise TimeoutError(f"the query has not reached the end of the topic in {QUERY_LIMIT_S:g} s: {query.lastProgress}")
        self._note(query)

    def outcome(self) -> Outcome:
        """A restart counts if the second run has the first one's id, which the checkpoint stores."""
        identities, runs = ({run[number] for run in self._runs} for number in (0, 1))
        restarts = len(runs) - 1 if len(identities) == 1 else 0
        return Outcome(sum(self._rows.values()), sum(rows > 0 for rows in self._rows.values()), restarts)

    def _start(self) -> StreamingQuery:
        writer = self._changes.writeStream.outputMode("update").foreachBatch(self._write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", self._checkpoint.as_uri()).start()
        self._runs.append((query.id, query.runId))
        return query

    def _write(self, changes: DataFrame, batch: int) -> None:
        """Runs in the driver for each batch; the rows themselves are written by Spark's tasks."""
        if batch == BATCHES_BEFORE_STOP and not self._held.is_set():
            self._hold()
        self._sink(changes, batch)

    def _hold(self) -> None:
        """Block this batch until the query is stopped, so that work is left however fast Spark is."""
        assert self._to_stop is not None
        self._held.set()
        for _ in range(int(STOP_LIMIT_S / HOLD_S)):
            if not self._to_stop.isActive:
                break
            threading.Event().wait(HOLD_S)
        raise InterruptedError("this query is being stopped; the next one does this batch")

    def _note(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            self._rows[progress["batchId"]] = progress["numInputRows"]
        self._show(sum(self._rows.values()))


def flights(spark: SparkSession, bootstrap: str, topic: str, most_per_batch: int) -> DataFrame:
    """The topic as a stream of flights, in small batches."""
    from pyspark.sql import functions as f

    source = (
        spark.readStream.format("pyclient")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", most_per_batch)
        .load()
    )
    return source.select(f.from_json(f.col("value").cast("string"), FIELDS).alias("flight")).select("flight.*")


def aggregated(stream: DataFrame) -> DataFrame:
    """Sums per carrier and month so far, as records: each replaces the one before with the same key."""
    from pyspark.sql import functions as f

    sums = stream.groupBy("carrier", "month").agg(
        f.count(f.lit(1)).alias("flights"),
        f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("dep_delay_sum"),
        f.count("dep_delay").alias("dep_delays"),
        f.coalesce(f.sum("arr_delay"), f.lit(0)).alias("arr_delay_sum"),
        f.count("arr_delay").alias("arr_delays"),
    )
    return sums.select(f.format_string("%s-%02d", "carrier", "month").alias("key"), f.to_json(f.struct("*")).alias("value"))
