# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The metrics of a client's connections and requests."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pyclient.codec.apis import Api
from pyclient.metric_values import Total, Windows
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


class _OfNode:
    """The values of one node."""

    def __init__(self, metrics: Metrics, node: int) -> None:
        self.requests = metrics.total(REQUESTS, str(node))
        self.latency = metrics.windows(REQUEST_LATENCY, str(node))


class _OfApi(NamedTuple):
    responses: Total
    latency: Windows


class RequestMetrics:
    """Counts and times what *connections* do; the function may be called by any thread."""

    def __init__(self, metrics: Metrics, connections: Callable[[], Sequence[Connection]]) -> None:
        self._metrics = metrics
        self._nodes: dict[int, _OfNode] = {}
        self._apis: dict[Api, _OfApi] = {}
        self._throttle = metrics.windows(PRODUCE_THROTTLE)
        self._closed_in = self._closed_out = 0  # bytes of connections that are closed
        metrics.watch(CONNECTIONS, lambda: len(connections()))
        metrics.watch(REQUESTS_IN_FLIGHT, lambda: sum(each.in_flight for each in connections()))
        metrics.watch(BYTES_IN, lambda: self._closed_in + sum(each.bytes_in for each in connections()))
        metrics.watch(BYTES_OUT, lambda: self._closed_out + sum(each.bytes_out for each in connections()))

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
        found = self._nodes.get(node) or self._made_node(node)
        found.requests.add(1)

    def answered(self, node: int, api: Api, now: float, latency: float | None, throttle: float) -> None:
        """A response of *node* came after *latency* seconds (None: unknown) and throttles the client for *throttle*
        seconds.
        """
        milliseconds = 0.0 if latency is None else latency * 1000
        if latency is not None:
            found = self._nodes.get(node) or self._made_node(node)
            found.latency.add(milliseconds, 1, milliseconds, now)
        if api is Api.PRODUCE:
            self._throttle.add(throttle * 1000, 1, throttle * 1000, now)
        elif api in COUNT_AND_LATENCY:
            own = self._apis.get(api) or self._made_api(api)
            own.responses.add(1)
            own.latency.add(milliseconds, 1, milliseconds, now)

    def _made_node(self, node: int) -> _OfNode:
        made = self._nodes[node] = _OfNode(self._metrics, node)
        return made

    def _made_api(self, api: Api) -> _OfApi:
        """With its first response: a client reports no metrics of requests that it does not send."""
        count, latency = COUNT_AND_LATENCY[api]
        made = self._apis[api] = _OfApi(self._metrics.total(count), self._metrics.windows(latency))
        return made
