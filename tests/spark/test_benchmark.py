"""The benchmark of Spark runs: our ways and confluent's through a small case, in the tests' Spark."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from benchmarks import _spark, spark as benchmark
from benchmarks._broker import end_offsets
from benchmarks._floor import Floor
from benchmarks._spark import Job
from pyclient.testing import LocalCluster
from tests.kafka import make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 40


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> Job:
    """All that a job says but the client and what it does."""
    monkeypatch.setattr(_spark, "session", lambda: spark)
    for name in (topic, f"{topic}-out"):
        make_topic(kafka_cluster, name, benchmark.PARTITIONS)
    benchmark.fill(kafka_cluster, topic, RECORDS)
    return Job(_spark.OURS, "", kafka_cluster.bootstrap_servers, topic, f"{topic}-out", RECORDS)


def test_all_records_are_read_and_cpu_is_split_by_kind_of_process(job: Job) -> None:
    answer = _spark.KINDS["read"](job)
    assert answer["records"] == RECORDS
    assert answer["cpu"] == pytest.approx(answer["driver"] + answer["jvm"] + answer["workers"])
    assert answer["jvm"] > 0


@pytest.mark.parametrize(("measure", "per_batch"), [("read", 0), ("stream", 0), ("stream", 16)])
def test_spark_alone_reads_as_many_rows_without_a_broker(job: Job, spark: SparkSession, measure: str, per_batch: int) -> None:
    spark.dataSource.register(Floor)
    job = job._replace(client=_spark.FLOOR, bootstrap="127.0.0.1:1", per_batch=per_batch)
    assert _spark.KINDS[measure](job)["records"] == RECORDS


@pytest.mark.parametrize("client", [_spark.OURS, benchmark.CONFLUENT])
def test_all_records_are_written(job: Job, kafka_cluster: LocalCluster, client: str) -> None:
    job = job._replace(client=client)
    assert _spark.KINDS["write"](job)["records"] == RECORDS
    assert end_offsets(kafka_cluster, job.topic, benchmark.PARTITIONS) >= RECORDS


def test_a_process_whose_name_has_brackets_and_blanks_is_read() -> None:
    stat = f"7 (a) b (c) S 3 {' '.join('0' * 9)} 100 200 30 4 0"
    assert _spark.parsed(stat) == _spark.Process(3, "a) b (c", 300 / os.sysconf("SC_CLK_TCK"))


def test_the_cpu_of_processes_that_ended_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getpid()
    before = {own: _spark.Process(1, "python", 1.0), 900: _spark.Process(own, "java", 5.0), 901: _spark.Process(900, "python", 2.0)}
    seen = {**before, 901: _spark.Process(900, "python", 2.5), 902: _spark.Process(901, "python", 0.5), 903: _spark.Process(1, "other", 9.0)}
    after = {own: _spark.Process(1, "python", 1.25), 900: _spark.Process(own, "java", 7.0)}
    cpu = _spark.Cpu()
    for now in (before, seen, after):
        monkeypatch.setattr(_spark, "processes", lambda now=now: now)
        if now is before:
            cpu.__enter__()
        else:
            cpu._look()
    cpu.__exit__()
    assert cpu.used() == {"driver": 0.25, "jvm": 2.0, "workers": 1.0}


def test_what_was_missed_is_said() -> None:
    must = benchmark.Must("case", "a", "b", "cpu_us", most=1.25)
    assert "1.50 | ≤ 1.25, missed |" in str(must.line({"a": {"cpu_us": 3.0}, "b": {"cpu_us": 2.0}}))
    assert must.line({"a": {"cpu_us": 3.0}}) is None
