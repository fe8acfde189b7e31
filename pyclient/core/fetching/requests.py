"""The fields of a Fetch request. Knows the protocol's names; decides nothing."""
from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Final

from pyclient.codec.apis import VersionRange
from pyclient.core.fetching.limits import FetchLimits
from pyclient.core.fetching.lookups import CONSUMER_ID
from pyclient.core.fetching.sessions import Asking, Wish
from pyclient.records import TopicPartition

SESSIONS_SINCE: Final = 7
TOPIC_IDS_SINCE: Final = 13
BY_NAME: Final = VersionRange(0, TOPIC_IDS_SINCE - 1)


def fetch_fields(asking: Asking, limits: FetchLimits, *, rack: str, max_bytes: int, wait: float) -> Callable[[int], dict[str, object]]:
    """The fields by version: what *asking* says of the session, at most *max_bytes* of records after at most *wait* seconds."""
    def fields(version: int) -> dict[str, object]:
        by_id = version >= TOPIC_IDS_SINCE
        return {
            "replica_id": CONSUMER_ID, "max_wait": datetime.timedelta(seconds=wait), "min_bytes": limits.min_bytes,
            "max_bytes": max_bytes, "isolation_level": limits.isolation, "rack_id": rack,
            "session_id": asking.id, "session_epoch": asking.epoch,
            "topics": _topics(asking.wishes if version >= SESSIONS_SINCE else asking.everything, limits.max_partition_bytes, by_id=by_id),
            "forgotten_topics_data": _forgotten(asking, by_id=by_id),
        }
    return fields


def _topics(wishes: Mapping[TopicPartition, Wish], max_bytes: int, *, by_id: bool) -> list[dict[str, object]]:
    name = "topic_id" if by_id else "topic"
    topics: dict[object, list[dict[str, object]]] = {}
    for tp, wish in wishes.items():
        topics.setdefault(wish.topic_id if by_id else tp.topic, []).append(_partition(tp, wish, max_bytes))
    return [{name: topic, "partitions": parts} for topic, parts in topics.items()]


def _partition(tp: TopicPartition, wish: Wish, max_bytes: int) -> dict[str, object]:
    return {"partition": tp.partition, "fetch_offset": wish.offset, "current_leader_epoch": wish.leader_epoch,
            "last_fetched_epoch": wish.last_epoch, "partition_max_bytes": max_bytes}


def _forgotten(asking: Asking, *, by_id: bool) -> list[dict[str, object]]:
    name = "topic_id" if by_id else "topic"
    topics: dict[object, list[int]] = {}
    for tp, wish in asking.forgets(by_id=by_id):
        topics.setdefault(wish.topic_id if by_id else tp.topic, []).append(tp.partition)
    return [{name: topic, "partitions": parts} for topic, parts in topics.items()]
