"""The exactly-once sink with Spark and real brokers: batches are cut off at every step, and each row is read once."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyclient import TopicPartition
from pyclient.codec.arrow_input import digest
from pyclient.errors import ConfigurationError, IllegalStateError
from pyclient.integration.spark import KafkaSink, exactly_once
from pyclient.integration.spark.exactly_once import divided, ensure_marker_topic
from pyclient.integration.spark.markers import Batch, Marker, claim
from pyclient.integration.spark.options import SinkOptions
from pyclient.integration.spark.slots import SlotClients, SlotOptions, write_slot
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, read
from tests.spark.conftest import Load

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LIMIT_S = 180
ROWS = 60


@pytest.fixture
def out(kafka_cluster: LocalCluster, topic: str) -> str:
    """The topic that the sink writes to."""
    name = f"{topic}-out"
    make_topic(kafka_cluster, name, 3)
    return name


@pytest.fixture
def source(kafka_cluster: LocalCluster, topic: str, spark: SparkSession) -> str:
    """The topic that the query reads, with numbers as keys and values."""
    make_topic(kafka_cluster, topic, 2)
    KafkaSink(topic, bootstrap_servers=kafka_cluster.bootstrap_servers)(numbers(spark, 0, ROWS), 0)
    return topic


def numbers(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end, 1, 2).selectExpr("CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value")


def sink_to(cluster: LocalCluster, out: str, **options: Any) -> KafkaSink:
    return KafkaSink(out, bootstrap_servers=cluster.bootstrap_servers, delivery="exactly-once", **{"transactional_id_prefix": out, "slots": 3, **options})


def committed(cluster: LocalCluster, out: str, count: int) -> list[int]:
    found = read(cluster, [TopicPartition(out, number) for number in range(3)], count, isolation_level="read_committed")
    return sorted(int(record.value or b"") for record in found)


Start = Callable[..., Any]


@pytest.fixture
def start(stream: Load, checkpoint: str) -> Start:
    """``start(function)``: the query until it has read everything."""
    def started(function: Callable[[DataFrame, int], None], *, per_batch: int = 20, at: str = checkpoint, select: str = "*") -> Any:
        writer = stream(maxOffsetsPerTrigger=str(per_batch)).selectExpr("key", "value").selectExpr(select).writeStream
        query = writer.foreachBatch(function).option("checkpointLocation", at).trigger(availableNow=True).start()
        return query.awaitTermination(LIMIT_S)

    return started


def test_a_batch_that_was_written_before_spark_knew_is_not_written_again(
    start: Start, source: str, kafka_cluster: LocalCluster, out: str,
) -> None:
    from pyspark.errors import StreamingQueryException

    def cut_off(batch: DataFrame, number: int) -> None:
        sink_to(kafka_cluster, out)(batch, number)
        if number == 1:
            raise RuntimeError("the driver ends here")

    with pytest.raises(StreamingQueryException, match="the driver ends here"):
        start(cut_off)
    assert start(sink_to(kafka_cluster, out, slots=5))
    assert committed(kafka_cluster, out, ROWS) == list(range(ROWS))


def test_a_new_checkpoint_is_refused_in_words(start: Start, source: str, kafka_cluster: LocalCluster, out: str, tmp_path: Any) -> None:
    from pyspark.errors import StreamingQueryException

    assert start(sink_to(kafka_cluster, out))
    with pytest.raises(StreamingQueryException, match="the markers belong to another query"):
        start(sink_to(kafka_cluster, out), at=(tmp_path / "other").as_uri())
    assert start(sink_to(kafka_cluster, out, new_checkpoint="accept"), at=(tmp_path / "another").as_uri())
    assert committed(kafka_cluster, out, 2 * ROWS) == sorted([*range(ROWS), *range(ROWS)])


def test_a_query_that_gives_other_rows_each_time_is_refused(start: Start, source: str, kafka_cluster: LocalCluster, out: str) -> None:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException, match="gives other rows each time it runs"):
        start(sink_to(kafka_cluster, out), select="CAST(rand() AS STRING) AS value")


def test_a_table_is_no_batch_of_a_query(spark: SparkSession, kafka_cluster: LocalCluster, out: str) -> None:
    with pytest.raises(ConfigurationError, match="belongs to one streaming query"):
        sink_to(kafka_cluster, out)(numbers(spark, 0, 5), 0)


def test_a_batch_without_rows_gives_every_slot_its_marker(start: Start, source: str, kafka_cluster: LocalCluster, out: str) -> None:
    sink, written = sink_to(kafka_cluster, out), []

    def emptied(batch: DataFrame, number: int) -> None:
        # An empty aggregate: Spark drops its stage, so that no task runs at all.
        sink(batch.filter("false").groupBy("key").agg({"value": "max"}).withColumnRenamed("max(value)", "value") if number == 1 else batch, number)
        written.append(number)

    assert start(emptied)
    with SlotClients(slot_options(kafka_cluster, out)) as clients:
        assert [marker.batch for slot in range(3) if (marker := clients.marker(slot))] == [written[-1]] * 3


# ---- faults ---------------------------------------------------------------------------------------------------------

FAULTY = """
import os, signal
from pathlib import Path
from pyclient.integration.spark.slots import SlotTask

