"""The connections of one client: one per node and use, opened when somebody wants one, and what is known of each node.

Answers the managers' questions (`Ready`) and carries their requests out. Knows no topics and no records.
"""
from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import Any, Final, TypeVar

import attrs

from pyclient.codec.apis import Api
from pyclient.config.addresses import Address
from pyclient.core.backoff import ExponentialBackoff
from pyclient.core.connection import STAGGER, Reconnects, State, company_at
from pyclient.core.manager import NotSent, Request, Use, earliest
from pyclient.errors import AuthenticationError, DisconnectError, KafkaError, ResponseTimeoutError
from pyclient.metrics import (
    BYTES_IN, BYTES_OUT, CONNECTIONS, CONNECTIONS_CLOSED, CONNECTIONS_OPENED, PRODUCE_THROTTLE, REQUEST_LATENCY, REQUESTS, REQUESTS_IN_FLIGHT, Metrics,
)
from pyclient.records import Node
from pyclient.net.connect import ConnectAttempt
from pyclient.net.connection import Connection
from pyclient.runtime.transport import Endpoint, Network, SocketOptions
from pyclient.net.security import UNPROTECTED, Security
from pyclient.net.request_metrics import TIMED

_log = logging.getLogger(__name__)
T = TypeVar("T")
NOT_TRIED: Final = "not tried yet"
BEFORE_READY: Final = (Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
"""What a listener answers whoever asks."""
STOPS: Final = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)
"""What users' functions may raise though nobody cancels the task that calls them."""


@attrs.frozen(kw_only=True)
class PoolOptions:
    """The options that rule connections, in seconds and bytes."""

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
    protection: Security = UNPROTECTED


@attrs.define(eq=False)
class NodeConnections:
    """A node's address, its back-off, and its connections by use."""

    node: Node
    reconnects: Reconnects
    connections: dict[Use, Connection] = attrs.field(factory=dict)
    tasks: dict[Use, asyncio.Task[None]] = attrs.field(factory=dict)
    tried_at: float = -1.0
    attempt: ConnectAttempt | None = None  # the last one
    turn: int = 0  # which of the name's addresses comes first in the next attempt
    wanted: bool = False  # somebody asked for it while its back-off ran
    unreachable: bool = False  # the last attempt failed; said once
    doubted: bool = False  # it hung up on the first thing that it was asked: it may want a login

    @property
    def address(self) -> Address:
        """Where it is."""
        return Address(self.node.host, self.node.port)


