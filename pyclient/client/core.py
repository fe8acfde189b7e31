"""The base of producers, consumers and admin clients: connections, metadata, calls, and the driver that runs them.

All of it runs in steps of one reactor. Facades translate their calls to it; protocol decisions are in `pyclient.core`.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyclient.codec.apis import Api
from pyclient.config import ClientConfig
from pyclient.core.backoff import Backoff, ExponentialBackoff, WaitPolicy
from pyclient.core.calls import Call, Calls, Finish
from pyclient.core.cluster import Cluster
from pyclient.core.manager import Manager, Use
from pyclient.core.metadata import Metadata
from pyclient.core.outages import Outages
from pyclient.core.acl_errors import error_of
from pyclient.errors import (
    AuthenticationError, BootstrapError, ClientClosedError, ClientForkedError, ConfigurationError, IllegalStateError, KafkaError, MetadataTimeoutError, error_for,
    raisable, sentence,
)
from pyclient.metrics import METADATA_AGE, Metrics
from pyclient.records import Node
from pyclient.reactor.tasks import Future
from pyclient.runtime import process_hooks
from pyclient.client.driver import Driver
from pyclient.runtime.environment import environment
from pyclient.net.pool import PoolOptions, ConnectionPool
from pyclient.runtime.network import Network, SocketOptions
from pyclient.runtime.portals import Portal
from pyclient.net.security import Security

_log = logging.getLogger(__name__)
UNANSWERED: Final = 1  # requests in flight on connections that carry one request at a time
CONTROL_REQUESTS: Final = 8


class ClientCore:
    """One client on one reactor, that of *portal*. Made anywhere, opened by `start`."""

    data_use: Use | None = None
    """Of the connections for records."""

    def __init__(self, config: ClientConfig, portal: Portal, *, topics_idle_after: float = float("inf"), create_topics: bool = False) -> None:
        self.of_controllers = bool(getattr(config, "bootstrap_controllers", ()))
        """Whether this client is bound to controllers instead of brokers (KIP-919)."""
        if not config.bootstrap_servers and not self.of_controllers:
            raise ConfigurationError("bootstrap_servers is not set: give at least one broker's host:port", option="bootstrap_servers")
        self.config = config
        self.portal = portal
        self.reactor = portal.reactor
        self.environment = environment()
        self.clock = self.environment.clock
        self.random = self.environment.random()
        self.driver = Driver(self.reactor, self.clock)
        usual = ExponentialBackoff(_seconds(config.retry_backoff_ms), _seconds(config.retry_backoff_max_ms), self.random)
        self.backoff: Backoff = usual if config.retry_backoff is None else WaitPolicy(config.retry_backoff, usual)
        self.request_timeout = _seconds(config.request_timeout_ms)
        self.metrics = Metrics(config.ROLE, samples=config.metrics_num_samples, window_s=_seconds(config.metrics_sample_window_ms))
        self.connections = self._make_connections(self._make_network())
        self.metadata = self._make_metadata(topics_idle_after, create_topics=create_topics)
        self.metrics.watch(METADATA_AGE, self._metadata_age)
        self.outages = Outages(config.ROLE, self.metadata, self.connections.failure_report)
        self.calls = Calls(self.metadata, request_timeout=self.request_timeout, backoff=self.backoff)
        self.started = False
        self._ended = False
        self.closed: KafkaError | None = None
        self.refused: KafkaError | None = None
        """Why no broker accepts this client (wrong credentials, say): every call raises this from now on."""
        self.close_linger = 0.0
        """Seconds that `close` may take to write requests that have no answer (acks=0)."""
        process_hooks.register(self)

    def _make_network(self) -> Network:
        if self.config.proxy_url is None:
            return self.environment.network()
        from pyclient.runtime.proxied import ProxiedNetwork

        return ProxiedNetwork(self.config.proxy_url)

    def _make_connections(self, network: Network) -> ConnectionPool:
        config = self.config
        options = PoolOptions(
            client_id=config.client_id or None,
            request_timeout=self.request_timeout,
            reconnect_backoff=_seconds(config.reconnect_backoff_ms),
            reconnect_backoff_max=_seconds(config.reconnect_backoff_max_ms),
            setup_timeout=_seconds(config.socket_connection_setup_timeout_ms),
            setup_timeout_max=_seconds(config.socket_connection_setup_timeout_max_ms),
            max_idle=_seconds(config.connections_max_idle_ms) if config.connections_max_idle_ms >= 0 else float("inf"),
            max_frame=config.receive_max_frame_bytes,
            max_in_flight={Use.CONTROL: CONTROL_REQUESTS, Use.COORDINATION: CONTROL_REQUESTS, Use.MEMBERSHIP: UNANSWERED, Use.FETCH: UNANSWERED,
                           Use.PRODUCE: getattr(config, "max_in_flight_requests_per_connection", UNANSWERED)},
            sockets=SocketOptions(config.send_buffer_bytes, config.receive_buffer_bytes),
            security=Security.of(config, self.environment, self.portal, self.random),
            canonical_bootstrap=config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only",
        )
        # Bootstrap addresses are nodes with negative ids, until metadata brings the brokers' own ids.
        addresses = config.bootstrap_servers or getattr(config, "bootstrap_controllers", ())
        bootstrap = [Node(-2 - at, address.host, address.port) for at, address in enumerate(addresses)]
        return ConnectionPool(self.reactor, options, network, clock=self.clock, random=self.random, bootstrap=bootstrap,
                     metrics=self.metrics, waker=self.driver, on_failure=self._on_failure, on_refused=self._on_refused,
                     on_silence=self._on_silence, data_use=self.data_use)

    def _make_metadata(self, topics_idle_after: float, *, create_topics: bool) -> Metadata:
        config = self.config
        recovers = config.metadata_recovery_strategy == "rebootstrap"
        return Metadata(
            max_age=_seconds(config.metadata_max_age_ms), max_idle=topics_idle_after,
            rebootstrap_after=_seconds(config.metadata_recovery_rebootstrap_trigger_ms) if recovers else None,
            request_timeout=self.request_timeout, backoff=self.backoff, create_topics=create_topics,
            on_update=self._on_cluster, of_controllers=self.of_controllers)

    # ---- opening and closing ----------------------------------------------------------------------------------------

    def managers(self) -> Sequence[Manager]:
        """The managers that the driver polls, in this order."""
        return [self.metadata, self.calls, self.outages]

    def data_manager(self) -> Manager | None:
        """The one of them that sends or fetches records, on connections for `data_use`."""
        return None

    async def start(self) -> None:
        """Start its driver."""
        if self.closed is not None:
            raise raisable(self.closed)
        if self.started:
            raise IllegalStateError(f"this {self.config.ROLE} is open already: enter it once")
        self.started = True
        self.driver.start(self.connections, self.managers(), self.data_manager())

    async def close(self) -> None:
        """End every call and close every connection. Idempotent; the next close does what a cancellation ended."""
        if self._ended or self.is_forked:
            return
        if self.closed is None:
            self.closed = ClientClosedError(f"this {self.config.ROLE} is closed: open a new one")
        self.calls.close(self.closed)
        self.driver.stop(self.closed)
        await self.connections.close(self.close_linger)
        process_hooks.unregister(self)
        self._ended = True

    def forked(self) -> None:
        """This process is a forked child: the connections belong to the parent, so nothing may be sent on them."""
        self.closed = ClientForkedError(
            f"this {self.config.ROLE} was opened before a fork and belongs to the parent process: open a new one in the child")
        self.reactor.forked()
        self.connections.drop()

    def check_open(self) -> None:
        """Raise when the client was closed, forked, or is used on another loop than its own."""
        if self.closed is not None:
            raise raisable(self.closed)
        if not self.started:
            raise IllegalStateError(f"this {self.config.ROLE} is not open yet: use it inside `async with`, or `await` its start()")
        self.portal.check_here()
        if self.refused is not None:
            raise raisable(self.refused)

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the one that opened it."""
        return isinstance(self.closed, ClientForkedError)

    @property
    def is_connected(self) -> bool:
        """Whether brokers answer, as far as is known. Any thread may ask."""
        return self.closed is None and self.refused is None and self.connections.reachable

    def check_process(self) -> None:
        """Raise in a forked child; for calls that are allowed on a closed client."""
        if self.closed is not None and self.is_forked:
            raise raisable(self.closed)

    # ---- for facades ------------------------------------------------------------------------------------------------

    async def call(self, make: Callable[[Finish, float | None], Call], timeout: float | None) -> Any:
        """Submit a call and wait for its result; cancelling the wait drops the call."""
        self.check_open()
        future: Future[Any] = Future(self.reactor)

        def finish(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        call = make(finish, None if timeout is None else self.clock() + timeout)
        self.calls.submit(call)
        self.driver.wake()
        try:
            return await future
        except KafkaError as error:
            raise self._unreachable(error, timeout) from None
        finally:
            self.calls.cancel(call)

    def metadata_timeout(self, topic: str, waited: float | None, creation: str) -> KafkaError:
        """The error when a topic stays unknown; *creation* says whether the cluster might create it."""
        if not self.metadata.cluster.nodes:
            return BootstrapError(self.connections.failure_report(), waited_s=waited)
        known = self.metadata.cluster.topics.get(topic)
        said = f"the brokers say: {error_of(Api.METADATA, known.error, topics=[topic]).message}" if known is not None and known.error else (
            f"the last error was: {self.metadata.last_error}" if self.metadata.last_error else "no broker has answered")
        return MetadataTimeoutError(
            f"topic {topic!r} is not known after {waited} s; {sentence(said)} {creation} Create the topic, or check its name and the addresses. "
            "Nothing was queued.")

    def _doubt(self, topic: str) -> int:
        """The known error of a topic may be out of date: request an update. Only views newer than the returned version
        count."""
        known = self.metadata.cluster.topics.get(topic)
        if known is None or not known.error:
            return -1
        self.metadata.request_update()
        return self.metadata.cluster.version

    def _raise_topic_error(self, topic: str, *, newer_than: int) -> None:
        """M03: raise an error that waiting cannot cure."""
        cluster = self.metadata.cluster
        known = cluster.topics.get(topic)
        if known is not None and known.error and cluster.version > newer_than and not error_for(known.error).retriable:
            raise error_of(Api.METADATA, known.error, f"topic {topic!r}", topics=[topic])

    def _unreachable(self, error: KafkaError, waited: float | None) -> KafkaError:
        """A timeout before any broker was reached becomes the error of each address."""
        if isinstance(error, TimeoutError) and not self.metadata.cluster.nodes:
            return BootstrapError(self.connections.failure_report(), waited_s=waited)
        return error

    def metric_values(self) -> dict[str, float]:
        """The metrics by name, as they stand now."""
        self.check_process()
        return dict(self.metrics.snapshot(self.clock()))

    def _metadata_age(self) -> float | None:
        adopted = self.metadata.adopted_at
        return None if adopted is None else self.clock() - adopted

    # ---- events -----------------------------------------------------------------------------------------------------

    def _on_failure(self, cause: KafkaError) -> None:
        """A connection failed: the view of the cluster may be stale."""
        self.metadata.last_error = cause
        self.metadata.request_update()

    def _on_silence(self) -> None:
        """A node does not answer, or none is connected: the cluster may have put others in its place."""
        self.metadata.request_update()

    def _on_refused(self, error: AuthenticationError) -> None:
        """No broker accepts this client: stop, and fail all calls and waiters at once."""
        if self.refused is None and self.closed is None:
            _log.error("this %s stops: %s", self.config.ROLE, error)
            self.refused = error
            self.calls.close(error)
            self.driver.stop(error)
            self.on_refused(error)

    def on_refused(self, error: AuthenticationError) -> None:
        """Called once, in a step, when `refused` was set. For subclasses."""

    def _on_cluster(self, cluster: Cluster) -> None:
        self.connections.update_nodes(cluster.nodes)
        self.on_cluster(cluster)

    def on_cluster(self, cluster: Cluster) -> None:
        """Called in a step with each new view of the cluster. For subclasses."""


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000
