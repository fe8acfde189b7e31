"""Other clients with the consumer protocol (KIP-848) and the fake cluster, and their admin clients."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from pyclient.testing import FakeCluster
from pyclient.testing.fake.view import GroupView
from pyclient.testing.jvm import Jvm, prepare_jvm
from tests.interop.test_fake_cluster import COUNT, PARTITIONS, VALUES, Tools, everything, polling, seed
from tests.waiting import eventually

CLASSIC = {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"}


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(3) as cluster:
        seed(cluster)
        yield cluster


def member(fake: FakeCluster, *topics: str, **options: Any) -> Consumer:
    made = Consumer({"bootstrap.servers": fake.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest",
                     "group.protocol": "consumer", **options})
    made.subscribe(list(topics) or ["orders"])
    return made


def readers(fake: FakeCluster) -> GroupView:
    return fake.groups()["readers"]


def shares(fake: FakeCluster) -> list[int]:
    """The number of partitions of each member, once all own their assignments."""
    found = fake.groups().get("readers")
    return sorted(len(each.partitions) for each in found.members) if found is not None and found.state == "Stable" else []


def have_read(fake: FakeCluster, *members: Consumer) -> bool:
    """Write a record to each partition; whether each member has a position, which it gets with a record, in all of its
    own.
    """
    for number in range(PARTITIONS):
        fake.produce("orders", b"more", partition=number)
    return all(at.offset >= 0 for each in members for at in each.position(each.assignment()))


# ---- librdkafka ------------------------------------------------------------------------------------------------------


def test_members_with_librdkafka_share_a_topic_until_one_leaves(fake: FakeCluster) -> None:
    first = member(fake)
    everything(lambda: [each.value() for each in first.consume(COUNT, 0.1)])
    first.commit(asynchronous=False)
    assert sum(each.offset for each in fake.committed("readers").values()) == COUNT
    second = member(fake)
    eventually(lambda: polling(first, second) and shares(fake) == [2, 2] and {len(each.assignment()) for each in (first, second)} == {2})
    second.close()
    eventually(lambda: polling(first) and shares(fake) == [4])
    first.close()
    assert (readers(fake).type, readers(fake).state) == ("consumer", "Empty")
    assert not {request.api.title for request in fake.requests()} & CLASSIC


def test_three_members_with_librdkafka_share_a_growing_topic(fake: FakeCluster) -> None:
    members = [member(fake, "orders", "later") for _ in range(3)]
    eventually(lambda: polling(*members) and shares(fake) == [1, 1, 2])
    fake.create_topic("later", 5)
    eventually(lambda: polling(*members) and shares(fake) == [3, 3, 3])
    for each in members:
        each.close()


def test_a_member_whose_session_was_expired_joins_again(fake: FakeCluster) -> None:
    members = [member(fake, **{"client.id": name}) for name in ("one", "two")]
    eventually(lambda: polling(*members) and shares(fake) == [2, 2])
    before = readers(fake)
    fake.expire_session("readers", "two")
    eventually(lambda: polling(*members) and shares(fake) == [2, 2] and readers(fake).generation > before.generation)
    for each in members:
        each.close()


def test_a_static_member_with_librdkafka_gets_its_partitions_again(fake: FakeCluster) -> None:
    first, second = member(fake, **{"group.instance.id": "one"}), member(fake)
    eventually(lambda: polling(first, second) and shares(fake) == [2, 2])
    before = readers(fake)
    first.close()
    first = member(fake, **{"group.instance.id": "one"})
    eventually(lambda: polling(first, second) and shares(fake) == [2, 2])
    after = readers(fake)
    assert after.generation == before.generation
    assert [each.partitions for each in after.members] == [each.partitions for each in before.members]
    assert [each.id for each in after.members] != [each.id for each in before.members]
    for each in (first, second):
        each.close()


def test_the_broker_matches_librdkafkas_patterns(fake: FakeCluster) -> None:
    reader = member(fake, "^ord.*")
    eventually(lambda: polling(reader) and shares(fake) == [4])
    fake.create_topic("ordinary", 2)
    eventually(lambda: polling(reader) and shares(fake) == [6])
    reader.close()


def test_the_group_goes_on_while_its_coordinator_moves(fake: FakeCluster) -> None:
    """All members have positions first: librdkafka may hang if it requests offsets while the coordinator moves."""
    members = [member(fake) for _ in range(2)]
    eventually(lambda: polling(*members) and shares(fake) == [2, 2])
    eventually(lambda: polling(*members) and have_read(fake, *members))
    fake.move_coordinator("readers", fake.coordinator("readers") % 3 + 1)
    third = member(fake)
    eventually(lambda: polling(*members, third) and shares(fake) == [1, 1, 2])
    for each in (*members, third):
        each.close()


def test_librdkafkas_admin_lists_and_deletes_such_groups(fake: FakeCluster) -> None:
    """The reader has its assignment before it closes: librdkafka sends no leave before its join is answered."""
    reader = member(fake)
    eventually(lambda: polling(reader) and shares(fake) == [4] and len(reader.assignment()) == 4)
    admin = AdminClient({"bootstrap.servers": fake.bootstrap_servers})
    (listed,) = admin.list_consumer_groups().result().valid
    assert (listed.group_id, listed.type.name, listed.state.name) == ("readers", "CONSUMER", "STABLE")
    reader.close()
    admin.delete_consumer_groups(["readers"])["readers"].result()
    assert fake.groups() == {}


# ---- Java ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jvm() -> Jvm:
    return prepare_jvm()


@pytest.fixture
def tools(jvm: Jvm, fake: FakeCluster, tmp_path: Path) -> Tools:
    return Tools(jvm, fake, tmp_path)


def test_javas_consumers_share_a_topic_until_one_leaves_and_its_tools_describe_them(fake: FakeCluster, tools: Tools) -> None:
    options = ("--command-property", "group.protocol=consumer", "--command-property", "auto.commit.interval.ms=100")
    consumers = [tools.start("consumer.ConsoleConsumer", "--topic", "orders", "--group", "readers", "--from-beginning", *options)
                 for _ in range(2)]
    try:
        eventually(lambda: shares(fake) == [2, 2], 60)
        printed = tools.run("consumer.group.ConsumerGroupCommand", "--describe", "--group", "readers", "--members", "--verbose")
        # Current and target assignments.
        assert [printed.count(f"orders:{numbers}") for numbers in ("0,1", "2,3")] == [2, 2]
        state = tools.run("consumer.group.ConsumerGroupCommand", "--describe", "--group", "readers", "--state")
        assert "uniform" in state
        assert "Stable" in state
        consumers[0].terminate()
        eventually(lambda: shares(fake) == [4], 60)
        eventually(lambda: sum(each.offset for each in fake.committed("readers").values()) == COUNT, 60)
    finally:
        for each in consumers:
            each.terminate()
    read = {line.encode() for each in consumers for line in each.communicate(timeout=60)[0].split()}
    assert read == VALUES
    eventually(lambda: readers(fake).state == "Empty")
    assert not {request.api.title for request in fake.requests()} & CLASSIC
