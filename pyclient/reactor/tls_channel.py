# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""TLS over a plain channel: OpenSSL encrypts between two buffers in memory, and the socket takes and gives what is
encrypted.
"""
from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pyclient.codec.memory import bytes_at
from pyclient.reactor.channels import NOTHING, Buffer, Channel, OnEvents, PlainChannel, next_event
from pyclient.reactor.pollers import READABLE, WRITABLE
from pyclient.reactor.reactor import Reactor

CHUNK: Final = 128 * 1024
"""Bytes that are encrypted at a time: in less than 0.1 ms, and still in the processor's cache when they are copied."""
FEW: Final = 4096
"""Bytes that are copied as quickly as they are looked at."""
RECEIVED: Final = 256 * 1024
"""Bytes of a read of the socket at most."""


class Tls(NamedTuple):
    """The parameters of a TLS connection."""

    context: ssl.SSLContext
    host: str
    """The name that the broker's certificate must contain: the one in its address, or its canonical name."""
    timeout: float
    """Seconds that the handshake may take."""
    connected: Callable[[], None]
    """Called when the socket is connected, before the handshake."""


def tls_name(host: str) -> str:
    """The name as in certificates: without a trailing dot or an IPv6 zone."""
    return host.rstrip(".").partition("%")[0]


class TlsChannel(Channel):
    """As `Channel`. Call `shake_hands` before anything else."""

    def __init__(self, reactor: Reactor, plain: PlainChannel, tls: Tls) -> None:
        Channel.__init__(self)
        self.secured = True
        self._reactor = reactor
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.context.wrap_bio(self._incoming, self._outgoing, server_hostname=tls_name(tls.host))
        self._session: Any = getattr(self._tls, "_sslobj", self._tls)  # without a call of Python around each of its own
        self._received = bytearray(4096)
        self._encrypted: list[Buffer] = []
        self._ended = False

    async def shake_hands(self) -> None:
        """Agree on keys. Raises OSError, of which ssl.SSLError is a subclass."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._exchange()
            except BaseException:
                with contextlib.suppress(OSError):  # the peer may have closed it already
                    self._flush()  # the alert that says why
                raise
            else:
                self._flush()
                return

    async def _exchange(self) -> None:
        """Write what is to be written, and wait for bytes."""
        while not self._flush():
            await next_event(self._plain, self._reactor, WRITABLE)
        while not self._receive():
            if self._ended:
                return
            await next_event(self._plain, self._reactor, READABLE)

    def peer_certificate(self) -> dict[str, Any]:
        """As `Channel.peer_certificate`."""
        return self._tls.getpeercert() or {}

    def attach(self, on_events: OnEvents) -> None:
        """As `Channel.attach`."""
        self._plain.attach(on_events)

    def read_into(self, buffer: bytearray, start: int) -> int:
        """As `Channel.read_into`."""
        if not start:
            return self._read(len(buffer), buffer)
        with memoryview(buffer) as whole, whole[start:] as room:
            return self._read(len(room), room)

    def _read(self, size: int, into: bytearray | memoryview) -> int:
        while True:
            if self._incoming.pending or self._session.pending() or self._ended:
                try:
                    return self._session.read(size, into)  # type: ignore[no-any-return]
                except ssl.SSLWantReadError:
                    self._flush()  # an answer to a message of TLS itself
            if not self._receive() and not self._ended:
                return NOTHING

    def _receive(self) -> bool:
        """Take what has come from the socket; whether there was anything."""
        size = self._plain.read_into(self._received, 0)
        if size < 0:
            return False
        if not size:
            self._ended = True
            self._incoming.write_eof()
            return False
        if size <= FEW:
            self._incoming.write(bytes_at(self._received, 0, size))
        else:
            with memoryview(self._received) as received:
                self._incoming.write(received[:size])
        if size == len(self._received) and size < RECEIVED:
            self._received = bytearray(4 * size)
        return True

    def write(self, pieces: list[Buffer]) -> bool:
        """As `Channel.write`."""
        while self._flush():
            if not pieces:
                return True
            chunk = _take_chunk(pieces)
            taken = self._session.write(chunk)
            if taken < len(chunk):
                pieces.insert(0, memoryview(chunk)[taken:])
        return False

    def _flush(self) -> bool:
        """Whether the socket has taken all that is encrypted."""
        if self._outgoing.pending:
            self._encrypted.append(self._outgoing.read())
        if self._encrypted:
            self._plain.write(self._encrypted)
        self.unwritten = bool(self._encrypted)
        return not self.unwritten

    def set_low_water(self, size: int) -> None:
        """As `Channel.set_low_water`; of encrypted bytes."""
        self._plain.set_low_water(size)

    def close(self) -> None:
        """As `Channel.close`. The peer is notified if the socket takes that at once."""
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        if self._encrypted:
            self._plain.close()
        else:
            self._plain.close_after(self._outgoing.read())

    def abort(self) -> None:
        """As `Channel.abort`."""
        self._plain.abort()


def _take_chunk(pieces: list[Buffer]) -> Buffer:
    """Remove the next chunk from *pieces*; small ones are joined, because each write becomes at least a TLS record.

    A view, even of joined pieces: it may be a login, and dumps of local variables show bytes but no view's.
    """
    size = whole = 0
    while whole < len(pieces) and size + len(pieces[whole]) <= CHUNK:
        size += len(pieces[whole])
        whole += 1
    taken = pieces[:whole]
    del pieces[:whole]
    if pieces and size < CHUNK:
        first = memoryview(pieces[0])
        taken.append(first[:CHUNK - size])
        pieces[0] = first[CHUNK - size:]
    return memoryview(taken[0] if len(taken) == 1 else b"".join(taken))
