"""Committed offsets without membership: requests in every version, and what each answer means (C20, C24, C25)."""
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


def nobody(result: object, error: object) -> None:
    """Nobody waits."""


def commit(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Call:
    return commit_call("g", offsets, nobody, None)


def committed(*partitions: TopicPartition) -> Call:
    return committed_call("g", partitions, nobody, None)


def body(call: Call, version: int) -> Any:
    """What a broker reads."""
    return read_request(Request(node=1, use=Use.COORDINATION, api=call.api, fields=call.fields, timeout=1.0,
                                done=lambda now, outcome: None), version)


def committed_answer(version: int, *parts: tuple[TopicPartition, int, int], error: int = 0) -> Any:
    """An OffsetFetch answer of (partition, offset, error code)."""
    topics: dict[str, list[dict[str, object]]] = {}
    for where, offset, code in parts:
        topics.setdefault(where.topic, []).append({
            "partition_index": where.partition, "committed_offset": offset, "committed_leader_epoch": 3 if offset >= 0 else -1,
            "metadata": "note" if offset >= 0 else "", "error_code": code})
    told = [{"name": name, "partitions": each} for name, each in topics.items()]
    return answer(Api.OFFSET_FETCH, version, topics=told, error_code=error, groups=[{"group_id": "g", "topics": told, "error_code": error}])


def commit_answer(version: int, *parts: tuple[TopicPartition, int]) -> Any:
    told = [{"name": where.topic, "partitions": [{"partition_index": where.partition, "error_code": code}]} for where, code in parts]
    return answer(Api.OFFSET_COMMIT, version, topics=told)


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(Api.OFFSET_COMMIT))
def test_C25_a_commit_says_offset_epoch_and_metadata_and_no_membership_in_every_version(version: int) -> None:
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
def test_C20_a_look_up_asks_for_each_partition_once_and_for_stable_offsets(version: int) -> None:
    read = body(committed(A0, B2, A1, A0), version)
    group = read.groups[0] if version >= 8 else read
    assert group.group_id == "g"
    assert [(topic.name, list(topic.partition_indexes)) for topic in group.topics] == [("a", [0, 1]), ("b", [2])]
    assert getattr(read, "require_stable", True) is True


@pytest.mark.parametrize("call", [commit({A0: OffsetAndMetadata(5)}), committed(A0)], ids=["commit", "committed"])
def test_offsets_are_the_business_of_the_groups_coordinator(call: Call) -> None:
    assert call.target == Coordinator("g")
    assert "'g'" in call.what


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(Api.OFFSET_FETCH))
def test_C20_what_is_committed_is_found_and_nothing_is_None(version: int) -> None:
    verdict = committed(A0, A1, B2).judge(committed_answer(version, (B2, 0, 0), (A0, 7, 0), (A1, -1, 0)))
    epoch = 3 if version >= 5 else None
    assert verdict == Done({A0: OffsetAndMetadata(7, "note", epoch), A1: None, B2: OffsetAndMetadata(0, "note", epoch)})
    assert isinstance(verdict, Done)
    assert list(verdict.result) == [A0, A1, B2]


@pytest.mark.parametrize("version", versions(Api.OFFSET_FETCH))
def test_C20_a_partition_that_the_answer_leaves_out_is_not_taken_for_nothing_committed(version: int) -> None:
    verdict = committed(A0, A1).judge(committed_answer(version, (A0, 7, 0)))
    assert isinstance(verdict, Again)
    assert isinstance(verdict.error, UnknownServerError)
    assert "a-1" in str(verdict.error)


def test_an_answer_without_the_group_is_asked_for_again() -> None:
    verdict = committed(A0).judge(answer(Api.OFFSET_FETCH, 9, groups=[]))
    assert isinstance(verdict, Again)
    assert "no entry for group 'g'" in str(verdict.error)


