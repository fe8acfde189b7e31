"""Opens connections and authenticates them again, each in its own task; gives up when only other options can help."""
from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from pyclient.core.connection import State
from pyclient.core.handshake import Features
from pyclient.core.manager import Use
from pyclient.errors import AuthenticationError, DisconnectError, KafkaError
from pyclient.net.connect import ConnectAttempt
from pyclient.net.connection import Connection
from pyclient.net.node_connections import ClosingConnections, NodeConnections
from pyclient.net.node_failures import NodeFailures
from pyclient.net.request_metrics import RequestMetrics
from pyclient.net.security import Security
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import CancelledError, Task, all_done
from pyclient.runtime.network import Endpoint, Network, SocketOptions

_log = logging.getLogger(__name__)
T = TypeVar("T")
MakeConnection = Callable[[NodeConnections, Use, Endpoint], Connection]
RAISED_BY_USERS: Final = (CancelledError, KeyboardInterrupt, SystemExit)
"""What a user's function or mechanism may raise although the task is not cancelled."""


class Connector:
    """The tasks that connect. ``on_change`` is called after each; ``on_refused`` once no retry can help."""

    def __init__(self, reactor: Reactor, network: Network, sockets: SocketOptions, security: Security, *, clock: Callable[[], float], request_timeout: float,
                 make_connection: MakeConnection, closing: ClosingConnections, failures: NodeFailures, metrics: RequestMetrics,
                 on_change: Callable[[], None], on_refused: Callable[[AuthenticationError], None],
                 canonical_bootstrap: bool = False) -> None:
        self._reactor = reactor
        self._network = network
        self._canonical_bootstrap = canonical_bootstrap
        self._sockets = sockets
        self._security = security
        self._clock = clock
        self._request_timeout = request_timeout
        self._make_connection = make_connection
        self._closing = closing
        self._failures = failures
        self._metrics = metrics
        self._on_change = on_change
        self._on_refused = on_refused
        self.features = Features()  # the newest that any broker has named
        self._accepted = False  # some broker has accepted this client's protocol and credentials
        self.tasks: dict[Task[Any], None] = {}  # in the order of their start: runs must be repeatable

    def connect(self, node: NodeConnections, use: Use) -> None:
        """Start an attempt, or remember that the node is wanted until its back-off ends."""
        now = self._clock()
        node.wanted = not node.reconnects.allowed(now)
        if node.wanted:
            return
        node.tried_at = now
        if not node.tasks:
            node.connecting_since = now
        node.attempt = self._attempt(node, use)
        node.tasks[use] = self._start(node, self._establish(node, use, node.attempt))

    def renew(self, node: NodeConnections, connection: Connection) -> None:
        """KIP-368: authenticate again before the session ends."""
        self._start(node, self._authenticate_again(node, connection))

    async def close(self) -> None:
        """Cancel all tasks and wait for them."""
        for task in list(self.tasks):
            task.cancel()
        await all_done(self._reactor, list(self.tasks))

    def _start(self, node: NodeConnections, work: Coroutine[Any, Any, T]) -> Task[T]:
        task = Task(self._reactor, work, name=f"pyclient connects to {node.node}")
        self.tasks[task] = None
        task.add_done_callback(lambda ended: self.tasks.pop(ended, None))
        return task

    def _attempt(self, node: NodeConnections, use: Use) -> ConnectAttempt:
        check_login, node.may_require_login = node.may_require_login, False  # once per closed connection
        return ConnectAttempt(
            self._reactor, node.address, self._network, self._sockets, first_address=node.first_address, timeout=node.reconnects.setup_timeout(),
            answer_timeout=self._request_timeout, make_connection=functools.partial(self._make_connection, node, use), start=functools.partial(self._start, node),
            discard=self._discard, security=self._security, unverified=not self._accepted, check_login=check_login,
            canonical=self._canonical_bootstrap and node.node.id < 0)

    async def _establish(self, node: NodeConnections, use: Use, attempt: ConnectAttempt) -> None:
        try:
            connection = await attempt.connect()
        except KafkaError as error:
            self._failed(node, error, reached=attempt.reached)
        except Exception as error:  # noqa: BLE001 the next attempt must come after a back-off, not at once
            _log.exception("a defect in the client: connecting to %s raised", node.address)
            self._failed(node, DisconnectError(f"connecting to {node.address} raised {error!r}"), reached=attempt.reached)
        except RAISED_BY_USERS as error:
            if self._being_cancelled():
                raise
            self._failed(node, DisconnectError(
                f"connecting to {node.address} was interrupted: a function for tokens or passwords, or a mechanism, raised {_name(error)}"),
                reached=attempt.reached)
            self._raise_if_exit(error)
        else:
            self._succeeded(node, use, connection)
        finally:
            node.tasks.pop(use, None)
        self._on_change()

    async def _authenticate_again(self, node: NodeConnections, connection: Connection) -> None:
        assert self._security.sasl is not None, "only an authenticated connection has a session"
        try:
            await connection.authenticate(self._security.sasl.login(connection.known_as or node.address.host), self._request_timeout)
        except KafkaError as error:
            _log.warning("re-authentication failed: %s", error if connection.label in str(error) else f"{connection.label}: {error}")
            self._give_up_if_refused(error)
        except RAISED_BY_USERS as error:
            if self._being_cancelled():
                raise
            _log.warning("re-authentication failed: %s: a function for tokens or passwords, or a mechanism, raised %s", connection.label, _name(error))
            self._raise_if_exit(error)
        self._on_change()

    def _being_cancelled(self) -> bool:
        task = self._reactor.current
        return task is not None and task.cancelling() > 0

    def _raise_if_exit(self, error: BaseException) -> None:
        """KeyboardInterrupt and SystemExit may end a program whose loop is the user's; else the client continues."""
        if not isinstance(error, CancelledError):
            self._on_change()
            raise error

    def _succeeded(self, node: NodeConnections, use: Use, connection: Connection) -> None:
        self._accepted = True
        self._failures.connected(node)
        self._metrics.opened()
        self.features = self.features.newer(connection.versions.features)
        if connection.state is State.CLOSED:  # by the peer, in the pass since it became ready
            self._failures.closed_unused(node, DisconnectError(f"{connection.label} closed the connection as soon as it was ready"))
        else:
            node.connections[use] = connection

    def _failed(self, node: NodeConnections, error: KafkaError, *, reached: bool) -> None:
        self._failures.connecting_failed(node, error, reached=reached)
        self._give_up_if_refused(error)

    def _give_up_if_refused(self, error: KafkaError) -> None:
        """Do not retry what only other options can cure: it would lock accounts, and hide the error.

        Credentials that may change are given up only if no broker has ever accepted any.
        """
        if isinstance(error, AuthenticationError) and not (self._accepted and self._security.may_change(error)):
            self._on_refused(error)

    def _discard(self, connection: Connection) -> None:
        if connection.state is not State.CLOSED:
            self._closing.close(connection, DisconnectError(f"{connection.label}: closed before it was ready"))


def _name(error: BaseException) -> str:
    """Of what a user's function raised in the worker for logins, or on the user's loop."""
    return type(error.__cause__ or error).__name__
