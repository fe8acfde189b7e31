"""ACLs of a real broker: an error names the missing operation and resource. Other topics and groups are not affected,
and this one continues once access is granted."""
from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.admin import AclOperation
from pyclient.errors import (
    AuthorizationError, ClusterAuthorizationError, GroupAuthorizationError, PartialFailureError, KafkaError, TopicAuthorizationError,
)
from pyclient.testing import LocalCluster, Security
from pyclient.testing.tokens import unsecured_token
from tests.groups import BOTH, Terms
from tests.kafka import make_topic, numbers, produce
from tests.secured_clients import Options, reaching, soon
from tests.waiting import eventually

pytestmark = pytest.mark.kafka(security=Security())
WAIT_S: Final = 20.0


class Somebody:
    """A user for this test, at first without rights."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.name = f"user-{uuid.uuid4().hex[:8]}"
        self.options: Options = reaching(
            cluster, "SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_token_provider=lambda: unsecured_token(self.name))
        self._cluster = cluster

    def may(self, *operations: str, **about: object) -> None:
        self._cluster.grant(self.name, *operations, **about)  # type: ignore[arg-type]

    def may_not(self, *operations: str, **about: object) -> None:
        self._cluster.revoke(self.name, *operations, **about)  # type: ignore[arg-type]


@pytest.fixture
def user(kafka_cluster: LocalCluster) -> Somebody:
    return Somebody(kafka_cluster)


@pytest.fixture
def secret(kafka_cluster: LocalCluster, topic: str) -> str:
    """A topic with ten records; the user has no rights on it."""
    name = f"{topic}-secret"
    make_topic(kafka_cluster, name)
    produce(kafka_cluster, name, numbers(10))
    return name


@pytest.fixture
def shared(kafka_cluster: LocalCluster, user: Somebody, topic: str) -> str:
    """A topic that the user may read and write."""
    make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, numbers(10))
    user.may("READ", "WRITE", topic=topic)
    return topic


def sent(producer: Producer, topic: str) -> int | None:
    return producer.send(topic, b"x").result(WAIT_S).offset


def read(consumer: Consumer, topic: str, count: int, errors: list[AuthorizationError]) -> None:
    """Poll until that many records of *topic* arrived; collects authorization errors in the list."""
    found = 0

    def enough() -> bool:
        nonlocal found
        try:
            found += sum(record.topic == topic for record in consumer.poll(1.0))
        except AuthorizationError as error:
            errors.append(error)
        return found >= count
    eventually(enough, WAIT_S)


def read_nothing(consumer: Consumer) -> None:
    """Poll until it raises."""
    eventually(lambda: len(consumer.poll(1.0)) < 0, WAIT_S)


def is_lacking(error: KafkaError, operation: str, resource: str) -> bool:
    return f"not allowed to {operation}" in str(error) and resource in str(error) and "kafka-acls --add" in str(error)


# --- producing --------------------------------------------------------------------------------------------------------


def test_a_missing_right_on_a_topic_is_an_error_other_topics_are_written_and_this_one_once_granted(user: Somebody, secret: str, shared: str) -> None:
    with Producer(**user.options) as producer:
        with soon(TopicAuthorizationError, f"not allowed to DESCRIBE topic {secret!r}", f"--operation Describe --topic {secret}"):
            sent(producer, secret)
        user.may("DESCRIBE", topic=secret)
        for _ in range(2):
            with soon(TopicAuthorizationError, f"not allowed to WRITE to topic {secret!r}", f"--operation Write --topic {secret}"):
                sent(producer, secret)
        assert sent(producer, shared) == 10
        user.may("WRITE", topic=secret)
        assert sent(producer, secret) == 10
        user.may_not("WRITE", topic=secret)
        with soon(TopicAuthorizationError, f"not allowed to WRITE to topic {secret!r}"):
            sent(producer, secret)
        assert sent(producer, shared) == 11


def test_a_missing_right_to_create_a_topic_is_an_error(user: Somebody, shared: str) -> None:
    missing = f"{shared}-missing"
    user.may("WRITE", "DESCRIBE", topic=missing)
    with Producer(**user.options) as producer:
        with soon(TopicAuthorizationError, missing, "CREATE"):
            sent(producer, missing)
        user.may("CREATE", topic=missing)
        assert sent(producer, missing) == 0


def test_a_producer_without_any_right_to_write_gets_the_cluster_authorization_error(user: Somebody, secret: str) -> None:
    user.may("DESCRIBE", topic=secret)
    with Producer(**user.options) as producer:
        with soon(ClusterAuthorizationError, "not allowed to IDEMPOTENT_WRITE on the cluster", "WRITE on any topic", "enable_idempotence=False",
                  "--operation IdempotentWrite --cluster"):
            sent(producer, secret)
        user.may("WRITE", topic=secret)
        assert sent(producer, secret) == 10


# --- consuming --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("has", "lacks"), [([], "DESCRIBE topic"), (["DESCRIBE"], "READ from topic")])
def test_a_partition_that_may_not_be_read_is_raised_by_poll_while_others_are_read_and_read_when_granted(
        user: Somebody, secret: str, shared: str, has: list[str], lacks: str) -> None:
    if has:
        user.may(*has, topic=secret)
    errors: list[AuthorizationError] = []
    with Consumer(auto_offset_reset="earliest", **user.options) as consumer:
        consumer.assign([TopicPartition(secret, 0), TopicPartition(shared, 0)])
        read(consumer, shared, 10, errors)
        with soon(TopicAuthorizationError, f"not allowed to {lacks} {secret!r}") as refused:
            read_nothing(consumer)
        assert {each.topic_partition for each in (*errors, refused.value)} == {TopicPartition(secret, 0)}
        user.may("READ", topic=secret)
        read(consumer, secret, 10, errors)


def test_offsets_of_a_topic_without_the_right_to_describe_are_an_error(user: Somebody, secret: str, shared: str) -> None:
    with Consumer(**user.options) as consumer:
        with soon(TopicAuthorizationError, f"not allowed to DESCRIBE topic {secret!r}"):
            consumer.end_offsets([TopicPartition(secret, 0)])
        assert consumer.end_offsets([TopicPartition(shared, 0)]) == {TopicPartition(shared, 0): 10}


def test_a_revoked_right_to_describe_is_an_error_of_the_offset_lookup(user: Somebody, secret: str) -> None:
    user.may("DESCRIBE", topic=secret)
    tp = TopicPartition(secret, 0)
    with Consumer(**user.options) as consumer:
        assert consumer.end_offsets([tp]) == {tp: 10}
        user.may_not("DESCRIBE", topic=secret)
        with soon(TopicAuthorizationError, f"not allowed to DESCRIBE topic {secret!r}"):
            consumer.end_offsets([tp])


# --- groups -----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("has", "lacks"), [([], "DESCRIBE group"), (["DESCRIBE"], "READ group")])
def test_a_missing_right_on_a_group_is_raised_by_each_poll_until_granted(
        user: Somebody, shared: str, terms: Terms, has: list[str], lacks: str) -> None:
    if has:
        user.may(*has, group=shared)
    errors: list[AuthorizationError] = []
    with Consumer(auto_offset_reset="earliest", group_id=shared, topics=[shared], **terms, **user.options) as consumer:
        for _ in range(2):
            with soon(GroupAuthorizationError, f"not allowed to {lacks} {shared!r}", f"--group {shared}"):
                consumer.poll(WAIT_S)
        user.may("READ", group=shared)
        read(consumer, shared, 10, errors)
        consumer.commit()
    assert errors == []


@BOTH
def test_a_member_whose_right_is_revoked_gets_an_error_and_rejoins_once_granted(kafka_cluster: LocalCluster, user: Somebody, shared: str, terms: Terms) -> None:
    user.may("READ", group=shared)
    errors: list[AuthorizationError] = []
    options = {**terms, **user.options, **({} if terms else {"heartbeat_interval_ms": 200})}
    with Consumer(auto_offset_reset="earliest", group_id=shared, topics=[shared], enable_auto_commit=False, **options) as consumer:
        read(consumer, shared, 10, errors)
        user.may_not("READ", group=shared)  # a commit is refused too: the member's heartbeat may find out first
        with soon(GroupAuthorizationError, f"group {shared!r}", "not allowed to"):
            consumer.poll(WAIT_S)
        user.may("READ", group=shared)
        produce(kafka_cluster, shared, numbers(10))
        read(consumer, shared, 10, errors)
        consumer.commit()
    assert errors == []


def test_offsets_may_be_neither_committed_nor_looked_up_without_the_right_to_do_so(user: Somebody, secret: str, shared: str) -> None:
    known, hidden = TopicPartition(shared, 0), TopicPartition(secret, 0)
    with Consumer(group_id=shared, **user.options) as consumer:
        consumer.assign([known])
        with soon(GroupAuthorizationError, f"not allowed to DESCRIBE group {shared!r}"):
            consumer.committed([known])
        user.may("DESCRIBE", group=shared)
        assert consumer.committed([known]) == {known: None}
        with soon(GroupAuthorizationError, f"not allowed to READ group {shared!r}", "to commit its offsets"):
            consumer.commit({known: 3})
        user.may("READ", group=shared)
        consumer.commit({known: 3})
        with soon(TopicAuthorizationError, f"topic {secret!r}", "not allowed to READ"):
            consumer.commit({hidden: 3})
        with soon(TopicAuthorizationError, f"topic {secret!r}", "not allowed to DESCRIBE"):
            consumer.committed([hidden])
        found = consumer.committed([known])[known]
        assert found is not None
        assert found.offset == 3


@BOTH
def test_a_member_reads_permitted_topics_and_gets_one_error_for_the_other_until_granted(
        user: Somebody, secret: str, shared: str, terms: Terms) -> None:
    """Also in a group of the next generation, whose coordinator refuses everything for one such topic."""
    user.may("READ", group=shared)
    errors: list[AuthorizationError] = []
    with Consumer(auto_offset_reset="earliest", group_id=shared, topics=[secret, shared], metadata_max_age_ms=500, **terms, **user.options) as consumer:
        read(consumer, shared, 10, errors)
        assert [is_lacking(each, "DESCRIBE topic", repr(secret)) for each in errors] == [True]
        user.may("READ", topic=secret)
        read(consumer, secret, 10, errors)
    assert len(errors) == 1


# --- admin ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operation", "act"), [
    ("CREATE", lambda admin, name: admin.create_topics([NewTopic(f"{name}-new", 1, 1)])),
    ("DELETE", lambda admin, name: admin.delete_topics([name])),
    ("DESCRIBE", lambda admin, name: admin.describe_topics([name])),
])
def test_an_admins_error_names_the_missing_right_and_the_topic(
        user: Somebody, secret: str, operation: str, act: Callable[[Admin, str], object]) -> None:
    with Admin(**user.options) as admin:
        with soon(TopicAuthorizationError, f"not allowed to {operation} topic '{secret}", f"--operation {operation.title()}"):
            act(admin, secret)
        user.may(operation, topic=secret, prefixed=True)
        act(admin, secret)


def test_an_admin_sees_what_its_user_may_do_where_it_asks(kafka_cluster: LocalCluster, user: Somebody, shared: str) -> None:
    """READ and WRITE include DESCRIBE."""
    user.may("DESCRIBE", "ALTER", cluster=True)
    user.may("READ", "DELETE", group=shared)
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        admin.alter_group_offsets(shared, {TopicPartition(shared, 0): 1})

    def seen(admin: Admin, asked: bool) -> list[frozenset[AclOperation] | None]:
        return [admin.describe_cluster(include_authorized_operations=asked).authorized_operations,
                admin.describe_topics([shared], include_authorized_operations=asked)[shared].authorized_operations,
                admin.describe_groups([shared], include_authorized_operations=asked)[shared].authorized_operations]

    with Admin(**user.options) as admin:
        assert seen(admin, False) == [None, None, None]
        assert seen(admin, True) == [frozenset({AclOperation.DESCRIBE, *more}) for more in (
            [AclOperation.ALTER], [AclOperation.READ, AclOperation.WRITE], [AclOperation.READ, AclOperation.DELETE])]


def test_of_several_topics_those_that_are_allowed_are_done(user: Somebody, secret: str, shared: str) -> None:
    user.may("CREATE", topic=f"{shared}-new")
    with Admin(**user.options) as admin:
        with pytest.raises(PartialFailureError) as failed:
            admin.create_topics([NewTopic(f"{shared}-new", 1, 1), NewTopic(f"{secret}-new", 1, 1)])
        assert list(failed.value.errors) == [f"{secret}-new"]
        assert is_lacking(failed.value.errors[f"{secret}-new"], "CREATE topic", f"{secret}-new")
        with pytest.raises(PartialFailureError) as failed:
            admin.describe_topics([shared, secret])
        assert list(failed.value.errors) == [secret]
        assert shared in admin.list_topics()
        assert secret not in admin.list_topics()
