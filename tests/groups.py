"""Members of real groups in threads of their own, who owned what when, and what the brokers themselves keep of a group."""
from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from pyclient import AsyncConsumer, Consumer, Producer, Record, TopicPartition
from pyclient.errors import CommitFailedError, RebalanceInProgressError, WakeupError
from pyclient.testing import LocalCluster
from tests.broker.durability.numbering import Found
from tests.kafka import consumer
from tests.waiting import eventually

LIMIT_S: Final = 60
QUICK: Final[Mapping[str, Any]] = {
    "auto_offset_reset": "earliest", "session_timeout_ms": 10_000, "heartbeat_interval_ms": 100, "max_poll_interval_ms": 30_000,
    "fetch_max_wait_ms": 100}
"""Rebalances are heard of soon, and nobody waits for long for a member that is gone."""
BROKERS_BUSINESS: Final = ("session_timeout_ms", "heartbeat_interval_ms")
"""What a member of a group of the next generation may not ask for."""
MOST: Final = 8
_SETTINGS: Final[Mapping[str, Any]] = {
    "group_min_session_timeout_ms": 500, "group_max_size": MOST, "group_consumer_max_size": MOST,
    "group_consumer_min_session_timeout_ms": 500, "group_consumer_session_timeout_ms": QUICK["session_timeout_ms"],
    "group_consumer_min_heartbeat_interval_ms": 100, "group_consumer_heartbeat_interval_ms": QUICK["heartbeat_interval_ms"],
    "group_consumer_assignment_interval_ms": 0}
ON_ONE_BROKER: Final = pytest.mark.kafka(**_SETTINGS)
ON_THREE_BROKERS: Final = pytest.mark.kafka(brokers=3, **_SETTINGS)
MOVING: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
"""What the brokers answer for a moment when nobody had asked for a group before."""
OFFSETS: Final = "__consumer_offsets"

# --- who shares out --------------------------------------------------------------------------------------------------

Terms: TypeAlias = Mapping[str, Any]
"""Options that say who shares out, and how."""


def on(**cases: Terms) -> pytest.MarkDecorator:
    """The test is run once on each of these terms."""
    return pytest.mark.parametrize("terms", cases.values(), ids=cases)


BY_BROKER: Final[Terms] = {"group_protocol": "consumer"}
"""A member of a group of the next generation (KIP-848): the broker shares out, with its first assignor, uniform."""


def by_members(strategy: str) -> Terms:
    """A member of a classic group that can share out in one way only."""
    return {"assignors": [strategy]}


BOTH: Final = on(classic={}, consumer=BY_BROKER)
ALL: Final = on(range=by_members("range"), cooperative=by_members("cooperative-sticky"), consumer=BY_BROKER)


def quick(**options: Any) -> dict[str, Any]:
    """*options*, and of `QUICK` what they leave open and the protocol lets a member choose."""
    newer = options.get("group_protocol") == "consumer"
    return {name: value for name, value in {**QUICK, **options}.items() if not (newer and name in BROKERS_BUSINESS)}


# --- who owns what ---------------------------------------------------------------------------------------------------


