"""Records and their offsets as calls to the leaders of partitions: list offsets, delete records."""
from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.admin.partitions import by_topic, per_partition
from pyclient.core.calls import Broker, Call, CallOutcome, Finish
from pyclient.descriptions.offsets import ListedOffset, OffsetSpec
from pyclient.records import NO_LEADER_EPOCH, TopicPartition

CONSUMER_ID: Final = -1
NO_OFFSET: Final = -1
SINCE: Final[Mapping[int, int]] = {OffsetSpec.MAX_TIMESTAMP: 7, OffsetSpec.EARLIEST_LOCAL: 8, OffsetSpec.LATEST_TIERED: 9}
"""The version of ListOffsets that first has it."""


def by_version(specs: Mapping[TopicPartition, int]) -> list[dict[TopicPartition, int]]:
    """The partitions that one request may ask for together: an older broker refuses only what it does not have."""
    parts: dict[int, dict[TopicPartition, int]] = {}
    for tp, spec in specs.items():
        parts.setdefault(SINCE.get(spec, 0), {})[tp] = spec
    return list(parts.values())


def list_offsets_call(specs: Mapping[TopicPartition, int], *, node: int, isolation: int, finish: Finish, deadline: float | None) -> Call:
    """Offsets by spec or time (ms); the result maps each partition to a `ListedOffset`, None, or its error."""
    topics = _topics((tp, {"partition_index": tp.partition, "current_leader_epoch": NO_LEADER_EPOCH, "timestamp": spec}) for tp, spec in specs.items())

    def fields(version: int) -> dict[str, object]:
        return {"replica_id": CONSUMER_ID, "isolation_level": isolation, "topics": topics}

    def classify(message: Any) -> CallOutcome:
        return per_partition(Api.LIST_OFFSETS, message.topics, _listed)

    least = max((SINCE.get(spec, 0) for spec in specs.values()), default=0)
    return Call(what=f"listing offsets of {len(specs)} partitions", api=Api.LIST_OFFSETS, target=Broker(node), fields=fields, classify=classify, finish=finish,
                deadline=deadline, versions=VersionRange(least, SPOKEN[Api.LIST_OFFSETS].high) if least else None)


def delete_records_call(offsets: Mapping[TopicPartition, int], *, node: int, timeout: float, finish: Finish, deadline: float | None) -> Call:
    """Delete the records before offsets (-1: all); the result maps each partition to its first offset or its error."""
    topics = _topics((tp, {"partition_index": tp.partition, "offset": offset}) for tp, offset in offsets.items())

    def fields(version: int) -> dict[str, object]:
        return {"topics": topics, "timeout": datetime.timedelta(seconds=timeout)}

    def classify(message: Any) -> CallOutcome:
        return per_partition(Api.DELETE_RECORDS, message.topics, lambda part: part.low_watermark)

    return Call(what=f"deleting records of {len(offsets)} partitions", api=Api.DELETE_RECORDS, target=Broker(node), fields=fields, classify=classify,
                finish=finish, deadline=deadline)


def _listed(part: Any) -> ListedOffset | None:
    if part.offset == NO_OFFSET:
        return None
    epoch = getattr(part, "leader_epoch", NO_LEADER_EPOCH)
    return ListedOffset(part.offset, _ms(part.timestamp), None if epoch == NO_LEADER_EPOCH else epoch)


def _ms(timestamp: Any) -> int | None:
    return None if timestamp is None or timestamp < 0 else timestamp


def _topics(parts: Iterable[tuple[TopicPartition, dict[str, object]]]) -> list[dict[str, object]]:
    return [{"name": name, "partitions": each} for name, each in by_topic(parts).items()]
