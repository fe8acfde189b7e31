"""Sync clients run in virtual time too, with their threads, and a seed decides what they do."""
from __future__ import annotations

import time
from typing import Any, Final

from pyclient import Consumer, Producer
from pyclient.testing import World
from tests.simulated_threads import inside

COUNT: Final = 100


def copied(seed: int) -> World:
    """A world in which a service of two sync clients has come to its end."""
    with World(seed, brokers=3) as world, inside(world, "copy"):
        world.cluster.create_topic("orders", 2)
        world.cluster.create_topic("copies")
        for number in range(COUNT):
            world.cluster.produce("orders", b"%d" % number, partition=number % 2)
        with (
            Consumer(bootstrap_servers=world.bootstrap_servers, topics=["orders"], group_id="copy", auto_offset_reset="earliest") as consumer,
            Producer(bootstrap_servers=world.bootstrap_servers) as producer,
        ):
            read = 0
            while read < COUNT:
                for order in consumer.poll(5.0, max_records=10):
                    producer.send("copies", order.value).result()
                    read += 1
    assert world.loop.defects == []
    return world


def test_the_seed_and_nothing_else_decides_what_sync_clients_do() -> None:
    first, again, other = copied(3), copied(3), copied(4)
    assert first.journal.digest == again.journal.digest != other.journal.digest
    assert sorted(int(each.value or b"") for each in first.cluster.records("copies")) == list(range(COUNT))


def test_ten_minutes_of_waiting_take_none() -> None:
    began = time.monotonic()
    with World(1) as world, inside(world, "reader"):
        world.cluster.create_topic("orders")
        with Consumer(bootstrap_servers=world.bootstrap_servers, topics=["orders"], group_id="readers") as consumer:
            assert not any(consumer.poll(60.0) for _ in range(10))
        assert 600 <= world.loop.time() < 610
    assert time.monotonic() - began < 60


def test_a_member_sends_heartbeats_while_the_user_waits_for_another_client() -> None:
    with World(1) as world, inside(world, "readers"):
        world.cluster.create_topic("orders")
        options: dict[str, Any] = {"bootstrap_servers": world.bootstrap_servers, "topics": ["orders"], "session_timeout_ms": 10_000}
        with Consumer(group_id="one", **options) as member, Consumer(group_id="other", **options) as other:
            member.poll(1.0)
            other.poll(100.0)
            figures = member.metrics()
        assert figures["rebalance-total"] == 1
        assert figures["failed-rebalance-total"] == 0
        assert 30 <= figures["heartbeat-total"] <= 36
