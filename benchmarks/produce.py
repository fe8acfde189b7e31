"""Producers on one real broker, beside the other clients: CPU and time per record, latency of one record, memory.

Every client runs in a process of its own, so that CPU is the client's alone (user and system, all threads). Rounds are interleaved
in a random order; a figure is the median of the rounds. The clock starts with the first call and stops when every outcome is known;
topics' end offsets are compared after each round. Peers run with their defaults, and *tuned*: with the batches that suit them best.
"""
from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import random
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks._clients import Job
from pyclient import Admin, NewTopic
from pyclient.testing import LocalCluster

ROOT: Final = Path(__file__).resolve().parent.parent
OURS: Final = ("pyclient send", "pyclient send, each looked at", "pyclient send_many", "pyclient send_arrow")
SYNC: Final = (*OURS, "confluent + callback", "confluent", "kafka-python")
ASYNC: Final = ("pyclient async", "aiokafka", "confluent AIO")
COUNTS: Final = {"pyclient": 1_000_000, "confluent": 300_000, "confluent AIO": 80_000, "kafka-python": 20_000, "aiokafka": 60_000}
"""Records of a round, by the first words of a client's name: about a second of work each."""
AT_ONCE: Final = 2000
MOST_BYTES: Final = 128 * 1024 * 1024
PACKAGES: Final = ("confluent-kafka", "kafka-python", "aiokafka", "cramjam", "Cython")
HEAP: Final = "-Xmx1500m"
"""For the broker: ten thousand partitions do not fit into what it has for tests. This variable overrides its own flags."""
BROKER: Final = {
    "log.retention.bytes": 64 * 2**20, "log.segment.bytes": 32 * 2**20, "log.retention.check.interval.ms": 5000,
    "broker.session.timeout.ms": 30_000, "broker.heartbeat.interval.ms": 2000,  # a busy broker must not be taken for a dead one
}
MANY: Final = 10_000
"""So many partitions get a broker of their own: one that still deletes the last ones makes no new ones for minutes."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class Case(NamedTuple):
    """What all clients do in turn."""

    name: str
    size: int = 100
    spread: str = "sticky"
    codec: str = "none"
    partitions: int = 6
    clients: tuple[str, ...] = (*SYNC, *ASYNC)


CASES: Final = (
    Case("100 B"),
    Case("1 KiB", size=1024),
    Case("10 KiB", size=10_240),
    Case("keys", spread="keys"),
    *(Case(codec, codec=codec) for codec in CODECS[1:]),
    *(Case(f"{count:,} partitions, {spread}", partitions=count, spread=spread)
      for count in (1000, MANY) for spread in ("sticky", "turns", "random")),
)
BOUNDS: Final = (
    ("100 B", "pyclient send", "confluent + callback", 5.0), ("100 B", "pyclient send", "confluent", 3.5),
    ("100 B", "pyclient send_many", "confluent + callback", 8.0), ("100 B", "pyclient send_arrow", "confluent + callback", 8.0),
    ("100 B", "pyclient async", "aiokafka", 20.0), ("100 B", "pyclient async", "confluent AIO", 20.0),
    *((f"{count:,} partitions, {spread}", "pyclient send", "confluent + callback", 4.0) for count in (1000, 10_000) for spread in ("turns", "random")),
)
"""How many times less CPU ours must take than a peer's best."""


class Variant(NamedTuple):
    """A client, with its defaults or tuned."""

    client: str
    tuned: bool

    @property
    def name(self) -> str:
        return f"{self.client}, tuned" if self.tuned else self.client

    @property
    def peer(self) -> bool:
        return not self.client.startswith("pyclient")


