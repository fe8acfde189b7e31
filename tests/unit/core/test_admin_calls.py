"""Admin operations: requests in every version, and one result or error per item."""
from __future__ import annotations

import datetime
from typing import Any

import pytest

from pyclient.admin import AclOperation
from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.admin.topics import create_partitions_call, create_topics_call, delete_topics_call, metadata_call
from pyclient.core.calls import Again, Anywhere, Call, Done
from pyclient.core.manager import Request, Use
from pyclient.descriptions.acls import NOT_ASKED
from pyclient.descriptions.topics import NewPartitions, NewTopic
from pyclient.errors import InvalidPartitionsError, NotControllerError, TopicExistsError, UnknownTopicOrPartitionError
from tests.unit.core.world import answer, read_request, topic, view

NOT_CONTROLLER, EXISTS, UNKNOWN_TOPIC, INVALID_PARTITIONS, NOT_ALLOWED = 41, 36, 3, 37, 29
THREE_SECONDS = datetime.timedelta(seconds=3)


def versions(api: Api) -> range:
    return range(SPOKEN[api].low, SPOKEN[api].high + 1)


def ignore(result: object, error: object) -> None:
    """No caller waits."""


def body(call: Call, version: int) -> Any:
    return read_request(Request(node=1, use=Use.CONTROL, api=call.api, fields=call.fields, timeout=1.0,
                                done=lambda now, outcome: None), version)


def create(*topics: NewTopic, validate_only: bool = False) -> Call:
    return create_topics_call(topics, validate_only=validate_only, timeout=3.0, finish=ignore, deadline=None)


def delete(*names: str) -> Call:
    return delete_topics_call(names, timeout=3.0, finish=ignore, deadline=None)


def grow(validate_only: bool = False, **totals: NewPartitions) -> Call:
    return create_partitions_call(totals, validate_only=validate_only, timeout=3.0, finish=ignore, deadline=None)


@pytest.mark.parametrize("version", versions(Api.CREATE_PARTITIONS))
@pytest.mark.parametrize("validate_only", [True, False])
def test_adding_partitions_says_total_and_replicas_in_every_version(version: int, validate_only: bool) -> None:
    read = body(grow(validate_only, a=NewPartitions(4, [[1, 2], [2, 3]]), b=NewPartitions(6)), version)
    assert (read.validate_only, read.timeout) == (validate_only, THREE_SECONDS)
    a, b = read.topics
    assert (a.name, a.count, [tuple(each.broker_ids) for each in a.assignments]) == ("a", 4, [(1, 2), (2, 3)])
    assert (b.name, b.count, b.assignments) == ("b", 6, None)


@pytest.mark.parametrize("version", versions(Api.CREATE_PARTITIONS))
def test_each_topic_grown_has_its_own_outcome(version: int) -> None:
    response = [{"name": "a"}, {"name": "b", "error_code": INVALID_PARTITIONS, "error_message": "has 9"}, {"name": "c", "error_code": NOT_ALLOWED}]
    verdict = grow(a=NewPartitions(2), b=NewPartitions(3), c=NewPartitions(4)).classify(answer(Api.CREATE_PARTITIONS, version, results=response))
    assert isinstance(verdict, Done)
    assert verdict.result["a"] is None
    assert isinstance(verdict.result["b"], InvalidPartitionsError)
    assert "topic 'b': has 9" in str(verdict.result["b"])
    assert "not allowed to ALTER topic 'c'" in str(verdict.result["c"])


@pytest.mark.parametrize("version", versions(Api.CREATE_TOPICS))
@pytest.mark.parametrize("validate_only", [True, False])
def test_creating_says_partitions_replicas_and_configs_in_every_version(version: int, validate_only: bool) -> None:
    read = body(create(NewTopic("a", 3, 2, {"retention.ms": "1"}), NewTopic("b"), validate_only=validate_only), version)
    assert (read.validate_only, read.timeout) == (validate_only, THREE_SECONDS)
    a, b = read.topics
    assert (a.name, a.num_partitions, a.replication_factor) == ("a", 3, 2)
    assert [(each.name, each.value) for each in a.configs] == [("retention.ms", "1")]
    assert (b.num_partitions, b.replication_factor, b.configs, b.assignments) == (-1, -1, (), ())


@pytest.mark.parametrize("version", versions(Api.CREATE_TOPICS))
def test_given_replicas_leave_both_numbers_to_the_assignment(version: int) -> None:
    (read,) = body(create(NewTopic("a", 5, 1, replica_assignments={0: [1, 2], 1: [2, 3]})), version).topics
    assert (read.num_partitions, read.replication_factor) == (-1, -1)
    assert [(each.partition_index, tuple(each.broker_ids)) for each in read.assignments] == [(0, (1, 2)), (1, (2, 3))]


