"""Three real brokers killed, paused and restarted under load: nothing acknowledged is lost, doubled or reordered.

The short form is part of the suite; ``make durability`` runs the long one. Seed, plan, faults and verdicts are kept in
build/durability.
"""
from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pyclient import Admin, Delivery, Producer, TopicPartition
from pyclient.errors import DeliveryTimeoutError
from pyclient.testing import LocalCluster
from tests.broker.durability.load import Load, load
from tests.broker.durability.numbering import Stream, Verdict, acknowledged, judge, value
from tests.broker.durability.plan import plan
from tests.broker.durability.fault_injection import leader_of, strike
from tests.broker.durability.verifiers import WITNESSES
from tests.kafka import make_topic
from tests.waiting import eventually

PARTITIONS: Final = 6
PRODUCERS: Final = 2
KEPT: Final = Path(__file__).resolve().parents[3] / "build" / "durability"
THREE: Final = pytest.mark.kafka(brokers=3)


class Wish(NamedTuple):
    """How long, how much, how often; set by ``make durability``."""

    seconds: float = float(os.environ.get("PYCLIENT_DURABILITY_SECONDS", "8"))
    rate: float = float(os.environ.get("PYCLIENT_DURABILITY_RATE", "10000"))
    inputs: int = int(os.environ.get("PYCLIENT_DURABILITY_INPUTS", "2000"))
    """Of exactly-once loops, all together."""
    faults: int = int(os.environ.get("PYCLIENT_DURABILITY_FAULTS", "3"))
    seed: int = int(os.environ.get("PYCLIENT_DURABILITY_SEED", "1"))


def struck(cluster: LocalCluster, topic: str, wish: Wish, running: Load, faults: list[dict[str, Any]]) -> None:
    """Inject faults until there are enough and the time is over; records must be acknowledged between two of them."""
    began = time.monotonic()
    for fault in plan(wish.seed, PARTITIONS):
        if len(faults) >= wish.faults and time.monotonic() - began >= wish.seconds:
            break
        faults.append(strike(cluster, topic, fault, began))
        eventually(running.progress(), 60)


def keep(cluster: LocalCluster, wish: Wish, of: str, **facts: Any) -> None:
    """The run's record, also of a run that failed."""
    KEPT.mkdir(parents=True, exist_ok=True)
    file = KEPT / f"{of}-{cluster.kind}-seed-{wish.seed}.json"
    file.write_text(json.dumps({"cluster": cluster.description, **wish._asdict(), **facts}, indent=2) + "\n")


@THREE
@pytest.mark.timeout(1800)
def test_nothing_is_lost_doubled_or_reordered_while_leaders_are_killed_paused_and_restarted(
        kafka_cluster: LocalCluster, topic: str) -> None:
    wish, faults, facts = Wish(), list[dict[str, Any]](), dict[str, Any]()
    make_topic(kafka_cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    kafka_cluster.wait_in_sync()
    try:
        with load(kafka_cluster, topic, partitions=PARTITIONS, producers=PRODUCERS, rate=wish.rate, request_timeout_ms=3000) as running:
            struck(kafka_cluster, topic, wish, running, faults)
        sent, promised = running.sent, running.acknowledged()
        facts = {
            "lasted_s": round(running.lasted_s, 1), "offered_per_s": round(running.offered), "sent": sum(sent.values()),
            "acknowledged": sum(map(len, promised.values())),
            "retried": sum(each.get("record-retry-total", 0) for each in running.metrics),
        }
        verdicts = {name: judge(promised, sent, read(kafka_cluster, topic, PARTITIONS)) for name, read in WITNESSES.items()}
        facts["verdicts"] = {name: verdict._asdict() for name, verdict in verdicts.items()}
    finally:
        keep(kafka_cluster, wish, "producers", **facts, leader_changes=sum(len(each["moved"]) for each in faults), struck=faults)
    print(json.dumps(facts))
    assert promised == {stream: list(range(count)) for stream, count in sent.items()}, "each record is acknowledged"
    assert len(faults) >= wish.faults
    assert verdicts["java"] == verdicts["librdkafka"]
    for verdict in verdicts.values():
        assert verdict == Verdict(sum(sent.values()), lost=0, doubled=0, misplaced=0, strange=0)
    assert running.offered >= wish.rate * 0.95


# --- lost records --------------------------------------------------------------------------------------------------

FIRST: Final = 10
TAIL: Final = 20_000
ONE: Final = Stream(0, 0)
HASTY: Final = Stream(1, 0)


def send(producer: Producer, topic: str, first: int, count: int) -> list[Delivery]:
    return [producer.send(topic, value(ONE, number), partition=0) for number in range(first, first + count)]


def dies_with_the_tail(cluster: LocalCluster, topic: str, acks: Any) -> list[Delivery]:
    """Pause the followers, write the tail to the leader alone, kill it, and resume the followers.

    The followers are still in the ISR, so one of them becomes leader.
    """
    make_topic(cluster, topic, 1, 3, min_insync_replicas="2")
    cluster.wait_in_sync()
    leader = leader_of(cluster, topic)
    followers = [node.id for node in cluster.nodes if node.id != leader]
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks=acks, batch_size=16_384, request_timeout_ms=3000) as producer:
        deliveries = send(producer, topic, 0, FIRST)
        producer.flush()
        cluster.wait_in_sync()
        for node in followers:
            cluster.pause(node)
        deliveries += send(producer, topic, FIRST, TAIL)
        if acks != "all":
            producer.flush()  # acknowledged, as far as acks demands
        assert acks != "all" or not deliveries[-1].done()
        cluster.kill(leader)
        for node in followers:
            cluster.resume(node)
        assert leader_of(cluster, topic, without=leader) in followers
        producer.flush()
    cluster.start(leader)
    cluster.wait_in_sync()
    return deliveries


