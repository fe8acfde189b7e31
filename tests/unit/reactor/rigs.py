"""Reactors that a test leads itself, over every poller of this system; and peers whose bytes it sends and takes."""
from __future__ import annotations

import asyncio
import contextlib
import functools
import select
import selectors
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, Self, TypeVar

import pytest

from pyclient.reactor.channels import MOST_PIECES, NOTHING, Buffer, Channel, PlainChannel
from pyclient.reactor.loop_poller import LoopPoller
from pyclient.reactor.pollers import READABLE, WRITABLE, Poller, SelectorPoller
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Task
from pyclient.reactor.tls_channel import Tls, TlsChannel
from pyclient.runtime.network import secured
from tests.unit.net.test_tls_connections import authority, served

T = TypeVar("T")
LIMIT_S: Final = 20.0
MUCH: Final = 1 << 16


class Rig:
    """A reactor whose steps are those that the test asks for."""

    def __init__(self, poller: Poller) -> None:
        self.poller = poller
        self.reactor = Reactor(poller, time.monotonic)
        self.peers: list[Peer] = []
        self.channels: list[Channel] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self.channels:
            self.run(channel.abort)
        for each in self.peers:
            each.sock.close()
        self.poller.close()

    def step(self, timeout: float = 0.0) -> None:
        """Handle what has come, and all that follows from it."""
        self.reactor.step(self.poller.sleep(timeout))

    def until(self, condition: Callable[[], object]) -> None:
        """Step until *condition* holds; peers take and send meanwhile."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            for each in self.peers:
                each.pump()
            if condition():
                return
            assert time.monotonic() < deadline, f"still not so after {LIMIT_S} s"
            self.step(0.001)

    def settle(self) -> None:
        """Step until nothing comes any more."""
        for _ in range(2):
            for each in self.peers:
                each.pump()
            self.step()

    def run(self, function: Callable[[], T]) -> T:
        """Call *function* in a step."""
        outcome: Future[T] = Future()
        self.reactor.call_soon(lambda: _settle(outcome, function))
        return outcome.result(0)

    def start(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Task[T]:
        """Run a coroutine."""
        return self.run(lambda: Task(self.reactor, make()))

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of a coroutine."""
        task = self.start(make)
        self.until(task.done)
        return task.result()


def _settle(outcome: Future[T], function: Callable[[], T]) -> None:
    try:
        outcome.set_result(function())
    except Exception as error:  # noqa: BLE001 raised to the caller
        outcome.set_exception(error)


class LoopRig(Rig):
    """One whose steps an asyncio loop calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        poller = LoopPoller(time.monotonic)
        super().__init__(poller)
        self._loop = loop
        poller.bind(loop, self.reactor)

    def step(self, timeout: float = 0.0) -> None:
        for _ in range(3):  # what a callback of the loop schedules runs in its next iteration
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._loop.close()


def _epoll() -> Rig:
    from pyclient.reactor.epoll_poller import EpollPoller

    return Rig(EpollPoller())


def _selector(name: str) -> Rig:
    return Rig(SelectorPoller(time.monotonic, getattr(selectors, name)))


def _uvloop() -> Rig:
    import uvloop

    return LoopRig(uvloop.new_event_loop())


def rigs() -> list[Any]:
    """What makes a rig, for each poller: those of Linux, macOS and Windows, as far as this system has them."""
    found: list[Any] = [pytest.param(_epoll, id="epoll")] if hasattr(select, "epoll") else []
    found += [pytest.param(functools.partial(_selector, name), id=name) for name in
              ("SelectSelector", "PollSelector", "EpollSelector", "KqueueSelector") if hasattr(selectors, name)]
    found.append(pytest.param(lambda: LoopRig(asyncio.SelectorEventLoop()), id="asyncio"))
    return found if sys.platform == "win32" else [*found, pytest.param(_uvloop, id="uvloop")]


over_each_poller = pytest.mark.parametrize("make", rigs())
plain_and_tls = pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
Make = Callable[[], Rig]


# ---- peers ----------------------------------------------------------------------------------------------------------


class Peer:
    """The other side of a plain channel."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.reads = True
        self.most = MUCH
        """Bytes that are sent, and read, at a time."""
        self.received = bytearray()
        self.ended = self.notified = False
        """Whether the other side has closed its half, and whether it has ended the stream in order, with TLS."""
        self.error: OSError | None = None
        self._unsent = bytearray()

    def pump(self) -> None:
        """Take what has come, and send what is left."""
        if self.sock.fileno() < 0:
            return
        if self._unsent:
            with contextlib.suppress(BlockingIOError):
                del self._unsent[:self.sock.send(self._unsent[:self.most])]
        while self.reads and not self.ended:
            try:
                data = self.sock.recv(self.most)
            except BlockingIOError:
                return
            except OSError as error:
                self.error, self.ended = error, True
            else:
                self.ended = not data
                self._take(data)
            if self.most < MUCH:
                return

    def _take(self, data: bytes) -> None:
        self.received += data

    def encode(self, data: bytes) -> bytes:
        """What is on the wire when *data* is sent."""
        return data

    def send(self, data: bytes) -> None:
        """Send it, now or by `pump`."""
        self.send_raw(self.encode(data))

    def send_raw(self, data: bytes) -> None:
        """The same, for what is encoded."""
        self._unsent += data
        self.pump()

    def last_words(self) -> bytes:
        """What ends the stream in order."""
        return b""

    def end(self) -> None:
        """Close this half of the connection, in order; the other half stays open."""
        self.send_raw(self.last_words())
        self.cut()

    def cut(self) -> None:
        """Close this half without a word."""
        assert not self._unsent
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Break the connection."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class TlsPeer(Peer):
    """The other side of a TLS channel, the server."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = (context or served()).wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.shaken = False
        """Whether the handshake is done."""
        self.refused: ssl.SSLError | None = None

    def _take(self, data: bytes) -> None:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        try:
            if not self.shaken:
                self.tls.do_handshake()
                self.shaken = True
            while not self.notified:
                self._decrypt()
        except (ssl.SSLWantReadError, ssl.SSLEOFError):
            pass
        except ssl.SSLError as error:
            self.refused = self.refused or error  # behind an alert only the end comes
        self._unsent += self._outgoing.read()
        if self._unsent and not self.ended and self.most == MUCH:
            del self._unsent[:self.sock.send(self._unsent)]

    def _decrypt(self) -> None:
        data = self.tls.read(1 << 16)
        self.received += data
        self.notified = not data

    def encode(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self._outgoing.read()

    def last_words(self) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._outgoing.read()


def tcp_pair(*, buffer: int = 0) -> tuple[socket.socket, socket.socket]:
    """A connection over TCP; *buffer*: the size of the first socket's send buffer and the second's receive buffer."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as ours:
        if buffer:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        ours.connect(server.getsockname())
        theirs, _ = server.accept()
        kept = socket.socket(fileno=ours.detach())
    for each in (kept, theirs):
        each.setblocking(False)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return kept, theirs


