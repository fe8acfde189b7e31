"""examples/spark_sql, examples/to_files and the hand-written foreachBatch of docs/spark.md, as users run them."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.spark_sql import envelope, from_properties, queries, strings
from examples.to_files import writer
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, produce, read
from tests.pages import WRITTEN_ADDRESS, Page
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMIT_S = 180
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # of the launcher's JVM and of Spark's


def rows_of(frame: DataFrame, name: str) -> list[Any]:
    """The rows that a stream has now."""
    query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT_S)
    return frame.sparkSession.table(name).collect()


@pytest.mark.parametrize(("how", "named", "found"), [
    ("subscribe", "{0}-1", [1]), ("subscribe", "{0}-1,{0}-2", [1, 2]), ("subscribePattern", "{0}-.*", [1, 2, 3])], ids=["topic", "list", "pattern"])
def test_topics_are_read_as_strings(spark: SparkSession, kafka_cluster: LocalCluster, topic: str, how: str, named: str, found: list[int]) -> None:
    for number in (1, 2, 3):
        make_topic(kafka_cluster, f"{topic}-{number}")
        produce(kafka_cluster, f"{topic}-{number}", [f"wert {number} ä".encode()])
    rows = rows_of(strings.strings(spark, kafka_cluster.bootstrap_servers, how, named.format(topic)), f"strings_{how}_{len(found)}")
    assert sorted((row.topic, row.key, row.value, row.offset) for row in rows) == [(f"{topic}-{each}", None, f"wert {each} ä", 0) for each in found]


def test_connects_envelope_is_opened(spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, {"field": "name", "type": "string"}], "optional": False}
    payloads = [{"id": 2**40, "name": "anna"}, {"id": 2, "name": None}]
    produce(kafka_cluster, topic, [json.dumps({"schema": schema, "payload": each}).encode() for each in payloads])
    stream = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers)
    records = stream.option("subscribe", topic).option("startingOffsets", "earliest").load()
    rows = rows_of(envelope.payloads(records, "STRUCT<id: BIGINT, name: STRING>"), "envelope")
    assert sorted(row.asDict()["id"] for row in rows) == [2, 2**40]
    assert {row.id: row.name for row in rows} == {2**40: "anna", 2: None}


def test_of_several_sql_texts_one_that_fails_does_not_stop_the_others(
        spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    events = [{"a": "1", "b": "2", "c": "2018-01-08", "d": [23.9, 45]}, {"a": "one", "b": "3", "c": "2018-01-09", "d": []}]
    produce(kafka_cluster, topic, [json.dumps(each).encode() for each in events])
    queries.declare(spark, kafka_cluster.bootstrap_servers, topic)
    good = ["SELECT a, b FROM events", "SELECT c, d FROM events WHERE size(d) > 0"]
    fails, wrong = "SELECT CAST(a AS INT) FROM events", "SELECT nothing FROM events"

    started: list[Any] = []
    active_after_failure: list[bool] = []

    def start(rows: DataFrame, number: int) -> Any:
        """One after the other: Spark gives the Python process of a query's source ten seconds to start."""
        query = rows.writeStream.format("memory").queryName(f"query_{number}").start()
        started.append(query)
        eventually(lambda: query.lastProgress is not None or not query.isActive, LIMIT_S)
        return query

    def stop_others() -> None:
        eventually(lambda: any(query.exception() for query in started), LIMIT_S)
        for query in started[:2]:
            active_after_failure.append(query.isActive)
            query.stop()

    stopping = threading.Thread(target=stop_others)
    stopping.start()
    errors = queries.run(spark, [good[0], wrong, good[1], fails], start)
    stopping.join()
    assert active_after_failure == [True, True]
    assert {text: errors[text] for text in good} == dict.fromkeys(good)
    assert errors[wrong] is not None
    assert "CAST_INVALID_INPUT" in str(errors[fails])
    assert sorted(tuple(row) for row in spark.table("query_0").collect()) == [("1", "2"), ("one", "3")]
    assert [tuple(row) for row in spark.table("query_2").collect()] == [(date(2018, 1, 8), [23.9, 45.0])]


