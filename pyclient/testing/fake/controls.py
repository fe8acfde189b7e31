"""What tests do to a modelled cluster and ask of it: the same over real sockets and in virtual time."""
from __future__ import annotations

import abc
import difflib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from pyclient.codec.apis import Api
from pyclient.codec.record import Record
from pyclient.records import Header, OffsetAndMetadata, RecordMetadata, TopicPartition
from pyclient.testing.fake import view
from pyclient.testing.fake.model.request import Request
from pyclient.testing.fake.control import Decide, Rule, Throttle, Verdict
from pyclient.testing.fake.model.coordinator import GROUP, Coordinator
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.fake.wire import Front

T = TypeVar("T")
REMEMBERED: Final = 10_000
"""Requests kept in the log; older ones are forgotten."""


class Controls(abc.ABC):
    """A cluster's topics, records, groups, requests and brokers, as a test has them in its hands."""

    def __init__(self) -> None:
        self._throttles: dict[int | None, Rule] = {}
        self._requests: deque[Request] = deque(maxlen=REMEMBERED)

    @property
    @abc.abstractmethod
    def _front(self) -> Front:
        """Where the cluster's connections come in."""

    @abc.abstractmethod
    def _do(self, work: Callable[[Kafka], T]) -> T:
        """Have the model do something where it runs."""

    def _remember(self, event: str, facts: Mapping[str, object]) -> None:
        request = facts.get("request")
        if event == "request" and isinstance(request, Request):
            self._requests.append(request)

    # ---- topics and records -----------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, *, replication_factor: int | None = None,
                     config: Mapping[str, str] | None = None) -> None:
        """Make a topic; ``config`` are topic settings by Kafka's names.

        Raises:
            ValueError: the name or a setting is not one of Kafka's, or the topic exists.
        """
        self._do(lambda kafka: view.create_topic(kafka, name, partitions, replication_factor, dict(config or {})))

    def topics(self) -> dict[str, int]:
        """How many partitions each topic has."""
        return self._do(lambda kafka: {each.name: len(each.partitions) for each in kafka.topics.values()})

    def produce(self, topic: str, value: bytes | None, key: bytes | None = None, *, partition: int | None = None,
                headers: Sequence[Header] = (), timestamp: int | None = None) -> RecordMetadata:
        """Put a record into a topic without any client. Without ``partition`` the key chooses as Java's does; no key: 0.

        Raises:
            ValueError: there is no such topic or partition.
            IllegalStateError: the partition cannot be written to now.
        """
        return self._do(lambda kafka: view.produce(kafka, topic, partition, (timestamp, key, value, headers)))

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """What consumers can read: by partition, then offset.

        Raises:
            ValueError: there is no such topic or partition.
        """
        return self._do(lambda kafka: [record for each in view.partitions(kafka, topic, partition) for record in view.records(each)])

    def advance_retention(self, topic: str, partition: int, offset: int) -> None:
        """Delete what is before *offset*, as a broker does with old records.

        Raises:
            ValueError: there is no such partition, or it has not come to that offset.
        """
        self._do(lambda kafka: view.begin_at(_partition(kafka, topic, partition), offset))

    # ---- groups -----------------------------------------------------------------------------------------------------

    def groups(self) -> dict[str, view.GroupView]:
        """Every group, with its members and what they are assigned."""
        return self._do(lambda kafka: {each.id: view.group(kafka, each) for each in kafka.part(Coordinator).groups.values()})

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; empty for a group that never was."""
        return self._do(lambda kafka: view.committed(kafka, group))

    def expire_session(self, group: str, member: str) -> None:
        """Have the coordinator give a member up, as if it had been silent for its session timeout.

        ``member`` is its member id, its ``group.instance.id``, or its client id when only one member has it.

        Raises:
            ValueError: there is no such group or member.
        """
        self._do(lambda kafka: view.expire(kafka, group, member))

    # ---- users ------------------------------------------------------------------------------------------------------

    def set_password(self, user: str, password: str | None) -> None:
        """Let *user* log in with *password* from now on; None: not at all. Who is logged in stays so until he has to log in anew.

        Raises:
            IllegalStateError: the cluster was made without ``sasl``.
        """
        self._do(lambda kafka: view.set_password(kafka, user, password))

    # ---- requests ---------------------------------------------------------------------------------------------------

    def requests(self, api: Api | str | None = None, *, broker: int | None = None) -> list[Request]:
        """What was asked so far, the newest 10,000 of it: of one API ("Produce"), of one broker, or all."""
        wanted = None if api is None else _api(api)
        return self._do(lambda _: [each for each in self._requests if wanted in (None, each.api) and broker in (None, each.broker)])

    def intercept(self, decide: Decide | Verdict, api: Api | str | None = None, *, broker: int | None = None,
                  times: int | None = None) -> Rule:
        """Decide what becomes of requests: of an API ("Produce") or all, at one broker or any, so many times or always.

        *decide* is a verdict (`Answer`, `Fail`, `Delay`, `Drop`, `Cut`, `Silence`, `Throttle`), or a function that is given each
        request and returns a verdict or None; it runs on the cluster's loop and must not wait. The rule that is returned
        counts its ``hits``; its ``remove()``, or the end of ``with cluster.intercept(...):``, ends it.

        Raises:
            ValueError: an API or broker that is not there, or ``times`` below 1.
        """
        wanted = None if api is None else _api(api)
        if times is not None and times < 1:
            raise ValueError(f"times={times}: at least once, or None for always")
        return self._do(lambda kafka: self._front.control.intercept(decide, api=wanted, broker=_broker(kafka, broker), times=times))

    def throttle(self, ms: int, *, broker: int | None = None) -> None:
        """Tell clients in every answer to keep silent so long (KIP-219), by one broker or all; 0 ends it.

        Raises:
            ValueError: there is no such broker, or *ms* is negative.
        """
        if ms < 0:
            raise ValueError(f"ms={ms}: a time is not negative")
        before = self._throttles.pop(broker, None)
        if before is not None:
            before.remove()
        if ms:
            self._throttles[broker] = self.intercept(Throttle(ms), broker=broker)

    # ---- brokers ----------------------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; -1 when none does."""
        return self._do(lambda kafka: _partition(kafka, topic, partition).leader)

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Let another in-sync replica lead.

        Raises:
            ValueError: there is no such partition or broker.
            IllegalStateError: the broker has no replica in sync, or does not run.
        """
        self._do(lambda kafka: _partition(kafka, topic, partition).move_leader(_known_broker(kafka, to)))

    def coordinator(self, group: str) -> int:
        """The broker that coordinates a group; -1 when none runs."""
        return self._do(lambda kafka: kafka.coordinator(GROUP, group))

    def move_coordinator(self, group: str, to: int) -> None:
        """Let another broker coordinate a group; its members and offsets move with it.

        Raises:
            ValueError: there is no such broker.
            IllegalStateError: the broker does not run.
        """
        self._do(lambda kafka: kafka.move_coordinator(group, to))

    def kill(self, broker: int, *, lose_tail: bool = False) -> None:
        """End a broker at once: connections are cut, other replicas lead. With *lose_tail* its disk loses what was not replicated.

        Raises:
            ValueError: there is no such broker.
            IllegalStateError: it does not run.
        """
        self.resume(broker)
        self._do(lambda kafka: kafka.kill(broker, lose_tail=lose_tail))

    def restart(self, broker: int, *, lose_tail: bool = False) -> None:
        """Start a killed broker again at its address, or kill and start a running one; it listens when this returns.

        Raises:
            ValueError: there is no such broker.
            OSError: somebody took its port meanwhile.
        """
        if self._do(lambda kafka: kafka.brokers[_known_broker(kafka, broker)].alive):
            self.kill(broker, lose_tail=lose_tail)
        self._do(lambda kafka: kafka.restart(broker))

    def pause(self, broker: int) -> None:
        """Let a broker fall silent: it stays connected, takes connections, and answers nothing until `resume`. Others do not notice.

        Raises:
            ValueError: there is no such broker.
        """
        self._do(lambda kafka: self._front.pause(_known_broker(kafka, broker)))

    def resume(self, broker: int) -> None:
        """Let a paused broker answer what it was asked meanwhile. Does nothing when it was not paused.

        Raises:
            ValueError: there is no such broker.
        """
        self._do(lambda kafka: self._front.resume(_known_broker(kafka, broker)))


def _api(name: Api | str) -> Api:
    if isinstance(name, Api):
        return name
    titles = {each.title: each for each in Api}
    if name not in titles:
        near = difflib.get_close_matches(name, titles, 1)
        raise ValueError(f"there is no API {name!r}" + (f": did you mean {near[0]!r}?" if near else f"; known are {', '.join(titles)}"))
    return titles[name]


def _partition(kafka: Kafka, topic: str, index: int) -> Partition:
    return view.partitions(kafka, topic, index)[0]


def _broker(kafka: Kafka, broker: int | None) -> int | None:
    return None if broker is None else _known_broker(kafka, broker)


def _known_broker(kafka: Kafka, broker: int) -> int:
    if broker not in kafka.brokers:
        raise ValueError(f"there is no broker {broker}: the ids are {sorted(kafka.brokers)}")
    return broker
