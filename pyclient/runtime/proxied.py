"""Connections through a SOCKS or HTTP proxy (``proxy_url``): the proxy's part is done by the package python-socks."""
from __future__ import annotations

import contextlib
import socket
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyclient.errors import ConfigurationError
from pyclient.redaction import Secret, in_one_line, public_url, without
from pyclient.reactor.channels import PlainChannel
from pyclient.reactor.reactor import Reactor
from pyclient.runtime.network import Endpoint, SocketNetwork, SocketOptions, in_a_thread, tune

RESOLVED_BY_PROXY: Final = ("socks5h", "http")
"""Schemes by which the proxy resolves brokers' names; by the others this machine does, as curl has it."""
LIMIT_S: Final = 120.0
"""For the proxy's part. The attempt to connect has a limit of its own; this one ends the thread that waits."""


class ProxiedNetwork(SocketNetwork):
    """Sockets that a proxy connects. Raises ConfigurationError when python-socks is not installed."""

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self._kinds = _proxy_kinds()
        self._scheme, self._host, self._port = parts.scheme, parts.hostname or "", parts.port or 0
        self._user = None if parts.username is None else unquote(parts.username)
        self._password = None if parts.password is None else Secret(unquote(parts.password))
        self._shown = public_url(url)

    async def resolve(self, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
        """The addresses of *host*, or its name where the proxy resolves names."""
        if self._scheme in RESOLVED_BY_PROXY:
            return [Endpoint(socket.AF_UNSPEC, (host, port))]
        return await super().resolve(reactor, host, port)

    async def canonical_name(self, reactor: Reactor, endpoint: Endpoint) -> str:
        """The name itself where the proxy resolves names."""
        return str(endpoint.address[0]) if endpoint.family == socket.AF_UNSPEC else await super().canonical_name(reactor, endpoint)

    async def connected(self, reactor: Reactor, endpoint: Endpoint, options: SocketOptions) -> PlainChannel:
        """A socket that the proxy has connected to *endpoint*. Raises OSError."""
        try:
            addresses = await super().resolve(reactor, self._host, self._port)
        except OSError as error:
            raise ConnectionError(f"the name of the proxy {self._shown} cannot be resolved: {error.strerror or error}") from error
        for address in addresses[:-1]:
            with contextlib.suppress(ConnectionError):
                return await self._ask(reactor, address, endpoint, options)
        return await self._ask(reactor, addresses[-1], endpoint, options)

    async def _ask(self, reactor: Reactor, proxy: Endpoint, endpoint: Endpoint, options: SocketOptions) -> PlainChannel:
        """Ask the proxy for a connection, in a thread: a caller that is cancelled does not wait for its end."""
        asked = _Asked(self._kinds.make(self._scheme, proxy, self._user, self._password), endpoint)
        try:
            sock = await in_a_thread(reactor, asked.connect)
        except (OSError, self._kinds.errors, ValueError) as error:
            said = without([self._password or ""], in_one_line(str(error)))
            raise ConnectionError(f"the proxy {self._shown} (proxy_url) does not connect to {endpoint}: {said or type(error).__name__}") from error
        except BaseException:
            asked.abandon()
            raise
        self.keep(sock)
        try:
            sock.setblocking(False)
            tune(sock, options)
            return PlainChannel(reactor, sock)
        except BaseException:
            sock.close()
            raise


class _Asked:
    """A connection that a proxy is asked for."""

    def __init__(self, proxy: Any, endpoint: Endpoint) -> None:
        self._proxy = proxy
        self._endpoint = endpoint
        self._socket: socket.socket | None = None
        self._abandoned = False

    def connect(self) -> socket.socket:
        """Blocks."""
        sock: socket.socket = self._proxy.connect(*self._endpoint.address[:2], timeout=LIMIT_S)
        self._socket = sock
        if self._abandoned:
            sock.close()
        return sock

    def abandon(self) -> None:
        """Its caller waits no longer."""
        self._abandoned = True
        if self._socket is not None:
            self._socket.close()


class _ProxyKinds:
    """What is used of python-socks."""

    def __init__(self, package: Any, proxy: Any) -> None:
        kinds = package.ProxyType
        self._types = {"socks4": kinds.SOCKS4, "socks5": kinds.SOCKS5, "socks5h": kinds.SOCKS5, "http": kinds.HTTP}
        self._proxy = proxy
        self.errors: type[Exception] = package.ProxyError

    def make(self, scheme: str, proxy: Endpoint, user: str | None, password: str | None) -> Any:
        return self._proxy(self._types[scheme], *proxy.address[:2], user, password, rdns=True)


def _proxy_kinds() -> _ProxyKinds:
    try:
        import python_socks
        from python_socks.sync import Proxy
    except ImportError as error:
        raise ConfigurationError(
            f"proxy_url needs the package python-socks ({error}); install it with pip install 'pyclient-kafka[proxy]'", option="proxy_url") from error
    return _ProxyKinds(python_socks, Proxy)
