"""The metrics of a client's connections and requests."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyclient.codec.apis import Api
from pyclient.metrics import (
    BYTES_IN, BYTES_OUT, COMMIT_LATENCY, COMMITS, CONNECTIONS, CONNECTIONS_CLOSED, CONNECTIONS_OPENED, FETCH_LATENCY, FETCHES, HEARTBEAT_TIME,
    HEARTBEATS, JOIN_TIME, JOINS, PRODUCE_THROTTLE, REQUEST_LATENCY, REQUESTS, REQUESTS_IN_FLIGHT, SYNC_TIME, SYNCS, Metric, Metrics,
)
from pyclient.net.connection import Connection

COUNT_AND_LATENCY: Final[Mapping[Api, tuple[Metric, Metric]]] = {
    Api.FETCH: (FETCHES, FETCH_LATENCY), Api.OFFSET_COMMIT: (COMMITS, COMMIT_LATENCY), Api.HEARTBEAT: (HEARTBEATS, HEARTBEAT_TIME),
    Api.JOIN_GROUP: (JOINS, JOIN_TIME), Api.SYNC_GROUP: (SYNCS, SYNC_TIME),
}
"""APIs with metrics of their own: number of responses, and latency in ms."""


class RequestMetrics:
    """Counts and times what *connections* do; the function may be called by any thread."""

    def __init__(self, metrics: Metrics, connections: Callable[[], Sequence[Connection]]) -> None:
        self._metrics = metrics
        self._closed_in = self._closed_out = 0  # bytes of connections that are closed
        metrics.watch(CONNECTIONS, lambda: len(connections()))
        metrics.watch(REQUESTS_IN_FLIGHT, lambda: sum(each.in_flight for each in connections()))
        metrics.watch(BYTES_IN, lambda: self._closed_in + sum(each.bytes_in for each in connections()))
        metrics.watch(BYTES_OUT, lambda: self._closed_out + sum(each.bytes_out for each in connections()))

    def turn(self, now: float) -> None:
        """A turn of the driver begins."""
        self._metrics.turn(now)

    def opened(self) -> None:
        """A connection became ready."""
        self._metrics.add(CONNECTIONS_OPENED)

    def closed(self, connection: Connection) -> None:
        """A connection was closed; its bytes still count."""
        self._closed_in += connection.bytes_in
        self._closed_out += connection.bytes_out
        self._metrics.add(CONNECTIONS_CLOSED)

    def sent(self, node: int) -> None:
        """A request was written to *node*."""
        self._metrics.add(REQUESTS, 1, str(node))

    def answered(self, node: int, api: Api, now: float, latency: float, throttle: float) -> None:
        """A response of *node* came after *latency* seconds and throttles the client for *throttle* seconds."""
        milliseconds = latency * 1000
        self._metrics.sample(REQUEST_LATENCY, milliseconds, now, str(node))
        own = COUNT_AND_LATENCY.get(api)
        if own is not None:
            count, duration = own
            self._metrics.add(count)
            self._metrics.sample(duration, milliseconds, now)
        elif api is Api.PRODUCE:
            self._metrics.sample(PRODUCE_THROTTLE, throttle * 1000, now)
