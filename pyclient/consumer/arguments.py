"""Checks of partitions, offsets and topics that users pass, before anything is done with them."""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pyclient.core.group.subscription import Subscription
from pyclient.core.topic_interest import check_topic_name
from pyclient.foreign_calls import habit
from pyclient.records import OffsetAndMetadata, SubscriptionPattern, TopicPartition
from pyclient.records.record import Record
from pyclient.signatures import is_async, takes

MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1
MAX_EPOCH: Final = 2**31 - 1
MAX_SHOWN: Final = 200
"""Characters of a wrong argument that an error shows."""
MAX_METADATA_BYTES: Final = 2**15 - 1
"""Brokers close the connection on a longer string instead of answering with an error."""


def as_partition(given: object) -> TopicPartition:
    """A checked partition: one that cannot be encoded would fail every request that contains it."""
    match given:
        case (str(topic), int(number)) if topic and 0 <= number <= MAX_PARTITION:
            return TopicPartition(topic, number)
    raise ValueError(f"expected TopicPartition(topic, partition >= 0), got {type(given).__name__} {given!r}")


def as_partitions(given: Iterable[object]) -> list[TopicPartition]:
    """A list of checked partitions.

    Raises:
        TypeError: it is no list, or one partition without a list.
    """
    if isinstance(given, str | bytes | TopicPartition) or not isinstance(given, Iterable):
        raise TypeError(f"expected a list of partitions, as [TopicPartition(topic, partition), ...]; got {_shown(given)}")
    return [as_partition(each) for each in given]


def some_partitions(given: Iterable[object]) -> list[TopicPartition]:
    """Of ``*partitions``: each is a partition or a list of them."""
    return [tp for each in given for tp in _one_or_more(each)]


def _one_or_more(given: object) -> Iterator[TopicPartition]:
    match given:
        case str() | (str(), _):
            yield as_partition(given)
        case Iterable():
            yield from as_partitions(given)
        case _:
            yield as_partition(given)


def as_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Plain numbers or `OffsetAndMetadata` by partition, or the position after a record; checked.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(offsets, Record):
        tp = TopicPartition(offsets.topic, offsets.partition)
        return {tp: _as_position(tp, OffsetAndMetadata(offsets.offset + 1, leader_epoch=offsets.leader_epoch))}
    if not isinstance(offsets, Mapping):
        raise TypeError(f"expected {{TopicPartition(topic, partition): offset of the next record to read}}, a record, or nothing "
                        f"for all that was returned; of records give records.next_offsets(). Got {_shown(offsets)}")
    return {as_partition(tp): _as_position(tp, given) for tp, given in offsets.items()}


def as_times(times: object) -> dict[TopicPartition, int]:
    """Times in ms since the epoch, checked.

    Raises:
        TypeError: they are not given by partition.
    """
    if not isinstance(times, Mapping):
        raise TypeError(f"expected {{TopicPartition(topic, partition): ms since the epoch}}, got {_shown(times)}; "
                        "for the ends call beginning_offsets() or end_offsets()")
    return {as_partition(tp): _as_time(time) for tp, time in times.items()}


def as_limit(given: object) -> int:
    """A checked max_records."""
    if not isinstance(given, int):
        raise TypeError(f"max_records must be an int, got {_shown(given)}")
    if given < 1:
        raise ValueError(f"max_records must be at least 1, got {given}: a poll that may return no record makes no progress")
    return given


def check_callback(given: object) -> None:
    """Refuse what cannot be called with two arguments, or would have to be awaited."""
    if given is not None and not (callable(given) and takes(given, 2) and not is_async(given)):
        raise TypeError(f"expected a plain function callback(offsets, error), got {_shown(given)}")


def _shown(given: object) -> str:
    text = repr(given)
    return f"{type(given).__name__} {text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + '…'}"


def _as_position(tp: TopicPartition, given: object) -> OffsetAndMetadata:
    match given:
        case int():
            position = OffsetAndMetadata(given)
        case OffsetAndMetadata(offset=int(), metadata=str(), leader_epoch=None | int()):
            position = given
        case _:
            raise ValueError(f"the position of {tp} must be an offset or OffsetAndMetadata, got {type(given).__name__} {given!r}")
    if not 0 <= position.offset <= MAX_OFFSET:
        raise ValueError(f"offset {position.offset} of {tp} is not between 0 and {MAX_OFFSET}: commit the offset of the next record to read")
    if position.leader_epoch is not None and not 0 <= position.leader_epoch <= MAX_EPOCH:
        raise ValueError(f"leader epoch {position.leader_epoch} of {tp} is not between 0 and {MAX_EPOCH}: leave it out when it is not known")
    if len(position.metadata.encode()) > MAX_METADATA_BYTES:
        raise ValueError(f"the metadata of {tp} is longer than {MAX_METADATA_BYTES} bytes: brokers accept at most "
                         "offset.metadata.max.bytes, by default 4096")
    return position


def as_sought(tp: TopicPartition, offset: object) -> OffsetAndMetadata:
    """A checked position to continue at. Its metadata belongs to the commit that it comes from, not to later ones."""
    if isinstance(offset, OffsetAndMetadata):
        return _as_position(tp, offset)._replace(metadata="")
    if not isinstance(offset, int) or not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"offset {offset!r} is not an integer between 0 and {MAX_OFFSET}; for the ends call seek_to_beginning() or seek_to_end()")
    return OffsetAndMetadata(offset)


def _as_time(time: object) -> int:
    if not isinstance(time, int) or not 0 <= time <= MAX_OFFSET:
        raise ValueError(f"time {time!r} is not an integer between 0 and {MAX_OFFSET}: give ms since the epoch; "
                         "for the ends call beginning_offsets() or end_offsets()")
    return time


def as_subscription(given: object, *, internal: bool) -> Subscription:
    """A checked subscription: names, or a pattern that has to match a topic's whole name.

    *internal*: the pattern may match internal topics.

    Raises:
        TypeError, ValueError, InvalidTopicError: it is neither, or a name is not valid for a topic.
    """
    if isinstance(given, re.Pattern):
        if not isinstance(given.pattern, str):
            raise TypeError(f"{given!r} matches bytes, but topic names are str: compile a str pattern")
        return Subscription(pattern=given, internal=internal)
    if isinstance(given, SubscriptionPattern):
        return Subscription(brokers_pattern=given)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f'expected a list of topics ["name", ...] or a compiled pattern (re.compile), got {type(given).__name__} {given!r}')
    names = list(given)
    for name in names:
        check_topic_name(name)
        if name.startswith("^"):
            raise ValueError(f"{name!r} is not a topic's name. {habit('caret')}")
    if not names:
        raise ValueError("the list of topics is empty: name at least one, or call unsubscribe()")
    return Subscription(frozenset(names))
