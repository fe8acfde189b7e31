"""Longest silences when a broker hangs: a leader, a coordinator, or one that does nothing for us.

Our producer and a member of a group, and confluent-kafka's, each in a process of its own on the same three brokers. A
broker is stopped (SIGSTOP: it accepts connections and answers nothing) and goes on after a while. A silence is the
longest time without an acknowledged record, a record read, or a commit.
"""
from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import time
import uuid
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka import admin

from benchmarks._hung_clients import CLIENTS, PARTITIONS, Job
from benchmarks._process import Child
from pyclient.testing import LocalCluster

BROKERS: Final = {
    "broker.session.timeout.ms": 9000, "broker.heartbeat.interval.ms": 2000,  # Kafka's defaults, as in operation
    "offsets.topic.num.partitions": 12}
OFFSETS: Final = "__consumer_offsets"
LEADER, OTHER, THIRD = 1, 2, 3
WARM_UP_S: Final = 3.0
TAIL_S: Final = 12.0
MUST: Final = 1.1
RESOLUTION_S: Final = 0.1
"""Silences are rounded to it."""
PROGRESS: Final = ("acknowledged", "read", "committed")


class Fault(NamedTuple):
    """Who hangs: the leader of every partition, the groups' coordinator, or neither (*replicas* begin with the
    leader)."""

    name: str
    replicas: tuple[int, ...]
    coordinator: int
    hangs: int


FAULTS: Final = (
    Fault("leader", (LEADER, THIRD), OTHER, LEADER),
    Fault("coordinator", (LEADER, THIRD), OTHER, OTHER),
    Fault("idle node", (LEADER, OTHER), OTHER, THIRD),
)


class Settings(NamedTuple):
    """Options of both clients, by Kafka's names."""

    producer: dict[str, Any]
    consumer: dict[str, Any]


SHORT: Final = Settings({"request.timeout.ms": 4000, "delivery.timeout.ms": 10_000}, {})
USUAL: Final = Settings({}, {})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose name contains it")
    parser.add_argument("--rounds", type=int, default=1, help="how often each (1)")
    parser.add_argument("--hold", type=float, default=25.0, metavar="SECONDS", help="how long a broker hangs (25)")
    parser.add_argument("--rate", type=float, default=150.0, help="records a second (150)")
    parser.add_argument("--defaults", action="store_true", help="both clients' own timeouts, not 4 s for a request and 10 s for a record")
    parser.add_argument("--protocol", default="classic", choices=("classic", "consumer"), help="the group's protocol (classic)")
    parser.add_argument("--alone", action="store_true", help="only our client")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Every fault in every round; the figures by fault and client."""
    settings = USUAL if arguments.defaults else SHORT
    settings = settings._replace(consumer={**settings.consumer, "group.protocol": arguments.protocol})
    rows: list[dict[str, Any]] = []
    with LocalCluster(3, mode="embedded", config=BROKERS) as cluster:
        make_offsets_topic(cluster)
        for _ in range(arguments.rounds):
            for fault in FAULTS:
                if arguments.only in fault.name:
                    rows += struck(cluster, fault, settings, arguments)
    return {"settings": settings._asdict(), "hold_s": arguments.hold, "rows": rows}


def struck(cluster: LocalCluster, fault: Fault, settings: Settings, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One fault, both clients at once; one row for each."""
    clients = ["pyclient"] if arguments.alone else list(CLIENTS)
    jobs = [Job(client, cluster.bootstrap_servers, new_topic(cluster, fault), a_group(cluster, fault.coordinator), arguments.rate,
                settings.producer, settings.consumer) for client in clients]
    with contextlib.ExitStack() as ends:
        children = [ends.enter_context(at_work(job)) for job in jobs]
        time.sleep(WARM_UP_S)
        began = time.monotonic()
        cluster.pause(fault.hangs)
        try:
            time.sleep(arguments.hold)
        finally:
            cluster.resume(fault.hangs)
        time.sleep(TAIL_S)
        ended = time.monotonic()
        for child in children:
            child.send_line("stop")
        found = [json.loads(child.hear()) for child in children]
    cluster.wait_in_sync()
    rows = [row(fault, job.client, each, began, ended) for job, each in zip(jobs, found, strict=True)]
    show(rows)
    return rows


