"""Asks a running cluster, in raw protocol, whether it truly works: a record produced with acks=all is acknowledged.

Deliberately none of pyclient's own client: what starts the brokers for its tests must not depend on what they test.
Plaintext only. One socket per broker, blocking, every wait bounded.
"""
from __future__ import annotations

import datetime
import io
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from typing import Final, NamedTuple, Protocol, TypeVar

import crc32c
from kio.schema.create_topics.v5 import request as create_request
from kio.schema.create_topics.v5 import response as create_response
from kio.schema.delete_topics.v4 import request as delete_request
from kio.schema.delete_topics.v4 import response as delete_response
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v9 import request as metadata_request
from kio.schema.metadata.v9 import response as metadata_response
from kio.schema.produce.v7 import request as produce_request
from kio.schema.produce.v7 import response as produce_response
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, i16, i32, i32Timedelta
from kio.static.protocol import Entity

from pyclient.records import Node

POLL_S: Final = 0.03
REQUEST_TIMEOUT_S: Final = 5.0  # what the broker may wait
ATTEMPT_TIMEOUT_S: Final = 10.0  # what an attempt may wait for the broker
SHORTEST_ATTEMPT_S: Final = 0.2
MAX_REPLY_BYTES: Final = 16 * 1024 * 1024
TOPIC_PREFIX: Final = "pyclient-probe-"

Address = tuple[str, int]
Answer = TypeVar("Answer", bound=Entity)


class NotReadyError(Exception):
    """The cluster cannot do it yet; the text says what it answered."""


class Replication(NamedTuple):
    """Where a partition's replicas are, and which of them are in sync. ``leader`` is negative while there is none."""

    topic: str
    partition: int
    leader: int
    replicas: frozenset[int]
    isr: frozenset[int]

    def lags(self, expected: AbstractSet[int]) -> bool:
        """Whether it has no leader, or a replica on one of the *expected* brokers is not in sync."""
        return self.leader < 0 or not (self.replicas & expected) <= self.isr

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} (replicas {sorted(self.replicas)}, in sync {sorted(self.isr)})"


class Alive(Protocol):
    """Called between attempts; raises when waiting on is pointless, a broker having ended."""

    def __call__(self) -> None: ...


def wait_until_ready(addresses: Mapping[int, Address], *, timeout_s: float, alive: Alive, cluster_id: str | None = None) -> None:
    """Return when a record was acknowledged by as many in-sync replicas as there are brokers, and its topic is gone.

    *addresses* are the brokers' own, by node id: what they advertise may lead through a proxy. With *cluster_id* the
    brokers must be that cluster's: another one may have taken the port of a broker that has not ended yet.

    Raises:
        TimeoutError: not within *timeout_s*; the text says what the cluster last answered.
    """
    deadline = time.monotonic() + timeout_s
    topic = f"{TOPIC_PREFIX}{uuid.uuid4().hex[:8]}"
    first = next(iter(addresses.values()))
    if cluster_id is not None:
        poll(lambda limit_s: _expect_cluster(addresses.values(), cluster_id, limit_s), deadline, alive)
    poll(lambda limit_s: _create(first, topic, len(addresses), limit_s), deadline, alive)
    poll(lambda limit_s: produce(addresses, topic, limit_s), deadline, alive)
    poll(lambda limit_s: _delete(first, topic, limit_s), deadline, alive)
    poll(lambda limit_s: _expect_absent(addresses.values(), topic, limit_s), deadline, alive)


def wait_until_in_sync(addresses: Mapping[int, Address], *, timeout_s: float, alive: Alive) -> None:
    """Return when each of *addresses* sees all of them registered, and their replicas of every partition in sync.

    Raises:
        TimeoutError: not within *timeout_s*; the text names brokers and partitions that lag.
    """
    deadline = time.monotonic() + timeout_s
    poll(lambda limit_s: _expect_in_sync(addresses.values(), addresses.keys(), limit_s), deadline, alive)


def wait_until_joined(node_id: int, address: Address, *, timeout_s: float, alive: Alive) -> None:
    """Return when the broker at *address* sees itself registered and its own replicas in sync; others may be down.

    Raises:
        TimeoutError: not within *timeout_s*.
    """
    poll(lambda limit_s: _expect_in_sync((address,), {node_id}, limit_s), time.monotonic() + timeout_s, alive)


