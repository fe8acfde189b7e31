"""One attempt to connect to a node: resolve its name, try its addresses in parallel, do TLS, ApiVersions and login.

Knows neither nodes nor back-offs. Keeps how far each address got, for errors that say why there is no connection.
"""
from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pyclient.codec.apis import SPOKEN, Api
from pyclient._version import __version__
from pyclient.config.addresses import Address
from pyclient.core.connection import STAGGER, Event, State
from pyclient.core.handshake import ClientInfo, VersionZeroNeededError
from pyclient.errors import AuthenticationError, DisconnectError, KafkaError, ResponseTimeoutError
from pyclient.net.connection import Connection
from pyclient.net.happy_eyeballs import FAILURES, race
from pyclient.net.security import UNPROTECTED, Security
from pyclient.net.tls import without_host_check
from pyclient.net.tls_errors import (
    WRONG_HOST, certificate_names, closed_without_reason, handshake_failed, plaintext_listener, tls_listener,
)
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Task, Timeout
from pyclient.reactor.tls_channel import Tls
from pyclient.runtime.network import Endpoint, Network, SocketOptions, os_reason

_log = logging.getLogger(__name__)
CLIENT_INFO: Final = ClientInfo("pyclient", __version__)
NEWEST: Final = SPOKEN[Api.API_VERSIONS].high
PROBE_S: Final = 1.0
"""Seconds that a listener has to answer a probe."""


