"""The user data that sticky assignors send with a subscription, and read from members of any client.

``sticky`` sends the partitions that its member owned, and their generation. ``cooperative-sticky`` sends only the
generation, as the subscription itself lists the partitions. Data that cannot be decoded counts as none: one member must
not stop its group.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyclient.assignors.javas_order import hash_code, hash_order
from pyclient.assignors.ownership import Claim
from pyclient.codec.entities import Reader
from pyclient.codec.entity_writer import Writer
from pyclient.codec.schemas import schema_in
from pyclient.errors import ProtocolError
from pyclient.records import NO_GENERATION, TopicPartition

_PREVIOUS: Final = """
Previous 0-1
 previous_assignment []TopicPartitions
  topic string
  partitions []int32
 generation int32 1
"""
"""The partitions that a member owned, and since version 1 in which generation; the data do not say their version."""
_VERSION_0: Final = schema_in(_PREVIOUS, 0)
_VERSION_1: Final = schema_in(_PREVIOUS, 1)
GENERATION_SIZE: Final = 4


def encode_previous(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    """Encode like Java's StickyAssignor: topics in the order of a HashMap, partitions in the given order."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    latest_first = hash_order(list(reversed(numbers)), hash_code)  # Java puts each new topic at the head of its bucket
    out = Writer()
    out.write(_VERSION_1, {
        "previous_assignment": [{"topic": topic, "partitions": numbers[topic]} for topic in latest_first], "generation": generation})
    return out.take()


def decode_previous(data: bytes | None) -> Claim:
    """The claim of a member that uses ``sticky``, of either version; empty if it cannot be decoded."""
    for version in (_VERSION_1, _VERSION_0):
        try:
            read = Reader(data or b"").read(version)
        except ProtocolError:
            continue
        previous = tuple(TopicPartition(each.topic, number) for each in read.previous_assignment for number in each.partitions)
        return Claim(previous, getattr(read, "generation", NO_GENERATION))
    return Claim((), NO_GENERATION)


def encode_generation(generation: int) -> bytes:
    """Encode like Java's CooperativeStickyAssignor."""
    return generation.to_bytes(GENERATION_SIZE, "big", signed=True)


def decode_generation(data: bytes | None) -> int:
    """The generation that a member sends with ``cooperative-sticky``; -1 if there is none."""
    if data is None or len(data) < GENERATION_SIZE:
        return NO_GENERATION
    return int.from_bytes(data[:GENERATION_SIZE], "big", signed=True)
