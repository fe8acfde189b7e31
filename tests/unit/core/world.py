"""What a manager gets from outside, as plain values: nodes that accept a request, and responses as brokers send them.

Requests and answers pass through their bytes, so that a field no version knows, or of the wrong kind, fails a test.
"""
from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import NAMESPACE_DNS, UUID, uuid5

import attrs
from kio.schema.errors import ErrorCode
from tenacity import wait_exponential

from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.entities import Reader
from pyclient.codec.messages import decode_response, encode_response, field_names, request_schema
from pyclient.core.backoff import WaitPolicy
from pyclient.core.cluster import Cluster
from pyclient.core.manager import Manager, NotSent, Outcome, Ready, Reply, Request, Unknown, Use
from pyclient.core.metadata import Metadata
from pyclient.errors import DisconnectError, KafkaError

DOUBLING: Final = WaitPolicy(wait_exponential(multiplier=1, max=64))
"""Backoff without jitter: 1, 2, 4 … 64 seconds."""
ROUNDS: Final = 50
NO_ANSWER: Final = DisconnectError("the peer hung up")
CLIENT_ID: Final = "test"
HEADER: Final = 2 + 2 + 4 + 2 + len(CLIENT_ID)  # API key, version, correlation id, length; tags follow in flexible versions
OMITTED: Final[Mapping[str, object]] = {  # what a broker sends where a test sets nothing
    "throttle_time": datetime.timedelta(0), "error_code": 0, "error_message": None,
    "high_watermark": 1000, "aborted_transactions": None, "cluster_id": "cluster", "is_internal": False,
    "metadata": "", "configs": None, "topic_id": None, "records": None, "log_start_offset": 0, "last_stable_offset": 1000,
}


# ---- nodes ----------------------------------------------------------------------------------------------------------