FAULTS = Path({faults!r})

def strike(step):
    for fault in FAULTS.glob(step + "-*"):
        try:
            fault.unlink()
        except FileNotFoundError:
            continue
        if fault.name.endswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("a fault at " + step)

class FaultyTask(SlotTask):
    def __call__(self, batches):
        strike("first")
        results = list(super().__call__(self._rows(batches)))
        strike("committed")
        yield from results

    def _rows(self, batches):
        for each in batches:
            yield each
            strike("middle")
        strike("last")
"""
STEPS = ("first", "middle", "last", "committed")


@pytest.fixture
def faults(modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in it, such as ``middle-1-kill``, makes one task fail at that step, once."""
    folder = tmp_path / "faults"
    folder.mkdir()
    name = f"faulty_{tmp_path.name.replace('-', '_')}"
    (modules / f"{name}.py").write_text(FAULTY.format(faults=str(folder)))
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setattr(exactly_once, "SlotTask", __import__(name).FaultyTask)
    return folder


def test_tasks_that_fail_or_die_at_any_step_are_repeated_and_each_row_is_written_once(
    start: Start, source: str, kafka_cluster: LocalCluster, out: str, faults: Path,
) -> None:
    from pyspark.errors import StreamingQueryException

    for step in STEPS:
        for kind in ("1-raise", "2-kill", "3-raise"):
            (faults / f"{step}-{kind}").touch()
    ends = 0
    while True:
        try:
            assert start(sink_to(kafka_cluster, out, slots=2 + ends % 3))
            break
        except StreamingQueryException:  # three attempts of one task have failed: the query ends, and is started again
            ends += 1
            assert ends <= 12
    assert not list(faults.iterdir())
    assert committed(kafka_cluster, out, ROWS) == list(range(ROWS))


def slot_options(cluster: LocalCluster, out: str) -> SlotOptions:
    client = {"bootstrap_servers": cluster.bootstrap_servers, "transaction_timeout_ms": 60_000}
    return SlotOptions(sink=SinkOptions(topic=out, client=client), prefix=out, marker_topic=f"{out}-markers")


def rows_of(values: list[int]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"value": [str(each) for each in values]})


@pytest.fixture
def slots(kafka_cluster: LocalCluster, out: str) -> Iterator[Callable[[], SlotClients]]:
    """Makes the clients of one process."""
    opened: list[SlotClients] = []

    def clients() -> SlotClients:
        opened.append(SlotClients(slot_options(kafka_cluster, out)))
        return opened[-1]

    ensure_marker_topic(slot_options(kafka_cluster, out), 1)
    yield clients
    for each in opened:
        each.close()


def test_a_task_that_was_fenced_by_a_second_attempt_succeeds_when_that_one_has_written(
    slots: Callable[[], SlotClients], kafka_cluster: LocalCluster, out: str,
) -> None:
    batch, resumed, halfway = Batch("q", "r", 0), threading.Event(), threading.Event()
    claim(slots(), 1, batch, 1, accept=False)

    def held_up() -> Iterator[pa.RecordBatch]:
        yield rows_of([1, 2])
        halfway.set()
        assert resumed.wait(LIMIT_S)
        yield rows_of([3])

    with ThreadPoolExecutor(1) as pool:
        zombie = pool.submit(write_slot, slots(), 0, held_up(), batch, 1)
        assert halfway.wait(LIMIT_S)
        second = slots()
        second.fence(0)
        resumed.set()
        assert write_slot(second, 0, iter([rows_of([3, 2, 1])]), batch, 1) == (3, True)
        assert zombie.result(LIMIT_S) == (3, False)
    assert committed(kafka_cluster, out, 3) == [1, 2, 3]


