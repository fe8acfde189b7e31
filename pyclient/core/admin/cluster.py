"""The cluster as calls: its brokers and features, the quorum of its controllers, its registered brokers."""
from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import attrs

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core import controllers
from pyclient.core.acl_errors import error_of
from pyclient.core.admin.items import refused, settled
from pyclient.core.calls import Again, Anywhere, Call, CallOutcome, Done, Finish
from pyclient.core.cluster import nodes_of
from pyclient.core.handshake import ClientInfo, Versions
from pyclient.descriptions.acls import operations_of
from pyclient.descriptions.cluster import ClusterDescription, FeatureChange, FeatureRange, Quorum, QuorumReplica, VoterEndpoint
from pyclient.errors import KafkaError, ProtocolError

FEATURES_SINCE: Final = 3
"""The first version of ApiVersions with features."""
FENCED_SINCE: Final = 2
"""The first version of DescribeCluster with fenced brokers."""
METADATA_LOG: Final = "__cluster_metadata"
UNKNOWN: Final = -1


def describe_cluster_call(*, operations: bool, fenced: bool, finish: Finish, deadline: float | None) -> Call:
    """The cluster as `ClusterDescription`; with *operations* what this client's user may do with it (KIP-700), with
    *fenced* brokers that are fenced too (KIP-1073).
    """
    return Call(what="describing the cluster", api=Api.DESCRIBE_CLUSTER, target=Anywhere.ANY_NODE, classify=_classify_cluster, finish=finish, deadline=deadline,
                fields=lambda version: {"include_cluster_authorized_operations": operations, "include_fenced_brokers": fenced},
                versions=VersionRange(FENCED_SINCE, SPOKEN[Api.DESCRIBE_CLUSTER].high) if fenced else None)


def describe_controllers_call(*, operations: bool, finish: Finish, deadline: float | None) -> Call:
    """As `describe_cluster_call`, with the controllers as nodes (KIP-919)."""
    return Call(what="describing the controllers", api=Api.DESCRIBE_CLUSTER, target=Anywhere.CONTROLLER, classify=_classify_cluster, finish=finish,
                deadline=deadline, fields=lambda version: controllers.describe_fields(operations=operations), versions=controllers.DESCRIBE)


def _classify_cluster(message: Any) -> CallOutcome:
    return refused(Api.DESCRIBE_CLUSTER, message) or Done(_cluster(message))


def _cluster(found: Any) -> ClusterDescription:
    nodes = nodes_of(found.brokers, "broker_id")
    controller = found.controller_id if found.controller_id in nodes else None
    return ClusterDescription(found.cluster_id, tuple(nodes[number] for number in sorted(nodes)), controller, operations_of(found.cluster_authorized_operations))


def describe_features_call(client: ClientInfo, *, finish: Finish, deadline: float | None) -> Call:
    """The features that a broker supports, as `FeatureRange` by name."""
    def classify(message: Any) -> CallOutcome:
        finalized = Versions.from_response(message).features
        return refused(Api.API_VERSIONS, message) or Done({each.name: FeatureRange(each.min_version, each.max_version, finalized.level(each.name)) for each in message.supported_features})

    return Call(what="describing features", api=Api.API_VERSIONS, target=Anywhere.ANY_NODE, classify=classify, finish=finish, deadline=deadline,
                fields=lambda version: {"client_software_name": client.name, "client_software_version": client.version},
                versions=VersionRange(FEATURES_SINCE, SPOKEN[Api.API_VERSIONS].high))


def update_features_call(levels: Mapping[str, int], change: FeatureChange, *, validate_only: bool, timeout: float, finish: Finish,
                         deadline: float | None) -> Call:
    """Finalize levels of features (0: off); the result maps each to None or its error. All change, or none."""
    updates = [{"feature": name, "max_version_level": level, "upgrade_type": change} for name, level in levels.items()]

    def fields(version: int) -> dict[str, object]:
        return {"timeout": datetime.timedelta(seconds=timeout), "feature_updates": updates, "validate_only": validate_only}

    def classify(message: Any) -> CallOutcome:
        results = {each.feature: _update_error(each) for each in getattr(message, "results", ())}  # until version 1
        return refused(Api.UPDATE_FEATURES, message) or settled(dict.fromkeys(levels) | results)

    return Call(what=f"updating {', '.join(levels)}", api=Api.UPDATE_FEATURES, target=Anywhere.CONTROLLER, classify=classify, finish=finish,
                deadline=deadline, fields=fields)


def _update_error(result: Any) -> KafkaError | None:
    said = f"{result.feature}: {result.error_message}" if result.error_message else result.feature
    return error_of(Api.UPDATE_FEATURES, result.error_code, said) if result.error_code else None


