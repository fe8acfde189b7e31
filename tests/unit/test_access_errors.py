"""Missing rights as users meet them, of the fake cluster: every request that may be refused names operation and
resource in what is raised."""
from __future__ import annotations

from typing import Any

import pytest

from pyclient import Admin, Consumer, Producer, TopicPartition
from pyclient.errors import ClusterAuthorizationError, GroupAuthorizationError, KafkaError, TopicAuthorizationError
from pyclient.testing import Change, Fail, FakeCluster
from pyclient.testing.fake.model.profiles import NEWEST
from tests.unit.admin import every_call

ORDERS = TopicPartition("orders", 0)
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN_OWNER = 29, 30, 31, 53, 65


def consumer(fake: FakeCluster, **options: object) -> Consumer:
    return Consumer(bootstrap_servers=fake.bootstrap_servers, auto_offset_reset="earliest", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("api", "code", "said"), [
    ("Produce", TOPIC, "not allowed to WRITE to topic 'orders'"),
    ("Produce", CLUSTER, "not allowed to IDEMPOTENT_WRITE on the cluster"),
    ("InitProducerId", CLUSTER, "not allowed to IDEMPOTENT_WRITE on the cluster"),
])
def test_producing(fake_cluster: FakeCluster, api: str, code: int, said: str) -> None:
    fake_cluster.create_topic("orders")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer:
        with fake_cluster.intercept(Fail(code), api), pytest.raises(KafkaError, match=said) as refused:
            producer.send("orders", b"x").result(10)
        assert isinstance(refused.value, {TOPIC: TopicAuthorizationError, CLUSTER: ClusterAuthorizationError}[code])
        assert producer.send("orders", b"x").result(10).offset == 0, "it goes on when the right is granted"


