"""Committed offsets without membership: requests in every version, and what each response means (C20, C24, C25)."""
from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import pytest

from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.calls import Again, Call, CallOutcome, Calls, Coordinator, Done
from pyclient.core.group.offsets import commit_call, committed_call
from pyclient.core.manager import Request, Use
from pyclient.errors import KafkaError, UnknownServerError, error_for
from pyclient.records import OffsetAndMetadata, TopicPartition
from tests.unit.core.world import DOUBLING, World, answer, make_metadata, read_request, view

A0, A1, B2 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2)
LOADING, UNAVAILABLE, NOT_COORDINATOR, TIMED_OUT, UNKNOWN_TOPIC, UNSTABLE = 14, 15, 16, 7, 3, 88
UNKNOWN_SERVER, ILLEGAL_GENERATION, UNKNOWN_MEMBER, TOPIC_FORBIDDEN, GROUP_FORBIDDEN, TOO_LARGE, FENCED = -1, 22, 25, 29, 30, 12, 82


def versions(api: Api) -> range:
    return range(SPOKEN[api].low, SPOKEN[api].high + 1)


def ignore_result(result: object, error: object) -> None:
    """For calls without a waiter."""


def commit(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Call:
    return commit_call("g", offsets, ignore_result, None)


def committed(*partitions: TopicPartition) -> Call:
    return committed_call("g", partitions, ignore_result, None)


def body(call: Call, version: int) -> Any:
    """The request as a broker decodes it."""
    return read_request(Request(node=1, use=Use.COORDINATION, api=call.api, fields=call.fields, timeout=1.0,
                                done=lambda now, outcome: None), version)


def committed_response(version: int, *partitions: tuple[TopicPartition, int, int], error: int = 0) -> Any:
    """An OffsetFetch response of (partition, offset, error code)."""
    topics: dict[str, list[dict[str, object]]] = {}
    for tp, offset, code in partitions:
        topics.setdefault(tp.topic, []).append({
            "partition_index": tp.partition, "committed_offset": offset, "committed_leader_epoch": 3 if offset >= 0 else -1,
            "metadata": "note" if offset >= 0 else "", "error_code": code})
    response_topics = [{"name": name, "partitions": each} for name, each in topics.items()]
    return answer(Api.OFFSET_FETCH, version, topics=response_topics, error_code=error, groups=[{"group_id": "g", "topics": response_topics, "error_code": error}])


def commit_response(version: int, *partitions: tuple[TopicPartition, int]) -> Any:
    response_topics = [{"name": tp.topic, "partitions": [{"partition_index": tp.partition, "error_code": code}]} for tp, code in partitions]
    return answer(Api.OFFSET_COMMIT, version, topics=response_topics)


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(Api.OFFSET_COMMIT))
def test_C25_a_commit_without_membership_carries_offset_epoch_and_metadata_in_every_version(version: int) -> None:
    read = body(commit({A0: OffsetAndMetadata(5, "note", 7), A1: OffsetAndMetadata(6), B2: OffsetAndMetadata(0)}), version)
    assert (read.group_id, read.generation_id_or_member_epoch, read.member_id) == ("g", -1, "")
    assert getattr(read, "group_instance_id", None) is None
    assert [topic.name for topic in read.topics] == ["a", "b"]
    first, second = read.topics[0].partitions
    assert (first.partition_index, first.committed_offset, first.committed_metadata) == (0, 5, "note")
    assert (getattr(first, "committed_leader_epoch", 7), getattr(second, "committed_leader_epoch", -1)) == (7, -1)
    if version <= 4:
        assert read.retention_time == datetime.timedelta(milliseconds=-1)  # the broker's own


@pytest.mark.parametrize("version", versions(Api.OFFSET_FETCH))
def test_C20_a_look_up_requests_each_partition_once_and_stable_offsets(version: int) -> None:
    read = body(committed(A0, B2, A1, A0), version)
    group = read.groups[0] if version >= 8 else read
    assert group.group_id == "g"
    assert [(topic.name, list(topic.partition_indexes)) for topic in group.topics] == [("a", [0, 1]), ("b", [2])]
    assert getattr(read, "require_stable", True) is True


@pytest.mark.parametrize("call", [commit({A0: OffsetAndMetadata(5)}), committed(A0)], ids=["commit", "committed"])
def test_offset_requests_go_to_the_groups_coordinator(call: Call) -> None:
    assert call.target == Coordinator("g")
    assert "'g'" in call.what


# --- responses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(Api.OFFSET_FETCH))
def test_C20_a_look_up_returns_committed_offsets_and_None_without_one(version: int) -> None:
    verdict = committed(A0, A1, B2).classify(committed_response(version, (B2, 0, 0), (A0, 7, 0), (A1, -1, 0)))
    epoch = 3 if version >= 5 else None
    assert verdict == Done({A0: OffsetAndMetadata(7, "note", epoch), A1: None, B2: OffsetAndMetadata(0, "note", epoch)})
    assert isinstance(verdict, Done)
    assert list(verdict.result) == [A0, A1, B2]


