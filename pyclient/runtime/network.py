"""Name resolution, sockets and their options, behind one small interface that a simulation can replace."""
from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from pyclient.reactor.channels import Channel, PlainChannel, connected
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Future, Timeout
from pyclient.reactor.tls_channel import Tls, TlsChannel

T = TypeVar("T")
SYSTEM_DEFAULT: Final = -1
KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
"""Seconds without traffic before the first probe (macOS has another name for it) and between probes, and how many may
stay unanswered.

Systems wait for two hours, but cloud balancers and NAT forget a connection after some minutes: AWS after 350 s, Azure
after 240 s. A peer that is gone is noticed after two minutes.
"""


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


class Network(Protocol):
    """Resolves names and opens connections, in tasks of a reactor."""

    async def resolve(self, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
        """Every address of *host*, in the resolver's order. Raises OSError."""

    async def canonical_name(self, reactor: Reactor, endpoint: Endpoint) -> str:
        """The name of an address, by reverse look-up; without one the address itself."""

    async def open(self, reactor: Reactor, endpoint: Endpoint, options: SocketOptions, tls: Tls | None = None) -> Channel:
        """Connect, and with *tls* do the handshake.

        Raises OSError, of which ssl.SSLError is a subclass, and ValueError for a name that TLS does not allow.
        """

    def drop(self) -> None:
        """Close every socket of this process without closing its connection (after a fork: the parent uses them)."""


class SocketNetwork:
    """Real sockets."""

    def __init__(self) -> None:
        self._sockets: set[socket.socket] = set()

    async def resolve(self, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
        """Call the system's resolver in a thread of its own; a numeric address needs neither."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await in_a_thread(reactor, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return list(dict.fromkeys(Endpoint(family, address) for family, _, _, _, address in found))

    async def canonical_name(self, reactor: Reactor, endpoint: Endpoint) -> str:
        """Call the system's resolver in a thread of its own."""
        try:
            name, _ = await in_a_thread(reactor, lambda: socket.getnameinfo(endpoint.address, socket.NI_NUMERICSERV))
        except OSError:
            name = str(endpoint.address[0])
        return name.partition("%")[0]  # without the interface of an IPv6 address

    async def open(self, reactor: Reactor, endpoint: Endpoint, options: SocketOptions, tls: Tls | None = None) -> Channel:
        """Connect one socket."""
        plain = await self.connected(reactor, endpoint, options)
        return plain if tls is None else await secured(reactor, plain, tls)

    async def connected(self, reactor: Reactor, endpoint: Endpoint, options: SocketOptions) -> PlainChannel:
        """A socket that is connected to *endpoint*. Raises OSError."""
        sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
        self.keep(sock)
        try:
            sock.setblocking(False)
            tune(sock, options)
        except BaseException:
            sock.close()
            raise
        return await connected(reactor, sock, endpoint.address)

    def keep(self, sock: socket.socket) -> None:
        """Remember a socket for `drop`, and forget those that are closed."""
        self._sockets = {each for each in self._sockets if each.fileno() >= 0}
        self._sockets.add(sock)

    def drop(self) -> None:
        """Detach first, so that no channel closes a descriptor that was reused meanwhile."""
        for sock in self._sockets:
            descriptor = sock.detach()
            if descriptor >= 0:
                socket.close(descriptor)


async def secured(reactor: Reactor, plain: PlainChannel, tls: Tls) -> TlsChannel:
    """Do the TLS handshake; closes *plain* when this fails or is cancelled."""
    try:
        tls.connected()
        channel = TlsChannel(reactor, plain, tls)
        async with Timeout(reactor, tls.timeout):
            await channel.shake_hands()
    except TimeoutError:
        plain.close()
        raise ConnectionAbortedError(f"the TLS handshake took longer than {tls.timeout:.1f} s") from None
    except BaseException:
        plain.close()
        raise
    return channel


def os_reason(error: OSError | UnicodeError) -> str:
    """The system's reason."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return str(getattr(error, "strerror", None) or error)


async def in_a_thread(reactor: Reactor, work: Callable[[], T]) -> T:
    """Run a blocking call in a daemon thread of its own.

    Not in a pool: `close` would wait for a name server that does not answer, and a pool accepts no work while the
    interpreter shuts down.
    """
    done: Future[T] = Future(reactor)

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
        reactor.call_soon(functools.partial(deliver, outcome))

    thread = threading.Thread(target=run, name="pyclient-resolver", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down and starts no threads
        return work()
    return await done


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
