"""Topics and the cluster, on real brokers."""
from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from pyclient import Admin, AsyncAdmin, NewPartitions, NewTopic, TopicDescription
from pyclient.admin import FeatureChange
from pyclient.errors import BrokerIdNotRegisteredError, DuplicateVoterError, InvalidPartitionsError, InvalidReplicaAssignmentError, InvalidTopicError, InvalidUpdateVersionError, PartialFailureError, TopicExistsError, UnknownTopicOrPartitionError, VoterNotFoundError
from pyclient.testing import LocalCluster
from pyclient.testing.pytest_plugin import ClusterFactory
from tests.waiting import eventually


def admin(cluster: LocalCluster) -> Admin:
    return Admin(bootstrap_servers=cluster.bootstrap_servers)


def description(client: Admin, topic: str) -> TopicDescription:
    """Of a topic that was just created: a broker learns of it a little later than the controller."""
    eventually(lambda: topic in client.list_topics())
    return client.describe_topics([topic])[topic]


def test_a_topic_is_created_described_listed_and_deleted(kafka_cluster: LocalCluster, topic: str) -> None:
    with admin(kafka_cluster) as client:
        client.create_topics([NewTopic(topic, 3, 1, {"cleanup.policy": "compact"})])
        described = description(client, topic)
        assert described.name == topic
        assert described.topic_id is not None
        assert [(part.partition, part.leader, part.replicas, part.isr) for part in described.partitions] == [
            (number, 1, (1,), (1,)) for number in range(3)]
        client.delete_topics([topic])
        eventually(lambda: topic not in client.list_topics())  # a broker learns of it a little later than the controller


def test_a_name_alone_takes_the_brokers_defaults(kafka_cluster: LocalCluster, topic: str) -> None:
    with admin(kafka_cluster) as client:
        client.create_topics([topic])
        assert len(description(client, topic).partitions) == 1


def test_validate_only_checks_and_creates_nothing(kafka_cluster: LocalCluster, topic: str) -> None:
    with admin(kafka_cluster) as client:
        client.create_topics([topic], validate_only=True)
        assert topic not in client.list_topics()
        with pytest.raises(InvalidTopicError):
            client.create_topics(["no/such"], validate_only=True)


def test_the_error_of_a_single_item_is_raised_as_it_is(kafka_cluster: LocalCluster, topic: str) -> None:
    with admin(kafka_cluster) as client:
        client.create_topics([topic])
        with pytest.raises(TopicExistsError, match=topic):
            client.create_topics([topic])
        with pytest.raises(InvalidPartitionsError):
            client.create_topics([NewTopic(f"{topic}-0", 0)])
        with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-nowhere"):
            client.describe_topics([f"{topic}-nowhere"])
        with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-nowhere"):
            client.delete_topics([f"{topic}-nowhere"])


def test_of_several_items_the_valid_ones_are_done_and_the_errors_name_the_others(kafka_cluster: LocalCluster, topic: str) -> None:
    with admin(kafka_cluster) as client:
        client.create_topics([topic])
        with pytest.raises(PartialFailureError) as failed:
            client.create_topics([topic, f"{topic}-2", "no/such"])
        assert {name: type(error) for name, error in failed.value.errors.items()} == {
            topic: TopicExistsError, "no/such": InvalidTopicError}
        eventually(lambda: f"{topic}-2" in client.list_topics())


def test_partitions_are_added_up_to_the_total_and_never_removed(kafka_cluster: LocalCluster, topic: str) -> None:
    with admin(kafka_cluster) as client:
        client.create_topics([topic])
        client.create_partitions({topic: 2}, validate_only=True)
        client.create_partitions({topic: 2})
        client.create_partitions({topic: NewPartitions(3, [[1]])})
        eventually(lambda: len(description(client, topic).partitions) == 3)
        with pytest.raises(InvalidPartitionsError, match=topic):
            client.create_partitions({topic: 2})
        with pytest.raises(InvalidReplicaAssignmentError, match=topic):
            client.create_partitions({topic: NewPartitions(4, [[77]])})
        with pytest.raises(PartialFailureError) as failed:
            client.create_partitions({topic: 4, f"{topic}-nowhere": 2})
        assert {name: type(error) for name, error in failed.value.errors.items()} == {f"{topic}-nowhere": UnknownTopicOrPartitionError}
        eventually(lambda: len(description(client, topic).partitions) == 4)


def test_calls_without_items_return_at_once(kafka_cluster: LocalCluster) -> None:
    with admin(kafka_cluster) as client:
        client.create_topics([])
        client.create_partitions({})
        client.delete_topics([])
        assert client.describe_topics([]) == {}


