"""Consumers on one real broker, beside the other clients.

Measures CPU and time per record, time to the first record, and end-to-end latency. Every client runs in a process of
its own, so that CPU (user and system, all threads) is the client's alone. Rounds are interleaved in a random order; a
figure is the median of the rounds. Topics are filled once, by our producer. The clock starts before partitions are
assigned and stops when the last value was read. Every run must have read all records of the topic, and its positions
must be the end offsets. Peers run with their defaults, and *tuned*: with the fetch settings that suit them best.
"""
from __future__ import annotations

import argparse
import contextlib
import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from benchmarks import _rounds
from benchmarks._access import OPEN, Access, servers
from benchmarks._broker import a_broker, end_offsets, topic_of
from benchmarks._consumers import JAVA, Job
from benchmarks._process import Child
from benchmarks._producers import CHUNK, values_of
from benchmarks._rounds import Bound, Figure, Results, Variant, joined, latency_table, plain_table, reached, table, throughput_tables
from pyclient import Producer
from pyclient.testing import LocalCluster

CONSUMERS: Final = "benchmarks._consumers"
OURS: Final = ("pyclient for", "pyclient poll", "pyclient poll(10,000)", "pyclient to_arrow")
OURS_ASYNC: Final = ("pyclient async for", "pyclient async poll(10,000)", "pyclient async to_arrow")
PEERS: Final = ("confluent poll", "confluent consume(500)", "kafka-python for", "kafka-python poll", JAVA)
PEERS_ASYNC: Final = ("aiokafka for", "aiokafka getmany", "confluent AIO consume(500)")
FIRST: Final = ("pyclient for", "pyclient async for", "confluent poll", "kafka-python for", "aiokafka for")
ROUND_TRIP: Final = ("pyclient", "confluent")
RECORDS: Final = 8_000_000
PARTS: Final = {"": 8, "pyclient": 1, "confluent consume": 4, JAVA: 2, "confluent AIO": 16, "aiokafka": 16, "kafka-python": 80}
"""A client reads `RECORDS` divided by this, by the first words of its name.

Each then works for about a second, beside which a first fetch does not count.
"""
SIZE: Final = 100
FEW: Final = 10_000
"""Records of the topic whose first one is awaited."""
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
BROKER: Final = {"log.retention.bytes": -1, "log.retention.ms": -1}


class Case(NamedTuple):
    """What all clients do in turn."""

    name: str
    codec: str = "none"
    partitions: int = 6
    batch: int | None = None
    """The most bytes of a batch in the log; None: our producer's default."""
    size: int = SIZE
    clients: tuple[str, ...] = (*OURS, *PEERS, *OURS_ASYNC, *PEERS_ASYNC)


CASES: Final = (
    Case("100 B"),
    Case("16 KiB batches", batch=16_384),
    *(Case(codec, codec) for codec in CODECS),
    Case("1,000 partitions", partitions=1000),
)
BOUNDS: Final = (
    *(Bound("100 B", client, "confluent consume(500)", 4.0) for client in OURS[:3]),
    *(Bound("100 B", client, "confluent consume(500)", 5.0, "records/s") for client in OURS[:3]),
    Bound("100 B", "pyclient to_arrow", "confluent consume(500)", 6.0),
)


# --- throughput ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def filled(cluster: LocalCluster, case: Case, records: int) -> Iterator[str]:
    """A topic with *records* records, spread evenly."""
    with topic_of(cluster, case.partitions) as topic:
        fill(cluster, case, topic, records)
        if (there := end_offsets(cluster, topic, case.partitions)) != records:
            raise RuntimeError(f"{records} records were sent for {case.name}, the topic holds {there}")
        yield topic


