"""Group members that are other clients: librdkafka, kafka-python, aiokafka, Java.

Each reads, commits, and records its partitions.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from pyclient import TopicPartition
from pyclient.testing import LocalCluster
from pyclient.testing.jvm import TOOL_HEAP, prepare_jvm
from tests.broker.durability.numbering import Found
from tests.groups import LIMIT_S, Ledger, Listener

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its own version by a deprecated function
    from kafka import KafkaConsumer
    from kafka import errors as python_errors
    from kafka.consumer.subscription_state import ConsumerRebalanceListener as PythonListener
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor as PythonCooperative
    from kafka.coordinator.assignors.range import RangePartitionAssignor as PythonRange
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as PythonRoundRobin
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as PythonSticky

SESSION_MS: Final = 10_000
HEARTBEAT_MS: Final = 100
POLL_S: Final = 0.1
THEIRS: Final = "committed by another client"
"""The metadata of commits of clients that were seen to go back."""
OUTDATED: Final = (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS)
BROKERS_STRATEGIES: Final[Mapping[str, Any]] = {"uniform": "uniform", "range": "range"}
"""The brokers' assignors for the consumer protocol; all clients use the same names."""


def ours(partitions: Iterable[Any]) -> list[TopicPartition]:
    """Partitions of the other client as `TopicPartition`s of ours."""
    return [TopicPartition(each.topic, each.partition) for each in partitions]


class Guest:
    """A member in a thread of its own, until `stop`."""

    strategies: ClassVar[Mapping[str, Any]]
    """Names of our assignors, and the client's names of them."""

    def __init__(self, cluster: LocalCluster, topic: str, strategy: str, ledger: Ledger) -> None:
        self.listener = Listener(ledger)
        self.found: list[Found] = []
        self.fault: BaseException | None = None
        self._cluster, self._topic, self._strategy = cluster, topic, self.strategies[strategy]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._guard, name="guest", daemon=True)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.listener.owned

    def start(self) -> Guest:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Leave, and raise the member's failure."""
        self._stopping.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the member's thread does not end"
        if self.fault is not None:
            raise self.fault

    def _guard(self) -> None:
        try:
            self._live()
        except BaseException as fault:  # noqa: BLE001 raised in the test
            self.fault = fault

    def _live(self) -> None:
        raise NotImplementedError

    def _assigned(self, partitions: Iterable[Any]) -> None:
        if found := ours(partitions):
            self.listener.on_partitions_assigned(found)

    def _revoked(self, partitions: Iterable[Any]) -> None:
        if found := [tp for tp in ours(partitions) if tp in self.owned]:
            self.listener.on_partitions_revoked(found)


