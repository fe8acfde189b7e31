"""Fetch: which records a reader gets, and how long it waits for them."""
from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.notifier import NotifierWatch
from pyclient.testing.fake.handlers.leaders import endpoints, found, leader_fields
from pyclient.testing.fake.handlers.sessions import FINAL_EPOCH, FIRST_EPOCH, NO_SESSION, Key, Session, Wish, following, sessions_of
from pyclient.testing.fake.model.log import Log
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.fake.model.refusal import RefusalError

TOPIC_IDS_SINCE: Final = 13
SESSIONS_SINCE: Final = 7
FOLLOWERS_SINCE: Final = 11
LEADERS_SINCE: Final = 16
READ_COMMITTED: Final = 1
NONE: Final = -1
SECOND: Final = timedelta(seconds=1)


@attrs.frozen(kw_only=True, eq=False)
class Reading:
    """One fetch: what is wanted of which partitions, in the order in which they are read."""

    request: Request
    wishes: Mapping[Key, Wish]
    session: Session | None
    starts_session: bool
    max_bytes: int
    min_bytes: int

    @property
    def by_id(self) -> bool:
        """Whether topics are named by id."""
        return self.request.version >= TOPIC_IDS_SINCE


@attrs.define(eq=False)
class Answers:
    """What there is to answer right now."""

    partitions: dict[Key, Fields] = attrs.field(factory=dict)
    leaders: list[Fields] = attrs.field(factory=list)
    bytes_read: int = 0
    is_urgent: bool = False
    """Whether to answer without waiting for records."""


def fetch(kafka: Kafka, request: Request) -> Coroutine[Any, Any, Fields] | Fields:
    """Answer with what there is, or wait until there is enough."""
    try:
        reading = _reading(kafka, request)
    except RefusalError as refused:
        return refuse_fetch(request, refused.code)
    answers = _read(kafka, reading)
    if answers.is_urgent or answers.bytes_read >= reading.min_bytes or not request.body.max_wait:
        return _answer(kafka, reading, answers)
    notifiers = [notifier for topic, index in reading.wishes if (partition := kafka.partition(topic, index)) is not None
             for notifier in partition.notifiers(request.broker)]
    return _waited(kafka, reading, NotifierWatch(notifiers))


def refuse_fetch(request: Request, code: int) -> Fields:
    """A session error; before there were sessions, the error for every partition."""
    fields = {"throttle_time": 0, "error_code": code, "session_id": NO_SESSION, "responses": []}
    if request.version >= SESSIONS_SINCE:
        return fields
    refused = {key: _refused_fields(key[1], code) for key in _wishes(request)}
    return {**fields, "responses": _grouped(request, refused)}


async def _waited(kafka: Kafka, reading: Reading, watch: NotifierWatch) -> Fields:
    """Look again whenever a partition changes, until there is enough or time is up."""
    deadline = kafka.clock() + reading.request.body.max_wait / SECOND
    left = deadline - kafka.clock()
    with closing(watch):
        while left > 0 and await watch.notified(left):
            answers = _read(kafka, reading)
            if answers.is_urgent or answers.bytes_read >= reading.min_bytes:
                return _answer(kafka, reading, answers)
            left = deadline - kafka.clock()
    return _answer(kafka, reading, _read(kafka, reading))


# ---- the request -----------------------------------------------------------------------------------------------------


def _reading(kafka: Kafka, request: Request) -> Reading:
    """What this request asks for, together with its session.

    Raises:
        RefusalError: the session is not known, or the request is not its next one.
    """
    body, wishes = request.body, _wishes(request)
    session: Session | None = None
    starts = False
    epoch = getattr(body, "session_epoch", FINAL_EPOCH)
    if epoch in (FIRST_EPOCH, FINAL_EPOCH):
        starts = epoch == FIRST_EPOCH
        sessions_of(kafka, request.broker).end(getattr(body, "session_id", NO_SESSION))
    else:
        session = sessions_of(kafka, request.broker).resumed(
            body.session_id, epoch, wishes, _forgotten(request), by_id=request.version >= TOPIC_IDS_SINCE)
        if session is not None:
            wishes = {key: cached.wish for key, cached in session.partitions.items()}
    max_bytes = min(body.max_bytes, kafka.settings.fetch_max_bytes)
    return Reading(request=request, wishes=wishes, session=session, starts_session=starts, max_bytes=max_bytes,
                   min_bytes=min(body.min_bytes, max_bytes))


def _name(request: Request, topic: Any) -> str | UUID | None:
    name: str | UUID | None = topic.topic_id if request.version >= TOPIC_IDS_SINCE else topic.topic
    return name


def _wishes(request: Request) -> dict[Key, Wish]:
    return {
        (_name(request, topic), each.partition): Wish(
            each.fetch_offset, each.partition_max_bytes, getattr(each, "current_leader_epoch", NONE),
            getattr(each, "last_fetched_epoch", NONE))
        for topic in request.body.topics for each in topic.partitions
    }


def _forgotten(request: Request) -> Iterator[Key]:
    for topic in request.body.forgotten_topics_data:
        yield from ((_name(request, topic), index) for index in topic.partitions)


# ---- reading ---------------------------------------------------------------------------------------------------------


def _read(kafka: Kafka, reading: Reading) -> Answers:
    """Read the partitions in order, as many bytes as the answer may have; the first records come whole."""
    answers = Answers()
    left = reading.max_bytes
    unknown: dict[Key, Fields] = {}
    by_id = reading.by_id
    for key, wish in reading.wishes.items():
        try:
            partition = found(kafka, *key, by_id=by_id)
        except RefusalError as refused:
            unknown[key] = _refused_fields(key[1], refused.code)
            continue
        fields, size = _partition(kafka, reading, answers, partition, wish, left)
        answers.partitions[key] = fields
        answers.bytes_read += size
        left = max(0, left - size)
    answers.is_urgent |= len(unknown) == len(reading.wishes)
    if unknown:  # a real broker lists failed partitions last, and of those unknown topic ids first
        answers.partitions.update(sorted(unknown.items(), key=lambda each: each[1]["error_code"] != ErrorCode.unknown_topic_id))
    return answers


