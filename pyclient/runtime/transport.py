"""Name resolution, sockets and their options, behind one small interface that a simulation can replace."""
from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")
SYSTEM_DEFAULT: Final = -1
COPIES_WRITES: Final = sys.version_info < (3, 12) and hasattr(socket.socket, "sendmsg")
"""Whether this Python's transports copy the bytes they write."""
HAS_RCVLOWAT: Final = sys.platform == "linux"
"""Whether SO_RCVLOWAT affects epoll, and not only blocking reads."""
KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
"""Seconds without traffic before the first probe (macOS has another name for it) and between probes, and how many may
stay unanswered.

Systems wait for two hours, but cloud balancers and NAT forget a connection after some minutes: AWS after 350 s, Azure
after 240 s. A peer that is gone is noticed after two minutes.
"""
TLS_SHUTDOWN_S: Final = 1.0
"""Longest wait for the peer's close_notify if `UsesTls.attach_tls` cannot shorten it."""


class Endpoint(NamedTuple):
    """One resolved address of a host, as ``socket.connect`` takes it."""

    family: int
    address: tuple[Any, ...]

    def __str__(self) -> str:
        host, port = self.address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


class SocketOptions(NamedTuple):
    """Kernel buffer sizes in bytes; -1 leaves the system's."""

    send_buffer: int = SYSTEM_DEFAULT
    receive_buffer: int = SYSTEM_DEFAULT


class Tls(NamedTuple):
    """The parameters of a TLS connection."""

    context: ssl.SSLContext
    host: str
    """The name that the broker's certificate must contain: the one in its address, or its canonical name."""
    timeout: float
    """Seconds that the handshake may take."""
    connected: Callable[[], None]
    """Called when the socket is connected, before the handshake."""


class Network(Protocol):
    """Resolves names and opens connections."""

    async def resolve(self, host: str, port: int) -> list[Endpoint]:
        """Every address of *host*, in the resolver's order. Raises OSError."""

    async def canonical_name(self, endpoint: Endpoint) -> str:
        """The name of an address, by reverse look-up; without one the address itself."""

    async def open(self, endpoint: Endpoint, protocol: Callable[[], asyncio.BaseProtocol], options: SocketOptions,
                   tls: Tls | None = None) -> asyncio.Transport:
        """Connect, with *tls* do the handshake, and attach a protocol.

        Raises OSError, of which ssl.SSLError is a subclass, and ValueError for a name that TLS does not allow.
        """

    def drop(self) -> None:
        """Close every socket of this process without closing its connection (after a fork: the parent uses them)."""


@runtime_checkable
class UsesSocket(Protocol):
    """A protocol that reads its socket beside the transport, and writes to it while the transport is idle."""

    def attach_socket(self, sock: socket.socket, *, writes: bool) -> None:
        """Called once, before the first write. *writes*: write directly, because the transport would copy the bytes."""


@runtime_checkable
class UsesTls(Protocol):
    """A protocol that closes a TLS connection without waiting for the peer."""

    def attach_tls(self, stop_reading: Callable[[], None], set_low_water: Callable[[int], None] | None = None) -> None:
        """Called once, after the handshake and before the first write.

        *stop_reading*, called after ``transport.close()``, ends the wait for the peer's close_notify; pending writes
        are still written. *set_low_water* sets how many received bytes wake the transport, until it is called again;
        None where the system cannot do this.
        """


