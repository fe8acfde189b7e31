"""One record at a time: p50, p99 and CPU of all clients, side by side; with --timeline where the time goes.

Every client runs in a process of its own on one real broker, with linger 0; the caller waits for each record. Rounds
are interleaved in a random order, the clients of a case one after the other; figures are medians of the rounds. CPU is
that of the client's process, user and system, all threads.
"""
from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from benchmarks import _rounds
from benchmarks._access import PLAINTEXT, TLS, Login, access, servers
from benchmarks._broker import a_broker, topic_of
from benchmarks._latencies import AIOKAFKA, AWAIT, CLIENTS, CONFLUENT, CONFLUENT_POLL, ONE_SOCKET, POLL, SEND, Beside, Job
from benchmarks._process import Child
from benchmarks._rounds import Variant, joined, plain_table
from pyclient.testing import LocalCluster, Security

MODULE: Final = "benchmarks._latencies"
RECORDS: Final = 2000
"""Of a client in a round."""
TRACED: Final = 300
STAGED: Final = (SEND, AWAIT)
COLUMNS: Final = {"p50 µs": "{p50:.0f}", "p99 µs": "{p99:.0f}", "CPU µs/record": "{cpu:.0f}"}
Found: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float]]]
"""The figures of each client of each case."""


class Case(NamedTuple):
    """What its clients do with each record: where it goes, how it is compressed, what else is called for it."""

    name: str
    clients: tuple[str, ...] = (CONFLUENT, SEND)
    login: Login = PLAINTEXT
    codec: str = "none"
    beside: Beside = "nothing"

    def job(self, cluster: LocalCluster, client: str, topic: str, records: int) -> Job:
        to = access(cluster, *self.login)
        return Job(client, servers(cluster, to), topic, records, to, self.codec, self.beside)


CASES: Final = (
    Case("plaintext", tuple(CLIENTS)),
    Case("lz4", codec="lz4"),
    Case("interceptor", beside="interceptor"),
    Case("callback", beside="callback"),
    Case("TLS, SCRAM-SHA-512", (CONFLUENT, SEND, AIOKAFKA, AWAIT, CONFLUENT_POLL, POLL, ONE_SOCKET), TLS),
)


class Must(NamedTuple):
    """Ours must have at most *most* times the peer's figure."""

    case: str
    client: str
    peer: str
    figure: str
    most: float

    def ratio(self, found: Found) -> float | None:
        """None when one of both was not measured."""
        clients = found.get(self.case, {})
        if self.client not in clients or self.peer not in clients:
            return None
        return clients[self.client][self.figure] / clients[self.peer][self.figure]


def musts(client: str, peer: str, **most: float) -> Iterator[Must]:
    """Of every case that has both."""
    return (Must(case.name, client, peer, figure, limit) for case in CASES if {client, peer} <= {*case.clients} for figure, limit in most.items())


MUSTS: Final = (
    *musts(SEND, CONFLUENT, p50=1.0, p99=1.1, cpu=1.2), *musts(AWAIT, AIOKAFKA, p50=0.6, cpu=0.4), *musts(POLL, CONFLUENT_POLL, p50=1.1, cpu=1.5),
)


# --- measuring -------------------------------------------------------------------------------------------------------


def measured(cluster: LocalCluster, cases: Sequence[Case], rounds: int, records: int, chance: random.Random) -> dict[str, dict[str, dict[str, float]]]:
    """p50, p99 and CPU of each client in each case."""
    known = {case.name: case for case in cases}
    with topic_of(cluster, 1) as topic:
        def ask(child: Child, variant: Variant, _number: int) -> dict[str, Any]:
            return child.ask(known[variant.case].job(cluster, variant.client, topic, records))

        those = [Variant(client, case=case.name) for case in cases for client in case.clients]
        taken = _rounds.interleaved(MODULE, those, rounds, chance, ask)
    return {name: _rounds.medians({each: taken[each] for each in taken if each.case == name}, "p50", "p99", "cpu") for name in known}


def timelines(cluster: LocalCluster, cases: Sequence[Case], records: int) -> dict[str, dict[str, dict[str, float]]]:
    """Stages of ours; calls, turns and system calls of all."""
    with topic_of(cluster, 1) as topic:
        rows = {f"{client}, {case.name}": timeline_of(case.job(cluster, client, topic, records)) for case in cases for client in case.clients}
    return {kind: {row: found[kind] for row, found in rows.items() if kind in found} for kind in ("stages", "counts")}


def timeline_of(job: Job) -> dict[str, dict[str, float]]:
    """Of one client in one case."""
    with contextlib.closing(Child(MODULE)) as child:
        stages = {"stages": child.ask(job._replace(measure="stages"))} if job.client in STAGED else {}
        return {**stages, "counts": {**child.ask(job._replace(measure="counts")), "system_calls": system_calls(child, job)}}


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


def musts_table(found: Found) -> Iterator[str]:
    yield "| Case | pyclient | of | figure | times | must |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for must in MUSTS:
        if (ratio := must.ratio(found)) is not None:
            yield f"| {must.case} | {must.client} | {must.peer} | {must.figure} | {ratio:.2f} | ≤ {must.most}{'' if ratio <= must.most else ', missed'} |"


def stages_table(stages: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """A row for each stage, a column for each client; a stage that a client does not have stays empty."""
    yield "| µs of one record, with marks | " + " | ".join(stages) + " |"
    yield "| --- |" + " --- |" * len(stages)
    for stage in dict.fromkeys(stage for found in stages.values() for stage in found):
        yield f"| {stage} | " + " | ".join(f"{found[stage]:.0f}" if stage in found else "–" for found in stages.values()) + " |"


def written(results: Mapping[str, Any]) -> str:
    """Everything as Markdown, from figures as they stand in the JSON."""
    parts = [*(plain_table(f"One record, linger 0: {case}", clients, COLUMNS) for case, clients in results["latency"].items()), musts_table(results["latency"])]
    if timeline := results["timeline"]:
        parts += [stages_table(timeline["stages"]), plain_table(
            "A record takes", timeline["counts"], {"Python calls": "{calls:.0f}", "turns of loops": "{turns:.1f}", "system calls": "{system_calls:.1f}"})]
    return joined(parts)


# --- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, and how much of it."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=RECORDS, help=f"of a client in a round ({RECORDS:,})")
    parser.add_argument("--only", "--cases", metavar="TEXT", action="append", default=[], help="cases whose name holds it; may be repeated")
    parser.add_argument("--clients", metavar="TEXT", action="append", default=[], help="clients whose name holds it; may be repeated")
    parser.add_argument("--timeline", action="store_true", help="also stages, calls, turns and system calls")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="measure nothing: print the README's tables of a kept JSON file")


def chosen(arguments: argparse.Namespace) -> list[Case]:
    """The cases that were asked for, with the clients that were; no case without clients."""
    wanted = [case for case in CASES if any(text in case.name for text in arguments.only or [""])]
    narrowed = [case._replace(clients=_rounds.clients_wanted(arguments, case.clients)) for case in wanted]
    return [case for case in narrowed if case.clients]


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what was asked for, print the tables."""
    if arguments.markdown:
        return _rounds.from_kept(arguments, "latency", written)
    cases = chosen(arguments)
    with a_broker({}, Security()) as cluster:
        found: dict[str, Any] = {
            "broker": cluster.description, "rounds": arguments.rounds, "versions": _rounds.versions(),
            "latency": measured(cluster, cases, arguments.rounds, arguments.records, random.Random(1)),
            "timeline": timelines(cluster, cases, arguments.records) if arguments.timeline else {},
        }
    print(written(found))
    return found
