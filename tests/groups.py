"""Members of real groups in threads of their own, a ledger of their partitions, and the brokers' view of a group."""
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
"""Rebalances are noticed soon, and a member that is gone is removed soon."""
BROKERS_BUSINESS: Final = ("session_timeout_ms", "heartbeat_interval_ms")
"""Options that a member with the consumer protocol may not set."""
MOST: Final = 8
_SETTINGS: Final[Mapping[str, Any]] = {
    "group_min_session_timeout_ms": 500, "group_max_size": MOST, "group_consumer_max_size": MOST,
    "group_consumer_min_session_timeout_ms": 500, "group_consumer_session_timeout_ms": QUICK["session_timeout_ms"],
    "group_consumer_min_heartbeat_interval_ms": 100, "group_consumer_heartbeat_interval_ms": QUICK["heartbeat_interval_ms"],
    "group_consumer_assignment_interval_ms": 0}
ON_ONE_BROKER: Final = pytest.mark.kafka(**_SETTINGS)
ON_THREE_BROKERS: Final = pytest.mark.kafka(brokers=3, **_SETTINGS)
MOVING: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
"""Errors that brokers return for a moment when a coordinator is requested for the first time."""
OFFSETS: Final = "__consumer_offsets"

# --- protocols and assignors ------------------------------------------------------------------------------------------

Terms: TypeAlias = Mapping[str, Any]
"""The options of a group protocol and its assignor."""


def on(**cases: Terms) -> pytest.MarkDecorator:
    """Run the test once with each of these options."""
    return pytest.mark.parametrize("terms", cases.values(), ids=cases)


BY_BROKER: Final[Terms] = {"group_protocol": "consumer"}
"""A member with the consumer protocol (KIP-848): the broker assigns partitions with its default assignor, uniform."""


def by_members(strategy: str) -> Terms:
    """A member of a classic group with this assignor only."""
    return {"assignors": [strategy]}


BOTH: Final = on(classic={}, consumer=BY_BROKER)
ALL: Final = on(range=by_members("range"), cooperative=by_members("cooperative-sticky"), consumer=BY_BROKER)


def quick(**options: Any) -> dict[str, Any]:
    """*options*, and those of `QUICK` that they leave out and the protocol lets a member choose."""
    newer = options.get("group_protocol") == "consumer"
    return {name: value for name, value in {**QUICK, **options}.items() if not (newer and name in BROKERS_BUSINESS)}


# --- ownership ---------------------------------------------------------------------------------------------------