def discover(bootstrap: Sequence[Address], *, timeout_s: float) -> tuple[Node, ...]:
    """The brokers of a running cluster, as they advertise themselves, asking the first of *bootstrap* that answers.

    Raises:
        TimeoutError: none answered within *timeout_s*.
    """
    deadline = time.monotonic() + timeout_s
    return poll(lambda limit_s: _nodes(bootstrap, limit_s), deadline, _no_reason_to_stop)


def _no_reason_to_stop() -> None:
    return None


Result = TypeVar("Result")


def poll(attempt: Callable[[float], Result], deadline: float, alive: Alive) -> Result:
    """Repeat *attempt*, which may take as many seconds as it is given, until it succeeds or the deadline has passed."""
    while True:
        alive()
        try:
            return attempt(min(max(deadline - time.monotonic(), SHORTEST_ATTEMPT_S), ATTEMPT_TIMEOUT_S))
        except (OSError, NotReadyError) as failed:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster was not ready in time; the last attempt said: {failed}") from failed
            time.sleep(POLL_S)


def _nodes(bootstrap: Sequence[Address], limit_s: float) -> tuple[Node, ...]:
    failures = []
    for address in bootstrap:
        try:
            brokers = metadata(address, (), limit_s=limit_s).brokers
        except (OSError, NotReadyError) as failed:
            failures.append(f"{address[0]}:{address[1]}: {failed}")
        else:
            return tuple(sorted(Node(int(b.node_id), b.host, int(b.port), b.rack) for b in brokers))
    raise NotReadyError("; ".join(failures))


def _create(address: Address, topic: str, replicas: int, limit_s: float) -> None:
    request = create_request.CreateTopicsRequest(
        topics=(create_request.CreatableTopic(
            name=TopicName(topic), num_partitions=i32(1), replication_factor=i16(min(replicas, 3)), assignments=(),
            configs=(create_request.CreatableTopicConfig(name="min.insync.replicas", value=str(min(replicas, 3))),),
        ),),
        timeout=_timeout(),
    )
    for result in ask(address, request, create_response.CreateTopicsResponse, limit_s).topics:
        if result.error_code is not ErrorCode.topic_already_exists:  # an earlier attempt's answer was lost
            check(result.error_code, f"creating a topic with {min(replicas, 3)} replicas", result.error_message)


def produce(addresses: Mapping[int, Address], topic: str, limit_s: float = ATTEMPT_TIMEOUT_S) -> None:
    """Append one record to partition 0 of *topic* with acks=all. Raises OSError or NotReadyError."""
    leader = _leader(next(iter(addresses.values())), topic, limit_s)
    if leader not in addresses:
        raise NotReadyError(f"the partition's leader is {leader}, none of {sorted(addresses)}")
    request = produce_request.ProduceRequest(
        acks=i16(-1), timeout=_timeout(),
        topic_data=(produce_request.TopicProduceData(name=TopicName(topic), partition_data=(
            produce_request.PartitionProduceData(index=i32(0), records=Records(one_record_batch(b"ready?"))),)),),
    )
    for answered in ask(addresses[leader], request, produce_response.ProduceResponse, limit_s).responses:
        for part in answered.partition_responses:
            check(part.error_code, "producing with acks=all")


def _leader(address: Address, topic: str, limit_s: float) -> int:
    for found in metadata(address, (topic,), limit_s=limit_s).topics:
        check(found.error_code, "looking up the new topic")
        for part in found.partitions:
            check(part.error_code, "looking up the new partition")
            return int(part.leader_id)
    raise NotReadyError("the new topic is not known yet")


def _delete(address: Address, topic: str, limit_s: float) -> None:
    request = delete_request.DeleteTopicsRequest(topic_names=(TopicName(topic),), timeout=_timeout())
    for result in ask(address, request, delete_response.DeleteTopicsResponse, limit_s).responses:
        if result.error_code is not ErrorCode.unknown_topic_or_partition:
            check(result.error_code, "deleting the probe's topic")


def _expect_cluster(addresses: Iterable[Address], cluster_id: str, limit_s: float) -> None:
    for host, port in addresses:
        if (found := metadata((host, port), (), limit_s=limit_s).cluster_id) != cluster_id:
            raise NotReadyError(f"{host}:{port} belongs to the cluster {found}, not to {cluster_id}")


def _expect_absent(addresses: Iterable[Address], topic: str, limit_s: float) -> None:
    for address in addresses:
        if any(found.name == topic for found in metadata(address, limit_s=limit_s).topics):
            raise NotReadyError("the probe's topic is still being deleted")


