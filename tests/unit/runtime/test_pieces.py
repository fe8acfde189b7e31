"""What is written in pieces arrives whole and in order, however much the kernel takes at once, and is copied only where a transport does so."""
from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.codec.produce import Buffer
from pyclient.runtime import network
from pyclient.runtime.network import AsyncioNetwork, Endpoint, SocketOptions
from pyclient.runtime.outbox import CRUMB, Outbox

pytestmark = pytest.mark.skipif(not hasattr(socket.socket, "sendmsg"), reason="this system has no sendmsg")


class _Writes(asyncio.Protocol):
    """A protocol with an outbox, as a connection has one."""

    def __init__(self, *, itself: bool) -> None:
        self._itself = itself
        self.resumed = self.paused = 0
        self.lost, self.done = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.outbox = transport, Outbox(transport)
        if self._itself:
            self.outbox.take_socket(transport.get_extra_info("socket")._sock)

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.resumed += 1
        self.outbox.go_on()
        if not self.outbox.unwritten:
            self.done.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


async def _connected(*, itself: bool = True) -> tuple[_Writes, socket.socket]:
    """A writer with a small buffer in the kernel, and who reads from it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    _, protocol = await asyncio.get_running_loop().create_connection(lambda: _Writes(itself=itself), sock=ours)
    return protocol, theirs


async def _read(sock: socket.socket, size: int, beside: Callable[[], object] = lambda: None) -> bytes:
    data = b""
    while len(data) < size:
        data += await asyncio.get_running_loop().sock_recv(sock, 7000)
        beside()
    return data


def _pieces(sizes: Sequence[int]) -> list[Buffer]:
    return [bytearray(random.Random(at).randbytes(size)) for at, size in enumerate(sizes)]


SIZES = st.lists(st.integers(0, 40) | st.integers(CRUMB - 2, CRUMB + 2) | st.integers(20_000, 90_000), max_size=12)


@settings(max_examples=60, deadline=None)
@given(puts=st.lists(SIZES, max_size=4), itself=st.booleans())
def test_what_is_put_arrives_whole_and_in_order_whatever_the_kernel_takes(puts: list[list[int]], itself: bool) -> None:
    async def run() -> None:
        protocol, theirs = await _connected(itself=itself)
        with theirs:
            whole, rest = b"", list(puts)

            def put() -> None:
                nonlocal whole
                while rest:
                    pieces = _pieces(rest.pop())
                    whole += b"".join(pieces)
                    protocol.outbox.put(pieces)
                    if any(pieces):
                        return  # there is something to read before the next

            put()
            assert await _read(theirs, sum(map(sum, puts)), put) == whole
            assert not protocol.outbox.holds
            protocol.transport.close()

    asyncio.run(run())


def test_more_pieces_than_the_system_takes_at_once_arrive_too() -> None:
    async def run() -> None:
        protocol, theirs = await _connected()
        with theirs:
            protocol.outbox.put([bytes([at % 256]) for at in range(5000)])
            assert await _read(theirs, 5000) == bytes(at % 256 for at in range(5000))
            protocol.transport.close()

    asyncio.run(run())


def test_what_the_kernel_does_not_take_is_not_copied_but_for_a_crumb() -> None:
    async def run() -> None:
        protocol, theirs = await _connected()
        with theirs:
            piece = bytearray(1 << 20)
            protocol.outbox.put([piece])
            assert protocol.outbox.holds
            assert protocol.outbox.unwritten
            assert 0 < protocol.transport.get_write_buffer_size() <= CRUMB
            with pytest.raises(BufferError):  # it is the very same memory that is to be written
                piece.append(0)
            assert protocol.paused == 1, "whoever writes is told to stop"
            assert len(await _read(theirs, 1 << 20)) == 1 << 20
            await protocol.done.wait()
            piece.append(0)
            assert protocol.resumed >= 1
            protocol.transport.close()

    asyncio.run(run())


def test_what_waits_for_a_connection_that_breaks_is_dropped_and_nothing_is_written_any_more() -> None:
    async def run() -> None:
        protocol, theirs = await _connected()
        piece = bytearray(1 << 20)
        protocol.outbox.put([piece])
        theirs.close()
        await protocol.lost.wait()
        protocol.outbox.put([b"never"])
        assert not protocol.outbox.holds
        piece.append(0)

    asyncio.run(run())


class _Takes(asyncio.Protocol):
    sock: socket.socket | None = None

    def take_socket(self, sock: socket.socket) -> None:
        self.sock = sock


@pytest.mark.parametrize("joins", [True, False])
def test_a_protocol_writes_itself_where_the_transport_would_join(joins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "JOINS_PIECES", joins)

    async def connect() -> _Takes:
        made = _Takes()
        with socket.create_server(("127.0.0.1", 0)) as server:
            endpoint = Endpoint(socket.AF_INET, server.getsockname())
            transport = await AsyncioNetwork().open(endpoint, lambda: made, SocketOptions())
            transport.close()
        return made

    assert (asyncio.run(connect()).sock is not None) == joins


class _Allows(socket.socket):
    """A socket of a system that refuses buffers above a size, as FreeBSD and macOS do."""

    allowed = 300_000

    def setsockopt(self, level: int, option: int, value: int) -> None:  # type: ignore[override]
        if option == socket.SO_SNDBUF and value > self.allowed:
            raise OSError(errno.ENOBUFS, "No buffer space available")
        super().setsockopt(level, option, value)


@pytest.mark.parametrize("allowed", [300_000, 0])
def test_a_buffer_that_the_system_refuses_is_as_large_as_it_allows(allowed: int) -> None:
    with _Allows() as sock:
        sock.allowed = allowed
        before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        network._tune(sock, SocketOptions(send_buffer=1_000_000))
        after = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert after == before if not allowed else after in (250_000, 500_000)  # Linux doubles what it is told