class Ledger:
    """The owners of partitions by the calls of listeners.

    Two owners at a time are a breach, unless the first one has lost the partition.
    """

    def __init__(self) -> None:
        self.breaches: list[str] = []
        self._owners: dict[TopicPartition, list[Listener]] = {}
        self._lock = threading.Lock()

    def take(self, who: Listener, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for where in partitions:
                self._owners.setdefault(where, []).append(who)

    def give(self, who: Listener, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """A listener whose partitions are revoked was the only owner; one that lost them may have a successor already.
        """
        with self._lock:
            for where in partitions:
                owners = self._owners.get(where, [])
                if who in owners:
                    owners.remove(who)
                if owners and not lost:
                    self.breaches.append(f"{where} was given up by one member while another owned it already")

    @property
    def shared(self) -> list[TopicPartition]:
        """Partitions that several listeners own now."""
        with self._lock:
            return [where for where, owners in self._owners.items() if len(owners) > 1]


class ListenerCall(NamedTuple):
    """One call of a listener's method."""

    kind: str
    partitions: tuple[TopicPartition, ...]


class Listener:
    """A listener that records its calls; a call that contradicts earlier ones is a breach."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.owned: frozenset[TopicPartition] = frozenset()
        self.calls: list[ListenerCall] = []
        self.ledger = ledger or Ledger()

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(ListenerCall("assigned", tuple(partitions)))
        self._check(not self.owned & set(partitions), "assigned twice", partitions)
        self.ledger.take(self, partitions)
        self.owned |= set(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._gone("revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._gone("lost", partitions)

    def of(self, kind: str) -> list[tuple[TopicPartition, ...]]:
        """The partitions of its calls of one kind."""
        return [call.partitions for call in self.calls if call.kind == kind]

    def _gone(self, kind: str, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(ListenerCall(kind, tuple(partitions)))
        self._check(set(partitions) <= self.owned, f"{kind}, and not owned", partitions)
        self._check(bool(partitions), f"{kind} of nothing", partitions)
        self.ledger.give(self, partitions, lost=kind == "lost")
        self.owned -= set(partitions)

    def _check(self, right: bool, what: str, partitions: Sequence[TopicPartition]) -> None:
        if not right:
            self.ledger.breaches.append(f"{what}: {[tuple(each) for each in partitions]} of {sorted(map(tuple, self.owned))}")


# --- members ---------------------------------------------------------------------------------------------------------


class CrashError(Exception):
    """Ends a member's program in the middle of its work."""


class Member:
    """A consumer in a thread of its own that reads until it is stopped; *found* is what it is done with, before it says
    so to anybody.

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
        """The partitions that its listener owns."""
        return self.listener.owned

    def start(self) -> Member:
        self._thread.start()
        return self

    def stop(self, *, crash: bool = False) -> None:
        """End it, cleanly or in the middle of its work, and raise its failure."""
        self._crashing, self._stopping = crash, True
        if self.consumer is not None:
            self.consumer.wakeup()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the member's thread does not end"
        if self.fault is not None:
            raise self.fault

    def _guard(self) -> None:
        try:
            with contextlib.suppress(CrashError):
                asyncio.run(self._life())
        except BaseException as fault:  # noqa: BLE001 raised in the test
            self.fault = fault

    async def _life(self) -> None:
        """Run either kind of consumer: the sync one has its own loop, and this loop does nothing else."""
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
                self.consumer.commit_async(callback=self._on_commit)
            elif self._manual:
                await self._commit()
        if self._crashing:
            raise CrashError

    def _note(self, records: Sequence[Record]) -> None:
        strange = {TopicPartition(record.topic, record.partition) for record in records} - self.owned
        if strange:
            self.listener.ledger.breaches.append(f"records of {strange}, which it does not own")
        self.found += [Found(record.partition, record.offset, record.value or b"") for record in records]
        self.keys += [record.key for record in records]

    def _on_commit(self, offsets: object, error: BaseException | None) -> None:
        if isinstance(error, Exception):
            self.refused.append(error)

    async def _commit(self) -> None:
        try:
            await now(self.consumer.commit())
        except (CommitFailedError, RebalanceInProgressError) as refused:
            self.refused.append(refused)


async def now(answer: Any) -> Any:
    """The result of a sync call, or of an async one once awaited."""
    return await answer if inspect.isawaitable(answer) else answer


@contextlib.contextmanager
def members() -> Iterator[list[Member]]:
    """A list for members; those that still run at the end of the block are stopped, and their failures raised."""
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
    """Whether each partition has exactly one owner; raises the failure of a member."""
    for each in running:
        if each.fault is not None:
            raise each.fault
    owned = [where for each in running for where in each.owned]
    return sorted(owned) == sorted(partitions)


def evenly(running: Sequence[Member], partitions: Sequence[TopicPartition]) -> bool:
    """Whether each partition has exactly one owner, and loads differ by at most one."""
    return shared_out(running, partitions) and counts(running)[-1] - counts(running)[0] <= 1


def share_evenly(running: Sequence[Member], partitions: Sequence[TopicPartition]) -> None:
    """Wait until they do; fail with what each member owns then."""
    try:
        eventually(lambda: evenly(running, partitions), LIMIT_S)
    except AssertionError as late:
        late.add_note("; ".join(f"{type(each).__name__} owns {sorted(where.partition for where in each.owned)}" for each in running))
        raise


def counts(running: Sequence[Member]) -> list[int]:
    """The number of partitions of each member, sorted."""
    return sorted(len(each.owned) for each in running)


def processed(*runs: Iterable[Found]) -> list[Found]:
    """The records read by any member, each once, sorted by partition and offset."""
    return sorted({found for run in runs for found in run})


def fill(cluster: LocalCluster, topic: str, partitions: int, each: int = 10) -> None:
    """Write *each* records to every partition."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number, partition in itertools.product(range(each), range(partitions)):
            producer.send(topic, b"%d %d" % (partition, number), partition=partition)


def coordinators_know(cluster: LocalCluster, partitions: Sequence[TopicPartition]) -> None:
    """Wait until coordinators know *partitions*.

    They learn of a topic later than other brokers, and match patterns only every ten seconds.
    """
    with members() as one:
        one.append(Member(cluster, f"{partitions[0].topic}-known", [partitions[0].topic], **BY_BROKER).start())
        eventually(lambda: shared_out(one, partitions), LIMIT_S)


def end_sessions_after(cluster: LocalCluster, group: str, seconds: float) -> None:
    """Set the session timeout of a group with the consumer protocol; with the classic protocol each member sets its
    own.
    """
    settings = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[
        ConfigEntry("consumer.session.timeout.ms", str(round(seconds * 1000)), incremental_operation=AlterConfigOpType.SET)])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.incremental_alter_configs([settings])[settings].result(30)


# --- the brokers' view --------------------------------------------------------------------------------------------


class Described(NamedTuple):
    """A group as its coordinator describes it to librdkafka."""

    state: str
    assignor: str
    members: dict[str, frozenset[TopicPartition]]


def describe(cluster: LocalCluster, group: str) -> Described:
    """The group as its coordinator describes it now."""
    # Its futures complete only while a reference to it exists.
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
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
    """Wait until the group is stable and each partition has one owner; returns its description."""
    seen: list[Described] = []

    def is_stable() -> bool:
        try:
            seen.append(describe(cluster, group))
        except TimeoutError:  # a starved broker: ask again, for as long as `eventually` waits
            return False
        owned = [where for share in seen[-1].members.values() for where in share]
        return seen[-1].state == "STABLE" and sorted(owned) == sorted(partitions)

    eventually(is_stable, LIMIT_S)
    return seen[-1]


class Commit(NamedTuple):
    """A committed offset, and the text beside it."""

    offset: int
    metadata: str


def commits(cluster: LocalCluster, group: str) -> dict[TopicPartition, list[int]]:
    """Every offset that the brokers have stored for *group*, in order."""
    return {tp: [each.offset for each in those] for tp, those in stored_commits(cluster, group).items()}


def stored_commits(cluster: LocalCluster, group: str) -> dict[TopicPartition, list[Commit]]:
    """Every commit that the brokers have stored for *group*, in order, read from their own log."""
    history: dict[TopicPartition, list[Commit]] = {}
    with consumer(cluster, isolation_level="read_uncommitted") as reader:
        partitions = [TopicPartition(OFFSETS, 0)]  # LocalCluster's has one
        reader.assign(partitions)
        [end] = reader.end_offsets(partitions).values()
        last = -1
        while last + 1 < end:
            for record in reader.poll(5):
                last = record.offset
                found = _commit(record)
                if found is not None and found[0] == group:
                    history.setdefault(found[1], []).append(found[2])
    return history


def _commit(record: Record) -> tuple[str, TopicPartition, Commit] | None:
    """Group, partition and commit, if it is one."""
    key, value = record.key or b"", record.value
    if value is None or struct.unpack_from(">h", key)[0] > 1:
        return None
    group, rest = _text(key[2:])
    topic, rest = _text(rest)
    version, offset = struct.unpack_from(">hq", value)
    return group, TopicPartition(topic, struct.unpack(">i", rest)[0]), Commit(offset, _metadata(version, value[10:]))


def _metadata(version: int, data: bytes) -> str:
    """The metadata of an OffsetCommitValue: from version 3 on behind a leader epoch, from 4 on a compact string."""
    text = data[4:] if version >= 3 else data
    return text[1:text[0]].decode() if version >= 4 else _text(text)[0]


def _text(data: bytes) -> tuple[str, bytes]:
    size: int = struct.unpack_from(">h", data)[0]
    return data[2:2 + size].decode(), data[2 + size:]


def goes_back(history: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, Sequence[int]]:
    """The partitions of which a later committed offset was lower than an earlier one."""
    return {where: offsets for where, offsets in history.items() if list(offsets) != sorted(offsets)}


def ours_go_back(history: Mapping[TopicPartition, Sequence[Commit]], theirs: str) -> dict[TopicPartition, list[tuple[Commit, Commit]]]:
    """Pairs of commits in a row of which the second is lower and ours: its metadata is not *theirs*."""
    back = {where: [pair for pair in itertools.pairwise(those) if pair[1].offset < pair[0].offset and pair[1].metadata != theirs]
            for where, those in history.items()}
    return {where: pairs for where, pairs in back.items() if pairs}