class AsyncioNetwork:
    """Real sockets on the running loop."""

    def __init__(self) -> None:
        self._sockets: set[socket.socket] = set()

    async def resolve(self, host: str, port: int) -> list[Endpoint]:
        """Call the system's resolver in a thread of its own; a numeric address needs neither."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await _in_a_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return list(dict.fromkeys(Endpoint(family, address) for family, _, _, _, address in found))

    async def canonical_name(self, endpoint: Endpoint) -> str:
        """Call the system's resolver in a thread of its own."""
        try:
            name, _ = await _in_a_thread(lambda: socket.getnameinfo(endpoint.address, socket.NI_NUMERICSERV))
        except OSError:
            name = str(endpoint.address[0])
        return name.partition("%")[0]  # without the interface of an IPv6 address

    async def open(self, endpoint: Endpoint, protocol: Callable[[], asyncio.BaseProtocol], options: SocketOptions,
                   tls: Tls | None = None) -> asyncio.Transport:
        """Connect one socket."""
        loop = asyncio.get_running_loop()
        sock = await self.connected_socket(endpoint, options)
        try:
            if tls is not None:
                return await _secured(loop, sock, protocol, tls)
            transport, made = await loop.create_connection(protocol, sock=sock)
            if isinstance(made, UsesSocket):
                made.attach_socket(sock, writes=COPIES_WRITES)
        except BaseException:
            sock.close()
            raise
        return transport

    async def connected_socket(self, endpoint: Endpoint, options: SocketOptions) -> socket.socket:
        """A socket that is connected to *endpoint*. Raises OSError."""
        sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
        self.keep(sock)
        try:
            sock.setblocking(False)
            tune(sock, options)
            await asyncio.get_running_loop().sock_connect(sock, endpoint.address)
        except BaseException:
            sock.close()
            raise
        return sock

    def keep(self, sock: socket.socket) -> None:
        """Remember a socket for `drop`, and forget those that are closed."""
        self._sockets = {each for each in self._sockets if each.fileno() >= 0}
        self._sockets.add(sock)

    def drop(self) -> None:
        """Detach first, so that no transport closes a descriptor that was reused meanwhile."""
        for sock in self._sockets:
            descriptor = sock.detach()
            if descriptor >= 0:
                socket.close(descriptor)


async def _secured(loop: asyncio.AbstractEventLoop, sock: socket.socket, protocol: Callable[[], asyncio.BaseProtocol], tls: Tls) -> asyncio.Transport:
    """Do the TLS handshake, with our timeouts instead of asyncio's. Only the transport reads and writes the socket."""
    tls.connected()
    transport, made = await loop.create_connection(
        protocol, sock=sock, ssl=tls.context, server_hostname=tls_name(tls.host), ssl_handshake_timeout=tls.timeout, ssl_shutdown_timeout=TLS_SHUTDOWN_S)
    if isinstance(made, UsesTls):
        made.attach_tls(functools.partial(_shut_down_reading, sock), functools.partial(_set_low_water, sock) if HAS_RCVLOWAT else None)
    return transport


def tls_name(host: str) -> str:
    """The name as in certificates: without a trailing dot or an IPv6 zone."""
    return host.rstrip(".").partition("%")[0]


def _shut_down_reading(sock: socket.socket) -> None:
    """The transport sees the end of the stream; writing continues."""
    with contextlib.suppress(OSError):  # it is closed already
        sock.shutdown(socket.SHUT_RD)


def _set_low_water(sock: socket.socket, size: int) -> None:
    """Wake the loop at *size* received bytes; the end of the stream and a full receive buffer wake it as well."""
    with contextlib.suppress(OSError):  # it is closed already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


def os_reason(error: OSError | UnicodeError) -> str:
    """The system's reason, without the text that asyncio adds."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return str(getattr(error, "strerror", None) or error)


async def _in_a_thread(work: Callable[[], T]) -> T:
    """Run a blocking call in a daemon thread of its own.

    The loop's executor is not used: its threads outlive the client, `close` would wait for a name server that does not
    answer, and it accepts no work while the interpreter shuts down.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver(settle: Callable[[], None]) -> None:
        if not done.done():  # else cancelled meanwhile
            settle()

    def run() -> None:
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 raised to the awaiting task
            outcome = functools.partial(done.set_exception, error)
        else:
            outcome = functools.partial(done.set_result, found)
        with contextlib.suppress(RuntimeError):  # the loop is closed, no task waits
            loop.call_soon_threadsafe(deliver, outcome)

    thread = threading.Thread(target=run, name="pyclient-resolver", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down and starts no threads
        return work()
    found = await done
    thread.join()  # it has nothing left to do
    return found


def tune(sock: socket.socket, options: SocketOptions) -> None:
    """Set the options of a socket to a broker."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _keep_alive(sock)
    for option, size in ((socket.SO_SNDBUF, options.send_buffer), (socket.SO_RCVBUF, options.receive_buffer)):
        if size != SYSTEM_DEFAULT:
            _resize(sock, option, size)


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            with contextlib.suppress(OSError):  # a sandbox may emulate fewer options than the system has
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _resize(sock: socket.socket, option: int, size: int) -> None:
    """Linux reduces a size to what it allows; other systems refuse it: then try half of it."""
    while size:
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, size)
        except OSError:
            size //= 2
        else:
            return
