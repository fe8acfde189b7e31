"""Calls: where they go, and that a look-up of a coordinator lives as long as somebody wants it.

What happens in any order of events is in test_calls_rules.py; what the answers mean in test_group_offsets.py and
test_admin_calls.py.
"""
from __future__ import annotations

from typing import Any

import pytest

from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.admin import create_topics_call, metadata_call
from pyclient.core.calls import Again, Calls, Done, find_coordinator
from pyclient.core.group.offsets import commit_call
from pyclient.core.manager import Request, Use
from pyclient.errors import ClientClosed, KafkaError, KafkaTimeout, UnknownServerError, error_for
from pyclient.records import NewTopic, OffsetAndMetadata, TopicPartition
from tests.unit.core.world import DOUBLING, Sent, World, answer, make_metadata, read_request, topic, view

A0 = TopicPartition("a", 0)
UNAVAILABLE, GROUP_FORBIDDEN = 15, 30
VERSIONS = range(SPOKEN[Api.FIND_COORDINATOR].low, SPOKEN[Api.FIND_COORDINATOR].high + 1)


class Calling:
    """Calls and metadata in their world, and how the calls ended."""

    def __init__(self) -> None:
        self.world = World()
        self.metadata = make_metadata()
        self.calls = Calls(self.metadata, request_timeout=30.0, backoff=DOUBLING)
        self.ended: list[tuple[Any, BaseException | None]] = []

    def knows(self, **more: Any) -> None:
        self.metadata.hint(self.metadata.cluster.updated(answer(Api.METADATA, 13, **view(**more))))

    def finish(self, result: Any, error: BaseException | None) -> None:
        self.ended.append((result, error))

    def commits(self, group: str = "g", timeout: float | None = None) -> None:
        deadline = None if timeout is None else self.world.now + timeout
        self.calls.submit(commit_call(group, {A0: OffsetAndMetadata(1)}, self.finish, deadline))

    def describes(self, timeout: float | None = None) -> None:
        deadline = None if timeout is None else self.world.now + timeout
        self.calls.submit(metadata_call(["a"], finish=self.finish, deadline=deadline))

    def turn(self) -> list[Sent]:
        return self.world.turn(self.calls)


@pytest.fixture
def calling() -> Calling:
    calling = Calling()
    calling.knows()
    return calling


def coordinator(sent: Sent, node: int = 2, code: int = 0) -> None:
    told = {"node_id": node, "host": f"broker-{node}", "port": 9092, "error_code": code, "error_message": None}
    sent.reply(coordinators=[{"key": "g", **told}], **told)


# --- where they go ---------------------------------------------------------------------------------------------------


def test_M04_a_call_for_any_node_goes_to_the_one_with_least_to_do(calling: Calling) -> None:
    for _ in range(6):
        calling.describes()
    sent = calling.turn()
    assert sorted(each.node for each in sent) == [1, 1, 2, 2, 3, 3]
    for each in sent:
        each.reply(**view(topic("a", 1)))
    assert [result.topics["a"].available for result, _ in calling.ended] == [(0,)] * 6


def test_while_no_node_takes_more_calls_wait_without_spinning(calling: Calling) -> None:
    calling.world.nodes = {1}
    calling.world.capacity[Use.CONTROL] = 2
    for _ in range(3):
        calling.describes()
    first, _ = calling.turn()
    assert calling.turn() == []
    first.reply(**view())
    assert len(calling.turn()) == 1


def test_a_controller_that_is_not_known_is_asked_of_metadata() -> None:
    calling = Calling()
    calling.calls.submit(create_topics_call([NewTopic("t")], validate_only=False, timeout=1.0, finish=calling.finish, deadline=None))
    sent = calling.world.turn(calling.metadata, calling.calls)
    assert [each.api for each in sent] == [Api.METADATA]
    sent[0].reply(**view(controller=2))
    assert [(each.api, each.node) for each in calling.turn()] == [(Api.CREATE_TOPICS, 2)]


def test_two_groups_have_two_coordinators(calling: Calling) -> None:
    calling.commits("g")
    calling.commits("h")
    first, second = calling.turn()
    coordinator(first, 2)
    coordinator(second, 3)
    assert [(each.body.group_id, each.node) for each in calling.turn()] == [("g", 2), ("h", 3)]


