"""A simulated world as users have it: their own service in virtual time, faults by a plan, controls of the cluster."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from pyclient import AsyncConsumer, AsyncProducer, TopicPartition
from pyclient.codec.apis import Api
from pyclient.testing import Cut, Drop, Fault, World
from pyclient.testing.fake.model.request import Request
from pyclient.testing.simulation.faults import FOR_SERVICES, KINDS
from pyclient.testing.simulation.loop import SimulationStuckError

ORDERS = TopicPartition("orders", 0)


async def copy(servers: str, count: int) -> None:
    """A service that makes its own clients."""
    async with (
        AsyncConsumer(bootstrap_servers=servers, group_id="copy", auto_offset_reset="earliest") as consumer,
        AsyncProducer(bootstrap_servers=servers) as producer,
    ):
        consumer.assign([ORDERS])
        while await consumer.position(ORDERS) < count:
            for record in await consumer.poll(5.0, max_records=5):
                await (await producer.send("copies", record.value))
            await consumer.commit()
            await asyncio.sleep(1)


def copied(seed: int, faults: int = 0) -> tuple[World, list[str]]:
    """A world in which the service has come to its end."""
    with World(seed, config={"min.insync.replicas": 2}) as world:
        world.cluster.create_topic("orders")
        world.cluster.create_topic("copies")
        for number in range(100):
            world.cluster.produce("orders", b"%d" % number)
        hits = world.strike(world.plan(faults))
        with world.inside("copy"):
            world.run(copy(world.bootstrap_servers, 100))
    return world, hits


def test_a_service_runs_in_virtual_time() -> None:
    began = time.monotonic()
    world, _ = copied(1)
    assert world.loop.time() > 19
    assert time.monotonic() - began < 10
    assert [each.value for each in world.cluster.records("copies")] == [b"%d" % number for number in range(100)]
    assert world.cluster.committed("copy")[ORDERS].offset == 100


def test_the_seed_and_nothing_else_decides_what_happens() -> None:
    (first, hits), (again, same_hits), (other, _) = copied(3, faults=8), copied(3, faults=8), copied(4, faults=8)
    assert first.journal.digest == again.journal.digest != other.journal.digest
    assert hits == same_hits != []


def test_a_plan_holds_what_was_asked_for_and_by_itself_nothing_that_loses_records() -> None:
    world = World(5)
    assert world.plan(200) == World(5).plan(200) != World(6).plan(200)
    assert {each.kind for each in world.plan(200)} == set(FOR_SERVICES)
    assert set(KINDS) - set(FOR_SERVICES) == {"broker_loss", "callback_raises", "clock_jump", "member_expiry", "membership_refusal", "rejection", "retention", "unclean_truncation",
                                            "login_unanswered", "login_cut", "login_refused", "token_outage", "hung", "follower_lag", "follower_cut", "follower_cut_back"}
    drawn = world.plan(50, begin=3, end=4, kinds=["leader_move"])
    assert len(drawn) == 50
    assert all(each.kind == "leader_move" and 3 <= each.at <= 4 for each in drawn)


def test_a_fault_comes_at_its_time_and_says_what_it_did() -> None:
    with World(1) as world:
        world.cluster.create_topic("orders")
        before = world.cluster.leader("orders")
        hits = world.strike([Fault("leader_move", at=2.0, pick=0.0, lasts=0.0)])
        world.run(asyncio.sleep(1.9))
        assert world.cluster.leader("orders") == before
        assert hits == []
        world.run(asyncio.sleep(0.2))
        assert world.cluster.leader("orders") != before
        assert len(hits) == 1
        assert hits[0].startswith("2.000 s  leader_move: <orders-0")


def test_silenced_connections_are_reset_when_the_last_fault_is_over() -> None:
    async def send_after_a_pause(servers: str) -> None:
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            await (await producer.send("orders", b"before", partition=0))
            await asyncio.sleep(1.5)
            await (await producer.send("orders", b"into silence", partition=0))

    with World(1) as world:
        world.cluster.create_topic("orders")
        hits = world.strike([Fault("half_open", at=1.0, pick=0.0, lasts=3.0)])
        with world.inside("producer"):
            world.run(send_after_a_pause(world.bootstrap_servers))
        assert len(hits) == 1
        assert 4.0 <= world.loop.time() < 5.0
        assert [each.value for each in world.cluster.records("orders")] == [b"before", b"into silence"]


def test_only_answers_that_can_ask_for_silence_count_as_asking_for_it() -> None:
    """One to ApiVersions in version 0 cannot: a client gets it that could not read the newest."""
    async def send(servers: str) -> None:
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            await (await producer.send("orders", b"0", partition=0))

    answered: list[tuple[Request, bool]] = []

    def note(event: str, facts: Mapping[str, Any]) -> None:
        if event == "response":
            answered.append((facts["request"], facts["fields"]["throttle_time"] > 0))

    with World(1) as world:
        world.cluster.create_topic("orders")
        world.kafka.listeners.append(note)
        with world.cluster.intercept(Cut(keep=5), "ApiVersions", times=1) as cut, world.inside("producer"):
            hits = world.strike([Fault("throttling", at=0.0, pick=0.0, lasts=60.0)])
            world.run(send(world.bootstrap_servers))
        oldest, *_ = [throttled for asked, throttled in answered if (asked.api, asked.version) == (Api.API_VERSIONS, 0)]
        assert cut.hits == 1
        assert not oldest
        assert len(hits) == len([throttled for _, throttled in answered if throttled]) > 0


def test_a_coordinator_moves_though_no_fault_names_the_group() -> None:
    world, _ = copied(1)
    assert world.groups == []
    with World(1) as world:
        world.cluster.create_topic("orders")
        world.cluster.create_topic("copies")
        world.cluster.produce("orders", b"0")
        hits = world.strike([Fault("coordinator_move", at=10.0, pick=0.0, lasts=0.0)])
        with world.inside("copy"):
            world.run(copy(world.bootstrap_servers, 1))
        before = world.cluster.coordinator("copy")
        world.run(asyncio.sleep(10.0))
        assert world.cluster.coordinator("copy") != before
        assert "group copy" in hits[0]


def test_an_unknown_fault_is_named_with_those_there_are() -> None:
    with World(1) as world, pytest.raises(ValueError, match="there is no fault 'earthquake'; known are cut_before_write"):
        world.strike([Fault("earthquake", 1.0, 0.0, 0.0)])


def test_the_cluster_has_the_controls_of_a_fake_cluster() -> None:
    with World(1) as world:
        cluster = world.cluster
        cluster.create_topic("orders")
        cluster.create_topic("copies")
        cluster.produce("orders", b"0")
        with cluster.intercept(Drop(applied=True), "Produce", times=1) as lost, world.inside("copy"):
            world.run(copy(world.bootstrap_servers, 1))
        assert lost.hits == 1
        assert [each.value for each in cluster.records("copies")] == [b"0"], "the repetition was known again"
        assert len(cluster.requests("Produce")) == 2
        leader = cluster.leader("orders")
        cluster.kill(leader)
        assert cluster.leader("orders") not in {leader, -1}
        cluster.restart(leader)
        cluster.move_leader("orders", 0, cluster.leader("orders"))


def test_a_program_that_can_never_end_raises_SimulationStuckError() -> None:
    with World(1) as world, pytest.raises(SimulationStuckError):
        world.run(asyncio.Event().wait())


def test_the_end_of_a_world_ends_the_tasks_that_are_left() -> None:
    ended = []

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async def leave_one() -> asyncio.Task[None]:
        return asyncio.create_task(for_ever())

    with World(1) as world:
        task = world.run(leave_one())
        world.run(asyncio.sleep(1))
    assert ended == [1]
    assert task.cancelled()
    world.close()


def test_a_fenced_broker_accepts_connections_until_it_is_back_or_killed() -> None:
    world = World(7)
    kafka, broker = world.kafka, world.kafka.brokers[2]
    world.front.pause(2)
    kafka.fence(2)
    assert (kafka.alive, world.front.listens(broker)) == ([1, 3], True)
    kafka.restart(2)
    assert (kafka.alive, broker.fenced) == ([1, 2, 3], False)
    kafka.kill(2)
    assert not world.front.listens(broker)


def test_a_connection_that_was_asked_for_while_a_client_was_cut_off_comes_when_TCP_asks_again() -> None:
    with World(6) as world:
        world.cluster.create_topic("orders")
        world.network.cut_off.add("writer")
        world.loop.call_at(5.0, world.network.cut_off.discard, "writer")

        async def write() -> None:
            with world.inside("writer"):
                producer = AsyncProducer(bootstrap_servers="broker-1:9092")
            async with producer:
                await (await producer.send("orders", b"x"))

        world.run(write())
        assert 5.0 < world.loop.time() < 10.0, "its set-up timeout ends no attempt before"
