"""Metadata: brokers, topics, leaders; and topics that come into being by being asked for."""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from pyclient.testing.fake.asking import Asked, Fields
from pyclient.testing.fake.model import Broker, Kafka, Topic
from pyclient.testing.fake.partition import NOBODY, Partition

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
INVALID_TOPIC: Final = 17
UNKNOWN_TOPIC_ID: Final = 100
NO_OPERATIONS: Final = -(2**31)
TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Dots alone are no name; checked apart."""
EMPTY_MEANS_ALL: Final = 0


def is_topic_name(name: str) -> bool:
    """Whether Kafka takes this as a topic's name."""
    return TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def metadata(kafka: Kafka, asked: Asked) -> Fields:
    """The view of the broker that was asked; all brokers of the model agree."""
    return {
        "throttle_time": 0, "error_code": 0, "cluster_id": kafka.cluster_id, "controller_id": kafka.controller,
        "cluster_authorized_operations": NO_OPERATIONS,
        "brokers": [node_fields(each) for each in kafka.brokers.values() if each.alive],
        "topics": list(_topics(kafka, asked)),
    }


def refuse_metadata(asked: Asked, code: int) -> Fields:
    """The error for every topic asked for."""
    topics = [{**_missing(getattr(each, "name", None), getattr(each, "topic_id", None), code)} for each in asked.body.topics or ()]
    return {"throttle_time": 0, "error_code": code, "cluster_id": None, "controller_id": NOBODY, "brokers": [], "topics": topics,
            "cluster_authorized_operations": NO_OPERATIONS}


def node_fields(broker: Broker) -> Fields:
    """A broker as answers name it."""
    return {"node_id": broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack}


def _topics(kafka: Kafka, asked: Asked) -> Iterator[Fields]:
    wanted = asked.body.topics
    if wanted is None or (asked.version == EMPTY_MEANS_ALL and not wanted):
        yield from (_topic(each, 0) for each in kafka.topics.values())
        return
    creates = kafka.settings.auto_create_topics_enable and getattr(asked.body, "allow_auto_topic_creation", True)
    for each in wanted:
        if getattr(each, "topic_id", None) is not None and each.name is None:
            yield _by_id(kafka, each.topic_id)
        else:
            yield _by_name(kafka, each.name, creates=creates)


def _by_id(kafka: Kafka, topic_id: UUID) -> Fields:
    found = kafka.topics_by_id.get(topic_id)
    return _topic(found, 0) if found is not None else _missing(None, topic_id, UNKNOWN_TOPIC_ID)


def _by_name(kafka: Kafka, name: str, *, creates: bool) -> Fields:
    found = kafka.topics.get(name)
    if found is not None:
        return _topic(found, 0)
    if not is_topic_name(name):
        return _missing(name, None, INVALID_TOPIC)
    if creates:
        kafka.create_topic(name)  # known from the next answer on, as with a real broker
    return _missing(name, None, UNKNOWN_TOPIC_OR_PARTITION)


def _missing(name: str | None, topic_id: UUID | None, code: int) -> Fields:
    return {"error_code": code, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": [],
            "topic_authorized_operations": NO_OPERATIONS}


def _topic(topic: Topic, code: int) -> Fields:
    return {"error_code": code, "name": topic.name, "topic_id": topic.id, "is_internal": topic.internal,
            "partitions": [_partition(each) for each in topic.partitions], "topic_authorized_operations": NO_OPERATIONS}


def _partition(partition: Partition) -> Fields:
    return {
        "error_code": LEADER_NOT_AVAILABLE if partition.leader == NOBODY else 0, "partition_index": partition.index,
        "leader_id": partition.leader, "leader_epoch": partition.leader_epoch, "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr, "offline_replicas": partition.offline,
    }
