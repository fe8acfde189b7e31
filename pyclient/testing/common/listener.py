"""A listening socket on a loop that loses no accepted connection when it is closed."""
from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from pyclient.testing.common.tls import BrokerTls

_log = logging.getLogger(__name__)
PAUSE_S: Final = 0.1
"""Seconds of pause after a system error (no descriptors left): the pending connection is reported again at once."""


class Listener:
    """Accepts connections until `close`, which closes *sock*. *protocol* makes a protocol for each, with *tls*
    after the handshake. Used on the loop's thread only; the loop must be a selector loop.

    It replaces asyncio's own server, which loses a connection that it accepts while it is closed: the socket stays
    open, and the peer waits (CPython 3.11 and 3.12). Here the connection's protocol is always notified, and decides.
    """

    def __init__(self, sock: socket.socket, protocol: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext | None = None) -> None:
        self._sock = sock
        self._protocol = protocol
        self._tls = tls
        self._shaking: set[asyncio.Future[None]] = set()
        self._ending = False
        self._loop = asyncio.get_running_loop()
        self._entering: set[asyncio.Task[Any]] = set()
        sock.setblocking(False)
        self._watch()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._sock.getsockname()[1])

    def close(self) -> None:
        """Stop accepting. Calling again does nothing."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()

    async def all_entered(self) -> None:
        """Return when every accepted connection has its protocol or is gone. Unfinished TLS handshakes are cut."""
        self._ending = True
        for shaken in self._shaking:
            shaken.cancel()
        await asyncio.gather(*self._entering, return_exceptions=True)

    def _watch(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        try:
            accepted, _ = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # the client has disconnected already
        except OSError as error:
            _log.warning("accepting a connection failed, trying again in %.1f s: %s", PAUSE_S, error)
            self._loop.remove_reader(self._sock)
            self._loop.call_later(PAUSE_S, self._watch)
            return
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # the client is gone, as its protocol will notice
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as brokers; asyncio does it for its own sockets only
        task = self._loop.create_task(self._enter(accepted))
        self._entering.add(task)
        task.add_done_callback(self._entered)

    async def _enter(self, accepted: socket.socket) -> None:
        if self._tls is None:
            await self._loop.connect_accepted_socket(self._protocol, accepted)
            return
        shaken: asyncio.Future[None] = self._loop.create_future()
        wrapped = BrokerTls(self._protocol(), self._tls, shaken)
        transport, _ = await self._loop.connect_accepted_socket(lambda: wrapped, accepted)
        self._shaking.add(shaken)
        try:
            if self._ending:
                shaken.cancel()
            await shaken
        except BaseException as error:
            if not isinstance(error, ssl.SSLError):  # a TLS alert was sent; the connection is closed
                transport.abort()
            raise
        finally:
            self._shaking.discard(shaken)

    def _entered(self, task: asyncio.Task[Any]) -> None:
        self._entering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("a client did not get in: %r", error)
