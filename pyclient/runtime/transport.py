"""Names, sockets and their options: the outside world, behind one small interface that a simulation can replace."""
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
JOINS_PIECES: Final = sys.version_info < (3, 12) and hasattr(socket.socket, "sendmsg")
"""Whether this Python's transports copy what they are to write."""
WAITS_FOR_MORE: Final = sys.platform == "linux"
"""Whether SO_RCVLOWAT counts for who waits, and not only for who reads."""
FAREWELL_S: Final = 1.0
"""How long an end of TLS may wait for the peer's last word where it cannot be told that nobody listens (see `UsesTls`)."""


class Endpoint(NamedTuple):
    """One resolved address of a host: what ``socket.connect`` takes, and how to show it."""

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
    """What a connection with TLS needs."""

    context: ssl.SSLContext
    host: str
    """The name that the broker's certificate must have: the one in its address, not what that was resolved to."""
    timeout: float
    """Seconds that the handshake may take."""
    connected: Callable[[], None]
    """Called when the socket is connected, and the handshake begins."""


class Network(Protocol):
    """How a client reaches hosts."""

    async def resolve(self, host: str, port: int) -> list[Endpoint]:
        """Every address of *host*, in the resolver's order. Raises OSError."""

    async def open(self, endpoint: Endpoint, protocol: Callable[[], asyncio.BaseProtocol], options: SocketOptions,
                   tls: Tls | None = None) -> asyncio.Transport:
        """Connect and hand the connection to a protocol, with TLS once the handshake is done. Raises OSError, of which ssl.SSLError is one, and
        ValueError for a name that TLS cannot have."""

    def drop(self) -> None:
        """Close every socket of this process without a word to its peer (after a fork: they belong to the parent)."""


@runtime_checkable
class UsesSocket(Protocol):
    """A protocol that reads its socket beside the transport, and may write to it as long as the transport has nothing of its own to write."""

    def take_socket(self, sock: socket.socket, *, writes: bool) -> None:
        """Called once, before anything is written. *writes*: it should write itself, for the transport would copy what it is given."""


@runtime_checkable
class UsesTls(Protocol):
    """A protocol that closes its connection as fast as one without TLS."""

    def take_tls(self, deafen: Callable[[], None], wake_at: Callable[[int], None] | None = None) -> None:
        """Called once, when the handshake is done and before anything is written. *deafen*, called after the transport was closed, ends the
        wait for the peer's word that it ends too; what is to be written still is. *wake_at* lets the transport be told of bytes that came only
        when they are so many, until it is called again; None where the system cannot do that.
        """


class AsyncioNetwork:
    """Real sockets on the running loop; names are resolved in the loop's executor."""

    def __init__(self) -> None:
        self._sockets: set[socket.socket] = set()

    async def resolve(self, host: str, port: int) -> list[Endpoint]:
        """Ask the system's resolver, in a thread that ends with it; a numeric address needs neither."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await _in_a_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return list(dict.fromkeys(Endpoint(family, address) for family, _, _, _, address in found))

    async def open(self, endpoint: Endpoint, protocol: Callable[[], asyncio.BaseProtocol], options: SocketOptions,
                   tls: Tls | None = None) -> asyncio.Transport:
        """Connect one socket."""
        loop = asyncio.get_running_loop()
        sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
        self._sockets = {each for each in self._sockets if each.fileno() >= 0}
        self._sockets.add(sock)
        try:
            sock.setblocking(False)
            _tune(sock, options)
            await loop.sock_connect(sock, endpoint.address)
            if tls is not None:
                return await _secured(loop, sock, protocol, tls)
            transport, made = await loop.create_connection(protocol, sock=sock)
            if isinstance(made, UsesSocket):
                made.take_socket(sock, writes=JOINS_PIECES)
        except BaseException:
            sock.close()
            raise
        return transport

    def drop(self) -> None:
        """Detach first, so that no transport closes a descriptor somebody else got meanwhile."""
        for sock in self._sockets:
            descriptor = sock.detach()
            if descriptor >= 0:
                socket.close(descriptor)


async def _secured(loop: asyncio.AbstractEventLoop, sock: socket.socket, protocol: Callable[[], asyncio.BaseProtocol], tls: Tls) -> asyncio.Transport:
    """Shake hands. asyncio's limits give way to ours; nobody reads or writes the socket beside the transport."""
    tls.connected()
    transport, made = await loop.create_connection(
        protocol, sock=sock, ssl=tls.context, server_hostname=tls_name(tls.host), ssl_handshake_timeout=tls.timeout, ssl_shutdown_timeout=FAREWELL_S)
    if isinstance(made, UsesTls):
        made.take_tls(functools.partial(_read_no_more, sock), functools.partial(_wake_at, sock) if WAITS_FOR_MORE else None)
    return transport


def tls_name(host: str) -> str:
    """As certificates write it: no dot at the end, no zone of an IPv6 address."""
    return host.rstrip(".").partition("%")[0]


def _read_no_more(sock: socket.socket) -> None:
    """What reads the socket is told that its stream has ended; writing goes on."""
    with contextlib.suppress(OSError):  # it is gone already
        sock.shutdown(socket.SHUT_RD)


def _wake_at(sock: socket.socket, size: int) -> None:
    """Be told of what came when it is *size* bytes; also when the stream has ended, and when the system's buffer can take no more."""
    with contextlib.suppress(OSError):  # it is gone already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


def reason(error: OSError | UnicodeError) -> str:
    """What the system says, without the wording of whoever called it."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return str(getattr(error, "strerror", None) or error)


async def _in_a_thread(work: Callable[[], T]) -> T:
    """Run a blocking call in a daemon thread of its own.

    Not in the loop's executor: its threads would outlive the client, closing would wait for a name server that does not
    answer, and while the interpreter ends it takes no work any more.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(settle: Callable[[], None]) -> None:
        if not done.done():  # cancelled meanwhile
            settle()

    def run() -> None:
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 it belongs to whoever waits
            outcome = functools.partial(done.set_exception, error)
        else:
            outcome = functools.partial(done.set_result, found)
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(tell, outcome)

    thread = threading.Thread(target=run, name="pyclient-resolver", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending and starts no threads any more
        return work()
    found = await done
    thread.join()  # it has said its last word
    return found


def _tune(sock: socket.socket, options: SocketOptions) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, size in ((socket.SO_SNDBUF, options.send_buffer), (socket.SO_RCVBUF, options.receive_buffer)):
        if size != SYSTEM_DEFAULT:
            _resize(sock, option, size)


def _resize(sock: socket.socket, option: int, size: int) -> None:
    """Linux cuts a size to what it allows; others refuse it, and get half of it."""
    while size:
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, size)
        except OSError:
            size //= 2
        else:
            return