class Child:
    """A process that measures one client."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "benchmarks._clients"], cwd=ROOT, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, job: Job) -> dict[str, Any]:
        self.tell(json.dumps(job._asdict()))
        answer: dict[str, Any] = json.loads(self.hear())
        return answer

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"a client's process ended with exit code {self._process.wait()}; its error is above")
        return line

    def close(self) -> None:
        with self._process as process:
            process.kill()


class Figure(NamedTuple):
    """Medians of the rounds; CPU in µs per record, and of the best round."""

    cpu_us: float
    best_us: float
    records_per_s: float
    records: int


Results = dict[str, dict[str, Figure]]


# --- throughput ------------------------------------------------------------------------------------------------------


def variants(case: Case) -> list[Variant]:
    """Ours as it is; each peer with its defaults and tuned."""
    return [Variant(client, tuned) for client in case.clients for tuned in (False, True) if not tuned or not client.startswith("pyclient")]


def count(variant: Variant, case: Case, scale: float) -> int:
    name = next(name for name in sorted(COUNTS, key=len, reverse=True) if variant.client.startswith(name))
    return max(1000, min(int(COUNTS[name] * scale), MOST_BYTES // case.size))


def measured(cluster: LocalCluster, case: Case, rounds: int, scale: float, chance: random.Random) -> dict[str, Figure]:
    """One case: a child for each variant, as long as the case lasts."""
    taken: dict[Variant, list[dict[str, Any]]] = {variant: [] for variant in variants(case)}
    with contextlib.ExitStack() as ends:
        topic = ends.enter_context(topic_of(cluster, case.partitions))
        children = {variant: ends.enter_context(contextlib.closing(Child())) for variant in taken}
        stored = 0
        for number in range(rounds + 1):  # the first warms up broker, caches and imports
            for variant in chance.sample(list(children), len(children)):
                answer = children[variant].ask(Job(
                    variant.client, variant.tuned, cluster.bootstrap_servers, topic, case.partitions,
                    count(variant, case, scale if number else scale / 4), case.size, case.spread, case.codec))
                if "missing" in answer:
                    print(f"  left out: {variant.name}: {answer['missing']}")
                    children.pop(variant)
                    continue
                stored += answer["stored"]
                if (there := end_offsets(cluster, topic, case.partitions)) != stored:
                    raise RuntimeError(f"{variant.name} in {case.name}: {stored} records were delivered, the topic holds {there}")
                if number:
                    taken[variant].append(answer)
    return {variant.name: figure(answers) for variant, answers in taken.items() if answers}


def figure(answers: list[dict[str, Any]]) -> Figure:
    cpu = [answer["cpu"] / answer["records"] * 1e6 for answer in answers]
    return Figure(statistics.median(cpu), min(cpu), statistics.median(answer["records"] / answer["seconds"] for answer in answers), answers[0]["records"])


def a_broker() -> LocalCluster:
    return LocalCluster(mode="embedded", config=BROKER)


@contextlib.contextmanager
def topic_of(cluster: LocalCluster, partitions: int) -> Iterator[str]:
    """A new topic whose partitions all have leaders that know it; gone afterwards."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=120_000, default_api_timeout_ms=300_000) as admin:
        admin.create_topics([NewTopic(name, min(partitions, AT_ONCE), 1)])
        for total in range(2 * AT_ONCE, partitions + AT_ONCE, AT_ONCE):
            grow(cluster, name, min(total, partitions))
        await_leaders(cluster, name, partitions)
        yield name
        admin.delete_topics([name])


def grow(cluster: LocalCluster, topic: str, total: int) -> None:
    """More partitions: a controller refuses to make very many at once."""
    from confluent_kafka import admin

    wanted: Any = vars(admin)["NewPartitions"](topic, total)  # exported, but not to type checkers
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})  # its end would end the request
    for each in client.create_partitions([wanted], request_timeout=120).values():
        each.result()


def await_leaders(cluster: LocalCluster, topic: str, partitions: int, limit_s: float = 180) -> None:
    """A topic that has just been made is refused for a while; retries must be in nobody's figures."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + limit_s
    while True:
        try:
            end_offsets(cluster, topic, partitions)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def end_offsets(cluster: LocalCluster, topic: str, partitions: int) -> int:
    """How many records the leader says were ever appended; asked through librdkafka, whatever client wrote them."""
    from confluent_kafka import TopicPartition, admin

    newest: Any = vars(admin)["OffsetSpec"].latest()  # exported, but not to type checkers
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    asked = client.list_offsets({TopicPartition(topic, number): newest for number in range(partitions)}, request_timeout=60)
    return sum(each.result().offset for each in asked.values())


# --- latency, memory -------------------------------------------------------------------------------------------------


def latencies(cluster: LocalCluster, rounds: int, records: int) -> dict[str, dict[str, float]]:
    """One record at a time; ours and librdkafka's in turns."""
    clients = ("pyclient send", "confluent + callback")
    taken: dict[str, list[dict[str, Any]]] = {client: [] for client in clients}
    with contextlib.ExitStack() as ends:
        topic = ends.enter_context(topic_of(cluster, 1))
        children = {client: ends.enter_context(contextlib.closing(Child())) for client in clients}
        for _ in range(rounds):
            for client, child in children.items():
                taken[client].append(child.ask(Job(client, False, cluster.bootstrap_servers, topic, 1, records, 100, "sticky", "none", "latency")))
    return {client: {what: statistics.median(answer[what] for answer in answers) for what in ("p50", "p99")} for client, answers in taken.items()}


def growths(cluster: LocalCluster) -> dict[str, dict[str, Any]]:
    """What a producer grows by while its broker is frozen and it is given all it takes."""
    found = {}
    for codec in CODECS:
        with topic_of(cluster, 6) as topic, contextlib.closing(Child()) as child:
            child.tell(json.dumps(Job("pyclient send", False, cluster.bootstrap_servers, topic, 6, 1, 100, "sticky", codec, "memory")._asdict()))
            child.hear()
            cluster.pause()
            try:
                child.tell("go")
                found[codec] = json.loads(child.hear())
            finally:
                cluster.resume()
    return found


# --- what is printed -------------------------------------------------------------------------------------------------


