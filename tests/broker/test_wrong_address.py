"""Addresses where no broker answers: every client says within its timeout what it tried and what each address said."""
from __future__ import annotations

import asyncio
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.errors import BootstrapFailed
from pyclient.testing import FaultProxy, LocalCluster
from tests.kafka import make_topic

UNRESOLVABLE = "broker.invalid:9092"  # RFC 6761: this name never resolves
WHERE = TopicPartition("flights", 0)
Call: TypeAlias = Callable[[str, float], object]


@pytest.fixture(scope="module")
def nobody() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture(scope="module")
def mute() -> Iterator[str]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as upstream, FaultProxy(upstream.getsockname()) as proxy:
        proxy.hang()
        yield proxy.address


class Web(socketserver.BaseRequestHandler):
    """Answers what is no HTTP as web servers do."""

    def handle(self) -> None:
        if self.request.recv(65_536):
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """A port that speaks HTTP."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Web) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


# ---- every client, sync and async -----------------------------------------------------------------------------------

QUICK: dict[str, Any] = {"socket_connection_setup_timeout_ms": 100, "socket_connection_setup_timeout_max_ms": 100}
"""A silent address takes little of the time, so that each one gets its turn: they are tried one after the other."""

def milliseconds(limit_s: float) -> int:
    return round(limit_s * 1000)


def send(servers: str, limit_s: float) -> object:
    with Producer(bootstrap_servers=servers, max_block_ms=milliseconds(limit_s), **QUICK) as producer:
        return producer.send(WHERE.topic, b"")


def look_up(servers: str, limit_s: float) -> object:
    with Consumer(bootstrap_servers=servers, **QUICK) as consumer:
        return consumer.end_offsets([WHERE], timeout=limit_s)


def poll(servers: str, limit_s: float) -> object:
    """A poll may wait for ever for records, but not for a first broker."""
    limit = milliseconds(limit_s)
    with Consumer(bootstrap_servers=servers, default_api_timeout_ms=limit, request_timeout_ms=limit, **QUICK) as consumer:
        consumer.assign([WHERE])
        return consumer.poll()


def iterate(servers: str, limit_s: float) -> object:
    limit = milliseconds(limit_s)
    with Consumer(bootstrap_servers=servers, default_api_timeout_ms=limit, request_timeout_ms=limit, **QUICK) as consumer:
        consumer.assign([WHERE])
        return next(iter(consumer))


def list_topics(servers: str, limit_s: float) -> object:
    with Admin(bootstrap_servers=servers, **QUICK) as admin:
        return admin.list_topics(timeout=limit_s)


def send_async(servers: str, limit_s: float) -> object:
    async def main() -> object:
        async with AsyncProducer(bootstrap_servers=servers, max_block_ms=milliseconds(limit_s), **QUICK) as producer:
            return await producer.send(WHERE.topic, b"")

    return asyncio.run(main())


def poll_async(servers: str, limit_s: float) -> object:
    async def main() -> object:
        limit = milliseconds(limit_s)
        async with AsyncConsumer(bootstrap_servers=servers, default_api_timeout_ms=limit, request_timeout_ms=limit, **QUICK) as consumer:
            await consumer.assign([WHERE])
            return await consumer.poll()

    return asyncio.run(main())


def list_topics_async(servers: str, limit_s: float) -> object:
    async def main() -> object:
        async with AsyncAdmin(bootstrap_servers=servers, **QUICK) as admin:
            return await admin.list_topics(timeout=limit_s)

    return asyncio.run(main())


CALLS = [send, look_up, poll, iterate, list_topics, send_async, poll_async, list_topics_async]


@pytest.mark.parametrize("call", CALLS)
def test_every_address_that_was_tried_is_named_with_what_it_said(call: Call, nobody: str, mute: str, web: str) -> None:
    with pytest.raises(BootstrapFailed) as failure:
        call(f"{nobody},{UNRESOLVABLE},{mute},{web}", 1.0)
    causes = {address: str(cause) for address, cause in failure.value.causes.items()}
    assert set(causes) == {nobody, UNRESOLVABLE, mute, web}
    assert causes[nobody] == "Connection refused"
    assert "'broker.invalid' cannot be resolved" in causes[UNRESOLVABLE]
    assert "connected, no answer to ApiVersions within 0.1 s" in causes[mute]
    assert "Is this a Kafka listener" in causes[web]
    assert all(f"{address}: " in str(failure.value) for address in causes)
    assert "Check bootstrap_servers" in str(failure.value)


# ---- alone ----------------------------------------------------------------------------------------------------------


def test_a_port_where_nothing_listens_refuses(nobody: str) -> None:
    with pytest.raises(BootstrapFailed, match=f"Tried {nobody}: Connection refused"):
        list_topics(nobody, 0.3)


def test_M14_a_name_that_cannot_be_resolved_fails_the_call_and_not_the_constructor() -> None:
    with pytest.raises(BootstrapFailed, match="'broker.invalid' cannot be resolved"):
        list_topics(UNRESOLVABLE, 1.0)


def test_M12_a_port_that_speaks_http_is_told_from_a_listener_of_kafka(web: str) -> None:
    with pytest.raises(BootstrapFailed, match="Is this a Kafka listener"):
        list_topics(web, 0.5)


def test_a_port_that_accepts_and_never_answers_is_told_from_one_that_refuses(mute: str) -> None:
    with pytest.raises(BootstrapFailed, match=r"connected, no answer to ApiVersions after 0\.\d s"), Admin(bootstrap_servers=mute) as admin:
        admin.list_topics(timeout=0.3)


def test_short_polls_together_wait_no_longer_for_a_first_broker_than_one_long_one(nobody: str) -> None:
    with Consumer(bootstrap_servers=nobody, default_api_timeout_ms=300, request_timeout_ms=300) as consumer:
        consumer.assign([WHERE])
        assert len(consumer.poll(0.02)) == 0  # a poll alone is patient: the broker may be starting
        with pytest.raises(BootstrapFailed):
            for _ in range(1000):
                consumer.poll(0.02)
        assert len(consumer.poll(0.02)) == 0  # and who polls on waits as long again


def test_a_consumer_that_has_reached_a_broker_waits_for_records_without_end(kafka_cluster: LocalCluster, topic: str) -> None:
    where, = make_topic(kafka_cluster, topic)
    with Consumer(bootstrap_servers=kafka_cluster.bootstrap_servers, default_api_timeout_ms=300, request_timeout_ms=300,
                  auto_offset_reset="earliest") as consumer:
        consumer.assign([where])
        assert len(consumer.poll(1.0)) == 0
        with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
            producer.send(topic, b"late")
        assert [record.value for record in consumer.poll()] == [b"late"]