@contextlib.contextmanager
def at_work(job: Job) -> Iterator[Child]:
    """A client's process, from its first commit on."""
    child = Child("benchmarks._hung_clients")
    try:
        child.send_line(json.dumps(job._asdict()))
        child.hear()
        yield child
    finally:
        child.close()


def row(fault: Fault, client: str, found: dict[str, Any], began: float, ended: float) -> dict[str, Any]:
    """The figures of one client and fault; times in seconds."""
    silences = {f"no {what}": round(longest_silence(found["times"][what], began, ended), 1) for what in PROGRESS}
    return {"fault": fault.name, "client": client, **silences, "failed": found["failed"], "read again": found["again"],
            "errors": [f"{float(at) - began:+.1f} s {text}" for at, _, text in (each.partition(" ") for each in found["errors"])]}


def longest_silence(times: list[float], began: float, ended: float) -> float:
    """The longest time without an event between *began* and *ended*."""
    marks = [began, *[at for at in times if began < at < ended], ended]
    return max(later - earlier for earlier, later in itertools.pairwise(marks))


def show(rows: list[dict[str, Any]]) -> None:
    """A line for each row, and whether ours keeps to the aim."""
    for each in rows:
        print("{fault:12} {client:10}".format(**each), *(f"{what} {each[f'no {what}']:5.1f} s " for what in PROGRESS),
              "failed {failed}, read again {read again}".format(**each), flush=True)
        for error in each["errors"][:6]:
            print(f"    {error}", flush=True)
    if len(rows) > 1:
        ours, theirs = rows
        print(f"{'':12} {'times':10}", *(f"{what} {ratio(ours, theirs, f'no {what}'):5.2f}   " for what in PROGRESS), f"(at most {MUST})", flush=True)


def ratio(ours: dict[str, Any], theirs: dict[str, Any], figure: str) -> float:
    """How many times longer our silence is; shorter ones than the clock's `RESOLUTION_S` count as that."""
    return max(ours[figure], RESOLUTION_S) / max(theirs[figure], RESOLUTION_S)  # type: ignore[no-any-return]


# --- topics and groups ------------------------------------------------------------------------------------------------


def new_topic(cluster: LocalCluster, fault: Fault) -> str:
    """A topic with the fault's replicas."""
    name = f"hung-{uuid.uuid4().hex[:8]}"
    new: Any = vars(admin)["NewTopic"]  # exported, but not to type checkers
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    made = client.create_topics([new(name, PARTITIONS, replica_assignment=[list(fault.replicas)] * PARTITIONS, config={"min.insync.replicas": "1"})])
    made[name].result()
    cluster.wait_in_sync()
    return name


def a_group(cluster: LocalCluster, coordinator: int) -> str:
    """The name of a new group with this coordinator."""
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    led: dict[int, int] = {}
    while coordinator not in led.values():  # leaders go back to their brokers some seconds after a fault
        time.sleep(0.5)
        led = {number: each.leader for number, each in client.list_topics(OFFSETS, timeout=30).topics[OFFSETS].partitions.items()}
    names = (f"hung-{random.randrange(10**9)}" for _ in range(1000))
    return next(name for name in names if led[_hash_code(name) % len(led)] == coordinator)


def _hash_code(name: str) -> int:
    """Java's, made positive: it chooses the partition that keeps a group's offsets, whose leader is the coordinator."""
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return code & 0x7FFFFFFF


def make_offsets_topic(cluster: LocalCluster) -> None:
    """Brokers create it when a coordinator is first looked up."""
    member = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "first"})
    with contextlib.suppress(confluent_kafka.KafkaException):
        member.committed([confluent_kafka.TopicPartition("absent", 0)], timeout=15)
    member.close()
    cluster.wait_in_sync()
