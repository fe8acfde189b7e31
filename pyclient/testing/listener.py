"""A listening socket on a loop, whose end leaves nothing behind."""
from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

_log = logging.getLogger(__name__)
PAUSE_S: Final = 0.1
"""Seconds of pause after an error of the system (no descriptors left): the connection is still there, and would be reported at once again."""

FAREWELL_S: Final = 1.0
"""How long the end of a connection with TLS waits for the peer's last word."""


class Listener:
    """Accepts connections until `close`, which closes *sock*; *protocol* makes one for each, when TLS is done if there is a *tls*. Used on the loop alone, which must be a selector's.

    In place of asyncio's own server, which forgets a connection that it accepts while it is closed: its socket stays open, and its
    peer waits (CPython 3.11 and 3.12). Here a connection's protocol always learns of it, and decides.
    """

    def __init__(self, sock: socket.socket, protocol: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext | None = None) -> None:
        self._sock = sock
        self._protocol = protocol
        self._tls: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_shutdown_timeout": FAREWELL_S}
        self._loop = asyncio.get_running_loop()
        self._entering: set[asyncio.Task[Any]] = set()
        sock.setblocking(False)
        self._watch()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._sock.getsockname()[1])

    def close(self) -> None:
        """Accept no more. Calling again does nothing."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()

    async def all_entered(self) -> None:
        """Return when every accepted connection is its protocol's, or gone. Who is still busy with TLS is hung up on."""
        if self._tls:
            for task in self._entering:
                task.cancel()
        await asyncio.gather(*self._entering, return_exceptions=True)

    def _watch(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        try:
            accepted, _ = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # whoever it was has gone again
        except OSError as error:
            _log.warning("accepting a connection failed, trying again in %.1f s: %s", PAUSE_S, error)
            self._loop.remove_reader(self._sock)
            self._loop.call_later(PAUSE_S, self._watch)
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, accepted, **self._tls))
        self._entering.add(task)
        task.add_done_callback(self._entered)

    def _entered(self, task: asyncio.Task[Any]) -> None:
        self._entering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("a client did not get in: %r", error)
