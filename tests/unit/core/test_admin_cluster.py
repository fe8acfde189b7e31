"""Features and the quorum: the requests in every version, and what responses mean."""
from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from pyclient import AsyncAdmin
from pyclient.admin import AclOperation, FeatureChange, FeatureRange, Quorum, QuorumReplica, VoterEndpoint
from pyclient.codec.apis import Api
from pyclient.core.admin.cluster import (
    add_voter_call, describe_cluster_call, describe_features_call, describe_quorum_call, remove_voter_call, unregister_broker_call, update_features_call,
)
from pyclient.core.calls import Again, Anywhere, Done
from pyclient.core.handshake import ClientInfo
from pyclient.descriptions.acls import NOT_ASKED
from pyclient.descriptions.cluster import ClusterDescription
from pyclient.errors import BrokerIdNotRegisteredError, ClusterAuthorizationError, DuplicateVoterError, InvalidUpdateVersionError, VoterNotFoundError
from pyclient.records import Node
from tests.unit.core.test_admin_calls import body, ignore, versions
from tests.unit.core.world import answer

NOT_ALLOWED, NOT_LEADER, NOT_CONTROLLER, WRONG_LEVEL, NOT_REGISTERED, LATE, DUPLICATE_VOTER, NO_VOTER = 31, 6, 41, 95, 102, 7, 126, 127


def described(version: int, **fields: Any) -> Any:
    brokers = [{"broker_id": number, "host": f"host-{number}", "port": 9092, "rack": None, "is_fenced": number == 1} for number in (2, 1)]
    call = describe_cluster_call(operations=True, fenced=False, finish=ignore, deadline=None)
    return call.classify(answer(Api.DESCRIBE_CLUSTER, version, **{
        "cluster_id": "c", "controller_id": 2, "brokers": brokers, "endpoint_type": 1, "cluster_authorized_operations": 1 << 7 | 1 << 8, **fields}))


def test_fenced_brokers_are_asked_only_of_brokers_that_have_them() -> None:
    for fenced, least in ((True, 2), (False, 0)):
        call = describe_cluster_call(operations=False, fenced=fenced, finish=ignore, deadline=None)
        assert (call.versions.low if call.versions else 0) == least
        assert body(call, 2).include_fenced_brokers is fenced


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_CLUSTER))
@pytest.mark.parametrize("asked", [True, False])
def test_the_cluster_is_described_with_what_its_user_may_do_where_that_is_asked(version: int, asked: bool) -> None:
    call = describe_cluster_call(operations=asked, fenced=False, finish=ignore, deadline=None)
    assert body(call, version).include_cluster_authorized_operations is asked
    nodes = (Node(1, "host-1", 9092, is_fenced=version >= 2), Node(2, "host-2", 9092))
    assert described(version) == Done(ClusterDescription("c", nodes, 2, frozenset({AclOperation.ALTER, AclOperation.DESCRIBE})))
    assert described(version, cluster_authorized_operations=0).result.authorized_operations == frozenset()
    assert described(version, cluster_authorized_operations=NOT_ASKED).result.authorized_operations is None
    assert described(version, controller_id=-1).result.controller is None


