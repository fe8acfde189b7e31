"""Produce: what is checked of a request as a whole, and when it counts as done."""
from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any, Final, Protocol, runtime_checkable
from uuid import UUID

import attrs
from kio.schema.errors import ErrorCode

from pyclient.codec.encode import HEADER_SIZE
from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.notifier import NotifierWatch
from pyclient.testing.fake.handlers.leaders import endpoints, found, leader_fields
from pyclient.testing.fake.model.batch import Batch
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.partition import Appended, Partition
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.transaction_coordinator import TransactionCoordinator
from pyclient.testing.fake.model.transactions import Producer
from pyclient.testing.fake.model.validation import is_transactional, only_batch

ALL: Final = -1
LEADER: Final = 1
NONE: Final = 0
TOPIC_IDS_SINCE: Final = 13
LEADERS_SINCE: Final = 10
ADDS_SINCE: Final = 12
"""From this version on a transaction's first batch adds its partition (KIP-890)."""
ABORTABLE_SINCE: Final = 11
"""From this version on producers know TRANSACTION_ABORTABLE."""
UNAVAILABLE: Final = (ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator)
NOT_ADDED: Final = "Partition was not added to the transaction"
NOT_VERIFIED: Final = "Unable to verify the partition has been added to the transaction. Underlying error: {}"
ADMIN: Final = "__admin_client"
"""The client id that may write to Kafka's own topics."""
SECOND: Final = timedelta(seconds=1)


@runtime_checkable
class Cuttable(Protocol):
    """A connection that can be ended."""

    def cut(self) -> None:
        """End it at once."""


@attrs.define(eq=False)
class Part:
    """One partition of a request."""

    topic: str | UUID | None
    index: int
    partition: Partition | None = None
    appended: Appended | None = None
    code: int = 0
    refused: RefusalError | None = None


def produce(kafka: Kafka, request: Request) -> Coroutine[Any, Any, Fields | None] | Fields | None:
    """Append, and with ``acks=all`` wait for the in-sync replicas."""
    if request.body.transactional_id is None and _has_transactional_records(request):
        return refuse_produce(request, ErrorCode.transactional_id_authorization_failed)
    parts = [_appended(kafka, request, topic, each) for topic in request.body.topic_data for each in topic.partition_data]
    if request.body.acks == ALL:
        _settle(parts)
        if any(_is_waiting(each) for each in parts):
            notifiers = [notifier for each in parts if each.partition for notifier in each.partition.notifiers(request.broker)]
            return _committed(kafka, request, parts, NotifierWatch(notifiers))
    return _answer(kafka, request, parts)


def refuse_produce(request: Request, code: int) -> Fields:
    """The error for every partition."""
    parts = [Part(_topic(request, topic), each.index, code=code) for topic in request.body.topic_data for each in topic.partition_data]
    return _fields(request, parts)


def _has_transactional_records(request: Request) -> bool:
    return any(is_transactional(bytes((each.records or b"")[:HEADER_SIZE]))
               for topic in request.body.topic_data for each in topic.partition_data)


def _topic(request: Request, topic: Any) -> str | UUID | None:
    chosen: str | UUID | None = topic.topic_id if request.version >= TOPIC_IDS_SINCE else topic.name
    return chosen


def _appended(kafka: Kafka, request: Request, topic: Any, data: Any) -> Part:
    part = Part(_topic(request, topic), data.index)
    try:
        part.partition = found(kafka, part.topic, part.index, by_id=request.version >= TOPIC_IDS_SINCE)
        part.appended = _write(kafka, request, part.partition, data.records)
    except RefusalError as refused:
        part.code, part.refused = refused.code, refused
    return part


def _write(kafka: Kafka, request: Request, partition: Partition, records: memoryview | None) -> Appended:
    batch = only_batch(bytes(records or b""), request.version)
    if request.body.acks not in (NONE, LEADER, ALL):
        raise RefusalError(ErrorCode.invalid_required_acks, has_log_start=False)
    if partition.topic.internal and request.client_id != ADMIN:
        raise RefusalError(ErrorCode.invalid_topic_exception, has_log_start=False)
    if is_transactional(batch):
        _join(kafka, request, partition, Batch.of(batch))
    return partition.write(request.broker, batch, all_in_sync=request.body.acks == ALL)


