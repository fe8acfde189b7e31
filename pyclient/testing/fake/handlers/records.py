"""DeleteRecords: what is deleted is gone when all live replicas have deleted it."""
from __future__ import annotations

from collections.abc import Coroutine, Iterable
from contextlib import closing
from datetime import timedelta
from typing import Any, Final

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.notifier import NotifierWatch
from pyclient.testing.fake.handlers.leaders import found
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.fake.model.refusal import RefusalError

INVALID: Final = -1
SECOND: Final = timedelta(seconds=1)


@attrs.define(eq=False)
class Part:
    """One partition of a request."""

    topic: str
    index: int
    partition: Partition | None = None
    before: int = INVALID
    code: int = 0

    @property
    def low_watermark(self) -> int:
        """Below it nothing is left; -1 when the partition was refused."""
        return INVALID if self.code or self.partition is None else self.partition.low_watermark


def delete_records(kafka: Kafka, request: Request) -> Coroutine[Any, Any, Fields] | Fields:
    """Delete at the leaders, and wait for their followers."""
    parts = [_deleted(kafka, request, topic.name, each) for topic in request.body.topics for each in topic.partitions]
    _settle(request, parts)
    if any(each.code == ErrorCode.request_timed_out for each in parts):
        notifiers = [notifier for each in parts if each.partition for notifier in each.partition.notifiers(*each.partition.replicas)]
        return _waited(kafka, request, parts, NotifierWatch(notifiers))
    return _fields(parts)


def refuse_delete_records(request: Request, code: int) -> Fields:
    """The error for every partition."""
    return _fields(Part(topic.name, each.partition_index, code=code) for topic in request.body.topics for each in topic.partitions)


def _deleted(kafka: Kafka, request: Request, topic: str, wish: Any) -> Part:
    part = Part(topic, wish.partition_index)
    try:
        partition = found(kafka, topic, part.index, by_id=False)
        if "delete" not in partition.topic.config.get("cleanup.policy", "delete"):
            raise RefusalError(ErrorCode.policy_violation)
        part.before = partition.delete_records(request.broker, wish.offset)
        part.partition = partition
    except RefusalError as refused:
        part.code = refused.code
    return part


def _settle(request: Request, parts: Iterable[Part]) -> None:
    """Give each of these the code it would be answered with now: one whose followers lag would time out."""
    for part in parts:
        if part.partition is None:
            continue
        if part.partition.leader != request.broker:
            part.code = ErrorCode.not_leader_or_follower
        else:
            part.code = 0 if part.partition.low_watermark >= part.before else ErrorCode.request_timed_out


async def _waited(kafka: Kafka, request: Request, parts: list[Part], watch: NotifierWatch) -> Fields:
    deadline = kafka.clock() + request.body.timeout / SECOND
    with closing(watch):
        while waiting := [each for each in parts if each.code == ErrorCode.request_timed_out]:
            left = deadline - kafka.clock()
            if left <= 0 or not await watch.notified(left):
                break
            _settle(request, waiting)
    return _fields(parts)


def _fields(parts: Iterable[Part]) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for each in parts:
        topics.setdefault(each.topic, []).append(
            {"partition_index": each.index, "low_watermark": each.low_watermark, "error_code": each.code})
    return {"throttle_time": 0, "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()]}
