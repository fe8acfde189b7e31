"""The current leader in error responses of Produce and Fetch (KIP-951)."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Fields
from pyclient.testing.fake.handlers.metadata import node_fields
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.elections import NO_LEADER
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.fake.model.refusal import RefusalError

UNKNOWN_EPOCH: Final = -1


def found(kafka: Kafka, topic: str | UUID | None, index: int, *, by_id: bool) -> Partition:
    """The partition that a request means.

    Raises:
        RefusalError: there is none.
    """
    partition = kafka.partition(topic, index)
    if partition is None:
        unknown_id = by_id and (not isinstance(topic, UUID) or topic not in kafka.topics_by_id)
        raise RefusalError(ErrorCode.unknown_topic_id if unknown_id else ErrorCode.unknown_topic_or_partition, has_log_start=False)
    return partition


def leader_fields(partition: Partition | None) -> Fields:
    """Who leads a partition, for one that has asked the wrong broker."""
    if partition is None:
        return {"leader_id": NO_LEADER, "leader_epoch": UNKNOWN_EPOCH}
    return {"leader_id": partition.leader, "leader_epoch": partition.leader_epoch}


def endpoints(kafka: Kafka, leaders: Iterable[Mapping[str, object]]) -> list[Fields]:
    """Where the leaders named in an answer are."""
    ids = {int(str(each["leader_id"])): None for each in leaders}
    return [node_fields(kafka.brokers[each]) for each in ids if each != NO_LEADER and kafka.brokers[each].alive]
