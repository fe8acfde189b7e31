"""Fetch with and without sessions, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from pyclient.codec.apis import Api
from tests.broker.conformance.preparing import (
    all_partitions,
    batch,
    fetch,
    fetch_all,
    list_offsets,
    topic,
    topic_id,
    wish,
)
from tests.broker.conformance.script import Act, Hangup, Receive, Script, Step, Value, got, named
from tests.broker.conformance.scripts_produce import stored
from tests.kafka import WRITTEN_AT

BY_ID: Final = 13
SESSIONS_SINCE: Final = 7
UNKNOWN_ID: Final = UUID(int=0x1234)
BATCHES: Final = tuple(batch(*values) for values in ((b"a", b"b"), (b"c" * 100,), (b"d" * 1000, b"e"), (b"f",)))
TOPIC: Final = named("topic")
SIZES: Final = tuple(map(len, BATCHES))


def filled(name: str = "topic", partitions: int = 1) -> tuple[Act, ...]:
    """A topic whose partitions hold `BATCHES`: offsets 0-1, 2, 3-4, 5."""
    return (*topic(name, partitions),
            *(stored_in(name, index, each) for index in range(partitions) for each in BATCHES))


def stored_in(name: str, partition: int, records: bytes) -> Step:
    return stored(records, partition=partition, topic=name)


def fetched(*wishes: Value, since: int = 0, until: int = 99, name: str = "", on: str = "first", **fields: Value) -> Step:
    return Step(api=Api.FETCH, name=name, since=since, until=until, on=on, fields=fetch(*wishes, **fields))


def limited(partition_bytes: int, total: int) -> Step:
    """Both partitions, so many bytes."""
    return fetched(wish(0, partition_max_bytes=partition_bytes), wish(1, partition_max_bytes=partition_bytes), max_bytes=total)


def unknown(name: str, its_id: UUID) -> Value:
    return {**wish(), "topic": name, "topic_id": its_id}


FETCHING: Final = Script(name="fetch", api=Api.FETCH, acts=(
    *filled("topic", 2),
    fetched(wish()), fetched(wish(offset=1)), fetched(wish(offset=2)), fetched(wish(offset=4)), fetched(wish(offset=5)),
    fetched(wish(offset=6)), fetched(wish(offset=6), max_wait=50, min_bytes=1),
    fetched(wish(offset=7)), fetched(wish(offset=-1)), fetched(wish(offset=-2)),
    fetched(wish(), isolation_level=1), fetched(wish(offset=6), isolation_level=1),
    fetched(wish(7)), fetched(wish(-1)),
    fetched(wish(0), wish(1)),
    fetched(unknown("unknown", UNKNOWN_ID), wish()),
    fetched(since=4), fetched(wish(offset=6), min_bytes=0, max_wait=10_000),
    fetched(wish(), since=9, until=99), fetched(wish(current_leader_epoch=0), since=9), fetched(wish(current_leader_epoch=1), since=9),
    fetched(wish(offset=6, current_leader_epoch=3), since=9),
    fetched(wish(offset=2, last_fetched_epoch=0), since=12), fetched(wish(offset=2, last_fetched_epoch=1), since=12),
    fetched(wish(offset=50, last_fetched_epoch=0), since=12),
    fetched(wish(), rack_id="a", since=11),
))
LIMITS: Final = Script(name="fetch-limits", api=Api.FETCH, acts=(
    *filled("topic", 2),
    *(limited(size, 2**20) for size in (0, 1, 10, SIZES[0] - 1, SIZES[0], SIZES[0] + 1, SIZES[0] + 17, sum(SIZES[:2]), sum(SIZES) - 1)),
    *(limited(2**20, size) for size in (0, 1, 10, SIZES[0], SIZES[0] + 17, sum(SIZES), sum(SIZES) + 16, sum(SIZES) + 17, sum(SIZES) + SIZES[0],
                                         sum(SIZES) + SIZES[0] + 1)),
    fetched(wish(offset=3, partition_max_bytes=100)), fetched(wish(offset=3), max_bytes=100),
    fetched(wish(offset=6), wish(1, 3, partition_max_bytes=100), max_bytes=50),
))
WAITING: Final = Script(name="fetch-waits", api=Api.FETCH, acts=(
    *topic("topic"),
    Step(api=Api.FETCH, name="waits", later=True, fields=fetch(wish(), max_wait=15_000, min_bytes=1)),
    Step(api=Api.PRODUCE, on="second", fields=stored(BATCHES[0]).fields),
    Receive("waits"),
    Step(api=Api.FETCH, name="more", later=True, fields=fetch(wish(offset=2), max_wait=15_000, min_bytes=SIZES[1] + 1)),
    Step(api=Api.PRODUCE, on="second", fields=stored(BATCHES[1]).fields),
    Step(api=Api.PRODUCE, on="second", fields=stored(BATCHES[2]).fields),
    Receive("more"),
    fetched(wish(offset=2), max_wait=100, min_bytes=1_000_000),
))


def first(*wishes: Value, name: str = "session") -> Step:
    """Opens a session."""
    return fetched(*wishes, name=name, session_id=0, session_epoch=0)


def again(epoch: int, *wishes: Value, of: str = "session", **fields: Value) -> Step:
    """The next request of a session."""
    return fetched(*wishes, session_id=got(of, "session_id"), session_epoch=epoch, **fields)


def forgotten(*partitions: int, name: str = "topic") -> Sequence[Value]:
    return [{"topic": named(name), "topic_id": topic_id(name), "partitions": list(partitions)}]


SESSIONS: Final = Script(name="fetch-session", api=Api.FETCH, since=SESSIONS_SINCE, acts=(
    *filled("topic", 2), *topic("empty"),
    first(wish(0), wish(1, 6), wish(0, 0, "empty")),
    again(1), again(2, wish(0, 6)), again(3), again(4, wish(1, 0)), again(5, wish(1, 6)),
    stored_in("empty", 0, BATCHES[0]),
    again(6), again(7, wish(0, 2, "empty")), again(8),
    stored_in("empty", 0, BATCHES[0]), again(9, forgotten_topics_data=forgotten(0, name="empty")), again(10),
    stored_in("topic", 0, BATCHES[1]), again(11, forgotten_topics_data=forgotten(1)), again(12, wish(0, 7)),
    again(12, wish(0, 0)), again(14), again(13, wish(0, 99)), again(14), again(15, wish(0, 7)), again(16, wish(7, 0)), again(17),
    again(18, unknown("unknown", UNKNOWN_ID)), again(19),
    again(0, wish(0)), again(1, of="session"),
    fetched(wish(0), session_id=123_456_789, session_epoch=1),
    fetched(wish(0), session_id=123_456_789, session_epoch=0),
    fetched(wish(0), session_id=0, session_epoch=5), fetched(wish(0), session_id=0, session_epoch=-1),
    first(wish(0), name="next"), again(-1, of="next"), again(1, of="next"),
    first(wish(0), name="third"), Hangup("first"), again(1, of="third"), again(2, wish(0, 7), of="third", on="other"),
    first(), first(wish(9)),
))


def asked(timestamp: int, partition: int = 0, since: int = 0, epoch: int = -1, **fields: Value) -> Step:
    request = list_offsets([(named("topic"), partition)], timestamp, **fields)
    request["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
    return Step(api=Api.LIST_OFFSETS, since=since, fields=request)


LISTING: Final = Script(name="list-offsets", api=Api.LIST_OFFSETS, acts=(
    *filled("topic"), *topic("empty"),
    *(asked(timestamp) for timestamp in (-1, -2, 0, 1, WRITTEN_AT - 1, WRITTEN_AT, WRITTEN_AT + 1, WRITTEN_AT + 2, 4_000_000_000_000)),
    *(asked(timestamp) for timestamp in (-3, -4, -5, -6, -7, -100)),
    *(asked(timestamp, isolation_level=1, since=2) for timestamp in (-1, -2, -3, WRITTEN_AT)),
    *(asked(-1, epoch=epoch, since=4) for epoch in (0, 1)), asked(WRITTEN_AT, epoch=1, since=4), asked(-2, epoch=7, since=4),
    asked(-1, 7), asked(-1, -1),
    *(Step(api=Api.LIST_OFFSETS, fields=list_offsets([(named("empty"), 0)], timestamp)) for timestamp in (-1, -2, WRITTEN_AT)),
    *(Step(api=Api.LIST_OFFSETS, since=7, fields=list_offsets([(named("empty"), 0)], timestamp)) for timestamp in (-3, -4, -5)),
    Step(api=Api.LIST_OFFSETS, fields=list_offsets([("unknown", 0)])), Step(api=Api.LIST_OFFSETS, fields=list_offsets([("a b", 0)])),
    Step(api=Api.LIST_OFFSETS, fields=list_offsets([])),
    Step(api=Api.LIST_OFFSETS, fields={**list_offsets([]), "topics": [{"name": named("topic"), "partitions": [
        {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp} for timestamp in (-1, -2)]}]}),
))


def epoch(leader_epoch: int, partition: int = 0, current: int = -1, name: Value = TOPIC, replica: int = -2) -> Step:
    return Step(api=Api.OFFSET_FOR_LEADER_EPOCH, fields={"replica_id": replica, "topics": [{"topic": name, "partitions": [
        {"partition": partition, "current_leader_epoch": current, "leader_epoch": leader_epoch}]}]})


EPOCHS: Final = Script(name="leader-epochs", api=Api.OFFSET_FOR_LEADER_EPOCH, acts=(
    *filled("topic"), *topic("empty"),
    epoch(0), epoch(1), epoch(-1), epoch(9), epoch(0, 7), epoch(0, current=0), epoch(0, current=1), epoch(0, replica=-1),
    epoch(0, name="unknown"), epoch(0, name=named("empty")), epoch(1, name=named("empty")),
))


def deleted(offset: int, partition: int = 0, name: Value = TOPIC) -> Step:
    return Step(api=Api.DELETE_RECORDS, fields={"timeout": 5_000, "topics": [
        {"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}]})


DELETING: Final = Script(name="delete-records", api=Api.DELETE_RECORDS, acts=(
    *filled("topic"), *topic("compacted", cleanup_policy="compact"),
    deleted(0), deleted(1), fetch_all("topic", 0, 0), fetch_all("topic", 0, 1), all_partitions("topic", -2),
    deleted(0), deleted(1), deleted(4), fetch_all("topic", 0, 3), fetch_all("topic", 0, 4), all_partitions("topic", -2),
    deleted(7), deleted(-2), deleted(-1), all_partitions("topic", -2), all_partitions("topic", -1), fetch_all("topic", 0, 6),
    deleted(0, 7), deleted(0, name="unknown"), deleted(0, name=named("compacted")), deleted(0, name="a b"),
    Step(api=Api.DELETE_RECORDS, fields={"timeout": 5_000, "topics": []}),
    stored(BATCHES[0]), fetch_all("topic", 0, 6),
))
SCRIPTS: Final = (FETCHING, LIMITS, WAITING, SESSIONS, LISTING, EPOCHS, DELETING)