def unregister_broker_call(node: int, *, finish: Finish, deadline: float | None) -> Call:
    """Remove a broker that is shut down from the cluster's metadata; the result is None."""
    def classify(message: Any) -> CallOutcome:
        return refused(Api.UNREGISTER_BROKER, message) or Done(None)

    return Call(what=f"unregistering broker {node}", api=Api.UNREGISTER_BROKER, target=Anywhere.CONTROLLER, classify=classify, finish=finish,
                deadline=deadline, fields=lambda version: {"broker_id": node})


def describe_quorum_call(*, finish: Finish, deadline: float | None) -> Call:
    """The quorum of the metadata log, as `Quorum`; brokers forward it to the active controller."""
    def classify(message: Any) -> CallOutcome:
        if whole := _refused_elsewhere(Api.DESCRIBE_QUORUM, message):
            return whole
        if not (message.topics and message.topics[0].partitions):
            raise ProtocolError(f"the response lacks {METADATA_LOG}")
        found = message.topics[0].partitions[0]
        return _refused_elsewhere(Api.DESCRIBE_QUORUM, found) or Done(_quorum(found, getattr(message, "nodes", ())))

    topics = [{"topic_name": METADATA_LOG, "partitions": [{"partition_index": 0}]}]
    return Call(what="describing the quorum of controllers", api=Api.DESCRIBE_QUORUM, target=Anywhere.CONTROLLER, classify=classify, finish=finish,
                deadline=deadline, fields=lambda version: {"topics": topics})


def add_voter_call(voter: int, directory: UUID, endpoints: Iterable[VoterEndpoint], *, timeout: float, finish: Finish, deadline: float | None) -> Call:
    """Let a controller vote that follows the metadata log; the result is None. Retried until it has caught up."""
    listeners = [{"name": each.name, "host": each.host, "port": each.port} for each in endpoints]

    def fields(version: int) -> dict[str, object]:
        return {"cluster_id": None, "timeout": datetime.timedelta(seconds=timeout), "voter_id": voter, "voter_directory_id": directory,
                "listeners": listeners, "ack_when_committed": True}

    return Call(what=f"adding voter {voter}", api=Api.ADD_RAFT_VOTER, target=Anywhere.CONTROLLER, finish=finish, deadline=deadline, fields=fields,
                classify=lambda message: _refused_elsewhere(Api.ADD_RAFT_VOTER, message) or Done(None))


def remove_voter_call(voter: int, directory: UUID, *, finish: Finish, deadline: float | None) -> Call:
    """Let a controller vote no more; the result is None."""
    return Call(what=f"removing voter {voter}", api=Api.REMOVE_RAFT_VOTER, target=Anywhere.CONTROLLER, finish=finish, deadline=deadline,
                classify=lambda message: _refused_elsewhere(Api.REMOVE_RAFT_VOTER, message) or Done(None),
                fields=lambda version: {"cluster_id": None, "voter_id": voter, "voter_directory_id": directory})


def _refused_elsewhere(api: Api, message: Any) -> CallOutcome | None:
    """As `refused`, but another broker is tried: each forwards to the controller that it last knew as active, for as
    long as that one answers NOT_LEADER_OR_FOLLOWER.
    """
    found = refused(api, message)
    return attrs.evolve(found, elsewhere=True) if isinstance(found, Again) else found


def _quorum(found: Any, nodes: Iterable[Any]) -> Quorum:
    endpoints = {node.node_id: tuple(VoterEndpoint(each.name, each.host, each.port) for each in node.listeners) for node in nodes}
    end = max((each.log_end_offset for each in found.current_voters if each.replica_id == found.leader_id), default=found.high_watermark)
    return Quorum(None if found.leader_id == UNKNOWN else found.leader_id, found.leader_epoch, found.high_watermark,
                  _replicas(found.current_voters, end, found.leader_id, endpoints), _replicas(found.observers, end, found.leader_id, endpoints))


def _replicas(given: Iterable[Any], end: int, leader: int, endpoints: Mapping[int, tuple[VoterEndpoint, ...]]) -> tuple[QuorumReplica, ...]:
    def time(replica: Any, name: str) -> float | None:
        ms: int = getattr(replica, name, UNKNOWN)
        return None if ms == UNKNOWN or replica.replica_id == leader else ms / 1000

    return tuple(QuorumReplica(each.replica_id, each.log_end_offset, max(0, end - each.log_end_offset), time(each, "last_fetch_timestamp"),
                               time(each, "last_caught_up_timestamp"), getattr(each, "replica_directory_id", None), endpoints.get(each.replica_id, ()))
                 for each in sorted(given, key=lambda each: each.replica_id))