def _expect_in_sync(addresses: Iterable[Address], expected: AbstractSet[int], limit_s: float) -> None:
    """All *addresses* agree that the *expected* brokers are registered and in sync wherever they hold a replica."""
    for address in addresses:
        view = metadata(address, limit_s=limit_s)
        if missing := expected - {int(broker.node_id) for broker in view.brokers}:
            raise NotReadyError(f"brokers {sorted(missing)} are not registered")
        if lagging := [str(part) for part in _partitions(view) if part.lags(expected)]:
            raise NotReadyError(f"not in sync: {', '.join(lagging[:5])}{' …' if len(lagging) > 5 else ''}")


def _partitions(view: metadata_response.MetadataResponse) -> Iterator[Replication]:
    for topic in view.topics:
        for part in topic.partitions:
            yield Replication(topic.name, int(part.partition_index), int(part.leader_id),
                              frozenset(map(int, part.replica_nodes)), frozenset(map(int, part.isr_nodes)))


def metadata(
    address: Address, topics: tuple[str, ...] | None = None, *, limit_s: float = ATTEMPT_TIMEOUT_S
) -> metadata_response.MetadataResponse:
    """What the broker at *address* knows of *topics* (None: all). Raises OSError or NotReadyError."""
    wanted = None if topics is None else tuple(
        metadata_request.MetadataRequestTopic(name=TopicName(topic)) for topic in topics)
    request = metadata_request.MetadataRequest(
        topics=wanted, allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False, include_topic_authorized_operations=False)
    return ask(address, request, metadata_response.MetadataResponse, limit_s)


def check(code: ErrorCode, doing: str, message: str | None = None) -> None:
    """Raise NotReadyError when a broker's answer is an error; *doing* says what was asked."""
    if code is not ErrorCode.none:
        raise NotReadyError(f"{doing}: {code.name}{f' ({message})' if message else ''}")


def _timeout() -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(seconds=REQUEST_TIMEOUT_S))


# --- one request, one answer ------------------------------------------------------------------------------------------


def ask(address: Address, request: Entity, answer: type[Answer], limit_s: float = ATTEMPT_TIMEOUT_S) -> Answer:
    """The broker's answer to *request*, on a connection of its own. Raises OSError or NotReadyError."""
    with _connected(address, limit_s) as connection:
        connection.sendall(_framed(request))
        size = struct.unpack(">i", _receive(connection, 4))[0]
        if not 0 < size <= MAX_REPLY_BYTES:
            raise NotReadyError(f"{address[0]}:{address[1]} answered with a frame of {size} B: not a plaintext Kafka listener?")
        return _parsed(_receive(connection, size), answer)


@contextmanager
def _connected(address: Address, limit_s: float) -> Iterator[socket.socket]:
    with closing(socket.create_connection(address, timeout=limit_s)) as connection:
        yield connection


def _framed(request: Entity) -> bytes:
    header_type = request.__header_schema__  # type: ignore[attr-defined]
    body = io.BytesIO()
    entity_writer(header_type)(body, header_type(
        request_api_key=request.__api_key__, request_api_version=request.__version__,  # type: ignore[attr-defined]
        correlation_id=i32(1), client_id="pyclient-probe"))
    entity_writer(type(request))(body, request)
    return struct.pack(">i", body.tell()) + body.getvalue()


def _parsed(payload: bytes, answer: type[Answer]) -> Answer:
    header_type = answer.__header_schema__  # type: ignore[attr-defined]
    _, read = entity_reader(header_type)(payload, 0)
    entity, _ = entity_reader(answer)(payload, read)
    return entity


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        if not (part := connection.recv(size - len(parts))):
            raise NotReadyError("the broker closed the connection instead of answering")
        parts += part
    return bytes(parts)


def one_record_batch(value: bytes) -> bytes:
    """A record batch (magic 2) with one record of *value* (at most 50 B), without key, headers or producer id."""
    record = b"\x00\x00\x00\x01" + bytes([len(value) * 2]) + value + b"\x00"  # zigzag varints below 64 take one byte
    record = bytes([len(record) * 2]) + record
    now_ms = time.time_ns() // 1_000_000
    covered = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    checked = struct.pack(">ibI", -1, 2, crc32c.crc32c(covered)) + covered
    return struct.pack(">qi", 0, len(checked)) + checked