@pytest.mark.parametrize("version", versions(Api.OFFSET_FETCH))
def test_C20_a_partition_missing_in_the_response_does_not_count_as_nothing_committed(version: int) -> None:
    verdict = committed(A0, A1).classify(committed_response(version, (A0, 7, 0)))
    assert isinstance(verdict, Again)
    assert isinstance(verdict.error, UnknownServerError)
    assert "a-1" in str(verdict.error)


def test_a_response_without_the_group_is_retried() -> None:
    verdict = committed(A0).classify(answer(Api.OFFSET_FETCH, 9, groups=[]))
    assert isinstance(verdict, Again)
    assert "no entry for group 'g'" in str(verdict.error)


@pytest.mark.parametrize("version", versions(Api.OFFSET_COMMIT))
def test_C25_a_commit_succeeds_when_every_partition_is_stored(version: int) -> None:
    assert commit({A0: OffsetAndMetadata(5)}).classify(commit_response(version, (A0, 0))) == Done(None)


@pytest.mark.parametrize("version", versions(Api.OFFSET_COMMIT))
def test_C25_a_partition_missing_in_the_commit_response_does_not_count_as_stored(version: int) -> None:
    verdict = commit({A0: OffsetAndMetadata(5), A1: OffsetAndMetadata(6)}).classify(commit_response(version, (A0, 0)))
    assert isinstance(verdict, UnknownServerError)
    assert all(word in str(verdict) for word in ("group 'g'", "a-1", "may or may not be stored"))


ELSEWHERE = [NOT_COORDINATOR, UNAVAILABLE, TIMED_OUT]
HERE_AGAIN = [LOADING, UNKNOWN_TOPIC]
REFUSED = [UNKNOWN_SERVER, ILLEGAL_GENERATION, UNKNOWN_MEMBER, TOPIC_FORBIDDEN, GROUP_FORBIDDEN, TOO_LARGE, FENCED]


@pytest.mark.parametrize("code", ELSEWHERE)
def test_C25_a_commit_refused_by_an_old_coordinator_is_retried_at_the_new_one(code: int) -> None:
    is_retried(commit({A0: OffsetAndMetadata(5)}).classify(commit_response(9, (A0, code))), code, elsewhere=True)


@pytest.mark.parametrize("code", HERE_AGAIN)
def test_C25_a_commit_that_the_coordinator_may_accept_later_is_retried(code: int) -> None:
    is_retried(commit({A0: OffsetAndMetadata(5)}).classify(commit_response(9, (A0, code))), code, elsewhere=False)


@pytest.mark.parametrize("code", REFUSED)
def test_C25_a_commit_that_the_broker_refuses_raises_its_error(code: int) -> None:
    verdict = commit({A0: OffsetAndMetadata(5), B2: OffsetAndMetadata(6)}).classify(commit_response(9, (A0, 0), (B2, code)))
    refused(verdict, code, "b-2")


def is_retried(verdict: CallOutcome, code: int, *, elsewhere: bool) -> None:
    assert isinstance(verdict, Again)
    assert (type(verdict.error), verdict.elsewhere) == (type(error_for(code)), elsewhere)


def refused(verdict: CallOutcome, code: int, *words: str) -> None:
    assert isinstance(verdict, KafkaError)
    assert type(verdict) is type(error_for(code))
    assert all(word in str(verdict) for word in ("group 'g'", *words))


@pytest.mark.parametrize("version", [version for version in versions(Api.OFFSET_FETCH) if version >= 2])
def test_C20_an_error_of_the_whole_group_decides_whether_to_retry(version: int) -> None:
    is_retried(committed(A0).classify(committed_response(version, error=NOT_COORDINATOR)), NOT_COORDINATOR, elsewhere=True)
    is_retried(committed(A0).classify(committed_response(version, error=LOADING)), LOADING, elsewhere=False)
    refused(committed(A0).classify(committed_response(version, error=GROUP_FORBIDDEN)), GROUP_FORBIDDEN)


@pytest.mark.parametrize("version", versions(Api.OFFSET_FETCH))
def test_C20_an_error_of_one_partition_decides_whether_to_retry(version: int) -> None:
    def verdict(code: int) -> CallOutcome:
        return committed(A0, A1).classify(committed_response(version, (A0, 4, 0), (A1, -1, code)))

    is_retried(verdict(UNSTABLE), UNSTABLE, elsewhere=False)
    refused(verdict(TOPIC_FORBIDDEN), TOPIC_FORBIDDEN, "a-1")


# --- in order --------------------------------------------------------------------------------------------------------


def test_C24_commits_are_sent_in_the_order_they_were_requested() -> None:
    world, metadata = World(), make_metadata()
    calls = Calls(metadata, request_timeout=30.0, backoff=DOUBLING)
    metadata.hint(metadata.cluster.updated(answer(Api.METADATA, 13, **view())))
    for offset in range(5):
        calls.submit(commit({A0: OffsetAndMetadata(offset)}))
    (search,) = world.turn(calls)
    search.reply(coordinators=[{"key": "g", "node_id": 2, "host": "broker-2", "port": 9092}])
    sent = world.turn(calls)
    assert [each.body.topics[0].partitions[0].committed_offset for each in sent] == list(range(5))
    assert {(each.node, each.request.use) for each in sent} == {(2, Use.COORDINATION)}
