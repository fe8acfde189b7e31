"""Topics as calls: create, delete, add partitions, describe."""
from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.admin.items import per_item
from pyclient.core.calls import Again, Anywhere, Call, CallOutcome, Done, Finish
from pyclient.core.cluster import Cluster
from pyclient.descriptions.topics import NewPartitions, NewTopic
from pyclient.errors import BrokerNotAvailableError

OPERATIONS_SINCE: Final = 8
"""The first version of Metadata with authorized operations (KIP-430)."""


def create_topics_call(topics: Sequence[NewTopic], *, validate_only: bool, timeout: float, finish: Finish, deadline: float | None) -> Call:
    """Create topics; the result maps each name to None or its error."""

    def fields(version: int) -> dict[str, object]:
        return {"topics": [_new_topic(topic) for topic in topics], "validate_only": validate_only,
                "timeout": datetime.timedelta(seconds=timeout)}

    def classify(message: Any) -> CallOutcome:
        return per_item(Api.CREATE_TOPICS, {each.name: (each.error_code, getattr(each, "error_message", None)) for each in message.topics})

    return Call(what=f"creating {len(topics)} topics", api=Api.CREATE_TOPICS, target=Anywhere.CONTROLLER,
                fields=fields, classify=classify, finish=finish, deadline=deadline)


def delete_topics_call(names: Sequence[str], *, timeout: float, finish: Finish, deadline: float | None) -> Call:
    """Delete topics; the result maps each name to None or its error."""

    def fields(version: int) -> dict[str, object]:
        limit = datetime.timedelta(seconds=timeout)
        if version >= 6:
            return {"topics": [{"name": name, "topic_id": None} for name in names], "timeout": limit}
        return {"topic_names": names, "timeout": limit}

    def classify(message: Any) -> CallOutcome:
        return per_item(Api.DELETE_TOPICS, {each.name: (each.error_code, getattr(each, "error_message", None)) for each in message.responses})

    return Call(what=f"deleting {len(names)} topics", api=Api.DELETE_TOPICS, target=Anywhere.CONTROLLER,
                fields=fields, classify=classify, finish=finish, deadline=deadline)


def create_partitions_call(wanted: Mapping[str, NewPartitions], *, validate_only: bool, timeout: float, finish: Finish,
                           deadline: float | None) -> Call:
    """Add partitions to topics; the result maps each name to None or its error."""

    def fields(version: int) -> dict[str, object]:
        return {"topics": [_grown_topic(name, each) for name, each in wanted.items()], "validate_only": validate_only,
                "timeout": datetime.timedelta(seconds=timeout)}

    def classify(message: Any) -> CallOutcome:
        return per_item(Api.CREATE_PARTITIONS, {each.name: (each.error_code, each.error_message) for each in message.results})

    return Call(what=f"adding partitions to {len(wanted)} topics", api=Api.CREATE_PARTITIONS, target=Anywhere.CONTROLLER,
                fields=fields, classify=classify, finish=finish, deadline=deadline)


def metadata_call(topics: Iterable[str] | None, *, operations: bool = False, finish: Finish, deadline: float | None) -> Call:
    """Describe topics (None: all) and the cluster; the result is a `Cluster` of its own. Creates nothing.

    With *operations* its topics have what this client's user may do with them.
    """
    names = None if topics is None else list(topics)

    def fields(version: int) -> dict[str, object]:
        wanted = None if names is None else [{"name": name, "topic_id": None} for name in names]
        return {"topics": wanted, "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": operations}

    def classify(message: Any) -> CallOutcome:
        if not message.brokers:  # of a cluster without brokers, lists of all brokers would be empty
            return Again(BrokerNotAvailableError("a broker that is still starting knows no brokers yet"))
        return Done(Cluster().updated(message))

    return Call(what="describing topics", api=Api.METADATA, target=Anywhere.ANY_NODE, fields=fields, classify=classify, finish=finish,
                deadline=deadline, versions=VersionRange(OPERATIONS_SINCE, SPOKEN[Api.METADATA].high) if operations else None)


def _new_topic(topic: NewTopic) -> dict[str, object]:
    return {
        "name": topic.name,
        "num_partitions": -1 if topic.replica_assignments else topic.partitions,
        "replication_factor": -1 if topic.replica_assignments else topic.replication_factor,
        "assignments": [{"partition_index": number, "broker_ids": nodes} for number, nodes in topic.replica_assignments.items()],
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }


def _grown_topic(name: str, wanted: NewPartitions) -> dict[str, object]:
    placed = [{"broker_ids": nodes} for nodes in wanted.replica_assignments]
    return {"name": name, "count": wanted.total, "assignments": placed or None}
