# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The topics that metadata is requested for: by name (M01) and by id (N09).

Independent of requests and answers.
"""
from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from pyclient.codec.apis import VersionRange
from pyclient.core.backoff import Backoff
from pyclient.errors import InvalidTopicError

TOPIC_NAME_LIMIT: Final = 249
BY_ID: Final = VersionRange(12, 99)
"""The versions of Metadata that take an id without a name."""
PINNED: Final = float("inf")
_PINNED: Final = PINNED


class Scope(enum.Enum):
    """Which topics a full request is about."""

    NAMED = "the topics in use"
    ALL_NEW = "all topics, not requested yet"
    ALL = "all topics"


class TopicInterest:
    """The topics in use, by name. One that is not pinned is dropped after *max_idle* seconds without use."""

    def __init__(self, max_idle: float) -> None:
        self.used: dict[str, float] = {}
        """When each topic was last used; `PINNED` while an owner pins it."""
        self.new: set[str] = set()
        """Those of them that were never requested."""
        self.scope = Scope.NAMED
        self._max_idle = max_idle
        self._pins: dict[str, tuple[str, ...]] = {}  # by owner

    @property
    def unrequested(self) -> bool:
        """Whether something is wanted that no request was about; it does not wait for a back-off."""
        return bool(self.new) or self.scope is Scope.ALL_NEW

    def want(self, topic: str, now: float) -> bool:
        """*topic* is in use; whether it is new.

        Raises:
            TypeError, InvalidTopicError: no request could carry the name; nothing has changed.
        """
        last = self.used.get(topic)
        if last is None:
            check_topic_name(topic)
            self.new.add(topic)
            self.used[topic] = now
            return True
        since = last
        if since < now and since != _PINNED:
            self.used[topic] = now
        return False

    def pin(self, topics: Iterable[str], owner: str) -> None:
        """Keep exactly these topics for *owner*, and drop pinned ones that have no owner left.

        Raises:
            TypeError, InvalidTopicError: no request could carry one of the names; nothing has changed.
        """
        own = tuple(topics)
        for topic in own:
            check_topic_name(topic)
        self._pins[owner] = own
        pinned = dict.fromkeys(topic for topics in self._pins.values() for topic in topics)
        self._drop([topic for topic, last in self.used.items() if last == PINNED and topic not in pinned])
        self.new.update(topic for topic in pinned if topic not in self.used)
        self.used.update(dict.fromkeys(pinned, PINNED))

    def follow_all(self, wanted: bool) -> None:
        """Whether full requests are about every topic of the cluster. The first such request is due at once."""
        if not wanted:
            self.scope = Scope.NAMED
        elif self.scope is Scope.NAMED:
            self.scope = Scope.ALL_NEW

    def take_new(self) -> list[str]:
        """The topics of a partial request, which is about new ones only."""
        names = sorted(self.new)
        self.new.clear()
        return names

    def take_all(self, now: float) -> list[str] | None:
        """The topics of a full request, None for every topic there is. Idle ones are dropped first."""
        self._drop([topic for topic, last in self.used.items() if last + self._max_idle < now])
        self.new.clear()
        if self.scope is Scope.NAMED:
            return sorted(self.used)
        self.scope = Scope.ALL
        return None

    def _drop(self, topics: Iterable[str]) -> None:
        for topic in topics:
            del self.used[topic]
            self.new.discard(topic)


class WantedIds:
    """Topic ids whose names are wanted. Brokers ignore names in a request that also has ids, so ids are requested
    separately, with a back-off of their own."""

    def __init__(self, backoff: Backoff) -> None:
        self.in_flight = False
        """A request for them is not answered yet."""
        self._backoff = backoff
        self._wanted: frozenset[UUID] = frozenset()
        self._new = False  # some were never requested
        self._fruitless = 0
        self._not_before = 0.0

    def want(self, ids: Iterable[UUID]) -> None:
        """These and no others. New ones are requested at once."""
        wanted = frozenset(ids)
        if not wanted <= self._wanted:
            self._new, self._fruitless = True, 0
        self._wanted = wanted

    def unknown(self, names: Mapping[UUID, str]) -> list[UUID]:
        """Those that have no name yet."""
        return sorted(each for each in self._wanted if each not in names) if self._wanted else []

    def due(self, now: float, names: Mapping[UUID, str]) -> list[UUID]:
        """Those to request now."""
        return self.unknown(names) if self._new or now >= self._not_before else []

    def deadline(self, names: Mapping[UUID, str]) -> float | None:
        """When the next request is due; None while every name is known."""
        if not self.unknown(names):
            return None
        return 0.0 if self._new else self._not_before

    def requested(self) -> None:
        """A request with all that are due is under way."""
        self.in_flight, self._new = True, False

    def answered(self, now: float) -> None:
        """The request has ended, answered or failed. Ids that still have no name wait longer each time."""
        self.in_flight = False
        self._fruitless += 1
        self._not_before = now + self._backoff.after(self._fruitless)


def check_topic_name(name: object) -> None:
    """Refuse a name that no request can carry: it would fail the request, and with it every other topic.

    Which characters are allowed is left to the brokers: they answer with an error for each topic.
    """
    if not isinstance(name, str):
        raise TypeError(f"expected a topic name as str, got {type(name).__name__}: {name!r}")
    size = len(name.encode(errors="surrogatepass"))
    if not name or size > TOPIC_NAME_LIMIT or any("\ud800" <= sign <= "\udfff" for sign in name):
        shown = repr(name if size <= TOPIC_NAME_LIMIT else name[:20] + "…")
        raise InvalidTopicError(
            f"topic name {shown} has {size} B: use 1 to {TOPIC_NAME_LIMIT} B of valid UTF-8; no request can carry others")
