"""What an operator should read in the log: no broker answers, a topic is missing, a quota is exceeded.

An outage is logged once it has lasted `REPORTED_AFTER`, again every `REMINDER`, and when it ends. Independent of
sockets: *causes* has the last error of each address.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from pyclient.core.manager import Manager, Ready, Request
from pyclient.core.metadata import Metadata
from pyclient.core.silence import LOGGED_AFTER
from pyclient.errors import BootstrapError, KafkaError, UnknownTopicOrPartitionError, error_for

_log = logging.getLogger(__name__)
REPORTED_AFTER: Final = 2.0
"""Seconds that a cluster or topic may be missing in silence: a start, an election or a creation take less."""
REMINDER: Final = 300.0
CHECK_EVERY: Final = 1.0
WINDOW: Final = 60.0
MOST_THROTTLED: Final = 10.0
"""Seconds of pauses within a window; more are logged."""


class Outage:
    """One thing that is missing: since when, and when it is next logged."""

    def __init__(self, now: float, report_after: float = REPORTED_AFTER) -> None:
        self.since = now
        self.report_at = now + report_after
        self.reported = False

    def due(self, now: float) -> bool:
        """Whether to log it now; then the next time is `REMINDER` later."""
        if now < self.report_at:
            return False
        self.report_at, self.reported = now + REMINDER, True
        return True


class Throttling:
    """How long a node has throttled this client in the current window of `WINDOW` seconds (M09)."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[float, float]] = {}  # begin of the window, seconds throttled in it
        self._silent_until: dict[str, float] = {}

    def add(self, node: str, seconds: float, now: float) -> None:
        """A response of *node* asks for a pause of this long; a warning once pauses are a sixth of the time."""
        began, before = self._nodes.get(node, (now, 0.0))
        began, total = (now, seconds) if now >= began + WINDOW else (began, before + seconds)
        self._nodes[node] = began, total
        if total >= MOST_THROTTLED and now >= self._silent_until.get(node, 0.0):
            self._silent_until[node] = now + REMINDER
            _log.warning("%s throttles this client: %.0f s of pauses within a minute. The cluster has a quota for its user or client_id, "
                         "which the cluster's operators can raise; until then less goes through", node, total)


class Outages(Manager):
    """A manager that sends nothing. *role* is who speaks, such as ``producer``."""

    def __init__(self, role: str, metadata: Metadata, causes: Callable[[], dict[str, BaseException]]) -> None:
        self.needs_poll = False  # what it looks at changes only when the metadata is polled
        self._role = role
        self._metadata = metadata
        self._causes = causes
        self._cluster: Outage | None = None
        self._topics: dict[str, Outage] = {}
        self._next_check = 0.0

    def poll(self, now: float, _ready: Ready) -> Iterator[Request]:
        """Log what is due; no request."""
        if now >= self._next_check:
            self._next_check = now + CHECK_EVERY
            self._check_cluster(now)
            self._check_topics(now)
        return iter(())

    def next_deadline(self) -> float | None:
        """When to look again; None while nothing is missing."""
        return self._next_check if self._cluster or self._topics or not self._metadata.settled else None

    def _check_cluster(self, now: float) -> None:
        silent_since = self._metadata.silent_since
        if silent_since is None:
            if self._cluster is not None and self._cluster.reported:
                _log.warning("%s: brokers answer again, after %.0f s", self._role, now - self._cluster.since)
            self._cluster = None
            return
        if self._cluster is None or (self._cluster.since != silent_since and not self._cluster.reported):
            # A broker that hangs delays an answer by a while; another one gives it.
            self._cluster = Outage(silent_since, LOGGED_AFTER if self._metadata.cluster.nodes else REPORTED_AFTER)
        if self._cluster.due(now):
            _log.warning("%s: %s It goes on trying.", self._role, self._silence(now - silent_since))

    def _silence(self, waited: float) -> KafkaError:
        causes = self._causes()
        if not causes and self._metadata.last_error is not None:
            causes = {"the last one": self._metadata.last_error}
        return BootstrapError(causes, waited_s=waited)

    def _check_topics(self, now: float) -> None:
        missing = set(self._metadata.missing()) if self._cluster is None else set()
        for name in self._topics.keys() - missing:
            gone = self._topics.pop(name)
            if gone.reported and self._cluster is None:
                _log.warning("%s: topic %r is there, after %.0f s", self._role, name, now - gone.since)
        for name in sorted(missing):
            if self._topics.setdefault(name, Outage(now)).due(now):
                _log.warning("%s: topic %r %s", self._role, name, self._why(name))

    def _why(self, name: str) -> str:
        known = self._metadata.cluster.topics.get(name)
        if known is None or error_for(known.error).code == UnknownTopicOrPartitionError.code:
            return "does not exist (yet): create it, or check its name; it is used as soon as it exists"
        return f"cannot be used yet: {error_for(known.error)}"
