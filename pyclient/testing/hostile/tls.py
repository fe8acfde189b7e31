"""Peers that are hostile below Kafka's protocol: TLS that never begins, never ends, or proves nothing.

A peer runs one function for each connection, in a thread of its own. It keeps what it decrypted: a client must send
nothing to a peer that has not proved who it is.
"""
from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Self, TypeAlias

from pyclient.testing.common.certificates import EXPIRED, Certificate, CertificateAuthority

Serve: TypeAlias = Callable[["TlsPeer", socket.socket], None]
HANDSHAKE: Final = 22
ALERT: Final = 21
LONGEST_RECORD: Final = 2**14
CERTIFICATE: Final = 11
"""The type of a handshake message."""
WHOLE: Final = 2**20


class TlsPeer:
    """Listens on this machine until the block ends."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._ended = False
        self.connections = 0
        self.heard: list[bytes] = []
        """What clients sent through TLS."""

    @property
    def bootstrap_servers(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def over_tls(self, serve: Serve, connection: socket.socket, context: ssl.SSLContext) -> None:
        """Run *serve* behind a handshake."""
        with context.wrap_socket(connection, server_side=True) as secured:
            with self._lock:
                self._open.add(secured)
            serve(self, secured)
        self._open.discard(secured)

    def hear(self, connection: socket.socket) -> bytes:
        """The next bytes of a client; none when it has hung up."""
        said = connection.recv(WHOLE)
        if said and isinstance(connection, ssl.SSLSocket):
            self.heard.append(said)
        return said

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="hostile TLS peer", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            left = list(self._open)
        self._listener.close()
        for connection in left:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it listens no more
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(connection,), name="hostile TLS connection", daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            self._open.add(connection)
            ended = self._ended
        with contextlib.suppress(OSError), connection:  # the client hung up, or refused
            if not ended:
                self._serve(self, connection)
        self._open.discard(connection)


@functools.cache
def authority() -> CertificateAuthority:
    """The one that clients trust."""
    return CertificateAuthority()


def trusting() -> Mapping[str, Any]:
    """The options of clients that trust `authority`."""
    return {"security_protocol": "SASL_SSL", "ssl_truststore_certificates": authority().pem}


# ---- what a peer does -----------------------------------------------------------------------------------------------


def _until_it_hangs_up(peer: TlsPeer, connection: socket.socket) -> None:
    while peer.hear(connection):
        pass


def says(text: bytes) -> Serve:
    """Answer the ClientHello with these bytes, then be silent."""
    def serve(peer: TlsPeer, connection: socket.socket) -> None:
        peer.hear(connection)
        connection.sendall(text)
        _until_it_hangs_up(peer, connection)
    return serve


def says_without_end(texts: Callable[[], Iterator[bytes]]) -> Serve:
    """Answer the ClientHello with these bytes, as fast as the client takes them."""
    def serve(peer: TlsPeer, connection: socket.socket) -> None:
        peer.hear(connection)
        for text in texts():
            connection.sendall(text)
    return serve


def shows(make: Callable[[], ssl.SSLContext]) -> Serve:
    """Show a certificate, and listen behind it."""
    def serve(peer: TlsPeer, connection: socket.socket) -> None:
        peer.over_tls(_until_it_hangs_up, connection, make())
    return serve


def behind_tls(serve_inside: Serve) -> Serve:
    """Prove itself, then do that."""
    def serve(peer: TlsPeer, connection: socket.socket) -> None:
        peer.over_tls(serve_inside, connection, _honest())
    return serve


def hangs_up(*, reset: bool) -> Serve:
    """End the connection after the ClientHello."""
    def serve(peer: TlsPeer, connection: socket.socket) -> None:
        peer.hear(connection)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    return serve


def drips(peer: TlsPeer, connection: socket.socket) -> None:
    """An honest first flight, one byte at a time, with the last byte missing."""
    hello = peer.hear(connection)
    theirs, ours = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs.write(hello)
    with contextlib.suppress(ssl.SSLWantReadError):
        _honest().wrap_bio(theirs, ours, server_side=True).do_handshake()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in ours.read()[:-1]:
        connection.sendall(bytes([byte]))
    _until_it_hangs_up(peer, connection)


# ---- certificates ---------------------------------------------------------------------------------------------------


def _showing(certificate: Certificate) -> ssl.SSLContext:
    return authority().server_context(certificate=certificate)


@functools.cache
def _honest() -> ssl.SSLContext:
    return _showing(authority().issue("127.0.0.1"))


@functools.cache
def of_another_host() -> ssl.SSLContext:
    """For a host with another name."""
    return _showing(authority().issue("broker.example"))


@functools.cache
def expired() -> ssl.SSLContext:
    """Valid some years ago."""
    return _showing(authority().issue("127.0.0.1", valid=EXPIRED))


@functools.cache
def of_another_authority() -> ssl.SSLContext:
    """Signed by an authority of the same name that the client does not trust."""
    return _showing(CertificateAuthority().issue("127.0.0.1"))


@functools.cache
def with_a_long_chain() -> ssl.SSLContext:
    """Signed by the last of thirty authorities, each signed by the one before."""
    above = authority()
    chain = []
    for number in range(30):
        above = CertificateAuthority(f"authority {number}", signed_by=above)
        chain.append(above.certificate)
    last = above.issue("127.0.0.1")
    return _showing(Certificate(last.certificate, last.private_key, chain[::-1]))


# ---- records of TLS -------------------------------------------------------------------------------------------------


def record(kind: int, body: bytes, size: int | None = None) -> bytes:
    """A record of TLS 1.2; *size* is the length that it claims."""
    return bytes([kind, 3, 3]) + (len(body) if size is None else size).to_bytes(2, "big") + body


def endless_handshake() -> Iterator[bytes]:
    """A handshake message that claims 16 MiB, and whose bytes come."""
    yield record(HANDSHAKE, bytes([CERTIFICATE]) + b"\xff\xff\xff" + bytes(1000))
    while True:
        yield record(HANDSHAKE, bytes(LONGEST_RECORD))


def endless_warnings() -> Iterator[bytes]:
    """Alerts that end nothing: user_canceled."""
    while True:
        yield record(ALERT, bytes([1, 90])) * 1000


def endless_empty_records() -> Iterator[bytes]:
    """Handshake records with nothing in them."""
    while True:
        yield record(HANDSHAKE, b"") * 1000


def noise_without_end() -> Iterator[bytes]:
    """Frames of Kafka that claim to be as long as an int32 can say."""
    while True:
        yield b"\x7f\xff\xff\xff" * 4096
