"""The state of the cluster: brokers, topics, partitions and coordinators. Runs on one asyncio loop."""
from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs

from pyclient.errors import IllegalStateError
from pyclient.testing.fake.model.notifier import Notifier
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.fake.model.profiles import NEWEST, PROFILES, Profile
from pyclient.testing.fake.model.settings import Settings

T = TypeVar("T")
COORDINATOR_SLOTS: Final = 50
"""Partitions of the topic in which a real cluster keeps its groups."""


@attrs.define(eq=False)
class Broker:
    """One node. Ids begin with 1."""

    id: int
    host: str
    port: int
    rack: str | None = None
    alive: bool = True
    fenced: bool = False
    """Taken for dead, although it hangs only."""
    epoch: int = 1
    """Grows with every start; a request from before a restart must not be answered after it."""
    parts: dict[type, Any] = attrs.field(factory=dict)
    """What an API family keeps for this broker only (such as fetch sessions); lost when it is killed."""


@attrs.define(eq=False)
class Topic:
    """A topic and its partitions."""

    name: str
    id: UUID
    config: dict[str, str]
    partitions: list[Partition] = attrs.field(factory=list)
    internal: bool = False


class Kafka:
    """The model. *clock* is in seconds and monotonic (the loop's), *wall* in ms since the epoch.

    API families keep their own state here by type: ``kafka.part(Groups)`` gives the one `Groups` of this cluster.
    """

    def __init__(self, brokers: Sequence[Broker], *, clock: Callable[[], float], wall: Callable[[], int], random: Random,
                 settings: Settings | None = None, profile: Profile = PROFILES[NEWEST], users: Mapping[str, str] | None = None) -> None:
        self.brokers: dict[int, Broker] = {each.id: each for each in brokers}
        self.clock = clock
        self.wall = wall
        self.random = random
        self.settings = settings or Settings()
        self.profile = profile
        self.users = None if users is None else dict(users)
        """User name → password; None: no login is needed."""
        self.cluster_id = _identifier(random).hex[:22]
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.changed = Notifier()
        """Notifies when brokers, topics or leaders change."""
        self.listeners: list[Callable[[str, Mapping[str, object]], None]] = []
        self._parts: dict[object, Any] = {}
        self._moved_coordinators: dict[tuple[int, str], int] = {}

    # ---- events ------------------------------------------------------------------------------------------------------

    def report(self, event: str, **facts: object) -> None:
        """Report an event to every listener: journals, invariants, tests."""
        for listener in self.listeners:
            listener(event, facts)

    def part(self, kind: Callable[[Kafka], T]) -> T:
        """The one object of this class that belongs to this cluster; created on first use."""
        found: T | None = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind(self)
        return found

    # ---- topics ------------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int | None = None, *, replication_factor: int | None = None,
                     replicas: Sequence[Sequence[int]] | None = None, config: Mapping[str, str] | None = None) -> Topic:
        """Make a topic; *replicas* are the broker ids of each partition, the preferred leader first. Checks nothing."""
        topic = Topic(name, _identifier(self.random), dict(config or {}), internal=name.startswith("__"))
        if replicas is None:
            count = self.settings.num_partitions if partitions is None else partitions
            replicas = self.placed(len(self.topics), count, replication_factor or self.settings.default_replication_factor)
        self.topics[name] = self.topics_by_id[topic.id] = topic
        self.add_partitions(topic, replicas)
        self.report("topic created", topic=name, partitions=len(topic.partitions))
        return topic

    def add_partitions(self, topic: Topic, replicas: Sequence[Sequence[int]]) -> None:
        """Append partitions to a topic."""
        for each in replicas:
            topic.partitions.append(Partition(self, topic, len(topic.partitions), list(each)))
        self.changed.notify()

    def placed(self, first: int, partitions: int, replication_factor: int) -> list[list[int]]:
        """Replicas spread over the brokers in turn, beginning with the broker at *first*."""
        ids = sorted(self.brokers)
        factor = min(replication_factor, len(ids))
        return [[ids[(first + partition + replica) % len(ids)] for replica in range(factor)] for partition in range(partitions)]

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all its records."""
        topic = self.topics.pop(name)
        del self.topics_by_id[topic.id]
        for partition in topic.partitions:
            partition.delete()
        self.report("topic deleted", topic=name)
        self.changed.notify()

    def partition(self, topic: str | UUID | None, index: int) -> Partition | None:
        """A partition by its topic's name or id, if there is one."""
        found = self.topics_by_id.get(topic) if isinstance(topic, UUID) else self.topics.get(topic or "")
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None

    # ---- brokers -----------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[int]:
        """Ids of the brokers that run."""
        return [each.id for each in self.brokers.values() if each.alive]

    @property
    def controller(self) -> int:
        """The broker that Metadata names as controller; -1 when none runs."""
        return min(self.alive, default=-1)

    def kill(self, broker: int, *, lose_tail: bool = False) -> None:
        """Kill a broker. Its server cuts the connections on the event (see `listeners`).

        With *lose_tail* its unreplicated records are lost.
        """
        self._take_out(broker, "broker killed", lose_tail=lose_tail)

    def fence(self, broker: int) -> None:
        """The controller takes a broker for dead that hangs: its connections stay open. `restart` lets it come back."""
        self.brokers[broker].fenced = True
        self._take_out(broker, "broker fenced", lose_tail=False)

    def _take_out(self, broker: int, event: str, *, lose_tail: bool) -> None:
        self._must_be(broker, alive=True)
        node = self.brokers[broker]
        node.alive = False
        node.parts.clear()
        self.report(event, broker=broker)
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.broker_down(broker, lose_tail=lose_tail)
        self.changed.notify()

    def restart(self, broker: int) -> None:
        """Start a killed broker again, with its address and its logs."""
        self._must_be(broker, alive=False)
        node = self.brokers[broker]
        node.alive, node.fenced = True, False
        node.epoch += 1
        self.report("broker started", broker=broker)
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.broker_up(broker)
        self.changed.notify()

    def _must_be(self, broker: int, *, alive: bool) -> None:
        if broker not in self.brokers:
            raise ValueError(f"there is no broker {broker}: the ids are {sorted(self.brokers)}")
        if self.brokers[broker].alive is not alive:
            raise IllegalStateError(f"broker {broker} is {'not running' if alive else 'running'} already")

    # ---- coordinators ------------------------------------------------------------------------------------------------

    def coordinator(self, key_type: int, key: str) -> int:
        """The broker that coordinates a group (0) or a transactional id (1); -1 when none runs."""
        chosen = self._moved_coordinators.get((key_type, key), -1)
        if chosen in self.alive:
            return chosen
        ids = sorted(self.brokers)
        first = zlib.crc32(f"{key_type}{key}".encode()) % COORDINATOR_SLOTS
        return next((node for step in range(len(ids)) if (node := ids[(first + step) % len(ids)]) in self.alive), -1)

    def move_coordinator(self, key: str, to: int, key_type: int = 0) -> None:
        """Let another live broker coordinate a group or transactional id."""
        self._must_be(to, alive=True)
        self._moved_coordinators[key_type, key] = to
        self.report("coordinator moved", key=key, to=to)
        self.changed.notify()


def _identifier(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128), version=4)
