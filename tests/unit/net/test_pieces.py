"""Written pieces arrive whole and in order, however much the kernel takes at once, and are not copied needlessly."""
from __future__ import annotations

import asyncio
import errno
import random
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.messages import Buffer
from pyclient.core.connection import State
from pyclient.core.handshake import Versions
from pyclient.core.manager import Request, Unknown, Use
from pyclient.errors import KafkaError, ProtocolError
from pyclient.net import write_buffer
from pyclient.runtime import transport as transport_module
from pyclient.net.connection import Connection
from pyclient.runtime.transport import AsyncioNetwork, Endpoint, SocketOptions
from pyclient.net.write_buffer import WAKE_BYTES, WriteBuffer

pytestmark = pytest.mark.skipif(not hasattr(socket.socket, "sendmsg"), reason="this system has no sendmsg")


@pytest.mark.parametrize("tls", [True, False])
def test_no_dump_of_the_transports_variables_shows_what_is_written(tls: bool) -> None:
    """A first message may be a login."""
    take = write_buffer._take_chunk if tls else write_buffer._take_first
    given = take(deque([b"\0\0\0\x09", b"marker", b"abc"] if tls else [b"marker", b"abc"]))
    assert bytes(given) == (b"\0\0\0\x09markerabc" if tls else b"marker")
    assert "marker" not in repr(given)


class _Writes(asyncio.Protocol):
    """A protocol with a write buffer, as a connection has one."""

    def __init__(self, *, itself: bool) -> None:
        self._itself = itself
        self.resumed = self.paused = 0
        self.lost, self.done = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.write_buffer = transport, WriteBuffer(transport)
        if self._itself:
            self.write_buffer.attach_socket(transport.get_extra_info("socket")._sock)

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.resumed += 1
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self.write_buffer.flush()
        if not self.write_buffer.unwritten:
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


SIZES = st.lists(st.integers(0, 40) | st.integers(WAKE_BYTES - 2, WAKE_BYTES + 2) | st.integers(20_000, 90_000), max_size=12)


@settings(max_examples=60, deadline=None)
@given(puts=st.lists(SIZES, max_size=4), itself=st.booleans())
def test_written_pieces_arrive_whole_and_in_order_whatever_the_kernel_takes(puts: list[list[int]], itself: bool) -> None:
    async def run() -> None:
        protocol, theirs = await _connected(itself=itself)
        with theirs:
            whole, rest = b"", list(puts)

            def put() -> None:
                nonlocal whole
                while rest:
                    pieces = _pieces(rest.pop())
                    whole += b"".join(pieces)
                    protocol.write_buffer.write(pieces)
                    if any(pieces):
                        return  # there is something to read before the next

            put()
            assert await _read(theirs, sum(map(sum, puts)), put) == whole
            assert not protocol.write_buffer.pending
            protocol.transport.close()

    asyncio.run(run())


def test_more_pieces_than_one_sendmsg_takes_arrive() -> None:
    async def run() -> None:
        protocol, theirs = await _connected()
        with theirs:
            protocol.write_buffer.write([bytes([at % 256]) for at in range(5000)])
            assert await _read(theirs, 5000) == bytes(at % 256 for at in range(5000))
            protocol.transport.close()

    asyncio.run(run())


def test_what_the_kernel_refuses_is_not_copied_except_the_wake_bytes() -> None:
    async def run() -> None:
        protocol, theirs = await _connected()
        with theirs:
            piece = bytearray(1 << 20)
            protocol.write_buffer.write([piece])
            assert protocol.write_buffer.pending
            assert protocol.write_buffer.unwritten
            assert 0 < protocol.transport.get_write_buffer_size() <= WAKE_BYTES
            with pytest.raises(BufferError):  # it is the very same memory that is to be written
                piece.append(0)
            assert protocol.paused == 1, "pause_writing was not called"
            assert len(await _read(theirs, 1 << 20)) == 1 << 20
            await protocol.done.wait()
            piece.append(0)
            assert protocol.resumed >= 1
            protocol.transport.close()

    asyncio.run(run())


def test_pending_pieces_are_dropped_when_the_connection_breaks() -> None:
    async def run() -> None:
        protocol, theirs = await _connected()
        piece = bytearray(1 << 20)
        protocol.write_buffer.write([piece])
        theirs.close()
        await protocol.lost.wait()
        protocol.write_buffer.write([b"never"])
        assert not protocol.write_buffer.pending
        piece.append(0)

    asyncio.run(run())


def test_an_interrupt_during_a_write_aborts_the_connection_instead_of_writing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(sock: socket.socket, pieces: deque[Buffer]) -> bool:
        sock.sendmsg(list(pieces))
        raise KeyboardInterrupt

    async def run() -> bytes:
        protocol, theirs = await _connected()
        with theirs:
            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                patched.setattr(write_buffer, "_send", interrupted)
                protocol.write_buffer.write([b"once"])
            protocol.write_buffer.write([b"never"])
            await protocol.lost.wait()
            return b"".join([chunk async for chunk in _rest(theirs)])

    assert asyncio.run(run()) == b"once"


