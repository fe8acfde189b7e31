"""What Admin makes of answers: plans of all topics, items given twice, answers that lack items, and parts that fail."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import Admin, TopicPartition
from pyclient.admin import ScramDeletion, ScramMechanism
from pyclient.errors import KafkaTimeoutError, PartialFailureError, TopicExistsError, UnknownServerError, UnknownTopicOrPartitionError
from pyclient.testing import Answer, Change, Fail, FakeCluster, Silence
from pyclient.testing.fake.model.profiles import NEWEST
from tests.unit.admin.every_call import ORDERS, refusing

NO_SIZES = Answer({"throttle_time": 0, "error_code": 0, "results": []})
NOT_LEADER = 6


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with refusing(NEWEST) as made:
        yield made


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


def test_a_plan_of_all_topics_has_those_of_kafka_itself(cluster: FakeCluster, admin: Admin) -> None:
    """Brokers that shall be stopped for long must not keep the offsets of groups."""
    def internal(fields: Any) -> Any:
        return {**fields, "topics": [{**each, "is_internal": True} for each in fields["topics"]]}

    with cluster.intercept(NO_SIZES, "DescribeLogDirs"), cluster.intercept(Change(internal), "Metadata"):
        leader = admin.describe_topics(["orders"])["orders"].partitions[0].leader
        assert leader is not None
        assert "orders" not in admin.list_topics()
        assert list(admin.plan_without_brokers([leader]).before) == [ORDERS]


def test_a_plan_of_named_topics_names_those_that_are_not_there(admin: Admin) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere'"):
        admin.plan_replication_factors({"nowhere": 2})


def test_a_topic_that_is_given_twice_is_deleted_once_and_one_that_fails_twice_is_one_failure(cluster: FakeCluster, admin: Admin) -> None:
    admin.delete_topics(["orders", "orders"])
    assert "orders" not in cluster.topics()
    cluster.create_topic("bills")
    with cluster.intercept(Fail(TopicExistsError.code), "CreateTopics"), pytest.raises(TopicExistsError):
        admin.create_topics(["bills", "bills"])


def scram(*users: str, error_code: int = 0) -> Answer:
    return Answer({"throttle_time": 0, "results": [{"user": user, "error_code": error_code, "error_message": None} for user in users]})


def test_a_user_that_the_answer_lacks_was_not_changed_for_sure(cluster: FakeCluster, admin: Admin) -> None:
    gone = ScramDeletion(ScramMechanism.SHA_512)
    with cluster.intercept(scram("anna"), "AlterUserScramCredentials"), pytest.raises(PartialFailureError) as failed:
        admin.alter_scram_users({"anna": gone, "bert": gone})
    assert failed.value.results == {"anna": None}
    assert isinstance(failed.value.errors["bert"], UnknownServerError)


def test_users_that_were_changed_are_known_when_a_later_request_fails(cluster: FakeCluster, admin: Admin) -> None:
    """A request may change a user once."""
    both = [ScramDeletion(ScramMechanism.SHA_256), ScramDeletion(ScramMechanism.SHA_512)]
    cluster.intercept(scram("anna", "bert"), "AlterUserScramCredentials", times=1)
    with cluster.intercept(Silence(), "AlterUserScramCredentials"), pytest.raises(PartialFailureError) as failed:
        admin.alter_scram_users({"anna": both, "bert": both[0]}, timeout=1)
    assert failed.value.results == {"bert": None}
    assert isinstance(failed.value.errors["anna"], KafkaTimeoutError)


def test_records_that_were_deleted_are_known_when_leaders_cannot_be_asked_for_the_others(cluster: FakeCluster, admin: Admin) -> None:
    cluster.create_topic("bills", 2)
    first, second = TopicPartition("bills", 0), TopicPartition("bills", 1)

    def refuse_second(fields: Any) -> Any:
        return {**fields, "topics": [{**topic, "partitions": [
            {**part, "error_code": NOT_LEADER if part["partition_index"] == 1 else 0} for part in topic["partitions"]]} for topic in fields["topics"]]}

    def silent_afterwards(_: Any) -> Silence | None:
        return Silence() if refusing_one.hits else None

    refusing_one = cluster.intercept(Change(refuse_second), "DeleteRecords")
    with cluster.intercept(silent_afterwards, "Metadata"), pytest.raises(PartialFailureError) as failed:
        admin.delete_records({first: 0, second: 0}, timeout=2)
    assert failed.value.results == {first: 0}
    assert set(failed.value.errors) == {second}


def test_offsets_that_were_stored_are_known_when_a_new_topic_is_not_known_in_time(cluster: FakeCluster, admin: Admin) -> None:
    unknown = TopicPartition("new", 0)
    codes = {ORDERS.topic: 0, unknown.topic: UnknownTopicOrPartitionError.code}

    def unknown_yet(fields: Any) -> Any:
        return {**fields, "topics": [{**topic, "partitions": [{**part, "error_code": codes[topic["name"]]} for part in topic["partitions"]]}
                                     for topic in fields["topics"]]}

    cluster.intercept(Change(unknown_yet), "OffsetCommit", times=1)
    with cluster.intercept(Silence(), "OffsetCommit"), pytest.raises(PartialFailureError) as failed:
        admin.alter_group_offsets("bills", {ORDERS: 0, unknown: 0}, timeout=2)
    assert failed.value.results == {ORDERS: None}
    assert isinstance(failed.value.errors[unknown], KafkaTimeoutError)