class Confluent(Guest):
    """A member with librdkafka."""

    strategies: ClassVar[Mapping[str, Any]] = {"range": "range", "roundrobin": "roundrobin", "cooperative-sticky": "cooperative-sticky"}
    _commit_at = 0.0

    @property
    def _terms(self) -> Mapping[str, Any]:
        return {"partition.assignment.strategy": self._strategy, "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}

    def _live(self) -> None:
        reader = ConfluentConsumer({
            "bootstrap.servers": self._cluster.bootstrap_servers, "group.id": self._topic, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "fetch.wait.max.ms": 100, **self._terms})
        done: dict[int, int] = {}

        def gives_up(_: Any, parts: Any) -> None:
            self._commit(reader, done)
            self._revoked(parts)

        reader.subscribe([self._topic], on_assign=lambda _, parts: self._assigned(parts), on_revoke=gives_up,
                         on_lost=lambda _, parts: self._revoked(parts))
        try:
            while not self._stopping.is_set():
                self._read(reader, done)
        finally:
            reader.close()

    def _read(self, reader: Any, done: dict[int, int]) -> None:
        message = reader.poll(POLL_S)
        if message is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
            self.found.append(Found(message.partition(), message.offset(), message.value()))
            done[message.partition()] = message.offset() + 1
        if message is None or time.monotonic() >= self._commit_at:
            self._commit(reader, done)

    def _commit(self, reader: Any, done: dict[int, int]) -> None:
        """Wait for it. Not for each record: a slow broker would make the backlog grow without end."""
        if not done:
            return
        offsets = [ConfluentPartition(self._topic, partition, offset, THEIRS) for partition, offset in done.items()]
        done.clear()
        self._commit_at = time.monotonic() + POLL_S
        try:
            reader.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # A cooperative member reads on in a rebalance, and learns of the new generation later.
            if error.args[0].code() not in OUTDATED:
                raise


class NewerConfluent(Confluent):
    """A member with librdkafka and the consumer protocol."""

    strategies: ClassVar[Mapping[str, Any]] = BROKERS_STRATEGIES

    @property
    def _terms(self) -> Mapping[str, Any]:
        return {"group.protocol": "consumer", "group.remote.assignor": self._strategy}


class Python(Guest):
    """A member with kafka-python."""

    strategies: ClassVar[Mapping[str, Any]] = {"range": PythonRange, "roundrobin": PythonRoundRobin, "sticky": PythonSticky, "cooperative-sticky": PythonCooperative}

    def _live(self) -> None:
        guest = self

        class Recorder(PythonListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                guest._assigned(assigned)

            def on_partitions_revoked(self, revoked: Any) -> None:
                guest._revoked(revoked)

        reader = KafkaConsumer(
            bootstrap_servers=self._cluster.bootstrap_servers, group_id=self._topic, partition_assignment_strategy=[self._strategy],
            auto_offset_reset="earliest", enable_auto_commit=False, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100)
        reader.subscribe([self._topic], listener=Recorder())
        try:
            while not self._stopping.is_set():
                self._read(reader)
        finally:
            reader.close()
            self._revoked(self.owned)

    def _read(self, reader: Any) -> None:
        polled = reader.poll(int(POLL_S * 1000))
        self.found += [Found(record.partition, record.offset, record.value) for records in polled.values() for record in records]
        if polled:
            # The next poll joins, and the next commit succeeds.
            with contextlib.suppress(python_errors.RebalanceInProgressError):
                reader.commit()


class Aio(Guest):
    """A member with aiokafka.

    It rebalances while the program reads, so records read at that moment may be read again.
    """

    strategies: ClassVar[Mapping[str, Any]] = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}

    def _live(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        guest = self

        class Recorder(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                if not guest._stopping.is_set():  # it reads no more
                    guest._assigned(assigned)

            async def on_partitions_revoked(self, revoked: Any) -> None:
                guest._revoked(revoked)

        reader = AIOKafkaConsumer(
            bootstrap_servers=self._cluster.bootstrap_servers, group_id=self._topic, partition_assignment_strategy=[self._strategy],
            auto_offset_reset="earliest", enable_auto_commit=False, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100)
        reader.subscribe([self._topic], listener=Recorder())
        await reader.start()
        try:
            while not self._stopping.is_set():
                polled = await reader.getmany(timeout_ms=int(POLL_S * 1000))
                self.found += [Found(record.partition, record.offset, record.value) for records in polled.values() for record in records]
                # A commit behind a JoinGroup makes it forget its member id, so it commits only what was just read.
                if polled:
                    with contextlib.suppress(AioError):  # the new owner reads the records again
                        await reader.commit({where: (records[-1].offset + 1, THEIRS) for where, records in polled.items()})
        finally:
            self._revoked(self.owned)  # `stop` calls no listener, and others may own them before it returns
            await reader.stop()


class Java(Guest):
    """Kafka's own verifiable consumer, which prints events as JSON. They arrive late, so it has a ledger of its own."""

    MAIN: Final = "org.apache.kafka.tools.VerifiableConsumer"
    strategies: ClassVar[Mapping[str, Any]] = {
        name: f"org.apache.kafka.clients.consumer.{java}" for name, java in (
            ("range", "RangeAssignor"), ("roundrobin", "RoundRobinAssignor"), ("sticky", "StickyAssignor"),
            ("cooperative-sticky", "CooperativeStickyAssignor"))}

    def __init__(self, cluster: LocalCluster, topic: str, strategy: str, ledger: Ledger) -> None:
        super().__init__(cluster, topic, strategy, Ledger())
        self._options: Mapping[str, Any] = {"fetch.max.wait.ms": 100, "heartbeat.interval.ms": HEARTBEAT_MS}
        self._terms: Sequence[str] = ("--assignment-strategy", self._strategy, "--session-timeout", str(SESSION_MS))

    def _live(self) -> None:
        jvm = prepare_jvm(self._cluster.version)
        with tempfile.TemporaryDirectory(prefix="pyclient-guest-") as name:
            folder = Path(name)
            options = folder / "options"
            options.write_text("".join(f"{name}={value}\n" for name, value in self._options.items()))
            file = "--consumer.config" if self._cluster.version.startswith("3.") else "--command-config"
            command = jvm.command(
                self.MAIN, "--bootstrap-server", self._cluster.bootstrap_servers, "--topic", self._topic, "--group-id", self._topic,
                *self._terms, "--verbose", file, str(options), logs=folder, flags=TOOL_HEAP)
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True,
                                  env=jvm.environment()) as process:
                threading.Thread(target=self._end, args=(process,), daemon=True).start()
                assert process.stdout is not None
                for line in process.stdout:
                    self._heard(json.loads(line))
        self._revoked(self.owned)
        assert self._stopping.is_set(), f"it ended without being stopped, with code {process.returncode}"

    def _end(self, process: subprocess.Popen[str]) -> None:
        self._stopping.wait()
        process.send_signal(signal.SIGTERM)

    def _heard(self, event: Mapping[str, Any]) -> None:
        match event["name"]:
            case "partitions_assigned":
                self._assigned(TopicPartition(each["topic"], each["partition"]) for each in event["partitions"])
            case "partitions_revoked":
                self._revoked(TopicPartition(each["topic"], each["partition"]) for each in event["partitions"])
            case "record_data":
                self.found.append(Found(event["partition"], event["offset"], event["value"].encode()))


class NewerJava(Java):
    """The same with the consumer protocol."""

    strategies: ClassVar[Mapping[str, Any]] = BROKERS_STRATEGIES

    def __init__(self, cluster: LocalCluster, topic: str, strategy: str, ledger: Ledger) -> None:
        super().__init__(cluster, topic, strategy, ledger)
        self._options = {"fetch.max.wait.ms": 100}
        self._terms = ("--group-protocol", "consumer", "--group-remote-assignor", self._strategy)
