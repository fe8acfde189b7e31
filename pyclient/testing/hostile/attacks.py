"""The table of attacks: what a hostile broker, leader or member answers, and what that may cost a client at most.

Everything that an attack does not name is answered honestly, by the fake cluster: so a client gets as far as the
attacked request. Independent of clients.
"""
from __future__ import annotations

import base64
import enum
import itertools
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias
from uuid import UUID

import attrs

from pyclient.codec.apis import Api
from pyclient.codec.compression import Compression
from pyclient.codec.consumer_protocol import encode_assignment, encode_subscription
from pyclient.codec.crc import crc32c
from pyclient.codec.encode import encode_batch
from pyclient.plugins import Assignment, MemberView
from pyclient.records import TopicPartition
from pyclient.testing.fake.control import Answer, Bytes, Change, Drop, Fail, Silence, Throttle, Verdict
from pyclient.testing.fake.model.request import Fields, Request
from pyclient.testing.hostile import tls

TOPIC: Final = "t"
EVIL: Final = "x\nERROR all is lost\x1b[2J"
"""Text that would forge a line of a log, or clear a terminal."""
PASSWORD: Final = "open sesame 1704"
SCRAM: Final = "SCRAM-SHA-256"
HEADER: Final = 61
"""Bytes of a batch before its records."""
LONG_MS: Final = 2**31 - 1
MANY: Final = 12_000
"""More than a member accepts unseen (G09, N11)."""
Decide: TypeAlias = Callable[[Request], Verdict | None]


class Client(enum.Enum):
    """What is attacked."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    CLASSIC = "classic group"
    KIP_848 = "consumer group"
    ADMIN = "admin"


ALL: Final = tuple(Client)
GROUPS: Final = (Client.CLASSIC, Client.KIP_848)
READERS: Final = (Client.CONSUMER, *GROUPS)


@attrs.frozen(kw_only=True)
class Bounds:
    """The most that one client may use while it is attacked."""

    requests: int = 25
    requests_per_second: int = 25
    memory_mib: int = 48
    seconds: float = 20.0
    """Beyond the timeouts of its calls; generous, for a busy machine."""
    lines: int = 6
    lines_per_second: int = 4
    """Warnings and errors in the log."""


@attrs.frozen(kw_only=True)
class Attack:
    """One row. *start* returns a function that answers requests, for one run."""

    name: str
    clients: tuple[Client, ...]
    start: Callable[[], Decide] = attrs.field(default=lambda: lambda _request: None)
    logs_in: bool = False
    """The clients log in with `PASSWORD`, which no error and no line of the log may show."""
    mechanism: str = "PLAIN"
    refuses: bool = False
    """The clients must not go on after the login."""
    options: Mapping[str, Any] = {}
    """Of each client."""
    peer: tls.Serve | None = None
    """What a peer that speaks TLS does instead of the fake cluster; *start* is not used then."""
    proves_itself: bool = False
    """It has shown a certificate that the client trusts, so the client may send to it."""
    bounds: Bounds = Bounds()


# ---- how rows are written -------------------------------------------------------------------------------------------


def always(verdict: Verdict, *apis: Api) -> Callable[[], Decide]:
    """This verdict on each request of these APIs; of every API but ApiVersions if none is named."""
    return lambda: lambda request: verdict if request.api in apis or (not apis and request.api is not Api.API_VERSIONS) else None


def every(verdict: Verdict) -> Callable[[], Decide]:
    """This verdict on every request, also on the first."""
    return lambda: lambda _request: verdict


def changed(change: Callable[[Any], Mapping[str, object]], *apis: Api) -> Callable[[], Decide]:
    """Honest responses with other fields."""
    return always(Change(lambda fields: {**fields, **change(fields)}), *apis)


def in_turn(verdicts: Iterable[Verdict], api: Api) -> Callable[[], Decide]:
    """These verdicts one after the other, again and again."""
    def start() -> Decide:
        endless = itertools.cycle(verdicts)
        return lambda request: next(endless) if request.api is api else None
    return start


def over_tls(name: str, peer: tls.Serve, *, proves_itself: bool = False, **bounds: Any) -> Attack:
    """A row of all clients, on a peer of TLS."""
    return Attack(name=name, clients=ALL, logs_in=True, peer=peer, proves_itself=proves_itself, bounds=Bounds(**bounds))


def _rows(fields: Any, name: str, inner: str, change: Mapping[str, object]) -> dict[str, object]:
    """The change made in each item of a list in a list."""
    return {name: [{**each, inner: [{**item, **change} for item in each[inner]]} for each in fields[name]]}


def _fetched(**change: object) -> Callable[[], Decide]:
    """Each partition of each fetch with these fields, at once."""
    def fields(request: Request) -> Fields:
        parts = [{"topic": getattr(topic, "topic", None), "topic_id": getattr(topic, "topic_id", None), "partitions": [
            {"partition_index": each.partition, "error_code": 0, "high_watermark": 5, "last_stable_offset": 5, "log_start_offset": 0,
             "aborted_transactions": None, "preferred_read_replica": -1, "records": b"", **change} for each in topic.partitions]}
                 for topic in request.body.topics]
        return {"throttle_time": 0, "error_code": 0, "session_id": 0, "responses": parts}

    return lambda: lambda request: Answer(fields(request)) if request.api is Api.FETCH else None


def _assigned(*partitions: TopicPartition) -> Callable[[], Decide]:
    """A leader's assignment for each member of a classic group."""
    return changed(lambda _: {"assignment": encode_assignment(Assignment(partitions))}, Api.SYNC_GROUP)


