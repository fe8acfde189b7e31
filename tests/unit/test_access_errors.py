"""Missing rights as users meet them, of the fake cluster: every request that may be refused names operation and
resource in what is raised."""
from __future__ import annotations

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.errors import ClusterAuthorizationError, GroupAuthorizationError, KafkaError, TopicAuthorizationError
from pyclient.testing import Fail, FakeCluster

ORDERS = TopicPartition("orders", 0)
TOPIC, GROUP, CLUSTER = 29, 30, 31


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


@pytest.mark.parametrize(("api", "said"), [("CreateTopics", "not allowed to CREATE topic 'bills'"), ("DeleteTopics", "not allowed to DELETE topic 'orders'")])
def test_administrating(fake_cluster: FakeCluster, api: str, said: str) -> None:
    fake_cluster.create_topic("orders")
    with Admin(bootstrap_servers=fake_cluster.bootstrap_servers) as admin:
        def act() -> None:
            if api == "CreateTopics":
                admin.create_topics([NewTopic("bills", 1, 1)])
            else:
                admin.delete_topics(["orders"])

        with fake_cluster.intercept(Fail(TOPIC), api), pytest.raises(TopicAuthorizationError, match=said):
            act()
        act()
