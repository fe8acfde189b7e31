"""What the members of a consumer group want and get, read from the bytes they and their leader sent."""
from __future__ import annotations

import struct
from collections.abc import Iterator

from pyclient.records import TopicPartition
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


def assigned(assignment: bytes) -> Iterator[TopicPartition]:
    """``version: int16, topics: array of (string, array of int32)``, the same in every version.

    Raises:
        struct.error, UnicodeDecodeError: it is something else.
    """
    if not assignment:
        return
    (count,) = struct.unpack_from(">i", assignment, 2)
    at = 6
    for _ in range(count):
        (size,) = struct.unpack_from(">h", assignment, at)
        topic = assignment[at + 2:at + 2 + size].decode()
        (parts,) = struct.unpack_from(">i", assignment, at + 2 + size)
        at += 6 + size
        yield from (TopicPartition(topic, index) for index in struct.unpack_from(f">{parts}i", assignment, at))
        at += 4 * parts
