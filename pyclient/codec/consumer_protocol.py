"""What the members of a group send each other through the coordinator: subscriptions and assignments.

This is the protocol type ``consumer``: a version, then its fields. Each version only appends fields. So data of a newer
client is decoded as the newest version known here, without the fields it appended. Brokers do not check these bytes, so
every length is checked here. Independent of joining a group and of assignors. Sources: KIP-429 (version 1: owned
partitions), KIP-792 (2: generation), KIP-881 (3: rack).
"""
from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from pyclient.codec.entities import Reader
from pyclient.codec.entity_writer import Writer
from pyclient.codec.schemas import schema_of
from pyclient.descriptions.assignments import Assignment, MemberView
from pyclient.errors import ProtocolError
from pyclient.records import NO_GENERATION, TopicPartition

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type with which consumers join a group."""
_VERSION: Final = struct.Struct(">h")
_NEWEST: Final = 3


def encode_subscription(member: MemberView) -> bytes:
    """A member's subscription as Java encodes it (version 3): topics sorted, owned partitions by topic and number.

    ``instance_id`` is not part of it: the leader gets it from the coordinator.

    Raises:
        ValueError: a number or a name does not fit its field.
    """
    return _encoded("ConsumerProtocolSubscription", {
        "topics": sorted(member.topics), "user_data": member.user_data, "owned_partitions": _by_topic(sorted(member.owned)),
        "generation_id": member.generation, "rack_id": member.rack})


def decode_subscription(data: bytes, instance_id: str | None = None) -> MemberView:
    """A member's subscription of any version; fields that its version lacks have their defaults.

    Topics and partitions are returned as they were sent, including duplicate, unknown or negative ones, except topics
    with control characters in their names.

    Raises:
        ProtocolError: truncated or damaged, or a version below 0.
    """
    read = _decoded("subscription", data)
    return MemberView(
        tuple(filter(str.isprintable, read.topics)), _flat(getattr(read, "owned_partitions", ())), max(NO_GENERATION, getattr(read, "generation_id", NO_GENERATION)),
        instance_id, getattr(read, "rack_id", None) or None, read.user_data)


def encode_assignment(assignment: Assignment) -> bytes:
    """A member's assignment as Java encodes it (version 3): topics and their partitions in the given order.

    Raises:
        ValueError: a number or a name does not fit its field.
    """
    return _encoded("ConsumerProtocolAssignment", {"assigned_partitions": _by_topic(assignment.partitions), "user_data": assignment.user_data})


def decode_assignment(data: bytes) -> Assignment:
    """An assignment of any version.

    Raises:
        ProtocolError: empty, truncated or damaged, or a version below 0.
    """
    read = _decoded("assignment", data)
    return Assignment(_flat(read.assigned_partitions), read.user_data)


def _encoded(name: str, fields: Mapping[str, object]) -> bytes:
    out = Writer()
    out.write(schema_of(name, _NEWEST), fields)
    return _VERSION.pack(_NEWEST) + out.take()


def _decoded(what: str, data: bytes) -> Any:
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a member's {what} begins with a version of 2 B, but this one has only {len(data)} B")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise ProtocolError(f"a member's {what} has version {version}; versions begin at 0")
    try:
        return Reader(data, _VERSION.size).read(schema_of(f"ConsumerProtocol{what.title()}", min(version, _NEWEST)))
    except ProtocolError as error:
        raise ProtocolError(f"a member's {what} of version {version} cannot be decoded: {error}") from error


def _by_topic(partitions: Iterable[TopicPartition]) -> list[Mapping[str, object]]:
    """Each topic once, in the order of its first partition."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in found.items()]


def _flat(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    """Without names that no topic has: members may write control characters, which would get into logs and errors."""
    return tuple(chain.from_iterable((TopicPartition(each.topic, number) for number in each.partitions) for each in topics if each.topic.isprintable()))
