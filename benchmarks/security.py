"""TLS and logins beside confluent-kafka: CPU and time per record with and without TLS, and time of a new connection.

As in `produce` and `consume`, each client runs in a process of its own, rounds are interleaved in a random order, and
figures are medians. One broker has all listeners. Topics are filled without TLS. The time of a connection is that of a
new client until its first request is answered, with TLS, login and the key derivation of SCRAM. The token of
OAUTHBEARER is fetched before.
"""
from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

from benchmarks import _rounds, consume, produce
from benchmarks._access import PLAINTEXT, TLS, Login, access, servers
from benchmarks._broker import HEAP, a_broker
from benchmarks._connections import CONNECTORS, Job
from benchmarks._process import Child
from benchmarks._rounds import Bound, Results, Variant, joined, plain_table, reached, table, throughput_tables
from pyclient.testing import LocalCluster, Security

PRODUCERS: Final = ("pyclient send", "pyclient send_many", "pyclient send_arrow", "confluent + callback", "confluent")
CONSUMERS: Final = ("pyclient for", "pyclient poll", "pyclient poll(10,000)", "pyclient to_arrow", "confluent consume(500)", "confluent poll")
SIZES: Final = {"100 B": 100, "1 KiB": 1024}
PROTOCOLS: Final = {"TLS": "SSL", "plain": "PLAINTEXT"}
PRODUCE: Final = {protocol: tuple(produce.Case(f"produce {name}, {protocol}", size=size, clients=PRODUCERS) for name, size in SIZES.items()) for protocol in PROTOCOLS}
CONSUME: Final = {protocol: tuple(consume.Case(f"consume {name}, {protocol}", size=size, clients=CONSUMERS) for name, size in SIZES.items()) for protocol in PROTOCOLS}
RECORDS: Final = 4_000_000
"""Of 100 B, which our consumers read; as many bytes of larger ones."""
LOGINS: Final[Mapping[str, Login]] = {"PLAINTEXT": PLAINTEXT, "SSL": ("SSL", None), "SCRAM-SHA-512": TLS, "OAUTHBEARER": ("SASL_SSL", "OAUTHBEARER")}
FULL_SPEED: Final = "-XX:TieredStopAtLevel=4"
"""For the broker: with the JVM's quick compiler it encrypts some 25 MB/s, and all clients would wait for it."""
CONNECTIONS: Final = 20
"""New clients a round."""
BOUNDS: Final = (
    *(Bound(f"produce {size}, TLS", ours, peer, 1.0) for size in SIZES for ours in PRODUCERS[:3] for peer in PRODUCERS[3:]),
    *(Bound(f"consume {size}, TLS", ours, peer, 1.0) for size in SIZES for ours in CONSUMERS[:4] for peer in CONSUMERS[4:]),
)


def own(client: str) -> str:
    """Which of ours a client is compared with."""
    return "pyclient for" if client in CONSUMERS or client.removesuffix(", tuned") in CONSUMERS else "pyclient send"


# --- new connections -------------------------------------------------------------------------------------------------


def connections(cluster: LocalCluster, login: str, rounds: int, count: int, chance: random.Random) -> dict[str, dict[str, float]]:
    """Milliseconds, and milliseconds of CPU, of a new client until it has its first answer."""
    to = access(cluster, *LOGINS[login])

    def ask(child: Child, variant: Variant, _number: int) -> dict[str, Any]:
        return child.ask(Job(variant.client, servers(cluster, to), count, to))

    return _rounds.medians(_rounds.interleaved(CONNECTORS, map(Variant, ("pyclient", "confluent")), rounds, chance, ask), "ms", "cpu")


def connection_table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    rows = {f"{login}, {client}": row for login, clients in found.items() for client, row in clients.items()}
    return plain_table("New client, until the first answer", rows, {"ms": "{ms:.1f}", "CPU ms": "{cpu:.1f}"})


# --- the command -----------------------------------------------------------------------------------------------------


def written(results: Mapping[str, Any]) -> str:
    """Everything as Markdown, from figures as they stand in the JSON."""
    parts = list(throughput_tables(_rounds.kept(results["throughput"]), own, BOUNDS))
    if results["connections"]:
        parts.append(connection_table(results["connections"]))
    return joined(parts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, and how much of it."""
    _rounds.add_arguments(parser, ("produce 100 B, TLS", "consume 100 B, TLS", "connections"))
    parser.add_argument("--records", type=int, default=RECORDS, help=f"of 100 B that our consumers read ({RECORDS:,})")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what was asked for, print the tables."""
    if arguments.markdown:
        return _rounds.from_kept(arguments, "security", written)
    chance = random.Random(1)
    os.environ.setdefault("_JAVA_OPTIONS", f"{HEAP} {FULL_SPEED}")
    with a_broker(consume.BROKER, Security()) as cluster:
        results = throughput(cluster, arguments, chance)
        logins = LOGINS if _rounds.wanted(arguments, "connections") else ()
        found: dict[str, Any] = {
            "broker": cluster.description, "rounds": arguments.rounds, "versions": _rounds.versions(),
            "throughput": {case: {name: each._asdict() for name, each in measured.items()} for case, measured in results.items()},
            "bounds": reached(BOUNDS, results),
            "connections": {login: connections(cluster, login, arguments.rounds, CONNECTIONS, chance) for login in logins},
        }
    print(written(found))
    return found


def throughput(cluster: LocalCluster, arguments: argparse.Namespace, chance: random.Random) -> Results:
    """All cases, each printed when it is done."""
    scale, results = _rounds.scale_of(arguments), Results()
    for protocol, listener in PROTOCOLS.items():
        to = access(cluster, listener)
        for sent in _rounds.chosen(arguments, PRODUCE[protocol]):
            results[sent.name] = produce.measured(cluster, sent, arguments.rounds, scale, chance, to)
            print("\n".join(table({sent.name: results[sent.name]}, own)), flush=True)
        for read in _rounds.chosen(arguments, CONSUME[protocol]):
            records = int(arguments.records * scale * consume.SIZE / read.size)
            results[read.name] = consume.measured(cluster, read, arguments.rounds, records, chance, to)
            print("\n".join(table({read.name: results[read.name]}, own)), flush=True)
    return results
