"""Metadata: brokers, topics, leaders; and topics that come into being by being asked for."""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.kafka import Broker, Kafka, Topic
from pyclient.testing.fake.model.elections import NO_LEADER
from pyclient.testing.fake.model.partition import Partition

NO_OPERATIONS: Final = -(2**31)
TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Dots alone are no name; checked apart."""
EMPTY_MEANS_ALL: Final = 0
IDS_SINCE: Final = 12
EVERY_TOPIC_OPERATION: Final = 0b1101_1111_1000
"""READ to ALTER_CONFIGS, a bit each: without an authorizer all operations are allowed."""
EVERY_CLUSTER_OPERATION: Final = 0b1_1111_1010_0000


def is_topic_name(name: str) -> bool:
    """Whether Kafka takes this as a topic's name."""
    return TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def metadata(kafka: Kafka, request: Request) -> Fields:
    """The view of the broker that was asked; all brokers of the model agree."""
    if request.version < IDS_SINCE and any(getattr(each, "topic_id", None) is not None for each in request.body.topics or ()):
        return refuse_metadata(request, ErrorCode.invalid_request)
    operations = getattr(request.body, "include_cluster_authorized_operations", False)
    return {
        "throttle_time": 0, "error_code": 0, "cluster_id": kafka.cluster_id, "controller_id": kafka.controller,
        "cluster_authorized_operations": EVERY_CLUSTER_OPERATION if operations else NO_OPERATIONS,
        "brokers": [node_fields(each) for each in kafka.brokers.values() if each.alive],
        "topics": list(_topics(kafka, request)),
    }


def refuse_metadata(request: Request, code: int) -> Fields:
    """The error for every topic asked for."""
    topics = [{**_missing(getattr(each, "name", None), getattr(each, "topic_id", None), code)} for each in request.body.topics or ()]
    return {"throttle_time": 0, "error_code": code, "cluster_id": None, "controller_id": NO_LEADER, "brokers": [], "topics": topics,
            "cluster_authorized_operations": NO_OPERATIONS}


def node_fields(broker: Broker) -> Fields:
    """A broker as answers name it."""
    return {"node_id": broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack}


def _topics(kafka: Kafka, request: Request) -> Iterator[Fields]:
    operations = EVERY_TOPIC_OPERATION if getattr(request.body, "include_topic_authorized_operations", False) else NO_OPERATIONS
    for each in _found(kafka, request):
        yield _topic(each, operations) if isinstance(each, Topic) else each


def _found(kafka: Kafka, request: Request) -> Iterator[Topic | Fields]:
    """The topics asked for, each once, and for those that are not there the error."""
    wanted = request.body.topics
    if wanted is None or (request.version == EMPTY_MEANS_ALL and not wanted):
        yield from kafka.topics.values()
        return
    ids = dict.fromkeys(each.topic_id for each in wanted if getattr(each, "topic_id", None) is not None)
    if ids:  # the names beside them are left out
        yield from (kafka.topics_by_id.get(each) or _missing(None, each, ErrorCode.unknown_topic_id) for each in ids)
        return
    creates = kafka.settings.auto_create_topics_enable and getattr(request.body, "allow_auto_topic_creation", True)
    for name in dict.fromkeys(each.name for each in wanted):
        yield kafka.topics.get(name) or _unknown(kafka, name, creates=creates)


def _unknown(kafka: Kafka, name: str, *, creates: bool) -> Fields:
    if not is_topic_name(name):
        return _missing(name, None, ErrorCode.invalid_topic_exception)
    if creates:
        kafka.create_topic(name)  # known from the next answer on, as with a real broker
    return _missing(name, None, ErrorCode.unknown_topic_or_partition)


def _missing(name: str | None, topic_id: UUID | None, code: int) -> Fields:
    return {"error_code": code, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": [],
            "topic_authorized_operations": NO_OPERATIONS}


def _topic(topic: Topic, operations: int) -> Fields:
    return {"error_code": 0, "name": topic.name, "topic_id": topic.id, "is_internal": topic.internal,
            "partitions": [_partition(each) for each in topic.partitions], "topic_authorized_operations": operations}


def _partition(partition: Partition) -> Fields:
    return {
        "error_code": ErrorCode.leader_not_available if partition.leader == NO_LEADER else 0, "partition_index": partition.index,
        "leader_id": partition.leader, "leader_epoch": partition.leader_epoch, "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr, "offline_replicas": partition.offline,
    }