class Limited(socket.socket):
    """A socket of a system that takes so many bytes, and no more until the test allows it."""

    allowed = 0
    has_sendmsg = True

    def __getattribute__(self, name: str) -> Any:
        if name == "sendmsg" and not super().__getattribute__("has_sendmsg"):
            raise AttributeError(name)
        return super().__getattribute__(name)

    def send(self, data: Any, *_: Any) -> int:
        self._use()
        sent = super().send(memoryview(data)[:self.allowed])
        self.allowed -= sent
        return sent

    def sendmsg(self, buffers: Any, *_: Any) -> int:
        self._use()
        offered = list(buffers)
        assert len(offered) <= MOST_PIECES
        sent = super().send(b"".join(offered)[:self.allowed])
        self.allowed -= sent
        return sent

    def _use(self) -> None:
        if not self.allowed:
            raise BlockingIOError


def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority().pem)


def tls_parameters(context: ssl.SSLContext | None = None, timeout: float = LIMIT_S) -> Tls:
    return Tls(context or client_context(), "localhost", timeout, lambda: None)


def plain_pair(rig: Rig, *, buffer: int = 0) -> tuple[PlainChannel, Peer]:
    """A plain channel and its peer."""
    ours, theirs = tcp_pair(buffer=buffer)
    peer = Peer(theirs)
    channel = rig.run(lambda: PlainChannel(rig.reactor, ours))
    rig.peers.append(peer)
    rig.channels.append(channel)
    return channel, peer


def tls_pair(rig: Rig, *, buffer: int = 0, context: ssl.SSLContext | None = None, server: ssl.SSLContext | None = None) -> tuple[TlsChannel, TlsPeer]:
    """A channel with TLS and its peer, after the handshake."""
    ours, theirs = tcp_pair(buffer=buffer)
    peer = TlsPeer(theirs, server)
    rig.peers.append(peer)
    plain = rig.run(lambda: PlainChannel(rig.reactor, ours))
    rig.channels.append(plain)
    channel = rig.call(lambda: secured(rig.reactor, plain, tls_parameters(context)))
    rig.channels[-1] = channel
    return channel, peer


def tls_server(rig: Rig, server: ssl.SSLContext | None = None) -> tuple[PlainChannel, TlsPeer]:
    """What a handshake begins with."""
    ours, theirs = tcp_pair()
    peer = TlsPeer(theirs, server)
    plain = rig.run(lambda: PlainChannel(rig.reactor, ours))
    rig.peers.append(peer)
    rig.channels.append(plain)
    return plain, peer


def pair(rig: Rig, tls: bool, *, buffer: int = 0) -> tuple[Channel, Peer]:
    return tls_pair(rig, buffer=buffer) if tls else plain_pair(rig, buffer=buffer)


# ---- who owns a channel ---------------------------------------------------------------------------------------------


class Owner:
    """Reads all that comes, and goes on with what could not be written, as `Channel` asks it to."""

    def __init__(self, rig: Rig, channel: Channel, *, room: int = 4096) -> None:
        self._channel = channel
        self._room = room
        self.events: list[int] = []
        self.sizes: list[int] = []
        self.read = bytearray()
        self.ended = False
        self.error: OSError | None = None
        self.pieces: list[Buffer] = []
        self._refused = False
        rig.run(lambda: channel.attach(self._on_events))

    @property
    def over(self) -> bool:
        return self.ended or self.error is not None

    def write(self, *pieces: Buffer) -> bool:
        """Call it in a step; whether all of it has reached the system."""
        self.pieces.extend(pieces)
        self._refused = not self._channel.write(self.pieces)
        return not self._refused

    def _on_events(self, events: int) -> None:
        self.events.append(events)
        if events & WRITABLE and self._refused:
            self.write()
        if events & READABLE:
            self._read_all()

    def _read_all(self) -> None:
        while not self.over:
            buffer = bytearray(self._room)
            try:
                size = self._channel.read_into(buffer, 0)
            except OSError as error:
                self.error = error
                return
            if size == NOTHING:
                return
            self.sizes.append(size)
            self.read += buffer[:size]
            self.ended = not size
            if self._channel.short_reads_end and size < self._room:
                return
