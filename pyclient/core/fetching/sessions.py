# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Fetch sessions (KIP-227): which partitions a broker knows, and which changes the next request must name (C07, C08).

One session per node. Independent of positions, data and time. Its work follows what changes: an unchanged partition
costs nothing in the request, in the response, or here.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pyclient.codec.fetch import FetchedPartition, FetchedTopic, FetchResponse, PartitionRequest
from pyclient.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError, KafkaError
from pyclient.records import TopicPartition

NO_SESSION: Final = 0
FULL: Final = 0
"""The epoch of a request that names every partition, and begins a session if the broker has room for one."""
FINAL: Final = -1
LAST_EPOCH: Final = 2**31 - 1
_NO_SESSION: Final = NO_SESSION
_FULL: Final = FULL


PartitionRequests: TypeAlias = dict[TopicPartition, PartitionRequest]
RequestOf: TypeAlias = Callable[[TopicPartition], PartitionRequest | None]
"""Returns what to request of a partition, or None if it is not to be fetched now."""
PartitionResponse: TypeAlias = tuple[TopicPartition, PartitionRequest, FetchedPartition]
"""A partition of a response: its name, what was requested, and the broker's data."""


class SessionRequest:
    """The session's part of one fetch request. Never changed."""

    def __init__(self, session_id: int, epoch: int, partitions: PartitionRequests, forgotten: PartitionRequests, by_name: bool,
                 all_partitions: PartitionRequests) -> None:
        self.id = session_id
        self.epoch = epoch
        self.partitions = partitions
        """All partitions, or in a session the new and changed ones; in the order in which they are to be read."""
        self.forgotten = forgotten
        """Partitions to remove from the session, as last requested; of a topic that was created again by its old id."""
        self.by_name = by_name
        """Some topic has no id: before version 13 only."""
        self.all_partitions = all_partitions
        """All partitions that are fetched, for a broker that proves too old for sessions."""

    def forgets(self, by_id: bool) -> list[tuple[TopicPartition, PartitionRequest]]:
        """What the broker is to drop; a new session has nothing to drop.

        By name it would also drop what the same request adds.
        """
        if self.epoch == FULL:
            return []
        return [(tp, requested) for tp, requested in self.forgotten.items() if by_id or tp not in self.partitions]


class SessionTopic:
    """A topic with an id, and those of its partitions that are in a session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_number: dict[int, TopicPartition] = {}


class Session:
    """The session at one node. `add` and `remove` collect changes; `next_request` makes the request that names them."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = FULL
        self.partitions: dict[TopicPartition, PartitionRequest] = {}
        """As last sent to the broker, those that were served last at the end."""
        self._added: dict[TopicPartition, None] = {}  # or changed, since the last request
        self._removed: dict[TopicPartition, None] = {}  # of `partitions`, since the last request
        self._topics: dict[bytes, SessionTopic] = {}  # by the bytes of their ids
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

    def reads(self) -> bool:
        """Whether a request now would read anything. While none does, removals wait: an empty session ends."""
        return bool(self._added) or len(self.partitions) > len(self._removed)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def next_request(self, request_of: RequestOf) -> SessionRequest | None:
        """The next request, or None when it would read nothing."""
        changes = self._changes(request_of)
        if not changes and len(self.partitions) <= len(self._removed):
            return None
        forgotten = self._drop_removed()
        for tp, new in changes.items():
            if tp in self.partitions:
                old = self._drop(tp)
                if old.topic_id != new.topic_id:
                    forgotten[tp] = old
            self._store(tp, new)
        if bool(self._nameless) != self._by_name:
            self.renew()  # a session stays by name or by id
        if self.epoch == _FULL:
            self._by_name = bool(self._nameless)
            changes = self.partitions
        return SessionRequest(self.id, self.epoch, changes, forgotten, self._by_name, self.partitions)

    def _drop_removed(self) -> PartitionRequests:
        removed, self._removed = self._removed, {}
        return {tp: self._drop(tp) for tp in removed}

    def _changes(self, request_of: RequestOf) -> dict[TopicPartition, PartitionRequest]:
        added, self._added = self._added, {}
        changes: PartitionRequests = {}
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
        return SessionRequest(self.id, FINAL, {}, {}, self._by_name, {})

    # ---- responses --------------------------------------------------------------------------------------------------

    def on_response(self, message: FetchResponse) -> list[PartitionResponse]:
        """The requested partitions of a response.

        A response that does not fit the session ends it, but its data of requested partitions is used all the same.
        """
        partitions, unexpected = self._read(message)
        if self.epoch == _FULL:
            self._begin(message.session_id, not unexpected and len(partitions) == len(self.partitions))
        elif message.session_id == _NO_SESSION:
            self._forget()
        elif unexpected or message.session_id != self.id:
            self.renew()
        else:
            self.epoch = following(self.epoch)
        return partitions

    def _begin(self, session_id: int, fits: bool) -> None:
        self.id = session_id
        self.epoch = following(_FULL) if fits and session_id != _NO_SESSION else _FULL

    def _read(self, message: FetchResponse) -> tuple[list[PartitionResponse], int]:
        """The requested partitions, and how many others there are."""
        partitions: list[PartitionResponse] = []
        unexpected = 0
        for topic in message.topics:
            for data in topic.partitions:
                tp = self._named(topic, data.partition_index)
                requested = None if tp is None else self.partitions.get(tp)
                if tp is None or requested is None or (topic.id is not None and topic.id != requested.topic_id):
                    unexpected += 1
                else:
                    partitions.append((tp, requested, data))
        return partitions, unexpected

    def _named(self, topic: FetchedTopic, number: int) -> TopicPartition | None:
        """The partition of a response; None if its topic's id is not in the session."""
        if topic.name is not None:
            return TopicPartition(topic.name, number)
        known = None if topic.id is None else self._topics.get(topic.id)
        return None if known is None else known.by_number.get(number)

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
        self.epoch = _FULL

    def _forget(self) -> None:
        self.id, self.epoch = _NO_SESSION, _FULL

    # ---- partitions and their topics --------------------------------------------------------------------------------

    def _store(self, tp: TopicPartition, requested: PartitionRequest) -> None:
        self.partitions[tp] = requested
        if requested.topic_id is None:
            self._nameless += 1
        else:
            known = self._topics.get(requested.topic_id)
            if known is None:
                known = self._topics[requested.topic_id] = SessionTopic(tp.topic)
            known.by_number[tp.partition] = tp

    def _drop(self, tp: TopicPartition) -> PartitionRequest:
        requested: PartitionRequest = self.partitions.pop(tp)
        if requested.topic_id is None:
            self._nameless -= 1
        else:
            known = self._topics[requested.topic_id]
            del known.by_number[tp.partition]
            if not known.by_number:
                del self._topics[requested.topic_id]
        return requested


def following(epoch: int) -> int:
    """The epoch of the next request of a session."""
    return 1 if epoch == LAST_EPOCH else epoch + 1
