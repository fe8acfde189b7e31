"""The user data that sticky assignors send with a subscription, and read from members of any client.

``sticky`` sends the partitions that its member owned, and their generation. ``cooperative-sticky`` sends only the
generation, as the subscription itself lists the partitions. Data that cannot be decoded counts as none: one member must
not stop its group.
"""
# No `from __future__ import annotations` here: codec.entities reads the types of the fields.
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.consumer_protocol_assignment.v3.data import TopicPartition as TopicPartitions
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

from pyclient.assignors.javas_order import hash_code, hash_order
from pyclient.assignors.ownership import Claim
from pyclient.codec.entities import Reader
from pyclient.codec.entity_writer import Writer
from pyclient.errors import ProtocolError
from pyclient.records import NO_GENERATION, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousV0:
    """The partitions that a member owned, from clients that do not send the generation."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    previous_assignment: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousV1(PreviousV0):
    """The partitions that a member owned, and in which generation."""

    __version__: ClassVar[i16] = i16(1)
    generation: i32 = field(metadata={"kafka_type": "int32"})


GENERATION_SIZE: Final = 4


def encode_previous(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    """Encode like Java's StickyAssignor: topics in the order of a HashMap, partitions in the given order."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    latest_first = hash_order(list(reversed(numbers)), hash_code)  # Java puts each new topic at the head of its bucket
    out = Writer()
    out.write(PreviousV1, {
        "previous_assignment": [{"topic": topic, "partitions": numbers[topic]} for topic in latest_first], "generation": generation})
    return out.take()


def decode_previous(data: bytes | None) -> Claim:
    """The claim of a member that uses ``sticky``, of either version; empty if it cannot be decoded."""
    for version in (PreviousV1, PreviousV0):
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
