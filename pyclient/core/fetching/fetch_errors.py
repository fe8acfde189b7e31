"""Errors of a partition that polls raise, with what the user can do. Independent of all state but the position."""
from __future__ import annotations

from pyclient.core.fetching.positions import Position
from pyclient.errors import (
    CorruptRecordError, KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError, RecordTooLargeError, UnknownServerError,
    UnknownTopicOrPartitionError,
)
from pyclient.records import TopicPartition


def is_for_the_user(error: KafkaError) -> bool:
    """C13: whether polls raise it although fetching is retried: waiting hardly cures it, or data is corrupt."""
    return isinstance(error, CorruptRecordError) or not (error.retriable or isinstance(error, UnknownServerError))


def no_offset(position: Position) -> NoOffsetForPartitionError:
    """There is neither a committed offset nor a reset policy."""
    return NoOffsetForPartitionError(
        f"no committed offset for {position.tp} and auto_offset_reset=none: seek() to the offset to begin at.",
        topic_partition=position.tp)


def not_in_log(position: Position, why: str) -> OffsetOutOfRangeError:
    """The position is not in the log, and there is no reset policy."""
    return OffsetOutOfRangeError(
        f"offset {position.offset} of {position.tp} {why} and auto_offset_reset=none: seek() to an offset "
        "between beginning_offsets() and end_offsets().", topic_partition=position.tp)


def too_large(position: Position, limit: int) -> RecordTooLargeError:
    """The response had no complete batch."""
    return RecordTooLargeError(
        f"the batch at offset {position.offset} of {position.tp} does not fit max_partition_fetch_bytes={limit}: raise it.",
        topic_partition=position.tp)


def damaged(position: Position, error: CorruptRecordError) -> CorruptRecordError:
    """The data after the position cannot be parsed."""
    return CorruptRecordError(
        f"the data of {position.tp} at offset {position.offset} is damaged: {error.message}. seek() past it to go on.",
        topic_partition=position.tp)


def no_partition(tp: TopicPartition, count: int) -> UnknownTopicOrPartitionError:
    """The user assigned a partition that its topic does not have."""
    return UnknownTopicOrPartitionError(
        f"{tp} was assigned and does not exist: topic {tp.topic!r} has {count} partition{'s' * (count != 1)}, counted from 0. "
        "assign() others, or add partitions to the topic.", topic_partition=tp)


def no_topic(tp: TopicPartition) -> UnknownTopicOrPartitionError:
    """The user assigned a partition of a topic that does not exist, and that reading does not create."""
    return UnknownTopicOrPartitionError(
        f"{tp} was assigned and does not exist: there is no topic {tp.topic!r}. assign() others, or create the topic: it is read as soon "
        "as it exists.", topic_partition=tp)