@pytest.mark.parametrize("version", versions(Api.CREATE_TOPICS))
def test_each_topic_created_has_its_own_outcome(version: int) -> None:
    response = [{"name": "a"}, {"name": "b", "error_code": EXISTS, "error_message": "b is there"}]
    verdict = create(NewTopic("a"), NewTopic("b")).classify(answer(Api.CREATE_TOPICS, version, topics=response))
    assert isinstance(verdict, Done)
    assert verdict.result["a"] is None
    assert isinstance(verdict.result["b"], TopicExistsError)
    assert "topic 'b': b is there" in str(verdict.result["b"])


@pytest.mark.parametrize("version", versions(Api.DELETE_TOPICS))
def test_deleting_names_the_topics_in_every_version(version: int) -> None:
    read = body(delete("a", "b"), version)
    named = [each.name for each in read.topics] if version >= 6 else list(read.topic_names)
    assert (named, read.timeout) == (["a", "b"], THREE_SECONDS)


@pytest.mark.parametrize("version", versions(Api.DELETE_TOPICS))
def test_each_topic_deleted_has_its_own_outcome(version: int) -> None:
    response = [{"name": "a"}, {"name": "b", "error_code": UNKNOWN_TOPIC}]
    verdict = delete("a", "b").classify(answer(Api.DELETE_TOPICS, version, responses=response))
    assert isinstance(verdict, Done)
    assert verdict.result["a"] is None
    assert isinstance(verdict.result["b"], UnknownTopicOrPartitionError)


def test_changes_are_the_controllers_business_and_another_controller_is_asked_when_it_moved() -> None:
    for call, message in (
        (create(NewTopic("a")), answer(Api.CREATE_TOPICS, 7, topics=[{"name": "a", "error_code": NOT_CONTROLLER}])),
        (grow(a=NewPartitions(2)), answer(Api.CREATE_PARTITIONS, 3, results=[{"name": "a", "error_code": NOT_CONTROLLER}])),
        (delete("a"), answer(Api.DELETE_TOPICS, 6, responses=[{"name": "a", "error_code": NOT_CONTROLLER}])),
    ):
        assert call.target is Anywhere.CONTROLLER
        verdict = call.classify(message)
        assert isinstance(verdict, Again)
        assert (type(verdict.error), verdict.elsewhere) == (NotControllerError, True)


@pytest.mark.parametrize("version", versions(Api.METADATA))
def test_describing_all_topics_is_not_describing_none(version: int) -> None:
    def asked(names: list[str] | None) -> Any:
        return body(metadata_call(names, finish=ignore, deadline=None), version).topics

    assert asked(None) is None
    assert asked([]) == ()
    assert [each.name for each in asked(["a", "b"])] == ["a", "b"]


@pytest.mark.parametrize("version", [version for version in versions(Api.METADATA) if version >= 4])
def test_describing_creates_nothing(version: int) -> None:
    assert body(metadata_call(["a"], finish=ignore, deadline=None), version).allow_auto_topic_creation is False


@pytest.mark.parametrize("asked", [True, False])
def test_topics_are_described_with_what_their_user_may_do_where_that_is_asked(asked: bool) -> None:
    call = metadata_call(["t"], operations=asked, finish=ignore, deadline=None)
    assert (call.versions.low if call.versions else 0) == (8 if asked else 0)
    for version in range(8, 14):
        assert body(call, version).include_topic_authorized_operations is asked
    bits = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE if asked else NOT_ASKED
    verdict = call.classify(answer(Api.METADATA, 13, **view(topic("t", 1, topic_authorized_operations=bits))))
    assert isinstance(verdict, Done)
    assert verdict.result.topics["t"].describe().authorized_operations == ({AclOperation.READ, AclOperation.DESCRIBE} if asked else None)


def test_a_broker_that_is_still_starting_and_knows_no_brokers_is_asked_again() -> None:
    """Else lists of what all brokers have would be empty."""
    empty = {**view(), "brokers": []}
    assert isinstance(metadata_call([], finish=ignore, deadline=None).classify(answer(Api.METADATA, 13, **empty)), Again)


def test_a_description_is_a_view_of_its_own_with_the_error_of_each_topic() -> None:
    call = metadata_call(["a", "b"], finish=ignore, deadline=None)
    verdict = call.classify(answer(Api.METADATA, 13, **view(topic("a", 1, 2), topic("b", error=UNKNOWN_TOPIC), controller=3)))
    assert isinstance(verdict, Done)
    assert (verdict.result.version, verdict.result.controller, verdict.result.id) == (1, 3, "cluster")
    assert verdict.result.topics["a"].available == (0, 1)
    assert verdict.result.topics["b"].error == UNKNOWN_TOPIC
