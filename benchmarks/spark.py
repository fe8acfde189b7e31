"""Spark's ways to read and write Kafka: ours, the JVM connector's, and foreachPartition with confluent-kafka.

Beside them in reading: a Python source of constant rows without a broker, `_floor`, which is what Spark itself takes.

All clients have one broker and one Spark, ``local[2]``, of the newest release that the connector is published for.
Rounds are interleaved in a random order; figures are medians of the rounds. A first round warms up. Records that were
written are counted by the topic's end offsets.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import _rounds
from benchmarks._broker import a_broker, end_offsets, topic_of
from benchmarks._process import ROOT, Child
from benchmarks._rounds import joined, plain_table
from benchmarks._spark import FLOOR, JVM, OURS, Job
from pyclient import Producer
from pyclient.testing import LocalCluster

MODULE: Final = "benchmarks._spark"
SPARK: Final = "4.2.0"
PARTITIONS: Final = 4
TUNED: Final = f"{JVM}, tuned"
CONFLUENT: Final = "confluent, foreachPartition"
TWO_SLOTS: Final = f"{OURS}, exactly once, 2 slots"
EIGHT_SLOTS: Final = f"{OURS}, exactly once, 8 slots"
COLUMNS: Final = {"1,000 rows/s": "{k_per_s:,.0f}", "wall s": "{seconds:.2f}", "CPU µs/row": "{cpu_us:.2f}", "driver": "{driver_us:.2f}", "JVM": "{jvm_us:.2f}",
                  "workers": "{workers_us:.2f}"}
Rows = dict[str, dict[str, float]]


class Case(NamedTuple):
    """What all clients do in turn: *measure* is a function of `_spark`."""

    name: str
    measure: str
    clients: tuple[str, ...]
    records: int
    per_batch: int = 0

    @property
    def writes(self) -> bool:
        return self.measure in ("write", "sink")


CASES: Final = (
    Case("batch read", "read", (OURS, JVM, FLOOR), 4_000_000),
    Case("stream read, batches of 500,000", "stream", (OURS, JVM, FLOOR), 4_000_000, 500_000),
    Case("stream of 100,000, one trigger", "stream", (OURS, JVM, FLOOR), 100_000),
    Case("batch write", "write", (OURS, JVM, TUNED, CONFLUENT), 1_000_000),
    Case("foreachBatch, batches of 500,000", "sink", (OURS, TWO_SLOTS, EIGHT_SLOTS, JVM, TUNED, CONFLUENT), 2_000_000, 500_000),
)


class Must(NamedTuple):
    """Of a case: ours must have at most, or at least, so many times the peer's figure."""

    case: str
    client: str
    peer: str
    figure: str
    least: float = 0.0
    most: float = float("inf")

    def line(self, found: Mapping[str, Mapping[str, float]]) -> str | None:
        """A row of the table; None when one of both was not measured."""
        if self.client not in found or self.peer not in found:
            return None
        ratio = found[self.client][self.figure] / found[self.peer][self.figure]
        bound = f"≥ {self.least:g}" if self.least else f"≤ {self.most:g}"
        missed = "" if self.least <= ratio <= self.most else ", missed"
        return f"| {self.case} | {self.client} | {self.peer} | {self.figure} | {ratio:.2f} | {bound}{missed} |"


def musts() -> Iterator[Must]:
    read, stream, small, write, sink = (case.name for case in CASES)
    for case in (read, stream):
        yield Must(case, OURS, JVM, "k_per_s", least=3)
    for case in (write, sink):
        yield Must(case, OURS, TUNED, "k_per_s", least=1)
        yield Must(case, OURS, CONFLUENT, "k_per_s", least=5)
    for case, peer in ((read, JVM), (stream, JVM), (write, TUNED), (sink, TUNED)):
        yield Must(case, OURS, peer, "cpu_us", most=1)
    yield Must(small, OURS, JVM, "seconds", most=1)
    yield Must(sink, TWO_SLOTS, OURS, "cpu_us", most=1.25)


# --- measuring -------------------------------------------------------------------------------------------------------


def spark_of(version: str) -> Path:
    """A folder with that PySpark alone; the jars of the connector come with the first session."""
    folder = ROOT / "build" / f"pyspark-{version}"
    if not (folder / "pyspark").is_dir():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, f"pyspark=={version}"], check=True)
    return folder


