"""A group reads what is produced while leaders, its coordinator and its own members are killed, paused and restarted.

Every record is delivered to a member, and no committed offset ever goes back. The short form is part of the suite;
``make durability`` runs the long one.
"""
from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient import Admin
from pyclient.testing import LocalCluster
from tests.broker.durability.load import Load, load
from tests.broker.durability.numbering import Verdict, judge
from tests.broker.durability.plan import plan
from tests.broker.durability.readers import Readers, readers
from tests.broker.durability.fault_injection import strike
from tests.broker.durability.test_three_brokers import PARTITIONS, THREE, Wish, keep
from tests.groups import OFFSETS, commits, goes_back
from tests.kafka import make_topic
from tests.waiting import eventually

PRODUCERS: Final = 2
MEMBERS: Final = 3
STRATEGIES: Final = ("range", "cooperative-sticky")
CATCH_UP_S: Final = 240  # only a machine that is much too busy needs more than some seconds


def struck(cluster: LocalCluster, group: Readers, wish: Wish, running: Load, faults: list[dict[str, Any]]) -> None:
    """Faults hit the coordinator and the partition leaders in turn; members are killed in between."""
    began = time.monotonic()
    for number, fault in enumerate(plan(wish.seed, PARTITIONS)):
        if number >= wish.faults and time.monotonic() - began >= wish.seconds:
            break
        coordinator = number % 2 == 0
        faults.append(strike(cluster, OFFSETS, fault._replace(partition=0), began) if coordinator else strike(cluster, group.topic, fault, began))
        faults[-1]["coordinator"] = coordinator
        if number % 3 == 1:
            group.kill()
        eventually(running.progress(), CATCH_UP_S)


def wait_for_members(cluster: LocalCluster) -> None:
    """Return when the brokers have created the topic of committed offsets: a member has looked for its coordinator."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        eventually(lambda: OFFSETS in admin.list_topics(internal=True), CATCH_UP_S)


@THREE
@pytest.mark.timeout(1800)
def test_every_record_is_delivered_and_no_commit_goes_back_while_brokers_and_members_die(
        kafka_cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    wish, faults, facts = Wish(), list[dict[str, Any]](), dict[str, Any]()
    strategy = STRATEGIES[wish.seed % len(STRATEGIES)]
    partitions = make_topic(kafka_cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    kafka_cluster.wait_in_sync()
    try:
        with readers(kafka_cluster, topic, tmp_path, strategy, MEMBERS) as group:
            wait_for_members(kafka_cluster)
            with load(kafka_cluster, topic, partitions=PARTITIONS, producers=PRODUCERS, rate=wish.rate, request_timeout_ms=3000) as running:
                struck(kafka_cluster, group, wish, running, faults)
            began = time.monotonic()
            eventually(lambda: group.all_committed(partitions), CATCH_UP_S)
            facts = {"behind_s": round(time.monotonic() - began, 1)}
        sent, promised = running.sent, running.acknowledged()
        read, found = group.found()
        verdict = judge(promised, sent, found)
        back = goes_back(commits(kafka_cluster, topic))
        facts |= {
            "strategy": strategy, "lasted_s": round(running.lasted_s, 1), "offered_per_s": round(running.offered), "sent": sum(sent.values()),
            "read": read, "members_killed": group.processes.killed, "verdict": verdict._asdict(), "commits_back": len(back)}
    finally:
        keep(kafka_cluster, wish, "readers", **facts, reported=group.processes.reported, errors=group.processes.errors.splitlines()[-200:], struck=faults)
    print(json.dumps(facts))
    assert verdict == Verdict(sum(sent.values()), lost=0, doubled=0, misplaced=0, strange=0)
    assert back == {}
    assert len(faults) >= wish.faults
    assert running.offered >= wish.rate * 0.95
