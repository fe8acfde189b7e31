"""Replicas as calls: elect leaders, reassign, list reassignments; log directories: describe, move to another."""
from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.acl_errors import error_of
from pyclient.core.admin.items import refused, settled
from pyclient.core.admin.partitions import by_topic
from pyclient.core.calls import Anywhere, Broker, Call, CallOutcome, Done, Finish
from pyclient.descriptions.replicas import ElectionType, LogDir, Reassignment, ReplicaSize
from pyclient.errors import ElectionNotNeededError, KafkaError
from pyclient.records import TopicPartition

TYPES_SINCE: Final = 1
"""The version of ElectLeaders that has other than preferred ones."""
UNKNOWN: Final = -1
Replica: TypeAlias = tuple[str, int, int]
"""Of a topic's partition, the replica of a broker."""


def elect_leaders_call(partitions: Collection[TopicPartition] | None, election: ElectionType, *, timeout: float, finish: Finish,
                       deadline: float | None) -> Call:
    """Elect leaders (None: of all partitions that need it); the result maps each partition to whether it has a new one,
    or its error.
    """
    wanted = None if partitions is None else [
        {"topic": name, "partitions": numbers} for name, numbers in by_topic((tp, tp.partition) for tp in partitions).items()]

    def fields(version: int) -> dict[str, object]:
        return {"election_type": election, "topic_partitions": wanted, "timeout": datetime.timedelta(seconds=timeout)}

    def classify(message: Any) -> CallOutcome:
        return refused(Api.ELECT_LEADERS, message) or settled({TopicPartition(topic.topic, part.partition_id): _elected(topic.topic, part)
                                    for topic in message.replica_election_results for part in topic.partition_result})

    versions = VersionRange(TYPES_SINCE, SPOKEN[Api.ELECT_LEADERS].high) if election is not ElectionType.PREFERRED else None
    return Call(what=f"electing {election.name.lower()} leaders", api=Api.ELECT_LEADERS, target=Anywhere.CONTROLLER, fields=fields, classify=classify,
                finish=finish, deadline=deadline, versions=versions)


def _elected(topic: str, part: Any) -> bool | KafkaError:
    if part.error_code == ElectionNotNeededError.code:
        return False
    if part.error_code:
        return error_of(Api.ELECT_LEADERS, part.error_code, part.error_message, tp=TopicPartition(topic, part.partition_id))
    return True


def alter_reassignments_call(replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout: float, finish: Finish, deadline: float | None) -> Call:
    """Move partitions to other brokers, or (None) cancel it; the result maps each to None or its error."""
    parts = by_topic((tp, {"partition_index": tp.partition, "replicas": None if those is None else list(those)}) for tp, those in replicas.items())
    topics = [{"name": name, "partitions": each} for name, each in parts.items()]

    def fields(version: int) -> dict[str, object]:
        return {"timeout": datetime.timedelta(seconds=timeout), "allow_replication_factor_change": True, "topics": topics}

    def classify(message: Any) -> CallOutcome:
        return refused(Api.ALTER_PARTITION_REASSIGNMENTS, message) or settled({tp: error_of(Api.ALTER_PARTITION_REASSIGNMENTS, part.error_code, part.error_message, tp=tp) if part.error_code else None
                                    for topic in message.responses for part in topic.partitions for tp in [TopicPartition(topic.name, part.partition_index)]})

    return Call(what=f"reassigning {len(replicas)} partitions", api=Api.ALTER_PARTITION_REASSIGNMENTS, target=Anywhere.CONTROLLER, fields=fields,
                classify=classify, finish=finish, deadline=deadline)


def list_reassignments_call(partitions: Collection[TopicPartition] | None, *, timeout: float, finish: Finish, deadline: float | None) -> Call:
    """The partitions (None: of all) that are being moved, each with its `Reassignment`."""
    topics = None if partitions is None else [
        {"name": name, "partition_indexes": numbers} for name, numbers in by_topic((tp, tp.partition) for tp in partitions).items()]

    def fields(version: int) -> dict[str, object]:
        return {"timeout": datetime.timedelta(seconds=timeout), "topics": topics}

    def classify(message: Any) -> CallOutcome:
        return refused(Api.LIST_PARTITION_REASSIGNMENTS, message) or Done({TopicPartition(topic.name, part.partition_index): Reassignment(
            tuple(part.replicas), tuple(part.adding_replicas), tuple(part.removing_replicas)) for topic in message.topics for part in topic.partitions})

    return Call(what="listing reassignments", api=Api.LIST_PARTITION_REASSIGNMENTS, target=Anywhere.CONTROLLER, fields=fields, classify=classify,
                finish=finish, deadline=deadline)


def alter_log_dirs_call(node: int, directories: Mapping[Replica, str], *, finish: Finish, deadline: float | None) -> Call:
    """Move replicas of a broker to others of its log directories; the result maps each to None or its error."""
    paths: dict[str, list[Replica]] = {}
    for replica, path in directories.items():
        paths.setdefault(path, []).append(replica)
    wanted = [{"path": path, "topics": [{"name": name, "partitions": numbers} for name, numbers in _by_name(those).items()]} for path, those in paths.items()]

    def classify(message: Any) -> CallOutcome:
        return Done({(topic.topic_name, part.partition_index, node): _log_dir_error(topic.topic_name, part, node)
                     for topic in message.results for part in topic.partitions})

    return Call(what=f"moving replicas between the log directories of node {node}", api=Api.ALTER_REPLICA_LOG_DIRS, target=Broker(node), classify=classify,
                finish=finish, deadline=deadline, fields=lambda version: {"dirs": wanted})


def _by_name(replicas: Collection[Replica]) -> dict[str, list[int]]:
    return by_topic((TopicPartition(topic, partition), partition) for topic, partition, _ in replicas)


def _log_dir_error(topic: str, part: Any, node: int) -> KafkaError | None:
    tp = TopicPartition(topic, part.partition_index)
    return error_of(Api.ALTER_REPLICA_LOG_DIRS, part.error_code, f"broker {node}", tp=tp) if part.error_code else None


def describe_log_dirs_call(node: int, partitions: Collection[TopicPartition] | None, *, finish: Finish, deadline: float | None) -> Call:
    """The log directories of a broker by path, with the replicas (None: all) that lie in each."""
    topics = None if partitions is None else [
        {"topic": name, "partitions": numbers} for name, numbers in by_topic((tp, tp.partition) for tp in partitions).items()]

    def classify(message: Any) -> CallOutcome:
        return refused(Api.DESCRIBE_LOG_DIRS, message) or Done({each.log_dir: _log_dir(each) for each in message.results})

    return Call(what=f"describing the log directories of node {node}", api=Api.DESCRIBE_LOG_DIRS, target=Broker(node), classify=classify, finish=finish,
                deadline=deadline, fields=lambda version: {"topics": topics})


def _log_dir(found: Any) -> LogDir:
    error = error_of(Api.DESCRIBE_LOG_DIRS, found.error_code, found.log_dir) if found.error_code else None
    replicas = {TopicPartition(topic.name, part.partition_index): ReplicaSize(part.partition_size, part.offset_lag, part.is_future_key)
                for topic in found.topics for part in topic.partitions}
    total, usable = (getattr(found, name, UNKNOWN) for name in ("total_bytes", "usable_bytes"))
    return LogDir(found.log_dir, error, None if total == UNKNOWN else total, None if usable == UNKNOWN else usable, replicas)
