"""Fetch sessions (KIP-227): a client names its partitions once, and then only what changes."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.refusal import RefusalError

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LAST_EPOCH: Final = 2**31 - 1
UNKNOWN: Final = -1
EVICTABLE_AFTER_S: Final = 120.0
"""``min.incremental.fetch.session.eviction.ms``."""

Key: TypeAlias = tuple[str | UUID | None, int]
"""A partition as the request names it: its topic's name or id, and its index."""


class Wish(NamedTuple):
    """What a client wants of one partition."""

    offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int


@attrs.define(eq=False)
class Cached:
    """A partition of a session: the client's wish and the last response."""

    wish: Wish
    high_watermark: int = UNKNOWN
    log_start: int = UNKNOWN

    def is_news(self, fields: Mapping[str, object]) -> bool:
        """Whether the response has to include this partition; its values are kept."""
        before = (self.high_watermark, self.log_start)
        has_failed = fields["error_code"] != 0
        self.high_watermark = int(str(fields["high_watermark"]))
        self.log_start = int(str(fields["log_start_offset"]))
        return bool(has_failed or fields["records"] or before != (self.high_watermark, self.log_start)
                    or "diverging_epoch" in fields or fields.get("preferred_read_replica", UNKNOWN) != UNKNOWN)


@attrs.define(eq=False)
class Session:
    """One client's partitions at one broker, in the order in which they are read."""

    id: int
    by_id: bool
    created: float
    used: float
    size: int
    epoch: int = FIRST_EPOCH + 1
    partitions: dict[Key, Cached] = attrs.field(factory=dict)

    def update(self, wishes: Mapping[Key, Wish], forgotten: Iterable[Key]) -> None:
        """Add partitions, change what is wanted of known ones, drop others."""
        for key, wish in wishes.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = Cached(wish)
            else:
                known.wish = wish
        for key in forgotten:
            self.partitions.pop(key, None)

    def news(self, answers: Mapping[Key, Mapping[str, object]]) -> dict[Key, Mapping[str, object]]:
        """The partitions that the response has to include. One that had records is read last the next time."""
        changed: dict[Key, Mapping[str, object]] = {}
        for key, fields in answers.items():
            cached = self.partitions.get(key)
            if cached is None or not cached.is_news(fields):
                continue
            changed[key] = fields
            if fields["records"]:
                self.partitions[key] = self.partitions.pop(key)
        return changed


class Sessions:
    """The sessions of one broker, at most as many as it has slots; they are lost with it."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def end(self, session_id: int) -> None:
        """The client is done with a session, if it is known at all."""
        self._sessions.pop(session_id, None)

    def expire(self) -> None:
        """Forget every session, as if others had taken their slots."""
        self._sessions.clear()

    def resumed(self, session_id: int, epoch: int, wishes: Mapping[Key, Wish], forgotten: Iterable[Key], *,
                by_id: bool) -> Session | None:
        """The session a request goes on with, its epoch advanced; None when the request leaves no partition in it.

        Raises:
            RefusalError: it is not known, or the request is not its next one.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise RefusalError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise RefusalError(ErrorCode.invalid_fetch_session_epoch)
        if session.by_id != by_id:
            raise RefusalError(ErrorCode.fetch_session_topic_id_error)
        session.update(wishes, forgotten)
        if not session.partitions:
            del self._sessions[session_id]
            return None
        session.size, session.used = len(session.partitions), self._kafka.clock()
        session.epoch = following(session.epoch)
        return session

    def begun(self, wishes: Mapping[Key, Wish], answers: Mapping[Key, Mapping[str, object]], *, by_id: bool) -> int:
        """A new session's id; 0 when there is no slot for it."""
        if len(self._sessions) >= self._kafka.settings.max_incremental_fetch_session_cache_slots and not self._evict(len(answers)):
            return NO_SESSION
        now = self._kafka.clock()
        session = Session(self._free_id(), by_id, created=now, used=now, size=len(answers))
        for key, fields in answers.items():
            session.partitions[key] = cached = Cached(wishes[key])
            cached.is_news(fields)
        self._sessions[session.id] = session
        return session.id

    def _free_id(self) -> int:
        while (chosen := self._kafka.random.randrange(1, LAST_EPOCH)) in self._sessions:
            pass
        return chosen

    def _evict(self, size: int) -> bool:
        """Free a slot: of the session unused for long, else of an old one that is smaller."""
        now = self._kafka.clock()
        oldest = min(self._sessions.values(), key=lambda each: (each.used, each.id), default=None)
        if oldest is not None and now - oldest.used > EVICTABLE_AFTER_S:
            self.end(oldest.id)
            return True
        settled = [each for each in self._sessions.values() if each.used - each.created > EVICTABLE_AFTER_S]
        smallest = min(settled, key=lambda each: (each.size, each.id), default=None)
        if smallest is None or size <= smallest.size:
            return False
        self.end(smallest.id)
        return True


def following(epoch: int) -> int:
    """The epoch of a session's next request; 0 is that of its first one only."""
    return 1 if epoch == LAST_EPOCH else epoch + 1


def sessions_of(kafka: Kafka, broker: int) -> Sessions:
    """The sessions of a broker."""
    parts = kafka.brokers[broker].parts
    found: Sessions | None = parts.get(Sessions)
    if found is None:
        found = parts[Sessions] = Sessions(kafka)
    return found
