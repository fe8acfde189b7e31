"""Calls through any sequence of events: each ends once and in time, none spins, none waits for what nobody sent (C25)."""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.codec.apis import Api
from pyclient.core.admin import create_topics_call, metadata_call
from pyclient.core.calls import Call, Calls
from pyclient.core.group.offsets import commit_call
from pyclient.core.manager import Use
from pyclient.core.metadata import Metadata
from pyclient.errors import (
    ClientClosed, GroupAuthorizationError, KafkaError, KafkaTimeout, ProtocolError, TopicExistsError, UnknownMemberIdError,
    UnsupportedVersionError,
)
from pyclient.records import NewTopic, OffsetAndMetadata, TopicPartition
from tests.unit.core.world import DOUBLING, Sent, World, answer, view

NOT_CONTROLLER, NOT_COORDINATOR, LOADING, COORDINATOR_GONE, GROUP_AUTHORIZATION, UNKNOWN_MEMBER, TOPIC_EXISTS = 41, 16, 14, 15, 30, 25, 36
A0 = TopicPartition("a", 0)


class Calling:
    """Calls in their world; every outcome is noted."""

    def __init__(self) -> None:
        self.world = World()
        self.metadata = Metadata(max_age=10_000.0, max_idle=10_000.0, rebootstrap_after=None, request_timeout=30.0,
                                 backoff=DOUBLING, create_topics=True, on_update=lambda cluster: None)
        self.knows()
        self.calls = Calls(self.metadata, request_timeout=30.0, backoff=DOUBLING)
        self.ended: list[tuple[Any, Any]] = []

    def knows(self, *nodes: int, controller: int = 1) -> None:
        told = answer(Api.METADATA, 13, **view(nodes=nodes or (1, 2, 3), controller=controller))
        self.metadata.hint(self.metadata.cluster.updated(told))

    def finish(self, result: Any, error: Any) -> None:
        self.ended.append((result, error))

    def commit(self, deadline: float | None = None) -> Call:
        call = commit_call("g", {A0: OffsetAndMetadata(5)}, self.finish, deadline)
        self.calls.submit(call)
        return call

    def turn(self) -> list[Sent]:
        return self.world.turn(self.calls)

    def after(self, seconds: float) -> list[Sent]:
        self.world.after(seconds)
        return self.turn()


def only(sent: list[Sent]) -> Sent:
    (one,) = sent
    return one


def found(sent: Sent, node: int = 2, code: int = 0) -> None:
    sent.reply(coordinators=[{"key": "g", "node_id": node, "host": f"broker-{node}", "port": 9092, "error_code": code}])


def committed(sent: Sent, code: int = 0) -> None:
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "error_code": code}]}])


def test_a_commit_finds_its_coordinator_in_the_turn_it_is_asked_for_and_goes_there() -> None:
    calling = Calling()
    calling.commit()
    (find,) = calling.turn()
    assert find.api is Api.FIND_COORDINATOR
    found(find, 2)
    (commit,) = calling.turn()
    assert (commit.api, commit.node, commit.request.use) == (Api.OFFSET_COMMIT, 2, Use.COORDINATION)
    committed(commit)
    assert calling.ended == [(None, None)]
    calling.commit()
    (commit,) = calling.turn()
    assert commit.api is Api.OFFSET_COMMIT, "the coordinator is known by now"


@pytest.mark.parametrize("code", [NOT_COORDINATOR, COORDINATOR_GONE])
def test_C25_a_coordinator_that_moved_is_looked_up_again(code: int) -> None:
    calling = Calling()
    calling.commit()
    found(only(calling.turn()))
    committed(only(calling.turn()), code)
    assert calling.turn() == []
    (find,) = calling.after(1.0)
    found(find, 3)
    (commit,) = calling.turn()
    assert commit.node == 3