def _led(**subscriptions: bytes) -> Callable[[], Decide]:
    """The client leads, and these are the other members."""
    def change(fields: Any) -> dict[str, object]:
        others = [{"member_id": name, "group_instance_id": None, "metadata": data} for name, data in subscriptions.items()]
        return {"leader": fields["member_id"], "members": [*fields["members"], *others]}

    return changed(change, Api.JOIN_GROUP)


def _heartbeat(change: Callable[[int, Any], Mapping[str, object]]) -> Callable[[], Decide]:
    """The n-th heartbeat's response, changed."""
    def start() -> Decide:
        numbers = itertools.count()
        return lambda request: Change(lambda fields: {**fields, **change(next(numbers), fields)}) if request.api is Api.CONSUMER_GROUP_HEARTBEAT else None
    return start


def _target(fields: Any, numbers: Iterable[int]) -> dict[str, object]:
    """An assignment of partitions of the topic that the honest one names."""
    topics = [each["topic_id"] for each in (fields["assignment"] or {"topic_partitions": []})["topic_partitions"]]
    return {"assignment": {"topic_partitions": [{"topic_id": topic, "partitions": list(numbers)} for topic in topics]}}


def _nodes(nodes: Iterable[tuple[int, str, int]]) -> Callable[[], Decide]:
    brokers = [{"node_id": node, "host": host, "port": port, "rack": EVIL} for node, host, port in nodes]
    return changed(lambda _: {"brokers": brokers}, Api.METADATA)


def _strange_ids(count: int) -> dict[str, object]:
    return {"assignment": {"topic_partitions": [{"topic_id": UUID(int=number + 1), "partitions": [0]} for number in range(count)]}}


SMALL: Final = {"decompression_limit_bytes": 2**20}
_NO_PARTITIONS: Final = {"throttle_time": 0, "error_code": 0, "session_id": 0, "responses": []}
_HUGE_COUNT: Final = b"\0\0\0\0\0" + b"\xff\xff\xff\xff\x07" + b"\0" * 20
"""A response that announces two thousand million items."""
_BEYOND: Final = tuple(TopicPartition(TOPIC, number) for number in range(MANY))


def _echo(request: Request) -> Verdict | None:
    """The broker repeats the message of the login."""
    if request.api is not Api.SASL_AUTHENTICATE:
        return None
    message = bytes(request.body.auth_bytes)
    texts = (message.decode(errors="replace"), base64.b64encode(message).decode(), message.hex())
    return Change(lambda fields: {**fields, "error_code": 58, "error_message": " ".join(texts)})


def _scram(change: Callable[[dict[str, str]], Mapping[str, str]], after: str = "") -> Callable[[], Decide]:
    """Messages of a SCRAM login with other attributes: ``r`` nonce, ``s`` salt, ``i`` iterations, ``v`` signature."""
    def rewritten(fields: Any) -> dict[str, object]:
        parts = dict(part.split("=", 1) for part in bytes(fields["auth_bytes"]).decode().split(",") if "=" in part)
        made = ",".join(f"{name}={value}" for name, value in {**parts, **change(parts)}.items() if value)
        return {"auth_bytes": made.encode() if after in parts else fields["auth_bytes"]}

    return changed(rewritten, Api.SASL_AUTHENTICATE)


