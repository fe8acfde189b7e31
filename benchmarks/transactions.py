"""Transactions beside the other clients: records/s, CPU per record, and the time of a commit; the exactly-once loop.

Every client runs in a process of its own on one real broker. Rounds are interleaved in a random order; figures are
medians of the rounds. CPU is that of the client's process, user and system, all threads. Commits of the first
transactions do not count.
"""
from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import _rounds
from benchmarks._broker import a_broker, topic_of
from benchmarks._process import Child
from benchmarks._rounds import Variant, joined, plain_table
from benchmarks._transactions import BATCHES, LOOPS, SIZE, Job
from pyclient import Producer
from pyclient.testing import LocalCluster

MODULE: Final = "benchmarks._transactions"


class Case(NamedTuple):
    """Transactions of so many records, and how many of them are a round."""

    records: int
    transactions: int
    keyed: bool = False
    """Each record has a key of its own, so they go to all partitions."""


CASES: Final = {
    "100 records": Case(100, 200), "100 records of 100 keys": Case(100, 200, keyed=True),
    "1,000 records": Case(1000, 100), "1,000 records of 1,000 keys": Case(1000, 100, keyed=True),
    "10,000 records": Case(10_000, 20),
}
SLOW: Final = ("aiokafka",)
"""Clients that get a quarter of the work."""
LOOP_RECORDS: Final = 100_000
PARTITIONS: Final = 3
BATCH_COLUMNS: Final = {"CPU µs/record": "{cpu_us:.2f}", "records/s": "{per_s:,.0f}", "commit p50 ms": "{p50_ms:.2f}", "p99": "{p99_ms:.2f}"}
LOOP_COLUMNS: Final = {"CPU µs/record": "{cpu_us:.2f}", "records/s": "{per_s:,.0f}"}
_runs = itertools.count()


class Must(NamedTuple):
    """Ours must have a figure at most, or at least, so many times confluent's."""

    client: str
    figure: str
    most: float = float("inf")
    least: float = 0.0

    def ratio(self, found: Mapping[str, Mapping[str, float]]) -> float | None:
        """None when one of both was not measured."""
        if self.client not in found or "confluent" not in found:
            return None
        return found[self.client][self.figure] / found["confluent"][self.figure]

    def line(self, case: str, ratio: float) -> str:
        """A row of the table."""
        bound = f"≤ {self.most:.2f}" if self.least == 0 else f"≥ {self.least:.0f}"
        missed = "" if self.least <= ratio <= self.most else ", missed"
        return f"| {case} | {self.client} | {self.figure} | {ratio:.2f} | {bound}{missed} |"


def musts(by_record: str, arrow: str) -> tuple[Must, ...]:
    """Of one way to send by record, and one by Arrow table."""
    return Must(by_record, "cpu_us", most=1 / 4), Must(arrow, "cpu_us", most=1 / 6), Must(by_record, "per_s", least=2), Must(arrow, "per_s", least=2)


OF_BATCHES: Final = (*musts("pyclient send", "pyclient send_arrow"), Must("pyclient send", "p50_ms", most=1.0))
OF_THE_LOOP: Final = (
    *musts("pyclient ExactlyOnce", "pyclient ExactlyOnce, Arrow"),
    Must("pyclient ExactlyOnce, a poll each", "per_s", least=2), Must("pyclient ExactlyOnce, Arrow, a poll each", "per_s", least=2),
)


# --- measuring -------------------------------------------------------------------------------------------------------


def share(client: str, count: int) -> int:
    return max(2, count // 4) if client.startswith(SLOW) else count


def batches(cluster: LocalCluster, case: Case, clients: tuple[str, ...], rounds: int, chance: random.Random) -> dict[str, dict[str, float]]:
    """Transactions one after the other."""
    with topic_of(cluster, PARTITIONS) as topic:
        def ask(child: Child, variant: Variant, _number: int) -> dict[str, Any]:
            name = f"{topic}-{next(_runs)}"
            count = share(variant.client, case.transactions)
            return child.ask(Job(variant.client, cluster.bootstrap_servers, topic, "batches", case.records, count, partitions=PARTITIONS, run=name, keyed=case.keyed))

        taken = _rounds.interleaved(MODULE, map(Variant, clients), rounds, chance, ask)
    found = _rounds.medians(taken, "p50", "p99")
    return {client: {**rates(figure), "p50_ms": found[client]["p50"] / 1000, "p99_ms": found[client]["p99"] / 1000}
            for client, figure in _rounds.figures(taken).items()}


def loops(cluster: LocalCluster, records: int, clients: tuple[str, ...], rounds: int, chance: random.Random) -> dict[str, dict[str, float]]:
    """A pass-through of *records* records."""
    with topic_of(cluster, PARTITIONS) as source, topic_of(cluster, PARTITIONS) as topic:
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(PARTITIONS):
                producer.send_many(source, [bytes(SIZE)] * (records // PARTITIONS), partition=number)

        def ask(child: Child, variant: Variant, _number: int) -> dict[str, Any]:
            name = f"{source}-{next(_runs)}"
            return child.ask(Job(variant.client, cluster.bootstrap_servers, topic, "loop", records // PARTITIONS * PARTITIONS, source=source, run=name))

        return {client: rates(figure) for client, figure in _rounds.figures(_rounds.interleaved(MODULE, map(Variant, clients), rounds, chance, ask)).items()}


def rates(figure: _rounds.Figure) -> dict[str, float]:
    return {"cpu_us": figure.cpu_us, "per_s": figure.records_per_s}


# --- what is printed -------------------------------------------------------------------------------------------------


def musts_table(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    yield "| Case | pyclient | figure | times confluent's | must |"
    yield "| --- | --- | --- | --- | --- |"
    for case, found in results.items():
        for must in OF_THE_LOOP if case == "loop" else OF_BATCHES:
            if (ratio := must.ratio(found)) is not None:
                yield must.line(case, ratio)


def written(results: Mapping[str, Any]) -> str:
    """Everything as Markdown, from figures as they stand in the JSON."""
    cases: Mapping[str, Any] = results["cases"]
    tables = [plain_table(case, found, LOOP_COLUMNS if case == "loop" else BATCH_COLUMNS) for case, found in cases.items()]
    return joined([*tables, musts_table(cases)])


# --- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, and how much of it."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a quarter of the work, three rounds")
    parser.add_argument("--clients", metavar="TEXT", action="append", default=[], help="clients whose name holds it; may be repeated")
    parser.add_argument("--only", choices=("batches", "loop"), help="these cases alone")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="measure nothing: print the README's tables of a kept JSON file")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what was asked for, print the tables."""
    if arguments.markdown:
        return _rounds.from_kept(arguments, "transactions", written)
    rounds, part, chance = (3, 4, random.Random(1)) if arguments.quick else (arguments.rounds, 1, random.Random(1))
    with a_broker({}) as cluster:
        cases = {}
        if arguments.only != "loop":
            clients = _rounds.clients_wanted(arguments, BATCHES)
            cases = {name: batches(cluster, case._replace(transactions=max(5, case.transactions // part)), clients, rounds, chance)
                     for name, case in CASES.items()}
        if arguments.only != "batches":
            cases["loop"] = loops(cluster, LOOP_RECORDS // part, _rounds.clients_wanted(arguments, LOOPS), rounds, chance)
        found: dict[str, Any] = {"broker": cluster.description, "rounds": rounds, "versions": _rounds.versions(), "cases": cases}
    print(written(found))
    return found
