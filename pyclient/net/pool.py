# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The connections of one client: one per node and use, opened on request, closed when idle, overdue or replaced.

Answers the managers' questions (`Ready`) and carries out their requests. Independent of topics and records.
"""
from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from random import Random

import attrs

from pyclient.clocks import seconds_of
from pyclient.codec.apis import Api
from pyclient.core.backoff import ExponentialBackoff
from pyclient.core.connection import STAGGER, Reconnects, State
from pyclient.core.handshake import Features
from pyclient.core.manager import NotSent, Ready, Request, Use, earlier, earliest
from pyclient.core.outages import Throttling
from pyclient.core.silence import silence_timeout_s
from pyclient.errors import AuthenticationError, DisconnectError, KafkaError
from pyclient.metrics import Metrics
from pyclient.net.connection import AnswerListener, Connection, interrupted
from pyclient.net.connector import Connector
from pyclient.net.node_connections import ClosingConnections, NodeConnections, least_loaded, longest_untried, next_node_at
from pyclient.net.node_failures import NodeFailures
from pyclient.net.request_metrics import NodeMetrics, RequestMetrics
from pyclient.net.security import UNPROTECTED, Security
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Timeout
from pyclient.records import Node
from pyclient.runtime.network import Endpoint, Network, SocketOptions

_log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class PoolOptions:
    """The options of connections, in seconds and bytes."""

    client_id: str | None
    request_timeout: float
    reconnect_backoff: float
    reconnect_backoff_max: float
    setup_timeout: float
    setup_timeout_max: float
    max_idle: float
    max_frame: int
    max_in_flight: Mapping[Use, int]
    sockets: SocketOptions
    security: Security = UNPROTECTED
    canonical_bootstrap: bool = False
    """Whether TLS and logins know bootstrap servers by their canonical names (``client_dns_lookup``)."""


class Waker:
    """Is notified of what happens on connections. This one ignores it."""

    def wake(self) -> None:
        """An event that may let any manager continue."""

    def wake_data(self) -> None:
        """As `wake`, of ready connections for records: it concerns their manager alone."""

    def wake_by(self, deadline: float) -> None:
        """A response that concerns no manager. `ConnectionPool.tick` must be called by *deadline*."""


class NodeAnswers(AnswerListener):
    """What an answer means for its node and for the metrics."""

    def __init__(self, pool: ConnectionPool, node: NodeConnections, metrics: NodeMetrics) -> None:
        self._pool = pool
        self._node = node
        self._metrics = metrics

    def answered(self, api: Api, now: float, latency: float, throttled: float) -> None:
        """As `AnswerListener.answered`."""
        if self._node.silent_since is not None or not self._pool.any_answer:
            self._pool.answered_late(self._node, api, now)
        else:
            self._node.answered(now)
        self._metrics.answered(api, now, latency, throttled)
        if throttled:
            self._pool.throttled(self._node, now, throttled)


class ConnectionPool(Ready):
    """Implements `Ready` for the driver.

    *waker* is notified of events, of those of ready connections for *data_use* apart. ``on_silence`` is called again
    and again while some node does not answer, and when a peer has closed the last connection.
    """

    def __init__(self, reactor: Reactor, options: PoolOptions, network: Network, *, clock: Callable[[], float], random: Random,
                 bootstrap: Iterable[Node], metrics: Metrics, waker: Waker, on_failure: Callable[[KafkaError], None], on_refused: Callable[[AuthenticationError], None],
                 on_silence: Callable[[], None] = lambda: None, data_use: Use | None = None) -> None:
        self._reactor = reactor
        self._options = options
        self._max_idle = options.max_idle
        self._network = network
        self._clock = clock
        self._random = random
        self._waker = waker
        self._on_silence = on_silence
        self._data_use = data_use
        self._silence_timeout_s = silence_timeout_s(options.request_timeout)
        self._checked_at = 0.0
        self._nodes: dict[int, NodeConnections] = {}
        self._bootstrap = {node.id: self._new_node(node) for node in bootstrap}
        self._closing = ClosingConnections(reactor)
        self._metrics = RequestMetrics(metrics, self._connections)
        self._all_metrics = metrics
        self._window_ends = 0.0
        self._throttling = Throttling()
        self.failures = NodeFailures(clock, on_failure)
        self.any_answer = False  # as of the failures
        self._connector = Connector(
            reactor, network, options.sockets, options.security, clock=clock, request_timeout=options.request_timeout,
            make_connection=self._make_connection, closing=self._closing, failures=self.failures, metrics=self._metrics,
            on_change=waker.wake, on_refused=on_refused, canonical_bootstrap=options.canonical_bootstrap)
        self._due: float | None = 0.0  # no deadline of a connection or node is earlier
        self._next_node_at: float | None = None  # when to connect to one more node for a request that any node can answer
        self._closed = False

    # ---- Ready ------------------------------------------------------------------------------------------------------

    def slots(self, node: int, use: Use) -> int:
        """Free in-flight slots; 0 while there is no ready connection, which is then opened."""
        found = self._node(node)
        if found is None or self._closed:
            return 0
        free = found.free_slots(use)
        if not free and found.untried(use):
            self._connector.connect(found, use)
            self._due = 0.0  # the attempt, or the back-off before it, has a deadline
        return free

    def free(self, node: int, use: Use) -> int:
        """As `slots`, but opens no connection."""
        found = self._nodes.get(node)
        return 0 if found is None or self._closed else found.free_slots(use)

    def least_loaded(self, use: Use) -> int | None:
        """M04: a ready node with the fewest requests in flight; None while none is ready, one is then connected to.

        The bootstrap addresses are used again when no known broker can be reached (KIP-899).
        """
        now = seconds_of(self._clock)
        nodes = [node for node in self._nodes.values() if node.usable(now)]
        nodes = nodes or [node for node in self._bootstrap.values() if node.usable(now)]
        if not nodes or self._closed:
            for node in self._all_nodes():
                node.wanted = True
            return None
        chosen = least_loaded(nodes, use, self._random, now)
        if chosen is not None:
            return chosen.node.id
        self._connect_one_more(nodes, use)
        return None

    def features(self) -> Features:
        """The newest finalized features that a broker has named."""
        return self._connector.features

    def give_up(self, node: int, use: Use) -> None:
        """Close the connection if something is in flight on it: another node is responsible."""
        connection = self._connection(node, use)
        if connection is not None and connection.in_flight:
            connection.close(DisconnectError(f"{connection.label} did not answer, and is not responsible any more"))

    def _connect_one_more(self, nodes: list[NodeConnections], use: Use) -> None:
        now = seconds_of(self._clock)
        untried = [node for node in nodes if node.untried(use)]  # the others are throttled, full or connecting
        due = next_node_at(nodes, use)
        if untried and now >= due:
            chosen = longest_untried(untried, self._random)
            untried.remove(chosen)
            self._connector.connect(chosen, use)
            due = now + STAGGER
        if untried:
            self._next_node_at = earliest(self._next_node_at, due)

    # ---- requests and time ------------------------------------------------------------------------------------------

    def send(self, request: Request) -> Connection | None:
        """Write a request; returns the connection that it was written to."""
        connection = self._connection(request.node, request.use)
        if connection is None or not connection.accepts_requests():
            self._not_sent(request, DisconnectError(f"the connection to node {request.node} was lost before {request.api.title} was sent"))
            return None
        self._metrics.of(request.node).sent()
        written = connection.bytes_out
        try:
            connection.send(request)
        except BaseException as error:  # every request needs an outcome, also if an exception was raised into this thread
            self._not_written(connection, request, error, begun=connection.bytes_out > written or connection.awaits(request))
            if not isinstance(error, Exception):
                raise
            return None
        self._due = earlier(self._due, connection.next_deadline())
        return connection

    def _not_written(self, connection: Connection, request: Request, error: BaseException, *, begun: bool) -> None:
        """*begun*: some of it may be written; the connection then reports the outcome, `Unknown`, when it closes."""
        title = request.api.title
        if begun:
            _log.warning("%s: sending %s was interrupted by %r; closing the connection", connection.label, title, error)
            connection.close(interrupted(connection.label, title, error))
        elif isinstance(error, Exception):
            _log.error("a defect in the client: a %s request could not be encoded", title, exc_info=error)
            self._not_sent(request, KafkaError(f"a {title} request could not be encoded: {error!r}"))
        else:
            self._not_sent(request, DisconnectError(f"{title} was not sent: {error!r}"))

    def _not_sent(self, request: Request, cause: KafkaError) -> None:
        request.done(seconds_of(self._clock), NotSent(cause))
        self._waker.wake()

    def start_window(self, now: float) -> None:
        """Of the metrics, if the last one is over."""
        if now >= self._window_ends:
            self._all_metrics.turn(now)
            self._window_ends = self._all_metrics.next_mark

    def tick(self, now: float) -> None:
        """Close overdue and idle connections, renew sessions, and release nodes whose back-off is over."""
        self.start_window(now)
        self._next_node_at = None  # a manager that still needs a node calls `least_loaded` in this turn
        if self._due is not None and now >= self._due:
            self._check_all(now)

    def _check_all(self, now: float) -> None:
        for connection in [*self._connections(), *self._closing]:
            connection.expire(now)
        for node in self._all_nodes():
            if node.wanted and node.reconnects.allowed(now):
                node.wanted = False  # a manager that still needs it calls `slots` in this turn
            for connection in list(node.connections.values()):
                if not connection.in_flight and now >= connection.idle_since + self._options.max_idle:
                    self._retire(node, connection)
                elif connection.session.renewal_is_due(now) and connection.state is State.READY:
                    connection.session.clear_renewal()
                    self._connector.renew(node, connection)
        self._check_silence(now)

    def _check_silence(self, now: float) -> None:
        self._checked_at = now
        silent = [node for node in self._all_nodes() if node.check_silence(now, self._silence_timeout_s)]
        for node in silent:
            self.failures.silent(node)
        if silent:
            self._on_silence()

    def next_deadline(self, others: float | None = None) -> float | None:
        """When `tick` must be called next; *others*: when it is called anyway, as in `Silence.next_check`."""
        first = earliest(self._next_node_at, *[node.next_deadline(self._options.max_idle, self._checked_at, self._silence_timeout_s, others) for node in self._all_nodes()])
        self._due = earliest(first, *[connection.overdue_at() for connection in self._closing])
        return self._due

    @property
    def due(self) -> float | None:
        """As `next_deadline`, perhaps earlier: the deadlines of connections were last looked at there."""
        return earlier(self._due, self._next_node_at)

    @property
    def reachable(self) -> bool:
        """Whether some node of the cluster is thought to answer. Any thread may ask."""
        return any(not node.unreachable and node.silent_since is None for node in list(self._nodes.values()))

    def _connections(self) -> list[Connection]:
        """Also called by threads that read metrics."""
        return [connection for node in self._all_nodes() for connection in list(node.connections.values())]

    def _all_nodes(self) -> list[NodeConnections]:
        return [*self._nodes.values(), *self._bootstrap.values()]

    def _connection(self, node: int, use: Use) -> Connection | None:
        found = self._node(node)
        return None if found is None else found.connections.get(use)

    def _node(self, number: int) -> NodeConnections | None:
        found = self._nodes.get(number)
        return self._bootstrap.get(number) if found is None else found

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def update_nodes(self, nodes: Mapping[int, Node]) -> None:
        """The cluster's nodes: connections to removed nodes and former addresses are closed (M05)."""
        for number, node in list(self._nodes.items()):
            known = nodes.get(number)
            if known is None or (known.host, known.port) != (node.node.host, node.node.port):
                change = "left the cluster" if known is None else f"moved to {known.host}:{known.port}"
                self._close_node(self._nodes.pop(number), f"the broker {change}")
        for number, known in nodes.items():
            if number not in self._nodes:
                self._nodes[number] = self._new_node(known)
        if nodes:  # the bootstrap connections are not needed any more
            for node in self._bootstrap.values():
                node.cancel_attempts()
                for connection in list(node.connections.values()):
                    self._retire(node, connection)

    def _new_node(self, node: Node) -> NodeConnections:
        options = self._options
        reconnects = Reconnects(ExponentialBackoff(options.reconnect_backoff, options.reconnect_backoff_max, self._random),
                                ExponentialBackoff(options.setup_timeout, options.setup_timeout_max, self._random))
        return NodeConnections(node, reconnects, options.max_in_flight)

    def _close_node(self, node: NodeConnections, reason: str) -> None:
        node.cancel_attempts()
        for connection in list(node.connections.values()):
            self._closing.close(connection, DisconnectError(f"{connection.label}: {reason}"))

    def _retire(self, node: NodeConnections, connection: Connection) -> None:
        node.remove(connection)
        self._closing.retire(connection)

    # ---- events of connections --------------------------------------------------------------------------------------

    def _make_connection(self, node: NodeConnections, use: Use, endpoint: Endpoint) -> Connection:
        resolved = "" if str(endpoint) == str(node.address) else f" at {endpoint}"
        label = f"{node.node} for {use.value}{resolved}" if node.node.id >= 0 else f"bootstrap server {node.address}"
        return Connection(
            label, self._options.client_id, reactor=self._reactor, clock=self._clock, max_frame=self._options.max_frame,
            on_change=self._waker.wake_data if use is self._data_use else self._waker.wake,
            on_quiet=self._on_quiet_response, on_lost=functools.partial(self._on_lost, node), silence_timeout_s=self._silence_timeout_s,
            answers=NodeAnswers(self, node, self._metrics.of(node.node.id)))

    def answered_late(self, node: NodeConnections, api: Api, now: float) -> None:
        """A response of a node that had not answered a request like this before, or was silent."""
        if node.silent_since is not None:
            self._due = 0.0  # others may still be silent
        self.failures.answered(node, api, now)
        self.any_answer = self.failures.any_answer

    def throttled(self, node: NodeConnections, now: float, throttle: float) -> None:
        """A response of this node asks for a pause."""
        self._due = earliest(self._due, now + throttle)
        self._throttling.add(str(node.node), throttle, now)

    def _on_quiet_response(self) -> None:
        """The connection may be idle from now on."""
        deadline = seconds_of(self._clock) + self._max_idle
        self._due = earlier(self._due, deadline)
        self._waker.wake_by(deadline)

    def _on_lost(self, node: NodeConnections, lost: Connection, cause: KafkaError) -> None:
        self._metrics.closed(lost)
        if node.remove(lost) and not self._closed:
            self.failures.connection_lost(node, lost, cause)
            if lost.ending is not None and lost.ending.by_peer and not self._connections():
                self._on_silence()  # an idle client would not notice that its brokers are gone
        self._closing.ended(lost)
        self._waker.wake()

    # ---- closing ----------------------------------------------------------------------------------------------------

    async def close(self, flush_timeout: float = 0.0) -> None:
        """Close every connection.

        Requests without a response (acks=0) are written first, within *flush_timeout* seconds.
        """
        self._closed = True
        if flush_timeout > 0:
            await self._flush(flush_timeout)
        for node in self._all_nodes():
            self._close_node(node, "the client is closed")
        for connection in self._closing:
            connection.close(DisconnectError("the client is closed"))
        await self._connector.close()
        await self._closing.all_ended()
        self._options.security.close()

    async def _flush(self, timeout: float) -> None:
        unwritten = [connection for connection in self._connections() if connection.unwritten and not connection.in_flight]
        for node in self._all_nodes():
            for connection in [each for each in node.connections.values() if each in unwritten]:
                self._retire(node, connection)
        try:
            async with Timeout(self._reactor, timeout):
                await self._closing.these_ended(unwritten)
        except TimeoutError:
            _log.warning("the last records with acks=0 could not be written within %.1f s and are lost", timeout)

    def failure_report(self) -> dict[str, BaseException]:
        """For each bootstrap address, and each other one that failed: why there is no connection."""
        return self.failures.report(self._bootstrap.values())

    def drop(self) -> None:
        """After a fork: release the parent's sockets without closing its connections."""
        self._network.drop()
