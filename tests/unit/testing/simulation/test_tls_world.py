"""TLS in simulated worlds: real OpenSSL in virtual time, whatever the network does to a handshake."""
from __future__ import annotations

import asyncio
import functools
import os
import ssl
from collections.abc import Callable
from typing import Any, Final

import pytest

from pyclient import AsyncConsumer, AsyncProducer, TopicPartition
from pyclient.config import ProducerConfig
from pyclient.config.addresses import Address
from pyclient.core.connection import State
from pyclient.errors import DisconnectError, KafkaError, ResponseTimeoutError, SslAuthenticationError
from pyclient.net.connect import ConnectAttempt
from pyclient.net.connection import AnswerListener, Connection
from pyclient.net.security import Security
from pyclient.net.tls import TlsContexts
from pyclient.reactor.tasks import Task
from pyclient.runtime.environment import loop_reactor, using
from pyclient.runtime.network import SocketOptions
from pyclient.runtime.portals import LoopPortal
from pyclient.testing import CertificateAuthority, World
from pyclient.testing.simulation.network import SimulatedTransport

SET_UP_S: Final = 10.0
TURNS: Final = 2000
"""Far more than an attempt takes, far less than a busy loop would."""
BROKERS: Final = ("broker-1", "broker-2", "broker-3")


@functools.cache
def authority() -> CertificateAuthority:
    return CertificateAuthority(key="ed25519")


@functools.cache
def served() -> ssl.SSLContext:
    return authority().server_context(*BROKERS)


def options(**more: Any) -> dict[str, Any]:
    return {"security_protocol": "SSL", "ssl_truststore_certificates": authority().pem, **more}


# ---- whole clients ---------------------------------------------------------------------------------------------------


async def produced_and_consumed(world: World, **more: Any) -> list[bytes | None]:
    world.cluster.create_topic("t", partitions=1)
    producer: AsyncProducer = world.producer("producer", linger_ms=5, **options(**more))
    async with producer:
        for number in range(60):
            await producer.send("t", b"%d" % number + bytes(5_000))
        await producer.flush()
    consumer: AsyncConsumer = world.consumer("consumer", auto_offset_reset="earliest", **options(**more))
    read: list[bytes | None] = []
    async with consumer:
        consumer.assign([TopicPartition("t", 0)])
        while len(read) < 60:
            read += [record.value for record in await consumer.poll(1.0)]
    return read


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_what_is_sent_with_tls_is_read_and_a_seed_is_one_run(version: str) -> None:
    digests = set()
    for _ in range(3):
        with World(7, tls=served()) as world:
            read = world.run(asyncio.wait_for(produced_and_consumed(world, ssl_enabled_protocols=version), 60))
            assert [int((value or b"").rstrip(b"\0")) for value in read] == list(range(60))
            digests.add((world.journal.digest, world.loop.turns, world.loop.time()))
            assert not world.loop.defects
    assert len(digests) == 1


@pytest.mark.parametrize("seed", range(6))
def test_what_is_sent_with_tls_is_read_once_and_in_order_while_the_network_fails(seed: int) -> None:
    with World(seed, tls=served()) as world:
        world.strike(world.plan(12, begin=0.0, end=8.0, kinds=("cut_before_write", "cut_before_answer", "cut_mid_frame", "half_open", "slow_node", "broker_restart")))
        values: list[bytes | None] = []

        async def work() -> None:
            world.cluster.create_topic("t", partitions=1)
            async with world.producer("producer", request_timeout_ms=2000, **options()) as producer:
                for number in range(200):
                    await producer.send("t", b"%d" % number)
                    await asyncio.sleep(0.05)
                await producer.flush()
            async with world.consumer("consumer", auto_offset_reset="earliest", request_timeout_ms=2000, **options()) as consumer:
                consumer.assign([TopicPartition("t", 0)])
                while len(values) < 200:
                    values.extend([record.value for record in await consumer.poll(1.0)])

        world.run(asyncio.wait_for(work(), 300))
        assert values == [b"%d" % number for number in range(200)]
        assert not world.loop.defects


# ---- one attempt -----------------------------------------------------------------------------------------------------


