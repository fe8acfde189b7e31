"""Partitions, offsets and topics as users may write them: checked before anything is done with them."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from pyclient.core.group.subscription import Subscription
from pyclient.core.topic_interest import check_topic_name
from pyclient.records import OffsetAndMetadata, SubscriptionPattern, TopicPartition

MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1
MAX_EPOCH: Final = 2**31 - 1
MAX_NOTE_BYTES: Final = 2**15 - 1
"""A broker hangs up on a longer string instead of refusing it."""


def as_partition(given: object) -> TopicPartition:
    """A partition as users may write it, checked: what cannot be sent would stop every request it is part of."""
    match given:
        case (str(topic), int(number)) if topic and 0 <= number <= MAX_PARTITION:
            return TopicPartition(topic, number)
    raise ValueError(f"{given!r} is no partition: give TopicPartition(topic, number), with a number from 0 on")


def as_partitions(given: Iterable[object]) -> list[TopicPartition]:
    """Partitions as users may write them, checked."""
    return [as_partition(each) for each in given]


def as_offsets(offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Plain numbers or `OffsetAndMetadata`, checked."""
    return {as_partition(where): _as_position(where, given) for where, given in offsets.items()}


def _as_position(where: TopicPartition, given: object) -> OffsetAndMetadata:
    match given:
        case int():
            position = OffsetAndMetadata(given)
        case OffsetAndMetadata(offset=int(), metadata=str(), leader_epoch=None | int()):
            position = given
        case _:
            raise ValueError(f"{given!r} is no position of {where}: give an offset or OffsetAndMetadata")
    if not 0 <= position.offset <= MAX_OFFSET:
        raise ValueError(f"offset {position.offset} of {where} is negative or too large: commit the offset of the next record to read")
    if position.leader_epoch is not None and not 0 <= position.leader_epoch <= MAX_EPOCH:
        raise ValueError(f"leader epoch {position.leader_epoch} of {where} is negative or too large: leave it out when it is not known")
    if len(position.metadata.encode()) > MAX_NOTE_BYTES:
        raise ValueError(f"the metadata of {where} is longer than {MAX_NOTE_BYTES} bytes: brokers take at most "
                         "offset.metadata.max.bytes, by default 4096")
    return position


def check_offset(offset: object) -> None:
    if not isinstance(offset, int) or not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"offset {offset!r} is not between 0 and {MAX_OFFSET}; seek_to_beginning() and seek_to_end() go to the ends")


def as_time(when: object) -> int:
    if not isinstance(when, int) or not 0 <= when <= MAX_OFFSET:
        raise ValueError(f"time {when!r} is not a number from 0 to {MAX_OFFSET}: give ms since the epoch; beginning_offsets() and end_offsets() give the ends")
    return when


def as_subscription(given: object, *, internal: bool) -> Subscription:
    """What a consumer is to read: names, or a pattern that has to match a topic's whole name; *internal* topics too, if the client matches it.

    Raises:
        TypeError, ValueError, InvalidTopicError: it is neither, or a name that no topic can have.
    """
    if isinstance(given, re.Pattern):
        if not isinstance(given.pattern, str):
            raise TypeError(f"{given!r} matches bytes, and topics have names of text: compile a str")
        return Subscription(pattern=given, internal=internal)
    if isinstance(given, SubscriptionPattern):
        return Subscription(brokers_pattern=given)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f'{given!r} is no list of topics: give ["name", ...], or a compiled pattern (re.compile)')
    names = list(given)
    for name in names:
        check_topic_name(name)
    if not names:
        raise ValueError("no topics are given: name at least one, or unsubscribe()")
    return Subscription(frozenset(names))
