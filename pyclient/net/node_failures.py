"""Why nodes cannot be used: what a lost connection or a failed attempt means for its node, and who is notified."""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from pyclient.codec.apis import Api
from pyclient.core.connection import Usage
from pyclient.core.silence import LOGGED_AFTER
from pyclient.errors import KafkaError, ResponseTimeoutError
from pyclient.net.connection import Connection
from pyclient.net.node_connections import NodeConnections

_log = logging.getLogger(__name__)
NOT_TRIED: Final = "not tried yet"
NOT_ANSWERED: Final = "connected, no answer yet"
BEFORE_LOGIN: Final = (Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
"""What a listener answers before a login."""


class NodeFailures:
    """Of one client's nodes. ``on_failure`` is called with each failure that users should learn of."""

    def __init__(self, clock: Callable[[], float], on_failure: Callable[[KafkaError], None]) -> None:
        self._clock = clock
        self._on_failure = on_failure
        self.any_answer = False
        """Some broker has answered a request that needs a login where logins are required."""
        self.by_address: dict[str, KafkaError] = {}
        """The last failure of each address; a success removes it."""

    def connected(self, node: NodeConnections) -> None:
        """An attempt succeeded."""
        if node.unreachable:
            node.unreachable = False
            failures = node.reconnects.failures
            _log.warning("connected to %s again after %d failure%s", node.address, failures, "" if failures == 1 else "s")
        node.reconnects.succeeded()
        self.by_address.pop(str(node.address), None)

    def answered(self, node: NodeConnections, api: Api, now: float) -> None:
        """A broker answered a request."""
        self.any_answer = self.any_answer or api not in BEFORE_LOGIN
        if node.silence_logged and node.silent_since is not None:
            _log.warning("%s answers again, after %.0f s", node.node, now - node.silent_since)
        node.answered(now)

    def silent(self, node: NodeConnections) -> None:
        """A node accepts connections or requests and has answered nothing for a while. Logged once it has lasted."""
        assert node.silent_since is not None
        lasted = self._clock() - node.silent_since
        if lasted >= LOGGED_AFTER and not node.silence_logged:
            node.silence_logged = True
            _log.warning("%s has answered nothing for %.0f s. Until it does, other brokers are asked who is responsible for its partitions and groups",
                         node.node, lasted)

    def connecting_failed(self, node: NodeConnections, error: KafkaError, *, reached: bool = True) -> None:
        """An attempt failed; the first failure in a row is logged."""
        self.by_address[str(node.address)] = error
        node.failed(self._clock(), reached=reached)
        _log.log(logging.DEBUG if node.unreachable else logging.WARNING, "connecting%s failed (%d in a row): %s",
                 "" if str(node.address) in str(error) else f" to {node.address}", node.reconnects.failures, error)
        node.unreachable = True
        self._on_failure(error)

    def connection_lost(self, node: NodeConnections, connection: Connection, cause: KafkaError) -> None:
        """A ready connection was closed. For an idle one this is normal; with requests in flight it is a failure."""
        ending = connection.ending
        if ending is not None and ending.requests_lost:
            node.may_require_login = ending.by_peer and connection.usage is not Usage.ANSWERED and not self.any_answer
            self._back_off(node, cause)
            _log.info("%s", cause)
            self._on_failure(cause)
        elif connection.wrote_unanswered:
            self._on_failure(cause)  # P22: with acks=0 closing the connection is the broker's only way to report an error
        elif connection.usage is Usage.UNUSED:
            self.closed_unused(node, cause)

    def closed_unused(self, node: NodeConnections, cause: KafkaError) -> None:
        """A connection was closed before a request was sent on it: no failure, but reconnecting must wait."""
        self._back_off(node, cause)

    def _back_off(self, node: NodeConnections, cause: KafkaError) -> None:
        self.by_address[str(node.address)] = cause
        node.reconnects.failed(self._clock())

    def report(self, bootstrap: Iterable[NodeConnections]) -> dict[str, BaseException]:
        """For each bootstrap address, and each other one that failed: why there is no answer."""
        pending = {str(node.address): self._pending(node) for node in bootstrap if not node.connections or node.awaits_answer}
        return {**pending, **self.by_address}

    def _pending(self, node: NodeConnections) -> KafkaError:
        if node.connections:
            return ResponseTimeoutError(NOT_ANSWERED)
        elapsed = f" after {self._clock() - node.tried_at:.1f} s" if node.tasks else ""
        return ResponseTimeoutError((NOT_TRIED if node.attempt is None else node.attempt.stage) + elapsed)
