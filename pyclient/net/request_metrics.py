# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The metrics of a client's connections and requests."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyclient.codec.apis import Api
from pyclient.metric_values import Total, Windows
from pyclient.metrics import (
    BYTES_IN, BYTES_OUT, COMMIT_LATENCY, COMMITS, CONNECTIONS, CONNECTIONS_CLOSED, CONNECTIONS_OPENED, FETCH_LATENCY, FETCHES, HEARTBEAT_TIME,
    HEARTBEATS, JOIN_TIME, JOINS, PRODUCE_THROTTLE, REQUEST_LATENCY, REQUESTS, REQUESTS_IN_FLIGHT, SYNC_TIME, SYNCS, Metric, Metrics,
)
from pyclient.net.connection import Connection

PRODUCE: Final = Api.PRODUCE
COUNT_AND_LATENCY: Final[Mapping[Api, tuple[Metric, Metric]]] = {
    Api.FETCH: (FETCHES, FETCH_LATENCY), Api.OFFSET_COMMIT: (COMMITS, COMMIT_LATENCY), Api.HEARTBEAT: (HEARTBEATS, HEARTBEAT_TIME),
    Api.JOIN_GROUP: (JOINS, JOIN_TIME), Api.SYNC_GROUP: (SYNCS, SYNC_TIME),
}
"""APIs with metrics of their own: number of responses, and latency in ms."""


class NodeMetrics:
    """Counts and times the requests to one node."""

    def __init__(self, of_all: RequestMetrics, requests: Total, latency: Windows) -> None:
        self._of_all = of_all
        self._requests = requests
        self._latency = latency

    def sent(self) -> None:
        """A request was written to it."""
        self._requests.add(1)

    def answered(self, api: Api, now: float, latency: float, throttle: float) -> None:
        """A response came after *latency* seconds, and throttles the client for *throttle* seconds."""
        milliseconds = latency * 1000
        self._latency.add(milliseconds, 1, milliseconds, now)
        self._of_all.answered(api, now, milliseconds, throttle * 1000)


class _OfApi:
    """The values of one API."""

    def __init__(self, responses: Total, latency: Windows) -> None:
        self.responses = responses
        self.latency = latency


class RequestMetrics:
    """Counts and times what *connections* do; the function may be called by any thread."""

    def __init__(self, metrics: Metrics, connections: Callable[[], Sequence[Connection]]) -> None:
        self._metrics = metrics
        self._nodes: dict[int, NodeMetrics] = {}
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

    def of(self, node: int) -> NodeMetrics:
        """Those of one node."""
        found = self._nodes.get(node)
        return self._made_node(node) if found is None else found

    def answered(self, api: Api, now: float, milliseconds: float, throttled: float) -> None:
        """A response came after so many milliseconds, and throttles the client for *throttled* milliseconds."""
        if api is PRODUCE:
            self._throttle.add(throttled, 1, throttled, now)
        elif api in COUNT_AND_LATENCY:
            own = self._apis.get(api)
            if own is None:
                own = self._made_api(api)
            own.responses.add(1)
            own.latency.add(milliseconds, 1, milliseconds, now)

    def _made_node(self, node: int) -> NodeMetrics:
        made = self._nodes[node] = NodeMetrics(self, self._metrics.total(REQUESTS, str(node)), self._metrics.windows(REQUEST_LATENCY, str(node)))
        return made

    def _made_api(self, api: Api) -> _OfApi:
        """With its first response: a client reports no metrics of requests that it does not send."""
        count, latency = COUNT_AND_LATENCY[api]
        made = self._apis[api] = _OfApi(self._metrics.total(count), self._metrics.windows(latency))
        return made
