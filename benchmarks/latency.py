"""One record at a time: p50, p99 and CPU of all clients, side by side; with --timeline where the time goes.

Every client runs in a process of its own on one real broker, with linger 0; the caller waits for each record. Rounds
are interleaved in a random order; figures are medians of the rounds. CPU is that of the client's process, user and
system, all threads.
"""
from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import _rounds
from benchmarks._broker import a_broker, topic_of
from benchmarks._latencies import CLIENTS, Job
from benchmarks._process import Child
from benchmarks._rounds import Variant, joined, plain_table
from pyclient.testing import LocalCluster

MODULE: Final = "benchmarks._latencies"
RECORDS: Final = 2000
"""Of a client in a round."""
TRACED: Final = 300
STAGED: Final = ("pyclient send().result()", "pyclient await (await send())")
COLUMNS: Final = {"p50 µs": "{p50:.0f}", "p99 µs": "{p99:.0f}", "CPU µs/record": "{cpu:.0f}"}


class Must(NamedTuple):
    """Ours must have at most *most* times the peer's figure."""

    client: str
    peer: str
    figure: str
    most: float

    def ratio(self, found: Mapping[str, Mapping[str, float]]) -> float | None:
        """None when one of both was not measured."""
        if self.client not in found or self.peer not in found:
            return None
        return found[self.client][self.figure] / found[self.peer][self.figure]


MUSTS: Final = (
    *(Must("pyclient send().result()", "confluent, callback and poll", figure, most) for figure, most in (("p50", 1.0), ("p99", 1.0), ("cpu", 1.5))),
    *(Must("pyclient await (await send())", "aiokafka send_and_wait", figure, most) for figure, most in (("p50", 0.8), ("cpu", 0.5))),
    Must("pyclient send to poll", "confluent send to poll", "p50", 1.2),
)


# --- measuring -------------------------------------------------------------------------------------------------------


def measured(cluster: LocalCluster, clients: tuple[str, ...], rounds: int, records: int, chance: random.Random) -> dict[str, dict[str, float]]:
    """p50, p99 and CPU of each client."""
    with topic_of(cluster, 1) as topic:
        def ask(child: Child, variant: Variant, _number: int) -> dict[str, Any]:
            return child.ask(Job(variant.client, cluster.bootstrap_servers, topic, records))

        return _rounds.medians(_rounds.interleaved(MODULE, map(Variant, clients), rounds, chance, ask), "p50", "p99", "cpu")


def timelines(cluster: LocalCluster, clients: tuple[str, ...], records: int) -> dict[str, dict[str, dict[str, float]]]:
    """Stages of ours; calls, turns and system calls of all."""
    found: dict[str, dict[str, dict[str, float]]] = {"stages": {}, "counts": {}}
    with topic_of(cluster, 1) as topic:
        for client in clients:
            job = Job(client, cluster.bootstrap_servers, topic, records)
            with contextlib.closing(Child(MODULE)) as child:
                if client in STAGED:
                    found["stages"][client] = child.ask(job._replace(measure="stages"))
                found["counts"][client] = {**child.ask(job._replace(measure="counts")), "system_calls": system_calls(child, job)}
    return found


def system_calls(child: Child, job: Job) -> float:
    """A record, of all threads: the difference of two runs. NaN without strace, or where it may not look."""
    if shutil.which("strace") is None:
        return float("nan")
    few, many = (_traced(child, job._replace(records=count)) for count in (TRACED, 2 * TRACED))
    return (many - few) / TRACED


def _traced(child: Child, job: Job) -> float:
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder, "calls")
        with subprocess.Popen(["strace", "-f", "-c", "-o", str(summary), "-p", str(child.pid)], stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            attached = "attached" in tracer.stderr.readline()
            child.ask(job)
            tracer.send_signal(signal.SIGINT)
            tracer.communicate()
        return total_of(summary.read_text()) if attached else float("nan")


def total_of(summary: str) -> float:
    """The calls of a summary of strace: the fourth column of its last line."""
    rows = [line.split() for line in summary.splitlines() if line.strip().endswith("total")]
    return float(rows[-1][3]) if rows else float("nan")


# --- what is printed -------------------------------------------------------------------------------------------------


def musts_table(found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield "| pyclient | of | figure | times | must |"
    yield "| --- | --- | --- | --- | --- |"
    for must in MUSTS:
        if (ratio := must.ratio(found)) is not None:
            yield f"| {must.client} | {must.peer} | {must.figure} | {ratio:.2f} | ≤ {must.most}{'' if ratio <= must.most else ', missed'} |"


def stages_table(stages: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """A row for each stage, a column for each client; a stage that a client does not have stays empty."""
    yield "| µs of one record, with marks | " + " | ".join(stages) + " |"
    yield "| --- |" + " --- |" * len(stages)
    for stage in dict.fromkeys(stage for found in stages.values() for stage in found):
        yield f"| {stage} | " + " | ".join(f"{found[stage]:.0f}" if stage in found else "–" for found in stages.values()) + " |"


def written(results: Mapping[str, Any]) -> str:
    """Everything as Markdown, from figures as they stand in the JSON."""
    parts = [plain_table("One record, linger 0", results["latency"], COLUMNS), musts_table(results["latency"])]
    if timeline := results["timeline"]:
        parts += [stages_table(timeline["stages"]), plain_table(
            "A record takes", timeline["counts"], {"Python calls": "{calls:.0f}", "turns of loops": "{turns:.1f}", "system calls": "{system_calls:.1f}"})]
    return joined(parts)


# --- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, and how much of it."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=RECORDS, help=f"of a client in a round ({RECORDS:,})")
    parser.add_argument("--clients", metavar="TEXT", action="append", default=[], help="clients whose name holds it; may be repeated")
    parser.add_argument("--timeline", action="store_true", help="also stages, calls, turns and system calls")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="measure nothing: print the README's tables of a kept JSON file")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what was asked for, print the tables."""
    if arguments.markdown:
        return _rounds.from_kept(arguments, "latency", written)
    clients = _rounds.clients_wanted(arguments, CLIENTS)
    with a_broker({}) as cluster:
        found: dict[str, Any] = {
            "broker": cluster.description, "rounds": arguments.rounds, "versions": _rounds.versions(),
            "latency": measured(cluster, clients, arguments.rounds, arguments.records, random.Random(1)),
            "timeline": timelines(cluster, clients, arguments.records) if arguments.timeline else {},
        }
    print(written(found))
    return found
