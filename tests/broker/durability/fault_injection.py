"""Injects the faults of a plan into a running cluster.

Each must move leadership, and all replicas are in sync before the next one.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from pyclient.testing import LocalCluster
from pyclient.testing.probe import NotReadyError, metadata
from tests.broker.durability.plan import Fault
from tests.waiting import eventually

LIMIT_S: Final = 60
PAUSE: Final = threading.Event()
"""Never set: waiting for it lets time pass while the load goes on."""


def leaders(cluster: LocalCluster, topic: str, without: int = 0) -> dict[int, int]:
    """The leader of each partition, negative for none, from the first broker but *without* that answers."""
    for node in cluster.nodes:
        if node.id != without:
            try:
                [found] = metadata((node.host, node.port), (topic,), limit_s=2).topics
            except (OSError, NotReadyError):
                continue
            return {int(part.partition_index): int(part.leader_id) for part in found.partitions}
    return {}


def leader_of(cluster: LocalCluster, topic: str, partition: int = 0, without: int = 0) -> int:
    """The leader of a partition, once there is one other than *without*."""
    known: dict[int, int] = {}

    def led() -> bool:
        known.update(leaders(cluster, topic, without))
        return known.get(partition, -1) not in (-1, without)

    eventually(led, LIMIT_S)
    return known[partition]


def lose(cluster: LocalCluster, kind: str, node: int) -> Callable[[int], None]:
    """Take a broker away; returns the function that gives it back."""
    take, give = {
        "kill": (cluster.kill, cluster.start), "pause": (cluster.pause, cluster.resume), "restart": (cluster.stop, cluster.start),
    }[kind]
    take(node)
    return give


def strike(cluster: LocalCluster, topic: str, fault: Fault, began: float) -> dict[str, Any]:
    """Inject one fault and wait until the cluster is in sync again; returns what happened, for the log."""
    PAUSE.wait(fault.calm_s)
    node = leader_of(cluster, topic, fault.partition)
    before = leaders(cluster, topic)
    led = [partition for partition, leader in before.items() if leader == node]
    struck = time.monotonic()
    give_back = lose(cluster, fault.kind, node)
    try:
        after: dict[int, int] = {}

        def moved() -> bool:
            after.update(leaders(cluster, topic, without=node))
            return all(after.get(partition, -1) not in (-1, node) for partition in led)

        eventually(moved, LIMIT_S)
        led_again = time.monotonic()
        PAUSE.wait(fault.hold_s)
    finally:
        give_back(node)
    cluster.wait_in_sync(LIMIT_S)
    return {
        "at_s": round(struck - began, 3), "kind": fault.kind, "node": node, "hold_s": round(fault.hold_s, 3),
        "leaderless_s": round(led_again - struck, 3), "whole_again_s": round(time.monotonic() - struck, 3),
        "moved": {partition: after[partition] for partition in led},
    }
