"""One try to connect to a host: its name is resolved, its addresses race, the winner's versions are known.

Knows neither nodes nor back-offs; how far it got is kept for whoever asks why there is no connection.
"""
from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pyclient.codec.apis import SPOKEN, Api
from pyclient._version import __version__
from pyclient.config.addresses import Address
from pyclient.core.connection import STAGGER, Event, State
from pyclient.core.handshake import ClientInfo, TryVersionZero
from pyclient.errors import AuthenticationError, DisconnectError, KafkaError, ResponseTimeoutError
from pyclient.net.connection import Connection
from pyclient.runtime.transport import Endpoint, Network, SocketOptions, Tls, reason
from pyclient.net.happy_eyeballs import FAILURES, race
from pyclient.net.security import UNPROTECTED, Security
from pyclient.net.tls import without_names
from pyclient.net.tls_errors import WRONG_HOST, alert_in_plaintext, handshake_failed, hung_up, kafka_in_plaintext, names_in

CLIENT: Final = ClientInfo("pyclient", __version__)
_log = logging.getLogger(__name__)
NEWEST: Final = SPOKEN[Api.API_VERSIONS].high
ASKED_S: Final = 1.0
"""Seconds that a listener has to answer without TLS."""


class ConnectAttempt:
    """``begin`` makes a task of a coroutine; ``give_up`` ends a link that will not be used. *strangers*: no broker has accepted the client
    yet, so a peer that hangs up may be no such listener. *doubts*: this one has hung up on the first thing that it was asked.
    """

    def __init__(self, address: Address, network: Network, sockets: SocketOptions, *, turn: int, timeout: float,
                 make_link: Callable[[Endpoint], Connection], begin: Callable[[Coroutine[Any, Any, Connection]], asyncio.Task[Connection]],
                 give_up: Callable[[Connection], None], protection: Security = UNPROTECTED, strangers: bool = False, doubts: bool = False) -> None:
        self._address = address
        self._network = network
        self._sockets = sockets
        self._turn = turn
        self._timeout = timeout
        self._make_link = make_link
        self._begin = begin
        self._give_up = give_up
        self._tls, self._logins = protection.tls, protection.logins
        self._strangers = strangers
        self._doubts = doubts and protection.logins is None
        self._label = str(address)
        self._stages: dict[Endpoint, str] = {}
        self._refused: AuthenticationError | None = None

    @property
    def stage(self) -> str:
        """How far each address got."""
        return "; ".join(self._stages.values()) or f"the name {self._address.host!r} was not resolved"

    async def connect(self) -> Connection:
        """A connection that is ready.

        Raises:
            KafkaError: there is none, and why.
        """
        try:
            async with asyncio.timeout(self._timeout):
                return await self._first_of(await self._resolve())
        except TimeoutError:
            raise ResponseTimeoutError(f"{self.stage} within {self._timeout:.1f} s") from None

    async def _resolve(self) -> list[Endpoint]:
        """In the resolver's order, save that each attempt begins one further than the one before.

        Where less time is allowed than it takes to try all, each must get its turn.
        """
        host, port = self._address
        try:
            endpoints = await self._network.resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise DisconnectError(f"the name {host!r} cannot be resolved: {reason(error)}") from error
        if not endpoints:
            raise DisconnectError(f"the name {host!r} has no address")
        first = self._turn % len(endpoints)
        return endpoints[first:] + endpoints[:first]

    async def _first_of(self, endpoints: list[Endpoint]) -> Connection:
        attempts = [functools.partial(self._try, endpoint) for endpoint in endpoints]
        try:
            return await race(attempts, stagger=STAGGER, lose=self._give_up)
        except FAILURES as failure:
            if isinstance(failure, KafkaError) and len(endpoints) == 1:
                raise
            if self._refused is not None:  # what one address said of our credentials says more than that another was not there
                raise self._refused from self._refused.__cause__
            raise DisconnectError(self.stage) from failure

    def _try(self, endpoint: Endpoint) -> asyncio.Task[Connection]:
        return self._begin(self._reach(endpoint))

    async def _reach(self, endpoint: Endpoint) -> Connection:
        try:
            return await self._in_newest_or_oldest_words(endpoint)
        except FAILURES as failure:
            self._note(endpoint, str(failure) if isinstance(failure, KafkaError) else reason(failure))
            if isinstance(failure, AuthenticationError):
                self._refused = failure
            raise

    async def _in_newest_or_oldest_words(self, endpoint: Endpoint) -> Connection:
        try:
            return await self._link(endpoint, NEWEST)
        except TryVersionZero:
            pass
        try:
            return await self._link(endpoint, 0)  # at once, on a new connection (M08)
        except DisconnectError as lost:
            if self._strangers and self._tls is None and await self._answers_with_tls(endpoint):
                raise alert_in_plaintext(self._label) from lost
            raise

    async def _link(self, endpoint: Endpoint, newest: int) -> Connection:
        link = self._make_link(endpoint)
        self._label = link.label
        self._note(endpoint, "no connection")
        try:
            await self._open(endpoint, link)
            self._note(endpoint, f"{'secured by TLS' if link.secured else 'connected'}, no answer to ApiVersions")
            await link.introduce(CLIENT, newest, self._timeout, logs_in=self._logins is not None, doubts=self._doubts)
            if self._logins is not None:
                self._note(endpoint, "connected, the login was not answered")
                await link.authenticate(self._logins.login(self._address.host), self._timeout)
        except BaseException:
            if link.state is not State.CONNECTING:
                self._give_up(link)
            raise
        return link

    async def _open(self, endpoint: Endpoint, link: Connection) -> None:
        if self._tls is None:
            await self._network.open(endpoint, lambda: link, self._sockets)
            return
        context = await self._tls.current()
        link.has_identity = self._tls.has_identity

        def connected() -> None:
            link.advance(Event.OPENED_FOR_TLS)
            self._note(endpoint, "connected, the TLS handshake was not answered")

        try:
            await self._network.open(endpoint, lambda: link, self._sockets, Tls(context, self._address.host, self._timeout, connected))
        except (OSError, ValueError) as error:
            if link.state is State.CONNECTING:
                raise
            raise await self._handshake_failed(error, link, endpoint, context) from error

    async def _handshake_failed(self, error: OSError | ValueError, link: Connection, endpoint: Endpoint, context: ssl.SSLContext) -> KafkaError:
        """What it means; where the error alone does not tell, the broker is asked once more."""
        names = await self._names(endpoint, context) if getattr(error, "verify_code", 0) in WRONG_HOST else ()
        failure = handshake_failed(error, link.label, host=self._address.host, names=names, has_identity=link.has_identity)
        if self._strangers and isinstance(failure, DisconnectError) and hung_up(error) and await self._answers_without_tls(endpoint):
            return kafka_in_plaintext(link.label, error)
        return failure

    async def _answers_without_tls(self, endpoint: Endpoint) -> bool:
        """A listener without TLS hangs up on a handshake as a broker does that ends: ask it, in its own words, to tell them apart."""
        link = self._make_link(endpoint)
        try:
            async with asyncio.timeout(min(ASKED_S, self._timeout)):
                await self._network.open(endpoint, lambda: link, self._sockets)
                await link.introduce(CLIENT, NEWEST, self._timeout)
        except (*FAILURES, TryVersionZero, TimeoutError) as silence:
            _log.debug("%s does not answer without TLS either: %s", link.label, silence)
            return False
        finally:
            if link.state is not State.CONNECTING:
                self._give_up(link)
        return True

    async def _answers_with_tls(self, endpoint: Endpoint) -> bool:
        """The reverse: brokers answer who speaks without TLS by an alert, but other servers, and what stands before them, hang up."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is told to whoever it is
        tls = Tls(context, self._address.host, min(ASKED_S, self._timeout), _nothing)
        try:
            async with asyncio.timeout(tls.timeout):
                transport = await self._network.open(endpoint, asyncio.Protocol, self._sockets, tls)
        except (OSError, ValueError, TimeoutError) as silence:
            _log.debug("%s does not answer with TLS either: %s", endpoint, silence)
            return False
        transport.abort()
        return True

    async def _names(self, endpoint: Endpoint, context: ssl.SSLContext) -> list[str]:
        """For whom the broker's certificate is: OpenSSL keeps to itself one that it refuses, so ask once more, and say nothing."""
        looking = without_names(context)
        try:
            transport = await self._network.open(endpoint, asyncio.Protocol, self._sockets, Tls(looking, self._address.host, self._timeout, _nothing))
        except (OSError, ValueError) as error:
            _log.debug("%s does not show the names in its certificate: %s", endpoint, error)
            return []
        try:
            return names_in(transport.get_extra_info("peercert") or {})
        finally:
            transport.abort()

    def _note(self, endpoint: Endpoint, stage: str) -> None:
        self._stages[endpoint] = stage if str(endpoint) == str(self._address) else f"{endpoint}: {stage}"


def _nothing() -> None:
    """Nobody is interested in this stage."""
