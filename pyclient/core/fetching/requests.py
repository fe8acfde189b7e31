"""The fields of a fetch. Knows the protocol's names; decides nothing."""
from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Final

from pyclient.codec.apis import VersionRange
from pyclient.core.fetching.limits import FetchLimits
from pyclient.core.fetching.lookups import CONSUMER_ID
from pyclient.core.fetching.sessions import SessionRequest, PartitionRequest
from pyclient.records import TopicPartition

SESSIONS_SINCE: Final = 7
TOPIC_IDS_SINCE: Final = 13
BY_NAME: Final = VersionRange(0, TOPIC_IDS_SINCE - 1)


def fetch_fields(request: SessionRequest, limits: FetchLimits, *, rack: str, max_bytes: int,
                 wait: float) -> Callable[[int], dict[str, object]]:
    """The fields by version, for at most *max_bytes* of records after at most *wait* seconds."""
    def fields(version: int) -> dict[str, object]:
        by_id = version >= TOPIC_IDS_SINCE
        partitions = request.partitions if version >= SESSIONS_SINCE else request.all_partitions
        return {
            "replica_id": CONSUMER_ID, "max_wait": datetime.timedelta(seconds=wait), "min_bytes": limits.min_bytes,
            "max_bytes": max_bytes, "isolation_level": limits.isolation, "rack_id": rack,
            "session_id": request.id, "session_epoch": request.epoch,
            "topics": _topics(partitions, limits.max_partition_bytes, by_id=by_id),
            "forgotten_topics_data": _forgotten(request, by_id=by_id),
        }
    return fields


def _topics(partitions: Mapping[TopicPartition, PartitionRequest], max_bytes: int, *, by_id: bool) -> list[dict[str, object]]:
    name = "topic_id" if by_id else "topic"
    topics: dict[object, list[dict[str, object]]] = {}
    for tp, requested in partitions.items():
        topics.setdefault(requested.topic_id if by_id else tp.topic, []).append(_partition(tp, requested, max_bytes))
    return [{name: topic, "partitions": fields} for topic, fields in topics.items()]


def _partition(tp: TopicPartition, requested: PartitionRequest, max_bytes: int) -> dict[str, object]:
    return {"partition": tp.partition, "fetch_offset": requested.offset, "current_leader_epoch": requested.leader_epoch,
            "last_fetched_epoch": requested.last_epoch, "partition_max_bytes": max_bytes}


def _forgotten(request: SessionRequest, *, by_id: bool) -> list[dict[str, object]]:
    name = "topic_id" if by_id else "topic"
    topics: dict[object, list[int]] = {}
    for tp, requested in request.forgets(by_id=by_id):
        topics.setdefault(requested.topic_id if by_id else tp.topic, []).append(tp.partition)
    return [{name: topic, "partitions": numbers} for topic, numbers in topics.items()]
