"""Fetch sessions (KIP-227): which partitions a broker knows, and which changes the next request must name (C07, C08).

One session per node. Independent of positions, data and time. Its work
follows what changes: an unchanged partition costs nothing in the request, in the response, or here.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import attrs

from pyclient.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError, KafkaError
from pyclient.records import TopicPartition

NO_SESSION: Final = 0
FULL: Final = 0
"""The epoch of a request that names every partition, and begins a session if the broker has room for one."""
FINAL: Final = -1
LAST_EPOCH: Final = 2**31 - 1


class PartitionRequest(NamedTuple):
    """What is requested of one partition. *generation*, of the seek or assignment, is not sent."""

    offset: int
    generation: int
    leader_epoch: int
    last_epoch: int
    topic_id: UUID | None


RequestOf: TypeAlias = Callable[[TopicPartition], PartitionRequest | None]
"""Returns what to request of a partition, or None if it is not to be fetched now."""
PartitionResponse: TypeAlias = tuple[TopicPartition, PartitionRequest, Any]
"""A partition of a response: its name, what was requested, and the broker's data."""


@attrs.define(kw_only=True)  # not frozen: one is made for each fetch, and that takes three times as long
class SessionRequest:
    """The session's part of one fetch request. Never changed."""

    id: int
    epoch: int
    partitions: Mapping[TopicPartition, PartitionRequest]
    """All partitions, or in a session the new and changed ones; in the order in which they are to be read."""
    forgotten: Mapping[TopicPartition, PartitionRequest]
    """Partitions to remove from the session, as last requested; of a topic that was created again, with its old id."""
    by_name: bool
    """Some topic has no id: before version 13 only."""
    all_partitions: Mapping[TopicPartition, PartitionRequest]
    """All partitions that are fetched, for a broker that proves too old for sessions."""

    def forgets(self, *, by_id: bool) -> list[tuple[TopicPartition, PartitionRequest]]:
        """What the broker is to drop; a new session has nothing to drop.

        By name it would also drop what the same request adds.
        """
        if self.epoch == FULL:
            return []
        return [(tp, requested) for tp, requested in self.forgotten.items() if by_id or tp not in self.partitions]


@attrs.define(eq=False)
class _Topic:
    name: str
    partitions: int = 0