def table(results: Mapping[str, Mapping[str, Figure]]) -> Iterator[str]:
    """Markdown: a row for each case and client."""
    yield "| Case | Client | CPU µs/record (best) | records/s | CPU / `send`'s or async's |"
    yield "| --- | --- | --- | --- | --- |"
    for case, figures in results.items():
        for name, found in figures.items():
            own = figures.get("pyclient async" if name.startswith(ASYNC) else "pyclient send")
            ratio = f"{found.cpu_us / own.cpu_us:.1f}×" if own else "–"
            yield f"| {case} | {name} | {found.cpu_us:.3f} ({found.best_us:.3f}) | {found.records_per_s:,.0f} | {ratio} |"


def bounds(results: Mapping[str, Mapping[str, Figure]]) -> Iterator[dict[str, Any]]:
    """The ratios that must be reached, against a peer's better setting."""
    for case, ours, peer, least in BOUNDS:
        figures = results.get(case, {})
        theirs = [found.cpu_us for name, found in figures.items() if name in (peer, f"{peer}, tuned")]
        if ours in figures and theirs:
            yield {"case": case, "client": ours, "peer": peer, "times_less_cpu": min(theirs) / figures[ours].cpu_us, "must": least}


def bounds_table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield "| Case | pyclient | against the best of | times less CPU | must |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows:
        yield f"| {row['case']} | {row['client']} | {row['peer']} | {row['times_less_cpu']:.1f}× | {row['must']}× |"


def latency_table(found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield "| One record, linger 0 | p50 µs | p99 µs |"
    yield "| --- | --- | --- |"
    for client, row in found.items():
        yield f"| {client} | {row['p50']:.0f} | {row['p99']:.0f} |"


def memory_table(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| Frozen broker, codec | peak growth MiB | of buffer_memory |"
    yield "| --- | --- | --- |"
    for codec, row in found.items():
        yield f"| {codec} | {row['grown'] / 2**20:.1f} | {row['grown'] / row['buffer']:.2f}× |"


def written(results: Mapping[str, Any]) -> str:
    """Everything as Markdown, from figures as they stand in the JSON."""
    throughput = {case: {name: Figure(**found) for name, found in figures.items()} for case, figures in results["throughput"].items()}
    parts = [table(throughput), bounds_table(results["bounds"])]
    if results["latency"]:
        parts.append(latency_table(results["latency"]))
    if results["memory"]:
        parts.append(memory_table(results["memory"]))
    return "\n\n".join("\n".join(part) for part in parts)


def described(document: Mapping[str, Any]) -> str:
    """The section of the README: when, where and with what, then the tables."""
    results = document["produce"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return (f"{document['date'][:10]}, CPython {document['python']}, {document['machine']}, {results['broker']}; {versions}. "
            f"Medians of {results['rounds']} interleaved rounds.\n\n{written(results)}\n")


# --- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, and how much of it."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, metavar="TIMES", help="more or fewer records in a round (1.0)")
    parser.add_argument("--quick", action="store_true", help="the first case, latency and memory; fewer records")
    parser.add_argument("--only", metavar="TEXT", action="append", default=[], help="cases (or latency, memory) whose name holds it; may be repeated")
    parser.add_argument("--clients", metavar="TEXT", action="append", default=[], help="clients whose name holds it; may be repeated")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="measure nothing: print the README's tables of a kept JSON file")


def wanted(arguments: argparse.Namespace, name: str) -> bool:
    return any(text in name for text in arguments.only) if arguments.only else not arguments.quick or name in ("100 B", "latency", "memory")


def chosen(arguments: argparse.Namespace) -> list[Case]:
    """The cases that were asked for, with the clients that were."""
    texts = arguments.clients or [""]
    return [case._replace(clients=tuple(client for client in case.clients if any(text in client for text in texts)))
            for case in CASES if wanted(arguments, case.name)]


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what was asked for, print the tables."""
    if arguments.markdown:
        document = json.loads(arguments.markdown.read_text())
        print(described(document))
        return dict(document["produce"])
    scale, chance, results = arguments.scale * (0.25 if arguments.quick else 1.0), random.Random(1), Results()
    os.environ.setdefault("_JAVA_OPTIONS", HEAP)
    with a_broker() as cluster:
        for case in chosen(arguments):
            with a_broker() if case.partitions >= MANY else contextlib.nullcontext(cluster) as its:
                results[case.name] = measured(its, case, arguments.rounds, scale, chance)
            print("\n".join(table({case.name: results[case.name]})), flush=True)  # the whole takes an hour, and may be broken off
        latency = latencies(cluster, arguments.rounds, 1000) if wanted(arguments, "latency") else {}
        memory = growths(cluster) if wanted(arguments, "memory") else {}
        found = {
            "broker": cluster.description, "rounds": arguments.rounds,
            "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
            "throughput": {case: {name: each._asdict() for name, each in figures.items()} for case, figures in results.items()},
            "bounds": list(bounds(results)), "latency": latency, "memory": memory,
        }
    print(written(found))
    return found