def test_C25_a_coordinator_that_loads_is_asked_again_after_a_pause() -> None:
    calling = Calling()
    calling.commit()
    found(only(calling.turn()))
    for pause in (1.0, 2.0, 4.0):
        committed(only(calling.turn() or calling.after(pause / 2)), LOADING)
        assert calling.after(pause * 0.9) == []
        calling.world.after(pause * 0.1)


@pytest.mark.parametrize(("code", "kind"), [(UNKNOWN_MEMBER, UnknownMemberIdError), (GROUP_AUTHORIZATION, GroupAuthorizationError)])
def test_C25_what_the_broker_refuses_for_good_is_raised(code: int, kind: type[KafkaError]) -> None:
    calling = Calling()
    calling.commit()
    found(only(calling.turn()))
    committed(only(calling.turn()), code)
    ((_, error),) = calling.ended
    assert isinstance(error, kind)


def test_an_error_of_finding_the_coordinator_ends_whoever_waits_for_it() -> None:
    calling = Calling()
    calling.commit()
    calling.commit()
    (find,) = calling.turn()
    found(find, -1, GROUP_AUTHORIZATION)
    assert [type(error) for _, error in calling.ended] == [GroupAuthorizationError] * 2


def test_a_coordinator_that_is_not_in_the_cluster_is_not_looked_up_at_the_networks_speed() -> None:
    calling = Calling()
    calling.commit(deadline=calling.world.now + 60.0)
    finds = 0
    while not calling.ended:
        for sent in calling.turn():
            finds += 1
            found(sent, 9)
        calling.turn()
        calling.world.now = calling.calls.next_deadline() or calling.world.now
    assert finds < 80


def test_nobody_is_asked_for_a_coordinator_when_nobody_wants_it_any_more() -> None:
    calling = Calling()
    call = calling.commit()
    (find,) = calling.turn()
    found(find, -1, COORDINATOR_GONE)
    calling.calls.cancel(call)
    assert calling.after(100.0) == []
    assert calling.calls.next_deadline() is None
    calling.commit()
    assert [sent.api for sent in calling.after(100.0)] == [Api.FIND_COORDINATOR]


def test_a_call_for_the_controller_follows_it() -> None:
    calling = Calling()
    calling.calls.submit(create_topics_call([NewTopic("t")], validate_only=False, timeout=5.0, finish=calling.finish, deadline=None))
    (sent,) = calling.turn()
    assert sent.node == 1
    sent.reply(topics=[{"name": "t", "error_code": NOT_CONTROLLER}])
    calling.knows(controller=3)
    (sent,) = calling.after(1.0)
    assert sent.node == 3
    sent.reply(topics=[{"name": "t", "error_code": TOPIC_EXISTS}])
    ((result, _),) = calling.ended
    assert isinstance(result["t"], TopicExistsError)


def test_an_outcome_nobody_knows_is_tried_again_elsewhere() -> None:
    calling = Calling()
    calling.calls.submit(metadata_call(None, finish=calling.finish, deadline=None))
    (sent,) = calling.turn()
    sent.is_lost()
    assert calling.turn() == []
    (sent,) = calling.after(1.0)
    sent.reply(**view())
    assert calling.ended[0][1] is None


@pytest.mark.parametrize("cause", [UnsupportedVersionError("too old"), ProtocolError("nonsense"), KafkaError("cannot be encoded")])
def test_what_cannot_be_cured_ends_the_call_at_once(cause: KafkaError) -> None:
    calling = Calling()
    calling.calls.submit(metadata_call(None, finish=calling.finish, deadline=None))
    (sent,) = calling.turn()
    sent.is_not_sent(cause)
    assert calling.ended == [(None, cause)]


@pytest.mark.parametrize("nodes", [set(), {1, 2, 3}])
def test_a_call_ends_at_its_deadline_and_says_what_it_waited_for(nodes: set[int]) -> None:
    calling = Calling()
    calling.world.nodes = nodes
    calling.calls.submit(metadata_call(None, finish=calling.finish, deadline=calling.world.now + 5.0))
    sent = calling.turn()
    assert calling.calls.next_deadline() == calling.world.now + 5.0
    calling.after(5.0)
    ((_, error),) = calling.ended
    assert isinstance(error, KafkaTimeout)
    assert "describing topics" in str(error)
    for each in sent:
        each.reply(**view())
    assert len(calling.ended) == 1