@pytest.mark.parametrize("version", versions(Api.OFFSET_COMMIT))
def test_C25_a_commit_is_done_when_every_partition_is_stored(version: int) -> None:
    assert commit({A0: OffsetAndMetadata(5)}).judge(commit_answer(version, (A0, 0))) == Done(None)


@pytest.mark.parametrize("version", versions(Api.OFFSET_COMMIT))
def test_C25_a_partition_that_the_answer_to_a_commit_leaves_out_is_not_taken_for_stored(version: int) -> None:
    verdict = commit({A0: OffsetAndMetadata(5), A1: OffsetAndMetadata(6)}).judge(commit_answer(version, (A0, 0)))
    assert isinstance(verdict, UnknownServerError)
    assert all(word in str(verdict) for word in ("group 'g'", "a-1", "may or may not be stored"))


ELSEWHERE = [NOT_COORDINATOR, UNAVAILABLE, TIMED_OUT]
HERE_AGAIN = [LOADING, UNKNOWN_TOPIC]
REFUSED = [UNKNOWN_SERVER, ILLEGAL_GENERATION, UNKNOWN_MEMBER, TOPIC_FORBIDDEN, GROUP_FORBIDDEN, TOO_LARGE, FENCED]


@pytest.mark.parametrize("code", ELSEWHERE)
def test_C25_a_commit_that_another_coordinator_may_take_is_tried_there(code: int) -> None:
    tried_again(commit({A0: OffsetAndMetadata(5)}).judge(commit_answer(9, (A0, code))), code, elsewhere=True)


@pytest.mark.parametrize("code", HERE_AGAIN)
def test_C25_a_commit_that_the_coordinator_may_take_later_is_tried_there_again(code: int) -> None:
    tried_again(commit({A0: OffsetAndMetadata(5)}).judge(commit_answer(9, (A0, code))), code, elsewhere=False)


@pytest.mark.parametrize("code", REFUSED)
def test_C25_a_commit_that_the_broker_refuses_raises_what_it_refused(code: int) -> None:
    verdict = commit({A0: OffsetAndMetadata(5), B2: OffsetAndMetadata(6)}).judge(commit_answer(9, (A0, 0), (B2, code)))
    refused(verdict, code, "b-2")


def tried_again(verdict: CallOutcome, code: int, *, elsewhere: bool) -> None:
    assert isinstance(verdict, Again)
    assert (type(verdict.error), verdict.elsewhere) == (type(error_for(code)), elsewhere)


def refused(verdict: CallOutcome, code: int, *words: str) -> None:
    assert isinstance(verdict, KafkaError)
    assert type(verdict) is type(error_for(code))
    assert all(word in str(verdict) for word in ("group 'g'", *words))


@pytest.mark.parametrize("version", [version for version in versions(Api.OFFSET_FETCH) if version >= 2])
def test_C20_an_error_of_the_whole_group_is_told_by_its_kind(version: int) -> None:
    tried_again(committed(A0).judge(committed_answer(version, error=NOT_COORDINATOR)), NOT_COORDINATOR, elsewhere=True)
    tried_again(committed(A0).judge(committed_answer(version, error=LOADING)), LOADING, elsewhere=False)
    refused(committed(A0).judge(committed_answer(version, error=GROUP_FORBIDDEN)), GROUP_FORBIDDEN)


@pytest.mark.parametrize("version", versions(Api.OFFSET_FETCH))
def test_C20_an_error_of_one_partition_is_told_by_its_kind(version: int) -> None:
    def verdict(code: int) -> CallOutcome:
        return committed(A0, A1).judge(committed_answer(version, (A0, 4, 0), (A1, -1, code)))

    tried_again(verdict(UNSTABLE), UNSTABLE, elsewhere=False)
    refused(verdict(TOPIC_FORBIDDEN), TOPIC_FORBIDDEN, "a-1")


# --- in order --------------------------------------------------------------------------------------------------------


def test_C24_commits_leave_in_the_order_they_were_asked_for() -> None:
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