def test_the_cluster_has_its_id_brokers_and_controller(kafka_cluster: LocalCluster) -> None:
    with admin(kafka_cluster) as client:
        cluster = client.describe_cluster()
    assert cluster.cluster_id
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [
        (node.id, node.host, node.port) for node in kafka_cluster.nodes]
    assert cluster.controller == 1


def test_describing_creates_nothing(kafka_cluster: LocalCluster, topic: str) -> None:
    with admin(kafka_cluster) as client:
        with pytest.raises(UnknownTopicOrPartitionError):
            client.describe_topics([topic])
        assert topic not in client.list_topics()


def test_async_calls_can_run_concurrently(kafka_cluster: LocalCluster, topic: str) -> None:
    names = [f"{topic}-{n}" for n in range(20)]

    async def main() -> None:
        async with AsyncAdmin(bootstrap_servers=kafka_cluster.bootstrap_servers) as client:
            await asyncio.gather(*(client.create_topics([name]) for name in names))
            while not set(names) <= set(await client.list_topics()):
                pass  # a broker learns of them a little later than the controller
            await client.delete_topics(names)

    asyncio.run(main())


def test_features_and_the_quorum_of_controllers_are_described(kafka_cluster: LocalCluster) -> None:
    with admin(kafka_cluster) as client:
        features = client.describe_features()
        lowest, highest, finalized = features["metadata.version"]
        assert lowest <= finalized <= highest
        quorum = client.describe_quorum()
        assert quorum.leader in {each.node_id for each in quorum.voters}
        assert quorum.high_watermark > 0
        leader, = (each for each in quorum.voters if each.node_id == quorum.leader)
        assert (leader.lag, leader.last_fetched_at) == (0, None)


def test_a_controller_is_removed_from_the_voters_and_added_again_by_its_directory() -> None:
    """In containers the voters are fixed (kraft.version 0)."""
    with LocalCluster(3, mode="embedded") as cluster, admin(cluster) as client:
        quorum = client.describe_quorum()
        voter = next(each for each in quorum.voters if each.node_id != quorum.leader)
        assert voter.directory_id is not None
        with pytest.raises(DuplicateVoterError):
            client.add_raft_voter(voter.node_id, voter.directory_id, voter.endpoints)
        with pytest.raises(VoterNotFoundError):
            client.remove_raft_voter(voter.node_id, UUID(int=7))
        client.remove_raft_voter(voter.node_id, voter.directory_id)
        with pytest.raises(VoterNotFoundError):
            client.remove_raft_voter(voter.node_id, voter.directory_id)
        eventually(lambda: (voter.node_id, voter.directory_id) in [(each.node_id, each.directory_id) for each in client.describe_quorum().observers])
        assert voter.node_id not in [each.node_id for each in client.describe_quorum().voters]
        client.add_raft_voter(voter.node_id, voter.directory_id, voter.endpoints)
        again = next(each for each in client.describe_quorum().voters if each.node_id == voter.node_id)
        assert (again.directory_id, again.endpoints) == (voter.directory_id, voter.endpoints)


def test_the_level_of_a_feature_is_lowered_and_raised_and_a_wrong_one_is_refused(local_cluster: ClusterFactory) -> None:
    with admin(local_cluster()) as client:
        level = client.describe_features()["transaction.version"].finalized

        def is_at(expected: int) -> bool:
            return client.describe_features()["transaction.version"].finalized == expected

        assert level > 1
        with pytest.raises(InvalidUpdateVersionError, match="transaction.version"):
            client.update_features({"transaction.version": level - 1})
        client.update_features({"transaction.version": level - 1}, FeatureChange.SAFE_DOWNGRADE, validate_only=True)
        assert is_at(level)
        client.update_features({"transaction.version": level - 1}, FeatureChange.SAFE_DOWNGRADE)
        eventually(lambda: is_at(level - 1))
        client.update_features({"transaction.version": level})
        eventually(lambda: is_at(level))
        with pytest.raises(InvalidUpdateVersionError, match="no-such.version"):
            client.update_features({"no-such.version": 1})


def test_a_broker_that_is_shut_down_is_fenced_until_it_is_unregistered_once(local_cluster: ClusterFactory) -> None:
    cluster = local_cluster(3)
    cluster.stop(3)
    with admin(cluster) as client:
        def fenced() -> dict[int, bool]:
            return {node.id: node.is_fenced for node in client.describe_cluster(include_fenced_brokers=True).nodes}

        eventually(lambda: fenced() == {1: False, 2: False, 3: True})
        assert [node.id for node in client.describe_cluster().nodes] == [1, 2]
        client.unregister_broker(3)
        eventually(lambda: fenced() == {1: False, 2: False})
        with pytest.raises(BrokerIdNotRegisteredError):
            client.unregister_broker(3)