async def _rest(sock: socket.socket) -> AsyncIterator[bytes]:
    while chunk := await asyncio.get_running_loop().sock_recv(sock, 1 << 16):
        yield chunk


# ---- the connection around it ---------------------------------------------------------------------------------------


class _Linked:
    """A connection to a reader of this test, and its events; what the loop complains about is a failure."""

    def __init__(self) -> None:
        self.lost: list[KafkaError] = []
        self.complaints: list[object] = []
        self.connection = Connection("the peer", None, clock=time.monotonic, max_frame=1 << 20, on_change=lambda: None, on_quiet=lambda: None,
                               on_lost=lambda _connection, cause: self.lost.append(cause), on_answer=lambda *_: None)

    async def open(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: self.complaints.append(context))
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        await loop.create_connection(lambda: self.connection, sock=ours)
        self.connection.attach_socket(ours, writes=True)
        self.connection.state = State.READY
        return theirs

    def write(self, size: int) -> asyncio.Future[object]:
        """A request of that size; its outcome."""
        outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        request = Request(node=1, use=Use.PRODUCE, api=Api.METADATA, timeout=20.0, done=lambda _now, result: outcome.set_result(result),
                          versions=None, encode=lambda _version, number, _client: [number.to_bytes(4, "big"), bytearray(size)])
        self.connection.versions = Versions({Api.METADATA: VersionRange(0, 99)})
        self.connection.send(request)
        return outcome


def test_P22_a_retired_connection_writes_its_pending_bytes_and_closes_once() -> None:
    async def run() -> None:
        peer = _Linked()
        with await peer.open() as theirs:
            for _ in range(5):
                peer.connection._put(200_000, [bytearray(200_000)])
            assert peer.connection.unwritten
            peer.connection.retire()
            got = b"".join([chunk async for chunk in _rest(theirs)])
        assert len(got) == 5 * 200_004
        assert peer.complaints == []
        assert len(peer.lost) == 1

    asyncio.run(run())


def test_P07_a_response_before_its_request_is_completely_written_closes_the_connection() -> None:
    """What is answered gives its memory back, from which the rest would still be written."""
    async def run() -> None:
        peer = _Linked()
        with await peer.open() as theirs:
            outcome = peer.write(1 << 20)
            head = await asyncio.get_running_loop().sock_recv(theirs, 8)
            await asyncio.get_running_loop().sock_sendall(theirs, (4).to_bytes(4, "big") + head[4:])
            result = await outcome
        assert isinstance(result, Unknown)
        assert "before it was completely written" in str(result.cause)
        assert isinstance(result.cause, ProtocolError)

    asyncio.run(run())


class _Takes(asyncio.Protocol):
    writes: bool | None = None

    def attach_socket(self, sock: socket.socket, *, writes: bool) -> None:
        self.writes = writes


@pytest.mark.parametrize("joins", [True, False])
def test_the_socket_is_written_directly_where_the_transport_would_join_pieces(joins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "COPIES_WRITES", joins)

    async def connect() -> _Takes:
        made = _Takes()
        with socket.create_server(("127.0.0.1", 0)) as server:
            endpoint = Endpoint(socket.AF_INET, server.getsockname())
            transport = await AsyncioNetwork().open(endpoint, lambda: made, SocketOptions())
            transport.close()
        return made

    assert asyncio.run(connect()).writes == joins


class _Allows(socket.socket):
    """A socket of a system that refuses buffers above a size, as FreeBSD and macOS do."""

    allowed = 300_000

    def setsockopt(self, level: int, option: int, value: int) -> None:  # type: ignore[override]
        if option == socket.SO_SNDBUF and value > self.allowed:
            raise OSError(errno.ENOBUFS, "No buffer space available")
        super().setsockopt(level, option, value)


@pytest.mark.parametrize("allowed", [300_000, 0])
def test_a_socket_buffer_that_the_system_refuses_is_as_large_as_it_allows(allowed: int) -> None:
    with _Allows() as sock:
        sock.allowed = allowed
        before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        transport_module.tune(sock, SocketOptions(send_buffer=1_000_000))
        after = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert after == before if not allowed else after in (250_000, 500_000)  # Linux doubles the value


def test_a_socket_is_probed_before_a_balancer_forgets_its_connection() -> None:
    with socket.socket() as sock:
        transport_module.tune(sock, SocketOptions())
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        found = {name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name, _ in transport_module.KEEPALIVE if hasattr(socket, name)}
    assert found
    assert found == {name: value for name, value in transport_module.KEEPALIVE if name in found}