def test_a_task_of_an_older_run_ends_without_a_record(slots: Callable[[], SlotClients], kafka_cluster: LocalCluster, out: str) -> None:
    old, new = Batch("q", "old", 0), Batch("q", "new", 0)
    claim(slots(), 1, old, 1, accept=False)
    claim(slots(), 1, new, 1, accept=False)
    with pytest.raises(IllegalStateError, match="belongs to run new"):
        write_slot(slots(), 0, iter([rows_of([9])]), old, 1)
    assert write_slot(slots(), 0, iter([rows_of([1])]), new, 1) == (1, True)
    assert committed(kafka_cluster, out, 1) == [1]


def test_rows_of_another_slot_end_the_task_and_nothing_is_committed(slots: Callable[[], SlotClients], out: str) -> None:
    batch = Batch("q", "r", 0)
    claim(slots(), 1, batch, 1, accept=False)
    of_slot = {digest(rows_of([value]), 5)[1]: value for value in range(100)}
    with pytest.raises(IllegalStateError, match="rows of slots 4 to 4 to the task of slot 0"):
        write_slot(slots(), 0, iter([rows_of([of_slot[0]]), rows_of([of_slot[4]])]), batch, 5)
    marker = slots().marker(0)
    assert marker is not None
    assert marker.batch == -1


@pytest.mark.parametrize("kind", ["STRING", "BINARY"])
@pytest.mark.parametrize("keyed", [True, False])
def test_spark_divides_rows_as_the_tasks_do_that_check_them(spark: SparkSession, kind: str, keyed: bool) -> None:
    """Keys of every length, null and empty ones; rows without a key go by their values."""
    slots = 7
    text = f"CAST(CASE WHEN id % 5 = 0 THEN NULL ELSE repeat(chr(97 + id % 20), CAST(id % 71 AS INT)) END AS {kind})"
    value = f"CAST(CASE WHEN id % 9 = 0 THEN NULL ELSE CAST(id AS STRING) END AS {kind})"
    rows = spark.range(0, 400, 1, 3).selectExpr(*([f"{text} AS key"] if keyed else []), f"{value} AS value")

    def shares(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield pa.RecordBatch.from_pydict({name: [number] for name, number in zip(
                ("slot", "low", "high", "rows"), (context.partitionId(), *digest(batch, slots)[1:], batch.num_rows), strict=True)})

    found = divided(rows, slots).mapInArrow(shares, "slot long, low long, high long, rows long").collect()
    assert sum(each.rows for each in found) == 400
    assert len(found) == slots
    assert all(each.slot == each.low == each.high for each in found)


def test_a_batch_that_is_other_when_it_is_repeated_is_reported(slots: Callable[[], SlotClients]) -> None:
    batch = Batch("q", "r", 0)
    claim(slots(), 1, batch, 1, accept=False)
    assert write_slot(slots(), 0, iter([rows_of([1])]), batch, 1) == (1, True)
    with pytest.raises(IllegalStateError, match="2 rows now, 1 then"):
        write_slot(slots(), 0, iter([rows_of([1, 2])]), batch, 1)


def test_the_last_marker_is_found_behind_many_attempts_that_were_aborted(slots: Callable[[], SlotClients]) -> None:
    batch = Batch("q", "r", 0)
    clients = slots()
    claim(clients, 1, batch, 1, accept=False)
    for _ in range(30):
        with pytest.raises(RuntimeError, match="cut off"), clients.fenced().transaction():
            clients.send_marker(clients.fenced(), 0, Marker(query="q", run="r", batch=7, slots=1))
            clients.fenced().flush()
            raise RuntimeError("cut off")
    marker = slots().marker(0)
    assert marker is not None
    assert marker.batch == -1