class Session:
    """The session at one node. `add` and `remove` collect changes; `next_request` makes the request that names them."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = FULL
        self.partitions: dict[TopicPartition, PartitionRequest] = {}
        """As last sent to the broker, those that were served last at the end."""
        self._added: dict[TopicPartition, None] = {}  # or changed, since the last request
        self._removed: dict[TopicPartition, None] = {}  # of `partitions`, since the last request
        self._topics: dict[bytes, _Topic] = {}  # by the bytes of their ids
        self._nameless = 0  # partitions of topics without an id
        self._by_name = False

    def __repr__(self) -> str:
        return (f"<Session {self.id} epoch {self.epoch}: {len(self.partitions)} partitions, "
                f"{len(self._added)} to add or change, {len(self._removed)} to forget>")

    # ---- changes ----------------------------------------------------------------------------------------------------

    def add(self, tp: TopicPartition) -> None:
        """Fetch this partition from the next request on, or change what is requested of it."""
        self._removed.pop(tp, None)
        self._added[tp] = None

    def remove(self, tp: TopicPartition) -> None:
        """Do not fetch this partition any more."""
        self._added.pop(tp, None)
        if tp in self.partitions:
            self._removed[tp] = None

    @property
    def pending(self) -> tuple[TopicPartition, ...]:
        """What was added or changed since the last request."""
        return tuple(self._added)

    @property
    def reads(self) -> bool:
        """Whether a request now would read anything. While none does, removals wait: an empty session ends."""
        return bool(self._added) or len(self.partitions) > len(self._removed)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def next_request(self, request_of: RequestOf) -> SessionRequest | None:
        """The next request, or None when it would read nothing."""
        changes = self._changes(request_of)
        if not changes and len(self.partitions) <= len(self._removed):
            return None
        forgotten = {tp: self._drop(tp) for tp in self._removed}
        self._removed = {}
        for tp, new in changes.items():
            if tp in self.partitions:
                old = self._drop(tp)
                if old.topic_id != new.topic_id:
                    forgotten[tp] = old
            self._store(tp, new)
        if bool(self._nameless) != self._by_name:
            self.renew()  # a session stays by name or by id
        if self.epoch == FULL:
            self._by_name = bool(self._nameless)
            changes = self.partitions
        return SessionRequest(id=self.id, epoch=self.epoch, partitions=changes, forgotten=forgotten, by_name=self._by_name,
                              all_partitions=self.partitions)

    def _changes(self, request_of: RequestOf) -> dict[TopicPartition, PartitionRequest]:
        added, self._added = self._added, {}
        changes = {}
        for tp in added:
            new = request_of(tp)
            if new is None:
                self.remove(tp)
            elif new != self.partitions.get(tp):
                changes[tp] = new
        return changes

    def closing_request(self) -> SessionRequest | None:
        """What ends the session, if there is one; no request of it can follow."""
        if self.id == NO_SESSION:
            return None
        return SessionRequest(id=self.id, epoch=FINAL, partitions={}, forgotten={}, by_name=self._by_name, all_partitions={})

    # ---- responses --------------------------------------------------------------------------------------------------

    def on_response(self, message: Any) -> list[PartitionResponse]:
        """The requested partitions of a response.

        A response that does not fit the session ends it, but its data of requested partitions is used all the same.
        """
        partitions, unexpected = self._read(message)
        session_id: int = getattr(message, "session_id", NO_SESSION)  # since version 7
        if self.epoch == FULL:
            fits = not unexpected and len(partitions) == len(self.partitions)
            self._begin(session_id, fits=fits)
        elif session_id == NO_SESSION:
            self._forget()
        elif unexpected or session_id != self.id:
            self.renew()
        else:
            self.epoch = following(self.epoch)
        return partitions

    def _begin(self, session_id: int, *, fits: bool) -> None:
        self.id = session_id
        self.epoch = following(FULL) if fits and session_id != NO_SESSION else FULL

    def _read(self, message: Any) -> tuple[list[PartitionResponse], int]:
        """The requested partitions, and how many others there are."""
        partitions, unexpected = [], 0
        for topic in message.responses:
            by_name = hasattr(topic, "topic")
            known = None if by_name or topic.topic_id is None else self._topics.get(topic.topic_id.bytes)
            name = topic.topic if by_name else known.name if known is not None else ""
            for data in topic.partitions:
                tp = TopicPartition(name, data.partition_index)
                requested = self.partitions.get(tp)
                if requested is None or not (by_name or requested.topic_id == topic.topic_id):
                    unexpected += 1
                else:
                    partitions.append((tp, requested, data))
        return partitions, unexpected

    def on_error(self, error: KafkaError) -> bool:
        """Whether it is an error of the session: then the next request begins another session."""
        match error:
            case FetchSessionIdNotFoundError():
                self._forget()
            case InvalidFetchSessionEpochError() | FetchSessionTopicIdError():
                self.renew()
            case _:
                return False
        return True

    def renew(self) -> None:
        """Unknown what the broker has processed: the next request begins another session and ends this one."""
        self.epoch = FULL

    def _forget(self) -> None:
        self.id, self.epoch = NO_SESSION, FULL

    # ---- partitions and their topics --------------------------------------------------------------------------------

    def _store(self, tp: TopicPartition, requested: PartitionRequest) -> None:
        self.partitions[tp] = requested
        if requested.topic_id is None:
            self._nameless += 1
        else:
            self._topics.setdefault(requested.topic_id.bytes, _Topic(tp.topic)).partitions += 1

    def _drop(self, tp: TopicPartition) -> PartitionRequest:
        requested = self.partitions.pop(tp)
        if requested.topic_id is None:
            self._nameless -= 1
        else:
            topic = self._topics[requested.topic_id.bytes]
            topic.partitions -= 1
            if not topic.partitions:
                del self._topics[requested.topic_id.bytes]
        return requested


def following(epoch: int) -> int:
    """The epoch of the next request of a session."""
    return 1 if epoch == LAST_EPOCH else epoch + 1
