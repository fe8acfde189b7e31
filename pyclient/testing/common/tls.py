"""TLS over any transport, for modelled brokers: asyncio's own, but a failed handshake is answered as brokers do."""
from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, Final

FAREWELL_S: Final = 1.0
"""How long the end of a connection waits for the peer's last word."""
HANDSHAKE_S: Final = 3600.0
"""Who does not end the handshake is for the client's time limits, or the end of the cluster."""
UNBOUNDED: Final = 1 << 40


class BrokerTls(SSLProtocol):
    """The broker's side. asyncio closes a rejected connection at once; brokers first send an alert with the reason."""

    _outgoing: ssl.MemoryBIO

    def __init__(self, app: asyncio.BaseProtocol, context: ssl.SSLContext, waiter: asyncio.Future[Any]) -> None:
        super().__init__(
            asyncio.get_running_loop(), app, context, waiter, server_side=True, ssl_handshake_timeout=HANDSHAKE_S, ssl_shutdown_timeout=FAREWELL_S)  # type: ignore[arg-type] # any protocol

    def _fatal_error(self, exc: BaseException, message: str = "Fatal error on transport") -> None:
        transport: Any = self._transport
        alert = self._outgoing.read() if isinstance(exc, ssl.SSLError) else b""
        if alert and transport is not None:
            transport.write(alert)
            transport.close()
        else:
            super()._fatal_error(exc, message)


class ClientTls(SSLProtocol):
    """The client's side, for transports that cannot stop to read."""

    def __init__(self, app: asyncio.BaseProtocol, context: ssl.SSLContext, waiter: asyncio.Future[Any], host: str, timeout: float) -> None:
        super().__init__(
            asyncio.get_running_loop(), app, context, waiter, server_hostname=host, ssl_handshake_timeout=timeout, ssl_shutdown_timeout=FAREWELL_S)  # type: ignore[arg-type] # any protocol
        self.transport.set_read_buffer_limits(UNBOUNDED)
        self.app = app
        """Who hears what the broker says."""

    @property
    def transport(self) -> Any:
        """What the client writes to."""
        made: Any = self
        return made._get_app_transport()
