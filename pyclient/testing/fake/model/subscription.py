"""Subscriptions and assignments of the consumer protocol, decoded and encoded."""
from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyclient.records import TopicPartition
from pyclient.testing.fake.model.consumer_group import ConsumerGroup
from pyclient.testing.fake.model.group import Group



class OversizedError(ValueError):
    """An array's count is negative or exceeds the remaining bytes."""


Malformed: Final = (struct.error, UnicodeDecodeError, OversizedError)
"""Exceptions that reading raises for other bytes."""
OWNED_SINCE: Final = 1
GENERATION_SINCE: Final = 2
RACK_SINCE: Final = 3


class Subscription(NamedTuple):
    """A member's subscription."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    rack: str | None = None


class _Reader:
    """Decodes one message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(f">{kind}", self._data, self._at)
        self._at += struct.calcsize(f">{kind}")
        return int(value)

    def text(self) -> str | None:
        size = self.number("h")
        return None if size < 0 else bytes(self._raw(size)).decode()

    def data(self) -> bytes:
        """Null is empty."""
        return self._raw(max(0, self.number("i")))

    def _raw(self, size: int) -> bytes:
        (found,) = struct.unpack_from(f">{size}s", self._data, self._at)
        self._at += size
        return bytes(found)

    def count(self) -> range:
        """A range over the items of an array."""
        count = self.number("i")
        if not 0 <= count <= len(self._data) - self._at:
            raise OversizedError(f"{count} items in {len(self._data) - self._at} B")
        return range(count)

    def places(self) -> Iterator[TopicPartition]:
        for _ in self.count():
            topic = self.text() or ""
            yield from (TopicPartition(topic, self.number("i")) for _ in self.count())


def read_subscription(metadata: bytes) -> Subscription:
    """Decode a subscription. Raises the exceptions in `Malformed`."""
    reader = _Reader(metadata)
    version = reader.number("h")
    topics = tuple(reader.text() or "" for _ in reader.count())
    reader.data()
    owned = tuple(reader.places()) if version >= OWNED_SINCE else ()
    if version >= GENERATION_SINCE:
        reader.number("i")
    return Subscription(version, topics, owned, reader.text() if version >= RACK_SINCE else None)


def reads(group: Group | ConsumerGroup, topic: str) -> bool:
    """Whether a member subscribed to the topic; also true when a member's metadata is not a subscription."""
    if isinstance(group, ConsumerGroup):
        return group.is_subscribed_to(topic)
    try:
        return any(topic in read_subscription(member.metadata(group.protocol)).topics for member in group.members.values())
    except Malformed:
        return True


def assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; empty bytes have none.

    Raises the exceptions in `Malformed`.
    """
    reader = _Reader(assignment)
    if not assignment:
        return ()
    reader.number("h")
    return tuple(reader.places())


def notes(assignment: bytes) -> bytes:
    """The assignor's user data behind the partitions. Raises as `assigned` does."""
    reader = _Reader(assignment)
    if not assignment:
        return b""
    reader.number("h")
    list(reader.places())
    return reader.data()


def written(places: Iterable[TopicPartition], version: int) -> bytes:
    """An encoded assignment without user data."""
    topics: dict[str, list[int]] = {}
    for each in places:
        topics.setdefault(each.topic, []).append(each.partition)
    out = bytearray(struct.pack(">hi", version, len(topics)))
    for topic, indexes in topics.items():
        name = topic.encode()
        out += struct.pack(f">h{len(name)}si{len(indexes)}i", len(name), name, len(indexes), *sorted(indexes))
    return bytes(out + struct.pack(">i", -1))
