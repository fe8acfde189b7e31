"""One SASL authentication of a connection: before it is ready, or again before its session ends (KIP-368).

Runs the exchange of `pyclient.core.sasl` on the connection. Rule M11: a re-authentication is alone on its connection.
"""
from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from pyclient.core.connection import Event, State
from pyclient.core.handshake import HandshakeRequest
from pyclient.core.sasl import Wait, Work
from pyclient.errors import DisconnectError, KafkaError, ResponseTimeoutError
from pyclient.net.sasl_login import SaslLogin
from pyclient.reactor.tasks import Timeout, sleep

if TYPE_CHECKING:
    from pyclient.net.connection import Connection

T = TypeVar("T")
Step = TypeVar("Step")


class Authentication:
    """Authenticates *connection* once.

    *timeout* is in seconds; waiting for other requests' responses does not count.
    """

    def __init__(self, connection: Connection, login: SaslLogin, timeout: float) -> None:
        self._connection = connection
        self._reactor = connection.reactor
        self._login = login
        self._timeout = timeout
        self._idle_since = 0.0  # re-authenticating does not make an idle connection used

    async def run(self) -> None:
        """Log in; afterwards the connection is ready and its session has a lifetime.

        Raises:
            KafkaError: it failed. A ready connection stays ready if nothing was requested yet; otherwise it is closed.
        """
        connection = self._connection
        connection.session.clear_renewal()
        exchange = self._login.exchange(connection.versions, peer=connection.label, again=connection.state is State.READY)
        try:
            async with Timeout(self._reactor, self._timeout) as limit:
                lifetime = await run_exchange(exchange, functools.partial(self._step, limit))
        except Exception as error:  # noqa: BLE001 callers handle KafkaErrors only
            failure = self._failure(error)
            self._failed(failure)
            raise failure from (None if failure is error else error)
        except BaseException:
            self._failed(DisconnectError(f"{connection.label}: the login was cancelled"))
            raise
        self._succeeded(lifetime)

    async def _step(self, limit: Timeout, step: HandshakeRequest | Work | Wait) -> Any:
        match step:
            case Work(work):
                return await self._login.in_worker(work)
            case Wait(awaitable):
                return await self._login.awaited(awaitable)
            case HandshakeRequest():
                if self._connection.state is State.READY:
                    await self._reserve_connection(limit)
                else:
                    await self._wait_while_muted()
                return await self._connection.request(step, self._timeout)

    async def _reserve_connection(self, limit: Timeout) -> None:
        """M11: stop other requests and wait for their responses, which may take up to their own timeouts."""
        connection = self._connection
        connection.advance(Event.SESSION_ENDING)
        limit.reschedule(None)
        await connection.drained()
        self._idle_since = connection.idle_since
        await self._wait_while_muted()
        limit.reschedule(self._reactor.clock() + self._timeout)

    async def _wait_while_muted(self) -> None:
        """M09: as long as the broker throttles this connection, perhaps in its ApiVersions response."""
        if (remaining := self._connection.throttled_for()) > 0:
            await sleep(self._reactor, remaining)

    def _succeeded(self, lifetime: float | None) -> None:
        connection = self._connection
        again = connection.state is State.REAUTHENTICATING
        if not again and connection.state is not State.AUTHENTICATING:
            raise DisconnectError(f"{connection.label}: the connection was closed during the login")
        connection.authenticated(lifetime, self._login.random, idle_since=self._idle_since if again else None)

    def _failure(self, error: Exception) -> KafkaError:
        label = self._connection.label
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, TimeoutError):
            return ResponseTimeoutError(f"{label}: the login did not end within {self._timeout:.1f} s")
        return DisconnectError(f"{label}: the login raised {type(error).__name__}")

    def _failed(self, error: KafkaError) -> None:
        """If nothing was requested yet, the session continues and renewal is tried again before its end."""
        connection = self._connection
        if connection.state in (State.AUTHENTICATING, State.REAUTHENTICATING):
            connection.close(error)
        elif connection.state is State.READY and not connection.renewal_failed():
            connection.retire()


async def run_exchange(exchange: Generator[Step, Any, T], do: Callable[[Step], Awaitable[Any]]) -> T:
    """Await *do* for each step of the exchange and send the result in, or throw the failure in, until it returns."""
    resume: Callable[[], Step] = functools.partial(next, exchange)
    try:
        while True:
            try:
                step = resume()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                value = await do(step)
            except Exception as error:  # noqa: BLE001 the exchange decides what a failure means
                resume = functools.partial(exchange.throw, error)
            else:
                resume = functools.partial(exchange.send, value)
    finally:
        exchange.close()
