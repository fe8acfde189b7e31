"""Clients behind a SOCKS or HTTP proxy: logins, names that the proxy resolves, TLS, and proxies that misbehave."""
from __future__ import annotations

import asyncio
import base64
import socket
import struct
import threading
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Self
from urllib.parse import urlsplit

import pytest

from pyclient import Admin, Consumer, Producer
from pyclient.config import AdminConfig, ConsumerConfig, ProducerConfig
from pyclient.config.declaration import Config
from pyclient.errors import BootstrapError, ConfigurationError, DisconnectError, KafkaError
from pyclient.runtime.proxied import ProxiedNetwork
from pyclient.testing import FakeCluster
from tests.unit.net.peers import Peer, broker
from tests.unit.net.test_tls_connections import Client, authority

PASSWORD: Final = "marker-secret-of-a-proxy"
CONFIGS: Final[list[type[Config]]] = [ProducerConfig, ConsumerConfig, AdminConfig]
NAMES: Final = {"kafka.example": "127.0.0.1"}

Manners = Callable[["Proxy", Reader, Writer], Awaitable[tuple[str, int] | tuple[str, int, bytes]]]


class RefusedError(Exception):
    """The proxy does not serve this client."""


class Proxy:
    """A proxy on a loop of its own; *manners* is how it greets, and returns where the client wants to go."""

    def __init__(self, manners: Manners, users: dict[str, str] | None = None) -> None:
        self.manners = manners
        self.users = users
        self.asked: list[tuple[str, int]] = []
        self._serving: set[asyncio.Task[None] | None] = set()  # asyncio itself refers to tasks weakly
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # a client that was just accepted gets a task meanwhile
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        self._serving.add(asyncio.current_task())
        try:
            host, port, *first = await self.manners(self, reader, writer)
            self.asked.append((host, port))
            there, onward = await asyncio.open_connection(NAMES.get(host, host), port)
            onward.write(b"".join(first))
            try:
                await asyncio.gather(_pump(reader, onward), _pump(there, writer))
            finally:
                onward.close()
        except (RefusedError, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._serving.discard(asyncio.current_task())

    def knows(self, user: str, password: str) -> bool:
        return self.users is None or self.users.get(user) == password


async def _pump(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def socks5(proxy: Proxy, reader: Reader, writer: Writer) -> tuple[str, int]:
    _, count = await reader.readexactly(2)
    offered = await reader.readexactly(count)
    wanted = 0 if proxy.users is None else 2
    writer.write(bytes([5, wanted if wanted in offered else 255]))
    if wanted not in offered:
        raise RefusedError
    if wanted:
        _, length = await reader.readexactly(2)
        user = (await reader.readexactly(length)).decode()
        password = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        writer.write(bytes([1, not proxy.knows(user, password)]))
        if not proxy.knows(user, password):
            raise RefusedError
    _, _, _, kind = await reader.readexactly(4)
    host = socket.inet_ntoa(await reader.readexactly(4)) if kind == 1 else (await reader.readexactly((await reader.readexactly(1))[0])).decode()
    (port,) = struct.unpack("!H", await reader.readexactly(2))
    writer.write(bytes([5, 0, 0, 1]) + bytes(6))
    return host, port


async def http(proxy: Proxy, reader: Reader, writer: Writer) -> tuple[str, int, bytes]:
    """By CONNECT, or the request itself, with the whole URL, for an http URL."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    given = next((line.split()[-1] for line in head.splitlines() if line.lower().startswith("proxy-authorization")), "")
    user, _, password = base64.b64decode(given).decode().partition(":")
    if not proxy.knows(user, password):
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        raise RefusedError
    method, target, *_ = head.split()
    if method != "CONNECT":
        url = urlsplit(target)
        return url.hostname or "", url.port or 80, head.replace(target, url.path, 1).encode()
    host, _, port = target.rpartition(":")
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    return host, int(port), b""


async def mute(_proxy: Proxy, reader: Reader, _writer: Writer) -> tuple[str, int]:
    await reader.read()
    raise RefusedError


async def gibberish(_proxy: Proxy, reader: Reader, writer: Writer) -> tuple[str, int]:
    await reader.read(1)
    writer.write(b"\x1b[2Jnonsense\r\n\r\n" * 4000)
    await writer.drain()
    raise RefusedError


async def closing(_proxy: Proxy, reader: Reader, _writer: Writer) -> tuple[str, int]:
    await reader.read(1)
    raise RefusedError


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(2) as cluster:
        cluster.create_topic("orders", 2)
        yield cluster


def through(scheme: str, proxy: Proxy, user: str = "") -> str:
    return f"{scheme}://{user}{proxy.address}"


@pytest.mark.parametrize(("scheme", "manners"), [("socks5", socks5), ("socks5h", socks5), ("http", http)])
def test_every_connection_of_every_client_goes_through_the_proxy(fake: FakeCluster, scheme: str, manners: Manners) -> None:
    with Proxy(manners, users={"ann": PASSWORD}) as proxy:
        options: dict[str, Any] = {"bootstrap_servers": fake.bootstrap_servers, "proxy_url": through(scheme, proxy, f"ann:{PASSWORD}@")}
        with Producer(**options) as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number, partition=number % 2)
        with Consumer(topics=["orders"], group_id="g", auto_offset_reset="earliest", **options) as consumer:
            read: list[bytes | None] = []
            while len(read) < 10:
                read += [each.value for each in consumer.poll(10)]
        with Admin(**options) as admin:
            assert "orders" in admin.list_topics()
        assert sorted(read, key=lambda value: value or b"") == [b"%d" % number for number in range(10)]
        assert len({id(each.connection) for each in fake.requests()}) == len(proxy.asked)


@pytest.mark.parametrize(("scheme", "manners"), [("socks5h", socks5), ("http", http)])
def test_the_proxy_resolves_names_that_this_machine_does_not_know(fake: FakeCluster, scheme: str, manners: Manners) -> None:
    port = fake.bootstrap_servers.split(",")[0].rpartition(":")[2]
    with Proxy(manners) as proxy, Admin(bootstrap_servers=f"kafka.example:{port}", proxy_url=through(scheme, proxy)) as admin:
        admin.list_topics(timeout=20)
        assert proxy.asked[0] == ("kafka.example", int(port))


@pytest.mark.parametrize(("scheme", "manners"), [("socks5h", socks5), ("http", http)])
def test_tls_runs_through_the_proxy_and_checks_the_brokers_name(scheme: str, manners: Manners) -> None:
    async def steps() -> None:
        with Proxy(manners) as proxy:
            async with Peer(broker, tls=authority().server_context("kafka.example")) as peer:
                client = Client(f"kafka.example:{peer.port}", network=ProxiedNetwork(through(scheme, proxy)))
                (await client.ready()).close(DisconnectError("the test is over"))
                await client.all_gone()
                wrong = Client(f"127.0.0.1:{peer.port}", network=ProxiedNetwork(through(scheme, proxy)))
                assert "it is for kafka.example" in str(await wrong.failure())

    asyncio.run(steps())


@pytest.mark.parametrize(("scheme", "manners", "says"), [
    ("socks5", socks5, "[Aa]uthentication"), ("http", http, "407"),
    ("socks5", gibberish, "does not connect to"), ("http", gibberish, "does not connect to"),
    ("socks5", closing, "does not connect to"), ("http", closing, "does not connect to"),
])
def test_a_proxy_that_refuses_or_lies_is_named_and_its_password_is_not(
        fake: FakeCluster, scheme: str, manners: Manners, says: str) -> None:
    with Proxy(manners, users={"bob": "x"}) as proxy:
        url = through(scheme, proxy, f"ann:{PASSWORD}@")
        with Admin(bootstrap_servers=fake.bootstrap_servers, proxy_url=url) as admin, pytest.raises(BootstrapError, match=says) as caught:
            admin.list_topics(timeout=2)
        assert f"://[hidden]@{proxy.address} (proxy_url)" in str(caught.value)
        assert PASSWORD not in str(caught.value) + repr(admin)
        assert "\x1b" not in str(caught.value)
    assert not fake.requests()


def test_a_mute_proxy_costs_no_more_than_the_set_up_timeout(fake: FakeCluster) -> None:
    async def steps() -> None:
        with Proxy(mute) as proxy:
            client = Client(fake.bootstrap_servers.split(",")[0], timeout=0.3, tls=False, network=ProxiedNetwork(through("socks5", proxy)))
            assert "within 0.3 s" in str(await client.failure())

    asyncio.run(steps())


def test_a_connection_that_a_proxy_makes_too_late_is_closed(fake: FakeCluster) -> None:
    released, closed = threading.Event(), threading.Event()

    async def late(proxy: Proxy, reader: Reader, writer: Writer) -> tuple[str, int]:
        await asyncio.to_thread(released.wait, 20)
        await socks5(proxy, reader, writer)
        if not await reader.read():
            closed.set()
        raise RefusedError

    async def steps() -> None:
        with Proxy(late) as proxy:
            client = Client(fake.bootstrap_servers.split(",")[0], timeout=0.2, tls=False, network=ProxiedNetwork(through("socks5", proxy)))
            assert "within 0.2 s" in str(await client.failure())
            released.set()
            assert await asyncio.to_thread(closed.wait, 20)

    asyncio.run(steps())


def test_a_proxy_that_is_not_there_is_named(fake: FakeCluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with Admin(bootstrap_servers=fake.bootstrap_servers, proxy_url=f"socks5://127.0.0.1:{port}") as admin, pytest.raises(KafkaError, match="proxy_url"):
            admin.list_topics(timeout=1)


@pytest.mark.parametrize("url", ["10.0.0.1:1080", f"ann:{PASSWORD}@10.0.0.1:1080", "socks5://10.0.0.1", "ftp://a:1", "http://a:1/path", "http://a:99999", 5],
                         ids=["no scheme", "no scheme, a password", "no port", "ftp", "a path", "the port", "a number"])
@pytest.mark.parametrize("config", CONFIGS)
def test_what_is_no_address_of_a_proxy_is_refused_without_being_shown(config: type[Config], url: object) -> None:
    with pytest.raises(ConfigurationError, match="expected a URL as socks5://host:1080") as caught:
        config.parse({"proxy_url": url})
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("config", CONFIGS)
def test_no_report_of_a_config_shows_the_proxys_password(config: type[Any]) -> None:
    parsed = config.parse({"proxy_url": f"socks5://ann:{PASSWORD}@a:1"})
    assert PASSWORD not in repr(parsed) + parsed.describe() + repr(vars(ProxiedNetwork(parsed.proxy_url or "")))
