"""Other clients with the fake cluster: they produce, consume, and share a topic among the members of a group."""
from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import (  # type: ignore[attr-defined] # exported, but not declared
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from pyclient.testing import FakeCluster
from pyclient.testing.jvm import Jvm, prepare_jvm
from tests.waiting import eventually

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its own version by a deprecated function
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka.admin import NewTopic as PythonTopic

PARTITIONS = 4
COUNT = 60
LINES = [f"k{number}:v{number}" for number in range(COUNT)]
VALUES = {f"v{number}".encode() for number in range(COUNT)}
HEARTBEAT_MS = 200
LIMIT_S = 60.0
"""Seconds. Other clients have pauses of their own, which are longer on a busy machine."""


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(3) as cluster:
        yield cluster


def produced(fake: FakeCluster) -> set[bytes | None]:
    return {record.value for record in fake.records("orders")}


def shares(fake: FakeCluster) -> list[int]:
    """How many partitions each member of the group has."""
    found = fake.groups().get("readers")
    return sorted(len(each.partitions) for each in found.members) if found is not None and found.state == "Stable" else []


def everything(poll: Callable[[], list[Any]]) -> None:
    """Read until all values have arrived."""
    read: set[Any] = set()

    def complete() -> bool:
        read.update(poll())
        return read == VALUES
    eventually(complete, LIMIT_S)


def polling(*members: ConfluentConsumer) -> bool:
    """Poll all members: librdkafka takes part in a rebalance only while it is polled."""
    for each in members:
        each.poll(0.02)
    return True


def seed(fake: FakeCluster) -> None:
    fake.create_topic("orders", PARTITIONS)
    for line in LINES:
        key, value = line.encode().split(b":")
        fake.produce("orders", value, key)


# ---- librdkafka ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"enable.idempotence": True}, {"compression.type": "lz4"}, {"acks": "1"}])
def test_librdkafka_creates_a_topic_and_produces(fake: FakeCluster, options: dict[str, Any]) -> None:
    admin = AdminClient({"bootstrap.servers": fake.bootstrap_servers})
    admin.create_topics([NewTopic("orders", PARTITIONS, 2)])["orders"].result(20)
    writer = ConfluentProducer({"bootstrap.servers": fake.bootstrap_servers, **options})
    for line in LINES:
        writer.produce("orders", line.partition(":")[2], line.partition(":")[0])
    assert writer.flush(20) == 0
    assert produced(fake) == VALUES


def test_members_with_librdkafka_share_partitions_until_one_leaves(fake: FakeCluster) -> None:
    seed(fake)
    options = {"bootstrap.servers": fake.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest",
               "heartbeat.interval.ms": HEARTBEAT_MS}
    first, second = ConfluentConsumer(options), ConfluentConsumer(options)
    first.subscribe(["orders"])
    everything(lambda: [each.value() for each in first.consume(COUNT, 0.1)])
    first.commit(asynchronous=False)
    assert sum(each.offset for each in fake.committed("readers").values()) == COUNT
    second.subscribe(["orders"])
    eventually(lambda: polling(first, second) and shares(fake) == [2, 2])
    second.close()
    eventually(lambda: polling(first) and shares(fake) == [4])
    first.close()
    assert fake.groups()["readers"].state == "Empty"


def test_a_member_whose_session_was_expired_joins_again(fake: FakeCluster) -> None:
    seed(fake)
    options = {"bootstrap.servers": fake.bootstrap_servers, "group.id": "readers", "heartbeat.interval.ms": HEARTBEAT_MS}
    members = [ConfluentConsumer({**options, "client.id": name}) for name in ("one", "two")]
    for each in members:
        each.subscribe(["orders"])
    eventually(lambda: polling(*members) and shares(fake) == [2, 2])
    before = fake.groups()["readers"]
    fake.expire_session("readers", "two")
    eventually(lambda: polling(*members) and shares(fake) == [2, 2] and fake.groups()["readers"].generation > before.generation)
    assert {each.id for each in fake.groups()["readers"].members} != {each.id for each in before.members}
    for each in members:
        each.close()


def test_librdkafkas_admin_sees_groups_and_settings(fake: FakeCluster) -> None:
    seed(fake)
    reader = ConfluentConsumer({"bootstrap.servers": fake.bootstrap_servers, "group.id": "readers"})
    reader.subscribe(["orders"])
    eventually(lambda: polling(reader) and shares(fake) == [4])
    admin = AdminClient({"bootstrap.servers": fake.bootstrap_servers})
    assert [each.group_id for each in admin.list_consumer_groups().result().valid] == ["readers"]
    described = admin.describe_consumer_groups(["readers"])["readers"].result()
    assert [len(each.assignment.topic_partitions) for each in described.members] == [4]
    reader.close()
    admin.delete_consumer_groups(["readers"])["readers"].result()
    (settings,) = (each.result() for each in admin.describe_configs([ConfigResource(ResourceType.TOPIC, "orders")]).values())
    assert settings["cleanup.policy"].value == "delete"
    admin.delete_topics(["orders"])["orders"].result()
    assert (fake.groups(), fake.topics()) == ({}, {})


# ---- kafka-python ----------------------------------------------------------------------------------------------------


def test_kafka_python_creates_a_topic_and_produces(fake: FakeCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=fake.bootstrap_servers)
    admin.create_topics([PythonTopic("orders", PARTITIONS, 2)])
    admin.close()
    writer = KafkaProducer(bootstrap_servers=fake.bootstrap_servers)
    for line in LINES:
        writer.send("orders", line.partition(":")[2].encode(), key=line.partition(":")[0].encode())
    writer.flush(20)
    writer.close()
    assert produced(fake) == VALUES


def test_members_with_kafka_python_share_partitions_until_one_leaves(fake: FakeCluster) -> None:
    seed(fake)
    options = {"bootstrap_servers": fake.bootstrap_servers, "group_id": "readers", "auto_offset_reset": "earliest",
               "heartbeat_interval_ms": HEARTBEAT_MS, "auto_commit_interval_ms": 100}
    with _polled(fake, _reader(options)) as read:
        eventually(lambda: set(read) == VALUES, LIMIT_S)
        eventually(lambda: sum(each.offset for each in fake.committed("readers").values()) == COUNT, LIMIT_S)
        with _polled(fake, _reader(options)):
            eventually(lambda: shares(fake) == [2, 2], LIMIT_S)
        eventually(lambda: shares(fake) == [4], LIMIT_S)


def _reader(options: dict[str, Any]) -> KafkaConsumer:
    """A member that knows the topic before it joins: as the leader, kafka-python ignores topics that it learns while it
    assigns.
    """
    member = KafkaConsumer(**options)
    assert member.partitions_for_topic("orders")
    member.subscribe(["orders"])
    return member


@contextlib.contextmanager
def _polled(fake: FakeCluster, member: KafkaConsumer) -> Iterator[list[bytes]]:
    """Poll in a thread, and close at the end; the list grows with the values read.

    A poll that ends in the middle of a rebalance may leave kafka-python waiting for ever, so polls are long; a record
    in each partition ends them.
    """
    left = threading.Event()
    values: list[bytes] = []

    def poll() -> None:
        while not left.is_set():
            values.extend(each.value for some in member.poll(LIMIT_S * 1000).values() for each in some)
        member.close()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield values
    finally:
        left.set()
        for partition in range(PARTITIONS):
            fake.produce("orders", b"last", partition=partition)
        thread.join(LIMIT_S)


# ---- aiokafka --------------------------------------------------------------------------------------------------------


def test_aiokafka_produces(fake: FakeCluster) -> None:
    async def write() -> None:
        fake.create_topic("orders", PARTITIONS)
        async with AIOKafkaProducer(bootstrap_servers=fake.bootstrap_servers, enable_idempotence=True) as writer:
            for line in LINES:
                await writer.send_and_wait("orders", line.partition(":")[2].encode(), key=line.partition(":")[0].encode())

    asyncio.run(write())
    assert produced(fake) == VALUES


def test_members_with_aiokafka_share_partitions_until_one_leaves(fake: FakeCluster) -> None:
    seed(fake)

    def member() -> Any:
        return AIOKafkaConsumer("orders", bootstrap_servers=fake.bootstrap_servers, group_id="readers", auto_offset_reset="earliest",
                                heartbeat_interval_ms=HEARTBEAT_MS)

    async def run() -> None:
        read: set[Any] = set()
        async with asyncio.timeout(30), member() as first:
            while read != VALUES:
                read.update(each.value for some in (await first.getmany(timeout_ms=100)).values() for each in some)
            await first.commit()
            assert sum(each.offset for each in fake.committed("readers").values()) == COUNT
            async with member() as second:
                while shares(fake) != [2, 2]:
                    await asyncio.gather(first.getmany(timeout_ms=20), second.getmany(timeout_ms=20))
            while shares(fake) != [4]:
                await first.getmany(timeout_ms=20)

    asyncio.run(run())


# ---- Java ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jvm() -> Jvm:
    return prepare_jvm()


class Tools:
    """Kafka's command-line tools, pointed at the fake cluster."""

    PREFIX = "org.apache.kafka.tools."

    def __init__(self, jvm: Jvm, fake: FakeCluster, logs: Path) -> None:
        self._jvm = jvm
        self._server = ("--bootstrap-server", fake.bootstrap_servers)
        self._logs = logs

    def run(self, main: str, *arguments: str, text: str | None = None) -> str:
        done = self._jvm.run_tool(self.PREFIX + main, *self._server, *arguments, logs=self._logs, input_text=text, timeout_s=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, main: str, *arguments: str) -> subprocess.Popen[str]:
        command = self._jvm.command(self.PREFIX + main, *self._server, *arguments, logs=self._logs, flags=("-Xmx128m",))
        return subprocess.Popen(command, env=self._jvm.environment(), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL)


@pytest.fixture
def tools(jvm: Jvm, fake: FakeCluster, tmp_path: Path) -> Tools:
    return Tools(jvm, fake, tmp_path)


def test_javas_tools_create_fill_read_and_describe(fake: FakeCluster, tools: Tools) -> None:
    tools.run("TopicCommand", "--create", "--topic", "orders", "--partitions", "2", "--replication-factor", "2")
    tools.run("TopicCommand", "--alter", "--topic", "orders", "--partitions", str(PARTITIONS))
    assert tools.run("TopicCommand", "--describe", "--topic", "orders").count("Leader:") == PARTITIONS
    tools.run("ConsoleProducer", "--topic", "orders", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:",
              text="\n".join(LINES) + "\n")
    assert produced(fake) == VALUES
    read = tools.run("consumer.ConsoleConsumer", "--topic", "orders", "--group", "readers", "--from-beginning", "--max-messages",
                     str(COUNT), "--timeout-ms", "20000")
    assert {line.encode() for line in read.split()} == VALUES
    assert sum(each.offset for each in fake.committed("readers").values()) == COUNT
    printed = tools.run("consumer.group.ConsumerGroupCommand", "--describe", "--group", "readers")
    assert printed.count("orders") == PARTITIONS
    tools.run("consumer.group.ConsumerGroupCommand", "--delete", "--group", "readers")
    tools.run("TopicCommand", "--delete", "--topic", "orders")
    assert (fake.groups(), fake.topics()) == ({}, {})


def test_javas_consumers_share_partitions_until_one_leaves(fake: FakeCluster, tools: Tools) -> None:
    seed(fake)
    readers = [tools.start("consumer.ConsoleConsumer", "--topic", "orders", "--group", "readers", "--from-beginning",
                           "--command-property", f"heartbeat.interval.ms={HEARTBEAT_MS}",
                           "--command-property", "auto.commit.interval.ms=100") for _ in range(2)]
    try:
        eventually(lambda: shares(fake) == [2, 2], 60)
        readers[0].terminate()
        eventually(lambda: shares(fake) == [4], 60)
        eventually(lambda: sum(each.offset for each in fake.committed("readers").values()) == COUNT, 60)
    finally:
        for each in readers:
            each.terminate()
    read = {line.encode() for each in readers for line in each.communicate(timeout=60)[0].split()}
    assert read == VALUES
    eventually(lambda: fake.groups()["readers"].state == "Empty")
