"""Addresses where no Kafka answers: the error comes in time and names every address with its trouble."""
from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.errors import BootstrapFailed, KafkaError, KafkaTimeout
from tests.waiting import eventually
from tests.unit.runtime.raw_peers import API_VERSIONS, METADATA, OLD_BROKER, Peer, answer, metadata_v1, request, silence

WHERE = TopicPartition("t", 0)


def nobody() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def http(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def ask(addresses: str, timeout: float = 1.0, **options: Any) -> str:
    with Admin(bootstrap_servers=addresses, **options) as admin, pytest.raises(BootstrapFailed) as failed:
        admin.list_topics(timeout=timeout)
    return str(failed.value)


def test_nothing_listens_there() -> None:
    address = nobody()
    assert f"{address}: Connection refused" in ask(address)


def test_M14_the_name_cannot_be_resolved_and_the_constructor_does_not_fail_for_it() -> None:
    assert "'no-such-host.invalid' cannot be resolved" in ask("no-such-host.invalid:9092", timeout=5)
    assert "cannot be resolved" in ask(f"{'x' * 70}.invalid:9092", timeout=5)


def test_the_port_speaks_http() -> None:
    with Peer(http) as peer:
        text = ask(peer.address)
    assert peer.address in text
    assert "Is this a Kafka listener" in text


def test_the_port_accepts_and_never_answers() -> None:
    with Peer(silence) as peer:
        assert f"{peer.address}: connected, no answer to ApiVersions after" in ask(peer.address, timeout=0.5)


def test_every_address_is_named_with_its_own_trouble() -> None:
    dead = nobody()
    with Peer(http) as web, Peer(silence) as silent:
        text = ask(f"{dead},{web.address},{silent.address}", timeout=2)
    for address in (dead, web.address, silent.address):
        assert address in text


@pytest.mark.parametrize(("kind", "options", "call"), [
    (Producer, {"max_block_ms": 300}, lambda client: client.send("t", b"x")),
    (Producer, {"max_block_ms": 300}, lambda client: client.partitions_for("t")),
    (Consumer, {}, lambda client: client.end_offsets([WHERE], timeout=0.3)),
    (Consumer, {"group_id": "g"}, lambda client: client.commit({WHERE: 1}, timeout=0.3)),
    (Consumer, {"group_id": "g"}, lambda client: client.committed([WHERE], timeout=0.3)),
    (Admin, {}, lambda client: client.describe_cluster(timeout=0.3)),
])
def test_every_call_that_waits_names_the_address(kind: Any, options: dict[str, Any], call: Callable[[Any], object]) -> None:
    address = nobody()
    with kind(bootstrap_servers=address, **options) as client, pytest.raises(KafkaTimeout, match=f"{address}: Connection refused"):
        call(client)


def test_a_poll_without_brokers_returns_nothing_in_time() -> None:
    with Consumer(bootstrap_servers=nobody()) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert not consumer.poll(0.2)


def a_broker(connection: socket.socket, port: Callable[[], int], *, host: str = "127.0.0.1", refuse: Callable[[int, int], bytes | None],
             ) -> None:
    """A broker of Kafka 0.10 without topics. *refuse* answers an ApiVersions request of (version, correlation id) its own way."""
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
def test_M08_whoever_does_not_understand_the_newest_question_is_asked_in_version_0(refusal: bytes | None) -> None:
    peer = Peer(lambda connection: a_broker(connection, lambda: peer.port, refuse=lambda version, correlation_id: refusal))
    with peer, Admin(bootstrap_servers=peer.address) as admin:
        assert [(node.host, node.port) for node in admin.describe_cluster(timeout=10).nodes] == [("127.0.0.1", peer.port)]


def test_ipv6_addresses_are_reached_and_shown_in_brackets() -> None:
    peer = Peer(lambda connection: a_broker(connection, lambda: peer.port, host="::1", refuse=lambda *_: None), host="::1")
    with peer, Admin(bootstrap_servers=peer.address) as admin:
        assert admin.describe_cluster(timeout=10).nodes[0].host == "::1"
    assert peer.address in ask(peer.address)


def test_of_several_addresses_one_that_works_is_enough() -> None:
    peer = Peer(lambda connection: a_broker(connection, lambda: peer.port, refuse=lambda *_: None))
    with peer, Admin(bootstrap_servers=f"{nobody()},{nobody()},{peer.address}") as admin:
        assert admin.describe_cluster(timeout=10).nodes


def test_M05_every_address_of_a_name_gets_its_turn_even_behind_one_that_swallows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyclient.runtime.network import AsyncioNetwork, Endpoint

    peer = Peer(lambda connection: a_broker(connection, lambda: peer.port, refuse=lambda *_: None))
    with Peer(silence) as swallows, peer:
        async def resolve(self: AsyncioNetwork, host: str, port: int) -> list[Endpoint]:
            dead = int(nobody().rpartition(":")[2])
            return [Endpoint(socket.AF_INET, ("127.0.0.1", each)) for each in (dead, swallows.port, peer.port)]

        monkeypatch.setattr(AsyncioNetwork, "resolve", resolve)
        with Admin(bootstrap_servers="one.name:9092", socket_connection_setup_timeout_ms=200) as admin:
            assert admin.describe_cluster(timeout=20).nodes


@pytest.mark.parametrize("frame", [
    b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x08" + b"\x00\x00\x00\x63" * 2,
], ids=["negative length", "zero length", "huge length", "an answer to nothing"])
def test_M12_a_hostile_frame_ends_the_connection_with_a_clear_error(frame: bytes) -> None:
    def hostile(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(frame)
        silence(connection)

    with Peer(hostile) as peer:
        text = ask(peer.address)
    assert peer.address in text
    assert "announces an answer of" in text or "answered request 99" in text


def test_M10_an_answer_that_does_not_come_in_time_ends_the_connection() -> None:
    ended = threading.Event()

    def deaf(connection: socket.socket) -> None:
        while True:
            key, version, correlation_id = request(connection)
            if key != API_VERSIONS:
                break
            answer(connection, correlation_id, OLD_BROKER if version == 0 else b"\x00\x23\x00\x00\x00\x00")
        silence(connection)
        ended.set()

    with Peer(deaf) as peer, Admin(bootstrap_servers=peer.address, request_timeout_ms=200, default_api_timeout_ms=60_000) as admin:
        with pytest.raises(BootstrapFailed, match="did not answer Metadata within request_timeout_ms"):
            admin.list_topics(timeout=1)
        assert ended.wait(10)


@pytest.mark.parametrize("talk", [None, http, silence], ids=["refused", "http", "silent"])
def test_a_broker_that_is_down_is_not_asked_in_a_busy_loop(talk: Any) -> None:
    async def main(address: str) -> int:
        async with AsyncProducer(bootstrap_servers=address, max_block_ms=1000) as producer:
            with pytest.raises(KafkaError):
                await producer.send("t", b"x")
            return producer._core.driver.turns

    if talk is None:
        assert asyncio.run(main(nobody())) < 100
    else:
        with Peer(talk) as peer:
            assert asyncio.run(main(peer.address)) < 100


def test_an_idle_client_that_wants_a_quick_rebootstrap_does_not_spin(caplog: pytest.LogCaptureFixture) -> None:
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
            assert client._core.links
        return asyncio.all_tasks() - {asyncio.current_task()}

    with Peer(silence) as peer:
        assert asyncio.run(main(peer.address)) == set()
