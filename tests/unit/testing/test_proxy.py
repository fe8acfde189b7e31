"""The fault proxy before a plain echo server."""
from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from pyclient.testing.proxy import FaultProxy
from tests.waiting import eventually


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(65536):
                self.request.sendall(data)


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


class EchoServer6(EchoServer):
    address_family = socket.AF_INET6


@contextlib.contextmanager
def serving(server: EchoServer) -> Iterator[tuple[str, int]]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[0], server.server_address[1]  # type: ignore[misc]  # typed as for any family
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with serving(EchoServer(("127.0.0.1", 0), Echo)) as upstream, FaultProxy(upstream) as started:
        yield started


def connected(proxy: FaultProxy, timeout_s: float = 10.0) -> socket.socket:
    return socket.create_connection((proxy.address.rpartition(":")[0].strip("[]"), proxy.port), timeout=timeout_s)


def echoed(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    answer = b""
    while len(answer) < len(data):
        part = client.recv(65536)
        assert part, "closed instead of answering"
        answer += part
    return answer


def is_reset(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_bytes_pass_unchanged_both_ways(proxy: FaultProxy) -> None:
    data = bytes(range(256)) * 4096
    with connected(proxy) as client:
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        answer = b""
        while len(answer) < len(data):
            answer += client.recv(1 << 20)
        sender.join()
    assert answer == data


def test_cut_resets_open_connections_and_new_ones_until_healed(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        assert echoed(client, b"x") == b"x"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with contextlib.suppress(ConnectionResetError), connected(proxy) as refused:
        assert is_reset(refused)
    proxy.heal()
    with connected(proxy) as later:
        assert echoed(later, b"y") == b"y"


def test_reset_ends_open_connections_and_lets_new_ones_pass(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        assert echoed(client, b"x") == b"x"
        proxy.reset()
        assert is_reset(client)
    with connected(proxy) as later:
        assert echoed(later, b"y") == b"y"


def test_hang_keeps_connections_silent_and_heal_delivers_what_was_held(proxy: FaultProxy) -> None:
    with connected(proxy) as client, connected(proxy, 0.2) as impatient:
        assert echoed(client, b"x") == b"x"
        proxy.hang()
        client.sendall(b"held")
        impatient.sendall(b"held too")
        with pytest.raises(TimeoutError):
            impatient.recv(1)
        proxy.heal()
        assert client.recv(4, socket.MSG_WAITALL) == b"held"


def test_delay_holds_each_direction(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        assert echoed(client, b"x") == b"x"
        proxy.delay(0.1)
        began = time.monotonic()
        assert echoed(client, b"y") == b"y"
        assert time.monotonic() - began >= 0.2  # a lower bound is the rule here, not a speed


def test_close_idle_closes_in_order_what_passed_nothing(proxy: FaultProxy) -> None:
    with connected(proxy) as idle, connected(proxy) as busy:
        assert echoed(idle, b"x") == b"x"
        assert echoed(busy, b"x") == b"x"
        assert proxy.close_idle(idle_for=600) == 0
        assert proxy.close_idle() == 2
        assert idle.recv(1) == b""
        assert busy.recv(1) == b""


def test_a_connection_that_waits_for_an_answer_is_not_idle(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        assert proxy.close_idle() == 0
        proxy.delay(0.1)
        client.sendall(b"x")
        assert proxy.close_idle() == 0
        assert client.recv(1) == b"x"
        assert proxy.close_idle() == 1


def test_a_half_closed_connection_still_brings_the_answer(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"last words")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(10, socket.MSG_WAITALL) == b"last words"
        assert client.recv(1) == b""


def test_an_upstream_that_refuses_resets_the_client() -> None:
    with FaultProxy(("127.0.0.1", 1)) as proxy, contextlib.suppress(ConnectionResetError), connected(proxy) as client:
        assert is_reset(client)


def test_the_upstream_may_be_named_later() -> None:
    with FaultProxy() as proxy, serving(EchoServer(("127.0.0.1", 0), Echo)) as upstream:
        with contextlib.suppress(ConnectionResetError), connected(proxy) as early:
            assert is_reset(early)
        proxy.upstream = upstream
        with connected(proxy) as client:
            assert echoed(client, b"x") == b"x"


def test_ipv6_works_on_both_sides() -> None:
    with serving(EchoServer6(("::1", 0), Echo)) as upstream, FaultProxy(upstream, host="::1") as proxy:
        assert proxy.address == f"[::1]:{proxy.port}"
        with connected(proxy) as client:
            assert echoed(client, b"x") == b"x"


def test_connections_are_counted_until_their_end(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        assert echoed(client, b"x") == b"x"
        assert proxy.connections == 1
    eventually(lambda: proxy.connections == 0)


def test_close_leaves_no_thread_and_may_be_called_twice(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        assert echoed(client, b"x") == b"x"
        proxy.close()
        proxy.close()
        assert is_reset(client)
    assert not [thread for thread in threading.enumerate() if thread.name == "pyclient-fault-proxy"]


def test_a_taken_port_is_an_error_that_leaves_no_thread(proxy: FaultProxy) -> None:
    with pytest.raises(OSError, match="in use"):
        FaultProxy(port=proxy.port).start()
    assert len([thread for thread in threading.enumerate() if thread.name == "pyclient-fault-proxy"]) == 1


def test_it_is_commanded_from_within_a_running_loop(proxy: FaultProxy) -> None:
    async def scenario() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        proxy.cut()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()

    asyncio.run(scenario())


def test_closing_with_clients_connected_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with (caplog.at_level(logging.ERROR), serving(EchoServer(("127.0.0.1", 0), Echo)) as upstream, FaultProxy(upstream) as proxy,
          socket.create_connection(("127.0.0.1", proxy.port)) as client):
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        proxy.hang()
        client.sendall(b"y")
        proxy.close()
        assert not caplog.records
