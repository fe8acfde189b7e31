"""Producers on one real broker, beside the other clients: CPU and time per record, latency of one record, memory.

Every client runs in a process of its own, so that CPU (user and system, all threads) is the client's alone. Rounds are
interleaved in a random order; a figure is the median of the rounds. The clock starts with the first call and stops when
every outcome is known; topics' end offsets are compared after each round. Peers run with their defaults, and *tuned*:
with the batches that suit them best.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from benchmarks import _rounds
from benchmarks._access import OPEN, Access, servers
from benchmarks._broker import a_broker, end_offsets, topic_of
from benchmarks._producers import Job
from benchmarks._process import Child
from benchmarks._rounds import Bound, Figure, Results, Variant, joined, latency_table, reached, table, throughput_tables, variants
from pyclient.testing import LocalCluster

OURS: Final = ("pyclient send", "pyclient send, each looked at", "pyclient send_many", "pyclient send_arrow")
SYNC: Final = (*OURS, "confluent + callback", "confluent", "kafka-python")
ASYNC: Final = ("pyclient async", "aiokafka", "confluent AIO")
COUNTS: Final = {"pyclient": 1_000_000, "confluent": 300_000, "confluent AIO": 80_000, "kafka-python": 20_000, "aiokafka": 60_000}
"""Records of a round, by the first words of a client's name: about a second of work each."""
MOST_BYTES: Final = 128 * 1024 * 1024
BROKER: Final = {"log.retention.bytes": 64 * 2**20, "log.segment.bytes": 32 * 2**20, "log.retention.check.interval.ms": 5000}
MANY: Final = 10_000
"""So many partitions get a broker of their own: one that still deletes the last ones makes no new ones for minutes."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PRODUCERS: Final = "benchmarks._producers"


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
    Bound("100 B", "pyclient send", "confluent + callback", 5.0), Bound("100 B", "pyclient send", "confluent", 3.5),
    Bound("100 B", "pyclient send_many", "confluent + callback", 8.0), Bound("100 B", "pyclient send_arrow", "confluent + callback", 8.0),
    Bound("100 B", "pyclient async", "aiokafka", 20.0), Bound("100 B", "pyclient async", "confluent AIO", 20.0),
    *(Bound(f"{count:,} partitions, {spread}", "pyclient send", "confluent + callback", 4.0) for count in (1000, 10_000) for spread in ("turns", "random")),
)


# --- throughput ------------------------------------------------------------------------------------------------------


def count(variant: Variant, case: Case, scale: float) -> int:
    return max(1000, min(int(_rounds.count_of(COUNTS, variant.client) * scale), MOST_BYTES // case.size))


def measured(cluster: LocalCluster, case: Case, rounds: int, scale: float, chance: random.Random, to: Access = OPEN) -> dict[str, Figure]:
    """One case: all its clients send to one topic."""
    stored = 0
    with topic_of(cluster, case.partitions) as topic:
        def ask(child: Child, variant: Variant, number: int) -> dict[str, Any]:
            nonlocal stored
            answer = child.ask(Job(
                variant.client, variant.tuned, servers(cluster, to), topic, case.partitions,
                count(variant, case, scale if number else scale / 4), case.size, case.spread, case.codec, access=to))
            stored += answer.get("stored", 0)
            if (there := end_offsets(cluster, topic, case.partitions)) != stored:
                raise RuntimeError(f"{variant.name} in {case.name}: {stored} records were delivered, the topic holds {there}")
            return answer

        return _rounds.figures(_rounds.interleaved(PRODUCERS, variants(case.clients), rounds, chance, ask))


# --- latency, memory -------------------------------------------------------------------------------------------------


def latencies(cluster: LocalCluster, rounds: int, records: int, chance: random.Random) -> dict[str, dict[str, float]]:
    """One record at a time; ours and librdkafka's in turns."""
    with topic_of(cluster, 1) as topic:
        def ask(child: Child, variant: Variant, _number: int) -> dict[str, Any]:
            return child.ask(Job(variant.client, False, cluster.bootstrap_servers, topic, 1, records, 100, "sticky", "none", "latency"))

        return _rounds.medians(_rounds.interleaved(PRODUCERS, map(Variant, ("pyclient send", "confluent + callback")), rounds, chance, ask), "p50", "p99")


def growths(cluster: LocalCluster) -> dict[str, dict[str, Any]]:
    """What a producer grows by while its broker is frozen and it is given all it takes."""
    found = {}
    for codec in CODECS:
        with topic_of(cluster, 6) as topic, contextlib.closing(Child(PRODUCERS)) as child:
            child.send_line(json.dumps(Job("pyclient send", False, cluster.bootstrap_servers, topic, 6, 1, 100, "sticky", codec, "memory")._asdict()))
            child.hear()
            cluster.pause()
            try:
                child.send_line("go")
                found[codec] = json.loads(child.hear())
            finally:
                cluster.resume()
    return found


# --- what is printed -------------------------------------------------------------------------------------------------


def own(client: str) -> str:
    """Which of ours a client is compared with."""
    return "pyclient async" if client.startswith(ASYNC) else "pyclient send"


def memory_table(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| Frozen broker, codec | peak growth MiB | of buffer_memory |"
    yield "| --- | --- | --- |"
    for codec, row in found.items():
        yield f"| {codec} | {row['grown'] / 2**20:.1f} | {row['grown'] / row['buffer']:.2f}× |"


def written(results: Mapping[str, Any]) -> str:
    """Everything as Markdown, from figures as they stand in the JSON."""
    throughput = _rounds.kept(results["throughput"])
    parts = list(throughput_tables(throughput, own, BOUNDS))
    if results["latency"]:
        parts.append(latency_table("One record, linger 0", results["latency"]))
    if results["memory"]:
        parts.append(memory_table(results["memory"]))
    return joined(parts)


# --- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, and how much of it."""
    _rounds.add_arguments(parser, ("100 B", "latency", "memory"))


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what was asked for, print the tables."""
    if arguments.markdown:
        return _rounds.from_kept(arguments, "produce", written)
    scale, chance, results = _rounds.scale_of(arguments), random.Random(1), Results()
    with a_broker(BROKER) as cluster:
        for case in _rounds.chosen(arguments, CASES):
            with a_broker(BROKER) if case.partitions >= MANY else contextlib.nullcontext(cluster) as its:
                results[case.name] = measured(its, case, arguments.rounds, scale, chance)
            print("\n".join(table({case.name: results[case.name]}, own)), flush=True)  # the whole takes an hour, and may be broken off
        latency = latencies(cluster, arguments.rounds, 1000, chance) if _rounds.wanted(arguments, "latency") else {}
        memory = growths(cluster) if _rounds.wanted(arguments, "memory") else {}
        found = {
            "broker": cluster.description, "rounds": arguments.rounds, "versions": _rounds.versions(),
            "throughput": {case: {name: each._asdict() for name, each in measured.items()} for case, measured in results.items()},
            "bounds": reached(BOUNDS, results), "latency": latency, "memory": memory,
        }
    print(written(found))
    return found
