"""A minimal model of fetch sessions at a broker (KIP-227), for tests that play the broker."""
from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import attrs

from pyclient.codec.fetch import TOPIC_IDS_SINCE
from pyclient.testing.fake.handlers.sessions import Key

NOT_FOUND, INVALID_EPOCH, TOPIC_ID_ERROR = 70, 71, 106


class Want(NamedTuple):
    """What a broker knows of a wish."""

    offset: int
    leader_epoch: int


class Answer(NamedTuple):
    """What a broker reads for a request; *code* is the error of the whole."""

    code: int = 0
    session: int = 0
    reads: dict[Key, Want] = {}  # noqa: RUF012 never written to
    reported: tuple[Key, ...] = ()


class Broker(Protocol):
    """Sessions as brokers keep them."""

    room: bool

    def answer(self, body: Any, version: int) -> Answer:
        """What the request reads, and which partitions its response has."""

    def restart(self) -> None:
        """Forget everything."""


@attrs.define(eq=False)
class Kept:
    epoch: int
    by_id: bool
    wants: dict[Key, Want]


@attrs.define
class Model:
    """The sessions of one broker; it fails on a request that no broker should get."""

    room: bool = True
    kept: dict[int, Kept] = attrs.field(factory=dict)
    given: int = 0

    def answer(self, body: Any, version: int) -> Answer:
        wants, by_id = wishes(body, version), version >= TOPIC_IDS_SINCE
        number, epoch = body.session_id, body.session_epoch
        if epoch in (0, -1):
            self.kept.pop(number, None)
            if epoch == 0 and self.room and wants:
                self.given += 1
                self.kept[self.given] = Kept(1, by_id, dict(wants))
                return Answer(0, self.given, wants, tuple(wants))
            return Answer(0, 0, wants, tuple(wants))
        kept = self.kept.get(number)
        if kept is None:
            return Answer(NOT_FOUND)
        if kept.epoch != epoch:
            return Answer(INVALID_EPOCH)
        if kept.by_id != by_id:
            return Answer(TOPIC_ID_ERROR)
        kept.wants.update(wants)
        for key in forgotten(body, version):
            del kept.wants[key]  # KeyError: it was never sent
        assert kept.wants, "an empty session ends: no request may read nothing"
        kept.epoch += 1
        return Answer(0, number, dict(kept.wants), tuple(wants))

    def restart(self) -> None:
        self.kept.clear()


def name(version: int) -> str:
    return "topic_id" if version >= TOPIC_IDS_SINCE else "topic"


def wishes(body: Any, version: int) -> dict[Key, Want]:
    return {(getattr(topic, name(version)), part.partition): Want(part.fetch_offset, getattr(part, "current_leader_epoch", -1))
            for topic in body.topics for part in topic.partitions}


def forgotten(body: Any, version: int) -> list[Key]:
    return [(getattr(topic, name(version)), number) for topic in body.forgotten_topics_data for number in topic.partitions]
