"""What is raised of a partition, in words that tell the user what to do. Knows no state but the position."""
from __future__ import annotations

from pyclient.core.fetching.positions import Position
from pyclient.errors import (
    CorruptRecordError, KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError, RecordTooLargeError, UnknownServerError,
)


def is_for_the_user(error: KafkaError) -> bool:
    """C13: raised by poll, though reading is tried again: what waiting will hardly cure, and data the broker calls damaged."""
    return isinstance(error, CorruptRecordError) or not (error.retriable or isinstance(error, UnknownServerError))


def no_offset(position: Position) -> NoOffsetForPartitionError:
    """Nothing says where to begin."""
    return NoOffsetForPartitionError(
        f"no committed offset for {position.tp} and auto_offset_reset=none: seek() to where reading shall begin.",
        topic_partition=position.tp)


def not_in_log(position: Position, why: str) -> OffsetOutOfRangeError:
    """The log does not hold the position, and nothing says where to go on."""
    return OffsetOutOfRangeError(
        f"offset {position.offset} of {position.tp} {why} and auto_offset_reset=none: seek() to an offset "
        "between beginning_offsets() and end_offsets().", topic_partition=position.tp)


def too_large(position: Position, limit: int) -> RecordTooLargeError:
    """Not one whole batch fits the answer."""
    return RecordTooLargeError(
        f"the batch at offset {position.offset} of {position.tp} does not fit max_partition_fetch_bytes={limit}: raise it.",
        topic_partition=position.tp)


def damaged(position: Position, error: CorruptRecordError) -> CorruptRecordError:
    """What follows the position cannot be told apart."""
    return CorruptRecordError(
        f"the data of {position.tp} at offset {position.offset} is damaged: {error.message}. seek() past it to go on.",
        topic_partition=position.tp)