class ConnectionPool:
    """Implements `Ready` for the driver. ``on_change`` is called after whatever may let a manager go on, ``on_quiet`` after
    other answers, with the time by which `tick` must be called again."""

    def __init__(self, options: PoolOptions, network: Network, *, clock: Callable[[], float], random: Random,
                 bootstrap: Iterable[Node], metrics: Metrics, on_change: Callable[[], None], on_quiet: Callable[[float], None],
                 on_trouble: Callable[[KafkaError], None], on_refused: Callable[[AuthenticationError], None]) -> None:
        self._options = options
        self._network = network
        self._clock = clock
        self._random = random
        self._on_change = on_change
        self._on_quiet = on_quiet
        self._on_trouble = on_trouble
        self._on_refused = on_refused
        self._was_accepted = False  # some broker has accepted what this client is and shows
        self._was_answered = False  # and told it something
        self._bootstrap = {node.id: self._host(node) for node in bootstrap}
        self._hosts: dict[int, NodeConnections] = {}
        # In the order of their begin, as everything that is gone through: so that a run can be repeated exactly.
        self._closing: dict[Connection, None] = {}  # they end by themselves; nobody sends on them any more
        self._connecting: dict[asyncio.Task[Any], None] = {}
        self._ended = asyncio.Event()  # a connection has ended
        self._due: float | None = 0.0  # before then nothing is overdue or idle
        self._company_at: float | None = None  # who waits for any node gets one more connected to then
        self._closed = False
        self.failures: dict[str, KafkaError] = {}
        """Why each address that does not work does not: filled by failures, emptied by success."""
        self._bytes_gone = [0, 0]
        self._metrics = metrics
        metrics.watch(CONNECTIONS, lambda: len(self._connections()))
        metrics.watch(REQUESTS_IN_FLIGHT, lambda: sum(link.in_flight for link in self._connections()))
        metrics.watch(BYTES_IN, lambda: self._bytes_gone[0] + sum(link.bytes_in for link in self._connections()))
        metrics.watch(BYTES_OUT, lambda: self._bytes_gone[1] + sum(link.bytes_out for link in self._connections()))

    # ---- Ready ------------------------------------------------------------------------------------------------------

    def slots(self, node: int, use: Use) -> int:
        """Free in-flight slots; 0 while there is no ready connection (one is opened)."""
        host = self._hosts.get(node) or self._bootstrap.get(node)
        return 0 if host is None or self._closed else self._slots(host, use)

    def free(self, node: int, use: Use) -> int:
        """The same, and no wish: nothing is opened."""
        host = self._hosts.get(node)
        return 0 if host is None or self._closed else self._free(host, use)

    def least_loaded(self, use: Use) -> int | None:
        """M04: a ready node with nothing in flight, else the fewest; else one being connected to; if that takes long, one more.

        The bootstrap addresses are asked again when no known broker can be reached (KIP-899).
        """
        hosts = [host for host in self._hosts.values() if self._usable(host)]
        hosts = hosts or [host for host in self._bootstrap.values() if self._usable(host)]
        if not hosts or self._closed:
            self._want_all()
            return None
        ready = [host for host in hosts if self._free(host, use)]
        if ready:
            fewest = min(host.connections[use].in_flight for host in ready)
            return self._random.choice([host for host in ready if host.connections[use].in_flight == fewest]).node.id
        self._try_one_more(hosts, use)
        return None

    def _try_one_more(self, hosts: list[NodeConnections], use: Use) -> None:
        now = self._clock()
        untried = [host for host in hosts if use not in host.connections and use not in host.tasks]  # the others are throttled or full
        due = company_at(host.tried_at for host in hosts if use in host.tasks)
        if untried and now >= due:
            chosen = self._longest_untried(untried)
            untried.remove(chosen)
            self._connect(chosen, use)
            due = now + STAGGER
        if untried:
            self._company_at = earliest(self._company_at, due)

    def _slots(self, host: NodeConnections, use: Use) -> int:
        if use in host.connections:
            return self._free(host, use)
        if use not in host.tasks:
            self._connect(host, use)
        return 0

    def _free(self, host: NodeConnections, use: Use) -> int:
        link = host.connections.get(use)
        if link is None or not link.ready:
            return 0
        return max(0, self._options.max_in_flight.get(use, 1) - link.in_flight)

    def _usable(self, host: NodeConnections) -> bool:
        """Connected, being connected to, or allowed to be."""
        return bool(host.connections or host.tasks) or host.reconnects.allowed(self._clock())

    def _want_all(self) -> None:
        for host in [*self._hosts.values(), *self._bootstrap.values()]:
            host.wanted = True

    def _longest_untried(self, hosts: list[NodeConnections]) -> NodeConnections:
        first = min(host.tried_at for host in hosts)
        return self._random.choice([host for host in hosts if host.tried_at == first])

    # ---- requests and time ------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Carry a request out."""
        host = self._hosts.get(request.node) or self._bootstrap.get(request.node)
        link = host.connections.get(request.use) if host is not None else None
        if link is None or not link.ready:
            self._not_sent(request, DisconnectError(f"the connection to node {request.node} is gone"))
        else:
            self._metrics.add(REQUESTS, 1, str(request.node))
            self._send(link, request)

    def _send(self, link: Connection, request: Request) -> None:
        try:
            link.send(request)
        except Exception as error:  # noqa: BLE001 whoever waits for it must be told
            _log.exception("a defect in the client: a %s request could not be encoded", request.api.title)
            self._not_sent(request, KafkaError(f"a {request.api.title} request could not be encoded: {error!r}"))

    def _not_sent(self, request: Request, cause: KafkaError) -> None:
        request.done(self._clock(), NotSent(cause))
        self._on_change()

    def tick(self, now: float) -> None:
        """End what is overdue or idle."""
        self._metrics.turn(now)
        self._company_at = None  # as with hosts that were wanted: who still waits asks again in this turn
        if self._due is None or now < self._due:
            return
        hosts = self._all_hosts()
        for link in [*[link for host in hosts for link in host.connections.values()], *self._closing]:
            link.expire(now)
        for host in hosts:
            if host.wanted and host.reconnects.allowed(now):
                host.wanted = False  # whoever still wants it asks again in this turn
            for link in list(host.connections.values()):
                if not link.in_flight and now >= link.idle_since + self._options.max_idle:
                    self._retire(host, link)
                elif link.renew_at is not None and now >= link.renew_at and link.state is State.READY:
                    link.renew_at = None  # it is being done
                    self._begin(host, self._renew(host, link))

    def next_deadline(self) -> float | None:
        """The next overdue answer, idle connection, end of a back-off that somebody waits for, or attempt beside others."""
        first, max_idle = self._company_at, self._options.max_idle
        for host in self._all_hosts():
            if host.wanted:
                first = earliest(first, host.reconnects.not_before)
            for link in host.connections.values():
                first = earliest(first, link.next_deadline(), None if link.in_flight else link.idle_since + max_idle)
        self._due = earliest(first, *[link.next_deadline() for link in self._closing])
        return self._due

    def _connections(self) -> list[Connection]:
        return [link for host in self._all_hosts() for link in list(host.connections.values())]  # also read by who asks for metrics

    def _all_hosts(self) -> list[NodeConnections]:
        return [*self._hosts.values(), *self._bootstrap.values()]

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def follow(self, nodes: Mapping[int, Node]) -> None:
        """The cluster has these nodes now: connections to others, or to addresses that changed, end (M05)."""
        for number, host in list(self._hosts.items()):
            known = nodes.get(number)
            if known is None or (known.host, known.port) != (host.node.host, host.node.port):
                now = "not a broker of this cluster any more" if known is None else f"at {known.host}:{known.port} now"
                self._drop(self._hosts.pop(number), f"node {number} is {now}")
        for number, node in nodes.items():
            if number not in self._hosts:
                self._hosts[number] = self._host(node)
        if nodes:
            for host in self._bootstrap.values():  # they have done their work
                for task in host.tasks.values():
                    task.cancel()
                for link in list(host.connections.values()):
                    self._retire(host, link)

    def _host(self, node: Node) -> NodeConnections:
        options = self._options
        return NodeConnections(node, Reconnects(
            ExponentialBackoff(options.reconnect_backoff, options.reconnect_backoff_max, self._random),
            ExponentialBackoff(options.setup_timeout, options.setup_timeout_max, self._random)))

    def _drop(self, host: NodeConnections, why: str) -> None:
        for task in host.tasks.values():
            task.cancel()
        for link in list(host.connections.values()):
            self._closing[link] = None
            link.close(DisconnectError(f"{link.label}: {why}"))

    def _retire(self, host: NodeConnections, link: Connection) -> None:
        use = next(use for use, each in host.connections.items() if each is link)
        del host.connections[use]
        self._closing[link] = None
        link.retire()

    # ---- connecting -------------------------------------------------------------------------------------------------

    def _connect(self, host: NodeConnections, use: Use) -> None:
        now = self._clock()
        host.wanted = True
        if not host.reconnects.allowed(now):
            return
        host.tried_at = now
        host.wanted = False
        host.attempt = self._attempt(host, use)
        host.tasks[use] = self._begin(host, self._establish(host, use, host.attempt))

    def _begin(self, host: NodeConnections, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=f"pyclient connects to {host.node}")
        self._connecting[task] = None
        task.add_done_callback(lambda ended: self._connecting.pop(ended, None))
        return task

    async def _establish(self, host: NodeConnections, use: Use, attempt: ConnectAttempt) -> None:
        try:
            link = await attempt.connect()
        except KafkaError as error:
            self._failed(host, error)
        except Exception as error:  # noqa: BLE001 the next attempt comes after a back-off, not at once
            _log.exception("a defect in the client: connecting to %s raised", host.address)
            self._failed(host, DisconnectError(f"connecting to {host.address} raised {error!r}"))
        except STOPS as stop:
            if _is_being_cancelled():
                raise
            self._failed(host, DisconnectError(
                f"connecting to {host.address} was ended by a {type(stop).__name__}, which a token function or a mechanism raised"))
            self._stopped(stop)
        else:
            self._succeeded(host, use, link)
        finally:
            host.tasks.pop(use, None)
        self._on_change()

    async def _renew(self, host: NodeConnections, link: Connection) -> None:
        """KIP-368: log in anew before the session ends."""
        assert self._options.protection.logins is not None, "who has not logged in has no session"
        try:
            await link.authenticate(self._options.protection.logins.login(host.address.host), self._options.request_timeout)
        except KafkaError as error:
            _log.warning("%s: the login could not be renewed: %s", link.label, error)
            self._give_up_if_refused(error)
        except STOPS as stop:
            if _is_being_cancelled():
                raise
            _log.warning("%s: the login could not be renewed: a token function or a mechanism raised a %s", link.label, type(stop).__name__)
            self._stopped(stop)
        self._on_change()

    def _stopped(self, stop: BaseException) -> None:
        """Who ends the program may do so where the loop is the user's; whatever becomes of that, the client goes on."""
        if not isinstance(stop, asyncio.CancelledError):
            self._on_change()
            raise stop

    def _give_up_if_refused(self, error: KafkaError) -> None:
        """What only other options can cure is not tried again: it would lock accounts, and nobody would hear of it. Credentials that may
        change are given up only if no broker has ever accepted any.
        """
        if isinstance(error, AuthenticationError) and not (self._was_accepted and self._options.protection.may_change(error)):
            self._on_refused(error)

    def _succeeded(self, host: NodeConnections, use: Use, link: Connection) -> None:
        if host.unreachable:
            host.unreachable = False
            _log.info("connected to %s again after %d failures", host.address, host.reconnects.failures)
        host.reconnects.succeeded()
        self._was_accepted = True
        self.failures.pop(str(host.address), None)
        self._metrics.add(CONNECTIONS_OPENED)
        if link.state is State.CLOSED:  # the peer has hung up since it became ready, a turn of the loop ago
            self._hung_up(host, DisconnectError(f"{link.label} closed the connection as soon as it was ready"))
        else:
            host.connections[use] = link

    def _failed(self, host: NodeConnections, error: KafkaError) -> None:
        self.failures[str(host.address)] = error
        host.turn += 1
        host.reconnects.failed(self._clock())
        _log.log(logging.DEBUG if host.unreachable else logging.INFO, "connecting to %s failed (%d in a row): %s",
                 host.address, host.reconnects.failures, error)
        host.unreachable = True
        self._on_trouble(error)
        self._give_up_if_refused(error)

    def _attempt(self, host: NodeConnections, use: Use) -> ConnectAttempt:
        doubted, host.doubted = host.doubted, False  # once: not every peer that hung up stands to be asked
        return ConnectAttempt(
            host.address, self._network, self._options.sockets, turn=host.turn, timeout=host.reconnects.setup_timeout(),
            make_link=functools.partial(self._link, host, use), begin=functools.partial(self._begin, host), give_up=self._abort,
            protection=self._options.protection, strangers=not self._was_accepted, doubts=doubted)

    def _link(self, host: NodeConnections, use: Use, endpoint: Endpoint) -> Connection:
        label = f"{host.node} for {use.value} at {endpoint}" if host.node.id >= 0 else f"bootstrap server {host.address}"
        return Connection(
            label, self._options.client_id, clock=self._clock, max_frame=self._options.max_frame,
            on_change=self._on_change, on_quiet=self._rest, on_lost=lambda lost, cause: self._lost(host, lost, cause),
            on_answer=lambda api, latency, throttle: self._answered(host, api, latency, throttle))

    def _abort(self, link: Connection | None) -> None:
        if link is not None and link.state is not State.CLOSED:
            self._closing[link] = None
            link.close(DisconnectError(f"the connection to {link.label} was given up before it was ready"))

    def _answered(self, host: NodeConnections, api: Api, latency: float, throttle: float) -> None:
        now, milliseconds = self._clock(), latency * 1000
        self._was_answered = self._was_answered or api not in BEFORE_READY
        self._metrics.sample(REQUEST_LATENCY, milliseconds, now, str(host.node.id))
        timed = TIMED.get(api)
        if timed is not None:
            answers, duration = timed
            self._metrics.add(answers)
            self._metrics.sample(duration, milliseconds, now)
        elif api is Api.PRODUCE:
            self._metrics.sample(PRODUCE_THROTTLE, throttle * 1000, now)

    def _rest(self) -> None:
        """The connection may be idle from now on."""
        idle_at = self._clock() + self._options.max_idle
        self._due = earliest(self._due, idle_at)
        self._on_quiet(idle_at)

    def _lost(self, host: NodeConnections, lost: Connection, cause: KafkaError) -> None:
        self._bytes_gone = [self._bytes_gone[0] + lost.bytes_in, self._bytes_gone[1] + lost.bytes_out]
        self._closing.pop(lost, None)
        self._metrics.add(CONNECTIONS_CLOSED)
        for use in [use for use, link in host.connections.items() if link is lost]:
            del host.connections[use]
            self._note_loss(host, lost, cause)
        self._ended.set()
        self._on_change()

    def _note_loss(self, host: NodeConnections, lost: Connection, cause: KafkaError) -> None:
        """An idle connection that the peer closes is everyday life; one with work on it is a sign of trouble."""
        if self._closed:
            return
        if lost.lost_work:
            host.doubted = lost.hung_up and not (lost.heard or self._was_answered)
            self.failures[str(host.address)] = cause
            host.reconnects.failed(self._clock())
            _log.info("%s: %s", lost.label, cause)
            self._on_trouble(cause)
        elif lost.unanswered:
            self._on_trouble(cause)  # P22: with acks=0 hanging up is the only way a broker can say that something is wrong
        elif not lost.used:
            self._hung_up(host, cause)

    def _hung_up(self, host: NodeConnections, cause: KafkaError) -> None:
        """Before anything was asked: no trouble if it was idle for long, but a peer that always does so must not be flooded."""
        self.failures[str(host.address)] = cause
        host.reconnects.failed(self._clock())

    # ---- the end ----------------------------------------------------------------------------------------------------

    async def close(self, parting: float = 0.0) -> None:
        """Close every connection; nothing is left behind. What has no answer to wait for is written first, within *parting* s."""
        self._closed = True
        if parting > 0:
            await self._write_out(parting)
        for host in self._all_hosts():
            self._drop(host, "the client is closed")
        for link in list(self._closing):
            link.close(DisconnectError("the client is closed"))
        for task in list(self._connecting):
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        while self._closing:
            await self._next_end()
        self._options.protection.close()

    async def _write_out(self, limit: float) -> None:
        unwritten = [link for link in self._connections() if link.may_lose and not link.in_flight]
        for host in self._all_hosts():
            for link in [link for link in host.connections.values() if link in unwritten]:
                self._retire(host, link)
        try:
            async with asyncio.timeout(limit):
                while not self._closing.keys().isdisjoint(unwritten):
                    await self._next_end()
        except TimeoutError:
            _log.warning("what was sent with acks=0 last could not be written within %.1f s and is lost", limit)

    async def _next_end(self) -> None:
        self._ended.clear()
        await self._ended.wait()

    def troubles(self) -> dict[str, BaseException]:
        """For each bootstrap address, and each other one that failed: why there is no connection yet."""
        pending = {str(host.address): self._pending(host) for host in self._bootstrap.values() if not host.connections}
        return {**pending, **self.failures}

    def _pending(self, host: NodeConnections) -> KafkaError:
        after = f" after {self._clock() - host.tried_at:.1f} s" if host.tasks else ""
        return ResponseTimeoutError((NOT_TRIED if host.attempt is None else host.attempt.stage) + after)

    def drop(self) -> None:
        """After a fork: let go of the parent's sockets, silently."""
        self._network.drop()


def _is_being_cancelled() -> bool:
    """Whether somebody ends the running task; else what it awaits has ended by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
