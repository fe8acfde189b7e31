"""`ExactlyOnce` in processes that are killed, frozen and replaced while brokers die: each input has one output.

The short form is part of the suite; ``make durability`` runs the long one.
"""
from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient import Consumer, Producer, TopicPartition
from pyclient.testing import LocalCluster
from tests.broker.durability.fault_injection import PAUSE, strike
from tests.broker.durability.load import Load, load
from tests.broker.durability.numbering import Found, Verdict, judge
from tests.broker.durability.plan import rounds
from tests.broker.durability.test_groups_of_readers import STRATEGIES
from tests.broker.durability.test_three_brokers import PARTITIONS, THREE, Wish, keep
from tests.broker.durability.verifiers import by_java, by_us
from tests.broker.durability.workers import WAYS, Workers, workers
from tests.groups import OFFSETS
from tests.kafka import consumer, make_topic
from tests.waiting import eventually

SLOTS: Final = len(WAYS)
TRANSACTIONS: Final = "__transaction_state"
END: Final = b"end"
"""The value of the last record of each output partition, written when all workers have ended."""
CATCH_UP_S: Final = 240


def strike_in_rounds(cluster: LocalCluster, group: Workers, wish: Wish, running: Load, catch_up: Callable[[], None], faults: list[dict[str, Any]]) -> None:
    """Rounds of faults until there are enough of them, and of inputs. The workers catch up between two."""
    began = time.monotonic()
    for each, led in zip(rounds(wish.seed, SLOTS, PARTITIONS), itertools.cycle((TRANSACTIONS, OFFSETS, group.target, group.source))):
        if len(faults) >= wish.faults and sum(running.sent.values()) >= wish.inputs:
            break
        for hit, slot in ((group.kill, each.killed), (group.replace, each.replaced)):
            PAUSE.wait(each.calm_s)
            faults.append({"at_s": round(time.monotonic() - began, 3), "kind": f"{hit.__name__} worker", "slot": slot})
            hit(slot)
        fault = each.fault._replace(partition=0) if led in (TRANSACTIONS, OFFSETS) else each.fault  # theirs is the only one
        with group.frozen(each.frozen):
            faults.append(strike(cluster, led, fault, began) | {"leader_of": led, "frozen slot": each.frozen})
        catch_up()


def finish(cluster: LocalCluster, target: str) -> None:
    """Write the record behind all others to each partition."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition in range(PARTITIONS):
            producer.send(target, END, partition=partition)


def outputs(records: Iterable[Found]) -> list[Found]:
    """All records but the last ones."""
    return [each for each in records if each.value != END]


def catch_up(group: Consumer, partitions: list[TopicPartition]) -> None:
    """Return when the inputs that are stored by now are processed."""
    ends = group.end_offsets(partitions)

    def processed() -> bool:
        committed = group.committed(partitions)
        return all(at is not None and at.offset >= ends[tp] for tp, at in committed.items())

    eventually(processed, CATCH_UP_S)


@THREE
@pytest.mark.timeout(1800)
def test_each_input_has_one_committed_output_while_workers_and_brokers_die(kafka_cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    process_under_faults(kafka_cluster, topic, tmp_path, "exactly-once")


@pytest.mark.proof
@pytest.mark.kafka(brokers=3, features={"transaction.version": 1})
@pytest.mark.timeout(1800)
def test_protocol_v1_gives_each_input_one_committed_output_while_workers_and_brokers_die(kafka_cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    process_under_faults(kafka_cluster, topic, tmp_path, "exactly-once-v1")


def process_under_faults(kafka_cluster: LocalCluster, topic: str, tmp_path: Path, name: str) -> None:
    """Workers pass records on while they and brokers are hit; then each input must have one committed output."""
    wish, faults, facts, target = Wish(), list[dict[str, Any]](), dict[str, Any](), f"{topic}-out"
    source = make_topic(kafka_cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    written = make_topic(kafka_cluster, target, PARTITIONS, 3, min_insync_replicas="2")
    kafka_cluster.wait_in_sync()
    try:
        with (workers(kafka_cluster, topic, target, tmp_path, STRATEGIES[wish.seed % len(STRATEGIES)], SLOTS) as group,
              consumer(kafka_cluster, group_id=topic, enable_auto_commit=False) as observer):
            with load(kafka_cluster, topic, partitions=PARTITIONS, producers=1, rate=wish.inputs / wish.seconds, request_timeout_ms=3000) as running:
                strike_in_rounds(kafka_cluster, group, wish, running, lambda: catch_up(observer, source), faults)
            began = time.monotonic()
            catch_up(observer, source)
            facts = {"behind_s": round(time.monotonic() - began, 1)}
        finish(kafka_cluster, target)
        sent = running.sent
        count = sum(sent.values())
        read = {"ours": by_us(kafka_cluster, written), "java": by_java(kafka_cluster, target, PARTITIONS, committed=count + PARTITIONS)}
        verdicts = {reader: judge(running.acknowledged(), sent, outputs(found)) for reader, found in read.items()}
        uncommitted = judge(running.acknowledged(), sent, outputs(by_us(kafka_cluster, written, "read_uncommitted")))
        facts |= {
            "lasted_s": round(running.lasted_s, 1), "inputs": count, "killed": group.processes.killed, "fenced": group.fenced, "frozen": group.froze,
            "restarted": group.restarted,
            "verdicts": {reader: verdict._asdict() for reader, verdict in verdicts.items()}, "uncommitted": uncommitted._asdict()}
    finally:
        keep(kafka_cluster, wish, name, **facts, reported=group.processes.reported, errors=group.processes.errors.splitlines()[-200:], struck=faults)
    print(json.dumps(facts))
    assert count >= wish.inputs
    assert verdicts == dict.fromkeys(read, Verdict(count, lost=0, doubled=0, misplaced=0, strange=0))
    assert sorted(read["ours"]) == sorted(read["java"])