@pytest.mark.parametrize("by", ["spark-submit", "argument"])
def test_a_properties_file_describes_a_whole_job(kafka_cluster: LocalCluster, topic: str, tmp_path: Path, spark: SparkSession, by: str) -> None:
    make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [b"small", b"rather large"])
    file = tmp_path / "job.properties"
    file.write_text(f"""# a job
spark.master=local[1]
spark.app.name=large values
spark.ui.enabled=false
spark.driver.host=127.0.0.1
spark.sql.warehouse.dir={tmp_path}
spark.job.servers={kafka_cluster.bootstrap_servers}
spark.job.topic {topic}
spark.job.view=texts
spark.job.sql=SELECT upper(value) AS loud FROM texts WHERE length(value) > 5
spark.job.trigger=once
""")
    program = from_properties.__file__
    submit = str(Path(sys.executable).with_name("spark-submit"))
    command = [submit, "--properties-file", str(file), program] if by == "spark-submit" else [sys.executable, program, str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                          env={**os.environ, "JDK_JAVA_OPTIONS": FAST_START})
    assert done.returncode == 0, done.stderr
    assert "|loud" in done.stdout
    assert "|RATHER LARGE|" in done.stdout
    assert "SMALL" not in done.stdout


def test_properties_are_read_as_spark_submit_reads_them() -> None:
    text = "# note\n\nspark.a=1\n spark.b  two words\nspark.c = x = y\nspark.e two = 2\nspark.f: 1\nspark.d=SELECT 1 \\\nFROM t\n"
    assert from_properties.properties(text) == {"spark.a": "1", "spark.b": "two words", "spark.c": "x = y", "spark.e": "two = 2", "spark.f": "1", "spark.d": "SELECT 1 FROM t"}


def test_files_hold_each_record_once_also_when_a_batch_is_repeated(
        spark: SparkSession, kafka_cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    make_topic(kafka_cluster, topic)
    folder, values = tmp_path.as_uri(), [b"%d" % number for number in range(25)]

    def run() -> int:
        query = writer(spark, kafka_cluster.bootstrap_servers, topic, folder, maxOffsetsPerTrigger="10").trigger(availableNow=True).start()
        assert query.awaitTermination(LIMIT_S)
        return len(query.recentProgress)

    produce(kafka_cluster, topic, values[:15])
    assert run() == 2
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()  # as if the driver had died between the files of the batch and its end
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    produce(kafka_cluster, topic, values[15:])
    assert run() >= 2
    found = spark.read.parquet(f"{folder}/data")
    assert sorted((row.offset, bytes(row.value)) for row in found.collect()) == list(enumerate(values))
    assert {row.topic for row in found.select("topic").collect()} == {topic}
    assert list((tmp_path / "data" / f"topic={topic}").glob("day=20*"))


def test_the_pages_own_foreachbatch_writes_each_row_through_the_producer_of_its_worker(
        spark: SparkSession, kafka_cluster: LocalCluster, topic: str, checkpoint: str) -> None:
    """The block as it stands there, with another address and topic."""
    block = next(each for each in Page("docs/spark.md").python if each.heading == "Your own foreachBatch")
    [out] = make_topic(kafka_cluster, f"{topic}-out")
    make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [b"%d" % number for number in range(30)])
    servers = kafka_cluster.bootstrap_servers
    source = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    stream = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "20").load()
    names: dict[str, Any] = {"stream": stream, "checkpoint": checkpoint}
    text = block.text.replace(WRITTEN_ADDRESS, servers).replace('"out"', f'"{out.topic}"').replace(".start()", ".trigger(availableNow=True).start()")
    exec(text, names)
    assert names["query"].awaitTermination(LIMIT_S)
    assert len(names["query"].recentProgress) == 2
    values = sorted((json.loads(record.value or b"") for record in read(kafka_cluster, [out], 30)), key=lambda value: int(value["offset"]))
    assert values == [{"text": str(number), "offset": number} for number in range(30)]