class ConnectAttempt:
    """``start`` makes a task of a coroutine; ``discard`` closes a connection that will not be used.

    *timeout* limits all of it, *answer_timeout* the time from a connected socket to the answer to ApiVersions.
    *unverified*: no broker has accepted the client yet, so ``security_protocol`` may be wrong. *check_login*: the
    listener may require a login. *canonical*: TLS and logins use the canonical name of each address in place of the
    host (``client_dns_lookup``).
    """

    def __init__(self, reactor: Reactor, address: Address, network: Network, sockets: SocketOptions, *, first_address: int, timeout: float, answer_timeout: float = float("inf"),
                 make_connection: Callable[[Endpoint], Connection], start: Callable[[Coroutine[Any, Any, Connection]], Task[Connection]],
                 discard: Callable[[Connection], None], security: Security = UNPROTECTED, unverified: bool = False,
                 check_login: bool = False, canonical: bool = False) -> None:
        self._reactor = reactor
        self._address = address
        self._canonical = canonical
        self._names: dict[Endpoint, str] = {}
        self._network = network
        self._sockets = sockets
        self._first_address = first_address
        self._timeout = timeout
        self._answer_timeout = min(timeout, answer_timeout)
        self.reached = False
        """Whether some address accepted the connection."""
        self._make_connection = make_connection
        self._start = start
        self._discard = discard
        self._tls, self._sasl = security.tls, security.sasl
        self._unverified = unverified
        self._check_login = check_login and security.sasl is None
        self._label = str(address)
        self._stages: dict[Endpoint, str] = {}
        self._refused: AuthenticationError | None = None

    @property
    def stage(self) -> str:
        """How far each address got."""
        return "; ".join(self._stages.values()) or f"the name {self._address.host!r} was not resolved"

    async def connect(self) -> Connection:
        """A ready connection. Raises KafkaError: why there is none."""
        try:
            async with Timeout(self._reactor, self._timeout):
                return await self._first_of(await self._resolve())
        except TimeoutError as late:
            if isinstance(late, KafkaError):
                raise
            raise ResponseTimeoutError(f"{self.stage} within {self._timeout:.1f} s") from None

    async def _resolve(self) -> list[Endpoint]:
        """In the resolver's order, rotated by one per attempt: the time may not suffice to try all addresses."""
        host, port = self._address
        try:
            endpoints = await self._network.resolve(self._reactor, host, port)
        except (OSError, UnicodeError) as error:
            raise DisconnectError(f"the name {host!r} cannot be resolved: {os_reason(error)}") from error
        if not endpoints:
            raise DisconnectError(f"the name {host!r} has no address")
        first = self._first_address % len(endpoints)
        return endpoints[first:] + endpoints[:first]

    def _host(self, endpoint: Endpoint) -> str:
        """The name by which the broker at an address is known to TLS and logins."""
        return self._names.get(endpoint, self._address.host)

    async def _first_of(self, endpoints: list[Endpoint]) -> Connection:
        attempts = [functools.partial(self._try, endpoint) for endpoint in endpoints]
        try:
            return await race(self._reactor, attempts, stagger=STAGGER, discard=self._discard)
        except FAILURES as failure:
            if isinstance(failure, KafkaError) and len(endpoints) == 1:
                raise
            if self._refused is not None:  # more useful than another address that cannot be reached
                raise self._refused from self._refused.__cause__
            raise DisconnectError(self.stage) from failure

    def _try(self, endpoint: Endpoint) -> Task[Connection]:
        return self._start(self._reach(endpoint))

    async def _reach(self, endpoint: Endpoint) -> Connection:
        try:
            if self._canonical:
                self._note(endpoint, "no answer to the reverse look-up of its name")
                self._names[endpoint] = await self._network.canonical_name(self._reactor, endpoint)
            return await self._negotiate(endpoint)
        except FAILURES as failure:
            self._note(endpoint, str(failure) if isinstance(failure, KafkaError) else os_reason(failure))
            if isinstance(failure, AuthenticationError):
                self._refused = failure
            raise

    async def _negotiate(self, endpoint: Endpoint) -> Connection:
        try:
            return await self._open_connection(endpoint, NEWEST)
        except VersionZeroNeededError:
            pass
        try:
            return await self._open_connection(endpoint, 0)  # at once, on a new connection (M08)
        except DisconnectError as lost:
            if self._unverified and self._tls is None and await self._answers_with_tls(endpoint):
                raise tls_listener(self._label) from lost
            raise

    async def _open_connection(self, endpoint: Endpoint, newest: int) -> Connection:
        connection = self._make_connection(endpoint)
        connection.known_as = self._names.get(endpoint)
        self._label = connection.label
        self._note(endpoint, "not connected")
        try:
            await self._open_socket(endpoint, connection)
            self.reached = True
            await self._introduce(endpoint, connection, newest)
            if self._sasl is not None:
                self._note(endpoint, "connected, no answer to the login")
                await connection.authenticate(self._sasl.login(self._host(endpoint)), self._timeout)
        except BaseException:
            if connection.state is not State.CONNECTING:
                self._discard(connection)
            raise
        return connection

    async def _introduce(self, endpoint: Endpoint, connection: Connection, newest: int) -> None:
        """A broker that hangs accepts connections: its silence must not use up the time that is for connecting."""
        stage = f"{'TLS handshake done' if connection.secured else 'connected'}, no answer to ApiVersions"
        self._note(endpoint, stage)
        try:
            async with Timeout(self._reactor, self._answer_timeout):
                await connection.introduce(CLIENT_INFO, newest, self._timeout, logs_in=self._sasl is not None, check_login=self._check_login)
        except TimeoutError:
            raise ResponseTimeoutError(f"{stage} within {self._answer_timeout:.1f} s") from None

    async def _open_socket(self, endpoint: Endpoint, connection: Connection) -> None:
        if self._tls is None:
            connection.attach(await self._network.open(self._reactor, endpoint, self._sockets))
            return
        context = await self._tls.current()
        connection.has_identity = self._tls.has_identity

        limit = Timeout(self._reactor, None)
        stage = "connected, no answer to the TLS handshake"

        def connected() -> None:
            connection.advance(Event.OPENED_FOR_TLS)
            self.reached = True
            self._note(endpoint, stage)
            limit.reschedule(self._reactor.clock() + self._answer_timeout)

        try:
            async with limit:
                tls = Tls(context, self._host(endpoint), self._timeout, connected)
                connection.attach(await self._network.open(self._reactor, endpoint, self._sockets, tls))
        except (OSError, ValueError) as error:
            if connection.state is State.CONNECTING:
                raise
            if limit.expired():
                raise ResponseTimeoutError(f"{stage} within {self._answer_timeout:.1f} s") from None
            raise await self._handshake_failed(error, connection, endpoint, context) from error

    async def _handshake_failed(self, error: OSError | ValueError, connection: Connection, endpoint: Endpoint, context: ssl.SSLContext) -> KafkaError:
        """The error for users; if the cause is unclear, the listener is probed with a second connection."""
        names = await self._certificate_names(endpoint, context) if getattr(error, "verify_code", 0) in WRONG_HOST else ()
        failure = handshake_failed(error, connection.label, host=self._host(endpoint), names=names, has_identity=connection.has_identity)
        if (self._unverified and isinstance(failure, DisconnectError) and closed_without_reason(error)
                and await self._answers_without_tls(endpoint)):
            return plaintext_listener(connection.label, error)
        return failure

    async def _answers_without_tls(self, endpoint: Endpoint) -> bool:
        """Whether the listener has no TLS: it closes the connection during the handshake, as a stopping broker does."""
        connection = self._make_connection(endpoint)
        try:
            async with Timeout(self._reactor, min(PROBE_S, self._timeout)):
                connection.attach(await self._network.open(self._reactor, endpoint, self._sockets))
                await connection.introduce(CLIENT_INFO, NEWEST, self._timeout)
        except (*FAILURES, VersionZeroNeededError, TimeoutError) as failure:
            _log.debug("%s does not answer without TLS either: %s", connection.label, failure)
            return False
        finally:
            if connection.state is not State.CONNECTING:
                self._discard(connection)
        return True

    async def _answers_with_tls(self, endpoint: Endpoint) -> bool:
        """Whether the listener has TLS.

        Brokers send an alert to a plaintext client; proxies may close the connection.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent after the handshake
        tls = Tls(context, self._host(endpoint), min(PROBE_S, self._timeout), _ignore)
        try:
            async with Timeout(self._reactor, tls.timeout):
                channel = await self._network.open(self._reactor, endpoint, self._sockets, tls)
        except (OSError, ValueError, TimeoutError) as failure:
            _log.debug("%s does not answer with TLS either: %s", endpoint, failure)
            return False
        channel.close()
        return True

    async def _certificate_names(self, endpoint: Endpoint, context: ssl.SSLContext) -> list[str]:
        """The host names in the broker's certificate.

        OpenSSL does not show a refused one, so connect again without the host check.
        """
        unchecked = without_host_check(context)
        try:
            channel = await self._network.open(
                self._reactor, endpoint, self._sockets, Tls(unchecked, self._host(endpoint), self._timeout, _ignore))
        except (OSError, ValueError) as error:
            _log.debug("the names in the certificate of %s cannot be read: %s", endpoint, error)
            return []
        try:
            return certificate_names(channel.peer_certificate())
        finally:
            channel.close()

    def _note(self, endpoint: Endpoint, stage: str) -> None:
        self._stages[endpoint] = stage if str(endpoint) == str(self._address) else f"{endpoint}: {stage}"


def _ignore() -> None:
    """A probe needs no callback."""