class Ledger:
    """Who of a group was told to own what; two at a time is a breach, unless the first one is told that it had lost it."""

    def __init__(self) -> None:
        self.breaches: list[str] = []
        self._owners: dict[TopicPartition, list[Listener]] = {}
        self._lock = threading.Lock()

    def take(self, who: Listener, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for where in partitions:
                self._owners.setdefault(where, []).append(who)

    def give(self, who: Listener, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Whoever gives up in order was the only owner; who has lost may have been overtaken."""
        with self._lock:
            for where in partitions:
                owners = self._owners.get(where, [])
                if who in owners:
                    owners.remove(who)
                if owners and not lost:
                    self.breaches.append(f"{where} was given up by one member while another owned it already")

    @property
    def shared(self) -> list[TopicPartition]:
        """What several own now."""
        with self._lock:
            return [where for where, owners in self._owners.items() if len(owners) > 1]


class Told(NamedTuple):
    """What a listener heard."""

    kind: str
    partitions: tuple[TopicPartition, ...]


class Listener:
    """Keeps what it is told; what does not fit to what it was told before is a breach."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.owned: frozenset[TopicPartition] = frozenset()
        self.told: list[Told] = []
        self.ledger = ledger or Ledger()

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(Told("assigned", tuple(partitions)))
        self._check(not self.owned & set(partitions), "assigned twice", partitions)
        self.ledger.take(self, partitions)
        self.owned |= set(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._gone("revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._gone("lost", partitions)

    def of(self, kind: str) -> list[tuple[TopicPartition, ...]]:
        """What it was told of one kind."""
        return [told.partitions for told in self.told if told.kind == kind]

    def _gone(self, kind: str, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(Told(kind, tuple(partitions)))
        self._check(set(partitions) <= self.owned, f"{kind}, and not owned", partitions)
        self._check(bool(partitions), f"{kind} of nothing", partitions)
        self.ledger.give(self, partitions, lost=kind == "lost")
        self.owned -= set(partitions)

    def _check(self, right: bool, what: str, partitions: Sequence[TopicPartition]) -> None:
        if not right:
            self.ledger.breaches.append(f"{what}: {[tuple(each) for each in partitions]} of {sorted(map(tuple, self.owned))}")


# --- members ---------------------------------------------------------------------------------------------------------


class Crash(Exception):
    """A member's program ends in the middle of its work."""


class Member:
    """A consumer in a thread of its own that reads until it is stopped; *found* is what it is done with, before it says so to anybody.

    *manual*: it commits after every poll, and waits for that, or (``"async"``) does not.
    """

    def __init__(self, cluster: LocalCluster, group: str, topics: Any, *, ledger: Ledger | None = None, use_async: bool = False,
                 manual: bool | str = False, listener: Listener | None = None, **options: Any) -> None:
        self.listener = listener or Listener(ledger)
        self.found: list[Found] = []
        self.keys: list[bytes | None] = []
        self.refused: list[Exception] = []
        self.fault: BaseException | None = None
        self.consumer: Any = None
        self._kind = AsyncConsumer if use_async else Consumer
        self._manual = manual
        self._options = {
            "bootstrap_servers": cluster.bootstrap_servers, "group_id": group, "topics": topics,
            "rebalance_listener": self.listener, "enable_auto_commit": not manual, "auto_commit_interval_ms": 100, **quick(**options)}
        self._crashing = self._stopping = False
        self._thread = threading.Thread(target=self._guard, name="member", daemon=True)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What its listener was given and not taken."""
        return self.listener.owned

    def start(self) -> Member:
        self._thread.start()
        return self

    def stop(self, *, crash: bool = False) -> None:
        """End it, in order or in the middle of its work, and raise what went wrong in it."""
        self._crashing, self._stopping = crash, True
        if self.consumer is not None:
            self.consumer.wakeup()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "it does not end"
        if self.fault is not None:
            raise self.fault

    def _guard(self) -> None:
        try:
            with contextlib.suppress(Crash):
                asyncio.run(self._life())
        except BaseException as fault:  # noqa: BLE001 raised in the test
            self.fault = fault

    async def _life(self) -> None:
        """Both kinds of consumers live alike; the sync one's loop is its own, and this one has nothing else to do."""
        self.consumer = self._kind(**self._options)
        if self._kind is AsyncConsumer:
            async with self.consumer:
                await self._read()
        else:
            with self.consumer:
                await self._read()

    async def _read(self) -> None:
        while not self._stopping:
            try:
                records = await now(self.consumer.poll())
            except WakeupError:
                continue
            if self._crashing:
                break
            self._note(records)
            if self._manual == "async":
                self.consumer.commit_async(callback=self._told)
            elif self._manual:
                await self._commit()
        if self._crashing:
            raise Crash

    def _note(self, records: Sequence[Record]) -> None:
        strange = {TopicPartition(record.topic, record.partition) for record in records} - self.owned
        if strange:
            self.listener.ledger.breaches.append(f"records of {strange}, which it does not own")
        self.found += [Found(record.partition, record.offset, record.value or b"") for record in records]
        self.keys += [record.key for record in records]

    def _told(self, offsets: object, error: BaseException | None) -> None:
        if isinstance(error, Exception):
            self.refused.append(error)

    async def _commit(self) -> None:
        try:
            await now(self.consumer.commit())
        except (CommitFailedError, RebalanceInProgressError) as refused:
            self.refused.append(refused)


async def now(answer: Any) -> Any:
    """What a sync call has given, or an async one gives."""
    return await answer if inspect.isawaitable(answer) else answer


@contextlib.contextmanager
def members() -> Iterator[list[Member]]:
    """A list of members to be filled; those that still run are ended with the block, their failures raised."""
    running: list[Member] = []
    try:
        yield running
    except BaseException:
        for each in running:
            with contextlib.suppress(BaseException):
                each.stop()
        raise
    for each in running:
        each.stop()


def shared_out(running: Sequence[Member], partitions: Iterable[TopicPartition]) -> bool:
    """Whether each partition is owned, by one member; raises what ended a member meanwhile."""
    for each in running:
        if each.fault is not None:
            raise each.fault
    owned = [where for each in running for where in each.owned]
    return sorted(owned) == sorted(partitions)


def evenly(running: Sequence[Member], partitions: Sequence[TopicPartition]) -> bool:
    """Whether each partition is owned, by one member, and nobody has two more than another."""
    return shared_out(running, partitions) and counts(running)[-1] - counts(running)[0] <= 1


def counts(running: Sequence[Member]) -> list[int]:
    """How many partitions each owns, in order of size."""
    return sorted(len(each.owned) for each in running)


def processed(*runs: Iterable[Found]) -> list[Found]:
    """What was read by anybody, each record once, in order of the partitions and offsets."""
    return sorted({found for run in runs for found in run})


def fill(cluster: LocalCluster, topic: str, partitions: int, each: int = 10) -> None:
    """*each* records into every partition."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number, partition in itertools.product(range(each), range(partitions)):
            producer.send(topic, b"%d %d" % (partition, number), partition=partition)


def coordinators_know(cluster: LocalCluster, partitions: Sequence[TopicPartition]) -> None:
    """Wait for it: they hear of a topic a little later than who describes it, and look no more often than every ten seconds for what matches a pattern."""
    with members() as one:
        one.append(Member(cluster, f"{partitions[0].topic}-known", [partitions[0].topic], **BY_BROKER).start())
        eventually(lambda: shared_out(one, partitions), LIMIT_S)


def end_sessions_after(cluster: LocalCluster, group: str, seconds: float) -> None:
    """What a member of a classic group says for itself, the brokers know for all of a group of the next generation."""
    settings = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[
        ConfigEntry("consumer.session.timeout.ms", str(round(seconds * 1000)), incremental_operation=AlterConfigOpType.SET)])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.incremental_alter_configs([settings])[settings].result(30)


# --- what the brokers say --------------------------------------------------------------------------------------------


class Described(NamedTuple):
    """A group as its coordinator describes it to librdkafka."""

    state: str
    assignor: str
    members: dict[str, frozenset[TopicPartition]]


def describe(cluster: LocalCluster, group: str) -> Described:
    """The group now."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})  # its answers come as long as somebody holds it
    found: Any = None
    while found is None:
        try:
            found = admin.describe_consumer_groups([group])[group].result(30)
        except KafkaException as error:
            if error.args[0].code() not in MOVING:
                raise
    shares = {each.member_id: frozenset(TopicPartition(part.topic, part.partition) for part in each.assignment.topic_partitions)
              for each in found.members}
    return Described(found.state.name, found.partition_assignor, shares)


def settled(cluster: LocalCluster, group: str, partitions: Sequence[TopicPartition]) -> Described:
    """The group once it is stable and each partition has one owner."""
    seen: list[Described] = []

    def so() -> bool:
        seen.append(describe(cluster, group))
        owned = [where for share in seen[-1].members.values() for where in share]
        return seen[-1].state == "STABLE" and sorted(owned) == sorted(partitions)

    eventually(so, LIMIT_S)
    return seen[-1]


def commits(cluster: LocalCluster, group: str) -> dict[TopicPartition, list[int]]:
    """Every offset that the brokers have ever stored for *group*, in order: read from their own log."""
    history: dict[TopicPartition, list[int]] = {}
    with consumer(cluster, isolation_level="read_uncommitted") as reader:
        parts = [TopicPartition(OFFSETS, 0)]  # LocalCluster's has one
        reader.assign(parts)
        [end] = reader.end_offsets(parts).values()
        last = -1
        while last + 1 < end:
            for record in reader.poll(5):
                last = record.offset
                found = _commit(record)
                if found is not None and found[0] == group:
                    history.setdefault(found[1], []).append(found[2])
    return history


def _commit(record: Record) -> tuple[str, TopicPartition, int] | None:
    """Group, partition and offset, if it is a commit."""
    key, value = record.key or b"", record.value
    if value is None or struct.unpack_from(">h", key)[0] > 1:
        return None
    group, rest = _text(key[2:])
    topic, rest = _text(rest)
    return group, TopicPartition(topic, struct.unpack(">i", rest)[0]), struct.unpack_from(">q", value, 2)[0]


def _text(data: bytes) -> tuple[str, bytes]:
    size: int = struct.unpack_from(">h", data)[0]
    return data[2:2 + size].decode(), data[2 + size:]


def goes_back(history: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, Sequence[int]]:
    """The partitions whose committed offset was smaller than before at any time."""
    return {where: offsets for where, offsets in history.items() if list(offsets) != sorted(offsets)}
