"""Producers of partitions: what their leaders remember (DescribeProducers), and markers for them (WriteTxnMarkers)."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.handlers.leaders import found
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.producers import Producers
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.request import Fields, Request

NONE: Final = -1
NOT_HOSTED: Final = "This server does not host this topic-partition."


def describe_producers(kafka: Kafka, request: Request) -> Fields:
    """The producers of each partition that this broker leads."""
    return _per_partition(request, lambda topic, index: _described(kafka, request.broker, topic, index))


def refuse_describe_producers(request: Request, code: int) -> Fields:
    """The error for every partition."""
    return _per_partition(request, lambda _topic, index: _part(index, code=code))


def _per_partition(request: Request, part: Callable[[str, int], Fields]) -> Fields:
    topics = [{"name": topic.name, "partitions": [part(topic.name, index) for index in topic.partition_indexes]} for topic in request.body.topics]
    return {"throttle_time": 0, "topics": topics}


def _described(kafka: Kafka, broker: int, topic: str, index: int) -> Fields:
    try:
        partition = found(kafka, topic, index, by_id=False)
    except RefusalError as refused:
        return _part(index, code=refused.code, message=None if topic in kafka.topics else NOT_HOSTED)
    if partition.leader != broker:
        return _part(index, code=ErrorCode.not_leader_or_follower)
    return _part(index, _rows(partition.log.producers))


def _part(index: int, rows: list[Fields] | None = None, code: int = 0, message: str | None = None) -> Fields:
    return {"partition_index": index, "error_code": code, "error_message": message, "active_producers": rows or []}


def _rows(producers: Producers) -> list[Fields]:
    return [{"producer_id": producer_id, "producer_epoch": known.epoch, "last_sequence": known.written[-1].last_sequence if known.written else NONE,
             "last_timestamp": known.timestamp, "coordinator_epoch": known.coordinator_epoch,
             "current_txn_start_offset": NONE if (opened := producers.opened_at(producer_id)) is None else opened}
            for producer_id, known in producers.known.items()]


# ---- markers ---------------------------------------------------------------------------------------------------------


def write_txn_markers(kafka: Kafka, request: Request) -> Fields:
    """End transactions in some partitions, whatever their coordinators say."""
    return _markers(request, lambda marker, topic, index: _written(kafka, request.broker, marker, topic, index))


def refuse_write_txn_markers(request: Request, code: int) -> Fields:
    """The error for every partition."""
    return _markers(request, lambda _marker, _topic, _index: code)


def _markers(request: Request, code: Callable[[Any, str, int], int]) -> Fields:
    def partitions(marker: Any, topic: Any) -> list[Fields]:
        return [{"partition_index": index, "error_code": code(marker, topic.name, index)} for index in topic.partition_indexes]

    return {"markers": [{"producer_id": marker.producer_id, "topics": [
        {"name": topic.name, "partitions": partitions(marker, topic)} for topic in marker.topics]} for marker in request.body.markers]}


def _written(kafka: Kafka, broker: int, marker: Any, topic: str, index: int) -> int:
    try:
        found(kafka, topic, index, by_id=False).write_marker(
            broker, marker.producer_id, marker.producer_epoch, commits=marker.transaction_result, coordinator_epoch=marker.coordinator_epoch)
    except RefusalError as refused:
        return refused.code
    return 0
