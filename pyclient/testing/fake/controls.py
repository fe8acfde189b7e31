"""Control and inspection of a modelled cluster by tests: the same with real sockets and in virtual time."""
from __future__ import annotations

import abc
import difflib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from pyclient.codec.apis import Api
from pyclient.records import Header, OffsetAndMetadata, RecordMetadata, TopicPartition
from pyclient.records.record import Record
from pyclient.testing.fake import view
from pyclient.testing.fake.model.request import Request
from pyclient.testing.fake.control import Decide, Rule, Throttle, Verdict
from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.model.homes import GROUP
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.fake.wire import Front

T = TypeVar("T")
REMEMBERED: Final = 10_000
"""Requests kept for inspection; older ones are dropped."""


class Controls(abc.ABC):
    """A cluster's topics, records, groups, requests and brokers, for tests."""

    def __init__(self) -> None:
        self._throttles: dict[int | None, Rule] = {}
        self._requests: deque[Request] = deque(maxlen=REMEMBERED)

    @property
    @abc.abstractmethod
    def _front(self) -> Front:
        """The server side of the cluster's connections."""

    @abc.abstractmethod
    def _do(self, work: Callable[[Kafka], T]) -> T:
        """Run *work* on the model's loop."""

    def _remember(self, event: str, facts: Mapping[str, object]) -> None:
        request = facts.get("request")
        if event == "request" and isinstance(request, Request):
            self._requests.append(request)

    # ---- topics and records ------------------------------------------------------------------------------------------

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
        """Append a record without a client. Without ``partition`` the key chooses as in Java; without a key it is 0.

        Raises:
            ValueError: there is no such topic or partition.
            IllegalStateError: the partition cannot be written to now.
        """
        return self._do(lambda kafka: view.produce(kafka, topic, partition, (timestamp, key, value, headers)))

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """The readable records by partition, then offset.

        Raises:
            ValueError: there is no such topic or partition.
        """
        return self._do(lambda kafka: [record for each in view.partitions(kafka, topic, partition) for record in view.records(each)])

    def advance_retention(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records before *offset*, as retention does.

        Raises:
            ValueError: there is no such partition, or the offset is not committed.
        """
        self._do(lambda kafka: view.begin_at(_partition(kafka, topic, partition), offset))

    # ---- groups ------------------------------------------------------------------------------------------------------

    def groups(self) -> dict[str, view.GroupView]:
        """Every group, with its members and what they are assigned."""
        return self._do(lambda kafka: {each.id: view.group(kafka, each) for each in kafka.part(Coordinator).groups.values()})

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; empty for an unknown group."""
        return self._do(lambda kafka: view.committed(kafka, group))

    def expire_session(self, group: str, member: str) -> None:
        """Expire a member's session, as if it had sent no heartbeat for its session timeout.

        ``member`` is its member id, its ``group.instance.id``, or its client id when only one member has it.

        Raises:
            ValueError: there is no such group or member.
        """
        self._do(lambda kafka: view.expire(kafka, group, member))

    # ---- users -------------------------------------------------------------------------------------------------------

    def set_password(self, user: str, password: str | None) -> None:
        """Set a user's password; None removes the user. Existing sessions stay valid until they re-authenticate.

        Raises:
            IllegalStateError: the cluster was made without ``sasl``.
        """
        self._do(lambda kafka: view.set_password(kafka, user, password))

    # ---- requests ----------------------------------------------------------------------------------------------------

    def requests(self, api: Api | str | None = None, *, broker: int | None = None) -> list[Request]:
        """The newest 10,000 requests: of one API ("Produce"), of one broker, or all."""
        wanted = None if api is None else _api(api)
        return self._do(lambda _: [each for each in self._requests if wanted in (None, each.api) and broker in (None, each.broker)])

    def intercept(self, decide: Decide | Verdict, api: Api | str | None = None, *, broker: int | None = None,
                  times: int | None = None) -> Rule:
        """Intercept requests: of one API ("Produce") or all, at one broker or any, for some *times* or always.

        *decide* is a verdict (`Answer`, `Change`, `Fail`, `Drop` …), or a function that is
        given each request and returns a verdict or None; it runs on the cluster's loop and must not wait. The rule that
        is returned counts its ``hits``; its ``remove()``, or the end of ``with cluster.intercept(...):``, ends it.

        Raises:
            ValueError: an API or broker that is not there, or ``times`` below 1.
        """
        wanted = None if api is None else _api(api)
        if times is not None and times < 1:
            raise ValueError(f"times={times}: at least once, or None for always")
        return self._do(lambda kafka: self._front.control.intercept(decide, api=wanted, broker=_broker(kafka, broker), times=times))

    def throttle(self, ms: int, *, broker: int | None = None) -> None:
        """Throttle clients by *ms* in every response (KIP-219), by one broker or all; 0 ends it.

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

    # ---- brokers -----------------------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; -1 when none does."""
        return self._do(lambda kafka: _partition(kafka, topic, partition).leader)

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make another in-sync replica the leader.

        Raises:
            ValueError: there is no such partition or broker.
            IllegalStateError: the broker has no replica in sync, or does not run.
        """
        self._do(lambda kafka: _partition(kafka, topic, partition).elections.move_leader(_known_broker(kafka, to)))

    def coordinator(self, group: str) -> int:
        """The broker that coordinates a group; -1 when none runs."""
        return self._do(lambda kafka: kafka.coordinator(GROUP, group))

    def move_coordinator(self, group: str, to: int) -> None:
        """Make another broker coordinate a group; its members and offsets move along.

        Raises:
            ValueError: there is no such broker.
            IllegalStateError: the broker does not run.
        """
        self._do(lambda kafka: kafka.move_coordinator(group, to))

    def kill(self, broker: int, *, lose_tail: bool = False) -> None:
        """Kill a broker: connections are cut, other replicas lead. With *lose_tail* its unreplicated records are lost.

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
            OSError: another process took its port.
        """
        if self._do(lambda kafka: kafka.brokers[_known_broker(kafka, broker)].alive):
            self.kill(broker, lose_tail=lose_tail)
        self._do(lambda kafka: kafka.restart(broker))

    def pause(self, broker: int) -> None:
        """Pause a broker: it accepts connections and answers nothing until `resume`. Other brokers do not notice.

        Raises:
            ValueError: there is no such broker.
        """
        self._do(lambda kafka: self._front.pause(_known_broker(kafka, broker)))

    def resume(self, broker: int) -> None:
        """Resume a paused broker; it answers the requests received meanwhile. Does nothing when it was not paused.

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