def measured(cluster: LocalCluster, child: Child, case: Case, rounds: int, records: int, chance: random.Random) -> Rows:
    """All clients of *case*, with *records* records in a round; round 0 warms up and does not count."""
    print(f"{case.name}: {records:,} rows", file=sys.stderr, flush=True)
    taken: dict[str, list[dict[str, Any]]] = {client: [] for client in case.clients}
    with topic_of(cluster, PARTITIONS) as source:
        if case.measure != "write":
            fill(cluster, source, records)
        for number in range(rounds + 1):
            for client in chance.sample(case.clients, len(case.clients)):
                answer = asked(cluster, child, client, case, source, records)
                taken[client] += [answer] if number else []
    return {client: figures(answers) for client, answers in taken.items()}


def asked(cluster: LocalCluster, child: Child, client: str, case: Case, source: str, records: int) -> dict[str, Any]:
    """One round of one client."""
    with topic_of(cluster, PARTITIONS) as topic:
        per_batch = case.per_batch if records >= 2 * case.per_batch else case.per_batch and records // 2
        answer = child.ask(Job(client, case.measure, cluster.bootstrap_servers, source, topic, records, per_batch))
        assert answer["records"] == records, f"{client} had {answer['records']} records of {records}"
        found = end_offsets(cluster, topic, PARTITIONS) if case.writes else records
        # Each transaction ends with a marker, which takes an offset of each partition.
        most = records + PARTITIONS * 1000 if "exactly once" in client else records
        assert records <= found <= most, f"{client} wrote {found} records of {records}"
    print(f"  {client}: {answer['seconds']:.1f} s, CPU {answer['cpu']:.1f} s: driver {answer['driver']:.1f}, JVM {answer['jvm']:.1f}, workers {answer['workers']:.1f}", file=sys.stderr, flush=True)
    return answer


def fill(cluster: LocalCluster, topic: str, records: int) -> None:
    each = records // PARTITIONS
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(PARTITIONS):
            count = records - each * (PARTITIONS - 1) if number == 0 else each
            producer.send_many(topic, [b"%100d" % value for value in range(count)], keys=[b"%d" % value for value in range(count)], partition=number)


def figures(answers: list[dict[str, Any]]) -> dict[str, float]:
    per_row = {f"{name}_us": statistics.median(each[name] / each["records"] * 1e6 for each in answers) for name in ("cpu", "driver", "jvm", "workers")}
    seconds = statistics.median(each["seconds"] for each in answers)
    return {"seconds": seconds, "k_per_s": statistics.median(each["records"] / each["seconds"] for each in answers) / 1000, **per_row}


# --- what is printed -------------------------------------------------------------------------------------------------


def musts_table(cases: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    yield "| Case | pyclient | beside | figure | times | must |"
    yield "| --- | --- | --- | --- | --- | --- |"
    yield from filter(None, (must.line(cases[must.case]) for must in musts() if must.case in cases))


def written(results: Mapping[str, Any]) -> str:
    """Everything as Markdown, from figures as they stand in the JSON."""
    cases: Mapping[str, Any] = results["cases"]
    return joined([*(plain_table(case, found, COLUMNS) for case, found in cases.items()), musts_table(cases)])


# --- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, and how much of it."""
    _rounds.add_arguments(parser, [case.name for case in CASES])
    parser.add_argument("--spark", default=SPARK, metavar="VERSION", help=f"of PySpark and the connector ({SPARK})")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what was asked for, print the tables."""
    if arguments.markdown:
        return _rounds.from_kept(arguments, "spark", written)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users' packages are compiled: else each process of Spark compiles ours
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(spark_of(arguments.spark)), str(ROOT), os.environ.get("PYTHONPATH"))))
    scale, chance = _rounds.scale_of(arguments), random.Random(1)
    with a_broker({}) as cluster, contextlib.closing(Child(MODULE)) as child:
        cases = {case.name: measured(cluster, child, case, arguments.rounds, max(2 * PARTITIONS, round(case.records * scale)), chance)
                 for case in _rounds.chosen(arguments, CASES)}
        found: dict[str, Any] = {"broker": cluster.description, "rounds": arguments.rounds, "cases": cases,
                                 "versions": {"PySpark": arguments.spark, **_rounds.versions()}}
    print(written(found))
    return found
