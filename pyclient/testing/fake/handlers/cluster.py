"""DescribeCluster and DescribeTopicPartitions: what newer admin clients ask instead of Metadata."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.handlers.metadata import node_fields
from pyclient.testing.fake.handlers.topics import name_problem
from pyclient.testing.fake.model.kafka import Kafka, Topic
from pyclient.testing.fake.model.elections import NO_LEADER
from pyclient.testing.fake.model.partition import Partition

BROKERS: Final = 1
CONTROLLERS: Final = 2
NO_OPERATIONS: Final = -(2**31)
CLUSTER_OPERATIONS: Final = 8096
TOPIC_OPERATIONS: Final = 3576
"""Bit sets of all operations: there is no authorizer."""
MOST_PARTITIONS: Final = 2000


# ---- the cluster -----------------------------------------------------------------------------------------------------


def describe_cluster(kafka: Kafka, request: Request) -> Fields:
    """Brokers and controller; fenced brokers (those that are down) are shown to who asks for them."""
    endpoint = getattr(request.body, "endpoint_type", BROKERS)
    if endpoint == CONTROLLERS:
        return {**refuse_describe_cluster(request, ErrorCode.mismatched_endpoint_type), "error_message":
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"}
    if endpoint != BROKERS:
        return {**refuse_describe_cluster(request, ErrorCode.unsupported_endpoint_type), "error_message": f"Unsupported endpoint type {endpoint}"}
    fenced = getattr(request.body, "include_fenced_brokers", False)
    shown = [each for each in kafka.brokers.values() if each.alive or fenced]
    return {"throttle_time": 0, "error_code": 0, "error_message": None, "endpoint_type": BROKERS, "cluster_id": kafka.cluster_id,
            "controller_id": kafka.controller,
            "brokers": [{**node_fields(each), "broker_id": each.id, "is_fenced": not each.alive} for each in shown],
            "cluster_authorized_operations":
                CLUSTER_OPERATIONS if request.body.include_cluster_authorized_operations else NO_OPERATIONS}


def refuse_describe_cluster(_request: Request, code: int) -> Fields:
    """An error, without brokers."""
    return {"throttle_time": 0, "error_code": code, "error_message": None, "endpoint_type": BROKERS, "cluster_id": "",
            "controller_id": NO_LEADER, "brokers": [], "cluster_authorized_operations": NO_OPERATIONS}


# ---- topics, page by page --------------------------------------------------------------------------------------------


def describe_topic_partitions(kafka: Kafka, request: Request) -> Fields:
    """Topics by name, at most so many partitions at once; the cursor says where the next page begins."""
    cursor = request.body.cursor
    if cursor is not None and (cursor.partition_index < 0 or (request.body.topics and cursor.topic_name not in _names(kafka, request))):
        return refuse_describe_topic_partitions(request, ErrorCode.invalid_request)
    left = max(1, min(request.body.response_partition_limit, MOST_PARTITIONS))
    answers: list[Fields] = []
    following: Fields | None = None
    for name, first in _pages(kafka, request):
        topic = kafka.topics.get(name)
        if topic is None:
            answers.append(_missing(name))
            continue
        if not left:
            following = {"topic_name": name, "partition_index": 0}
            break
        shown = topic.partitions[first:first + left]
        answers.append(_shown(topic, shown))
        left -= len(shown)
        if first + len(shown) < len(topic.partitions):
            following = {"topic_name": name, "partition_index": first + len(shown)}
            break
    return {"throttle_time": 0, "topics": answers, "next_cursor": following}


def refuse_describe_topic_partitions(request: Request, code: int) -> Fields:
    """The error for every topic."""
    return {"throttle_time": 0, "next_cursor": None, "topics": [
        {**_missing(each.name), "error_code": code, "topic_authorized_operations": NO_OPERATIONS} for each in request.body.topics]}


def _names(kafka: Kafka, request: Request) -> list[str]:
    return sorted({each.name for each in request.body.topics} or kafka.topics)


def _pages(kafka: Kafka, request: Request) -> Iterator[tuple[str, int]]:
    cursor: Any = request.body.cursor
    for name in _names(kafka, request):
        if cursor is None or name >= cursor.topic_name:
            yield name, cursor.partition_index if cursor is not None and name == cursor.topic_name else 0


def _missing(name: str) -> Fields:
    return {"error_code": ErrorCode.unknown_topic_or_partition if name_problem(name) is None else ErrorCode.invalid_topic_exception, "name": name, "topic_id": None,
            "is_internal": False, "partitions": [], "topic_authorized_operations": TOPIC_OPERATIONS}


def _shown(topic: Topic, partitions: list[Partition]) -> Fields:
    return {"error_code": 0, "name": topic.name, "topic_id": topic.id, "is_internal": topic.internal,
            "partitions": [_partition(each) for each in partitions], "topic_authorized_operations": TOPIC_OPERATIONS}


def _partition(partition: Partition) -> Fields:
    return {"error_code": ErrorCode.leader_not_available if partition.leader == NO_LEADER else 0, "partition_index": partition.index,
            "leader_id": partition.leader, "leader_epoch": partition.leader_epoch, "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr, "eligible_leader_replicas": [], "last_known_elr": [], "offline_replicas": partition.offline}