def counted(cluster: LocalCluster, topic: str, deliveries: list[Delivery]) -> Verdict:
    """The verdict on which both witnesses agree."""
    promised, sent = acknowledged({ONE: deliveries}), {ONE: len(deliveries)}
    verdicts = {judge(promised, sent, read(cluster, topic, 1)) for read in WITNESSES.values()}
    assert len(verdicts) == 1, verdicts
    return verdicts.pop()


@THREE
@pytest.mark.parametrize("acks", [0, 1])
def test_with_acks_0_and_1_the_death_of_the_leader_loses_records_and_they_are_counted(
        kafka_cluster: LocalCluster, topic: str, acks: int) -> None:
    deliveries = dies_with_the_tail(kafka_cluster, topic, acks)
    verdict = counted(kafka_cluster, topic, deliveries)
    assert all(each.exception(0) is None for each in deliveries)
    assert verdict.lost >= TAIL // 2
    assert verdict.lost == len(deliveries) - verdict.found, "what is there is there once"


@THREE
def test_with_acks_all_the_same_death_loses_nothing(kafka_cluster: LocalCluster, topic: str) -> None:
    deliveries = dies_with_the_tail(kafka_cluster, topic, "all")
    verdict = counted(kafka_cluster, topic, deliveries)
    assert all(each.exception(0) is None for each in deliveries)
    assert verdict == Verdict(len(deliveries), lost=0, doubled=0, misplaced=0, strange=0)


# --- too few replicas ------------------------------------------------------------------------------------------------


def in_sync(cluster: LocalCluster, topic: str, without: int) -> int:
    alive = ",".join(f"{node.host}:{node.port}" for node in cluster.nodes if node.id != without)
    with Admin(bootstrap_servers=alive) as admin:
        return len(admin.describe_topics([topic])[topic].partitions[0].isr)


@THREE
def test_too_few_replicas_are_retried_and_named_when_the_delivery_expires(kafka_cluster: LocalCluster, topic: str) -> None:
    """min.insync.replicas is 3: with two of three brokers lost the controllers would have no quorum to shrink the ISR.
    """
    elsewhere = f"{topic}-elsewhere"
    make_topic(kafka_cluster, topic, 1, 3, min_insync_replicas="3")
    make_topic(kafka_cluster, elsewhere, 1, 3)
    kafka_cluster.wait_in_sync()
    leader = leader_of(kafka_cluster, topic)
    lost = next(node.id for node in kafka_cluster.nodes if node.id != leader)
    address = kafka_cluster.bootstrap_servers
    with (Producer(bootstrap_servers=address) as patient,
          Producer(bootstrap_servers=address, delivery_timeout_ms=2000, request_timeout_ms=1000, linger_ms=0) as hasty):
        deliveries = send(patient, topic, 0, FIRST)
        patient.flush()
        hasty.send(elsewhere, b"").result(20)  # fetch its producer id first, perhaps from the broker that will be killed
        kafka_cluster.kill(lost)
        try:
            eventually(lambda: in_sync(kafka_cluster, topic, without=lost) < 3, 60)
            given_up = hasty.send(topic, value(HASTY, 0), partition=0).exception(20)
            deliveries += send(patient, topic, FIRST, FIRST)
            eventually(lambda: patient.metrics().get("record-retry-total", 0) >= FIRST)
            assert not deliveries[-1].done()
        finally:
            kafka_cluster.start(lost)
        patient.flush()
    assert isinstance(given_up, DeliveryTimeoutError)
    assert "NOT_ENOUGH_REPLICAS" in str(given_up), given_up
    assert given_up.topic_partition == TopicPartition(topic, 0)
    verdict = counted(kafka_cluster, topic, deliveries)
    assert (verdict.lost, verdict.doubled, verdict.misplaced) == (0, 0, 0)
    assert verdict.strange == 0 or "may or may not be stored" in str(given_up), "a leader that had not yet shrunk its ISR may have stored it"
