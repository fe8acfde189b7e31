"""Addresses where no Kafka answers: every client says within its timeout what it tried and what each address said."""
from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.admin import OffsetSpec
from pyclient.errors import BootstrapError, KafkaError, KafkaTimeoutError
from pyclient.testing import FakeCluster, Silence
from tests.addresses import unused_address
from tests.waiting import eventually
from tests.unit.net.raw_peers import API_VERSIONS, METADATA, OLD_BROKER, Peer, answer, metadata_v1, request, silence

WHERE = TopicPartition("t", 0)
UNRESOLVABLE = "broker.invalid:9092"  # RFC 6761: this name never resolves
NO_ANSWER = re.compile(r"connected, no answer to ApiVersions (after|within) \d+\.\d s")  # the call ends first, or the attempt
Call: TypeAlias = Callable[[str, float], object]


def http(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def bootstrap_error(addresses: str, expected: str, timeout: float = 0.5, **options: Any) -> str:
    """The text of the BootstrapError, once it matches *expected*: an attempt may take longer than *timeout* seconds."""
    texts = [""]

    def matches() -> bool:
        with pytest.raises(BootstrapError) as failed:
            admin.list_topics(timeout=timeout)
        texts.append(str(failed.value))
        return re.search(expected, texts[-1]) is not None

    with Admin(bootstrap_servers=addresses, **options) as admin:
        eventually(matches)
    return texts[-1]


# ---- every client, sync and async -----------------------------------------------------------------------------------


def milliseconds(limit_s: float) -> int:
    return round(limit_s * 1000)


def send(servers: str, limit_s: float) -> object:
    with Producer(bootstrap_servers=servers, max_block_ms=milliseconds(limit_s)) as producer:
        return producer.send(WHERE.topic, b"")


def look_up(servers: str, limit_s: float) -> object:
    with Consumer(bootstrap_servers=servers) as consumer:
        return consumer.end_offsets([WHERE], timeout=limit_s)


def poll(servers: str, limit_s: float) -> object:
    """A poll may wait for ever for records, but not for a first broker."""
    limit = milliseconds(limit_s)
    with Consumer(bootstrap_servers=servers, default_api_timeout_ms=limit, request_timeout_ms=limit) as consumer:
        consumer.assign([WHERE])
        return consumer.poll()


def iterate(servers: str, limit_s: float) -> object:
    limit = milliseconds(limit_s)
    with Consumer(bootstrap_servers=servers, default_api_timeout_ms=limit, request_timeout_ms=limit) as consumer:
        consumer.assign([WHERE])
        return next(iter(consumer))


def list_topics(servers: str, limit_s: float) -> object:
    with Admin(bootstrap_servers=servers) as admin:
        return admin.list_topics(timeout=limit_s)


def send_async(servers: str, limit_s: float) -> object:
    async def main() -> object:
        async with AsyncProducer(bootstrap_servers=servers, max_block_ms=milliseconds(limit_s)) as producer:
            return await producer.send(WHERE.topic, b"")

    return asyncio.run(main())


def poll_async(servers: str, limit_s: float) -> object:
    async def main() -> object:
        limit = milliseconds(limit_s)
        async with AsyncConsumer(bootstrap_servers=servers, default_api_timeout_ms=limit, request_timeout_ms=limit) as consumer:
            consumer.assign([WHERE])
            return await consumer.poll()

    return asyncio.run(main())


def list_topics_async(servers: str, limit_s: float) -> object:
    async def main() -> object:
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            return await admin.list_topics(timeout=limit_s)

    return asyncio.run(main())


CALLS = [send, look_up, poll, iterate, list_topics, send_async, poll_async, list_topics_async]


def failure_of(call: Call, servers: str, limit_s: float) -> BootstrapError:
    with pytest.raises(BootstrapError) as failure:
        call(servers, limit_s)
    return failure.value


def unexpected(failure: BootstrapError, expected: dict[str, str]) -> dict[str, str]:
    """The causes that do not match what is *expected* of their address."""
    causes = {address: str(cause) for address, cause in failure.causes.items()}
    return {address: cause for address, cause in causes.items() if not re.search(expected.get(address, "^$"), cause)}


@pytest.mark.parametrize("call", CALLS)
def test_every_address_is_tried_and_named_with_its_failure_even_if_one_never_answers(call: Call) -> None:
    dead = str(unused_address())
    with Peer(http) as web, Peer(silence) as mute:
        expected = {dead: "^Connection refused$", UNRESOLVABLE: "'broker.invalid' cannot be resolved", mute.address: NO_ANSWER.pattern,
                    web.address: "Check that the port is a Kafka listener"}
        failure = failure_of(call, ",".join(expected), 1.5)
        for limit_s in (6, 24):  # where the machine is busy, 1.5 s do not suffice to try four addresses
            if unexpected(failure, expected):
                failure = failure_of(call, ",".join(expected), limit_s)
    assert unexpected(failure, expected) == {}
    assert set(failure.causes) == set(expected)
    assert all(f"{address}: " in str(failure) for address in expected)
    assert "Check bootstrap_servers" in str(failure)


@pytest.mark.parametrize(("kind", "options", "call"), [
    (Producer, {"max_block_ms": 300}, lambda client: client.partitions_for("t")),
    (Consumer, {"group_id": "g"}, lambda client: client.commit({WHERE: 1}, timeout=0.3)),
    (Consumer, {"group_id": "g"}, lambda client: client.committed([WHERE], timeout=0.3)),
    (Admin, {}, lambda client: client.describe_cluster(timeout=0.3)),
])
def test_every_other_call_that_waits_names_the_address_too(kind: Any, options: dict[str, Any], call: Callable[[Any], object]) -> None:
    address = str(unused_address())
    with kind(bootstrap_servers=address, **options) as client, pytest.raises(KafkaTimeoutError, match=f"Tried {address}: Connection refused"):
        call(client)


def test_short_polls_together_wait_for_a_first_broker_as_long_as_one_long_poll() -> None:
    with Consumer(bootstrap_servers=str(unused_address()), default_api_timeout_ms=300, request_timeout_ms=300) as consumer:
        consumer.assign([WHERE])
        assert len(consumer.poll(0.02)) == 0  # a poll alone is patient: the broker may be starting
        with pytest.raises(BootstrapError):
            for _ in range(1000):
                consumer.poll(0.02)
        assert len(consumer.poll(0.02)) == 0  # and who polls on waits as long again


# ---- one address ----------------------------------------------------------------------------------------------------


def test_M14_names_that_cannot_be_resolved_fail_the_call_and_not_the_constructor() -> None:
    long = f"{'x' * 70}.invalid"
    bootstrap_error(f"{UNRESOLVABLE},{long}:9092", f"(?s)'broker.invalid' cannot be resolved.*'{long}' cannot be resolved")


def test_M12_a_port_that_speaks_http_is_distinguished_from_a_kafka_listener() -> None:
    with Peer(http) as peer:
        text = bootstrap_error(peer.address, "Check that the port is a Kafka listener")
    assert f"Tried {peer.address}: " in text


def test_a_port_that_accepts_and_never_answers_is_distinguished_from_one_that_refuses() -> None:
    with Peer(silence) as peer:
        bootstrap_error(peer.address, f"{peer.address}: {NO_ANSWER.pattern}", timeout=0.3)


def a_broker(connection: socket.socket, port: Callable[[], int], *, host: str = "127.0.0.1", refuse: Callable[[int, int], bytes | None],
             ) -> None:
    """A broker of Kafka 0.10 without topics.

    *refuse* makes its response to ApiVersions of (version, correlation id).
    """
    while True:
        key, version, correlation_id = request(connection)
        if key == API_VERSIONS and version > 0:
            body = refuse(version, correlation_id)
            if body is None:
                return
            answer(connection, correlation_id, body)
        elif key == API_VERSIONS:
            answer(connection, correlation_id, OLD_BROKER)
        elif key == METADATA:
            answer(connection, correlation_id, metadata_v1(host, port()))


@pytest.mark.parametrize("refusal", [
    None,                                                    # hangs up
    b"\x00\x23" + b"\x00\x00\x00\x00",                       # UNSUPPORTED_VERSION, version 0, nothing offered
    b"\x00\x23" + b"\x00\x00\x00\x01\x00\x12\x00\x00\x00\x00",  # UNSUPPORTED_VERSION, version 0, ApiVersions 0 offered
    b"\x00\x23" + b"\x02\x00\x12\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",  # UNSUPPORTED_VERSION in the flexible encoding: wrong
    b"\x00\x00" + b"\xff" * 20,                              # garbage
], ids=["hangs up", "nothing offered", "version 0 offered", "wrong encoding", "garbage"])
def test_M08_a_peer_that_does_not_understand_the_newest_request_gets_version_0(refusal: bytes | None) -> None:
    peer = Peer(lambda connection: a_broker(connection, lambda: peer.port, refuse=lambda version, correlation_id: refusal))
    with peer, Admin(bootstrap_servers=peer.address) as admin:
        assert [(node.host, node.port) for node in admin.describe_cluster(timeout=10).nodes] == [("127.0.0.1", peer.port)]


def test_ipv6_addresses_are_reached_and_shown_in_brackets() -> None:
    peer = Peer(lambda connection: a_broker(connection, lambda: peer.port, host="::1", refuse=lambda *_: None), host="::1")
    with peer, Admin(bootstrap_servers=peer.address) as admin:
        assert admin.describe_cluster(timeout=10).nodes[0].host == "::1"
    bootstrap_error(peer.address, re.escape(peer.address))


def test_of_several_addresses_one_that_works_is_enough() -> None:
    peer = Peer(lambda connection: a_broker(connection, lambda: peer.port, refuse=lambda *_: None))
    with peer, Admin(bootstrap_servers=f"{unused_address()},{unused_address()},{peer.address}") as admin:
        assert admin.describe_cluster(timeout=10).nodes


def test_M05_every_address_of_a_name_is_tried_even_behind_one_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyclient.runtime.network import Endpoint, SocketNetwork

    peer = Peer(lambda connection: a_broker(connection, lambda: peer.port, refuse=lambda *_: None))
    with Peer(silence) as swallows, peer:
        async def resolve(self: SocketNetwork, reactor: object, host: str, port: int) -> list[Endpoint]:
            dead = unused_address().port
            return [Endpoint(socket.AF_INET, ("127.0.0.1", each)) for each in (dead, swallows.port, peer.port)]

        monkeypatch.setattr(SocketNetwork, "resolve", resolve)
        with Admin(bootstrap_servers="one.name:9092", socket_connection_setup_timeout_ms=200) as admin:
            assert admin.describe_cluster(timeout=20).nodes


@pytest.mark.parametrize("frame", [
    b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x08" + b"\x00\x00\x00\x63" * 2,
], ids=["negative length", "zero length", "huge length", "an answer to nothing"])
def test_M12_a_hostile_frame_closes_the_connection_with_a_clear_error(frame: bytes) -> None:
    def hostile(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(frame)
        silence(connection)

    with Peer(hostile) as peer:
        text = bootstrap_error(peer.address, "announced a response of|answered request 99")
    assert peer.address in text


def test_M10_an_overdue_response_closes_the_connection() -> None:
    ended = threading.Event()

    def stalled(connection: socket.socket) -> None:
        while True:
            key, version, correlation_id = request(connection)
            if key != API_VERSIONS:
                break
            answer(connection, correlation_id, OLD_BROKER if version == 0 else b"\x00\x23\x00\x00\x00\x00")
        silence(connection)
        ended.set()

    with Peer(stalled) as peer:
        bootstrap_error(peer.address, "did not answer Metadata within 0.2 s", request_timeout_ms=200)
        assert ended.wait(10)


@pytest.mark.parametrize("talk", [None, http, silence], ids=["refused", "http", "silent"])
def test_a_broker_that_is_down_is_not_connected_to_in_a_busy_loop(talk: Any) -> None:
    async def main(address: str) -> int:
        async with AsyncProducer(bootstrap_servers=address, max_block_ms=1000) as producer:
            with pytest.raises(KafkaError):
                await producer.send("t", b"x")
            return producer._core.driver.turns

    if talk is None:
        assert asyncio.run(main(str(unused_address()))) < 100
    else:
        with Peer(talk) as peer:
            assert asyncio.run(main(peer.address)) < 100


def test_an_idle_client_with_a_short_rebootstrap_trigger_does_not_spin(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(lambda connection: a_broker(connection, lambda: peer.port, refuse=lambda *_: None))

    async def main() -> int:
        async with AsyncAdmin(bootstrap_servers=peer.address, metadata_recovery_rebootstrap_trigger_ms=100) as admin:
            await admin.describe_cluster()
            before, idle = admin._core.driver.turns, asyncio.Event()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(idle.wait(), 0.5)
            return admin._core.driver.turns - before

    with peer, caplog.at_level(logging.WARNING, "pyclient"):
        assert asyncio.run(main()) < 20


@pytest.mark.parametrize("kind", [AsyncProducer, AsyncConsumer, AsyncAdmin])
def test_clients_close_quickly_and_cleanly_while_they_connect(kind: Any) -> None:
    async def main(address: str) -> set[asyncio.Task[Any]]:
        async with kind(bootstrap_servers=address) as client:
            await asyncio.to_thread(eventually, lambda: peer.connections)
            assert client._core.connections
        return asyncio.all_tasks() - {asyncio.current_task()}

    with Peer(silence) as peer:
        assert asyncio.run(main(peer.address)) == set()


# ---- what an operator reads meanwhile -------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_the_log_says_after_two_seconds_that_no_broker_answers(client: type[Any], caplog: pytest.LogCaptureFixture) -> None:
    address = str(unused_address())
    with client(bootstrap_servers=address):
        eventually(lambda: "no broker answered within 2." in caplog.text)
    said = [record for record in caplog.records if "no broker answered" in record.message]
    assert [record.levelname for record in said] == ["WARNING"]
    assert said[0].message.startswith(f"{client.__name__.lower()}: ")
    assert f"{address}: Connection refused" in said[0].message


def test_the_log_says_after_two_seconds_that_the_topic_of_a_send_does_not_exist(caplog: pytest.LogCaptureFixture) -> None:
    with FakeCluster(config={"auto.create.topics.enable": "false"}) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            sending = threading.Thread(target=lambda: _send_until_closed(producer))
            sending.start()
            eventually(lambda: "topic 'oders' does not exist (yet)" in caplog.text)
        sending.join()


def _send_until_closed(producer: Producer) -> None:
    with contextlib.suppress(KafkaError):
        producer.send("oders", b"1")


# ---- admin requests to leaders ---------------------------------------------------------------------------------------


def test_partitions_of_a_leader_that_was_killed_are_asked_at_the_next_one_within_the_request_timeout() -> None:
    with (FakeCluster(brokers=2) as cluster, ThreadPoolExecutor(1) as thread,
          Admin(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=60_000) as admin):
        cluster.create_topic("t", partitions=2)
        tps = [TopicPartition("t", partition) for partition in range(2)]
        for tp in tps:
            cluster.produce("t", b"x", partition=tp.partition)
        leader = cluster.leader("t", 0)
        with cluster.intercept(Silence(), "ListOffsets", broker=leader) as asked:
            listing = thread.submit(admin.list_offsets, dict.fromkeys(tps, OffsetSpec.LATEST), timeout=55)
            eventually(lambda: asked.hits)
            cluster.kill(leader)
            found = listing.result()
        assert {tp: listed and listed.offset for tp, listed in found.items()} == dict.fromkeys(tps, 1)
