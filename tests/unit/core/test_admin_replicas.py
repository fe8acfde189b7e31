"""Replicas: elections, reassignments and log directories as requests, and one outcome for each partition."""
from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from pyclient import AsyncAdmin
from pyclient.admin import ElectionType, LogDir, Reassignment, ReplicaSize
from pyclient.codec.apis import Api
from pyclient.core.admin.replicas import alter_log_dirs_call, alter_reassignments_call, describe_log_dirs_call, elect_leaders_call, list_reassignments_call
from pyclient.core.calls import Again, Anywhere, Broker, Done
from pyclient.errors import ClusterAuthorizationError, InvalidReplicaAssignmentError, KafkaStorageError, LogDirNotFoundError, NotControllerError, PreferredLeaderNotAvailableError
from pyclient.records import TopicPartition
from tests.unit.core.test_admin_calls import body, ignore, versions
from tests.unit.core.world import answer

ONE, TWO, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOT_ALLOWED, INVALID, NOT_CONTROLLER, STORAGE, NO_DIRECTORY, NOT_AVAILABLE, NOT_NEEDED = 31, 39, 41, 56, 57, 80, 84
SECONDS = datetime.timedelta(seconds=3)


def electing(election: ElectionType = ElectionType.PREFERRED) -> Any:
    return elect_leaders_call([ONE, TWO, OTHER], election, timeout=3.0, finish=ignore, deadline=None)


@pytest.mark.parametrize("version", versions(Api.ELECT_LEADERS))
def test_an_election_names_partitions_by_topic_in_every_version(version: int) -> None:
    assert electing().target is Anywhere.CONTROLLER
    read = body(electing(), version)
    assert [(each.topic, each.partitions) for each in read.topic_partitions] == [("t", (0, 1)), ("u", (0,))]
    assert (read.timeout, getattr(read, "election_type", 0)) == (SECONDS, 0)
    everything = elect_leaders_call(None, ElectionType.PREFERRED, timeout=3.0, finish=ignore, deadline=None)
    assert body(everything, version).topic_partitions is None


def test_an_unclean_election_is_asked_only_of_brokers_that_have_it() -> None:
    assert electing().versions is None
    assert electing(ElectionType.UNCLEAN).versions.low == 1
    assert body(electing(ElectionType.UNCLEAN), 2).election_type == 1


def test_a_partition_that_needs_no_election_has_no_new_leader_and_no_error() -> None:
    parts = [{"partition_id": number, "error_code": code, "error_message": None} for number, code in enumerate([0, NOT_NEEDED, NOT_AVAILABLE])]
    found = electing().classify(answer(Api.ELECT_LEADERS, 2, error_code=0, replica_election_results=[{"topic": "t", "partition_result": parts}]))
    assert isinstance(found, Done)
    assert (found.result[ONE], found.result[TWO]) == (True, False)
    assert isinstance(found.result[TopicPartition("t", 2)], PreferredLeaderNotAvailableError)


@pytest.mark.parametrize("version", versions(Api.ALTER_PARTITION_REASSIGNMENTS))
def test_reassignments_have_their_brokers_in_order_and_none_cancels(version: int) -> None:
    call = alter_reassignments_call({ONE: [3, 1], TWO: None}, timeout=3.0, finish=ignore, deadline=None)
    assert call.target is Anywhere.CONTROLLER
    read = body(call, version)
    assert [(each.name, [(part.partition_index, part.replicas) for part in each.partitions]) for each in read.topics] == [("t", [(0, (3, 1)), (1, None)])]
    parts = [{"partition_index": number, "error_code": code, "error_message": "why"} for number, code in enumerate([0, INVALID])]
    found = call.classify(answer(Api.ALTER_PARTITION_REASSIGNMENTS, version, error_code=0, error_message=None, responses=[{"name": "t", "partitions": parts}]))
    assert isinstance(found, Done)
    assert found.result[ONE] is None
    assert isinstance(found.result[TWO], InvalidReplicaAssignmentError)


@pytest.mark.parametrize(("code", "kind"), [(NOT_ALLOWED, ClusterAuthorizationError), (NOT_CONTROLLER, NotControllerError)])
def test_an_error_of_the_whole_answer_is_final_or_asks_the_next_controller(code: int, kind: type[Exception]) -> None:
    call = list_reassignments_call(None, timeout=3.0, finish=ignore, deadline=None)
    found = call.classify(answer(Api.LIST_PARTITION_REASSIGNMENTS, 0, error_code=code, error_message=None, topics=[]))
    error = found.error if isinstance(found, Again) else found
    assert isinstance(error, kind)
    assert isinstance(found, Again) == (kind is NotControllerError)


