"""Topics and their settings through the fake's admin APIs: the checks and words of a real controller."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from pyclient.codec.apis import Api
from tests.unit.testing.fake.cluster_driver import ClusterDriver

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NOBODYS_ID = UUID(int=7)


@pytest.fixture
def driver() -> Iterator[ClusterDriver]:
    with ClusterDriver() as found:
        yield found


def create(driver: ClusterDriver, name: str = "new", partitions: int = -1, replicas: int = -1, assigned: dict[int, list[int]] | None = None,
           *, only_check: bool = False, **config: str | None) -> Any:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": replicas,
             "assignments": [{"partition_index": index, "broker_ids": brokers} for index, brokers in (assigned or {}).items()],
             "configs": [{"name": key.replace("_", "."), "value": value} for key, value in config.items()]}
    return driver.call(Api.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 1000, "validate_only": only_check}).topics[0]


def grow(driver: ClusterDriver, count: int, assigned: list[list[int]] | None = None, name: str = "t") -> Any:
    assignments = None if assigned is None else [{"broker_ids": each} for each in assigned]
    return driver.call(Api.CREATE_PARTITIONS, 3, {"topics": [{"name": name, "count": count, "assignments": assignments}], "timeout": 1000,
                                                "validate_only": False}).results[0]


def delete(driver: ClusterDriver, name: str | None = None, topic_id: UUID | None = None) -> Any:
    return driver.call(Api.DELETE_TOPICS, 6, {"topics": [{"name": name, "topic_id": topic_id}], "timeout": 1000}).responses[0]


def alter(driver: ClusterDriver, *changes: tuple[str, int, str | None], name: str = "t", kind: int = 2) -> Any:
    resource = {"resource_type": kind, "resource_name": name,
                "configs": [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]}
    return driver.call(Api.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}).responses[0]


def describe(driver: ClusterDriver, *keys: str, name: str = "t", kind: int = 2) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    return driver.call(Api.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True,
                                               "include_documentation": False}).results[0]


def test_a_topic_is_created_as_asked_and_told_with_its_settings(driver: ClusterDriver) -> None:
    made = create(driver, "new", 5, 2, retention_ms="5")
    assert (made.error_code, made.num_partitions, made.replication_factor, len(made.configs)) == (0, 5, 2, 33)
    assert made.topic_id == driver.kafka.topics["new"].id
    assert {each.name: each.value for each in made.configs}["retention.ms"] == "5"
    assert [len(each.replicas) for each in driver.kafka.topics["new"].partitions] == [2] * 5


def test_what_is_only_checked_is_not_created(driver: ClusterDriver) -> None:
    assert create(driver, only_check=True).error_code == 0
    assert "new" not in driver.kafka.topics


def test_replicas_can_be_assigned(driver: ClusterDriver) -> None:
    assert create(driver, assigned={1: [3, 1], 0: [2, 3]}).error_code == 0
    assert [each.replicas for each in driver.kafka.topics["new"].partitions] == [[2, 3], [3, 1]]


@pytest.mark.parametrize(("wanted", "code", "words"), [
    ({"name": "t"}, 36, "already exists"),
    ({"name": ""}, 17, "the empty string is not allowed"),
    ({"name": ".."}, 17, "'..' is not allowed"),
    ({"name": "a/b"}, 17, "other than ASCII alphanumerics"),
    ({"name": "x" * 250}, 17, "longer than the max allowed length 249"),
    ({"partitions": 0}, 37, "invalid non-positive"),
    ({"replicas": 0}, 38, "must be larger than 0"),
    ({"replicas": 4}, 38, "target replication factor of 4"),
    ({"assigned": {0: [1]}, "replicas": 1}, 42, "replication factor was not set to -1"),
    ({"assigned": {0: [1]}, "partitions": 1}, 42, "numPartitions was not set to -1"),
    ({"assigned": {1: [1]}}, 39, "consecutive 0-based"),
    ({"assigned": {0: [9]}}, 39, "broker 9, but no such broker"),
    ({"assigned": {0: []}}, 39, "empty replica list"),
    ({"assigned": {0: [1, 1]}}, 39, "broker 1 more than once"),
    ({"assigned": {0: [1, 2], 1: [1]}}, 39, "not consistent with previous partitions, which have 2 replica(s)"),
    ({"no_such": "1"}, 40, "Unknown topic config name: no.such"),
    ({"retention_ms": "x"}, 40, "Not a number of type LONG"),
    ({"max_message_bytes": "3000000000"}, 40, "Not a number of type INT"),
    ({"retention_ms": "-2"}, 40, "Value must be at least -1"),
    ({"min_cleanable_dirty_ratio": "2"}, 40, "Value must be no more than 1"),
    ({"cleanup_policy": "compact,burn"}, 40, "String must be one of: compact, delete"),
    ({"preallocate": "maybe"}, 40, "either true or false"),
    ({"retention_ms": None}, 40, "Null value not supported for topic configs: retention.ms"),
])
def test_what_a_controller_refuses_is_refused_with_its_words(driver: ClusterDriver, wanted: dict[str, Any], code: int, words: str) -> None:
    refused = create(driver, **wanted)
    assert (int(refused.error_code), refused.num_partitions) == (code, -1)
    assert words in refused.error_message
    assert list(driver.kafka.topics) == ["t"]


def test_names_that_metrics_would_confuse_collide(driver: ClusterDriver) -> None:
    create(driver, "a.b")
    assert "collides with existing topic: a.b" in create(driver, "a_b").error_message


def test_a_topic_named_twice_in_a_request_is_refused(driver: ClusterDriver) -> None:
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    (answer,) = driver.call(Api.CREATE_TOPICS, 7, {"topics": [topic, topic], "timeout": 1, "validate_only": False}).topics
    assert (int(answer.error_code), answer.error_message) == (42, "Duplicate topic name.")


def test_topics_are_deleted_by_name_or_id_but_not_by_both(driver: ClusterDriver) -> None:
    create(driver, "new")
    made = driver.kafka.topics["new"].id
    assert [int(delete(driver, *each).error_code) for each in (
        ("missing", None), (None, NOBODYS_ID), (None, None), ("new", made), (None, made), ("new", None))] == [3, 100, 42, 42, 0, 3]


def test_partitions_are_added_on_the_replicas_asked_for(driver: ClusterDriver) -> None:
    assert [int(grow(driver, *each).error_code) for each in ((1,), (0,), (3, [[1, 2, 3]]), (2, [[1]]), (2, [[9]]))] == [37, 37, 39, 39, 39]
    assert int(grow(driver, 2, name="missing").error_code) == 3
    assert grow(driver, 2, [[3, 1, 2]]).error_code == 0
    assert [each.leader for each in driver.kafka.topics["t"].partitions] == [1, 3]


def test_partitions_that_are_only_checked_are_not_added(driver: ClusterDriver) -> None:
    fields = {"topics": [{"name": "t", "count": 3, "assignments": None}], "timeout": 1, "validate_only": True}
    assert driver.call(Api.CREATE_PARTITIONS, 3, fields).results[0].error_code == 0
    assert len(driver.kafka.topics["t"].partitions) == 1


def test_settings_are_set_listed_and_taken_back(driver: ClusterDriver) -> None:
    assert alter(driver, ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")).error_code == 0
    values = {each.name: (each.value, each.config_source) for each in describe(driver, "retention.ms", "cleanup.policy").configs}
    assert values == {"retention.ms": ("5", 1), "cleanup.policy": ("delete,compact", 1)}
    alter(driver, ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete"))
    assert driver.kafka.topics["t"].config == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(("change", "code"), [
    (("no.such", SET, "1"), 40), (("retention.ms", SET, "x"), 40), (("retention.ms", APPEND, "1"), 40), (("retention.ms", SET, None), 42),
    (("retention.ms", 9, "1"), -1),
])
def test_a_change_that_cannot_be_made_leaves_all_settings_alone(driver: ClusterDriver, change: tuple[str, int, str | None], code: int) -> None:
    assert int(alter(driver, ("segment.ms", SET, "7"), change).error_code) == code
    assert driver.kafka.topics["t"].config == {}


def test_settings_of_brokers_are_shown_as_a_broker_shows_them_and_not_changed() -> None:
    with ClusterDriver(min_insync_replicas=2) as driver:
        (shown,) = describe(driver, "min.insync.replicas", name="1", kind=4).configs
        assert (shown.value, shown.read_only, shown.config_source) == ("2", False, 4)
        assert int(alter(driver, ("min.insync.replicas", SET, "1"), name="1", kind=4).error_code) == 42
        assert int(describe(driver, name="2", kind=4).error_code) == 42
        (topics,) = describe(driver, "min.insync.replicas").configs
        assert (topics.value, [each.source for each in topics.synonyms]) == ("2", [3, 4, 5])


def test_the_cluster_is_described_with_its_fenced_brokers_for_who_wants_them(driver: ClusterDriver) -> None:
    driver.kill(3)

    def brokers(**fields: Any) -> list[int]:
        answer = driver.call(Api.DESCRIBE_CLUSTER, 2, {"include_cluster_authorized_operations": False, "endpoint_type": 1, **fields})
        return [each.broker_id for each in answer.brokers]
    assert (brokers(include_fenced_brokers=False), brokers(include_fenced_brokers=True)) == ([1, 2], [1, 2, 3])
    driver.restart(3)


def test_partitions_are_described_page_by_page(driver: ClusterDriver) -> None:
    create(driver, "a", 3, 1)
    cursor, seen = None, []
    for _ in range(4):
        page = driver.call(Api.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "response_partition_limit": 1, "cursor": cursor})
        seen += [(topic.name, each.partition_index) for topic in page.topics for each in topic.partitions]
        cursor = page.next_cursor and {"topic_name": page.next_cursor.topic_name, "partition_index": page.next_cursor.partition_index}
    assert (seen, cursor) == ([("a", 0), ("a", 1), ("a", 2), ("t", 0)], None)
