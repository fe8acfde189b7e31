"""When to request metadata, about which topics, and what to believe of the answer (M01–M03, M06).

Owns the newest `Cluster`. Independent of connections: any node that is ready will do.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

from pyclient.codec.apis import Api, VersionRange
from pyclient.core import controllers
from pyclient.core.backoff import Backoff
from pyclient.core.cluster import Cluster, Topic
from pyclient.core.cluster_view import ClusterView
from pyclient.core.manager import Manager, NotSent, Outcome, Ready, Reply, Request, Unknown, Use, earliest
from pyclient.core.metadata_refresh import RefreshTimer, State
from pyclient.core.silence import silence_timeout_s
from pyclient.core.topic_interest import BY_ID, Scope, TopicInterest, WantedIds
from pyclient.errors import KafkaError, error_for

_log = logging.getLogger(__name__)
REBOOTSTRAP_REQUIRED: Final = 129
MOST_SHOWN: Final = 5
"""Unusable addresses in one line of the log."""


class Metadata(Manager):
    """Keeps the view of the cluster fresh: new topics at once, a stale view after a back-off, all of it at its age.

    ``on_update`` is called with each new view, in a step.
    """

    def __init__(self, *, max_age: float, max_idle: float, rebootstrap_after: float | None, request_timeout: float,
                 backoff: Backoff, create_topics: bool, on_update: Callable[[Cluster], None], of_controllers: bool = False) -> None:
        self.view = ClusterView(Cluster())
        self.of_controllers = of_controllers
        """Whether the nodes are controllers (KIP-919)."""
        self.refused: KafkaError | None = None
        """Why the controllers refused the last request, for a reason that does not pass."""
        self._reported: frozenset[str] = frozenset()
        self.last_error: KafkaError | None = None
        self.adopted_at: float | None = None
        """When a broker last answered about every topic in use."""
        self.asked_at = float("-inf")
        """When the request for that answer was sent: what happened later may not be in the view."""
        self.interest = TopicInterest(max_idle)
        self._ids = WantedIds(backoff)
        self._refresh = RefreshTimer(max_age=max_age, backoff=backoff)
        self._rebootstrap_after = rebootstrap_after
        self._request_timeout = request_timeout
        self.creates_topics = create_topics
        """Whether asking for an unknown topic may create it."""
        self._on_update = on_update
        self._unheard = 0  # requests in a row that no broker answered
        self.needs_poll = True
        self._names_next = False  # the last request was about ids: names go first when both are due
        self._no_node = False  # a request is due, but no node is ready: only an event of the network helps
        self._unanswered_since: float | None = None  # a request was due then, and no broker has answered since
        self.silent_since: float | None = None
        """The same, but starting over from the bootstrap addresses does not change it."""

    @property
    def cluster(self) -> Cluster:
        """The newest view."""
        return self.view.cluster

    # ---- what is wanted ---------------------------------------------------------------------------------------------

    def want(self, topic: str, now: float) -> None:
        """Keep *topic* in the view; a new one is requested at once. It is dropped after ``max_idle`` without use.

        Raises:
            TypeError, InvalidTopicError: no request could carry the name; nothing has changed.
        """
        if self.interest.want(topic, now):
            self.wants_more()

    def wants_more(self) -> None:
        """Something is of interest that no request was about."""
        self.needs_poll = True

    def pin(self, topics: Iterable[str], owner: str = "") -> None:
        """Keep exactly these topics for *owner* (such as a consumer's assignment) until it pins others.

        Pinned topics that have no owner left are dropped.

        Raises:
            TypeError, InvalidTopicError: no request could carry one of the names; nothing has changed.
        """
        self.interest.pin(topics, owner)
        self.needs_poll = True

    def follow_all(self, wanted: bool) -> None:
        """Keep every topic of the cluster in the view, for patterns; new ones appear when the view is refreshed.
        False goes back to the topics in use."""
        self.interest.follow_all(wanted)
        self.needs_poll = True

    def identify(self, ids: Iterable[UUID]) -> None:
        """Find the names of these topic ids and of no others.

        They are requested at once, then after each back-off, until the view holds them.
        """
        self._ids.want(ids)
        self.needs_poll = True

    def request_update(self) -> None:
        """The view proved stale: refresh it, after the back-off."""
        self._refresh.want_update()
        self.needs_poll = True

    def usable(self, topic: str) -> Topic | None:
        """The topic, once its partitions are known."""
        known = self.cluster.topics.get(topic)
        return known if known is not None and known.partitions else None

    def missing(self) -> list[str]:
        """The topics in use that cannot be used yet, for a reason that may pass."""
        view = self.cluster.topics
        return [name for name in self.interest.used if name not in view or (view[name].error and error_for(view[name].error).retriable)]

    @property
    def settled(self) -> bool:
        """Whether nothing is being waited for: every topic in use is known, and some broker has answered."""
        return self._refresh.state is State.FRESH and not self.interest.new and self.silent_since is None

    def hint(self, cluster: Cluster) -> None:
        """Adopt a view that a leader hint has made (KIP-951)."""
        if cluster is not self.cluster:
            self._publish(cluster)

    # ---- the manager ------------------------------------------------------------------------------------------------

    def poll(self, now: float, ready: Ready) -> Iterator[Request]:
        """One request at a time."""
        self.needs_poll = self._no_node = False
        if self._in_flight:
            return
        self._rebootstrap_when_overdue(now)
        ids, due = self._ids.due(now, self.cluster.names), self.interest.unrequested or self._refresh.is_due(now)
        if not ids and not due:
            return
        if self._unanswered_since is None:
            self._unanswered_since = now
        if self.silent_since is None:
            self.silent_since = now
        node = ready.least_loaded(Use.CONTROL)
        if node is None:
            self._no_node = True
            return
        self._names_next = bool(ids) and not (due and self._names_next)
        yield self._request_ids(node, ids) if self._names_next else self._request_names(node, now)

    def next_deadline(self) -> float | None:
        """When the next request is due; None while one is under way or no node is ready."""
        if self._in_flight:
            return None
        overdue = self._overdue_at()
        return overdue if self._no_node else earliest(self._refresh.deadline(), overdue, self._ids.deadline(self.cluster.names))

    @property
    def _in_flight(self) -> bool:
        return self._refresh.in_flight or self._ids.in_flight

    def _request_names(self, node: int, now: float) -> Request:
        # While the rest is fresh, a request is about the new topics only (a partial update, M01).
        partial = bool(self.interest.new) and self.interest.scope is not Scope.ALL_NEW and self._refresh.allows_partial(now)
        names = self.interest.take_new() if partial else self.interest.take_all(now)
        self._refresh.sent()

        def done(then: float, outcome: Outcome) -> None:
            self._answered(then, outcome, asked_at=None if partial else now)

        return self._request(node, None if names is None else [{"name": name, "topic_id": None} for name in names], done)

    def _request_ids(self, node: int, ids: Sequence[UUID]) -> Request:
        self._ids.requested()
        return self._request(node, [{"name": None, "topic_id": each} for each in ids], self._identified, BY_ID)

    def _request(self, node: int, topics: object, done: Callable[[float, Outcome], None], versions: VersionRange | None = None) -> Request:
        if self.of_controllers:
            return Request(node=node, use=Use.CONTROL, api=Api.DESCRIBE_CLUSTER, done=done, timeout=self._request_timeout,
                           fields=lambda version: controllers.describe_fields(), versions=controllers.DESCRIBE,
                           silence_timeout_s=silence_timeout_s(self._request_timeout, self._unheard))

        def fields(version: int) -> dict[str, object]:
            return {
                "topics": topics,
                "allow_auto_topic_creation": self.creates_topics,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            }

        return Request(node=node, use=Use.CONTROL, api=Api.METADATA, done=done, timeout=self._request_timeout, fields=fields, versions=versions,
                       silence_timeout_s=silence_timeout_s(self._request_timeout, self._unheard))

    # ---- outcomes ---------------------------------------------------------------------------------------------------

    def _answered(self, now: float, outcome: Outcome, *, asked_at: float | None) -> None:
        """*asked_at*: when every topic in use was asked for; None: new ones only."""
        self._count_unheard(outcome)
        match outcome:
            case Reply(message=message) if getattr(message, "error_code", 0) == REBOOTSTRAP_REQUIRED:
                self._rebootstrap(now)
                self._failed(now, None)  # with a back-off: the bootstrap addresses may answer the same
            case Reply(message=message) if self.of_controllers and (error := controllers.refusal(message)) is not None:
                self._failed(now, error)
            case Reply(message=message) if message.brokers:
                self._adopt(now, message, asked_at)
            case Reply():
                self._failed(now, None)  # a broker that knows no brokers is still starting: try another
            case NotSent(cause) | Unknown(cause):
                self._failed(now, cause)

    def _identified(self, now: float, outcome: Outcome) -> None:
        """The outcome of a request by id. It does not change when the topics in use are refreshed."""
        self._ids.answered(now)
        self._count_unheard(outcome)
        match outcome:
            case Reply(message=message) if message.brokers:
                self._unanswered_since = self.silent_since = None
                self._publish(self.cluster.updated(message))
            case NotSent(cause) | Unknown(cause):
                self.last_error = cause

    def _count_unheard(self, outcome: Outcome) -> None:
        self._unheard = self._unheard + 1 if isinstance(outcome, Unknown) else 0

    def _adopt(self, now: float, message: object, asked_at: float | None) -> None:
        before, new, partial = self.cluster, self.interest.new, asked_at is None
        after = before.of_controllers(message) if self.of_controllers else before.updated(message, everything=not partial, but=new)
        self._unanswered_since = self.silent_since = None
        self.last_error = self.refused = None
        if asked_at is not None:
            self.adopted_at, self.asked_at = now, asked_at
        complete = not any(_unfinished(after.topics.get(topic)) for topic in self.interest.used if topic not in new)
        self._refresh.answered(now, partial=partial, news=not _same(before, after), complete=complete)
        self._publish(after)

    def _failed(self, now: float, cause: KafkaError | None) -> None:
        self.last_error = cause
        self.refused = cause if self.of_controllers and cause is not None and not cause.retriable else None
        self._refresh.failed(now, cause)

    def _publish(self, cluster: Cluster) -> None:
        if new := cluster.unusable - self._reported:
            _log.warning("brokers that advertise an address that cannot be used are left out: %s. Check their advertised.listeners", ", ".join(sorted(new)[:MOST_SHOWN]))
            self._reported = cluster.unusable
        self.view.cluster = cluster
        self.needs_poll = True
        self._on_update(cluster)

    # ---- starting over ----------------------------------------------------------------------------------------------

    def _overdue_at(self) -> float | None:
        if self._rebootstrap_after is None or self._unanswered_since is None or not self.cluster.nodes:
            return None
        return self._unanswered_since + self._rebootstrap_after

    def _rebootstrap_when_overdue(self, now: float) -> None:
        """KIP-1102: after so long without an answer, the known addresses are given up for the bootstrap addresses."""
        overdue = self._overdue_at()
        if overdue is not None and now >= overdue:
            self._rebootstrap(now)

    def _rebootstrap(self, now: float) -> None:
        self._unanswered_since = now
        self._refresh.want_update_now(now)
        self._publish(Cluster(version=self.cluster.version + 1, topics=self.cluster.topics, names=self.cluster.names))


def _unfinished(topic: Topic | None) -> bool:
    """A topic in use that has no leaders yet, and may get them."""
    if topic is None:
        return True
    if topic.error:
        return error_for(topic.error).retriable
    return any(part.leader is None for part in topic.partitions)


def _same(before: Cluster, after: Cluster) -> bool:
    return (before.nodes, before.topics, before.controller) == (after.nodes, after.topics, after.controller)