def _bombs(count: int, size: int) -> Callable[[], Decide]:
    """So many batches that decompress to *size* bytes each."""
    def start() -> Decide:
        packer = zlib.compressobj(9, wbits=31)
        packed = packer.compress(bytes(size)) + packer.flush()
        head = bytearray(encode_batch([(0, None, b"", None)])[:HEADER])
        struct.pack_into(">i", head, 8, HEADER - 12 + len(packed))
        struct.pack_into(">h", head, 21, Compression.GZIP)
        struct.pack_into(">I", head, 17, crc32c(bytes(head[21:]) + packed))
        return _fetched(records=(bytes(head) + packed) * count)()
    return start


# ---- the table ------------------------------------------------------------------------------------------------------

ATTACKS: Final = (
    # bytes
    Attack(name="a negative size", clients=ALL, start=every(Bytes(b"\xff" * 64))),
    Attack(name="a size of 2 GiB", clients=ALL, start=every(Bytes(b"\x7f\xff\xff\xff" + b"\0" * 1000))),
    Attack(name="a size of 28 MB before login", clients=ALL, start=every(Bytes(b"\x01\xc0\0\0" + b"\0" * 1000))),
    Attack(name="HTTP", clients=ALL, start=every(Bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n"))),
    Attack(name="a TLS alert", clients=ALL, start=every(Bytes(b"\x15\x03\x03\x00\x02\x02\x28"))),
    Attack(name="noise after the first response", clients=ALL, start=always(Bytes(bytes(range(256)) * 4))),
    Attack(name="empty bodies", clients=ALL, start=always(Bytes(b"", framed=True))),
    Attack(name="zeros as body", clients=ALL, start=always(Bytes(b"\0" * 200, framed=True))),
    Attack(name="a count of two thousand million", clients=ALL, start=always(Bytes(_HUGE_COUNT, framed=True))),
    Attack(name="a thousand responses to no request", clients=ALL, start=always(Bytes((b"\0\0\0\x08" + b"\x7f" * 8) * 1000))),
    Attack(name="connections cut after each request", clients=ALL, start=always(Drop())),
    Attack(name="no response", clients=ALL, start=always(Silence())),
    Attack(name="throttling for 24 days", clients=ALL, start=always(Throttle(LONG_MS))),
    # logins
    Attack(name="an echo of the password", clients=ALL, logs_in=True, start=lambda: _echo),
    Attack(name="a size of 28 MB instead of a login", clients=ALL, logs_in=True, start=always(Bytes(b"\x01\xc0\0\0" + b"\0" * 1000), Api.SASL_AUTHENTICATE)),
    Attack(name="a SCRAM signature of another server", clients=ALL, logs_in=True, mechanism=SCRAM, refuses=True, start=_scram(lambda _: {"v": "AAAA"}, after="v")),
    Attack(name="no SCRAM signature", clients=ALL, logs_in=True, mechanism=SCRAM, refuses=True, start=_scram(lambda _: {"v": ""}, after="v")),
    Attack(name="2**31 SCRAM iterations", clients=ALL, logs_in=True, mechanism=SCRAM, refuses=True, start=_scram(lambda _: {"i": str(2**31)}, after="i")),
    Attack(name="one SCRAM iteration", clients=ALL, logs_in=True, mechanism=SCRAM, refuses=True, start=_scram(lambda _: {"i": "1"}, after="i")),
    Attack(name="SCRAM without a nonce", clients=ALL, logs_in=True, mechanism=SCRAM, refuses=True, start=_scram(lambda _: {"r": ""}, after="r")),
    Attack(name="a forged SCRAM error", clients=ALL, logs_in=True, mechanism=SCRAM, refuses=True, start=_scram(lambda _: {"v": "", "e": EVIL * 1000}, after="v")),
    Attack(name="noise instead of a login", clients=ALL, logs_in=True, start=always(Bytes(b"\xff" * 100, framed=True), Api.SASL_AUTHENTICATE)),
    Attack(name="a login without mechanisms", clients=ALL, logs_in=True, start=changed(lambda _: {"mechanisms": [EVIL] * 100, "error_code": 33}, Api.SASL_HANDSHAKE)),
    Attack(name="a login without end", clients=ALL, logs_in=True, start=always(Silence(), Api.SASL_AUTHENTICATE)),
    # TLS
    over_tls("TLS: silence instead of a ServerHello", tls.says(b"")),
    over_tls("TLS: half a record", tls.says(tls.record(tls.HANDSHAKE, b"\2", tls.LONGEST_RECORD))),
    over_tls("TLS: a response of Kafka instead of a ServerHello", tls.says(b"\0\0\0\x10" + bytes(16))),
    over_tls("TLS: HTTP instead of a ServerHello", tls.says(b"HTTP/1.1 400 " + EVIL.encode() + b"\r\n\r\n")),
    over_tls("TLS: noise instead of a ServerHello", tls.says(b"\xff" * 10_000)),
    over_tls("TLS: a fatal alert", tls.says(tls.record(tls.ALERT, bytes([2, 40])))),
    over_tls("TLS: the peer hangs up", tls.hangs_up(reset=False)),
    over_tls("TLS: the peer resets", tls.hangs_up(reset=True)),
    over_tls("TLS: a handshake byte by byte without the last", tls.drips),
    over_tls("TLS: a handshake message without end", tls.says_without_end(tls.endless_handshake)),
    over_tls("TLS: warnings without end", tls.says_without_end(tls.endless_warnings)),
    over_tls("TLS: empty records without end", tls.says_without_end(tls.endless_empty_records)),
    over_tls("TLS: a certificate of another host", tls.shows(tls.of_another_host)),
    over_tls("TLS: a certificate that has expired", tls.shows(tls.expired)),
    over_tls("TLS: a certificate of another authority", tls.shows(tls.of_another_authority)),
    over_tls("TLS: a chain of thirty authorities", tls.shows(tls.with_a_long_chain), proves_itself=True),
    over_tls("TLS: silence behind a handshake", tls.behind_tls(tls.says(b"")), proves_itself=True),
    over_tls("TLS: noise without end behind a handshake", tls.behind_tls(tls.says_without_end(tls.noise_without_end)), proves_itself=True),
    over_tls("TLS: the peer hangs up behind a handshake", tls.behind_tls(tls.hangs_up(reset=False)), proves_itself=True),
    # errors
    *[Attack(name=f"error {code} in each response", clients=ALL, start=always(Fail(code))) for code in (-1, 3, 6, 7, 16, 29, 35, 41)],
    # metadata
    Attack(name="no brokers", clients=ALL, start=changed(lambda _: {"brokers": []}, Api.METADATA)),
    Attack(name="addresses that cannot be used", clients=ALL, start=_nodes([(1, EVIL, 9092), (2, "127.0.0.1", 70_000), (3, "", 1), (-1, "a", 1)])),
    Attack(name="a thousand brokers that do not answer", clients=ALL, start=_nodes([(number, "127.0.0.1", 1) for number in range(1, 1000)]),
           bounds=Bounds(lines_per_second=100)),
    Attack(name="no leaders", clients=(Client.PRODUCER, *READERS),
           start=changed(lambda fields: _rows(fields, "topics", "partitions", {"leader_id": -1, "error_code": 5}), Api.METADATA)),
    Attack(name="leaders that are no brokers", clients=(Client.PRODUCER, *READERS),
           start=changed(lambda fields: _rows(fields, "topics", "partitions", {"leader_id": 77}), Api.METADATA)),
    Attack(name="partitions that all have the same number", clients=(Client.PRODUCER, *READERS),
           start=changed(lambda fields: _rows(fields, "topics", "partitions", {"partition_index": 0}), Api.METADATA)),
    Attack(name="topics without a name that was asked for", clients=ALL, start=changed(lambda _: {"topics": []}, Api.METADATA)),
    # producing
    Attack(name="produce responses without partitions", clients=(Client.PRODUCER,), start=changed(lambda _: {"responses": []}, Api.PRODUCE)),
    Attack(name="produce responses with negative offsets", clients=(Client.PRODUCER,),
           start=changed(lambda fields: _rows(fields, "responses", "partition_responses", {"base_offset": -5}), Api.PRODUCE)),
    Attack(name="produce responses with a forged message", clients=(Client.PRODUCER,),
           start=changed(lambda fields: _rows(fields, "responses", "partition_responses", {"error_code": 87, "error_message": EVIL * 1000}), Api.PRODUCE)),
    Attack(name="producer ids below 0", clients=(Client.PRODUCER,), start=changed(lambda _: {"producer_id": -7, "producer_epoch": -7}, Api.INIT_PRODUCER_ID)),
    # fetching
    Attack(name="fetches answered at once without data", clients=READERS, start=_fetched()),
    Attack(name="fetches answered without partitions", clients=READERS, start=always(Answer(_NO_PARTITIONS), Api.FETCH)),
    Attack(name="fetch sessions forgotten each time", clients=READERS, start=in_turn((Answer({**_NO_PARTITIONS, "session_id": 7}), Fail(70)), Api.FETCH)),
    Attack(name="damaged records", clients=READERS, start=_fetched(records=b"\0" * 61 + b"\xff" * 100)),
    Attack(name="a batch that decompresses to too much", clients=READERS, start=_bombs(1, 2**22), options=SMALL),
    Attack(name="500 batches that decompress to too much", clients=READERS, start=_bombs(500, 2**22), options=SMALL),
    Attack(name="half a batch", clients=READERS, start=_fetched(records=b"\0" * 11)),
    Attack(name="offsets that are never in the log", clients=READERS, start=_fetched(error_code=1)),
    Attack(name="a near replica that does not exist", clients=READERS, start=_fetched(preferred_read_replica=77)),
    Attack(name="logs that diverge each time", clients=READERS, start=_fetched(diverging_epoch={"epoch": 0, "end_offset": 0})),
    Attack(name="offset look-ups without partitions", clients=READERS, start=changed(lambda _: {"topics": []}, Api.LIST_OFFSETS)),
    Attack(name="committed offsets below 0", clients=GROUPS, start=changed(lambda fields: {"groups": [
        {**group, **_rows(group, "topics", "partitions", {"committed_offset": -9})} for group in fields["groups"]]}, Api.OFFSET_FETCH)),
    Attack(name="committed offsets without groups", clients=GROUPS, start=changed(lambda _: {"groups": []}, Api.OFFSET_FETCH)),
    # groups
    Attack(name="descriptions without the group", clients=(Client.ADMIN,), start=changed(lambda _: {"groups": []}, Api.CONSUMER_GROUP_DESCRIBE)),
    Attack(name="no coordinators", clients=GROUPS, start=changed(lambda _: {"coordinators": []}, Api.FIND_COORDINATOR)),
    Attack(name="a coordinator that cannot be reached", clients=GROUPS, start=changed(lambda fields: {"coordinators": [
        {**each, "host": EVIL, "port": 70_000, "node_id": 88} for each in fields["coordinators"]]}, Api.FIND_COORDINATOR)),
    Attack(name="another member id for each join", clients=(Client.CLASSIC,),
           start=changed(lambda _: {"error_code": 79, "member_id": EVIL * 100}, Api.JOIN_GROUP)),
    Attack(name="a damaged assignment", clients=(Client.CLASSIC,), start=changed(lambda _: {"assignment": b"\0\0\xff\xff\xff"}, Api.SYNC_GROUP)),
    Attack(name="an assignment of a topic not subscribed to", clients=(Client.CLASSIC,), start=_assigned(TopicPartition(TOPIC, 0), TopicPartition("other", 0))),
    Attack(name="assigned partitions that do not exist", clients=(Client.CLASSIC,), start=_assigned(*_BEYOND)),
    Attack(name="sync answered with a rebalance each time", clients=(Client.CLASSIC,), start=always(Fail(27), Api.SYNC_GROUP)),
    Attack(name="commits refused each time", clients=GROUPS, start=always(Fail(27), Api.OFFSET_COMMIT)),
    Attack(name="a member with 12,000 topics", clients=(Client.CLASSIC,),
           start=_led(evil=encode_subscription(MemberView(tuple(f"none-{number}" for number in range(MANY)))))),
    Attack(name="a member with a damaged subscription", clients=(Client.CLASSIC,), start=_led(**{EVIL: b"\xff" * 10})),
    Attack(name="heartbeats fenced each time", clients=(Client.KIP_848,),
           start=_heartbeat(lambda number, _: {"error_code": 110, "error_message": EVIL} if number % 2 else {}),
           bounds=Bounds(requests=70, lines=25)),
    Attack(name="a heartbeat interval of 1 ms", clients=(Client.KIP_848,), start=_heartbeat(lambda _, fields: {"heartbeat_interval": 1})),
    Attack(name="another assignment in each heartbeat", clients=(Client.KIP_848,), start=_heartbeat(lambda number, fields: _target(fields, [number % 2]))),
    Attack(name="assigned partitions that do not exist (KIP-848)", clients=(Client.KIP_848,), start=_heartbeat(lambda _, fields: _target(fields, range(MANY)))),
    Attack(name="assigned topics that do not exist", clients=(Client.KIP_848,), start=_heartbeat(lambda _, __: _strange_ids(MANY))),
)
