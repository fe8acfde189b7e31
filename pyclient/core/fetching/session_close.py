"""Closes fetch sessions when the consumer closes (C07). Knows sessions and open connections; fetches nothing."""
from __future__ import annotations

from collections.abc import Callable, Iterator

from pyclient.core.fetching.fetch_request import FetchRequest, fetch_request
from pyclient.core.fetching.fetches_in_flight import fetch_parameters
from pyclient.core.fetching.limits import FetchLimits
from pyclient.core.fetching.sessions import SessionRequest
from pyclient.core.fetching.sources import Sources
from pyclient.core.manager import Outcome, Request, Use


class SessionClose:
    """Happens once. After it has begun, no records are fetched."""

    def __init__(self, sources: Sources, limits: FetchLimits) -> None:
        self._sources = sources
        self._limits = limits
        self._unanswered = 0
        self.begun = False
        """Whether the consumer closes."""

    @property
    def answered(self) -> bool:
        """Whether brokers have answered all of them."""
        return not self._unanswered

    def requests(self, free: Callable[[int, Use], int]) -> Iterator[Request]:
        """The request that ends each session; *free* returns the free slots of open connections.

        Behind a fetch under way it would wait for records, so it takes another connection, if there is one.
        """
        if self.begun:
            return
        self.begun = True
        for node, request, is_in_flight in self._sources.closing_requests():
            use = Use.CONTROL if is_in_flight else Use.FETCH
            if free(node, use):
                self._unanswered += 1
                yield self._request(node, use, request)

    def _request(self, node: int, use: Use, request: SessionRequest) -> Request:
        return fetch_request(node, self._sources.session(node), request, fetch_parameters(request, self._limits, 0, 0.0, ""), self._limits.request_timeout,
                             self._ended, use=use)

    def _ended(self, _fetch: FetchRequest, _now: float, _outcome: Outcome) -> None:
        self._unanswered -= 1
