"""ListOffsets and OffsetForLeaderEpoch: where in a log a time, an end or an epoch is."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.handlers.leaders import found
from pyclient.testing.fake.model.log import Log
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.fake.model.refusal import RefusalError

OFFSET_NOT_AVAILABLE_SINCE: Final = 5
CONSUMER: Final = -1
DEBUGGING: Final = -2
"""The replica id that is answered by followers too."""
READ_COMMITTED: Final = 1
UNKNOWN: Final = -1

LATEST: Final = -1
EARLIEST: Final = -2
NEWEST_RECORD: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_TO_BE_TIERED: Final = -6
SINCE: Final[Mapping[int, int]] = {
    LATEST: 1, EARLIEST: 1, NEWEST_RECORD: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_TO_BE_TIERED: 11}
"""The first version in which a negative timestamp has a meaning."""


class Place(NamedTuple):
    """An answer: an offset, the time of its record, and its epoch."""

    offset: int = UNKNOWN
    timestamp: int = UNKNOWN
    epoch: int = UNKNOWN


NOWHERE: Final = Place()


def list_offsets(kafka: Kafka, request: Request) -> Fields:
    """Look every partition up; one that is named twice is refused once."""
    repeated = _repeated(request)
    return {"throttle_time": 0, "topics": [
        {"name": topic.name, "partitions": [
            _looked_up(kafka, request, topic.name, each, is_repeated=(topic.name, each.partition_index) in repeated)
            for each in {each.partition_index: each for each in topic.partitions}.values()]}
        for topic in request.body.topics
    ]}


def refuse_list_offsets(request: Request, code: int) -> Fields:
    """The error for every partition."""
    return {"throttle_time": 0, "topics": [
        {"name": topic.name, "partitions": [_place_fields(each.partition_index, code, NOWHERE) for each in topic.partitions]}
        for topic in request.body.topics
    ]}


def _repeated(request: Request) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.body.topics:
        for each in topic.partitions:
            key = (topic.name, each.partition_index)
            (repeated if key in seen else seen).add(key)
    return repeated


def _looked_up(kafka: Kafka, request: Request, topic: str, wish: Any, *, is_repeated: bool) -> Fields:
    index = wish.partition_index
    try:
        if is_repeated:
            raise RefusalError(ErrorCode.invalid_request)
        if wish.timestamp < 0 and request.version < SINCE.get(wish.timestamp, request.version + 1):
            raise RefusalError(ErrorCode.unsupported_version)
        partition = found(kafka, topic, index, by_id=False)
        return _place_fields(index, 0, _place(request, partition, wish.timestamp, getattr(wish, "current_leader_epoch", UNKNOWN)))
    except RefusalError as refused:
        return _place_fields(index, refused.code, NOWHERE)


def _place_fields(index: int, code: int, place: Place) -> Fields:
    return {"partition_index": index, "error_code": code, "timestamp": place.timestamp, "offset": place.offset,
            "leader_epoch": place.epoch}


def _place(request: Request, partition: Partition, timestamp: int, epoch: int) -> Place:
    """Where this timestamp is for a client that believes in this leader epoch.

    Raises:
        RefusalError: the wrong broker or epoch, or the leader does not know yet what is committed.
    """
    log = partition.serving_log(request.broker, epoch, only_leader=request.body.replica_id != DEBUGGING)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Place(log.start, UNKNOWN, _epoch_of_start(log))
    if timestamp in (LATEST_TIERED, EARLIEST_TO_BE_TIERED):
        return NOWHERE  # nothing is ever tiered here
    end = _end(request, log)
    is_settling = request.body.replica_id == CONSUMER and partition.is_settling
    if timestamp == LATEST:
        if is_settling:
            raise _not_available(request)
        return Place(end, UNKNOWN, partition.leader_epoch)
    record = log.newest() if timestamp == NEWEST_RECORD else log.since(timestamp)
    if record is not None and record.offset < end:
        return Place(*record)
    if is_settling:
        raise _not_available(request)
    return NOWHERE


def _epoch_of_start(log: Log) -> int:
    return log.epochs.entries[0].epoch if log.epochs.entries and log.epochs.entries[0].offset <= log.start else UNKNOWN


def _end(request: Request, log: Log) -> int:
    if request.body.replica_id != CONSUMER:
        return log.end
    return log.last_stable if getattr(request.body, "isolation_level", 0) == READ_COMMITTED else log.high_watermark


def _not_available(request: Request) -> RefusalError:
    return RefusalError(ErrorCode.offset_not_available if request.version >= OFFSET_NOT_AVAILABLE_SINCE else ErrorCode.leader_not_available)


# ---- OffsetForLeaderEpoch --------------------------------------------------------------------------------------------


def offset_for_leader_epoch(kafka: Kafka, request: Request) -> Fields:
    """Where each epoch ends, or the newest one below it."""
    return {"throttle_time": 0, "topics": [
        {"topic": topic.topic, "partitions": [_epoch_end(kafka, request, topic.topic, each) for each in topic.partitions]}
        for topic in request.body.topics
    ]}


def refuse_offset_for_leader_epoch(request: Request, code: int) -> Fields:
    """The error for every partition."""
    return {"throttle_time": 0, "topics": [
        {"topic": topic.topic, "partitions": [_end_fields(each.partition, code, UNKNOWN, UNKNOWN) for each in topic.partitions]}
        for topic in request.body.topics
    ]}


def _epoch_end(kafka: Kafka, request: Request, topic: str, wish: Any) -> Fields:
    try:
        partition = found(kafka, topic, wish.partition, by_id=False)
        log = partition.serving_log(request.broker, wish.current_leader_epoch, only_leader=True)
    except RefusalError as refused:
        return _end_fields(wish.partition, refused.code, UNKNOWN, UNKNOWN)
    return _end_fields(wish.partition, 0, *log.epochs.end_of(wish.leader_epoch, log.end))


def _end_fields(index: int, code: int, epoch: int, offset: int) -> Fields:
    return {"partition": index, "error_code": code, "leader_epoch": epoch, "end_offset": offset}
