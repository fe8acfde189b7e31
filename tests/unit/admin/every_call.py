"""Every call of Admin once, and a fake cluster that offers every request that they send."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

from pyclient import Admin, OffsetAndMetadata, Producer, TopicPartition
from pyclient.admin import (
    Acl, AclFilter, AclOperation, ConfigResource, OffsetSpec, QuotaEntity, ReassignmentPlan, ReplicationThrottle, ResourceType, ScramDeletion, ScramMechanism, VoterEndpoint,
)
from pyclient.codec.apis import Api
from pyclient.core.admin.throttles import LISTS
from pyclient.testing import FakeCluster
from pyclient.testing.fake.handlers import HANDLERS
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.profiles import PROFILES
from pyclient.testing.fake.model.request import Fields, Request, Row

ORDERS: Final = TopicPartition("orders", 0)
PLAN: Final = ReassignmentPlan({ORDERS: (1,)}, {ORDERS: (2,)})
THROTTLE: Final = ReplicationThrottle(PLAN, 1000, {ConfigResource.topic("orders"): dict.fromkeys(LISTS)})
CLUSTER: Final = 31


class One(NamedTuple):
    """A call, the first of its requests that a broker may lack, and the release of Kafka that first has it.

    Without a request it needs no other than any client.
    """

    call: Callable[[Admin], object]
    request: str = ""
    release: str = "2.1"


CALLS: Final[Mapping[str, One]] = {
    "create_topics": One(lambda admin: admin.create_topics(["bills"]), "CreateTopics"),
    "delete_topics": One(lambda admin: admin.delete_topics(["orders"]), "DeleteTopics"),
    "create_partitions": One(lambda admin: admin.create_partitions({"orders": 2}), "CreatePartitions"),
    "list_topics": One(lambda admin: admin.list_topics()),
    "describe_topics": One(lambda admin: admin.describe_topics(["orders"])),
    "describe_configs": One(lambda admin: admin.describe_configs([ConfigResource.topic("orders")]), "DescribeConfigs"),
    "list_config_resources": One(lambda admin: admin.list_config_resources([ResourceType.CLIENT_METRICS]), "ListConfigResources", "3.7"),
    "alter_configs": One(lambda admin: admin.alter_configs({ConfigResource.topic("orders"): {"retention.ms": 1}}), "IncrementalAlterConfigs", "2.3"),
    "list_offsets": One(lambda admin: admin.list_offsets({ORDERS: OffsetSpec.LATEST}), "ListOffsets"),
    "delete_records": One(lambda admin: admin.delete_records({ORDERS: 0}), "DeleteRecords"),
    "list_groups": One(lambda admin: admin.list_groups(), "ListGroups"),
    "describe_groups": One(lambda admin: admin.describe_groups(["bills"]), "DescribeGroups"),
    "group_offsets": One(lambda admin: admin.group_offsets("bills"), "OffsetFetch"),
    "alter_group_offsets": One(lambda admin: admin.alter_group_offsets("bills", {ORDERS: 0}), "OffsetCommit"),
    "reset_group_offsets": One(lambda admin: admin.reset_group_offsets("bills", OffsetSpec.LATEST), "DescribeGroups"),
    "delete_group_offsets": One(lambda admin: admin.delete_group_offsets("bills", [ORDERS]), "OffsetDelete", "2.4"),
    "remove_members": One(lambda admin: admin.remove_members("bills", ["belt-1"]), "LeaveGroup", "2.4"),
    "delete_groups": One(lambda admin: admin.delete_groups(["bills"]), "DeleteGroups"),
    "list_transactions": One(lambda admin: admin.list_transactions(), "ListTransactions", "3.0"),
    "describe_transactions": One(lambda admin: admin.describe_transactions(["loans"]), "DescribeTransactions", "3.0"),
    "describe_producers": One(lambda admin: admin.describe_producers([ORDERS]), "DescribeProducers", "2.8"),
    "find_hanging_transactions": One(lambda admin: admin.find_hanging_transactions([ORDERS], older_than=0), "DescribeProducers", "2.8"),
    "abort_transaction": One(lambda admin: admin.abort_transaction(ORDERS, 0), "DescribeProducers", "2.8"),
    "fence_producers": One(lambda admin: admin.fence_producers(["loans"]), "InitProducerId"),
    "create_acls": One(lambda admin: admin.create_acls([Acl.topic("orders", "User:bob", AclOperation.READ)]), "CreateAcls"),
    "describe_acls": One(lambda admin: admin.describe_acls(), "DescribeAcls"),
    "delete_acls": One(lambda admin: admin.delete_acls([AclFilter()]), "DeleteAcls"),
    "alter_scram_users": One(lambda admin: admin.alter_scram_users({"anna": ScramDeletion(ScramMechanism.SHA_512)}), "AlterUserScramCredentials",
                             "2.7 (without ZooKeeper: 3.5)"),
    "describe_scram_users": One(lambda admin: admin.describe_scram_users(), "DescribeUserScramCredentials", "2.7 (without ZooKeeper: 3.5)"),
    "create_delegation_token": One(lambda admin: admin.create_delegation_token(owner="User:anna"), "CreateDelegationToken", "3.3 (without ZooKeeper: 3.6)"),
    "describe_delegation_tokens": One(lambda admin: admin.describe_delegation_tokens(), "DescribeDelegationToken", "2.1 (without ZooKeeper: 3.6)"),
    "renew_delegation_token": One(lambda admin: admin.renew_delegation_token(b"hmac"), "RenewDelegationToken", "2.1 (without ZooKeeper: 3.6)"),
    "expire_delegation_token": One(lambda admin: admin.expire_delegation_token(b"hmac"), "ExpireDelegationToken", "2.1 (without ZooKeeper: 3.6)"),
    "alter_quotas": One(lambda admin: admin.alter_quotas({QuotaEntity(user="anna"): {"producer_byte_rate": 1}}), "AlterClientQuotas", "2.6"),
    "describe_quotas": One(lambda admin: admin.describe_quotas(), "DescribeClientQuotas", "2.6"),
    "elect_leaders": One(lambda admin: admin.elect_leaders([ORDERS]), "ElectLeaders", "2.2"),
    "alter_partition_reassignments": One(lambda admin: admin.alter_partition_reassignments({ORDERS: [1]}), "AlterPartitionReassignments", "2.4"),
    "list_partition_reassignments": One(lambda admin: admin.list_partition_reassignments(), "ListPartitionReassignments", "2.4"),
    "plan_replication_factors": One(lambda admin: admin.plan_replication_factors({"orders": 2}), "DescribeLogDirs"),
    "plan_without_brokers": One(lambda admin: admin.plan_without_brokers([1]), "DescribeLogDirs"),
    "plan_even_replicas": One(lambda admin: admin.plan_even_replicas()),  # there is nothing to move
    "plan_throttle": One(lambda admin: admin.plan_throttle(PLAN, 1000), "DescribeConfigs"),
    "throttle_replication": One(lambda admin: admin.throttle_replication(THROTTLE), "IncrementalAlterConfigs", "2.3"),
    "end_throttle": One(lambda admin: admin.end_throttle(THROTTLE), "DescribeConfigs"),
    "alter_replica_log_dirs": One(lambda admin: admin.alter_replica_log_dirs({("orders", 0, 1): "/data"}), "AlterReplicaLogDirs"),
    "describe_log_dirs": One(lambda admin: admin.describe_log_dirs(), "DescribeLogDirs"),
    "describe_features": One(lambda admin: admin.describe_features()),
    "describe_quorum": One(lambda admin: admin.describe_quorum(), "DescribeQuorum", "3.3 (only without ZooKeeper)"),
    "add_raft_voter": One(lambda admin: admin.add_raft_voter(7, UUID(int=7), [VoterEndpoint("CONTROLLER", "host", 9093)]), "AddRaftVoter",
                          "3.9 (only without ZooKeeper)"),
    "remove_raft_voter": One(lambda admin: admin.remove_raft_voter(7, UUID(int=7)), "RemoveRaftVoter", "3.9 (only without ZooKeeper)"),
    "update_features": One(lambda admin: admin.update_features({"transaction.version": 2}), "UpdateFeatures", "3.3 (only without ZooKeeper)"),
    "unregister_broker": One(lambda admin: admin.unregister_broker(2), "UnregisterBroker", "2.8 (only without ZooKeeper)"),
    "describe_cluster": One(lambda admin: admin.describe_cluster()),
}

NOT_MODELLED: Final[Mapping[Api, Callable[[Fields], Fields]]] = {
    Api.CREATE_ACLS: lambda error: {"results": [error]},
    Api.DESCRIBE_ACLS: lambda error: {**error, "resources": []},
    Api.DELETE_ACLS: lambda error: {"filter_results": [{**error, "matching_acls": []}]},
    Api.ALTER_USER_SCRAM_CREDENTIALS: lambda error: {"results": [{**error, "user": "anna"}]},
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda error: {**error, "results": []},
    Api.CREATE_DELEGATION_TOKEN: lambda error: {
        **error, "principal_type": "User", "principal_name": "anna", "token_requester_principal_type": "User", "token_requester_principal_name": "anna",
        "issue_timestamp": 0, "expiry_timestamp": 0, "max_timestamp": 0, "token_id": "", "hmac": b""},
    Api.DESCRIBE_DELEGATION_TOKEN: lambda error: {**error, "tokens": []},
    Api.RENEW_DELEGATION_TOKEN: lambda error: {**error, "expiry_timestamp": 0},
    Api.EXPIRE_DELEGATION_TOKEN: lambda error: {**error, "expiry_timestamp": 0},
    Api.ALTER_CLIENT_QUOTAS: lambda error: {"entries": [{**error, "entity": [{"entity_type": "user", "entity_name": "anna"}]}]},
    Api.DESCRIBE_CLIENT_QUOTAS: lambda error: {**error, "entries": None},
    Api.ELECT_LEADERS: lambda error: {**error, "replica_election_results": []},
    Api.ALTER_PARTITION_REASSIGNMENTS: lambda error: {**error, "allow_replication_factor_change": True, "responses": []},
    Api.LIST_PARTITION_REASSIGNMENTS: lambda error: {**error, "topics": []},
    Api.ALTER_REPLICA_LOG_DIRS: lambda error: {"results": [{"topic_name": "orders", "partitions": [{"partition_index": 0, **error}]}]},
    Api.DESCRIBE_LOG_DIRS: lambda error: {**error, "results": []},
    Api.DESCRIBE_QUORUM: lambda error: {**error, "topics": [], "nodes": []},
    Api.UPDATE_FEATURES: lambda error: {**error, "results": []},
    Api.UNREGISTER_BROKER: lambda error: error,
    Api.ADD_RAFT_VOTER: lambda error: error,
    Api.REMOVE_RAFT_VOTER: lambda error: error,
    Api.LIST_CONFIG_RESOURCES: lambda error: {**error, "config_resources": []},
}
"""Requests that the fake cluster does not have: here it refuses them."""


@contextmanager
def refusing(version: str) -> Iterator[FakeCluster]:
    """A cluster that offers all requests of a release; it refuses those that are not modelled, for want of rights."""
    with FakeCluster(2, version=version, config={"default.replication.factor": 1}) as cluster:
        def widen(kafka: Kafka) -> None:
            rows = {**HANDLERS, **{api: _refusing(fields) for api, fields in NOT_MODELLED.items()}}
            kafka.profile = PROFILES[version].limited_to(rows)
            cluster._front.rows = rows

        cluster._do(widen)
        cluster.create_topic("orders")
        yield cluster


def _refusing(fields: Callable[[Fields], Fields]) -> Row:
    def refuse(_request: Request, code: int) -> Fields:
        return {"throttle_time": 0, **fields({"error_code": code, "error_message": None})}

    return Row(lambda _kafka, request: refuse(request, CLUSTER), refuse)


@contextmanager
def open_transaction(cluster: FakeCluster) -> Iterator[None]:
    """Its first record is the first of `ORDERS`."""
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="loans")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(ORDERS.topic, b"x", partition=0).result(10)
    try:
        yield
    finally:
        producer.close(0)


def commit(admin: Admin) -> None:
    """Let the group have an offset, so that it exists."""
    admin.alter_group_offsets("bills", {ORDERS: OffsetAndMetadata(0)})