def _join(kafka: Kafka, request: Request, partition: Partition, batch: Batch) -> None:
    """A producer's first batch of a transaction: since version 12 it adds its partition, before that is to be done."""
    adds = request.version >= ADDS_SINCE
    if not partition.joins(request.broker, batch, begins_at_0=adds):
        return
    try:
        kafka.part(TransactionCoordinator).join(
            request.body.transactional_id, Producer(batch.producer_id, batch.producer_epoch), (partition.topic.name, partition.index),
            adds=adds, knows_abortable=request.version >= ABORTABLE_SINCE)
    except RefusalError as refused:
        raise _as_produce_error(refused.code, request.version) from None


def _as_produce_error(code: int, version: int) -> RefusalError:
    """A coordinator's refusal as an error that producers of this version know."""
    if code in UNAVAILABLE or (code == ErrorCode.concurrent_transactions and version < ADDS_SINCE):
        return RefusalError(ErrorCode.not_enough_replicas, NOT_VERIFIED.format(ErrorCode(code).name.upper()), has_log_start=False)
    return RefusalError(code, NOT_ADDED if code == ErrorCode.invalid_txn_state else None, has_log_start=False)


# ---- acks=all --------------------------------------------------------------------------------------------------------


def _is_waiting(part: Part) -> bool:
    return part.appended is not None and part.code == ErrorCode.request_timed_out


def _settle(parts: Iterable[Part]) -> None:
    """Give each of these partitions the code of a response sent now: one that is not committed has timed out."""
    for part in parts:
        if part.partition is not None and part.appended is not None:
            part.code = _outcome(part.partition, part.appended)


def _outcome(partition: Partition, appended: Appended) -> int:
    if partition.leader_epoch != appended.epoch:
        return ErrorCode.not_leader_or_follower
    if partition.log.high_watermark <= appended.last_offset:
        return ErrorCode.request_timed_out
    return ErrorCode.not_enough_replicas_after_append if partition.is_under_min_isr else 0


async def _committed(kafka: Kafka, request: Request, parts: list[Part], watch: NotifierWatch) -> Fields | None:
    """Wait for the partitions that are not committed yet, each until its leader is another or time is up."""
    deadline = kafka.clock() + request.body.timeout / SECOND
    with closing(watch):
        while waiting := [each for each in parts if _is_waiting(each)]:
            left = deadline - kafka.clock()
            if left <= 0 or not await watch.notified(left):
                break
            _settle(waiting)
    return _answer(kafka, request, parts)


# ---- the answer ------------------------------------------------------------------------------------------------------


def _answer(kafka: Kafka, request: Request, parts: list[Part]) -> Fields | None:
    if request.body.acks == NONE:
        if any(each.code for each in parts) and isinstance(request.connection, Cuttable):
            request.connection.cut()  # the only way to report an error to such a client
        return None
    fields = _fields(request, parts)
    moved = [each for each in parts if each.code == ErrorCode.not_leader_or_follower]
    if moved and request.version >= LEADERS_SINCE:
        return {**fields, "node_endpoints": endpoints(kafka, (leader_fields(each.partition) for each in moved))}
    return fields


def _fields(request: Request, parts: list[Part]) -> Fields:
    topics: dict[str | UUID | None, list[Fields]] = {}
    for part in parts:
        topics.setdefault(part.topic, []).append(_part_fields(request, part))
    name = "topic_id" if request.version >= TOPIC_IDS_SINCE else "name"
    return {"throttle_time": 0, "responses": [{name: topic, "partition_responses": each} for topic, each in topics.items()]}


def _part_fields(request: Request, part: Part) -> Fields:
    appended, refused = part.appended, part.refused
    has_log_start = appended is not None or (refused is not None and refused.has_log_start)
    fields: dict[str, object] = {
        "index": part.index, "error_code": part.code,
        "base_offset": -1 if appended is None else appended.base_offset,
        "log_append_time": -1 if appended is None else appended.append_time,
        "log_start_offset": part.partition.log.start if has_log_start and part.partition is not None else -1,
        "record_errors": list(_record_errors(refused)), "error_message": None if refused is None else refused.message,
    }
    if part.code == ErrorCode.not_leader_or_follower and request.version >= LEADERS_SINCE:
        fields["current_leader"] = leader_fields(part.partition)
    return fields


def _record_errors(refused: RefusalError | None) -> Iterator[Fields]:
    for each in refused.records if refused is not None else ():
        yield {"batch_index": each.at, "batch_index_error_message": each.message}