@attrs.define
class World(Ready):
    """Nodes with free slots, and a clock that stands still until a test moves it. It is the `Ready` of the managers."""

    nodes: set[int] = attrs.field(factory=lambda: {1, 2, 3})
    now: float = 100.0
    capacity: dict[Use, int] = attrs.field(
        factory=lambda: {Use.CONTROL: 8, Use.COORDINATION: 8, Use.MEMBERSHIP: 1, Use.FETCH: 1, Use.PRODUCE: 1})
    in_flight: list[Sent] = attrs.field(factory=list)
    wished: set[int] = attrs.field(factory=set)
    versions: dict[Api, int] = attrs.field(factory=dict)

    def slots(self, node: int, use: Use) -> int:
        self.wished.add(node)
        if node not in self.nodes:
            return 0
        return self.capacity[use] - sum(each.request.node == node and each.request.use is use for each in self.in_flight)

    def free(self, node: int, use: Use) -> int:
        wished = set(self.wished)
        found, self.wished = self.slots(node, use), wished
        return found

    def least_loaded(self, use: Use) -> int | None:
        free = [node for node in sorted(self.nodes) if self.slots(node, use)]
        return max(free, key=lambda node: self.slots(node, use), default=None)

    def give_up(self, node: int, use: Use) -> None:
        for sent in [each for each in self.in_flight if (each.node, each.request.use) == (node, use)]:
            sent.is_lost()

    def turn(self, *managers: Manager) -> list[Sent]:
        """Poll until no request comes, as the driver does. Requests can be written now; deadlines are in the future."""
        sent: list[Sent] = []
        for _ in range(ROUNDS):
            new = [one for manager in managers for one in self._poll(manager)]
            if not new:
                self._check_rest(managers)
                return sent
            sent += new
        raise AssertionError(f"the managers still emit after {ROUNDS} rounds: {sent[-3:]}")

    def after(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def _poll(self, manager: Manager) -> Iterable[Sent]:
        for request in manager.poll(self.now, self):
            yield self._write(request)

    def _write(self, request: Request) -> Sent:
        assert self.slots(request.node, request.use) > 0, f"{request.api.title} cannot be written to node {request.node} now"
        self.in_flight.append(Sent(self, request))
        return self.in_flight[-1]

    def _check_rest(self, managers: Iterable[Manager]) -> None:
        for manager in managers:
            deadline = manager.next_deadline()
            assert deadline is None or deadline > self.now, f"{manager} would spin: {deadline} is not after {self.now}"


@attrs.define(eq=False)
class Sent:
    """A request in flight; it ends once."""

    world: World
    request: Request

    @property
    def node(self) -> int:
        return self.request.node

    @property
    def api(self) -> Api:
        return self.request.api

    @property
    def version(self) -> int:
        """The one it is sent in: the newest both sides speak, unless the request bounds it."""
        spoken = self.world.versions.get(self.api, SPOKEN[self.api].high)
        return min(spoken, self.request.versions.high) if self.request.versions else spoken

    @property
    def body(self) -> Any:
        """The request as a broker reads it."""
        return read_request(self.request, self.version)

    def reply(self, **fields: object) -> bool | None:
        """The broker answers; True if the client has nothing to do because of it."""
        return self.end(Reply(self.version, self.request.decode(self.version, response(self.api, self.version, **fields))))

    def is_lost(self, cause: KafkaError = NO_ANSWER) -> None:
        """The connection went away, the outcome is unknown."""
        self.end(Unknown(cause))

    def is_not_sent(self, cause: KafkaError = NO_ANSWER) -> None:
        """It was never written."""
        self.end(NotSent(cause))

    def end(self, outcome: Outcome) -> bool | None:
        self.world.in_flight.remove(self)
        return self.request.done(self.world.now, outcome)


# ---- metadata -------------------------------------------------------------------------------------------------------

MAX_AGE: Final = 300.0


def make_metadata(*, max_idle: float = 1000.0, rebootstrap_after: float | None = None, create_topics: bool = False,
                  on_update: Callable[[Cluster], object] = lambda cluster: None, of_controllers: bool = False) -> Metadata:
    """A Metadata manager that knows nothing yet."""
    return Metadata(
        max_age=MAX_AGE, max_idle=max_idle, rebootstrap_after=rebootstrap_after, request_timeout=30.0, backoff=DOUBLING,
        create_topics=create_topics, on_update=lambda cluster: _ignore(on_update(cluster)), of_controllers=of_controllers)


def _ignore(result: object) -> None:
    """Metadata does not depend on what its listeners do with a view."""


# ---- messages -------------------------------------------------------------------------------------------------------


def read_request(request: Request, version: int) -> Any:
    """Write a request in *version* and read it as a broker does; every field it gives must be Kafka's."""
    if request.fields is not None:
        unknown = names_in(request.fields(version)) - field_names(request.api)
        assert not unknown, f"no version of {request.api.title} has {unknown}"
    frame = b"".join(map(bytes, request.encode(version, 1, CLIENT_ID)))
    schema = request_schema(request.api, version)
    read = Reader(frame, HEADER + schema.flexible)
    entity = read.read(schema)
    assert not read.left
    return entity


def answer(api: Api, version: int, **fields: object) -> Any:
    """An answer as it is read from the wire; what *version* lacks is left out, usual values are filled in."""
    return decode_response(api, version, memoryview(response(api, version, **fields)))


def response(api: Api, version: int, **fields: object) -> bytes:
    """The same as its bytes, header included."""
    return encode_response(api, version, 1, _with_usual(fields))


def names_in(value: object) -> set[str]:
    """Every field name at any depth."""
    if isinstance(value, Mapping):
        return set(value).union(*(names_in(inner) for inner in value.values()))
    if isinstance(value, (list, tuple)):
        return set().union(*(names_in(item) for item in value))
    return set()


def _with_usual(fields: Mapping[str, object]) -> dict[str, object]:
    """Usual values at every depth."""
    return {**OMITTED, **{name: _deep(value) for name, value in fields.items()}}


def _deep(value: object) -> object:
    if isinstance(value, Mapping):
        return _with_usual(value)
    if isinstance(value, (list, tuple)):
        return [_deep(item) for item in value]
    return value


# ---- metadata responses ---------------------------------------------------------------------------------------------


def topic_id(name: str) -> UUID:
    """The id that brokers here give a topic of this name."""
    return uuid5(NAMESPACE_DNS, name)


def topic(name: str, *leaders: int, epoch: int = 0, id: UUID | None = None, error: int = 0, **more: object) -> dict[str, object]:  # noqa: A002
    """A topic of a Metadata answer with a partition per leader; leader -1: none."""
    parts = [partition(number, leader, epoch) for number, leader in enumerate(leaders)]
    return {"name": name, "topic_id": id or topic_id(name), "error_code": error, "partitions": parts, **more}


def partition(number: int, leader: int, epoch: int = 0) -> dict[str, object]:
    """A partition of a Metadata answer."""
    return {"error_code": 0 if leader >= 0 else ErrorCode.leader_not_available.value, "partition_index": number,
            "leader_id": leader, "leader_epoch": epoch, "replica_nodes": [1, 2], "isr_nodes": [1], "offline_replicas": []}


def brokers(*nodes: int) -> list[dict[str, object]]:
    """The brokers of a Metadata answer."""
    return [{"node_id": node, "host": f"broker-{node}", "port": 9092, "rack": None} for node in nodes]


def view(*topics: Mapping[str, object], nodes: Iterable[int] = (1, 2, 3), controller: int = 1) -> dict[str, object]:
    """The fields of a Metadata answer."""
    return {"brokers": brokers(*nodes), "controller_id": controller, "topics": list(topics)}
