"""What the members of a consumer group subscribed to, read from the metadata they joined with."""
from __future__ import annotations

import struct
from collections.abc import Iterator

from pyclient.testing.fake.group import Group


def reads(group: Group, topic: str) -> bool:
    """Whether any member subscribed to the topic; assumed of members whose metadata is no consumer's."""
    try:
        return any(topic in _topics(member.metadata(group.protocol)) for member in group.members.values())
    except (struct.error, UnicodeDecodeError):
        return True


def _topics(metadata: bytes) -> Iterator[str]:
    """``version: int16, topics: array of string``, the same in every version."""
    (count,) = struct.unpack_from(">i", metadata, 2)
    at = 6
    for _ in range(count):
        (size,) = struct.unpack_from(">h", metadata, at)
        yield metadata[at + 2:at + 2 + size].decode()
        at += 2 + size