@pytest.mark.parametrize("version", range(3, 5))
def test_a_feature_has_the_levels_that_are_supported_and_the_one_that_is_finalized(version: int) -> None:
    call = describe_features_call(ClientInfo("pyclient", "1.0"), finish=ignore, deadline=None)
    assert (call.target, call.versions and call.versions.low) == (Anywhere.ANY_NODE, 3)
    assert (read := body(call, version)).client_software_name == "pyclient"
    assert read.client_software_version == "1.0"
    supported = [{"name": name, "min_version": 0, "max_version": 2} for name in ("transaction.version", "share.version")]
    verdict = call.classify(answer(Api.API_VERSIONS, version, api_keys=[], supported_features=supported, finalized_features_epoch=4, finalized_features=[
        {"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}]))
    assert verdict == Done({"transaction.version": FeatureRange(0, 2, 2), "share.version": FeatureRange(0, 2, 0)})


def describing() -> Any:
    return describe_quorum_call(finish=ignore, deadline=None)


def quorum_of(version: int, code: int = 0, top: int = 0, leader: int = 2) -> Any:
    def replica(node: int, end: int, ms: int) -> dict[str, Any]:
        return {"replica_id": node, "replica_directory_id": UUID(int=node), "log_end_offset": end, "last_fetch_timestamp": ms, "last_caught_up_timestamp": ms}

    partition = {"partition_index": 0, "error_code": code, "error_message": None, "leader_id": leader, "leader_epoch": 7, "high_watermark": 90,
                 "current_voters": [replica(2, 100, -1), replica(1, 95, 5000)], "observers": [replica(9, -1, -1)]}
    topics = [{"topic_name": "__cluster_metadata", "partitions": [partition]}]
    return describing().classify(answer(Api.DESCRIBE_QUORUM, version, error_code=top, error_message=None, topics=topics, nodes=[
        {"node_id": 2, "listeners": [{"name": "CONTROLLER", "host": "host-2", "port": 9093}]}]))


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_QUORUM))
def test_the_quorum_has_voters_and_observers_with_their_lags(version: int) -> None:
    (topic,) = body(describing(), version).topics
    assert (topic.topic_name, [each.partition_index for each in topic.partitions]) == ("__cluster_metadata", [0])
    at = 5.0 if version >= 1 else None
    one, two, nine = (UUID(int=node) if version >= 2 else None for node in (1, 2, 9))
    endpoints = (VoterEndpoint("CONTROLLER", "host-2", 9093),) if version >= 2 else ()
    assert quorum_of(version) == Done(Quorum(2, 7, 90, (QuorumReplica(1, 95, 5, at, at, one), QuorumReplica(2, 100, 0, None, None, two, endpoints)),
                                             (QuorumReplica(9, -1, 101, None, None, nine),)))


def test_while_no_controller_leads_there_is_no_leader_and_refusals_are_raised_or_retried() -> None:
    assert quorum_of(2, leader=-1).result.leader is None
    assert isinstance(quorum_of(2, top=NOT_ALLOWED), ClusterAuthorizationError)
    assert quorum_of(2, NOT_LEADER).elsewhere


def test_another_broker_is_tried_where_one_forwards_to_a_controller_that_leads_no_more() -> None:
    """It would do so for as long as that one answers."""
    for call in (describing(), remove_voter_call(3, UUID(int=3), finish=ignore, deadline=None)):
        assert call.target is Anywhere.CONTROLLER, "each update of the metadata names another broker"
    outcome = call.classify(answer(Api.REMOVE_RAFT_VOTER, 0, error_code=NOT_LEADER))
    assert isinstance(outcome, Again)
    assert outcome.elsewhere


@pytest.mark.parametrize("version", versions(Api.ADD_RAFT_VOTER))
def test_a_voter_is_added_with_its_directory_and_endpoints_once_it_has_caught_up(version: int) -> None:
    call = add_voter_call(3, UUID(int=3), [VoterEndpoint("CONTROLLER", "host-3", 65000)], timeout=5, finish=ignore, deadline=None)
    read = body(call, version)
    assert (read.voter_id, read.voter_directory_id, read.timeout.total_seconds(), getattr(read, "ack_when_committed", True)) == (3, UUID(int=3), 5, True)
    assert [(each.name, each.host, each.port) for each in read.listeners] == [("CONTROLLER", "host-3", 65000)]
    assert call.classify(answer(Api.ADD_RAFT_VOTER, version, error_code=0)) == Done(None)
    assert isinstance(call.classify(answer(Api.ADD_RAFT_VOTER, version, error_code=LATE)), Again)
    assert isinstance(call.classify(answer(Api.ADD_RAFT_VOTER, version, error_code=DUPLICATE_VOTER)), DuplicateVoterError)


def test_a_voter_is_removed_by_its_directory() -> None:
    call = remove_voter_call(3, UUID(int=3), finish=ignore, deadline=None)
    read = body(call, 0)
    assert (read.voter_id, read.voter_directory_id) == (3, UUID(int=3))
    assert call.classify(answer(Api.REMOVE_RAFT_VOTER, 0, error_code=0)) == Done(None)
    assert isinstance(call.classify(answer(Api.REMOVE_RAFT_VOTER, 0, error_code=NO_VOTER, error_message="who")), VoterNotFoundError)


@pytest.mark.parametrize(("call", "words"), [
    (lambda admin: admin.remove_raft_voter("3", UUID(int=3)), "voter has '3'"),
    (lambda admin: admin.remove_raft_voter(3, "AAAA"), "expected the UUID of a log directory"),
    (lambda admin: admin.add_raft_voter(3, UUID(int=3), []), "expected those of the controller"),
    (lambda admin: admin.add_raft_voter(3, UUID(int=3), [("CONTROLLER", "host", 9093)]), "expected those of the controller"),
])
def test_wrong_voters_are_refused_before_a_request(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        asyncio.run(call(AsyncAdmin(bootstrap_servers="127.0.0.1:1")))


def updating() -> Any:
    return update_features_call({"transaction.version": 1, "group.version": 0}, FeatureChange.SAFE_DOWNGRADE, validate_only=True, timeout=5, finish=ignore, deadline=None)


def updated(version: int, top: int = 0, second: int = 0) -> Any:
    rows = [{"feature": name, "error_code": code, "error_message": "no"} for name, code in (("transaction.version", 0), ("group.version", second))]
    return updating().classify(answer(Api.UPDATE_FEATURES, version, error_code=top, error_message="not this", results=rows))


@pytest.mark.parametrize("version", versions(Api.UPDATE_FEATURES))
def test_levels_of_features_are_sent_with_how_they_may_change_and_each_has_its_outcome(version: int) -> None:
    read = body(updating(), version)
    assert [(each.feature, each.max_version_level, each.upgrade_type) for each in read.feature_updates] == [("transaction.version", 1, 2), ("group.version", 0, 2)]
    assert (read.validate_only, read.timeout.total_seconds()) == (True, 5)
    assert updated(version) == Done({"transaction.version": None, "group.version": None})
    assert isinstance(updated(version, WRONG_LEVEL), InvalidUpdateVersionError)
    assert isinstance(updated(version, NOT_CONTROLLER), Again)


def test_until_version_1_the_error_of_a_feature_names_it() -> None:
    error = updated(1, second=WRONG_LEVEL).result["group.version"]
    assert isinstance(error, InvalidUpdateVersionError)
    assert "group.version: no" in str(error)


def test_a_broker_that_is_not_registered_is_an_error() -> None:
    call = unregister_broker_call(7, finish=ignore, deadline=None)
    assert (call.target, body(call, 0).broker_id) == (Anywhere.CONTROLLER, 7)
    assert call.classify(answer(Api.UNREGISTER_BROKER, 0, error_code=0, error_message=None)) == Done(None)
    assert isinstance(call.classify(answer(Api.UNREGISTER_BROKER, 0, error_code=NOT_REGISTERED, error_message="who")), BrokerIdNotRegisteredError)