def test_closing_ends_every_call_once() -> None:
    calling = Calling()
    calling.commit()
    calling.calls.submit(metadata_call(None, finish=calling.finish, deadline=None))
    sent = calling.turn()
    closed = ClientClosed("closed")
    calling.calls.close(closed)
    for each in sent:
        each.is_lost()
    assert calling.ended == [(None, closed)] * 2
    assert calling.turn() == []
    assert calling.calls.next_deadline() is None


class CallRules(RuleBasedStateMachine):
    """The world checks after each turn that the next deadline lies ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.calling = Calling()
        self.open: dict[int, float | None] = {}
        self.calls: dict[int, Call] = {}
        self.outcomes: dict[int, int] = {}

    @rule(kind=st.sampled_from(["commit", "describe", "create"]), seconds=st.none() | st.sampled_from([1.0, 10.0, 50.0]))
    def submit(self, kind: str, seconds: float | None) -> None:
        number = len(self.outcomes)
        deadline = None if seconds is None else self.calling.world.now + seconds

        def finish(result: Any, error: Any) -> None:
            self.outcomes[number] += 1
            self.open.pop(number)

        call = {
            "commit": lambda: commit_call(f"g{number % 2}", {A0: OffsetAndMetadata(1)}, finish, deadline),
            "describe": lambda: metadata_call(["a"], finish=finish, deadline=deadline),
            "create": lambda: create_topics_call([NewTopic("a")], validate_only=False, timeout=1.0, finish=finish, deadline=deadline),
        }[kind]()
        self.outcomes[number], self.open[number], self.calls[number] = 0, deadline, call
        self.calling.calls.submit(call)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.open)))
        self.calling.calls.cancel(self.calls[number])
        del self.open[number]
        self.outcomes[number] = 1

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.calling.after(seconds)
        now = self.calling.world.now
        assert all(deadline is None or deadline > now for deadline in self.open.values())

    @rule(nodes=st.sets(st.integers(1, 3)))
    def nodes_come_and_go(self, nodes: set[int]) -> None:
        self.calling.world.nodes = nodes

    @rule(nodes=st.sets(st.integers(1, 3), min_size=1), controller=st.integers(-1, 3))
    def the_cluster_changes(self, nodes: set[int], controller: int) -> None:
        self.calling.knows(*nodes, controller=controller)

    @precondition(lambda self: self.calling.world.in_flight)
    @rule(data=st.data(), code=st.sampled_from([0, 0, LOADING, NOT_COORDINATOR, NOT_CONTROLLER, GROUP_AUTHORIZATION]), node=st.integers(1, 4))
    def reply(self, data: st.DataObject, code: int, node: int) -> None:
        sent = data.draw(st.sampled_from(self.calling.world.in_flight))
        match sent.api:
            case Api.FIND_COORDINATOR:
                found(sent, node, code)
            case Api.OFFSET_COMMIT:
                committed(sent, code)
            case Api.CREATE_TOPICS:
                sent.reply(topics=[{"name": "a", "error_code": code}])
            case _:
                sent.reply(**view())

    @precondition(lambda self: self.calling.world.in_flight)
    @rule(data=st.data(), written=st.booleans())
    def fail(self, data: st.DataObject, written: bool) -> None:
        sent = data.draw(st.sampled_from(self.calling.world.in_flight))
        (sent.is_lost if written else sent.is_not_sent)()

    @invariant()
    def each_ends_at_most_once(self) -> None:
        assert all(count <= 1 for count in self.outcomes.values())

    def teardown(self) -> None:
        self.calling.calls.close(ClientClosed("closed"))
        assert all(count == 1 for count in self.outcomes.values())


TestCalls = CallRules.TestCase
TestCalls.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