class One:
    """One try to connect, and what is seen of it."""

    def __init__(self, world: World, *, port: int = 9092, **more: Any) -> None:
        self.world = world
        self.connections: list[Connection] = []
        self.lost: list[KafkaError] = []
        environment = world.environment("client")
        with using(environment):
            self.portal = LoopPortal("client", loop_reactor())
        reactor = self.portal.reactor
        contexts = TlsContexts(ProducerConfig.parse({"bootstrap_servers": "broker-1:9092", **options(**more)}), environment, reactor)
        self.attempt = ConnectAttempt(
            reactor, Address("broker-1", port), world.network.of("client"), SocketOptions(), first_address=0, timeout=SET_UP_S, make_connection=self._link,
            start=lambda work: Task(reactor, work), discard=lambda link: link.close(DisconnectError("given up")), security=Security(contexts))

    def _link(self, _endpoint: object) -> Connection:
        self.connections.append(Connection(
            "broker-1", "c", reactor=self.portal.reactor, clock=self.world.loop.time, max_frame=1 << 20, on_change=_nothing, on_quiet=_nothing,
            on_lost=lambda _link, cause: self.lost.append(cause), answers=AnswerListener()))
        return self.connections[-1]

    async def _connect(self) -> Connection:
        self.portal.start()
        return await self.portal.call(self.attempt.connect)

    def run(self) -> KafkaError | None:
        """Why it failed, or None."""
        try:
            link = self.world.run(self._connect())
        except KafkaError as error:
            failure: KafkaError | None = error
        else:
            failure = None
            assert link.state is State.READY
            assert link.secured
            link.close(DisconnectError("the test is over"))
        began_to_end = self.world.loop.time()
        self.world.loop.run_until(began_to_end + 5.0)
        assert began_to_end <= SET_UP_S + 0.01, "it took longer than it may"
        assert self.world.loop.turns < TURNS, "a busy loop"
        assert all(each.state is State.CLOSED for each in self.connections)
        assert not [link for link in self.world.network.links if not link.frozen], "a connection was left"
        assert not self.world.loop.defects
        return failure


def _nothing(*_: object) -> None:
    pass


class Tap:
    """Meddles with what arrives in one direction, once so many bytes of a connection have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, to_client: bool, after: int, act: Callable[[SimulatedTransport, bytes], bytes | None]) -> None:
        self.most = 0
        """Bytes of one connection in this direction."""
        passed: dict[SimulatedTransport, int] = {}
        receive = SimulatedTransport.receive

        def tapped(end: SimulatedTransport, data: bytes) -> None:
            if (end is end.link.near) is not to_client:
                receive(end, data)
                return
            before = passed.get(end, 0)
            passed[end] = before + len(data)
            self.most = max(self.most, passed[end])
            kept, rest = data[:max(0, after - before)], data[max(0, after - before):]
            if kept:
                receive(end, kept)
            if rest and (instead := act(end, rest)):
                receive(end, instead)

        monkeypatch.setattr(SimulatedTransport, "receive", tapped)


def cut(end: SimulatedTransport, _rest: bytes) -> None:
    error = ConnectionResetError(104, "Connection reset by peer")
    end.link.far.lost(error)
    end.link.near.lost(error)


def hang_up(end: SimulatedTransport, _rest: bytes) -> None:
    """In order: both hear of an end."""
    end.receive_end()
    other = end.link.far if end is end.link.near else end.link.near
    other.receive_end()


def stall(end: SimulatedTransport, _rest: bytes) -> None:
    end.link.freeze()


def garble(_end: SimulatedTransport, rest: bytes) -> bytes:
    return bytes(byte ^ 0x5A for byte in rest)


DIRECTIONS: Final = [pytest.param(False, id="to the broker"), pytest.param(True, id="to the client")]


def stride(usual: int) -> int:
    """How many bytes further a sweep over the bytes of a connection goes; `make proof` takes each."""
    return 1 if os.environ.get("PYCLIENT_EVERY_BYTE") == "1" else usual


def sizes(monkeypatch: pytest.MonkeyPatch, *, to_client: bool, version: str) -> int:
    """How many bytes a connection takes to be ready."""
    with monkeypatch.context() as patch, World(1, brokers=1, tls=served()) as world:
        tap = Tap(patch, to_client=to_client, after=1 << 30, act=garble)
        assert One(world, ssl_enabled_protocols=version).run() is None
        return tap.most


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("to_client", DIRECTIONS)
@pytest.mark.parametrize(("act", "step", "expected"), [
    (cut, 3, DisconnectError), (hang_up, 3, DisconnectError), (stall, 7, ResponseTimeoutError), (garble, 5, (DisconnectError, SslAuthenticationError, ResponseTimeoutError)),
])
def test_a_handshake_that_breaks_at_any_byte_ends_in_a_clear_error_in_time(
        monkeypatch: pytest.MonkeyPatch, version: str, to_client: bool, act: Any, step: int, expected: Any) -> None:
    whole = sizes(monkeypatch, to_client=to_client, version=version)
    assert whole > 200
    said = set()
    for after in range(0, whole, stride(step)):
        with monkeypatch.context() as patch, World(after, brokers=1, tls=served()) as world:
            Tap(patch, to_client=to_client, after=after, act=act)
            one = One(world, ssl_enabled_protocols=version)
            failure = one.run()
            if failure is None:  # the shorter question in version 0, on a second connection, has passed (M08)
                assert len(one.connections) == 2
                assert after > whole - 400
            else:
                assert isinstance(failure, expected), f"after {after} of {whole} B: {failure!r}"
                said.add(str(failure))
    print(len(said), said)
