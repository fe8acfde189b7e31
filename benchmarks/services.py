"""What clients cost a service: idle, with a few records a second, beside threads that compute, and 200 in one process.

Every client runs in a new process on one real broker. Rounds are interleaved in a random order; figures are
medians of the rounds. CPU is that of the client's process, user and system, all threads.
"""
from __future__ import annotations

import argparse
import contextlib
import random
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import _rounds
from benchmarks._access import access, servers
from benchmarks._broker import a_broker, topic_of
from benchmarks._process import Child
from benchmarks._rounds import joined, plain_table
from benchmarks._services import CASES, STEADY_CASES, Job
from pyclient.testing import LocalCluster, Security

MODULE: Final = "benchmarks._services"
SECONDS: Final = 10.0
"""Of a client in a case of a round."""
HEADINGS: Final = {"cpu_ms": "CPU ms a second", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "mib_each": "MiB each"}
Found = Mapping[str, Mapping[str, Mapping[str, float]]]


class Must(NamedTuple):
    """What ours must not exceed: the peer's figure, or a number where there is no peer."""

    case: str
    figure: str
    peer: str | None
    most: float

    def row(self, found: Found) -> str | None:
        """None when it was not measured."""
        clients = found.get(self.case, {})
        if "pyclient" not in clients or not (self.peer is None or self.peer in clients):
            return None
        value = clients["pyclient"][self.figure] / (1.0 if self.peer is None else clients[self.peer][self.figure])
        than = "" if self.peer is None else f" times {self.peer}'s"
        return f"| {self.case} | {HEADINGS[self.figure]} | {value:.2f}{than} | ≤ {self.most}{'' if value <= self.most else ', missed'} |"


MUSTS: Final = (
    Must("an idle producer", "cpu_ms", None, 1.0),
    Must("an idle consumer", "cpu_ms", None, 1.0),
    *(Must(case, "cpu_ms", "confluent", 1.0) for case in STEADY_CASES),
    Must("20,000 records/s beside a thread that computes", "p99_ms", "confluent", 1.0),
    Must("200 idle consumers", "cpu_ms", "aiokafka", 1.0),
    Must("200 idle consumers", "mib_each", "aiokafka", 1.0),
)


def measured(cluster: LocalCluster, case: str, rounds: int, seconds: float, chance: random.Random) -> dict[str, dict[str, float]]:
    """The figures of each client, each time in a new process; every case has a topic of its own."""
    clients, partitions, login = CASES[case]
    taken: dict[str, list[dict[str, float]]] = {client: [] for client in clients}
    to = access(cluster, *login)
    with topic_of(cluster, partitions) as topic:
        for _ in range(rounds):
            for client in chance.sample(list(taken), len(taken)):
                with contextlib.closing(Child(MODULE)) as child:
                    taken[client].append(child.ask(Job(case, client, servers(cluster, to), topic, seconds, partitions, to)))
    return {client: {name: statistics.median(found[name] for found in answers) for name in answers[0]} for client, answers in taken.items()}


def tables(found: Found) -> Iterator[Iterator[str]]:
    """One for each case, then what must be reached."""
    for case, clients in found.items():
        columns = {HEADINGS[name]: f"{{{name}:.2f}}" for name in next(iter(clients.values()))}
        yield plain_table(case, clients, columns)
    if rows := [row for must in MUSTS if (row := must.row(found)) is not None]:
        yield iter(["| pyclient | figure | value | must |", "| --- | --- | --- | --- |", *rows])


def written(results: Mapping[str, Any]) -> str:
    """Everything as Markdown, from figures as they stand in the JSON."""
    return joined(tables(results["cases"]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, and how much of it."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of a client in a case of a round ({SECONDS:g})")
    parser.add_argument("--only", metavar="TEXT", action="append", default=[], help="cases whose name holds it; may be repeated")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="measure nothing: print the README's tables of a kept JSON file")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what was asked for, print the tables."""
    if arguments.markdown:
        return _rounds.from_kept(arguments, "services", written)
    cases = [case for case in CASES if any(text in case for text in arguments.only or [""])]
    chance = random.Random(1)
    with a_broker({}, Security()) as cluster:
        found: dict[str, Any] = {
            "broker": cluster.description, "rounds": arguments.rounds, "versions": _rounds.versions(),
            "cases": {case: measured(cluster, case, arguments.rounds, arguments.seconds, chance) for case in cases},
        }
    print(written(found))
    return found
