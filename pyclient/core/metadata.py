"""When to ask for metadata, about what, and what to believe of the answer (M01–M03, M06).

Owns the newest `Cluster`. Knows no connections: any node that is ready will do.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

from pyclient.codec.apis import Api, VersionRange
from pyclient.core.backoff import WaitPolicy
from pyclient.core.cluster import Cluster, Topic
from pyclient.core.topic_ids import BY_ID, WantedIds
from pyclient.core.manager import NotSent, Outcome, Ready, Reply, Request, Unknown, Use, earliest
from pyclient.errors import InvalidTopicError, KafkaError, error_for

REBOOTSTRAP_REQUIRED: Final = 129
TOPIC_NAME_LIMIT: Final = 249


class Metadata:
    """Keeps the view of the cluster fresh: new topics at once, stale views after a back-off, everything at its age.

    ``on_update`` is called with each new view, on the loop.
    """

    def __init__(self, *, max_age: float, max_idle: float, rebootstrap_after: float | None, request_timeout: float,
                 backoff: WaitPolicy, create_topics: bool, on_update: Callable[[Cluster], None]) -> None:
        self.cluster = Cluster()
        self.last_error: KafkaError | None = None
        self.adopted_at: float | None = None
        """When brokers told everything last."""
        self._max_age = max_age
        self._max_idle = max_idle
        self._rebootstrap_after = rebootstrap_after
        self._request_timeout = request_timeout
        self._backoff = backoff
        self._create_topics = create_topics
        self._on_update = on_update
        self._used: dict[str, float] = {}  # topic → when it was last asked for; inf: as long as it is pinned
        self._pins: dict[str, tuple[str, ...]] = {}  # by who wants them
        self._fresh: set[str] = set()  # wanted, never asked for
        self._all = False  # every topic there is, for those who look for some by a pattern
        self._all_unasked = False
        self._ids = WantedIds(backoff)
        self._ids_went = False  # they were asked for last: it is the names' turn, if both are due
        self._asked = False  # an update was asked for, not yet answered
        self._in_flight = False
        self._blocked = False  # due, but no node is ready: an event of the network comes first
        self._fruitless = 0  # failures and equivalent answers in a row
        self._not_before = 0.0
        self._refresh_at: float = 0.0
        self._trying_since: float | None = None  # no answer since then, though one was wanted

    # ---- wishes -----------------------------------------------------------------------------------------------------

    def want(self, topic: str, now: float) -> None:
        """Keep *topic* in the view; asked for at once when it is new. It is dropped after ``max_idle`` without use.

        Raises:
            TypeError, InvalidTopicError: no request could carry the name; nothing is asked.
        """
        if topic not in self._used:
            check_topic_name(topic)
            self._fresh.add(topic)
        if self._used.get(topic, 0.0) != float("inf"):
            self._used[topic] = now

    def pin(self, topics: Iterable[str], owner: str = "") -> None:
        """Keep exactly these topics for *owner* (a consumer's assignment, say) for good, and forget those that nobody pins any more.

        Raises:
            TypeError, InvalidTopicError: no request could carry one of the names; nothing has changed.
        """
        own = tuple(topics)
        for topic in own:
            check_topic_name(topic)
        self._pins[owner] = own
        wanted = dict.fromkeys(topic for pinned in self._pins.values() for topic in pinned)
        for topic in [name for name, used in self._used.items() if used == float("inf") and name not in wanted]:
            del self._used[topic]
            self._fresh.discard(topic)
        for topic in wanted:
            if topic not in self._used:
                self._fresh.add(topic)
            self._used[topic] = float("inf")

    def follow_all(self, wanted: bool) -> None:
        """Keep every topic of the cluster in the view; new ones appear with its refreshments. False: only those that are named, again."""
        self._all_unasked = wanted and (self._all_unasked or not self._all)
        self._all = wanted

    def identify(self, ids: Iterable[UUID]) -> None:
        """Learn what topics these are, and no others any more: asked for by id, at once and then after the back-off, until they are in the view."""
        self._ids.want(ids)

    def request_update(self) -> None:
        """The view proved stale: ask again, after the back-off."""
        self._asked = True

    def usable(self, topic: str) -> Topic | None:
        """The topic, once its partitions are known."""
        known = self.cluster.topics.get(topic)
        return known if known is not None and known.partitions else None

    def hint(self, cluster: Cluster) -> None:
        """Adopt a view that a leader hint has made (KIP-951)."""
        if cluster is not self.cluster:
            self._publish(cluster)

    # ---- the manager ------------------------------------------------------------------------------------------------

    def poll(self, now: float, ready: Ready) -> Iterator[Request]:
        """One request at a time."""
        self._blocked = False
        if self._in_flight:
            return
        self._rebootstrap_when_overdue(now)
        ids, due = self._ids.due(now, self.cluster.names), self._due(now)
        if not ids and not due:
            return
        if self._trying_since is None:
            self._trying_since = now
        node = ready.least_loaded(Use.CONTROL)
        if node is None:
            self._blocked = True
            return
        self._ids_went = bool(ids) and not (due and self._ids_went)
        yield self._request_ids(node, ids) if self._ids_went else self._request(node, now)

    def next_deadline(self) -> float | None:
        """When the next request is due; None while one is under way or waits for a node."""
        if self._in_flight:
            return None
        overdue = self._overdue_at()
        if self._blocked:
            return overdue
        due = self._not_before if self._asked else max(self._not_before, self._refresh_at)
        return earliest(due, overdue, self._ids.deadline(self.cluster.names))

    def _due(self, now: float) -> bool:
        return bool(self._fresh) or self._all_unasked or (now >= self._not_before and (self._asked or now >= self._refresh_at))

    def _request(self, node: int, now: float) -> Request:
        # Only what is new is asked for, while the rest is fresh and nothing else is wanted (a partial update, M01).
        partial = bool(self._fresh) and not self._asked and not self._all_unasked and now < self._refresh_at
        if not partial:
            self._drop_idle(now)
        topics = None if self._all and not partial else sorted(self._fresh if partial else self._used)
        self._in_flight = True
        self._fresh.clear()
        self._asked = self._all_unasked = False

        def done(then: float, outcome: Outcome) -> None:
            self._answered(then, outcome, partial=partial)

        return self._about(node, None if topics is None else [{"name": name, "topic_id": None} for name in topics], done)

    def _request_ids(self, node: int, ids: Sequence[UUID]) -> Request:
        self._in_flight = True
        self._ids.asked()
        return self._about(node, [{"name": None, "topic_id": each} for each in ids], self._identified, BY_ID)

    def _about(self, node: int, topics: object, done: Callable[[float, Outcome], None], versions: VersionRange | None = None) -> Request:
        def fields(version: int) -> dict[str, object]:
            return {
                "topics": topics,
                "allow_auto_topic_creation": self._create_topics,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            }

        return Request(node=node, use=Use.CONTROL, api=Api.METADATA, done=done, timeout=self._request_timeout, fields=fields, versions=versions)

    # ---- outcomes ---------------------------------------------------------------------------------------------------

    def _answered(self, now: float, outcome: Outcome, *, partial: bool) -> None:
        self._in_flight = False
        match outcome:
            case Reply(message=message) if getattr(message, "error_code", 0) == REBOOTSTRAP_REQUIRED:
                self._rebootstrap(now)
                self._failed(now, None)  # not at the network's speed, should every address say the same
            case Reply(message=message) if message.brokers:
                self._adopt(now, message, partial=partial)
            case Reply():
                self._failed(now, None)  # a broker that knows no brokers is still starting: ask another
            case NotSent(cause) | Unknown(cause):
                self._failed(now, cause)

    def _identified(self, now: float, outcome: Outcome) -> None:
        """Says nothing of when the other topics are to be asked for."""
        self._in_flight = False
        self._ids.answered(now)
        match outcome:
            case Reply(message=message) if message.brokers:
                self._trying_since = None
                self._publish(self.cluster.updated(message))
            case NotSent(cause) | Unknown(cause):
                self.last_error = cause

    def _adopt(self, now: float, message: object, *, partial: bool) -> None:
        before = self.cluster
        after = before.updated(message, everything=not partial, but=self._fresh)
        self._trying_since = None
        self.last_error = None
        if not partial:
            self.adopted_at = now
            self._refresh_at = now + self._max_age
        unfinished = any(self._unfinished(after.topics.get(topic)) for topic in self._used if topic not in self._fresh)
        fruitless = unfinished or _same(before, after)
        self._fruitless = self._fruitless + 1 if fruitless else 0
        self._not_before = now + self._backoff.after(max(self._fruitless, 1))
        self._asked = self._asked or unfinished
        self._publish(after)

    def _failed(self, now: float, cause: KafkaError | None) -> None:
        self._fruitless += 1
        self._not_before = now + self._backoff.after(self._fruitless, cause)
        self.last_error = cause
        self._asked = True

    def _unfinished(self, topic: Topic | None) -> bool:
        """A wanted topic that cannot be used yet, though it may become usable."""
        if topic is None:
            return True
        if topic.error:
            return error_for(topic.error).retriable
        return any(part.leader is None for part in topic.partitions)

    def _publish(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._on_update(cluster)

    def _drop_idle(self, now: float) -> None:
        idle = [topic for topic, used in self._used.items() if used + self._max_idle < now]
        for topic in idle:
            del self._used[topic]
            self._fresh.discard(topic)

    # ---- starting over ----------------------------------------------------------------------------------------------

    def _overdue_at(self) -> float | None:
        if self._rebootstrap_after is None or self._trying_since is None or not self.cluster.nodes:
            return None
        return self._trying_since + self._rebootstrap_after

    def _rebootstrap_when_overdue(self, now: float) -> None:
        """KIP-1102: after so long without an answer, the known addresses are worth nothing."""
        overdue = self._overdue_at()
        if overdue is not None and now >= overdue:
            self._rebootstrap(now)

    def _rebootstrap(self, now: float) -> None:
        self._trying_since = now
        self._asked = True
        self._not_before = now
        self._publish(Cluster(version=self.cluster.version + 1, topics=self.cluster.topics, names=self.cluster.names))


def check_topic_name(name: object) -> None:
    """Refuse what no request can carry: one such name would keep every other topic from being asked for.

    Which letters are allowed is the brokers' business: they tell it for each topic apart.
    """
    if not isinstance(name, str):
        raise TypeError(f"topic {name!r} is {type(name).__name__}, not a text")
    size = len(name.encode(errors="surrogatepass"))
    if not name or size > TOPIC_NAME_LIMIT or any("\ud800" <= sign <= "\udfff" for sign in name):
        shown = repr(name if size <= TOPIC_NAME_LIMIT else name[:20] + "…")
        raise InvalidTopicError(f"topic {shown} cannot be named in a request: it has {size} B, and 1 to {TOPIC_NAME_LIMIT} B of UTF-8 are allowed")


def _same(before: Cluster, after: Cluster) -> bool:
    return (before.nodes, before.topics, before.controller) == (after.nodes, after.topics, after.controller)