def test_one_look_up_serves_every_call_of_the_group(calling: Calling) -> None:
    for _ in range(4):
        calling.commits()
    (search,) = calling.turn()
    coordinator(search)
    assert len(calling.turn()) == 4


# --- finding a coordinator -------------------------------------------------------------------------------------------


def judged(version: int, **told: object) -> Any:
    fields = {"node_id": 4, "host": "broker-4", "port": 9092, **told}
    message = answer(Api.FIND_COORDINATOR, version, coordinators=[{"key": "g", **fields}], **fields)
    return find_coordinator("g", lambda group, node, error: None).judge(message)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_coordinator_is_asked_for_by_group_in_every_version(version: int) -> None:
    call = find_coordinator("g", lambda group, node, error: None)
    body = read_request(Request(node=1, use=Use.CONTROL, api=call.api, fields=call.fields, timeout=1.0,
                                done=lambda now, outcome: None), version)
    assert (list(body.coordinator_keys) if version >= 4 else [body.key]) == ["g"]
    assert getattr(body, "key_type", 0) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_of_every_version_names_it_or_says_why_not(version: int) -> None:
    assert judged(version) == Done(4)
    later = judged(version, error_code=UNAVAILABLE)
    assert isinstance(later, Again)
    assert type(later.error) is type(error_for(UNAVAILABLE))
    refused = judged(version, error_code=GROUP_FORBIDDEN, error_message="not you")
    assert type(refused) is type(error_for(GROUP_FORBIDDEN))
    if version >= 1:
        assert "not you" in str(refused)


def test_an_answer_that_leaves_the_group_out_is_asked_for_again() -> None:
    call = find_coordinator("g", lambda group, node, error: None)
    verdict = call.judge(answer(Api.FIND_COORDINATOR, 6, coordinators=[]))
    assert isinstance(verdict, Again)
    assert isinstance(verdict.error, UnknownServerError)


def test_a_look_up_ends_with_the_last_call_that_wants_it(calling: Calling) -> None:
    calling.commits(timeout=5.0)
    calling.commits(timeout=50.0)
    for pause in (1, 2, 4):
        (search,) = calling.turn()
        coordinator(search, -1, UNAVAILABLE)
        calling.world.after(pause)
    (search,) = calling.turn()
    assert len(calling.ended) == 1
    coordinator(search, -1, UNAVAILABLE)
    calling.world.after(50.0)
    assert calling.turn() == []
    assert [type(error) for _, error in calling.ended] == [KafkaTimeout] * 2
    assert calling.calls.next_deadline() is None


def test_a_look_up_that_is_answered_after_nobody_wants_it_ends_nothing(calling: Calling) -> None:
    calling.commits(timeout=5.0)
    (search,) = calling.turn()
    calling.world.after(5.0)
    calling.turn()
    coordinator(search)
    calling.commits()
    assert [each.api for each in calling.turn()] == [Api.FIND_COORDINATOR]
    assert len(calling.ended) == 1


def test_a_call_that_the_end_of_another_ended_is_not_sent() -> None:
    calling = Calling()
    calling.knows()

    def closes_all(result: Any, error: BaseException | None) -> None:
        calling.calls.close(ClientClosed("closed"))

    calling.calls.submit(metadata_call(["a"], finish=closes_all, deadline=calling.world.now))
    calling.describes()
    assert calling.turn() == []
    assert [type(error) for _, error in calling.ended] == [ClientClosed]


@pytest.mark.parametrize("sent", [True, False])
def test_closing_during_a_look_up_ends_each_call_once(calling: Calling, sent: bool) -> None:
    calling.commits()
    calling.commits()
    searches = calling.turn() if sent else []
    closed = ClientClosed("closed")
    calling.calls.close(closed)
    calling.calls.close(closed)
    for search in searches:
        coordinator(search)
    assert calling.ended == [(None, closed)] * 2
    assert calling.turn() == []


def test_what_cannot_be_written_ends_the_call_at_once(calling: Calling) -> None:
    calling.describes()
    (sent,) = calling.turn()
    cause = KafkaError("a Metadata request could not be encoded")
    sent.is_not_sent(cause)
    assert calling.ended == [(None, cause)]