def fill(cluster: LocalCluster, case: Case, topic: str, records: int) -> None:
    """Chunk by chunk, partitions in turn."""
    sizes = [records // case.partitions + (number < records % case.partitions) for number in range(case.partitions)]
    values = (values_of(case.size) * (CHUNK // len(values_of(case.size)) + 1))[:CHUNK]
    batch: dict[str, Any] = {} if case.batch is None else {"batch_size": case.batch}
    with Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type=case.codec, max_block_ms=120_000, **batch) as producer:  # type: ignore[arg-type]
        for first in range(0, max(sizes), CHUNK):
            for number, size in enumerate(sizes):
                if first < size:
                    producer.send_many(topic, values[:size - first], partition=number)
        producer.flush()


def count(client: str, records: int) -> int:
    return max(1000, records // _rounds.count_of(PARTS, client))


def measured(cluster: LocalCluster, case: Case, rounds: int, records: int, chance: random.Random, to: Access = OPEN) -> dict[str, Figure]:
    """One case: all clients read topics filled alike; slow ones a smaller one."""
    with contextlib.ExitStack() as ends:
        counts = {count(client, records) for client in case.clients}
        topics = {each: ends.enter_context(filled(cluster, case, each)) for each in sorted(counts)}

        def ask(child: Child, variant: Variant, _number: int) -> dict[str, Any]:
            mine = count(variant.client, records)
            return child.ask(Job(variant.client, variant.tuned, servers(cluster, to), topics[mine], case.partitions, mine, case.size, access=to))

        return _rounds.figures(_rounds.interleaved(CONSUMERS, _rounds.variants(case.clients), rounds, chance, ask))


# --- first record, latency -------------------------------------------------------------------------------------------


def first_records(cluster: LocalCluster, clients: tuple[str, ...], rounds: int, chance: random.Random) -> dict[str, dict[str, float]]:
    """How long a member of a new group needs to its first record, the client's start included."""
    case = Case("first record")
    with filled(cluster, case, FEW) as topic:
        def ask(child: Child, variant: Variant, _number: int) -> dict[str, Any]:
            return child.ask(Job(variant.client, False, cluster.bootstrap_servers, topic, case.partitions, FEW, SIZE, "first"))

        return _rounds.medians(_rounds.interleaved(CONSUMERS, map(Variant, clients), rounds, chance, ask), "ms")


def round_trips(cluster: LocalCluster, clients: tuple[str, ...], rounds: int, records: int, chance: random.Random) -> dict[str, dict[str, float]]:
    """One record at a time through the broker."""
    with topic_of(cluster, 1) as topic:
        def ask(child: Child, variant: Variant, _number: int) -> dict[str, Any]:
            return child.ask(Job(variant.client, False, cluster.bootstrap_servers, topic, 1, records, SIZE, "latency"))

        return _rounds.medians(_rounds.interleaved(CONSUMERS, map(Variant, clients), rounds, chance, ask), "p50", "p99")


# --- what is printed -------------------------------------------------------------------------------------------------


def own(client: str) -> str:
    """Which of ours a client is compared with."""
    return "pyclient async for" if client.startswith(("pyclient async", "aiokafka", "confluent AIO")) else "pyclient for"


def extra_tables(results: Mapping[str, Any]) -> Iterator[Iterator[str]]:
    if results["first"]:
        yield plain_table("New group, until the first record", results["first"], {"ms": "{ms:.0f}"})
    if results["latency"]:
        yield latency_table("From send to poll, one record, linger 0", results["latency"])


def written(results: Mapping[str, Any]) -> str:
    """Everything as Markdown, from figures as they stand in the JSON."""
    throughput = _rounds.kept(results["throughput"])
    return joined(itertools.chain(throughput_tables(throughput, own, BOUNDS), extra_tables(results)))


# --- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, and how much of it."""
    _rounds.add_arguments(parser, ("100 B", "first", "latency"))
    parser.add_argument("--records", type=int, default=RECORDS, help=f"of a topic that our consumer reads ({RECORDS:,}); some peers read a part of it")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what was asked for, print the tables."""
    if arguments.markdown:
        return _rounds.from_kept(arguments, "consume", written)
    records, rounds, chance, results = int(arguments.records * _rounds.scale_of(arguments)), arguments.rounds, random.Random(1), Results()
    found: dict[str, Any] = {"first": {}, "latency": {}}
    with a_broker(BROKER) as cluster:
        for case in _rounds.chosen(arguments, CASES):
            results[case.name] = measured(cluster, case, rounds, records, chance)
            print("\n".join(table({case.name: results[case.name]}, own)), flush=True)  # the whole takes long, and may be broken off
        if _rounds.wanted(arguments, "first"):
            found["first"] = first_records(cluster, _rounds.clients_wanted(arguments, FIRST), rounds, chance)
        if _rounds.wanted(arguments, "latency"):
            found["latency"] = round_trips(cluster, _rounds.clients_wanted(arguments, ROUND_TRIP), rounds, min(1000, records), chance)
        found |= {
            "broker": cluster.description, "rounds": rounds, "versions": _rounds.versions(), "records": records,
            "throughput": {case: {name: each._asdict() for name, each in those.items()} for case, those in results.items()},
            "bounds": reached(BOUNDS, results),
        }
    print(written(found))
    return found