def test_what_is_moved_is_listed_with_those_that_come_and_go() -> None:
    call = list_reassignments_call([ONE], timeout=3.0, finish=ignore, deadline=None)
    assert [(each.name, each.partition_indexes) for each in body(call, 0).topics] == [("t", (0,))]
    part = {"partition_index": 0, "replicas": [1, 2, 3], "adding_replicas": [3], "removing_replicas": [1]}
    found = call.classify(answer(Api.LIST_PARTITION_REASSIGNMENTS, 0, error_code=0, error_message=None, topics=[{"name": "t", "partitions": [part]}]))
    assert found == Done({ONE: Reassignment((1, 2, 3), (3,), (1,))})


@pytest.mark.parametrize("version", versions(Api.ALTER_REPLICA_LOG_DIRS))
def test_each_replica_is_moved_to_its_directory_and_has_its_own_outcome(version: int) -> None:
    call = alter_log_dirs_call(2, {("t", 0, 2): "/a", ("t", 1, 2): "/b", ("u", 0, 2): "/a"}, finish=ignore, deadline=None)
    assert call.target == Broker(2)
    assert [(each.path, [(topic.name, topic.partitions) for topic in each.topics]) for each in body(call, version).dirs] == [
        ("/a", [("t", (0,)), ("u", (0,))]), ("/b", [("t", (1,))])]
    results = [{"topic_name": name, "partitions": [{"partition_index": number, "error_code": code}]} for name, number, code in (("t", 0, 0), ("t", 1, NO_DIRECTORY))]
    found = call.classify(answer(Api.ALTER_REPLICA_LOG_DIRS, version, results=results))
    assert isinstance(found, Done)
    assert found.result[("t", 0, 2)] is None
    error = found.result[("t", 1, 2)]
    assert isinstance(error, LogDirNotFoundError)
    assert (error.topic_partition, "broker 2" in str(error)) == (TWO, True)


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_LOG_DIRS))
def test_log_directories_have_their_replicas_and_a_failed_one_its_error(version: int) -> None:
    call = describe_log_dirs_call(2, [ONE], finish=ignore, deadline=None)
    assert call.target == Broker(2)
    assert [(each.topic, each.partitions) for each in body(call, version).topics] == [("t", (0,))]
    part = {"partition_index": 0, "partition_size": 99, "offset_lag": 5, "is_future_key": True}
    results = [{"error_code": 0, "log_dir": "/data", "topics": [{"name": "t", "partitions": [part]}], "total_bytes": 1000, "usable_bytes": 10},
               {"error_code": STORAGE, "log_dir": "/gone", "topics": [], "total_bytes": -1, "usable_bytes": -1}]
    found = call.classify(answer(Api.DESCRIBE_LOG_DIRS, version, error_code=0, results=results))
    assert isinstance(found, Done)
    has_bytes = version >= 4
    assert found.result["/data"] == LogDir("/data", None, 1000 if has_bytes else None, 10 if has_bytes else None, {ONE: ReplicaSize(99, 5, True)})
    assert isinstance(found.result["/gone"].error, KafkaStorageError)
    assert found.result["/gone"].total_bytes is None


@pytest.mark.parametrize(("call", "words"), [
    (lambda admin: admin.elect_leaders(ONE), "expected a list of partitions, got one"),
    (lambda admin: admin.elect_leaders(["t"]), "expected partitions"),
    (lambda admin: admin.elect_leaders([ONE], 7), "7 is not a valid ElectionType"),
    (lambda admin: admin.alter_partition_reassignments({ONE: []}), "None cancels a reassignment"),
    (lambda admin: admin.alter_replica_log_dirs({ONE: "/data"}), "expected a path by topic, partition and broker"),
    (lambda admin: admin.alter_replica_log_dirs({("t", 0, 1): None}), "expected a path by topic, partition and broker"),
])
def test_wrong_arguments_are_refused_before_a_request(call: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        asyncio.run(call(AsyncAdmin(bootstrap_servers="127.0.0.1:1")))
