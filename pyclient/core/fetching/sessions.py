"""Fetch sessions (KIP-227): which partitions a broker knows, and which changes the next request must name (C07, C08).

One session per node. Knows partitions and what is wanted of each; knows no positions, no requests and no time. Its work
follows what changes: a partition that stays as it was costs nothing, in the request, in the answer, or here.
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


class Wish(NamedTuple):
    """What is wanted of one partition. *generation* is not sent: it says to which seek or assignment the response belongs."""

    offset: int
    generation: int
    leader_epoch: int
    last_epoch: int
    topic_id: UUID | None


PartitionAnswer: TypeAlias = tuple[TopicPartition, Wish, Any]
"""A partition of a response: its name, what was requested, and the broker's data."""


@attrs.frozen(kw_only=True)
class Asking:
    """What one request says of its session."""

    id: int
    epoch: int
    wishes: Mapping[TopicPartition, Wish]
    """All partitions, or in a session those that are new or wanted otherwise; in the order in which they are to be read."""
    forgotten: Mapping[TopicPartition, Wish]
    """What is not wanted any more, as it was wanted last; of a topic that was created again what was wanted of the old one."""
    by_name: bool
    """Some topic has no id: before version 13 only."""
    everything: Mapping[TopicPartition, Wish]
    """All that is to be read: what to say to a broker that proves too old for sessions."""

    def forgets(self, *, by_id: bool) -> list[tuple[TopicPartition, Wish]]:
        """What the broker is to drop; a new session has nothing to drop. By name it would also drop what the same request adds."""
        if self.epoch == FULL:
            return []
        return [(tp, wish) for tp, wish in self.forgotten.items() if by_id or tp not in self.wishes]


@attrs.define(eq=False)
class _Topic:
    name: str
    partitions: int = 0


class Session:
    """The session at one node. `want` and `leave` say what shall change; `next` makes the request that says so."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = FULL
        self.partitions: dict[TopicPartition, Wish] = {}
        """As last sent to the broker, those that were served last at the end."""
        self._wanted: dict[TopicPartition, None] = {}
        self._left: dict[TopicPartition, None] = {}  # of `partitions`
        self._topics: dict[UUID, _Topic] = {}
        self._nameless = 0  # partitions of topics without an id
        self._by_name = False

    def __repr__(self) -> str:
        return (f"<Session {self.id} epoch {self.epoch}: {len(self.partitions)} partitions, "
                f"{len(self._wanted)} to add or change, {len(self._left)} to forget>")

    # ---- what shall change ------------------------------------------------------------------------------------------

    def want(self, tp: TopicPartition) -> None:
        """Read this partition from the next request on, or read it otherwise than until now."""
        self._left.pop(tp, None)
        self._wanted[tp] = None

    def leave(self, tp: TopicPartition) -> None:
        """Do not read this partition any more."""
        self._wanted.pop(tp, None)
        if tp in self.partitions:
            self._left[tp] = None

    @property
    def wanted(self) -> tuple[TopicPartition, ...]:
        """What `want` named since the last request."""
        return tuple(self._wanted)

    @property
    def reads(self) -> bool:
        """Whether a request now would read anything. While none does, what is to be forgotten waits: an empty session ends."""
        return bool(self._wanted) or len(self.partitions) > len(self._left)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def next(self, wish: Callable[[TopicPartition], Wish | None]) -> Asking | None:
        """What the next request says, or None when it would read nothing. *wish* gives None for what is not to be read after all."""
        news = self._news(wish)
        if not news and len(self.partitions) <= len(self._left):
            return None
        forgotten = {tp: self._drop(tp) for tp in self._left}
        self._left = {}
        for tp, new in news.items():
            if tp in self.partitions:
                old = self._drop(tp)
                if old.topic_id != new.topic_id:
                    forgotten[tp] = old
            self._hold(tp, new)
        if bool(self._nameless) != self._by_name:
            self.renew()  # a session stays by name or by id
        if self.epoch == FULL:
            self._by_name = bool(self._nameless)
            news = self.partitions
        return Asking(id=self.id, epoch=self.epoch, wishes=news, forgotten=forgotten, by_name=self._by_name,
                      everything=self.partitions)

    def _news(self, wish: Callable[[TopicPartition], Wish | None]) -> dict[TopicPartition, Wish]:
        wanted, self._wanted = self._wanted, {}
        news = {}
        for tp in wanted:
            new = wish(tp)
            if new is None:
                self.leave(tp)
            elif new != self.partitions.get(tp):
                news[tp] = new
        return news

    def farewell(self) -> Asking | None:
        """What ends the session, if there is one; nothing can be asked after that."""
        if self.id == NO_SESSION:
            return None
        return Asking(id=self.id, epoch=FINAL, wishes={}, forgotten={}, by_name=self._by_name, everything={})

    # ---- responses --------------------------------------------------------------------------------------------------

    def answered(self, message: Any) -> list[PartitionAnswer]:
        """The requested partitions of a response. One that does not fit the session ends it, but its data of requested partitions
        is used all the same."""
        answers, unexpected = self._read(message)
        given: int = getattr(message, "session_id", NO_SESSION)  # since version 7
        if self.epoch == FULL:
            self._begun(given, fits=not unexpected and len(answers) == len(self.partitions))
        elif given == NO_SESSION:
            self._forget()
        elif unexpected or given != self.id:
            self.renew()
        else:
            self.epoch = following(self.epoch)
        return answers

    def _begun(self, given: int, *, fits: bool) -> None:
        self.id = given
        self.epoch = following(FULL) if fits and given != NO_SESSION else FULL

    def _read(self, message: Any) -> tuple[list[PartitionAnswer], int]:
        answers, unexpected = [], 0
        for topic in message.responses:
            by_name = hasattr(topic, "topic")
            known = None if by_name else self._topics.get(topic.topic_id)
            name = topic.topic if by_name else known.name if known is not None else ""
            for part in topic.partitions:
                tp = TopicPartition(name, part.partition_index)
                wish = self.partitions.get(tp)
                if wish is None or not (by_name or wish.topic_id == topic.topic_id):
                    unexpected += 1
                else:
                    answers.append((tp, wish, part))
        return answers, unexpected

    def refused(self, error: KafkaError) -> bool:
        """The broker says that the session is not as we believe: the next request begins another. False: it says something else."""
        match error:
            case FetchSessionIdNotFoundError():
                self._forget()
            case InvalidFetchSessionEpochError() | FetchSessionTopicIdError():
                self.renew()
            case _:
                return False
        return True

    def renew(self) -> None:
        """It is unknown what the broker has processed: the next request begins another session, and ends this one by naming it."""
        self.epoch = FULL

    def _forget(self) -> None:
        self.id, self.epoch = NO_SESSION, FULL

    # ---- partitions and their topics --------------------------------------------------------------------------------

    def _hold(self, tp: TopicPartition, wish: Wish) -> None:
        self.partitions[tp] = wish
        if wish.topic_id is None:
            self._nameless += 1
        else:
            self._topics.setdefault(wish.topic_id, _Topic(tp.topic)).partitions += 1

    def _drop(self, tp: TopicPartition) -> Wish:
        wish = self.partitions.pop(tp)
        if wish.topic_id is None:
            self._nameless -= 1
        else:
            topic = self._topics[wish.topic_id]
            topic.partitions -= 1
            if not topic.partitions:
                del self._topics[wish.topic_id]
        return wish


def following(epoch: int) -> int:
    """The epoch of the next request of a session."""
    return 1 if epoch == LAST_EPOCH else epoch + 1
