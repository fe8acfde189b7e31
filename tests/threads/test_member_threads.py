"""Members of one group in threads: one is used by several threads in turn and woken, others join and leave."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest

from pyclient import Consumer, Producer, TopicPartition
from pyclient.errors import CommitFailedError, RebalanceInProgressError, WakeupError
from pyclient.testing import FakeCluster
from tests.threads.edges import Coin
from tests.threads.team import Team

PARTITIONS: Final = 4
RECORDS: Final = 400
GUESTS: Final = 6
"""How often the other member joins and leaves."""


class Listener:
    """Tracks a member's partitions; none is assigned twice or revoked without being assigned."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.inside = threading.Lock()

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.inside.acquire(blocking=False), "two callbacks at once"
        assert self.owned.isdisjoint(partitions)
        self.owned |= set(partitions)
        self.inside.release()

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.inside.acquire(blocking=False), "two callbacks at once"
        assert self.owned >= set(partitions)
        self.owned -= set(partitions)
        self.inside.release()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_member_used_by_several_threads_shares_with_others_and_no_record_is_skipped(
        cluster: FakeCluster, topic: str, seed: int, coin: Coin, assignor: str) -> None:
    cluster.create_topic(topic, PARTITIONS)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=500) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers, "group_id": topic, "topics": [topic], "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 20, "session_timeout_ms": 6000, "assignors": [assignor], "auto_commit_interval_ms": 0, "max_poll_records": 7}
    seen: set[bytes | None] = set()
    mine, guests = threading.Lock(), threading.Event()
    listener, team = Listener(), Team()

    def done() -> bool:
        return bool(team.errors) or (guests.is_set() and len(seen) == RECORDS)

    with Consumer(**options, rebalance_listener=listener) as member:

        def use(number: int) -> None:
            chance = Random(f"{seed}:{number}")
            while not done():
                with mine, contextlib.suppress(WakeupError, CommitFailedError, RebalanceInProgressError):
                    seen.update(record.value for record in member.poll(0.02))
                    assert member.assignment() == listener.owned
                    if chance.random() < 0.2:
                        member.commit()

        def wake() -> None:
            while not done():
                member.wakeup()
                member.metrics()
                for _ in range(50):
                    coin()

        def come_and_go() -> None:
            try:
                for _ in range(GUESTS):
                    with Consumer(**options, rebalance_listener=Listener()) as guest:
                        while not guest.assignment() and not team.errors:
                            seen.update(record.value for record in guest.poll(0.05))
            finally:
                guests.set()

        team.add_many(3, use)
        team.add("wake", wake)
        team.add("guests", come_and_go)
        team.run()
        stored = member.committed([TopicPartition(topic, number) for number in range(PARTITIONS)])
        assert all(each is None or each.offset <= RECORDS // PARTITIONS for each in stored.values())
    assert len(seen) == RECORDS