def test_a_producer_id_that_was_refused_is_asked_for_with_the_next_record_and_not_before(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer, fake_cluster.intercept(Fail(CLUSTER), "InitProducerId") as refusing:
        for asked in (1, 2):
            with pytest.raises(ClusterAuthorizationError):
                producer.send("orders", b"x").result(10)
            assert producer.partitions_for("orders"), "a turn of the loop later"
            producer.flush()
            assert refusing.hits == asked


def test_looking_up_where_to_begin(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    fake_cluster.produce("orders", b"x")
    with consumer(fake_cluster) as reader:
        with fake_cluster.intercept(Fail(TOPIC), "ListOffsets"), pytest.raises(TopicAuthorizationError, match="not allowed to DESCRIBE topic 'orders'"):
            reader.assign([ORDERS])
            reader.poll(10)
        found: list[bytes | None] = []
        while not found:
            try:
                found = [each.value for each in reader.poll(10)]
            except TopicAuthorizationError:  # what was refused before
                continue
        assert found == [b"x"]


@pytest.mark.parametrize(("api", "code", "said"), [
    ("FindCoordinator", GROUP, "not allowed to DESCRIBE group 'bills'"),
    ("OffsetCommit", GROUP, "not allowed to READ group 'bills'"),
    ("OffsetCommit", TOPIC, "not allowed to READ from topic 'orders'"),
])
def test_committing(fake_cluster: FakeCluster, api: str, code: int, said: str) -> None:
    fake_cluster.create_topic("orders")
    with consumer(fake_cluster, group_id="bills") as reader:
        with fake_cluster.intercept(Fail(code), api), pytest.raises((TopicAuthorizationError, GroupAuthorizationError), match=said):
            reader.commit({ORDERS: 1})
        reader.commit({ORDERS: 1})


@pytest.mark.parametrize(("api", "protocol"), [
    ("JoinGroup", "classic"), ("SyncGroup", "classic"), ("Heartbeat", "classic"), ("ConsumerGroupHeartbeat", "consumer")])
def test_members(fake_cluster: FakeCluster, api: str, protocol: str) -> None:
    fake_cluster.create_topic("orders")
    fake_cluster.produce("orders", b"x")
    beats = {"heartbeat_interval_ms": 50} if protocol == "classic" else {}
    with consumer(fake_cluster, group_id="bills", group_protocol=protocol, topics=["orders"], **beats) as reader:
        with fake_cluster.intercept(Fail(GROUP), api), pytest.raises(GroupAuthorizationError, match="not allowed to READ group 'bills'"):
            for _ in range(10):
                reader.poll(1)
        reader.subscribe(["orders"])
        assert [each.value for each in reader.poll(10)] == [b"x"]


# ---- Admin -----------------------------------------------------------------------------------------------------------

SEES = "not allowed to DESCRIBE topic 'orders'"
FINDS = "not allowed to DESCRIBE group 'bills'"
RIGHTS: list[tuple[str, str, int, str]] = [
    ("create_topics", "CreateTopics", TOPIC, "not allowed to CREATE topic 'bills'"),
    ("create_topics", "CreateTopics", CLUSTER, "not allowed to CREATE topics in the cluster"),
    ("delete_topics", "DeleteTopics", TOPIC, "not allowed to DELETE topic 'orders'"),
    ("create_partitions", "CreatePartitions", TOPIC, "not allowed to ALTER topic 'orders' (to add partitions)"),
    ("describe_topics", "Metadata", TOPIC, SEES),
    ("describe_configs", "DescribeConfigs", TOPIC, "not allowed to DESCRIBE_CONFIGS of topic 'orders'"),
    ("alter_configs", "IncrementalAlterConfigs", TOPIC, "not allowed to ALTER_CONFIGS of topic 'orders'"),
    ("list_offsets", "ListOffsets", TOPIC, SEES),
    ("delete_records", "DeleteRecords", TOPIC, "not allowed to DELETE records of topic 'orders'"),
    ("list_groups", "ListGroups", CLUSTER, "not allowed to DESCRIBE the cluster (or of each group)"),
    ("describe_groups", "FindCoordinator", GROUP, FINDS),
    ("describe_groups", "ConsumerGroupDescribe", GROUP, FINDS),
    ("describe_groups", "ConsumerGroupDescribe", TOPIC, "not allowed to DESCRIBE a topic"),
    ("describe_groups", "DescribeGroups", GROUP, FINDS),
    ("group_offsets", "OffsetFetch", GROUP, FINDS),
    ("alter_group_offsets", "OffsetCommit", GROUP, "not allowed to READ group 'bills' (to commit its offsets)"),
    ("alter_group_offsets", "OffsetCommit", TOPIC, "not allowed to READ from topic 'orders'"),
    ("reset_group_offsets", "DescribeGroups", GROUP, FINDS),
    ("reset_group_offsets", "OffsetFetch", GROUP, FINDS),
    ("reset_group_offsets", "ListOffsets", TOPIC, SEES),
    ("reset_group_offsets", "OffsetCommit", GROUP, "not allowed to READ group 'bills' (to commit its offsets)"),
    ("delete_group_offsets", "OffsetDelete", GROUP, "not allowed to DELETE group 'bills' (to delete its offsets)"),
    ("remove_members", "LeaveGroup", GROUP, "not allowed to READ group 'bills' (to be a member of it, or to remove members)"),
    ("delete_groups", "DeleteGroups", GROUP, "not allowed to DELETE group 'bills'"),
    ("list_transactions", "ListTransactions", CLUSTER, "not allowed to DESCRIBE the cluster (or of each transactional id)"),
    ("describe_transactions", "FindCoordinator", TRANSACTIONAL_ID, "not allowed to DESCRIBE transactional id 'loans'"),
    ("describe_transactions", "DescribeTransactions", TRANSACTIONAL_ID, "not allowed to DESCRIBE transactional id 'loans'"),
    ("describe_producers", "DescribeProducers", TOPIC, "not allowed to READ from topic 'orders'"),
    ("find_hanging_transactions", "DescribeProducers", TOPIC, "not allowed to READ from topic 'orders'"),
    ("find_hanging_transactions", "ListTransactions", CLUSTER, "not allowed to DESCRIBE the cluster (or of each transactional id)"),
    ("abort_transaction", "DescribeProducers", TOPIC, "not allowed to READ from topic 'orders'"),
    ("abort_transaction", "WriteTxnMarkers", CLUSTER, "not allowed to ALTER the cluster (to abort a transaction of another producer)"),
    ("fence_producers", "InitProducerId", TRANSACTIONAL_ID, "not allowed to WRITE with transactional id 'loans'"),
    ("create_acls", "CreateAcls", CLUSTER, "not allowed to ALTER the cluster (to change ACLs)"),
    ("describe_acls", "DescribeAcls", CLUSTER, "not allowed to DESCRIBE the cluster (to see ACLs)"),
    ("delete_acls", "DeleteAcls", CLUSTER, "not allowed to ALTER the cluster (to change ACLs)"),
    ("alter_scram_users", "AlterUserScramCredentials", CLUSTER, "not allowed to ALTER the cluster (to change its users)"),
    ("describe_scram_users", "DescribeUserScramCredentials", CLUSTER, "not allowed to DESCRIBE the cluster (to see its users)"),
    ("create_delegation_token", "CreateDelegationToken", TOKEN_OWNER, "not allowed to CREATE_TOKENS for user 'User:anna'"),
    ("alter_quotas", "AlterClientQuotas", CLUSTER, "not allowed to ALTER_CONFIGS of the cluster (to change quotas)"),
    ("describe_quotas", "DescribeClientQuotas", CLUSTER, "not allowed to DESCRIBE_CONFIGS of the cluster (to see quotas)"),
    ("elect_leaders", "ElectLeaders", CLUSTER, "not allowed to ALTER the cluster (to elect leaders)"),
    ("alter_partition_reassignments", "AlterPartitionReassignments", CLUSTER, "not allowed to ALTER the cluster (to move replicas)"),
    ("list_partition_reassignments", "ListPartitionReassignments", CLUSTER, "not allowed to DESCRIBE the cluster"),
    ("plan_replication_factors", "Metadata", TOPIC, SEES),
    ("plan_replication_factors", "DescribeLogDirs", CLUSTER, "not allowed to DESCRIBE the cluster"),
    ("plan_without_brokers", "Metadata", TOPIC, SEES),
    ("plan_without_brokers", "DescribeLogDirs", CLUSTER, "not allowed to DESCRIBE the cluster"),
    ("plan_even_replicas", "Metadata", TOPIC, SEES),
    ("plan_throttle", "DescribeConfigs", CLUSTER, "not allowed to DESCRIBE_CONFIGS of the cluster"),
    ("throttle_replication", "IncrementalAlterConfigs", TOPIC, "not allowed to ALTER_CONFIGS of topic 'orders'"),
    ("end_throttle", "DescribeConfigs", TOPIC, "not allowed to DESCRIBE_CONFIGS of topic 'orders'"),
    ("alter_replica_log_dirs", "AlterReplicaLogDirs", CLUSTER, "not allowed to ALTER the cluster (to move replicas)"),
    ("describe_log_dirs", "DescribeLogDirs", CLUSTER, "not allowed to DESCRIBE the cluster"),
    ("update_features", "UpdateFeatures", CLUSTER, "not allowed to ALTER the cluster (to change its features)"),
    ("unregister_broker", "UnregisterBroker", CLUSTER, "not allowed to ALTER the cluster (to unregister a broker)"),
    ("add_raft_voter", "AddRaftVoter", CLUSTER, "not allowed to ALTER the cluster (to change the quorum of controllers)"),
    ("remove_raft_voter", "RemoveRaftVoter", CLUSTER, "not allowed to ALTER the cluster (to change the quorum of controllers)"),
    ("list_config_resources", "ListConfigResources", CLUSTER, "not allowed to DESCRIBE_CONFIGS of the cluster"),
    ("describe_quorum", "DescribeQuorum", CLUSTER, "not allowed to DESCRIBE the cluster"),
]
NO_RIGHT = {
    "list_topics": "what may not be seen is left out", "describe_cluster": "everybody may", "describe_features": "everybody may",
    "describe_delegation_tokens": "what may not be seen is left out", "renew_delegation_token": "by whose token it is",
    "expire_delegation_token": "by whose token it is",
}


@pytest.mark.parametrize(("name", "api", "code", "said"), RIGHTS, ids=[f"{name} {api} {code}" for name, api, code, _ in RIGHTS])
def test_each_call_of_the_admin_names_operation_and_resource(name: str, api: str, code: int, said: str) -> None:
    verdict = Change(without_rights) if api == "Metadata" else Fail(code)
    with every_call.refusing(NEWEST) as cluster, every_call.open_transaction(cluster), Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        if api != "FindCoordinator":  # which is known after a call
            every_call.commit(admin)
        with cluster.intercept(verdict, api) as refusing, pytest.raises(KafkaError) as caught:
            every_call.CALLS[name].call(admin)
    assert refusing.hits
    assert said in str(caught.value)
    assert "grant it to this client's user (kafka-acls --add" in str(caught.value)


def without_rights(fields: Any) -> Any:
    """Metadata of a user who may see the brokers, and no topic."""
    return {**fields, "topics": [{**each, "error_code": TOPIC, "partitions": []} for each in fields["topics"]]}


def test_every_call_of_the_admin_needs_a_right_that_is_tried_or_none() -> None:
    assert {name for name, _, _, _ in RIGHTS} | set(NO_RIGHT) == set(every_call.CALLS)