def _partition(kafka: Kafka, reading: Reading, answers: Answers, partition: Partition, wish: Wish, left: int) -> tuple[Fields, int]:
    """The answer for one partition, and the bytes of its records."""
    try:
        fields = _readable(kafka, reading, partition, wish, min(wish.max_bytes, left), at_least_one=not answers.bytes_read)
    except RefusalError as refused:
        answers.is_urgent = True
        return _refused_partition(reading, answers, partition, refused.code), 0
    if "diverging_epoch" in fields or "preferred_read_replica" in fields:
        answers.is_urgent = True
    records = fields["records"]
    return fields, len(records) if isinstance(records, bytes) else 0


def _readable(kafka: Kafka, reading: Reading, partition: Partition, wish: Wish, max_bytes: int, *, at_least_one: bool) -> Fields:
    request = reading.request
    nearer = _nearer_replica(kafka, request, partition, wish) if kafka.settings.replica_selector_class else None
    log = partition.serving_log(request.broker, wish.leader_epoch, only_leader=request.version < FOLLOWERS_SINCE)
    committed = request.body.isolation_level == READ_COMMITTED
    fields: dict[str, object] = {
        "partition_index": partition.index, "error_code": 0, "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable, "log_start_offset": log.start,
        "aborted_transactions": None, "records": b"",
    }
    if nearer is not None:
        return {**fields, "preferred_read_replica": nearer}
    diverging = _divergence(log, wish)
    if diverging is not None:
        return {**fields, "diverging_epoch": diverging}
    end = log.last_stable if committed else log.high_watermark
    fields["records"] = log.read(wish.offset, max_bytes, end, at_least_one=at_least_one)
    if committed:
        fields["aborted_transactions"] = [
            {"producer_id": each.producer_id, "first_offset": each.first_offset} for each in log.aborted(wish.offset, end)]
    return fields


def _divergence(log: Log, wish: Wish) -> Fields | None:
    """Where a reader's history and this log part, when its last epoch ended before the offset it asks for (KIP-595).

    Raises:
        RefusalError: nothing is known of that epoch, or the offset is deleted.
    """
    if wish.last_fetched_epoch < 0:
        return None
    epoch, end = log.epochs.end_of(wish.last_fetched_epoch, log.end)
    if epoch < 0 or wish.offset < log.start:
        raise RefusalError(ErrorCode.offset_out_of_range)
    if epoch < wish.last_fetched_epoch or end < wish.offset:
        return {"epoch": epoch, "end_offset": end}
    return None


def _nearer_replica(kafka: Kafka, request: Request, partition: Partition, wish: Wish) -> int | None:
    """The in-sync replica in the reader's rack that has most, if the leader is in another one (KIP-392)."""
    rack = getattr(request.body, "rack_id", "")
    if not rack or request.broker != partition.leader:
        return None
    if kafka.brokers[partition.leader].rack == rack:
        return None
    near = [each for each in partition.isr if kafka.brokers[each].rack == rack and kafka.brokers[each].alive
            and partition.log_of(each).start <= wish.offset <= partition.known_end(each)]
    return max(near, key=lambda each: (partition.known_end(each), each), default=None)


# ---- the answer ------------------------------------------------------------------------------------------------------


def _refused_fields(index: int, code: int) -> Fields:
    return {"partition_index": index, "error_code": code, "high_watermark": NONE, "last_stable_offset": NONE,
            "log_start_offset": NONE, "aborted_transactions": [], "records": b""}


def _refused_partition(reading: Reading, answers: Answers, partition: Partition, code: int) -> Fields:
    fields = {**_refused_fields(partition.index, code), "aborted_transactions": None}
    if reading.request.version >= LEADERS_SINCE and code in (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch):
        leader = leader_fields(partition)
        answers.leaders.append(leader)
        return {**fields, "current_leader": leader}
    return fields


def _answer(kafka: Kafka, reading: Reading, answers: Answers) -> Fields:
    """All partitions, or in a session those with news."""
    session_id, partitions, code = NO_SESSION, answers.partitions, 0
    if reading.session is not None:
        session_id = reading.session.id
        if reading.session.epoch == following(reading.request.body.session_epoch):
            partitions = reading.session.news(partitions)
        else:
            partitions, code = {}, ErrorCode.invalid_fetch_session_epoch
    elif reading.starts_session:
        session_id = sessions_of(kafka, reading.request.broker).begun(reading.wishes, partitions, by_id=reading.by_id)
    fields = {"throttle_time": 0, "error_code": code, "session_id": session_id, "responses": _grouped(reading.request, partitions)}
    return {**fields, "node_endpoints": endpoints(kafka, answers.leaders)} if answers.leaders else fields


def _grouped(request: Request, partitions: Mapping[Key, Fields]) -> list[Fields]:
    """Partitions under their topics; a topic comes again when another one stands between."""
    name = "topic_id" if request.version >= TOPIC_IDS_SINCE else "topic"
    groups: list[tuple[object, list[Fields]]] = []
    for (topic, _), fields in partitions.items():
        if not groups or groups[-1][0] != topic:
            groups.append((topic, []))
        groups[-1][1].append(fields)
    return [{name: topic, "partitions": each} for topic, each in groups]
