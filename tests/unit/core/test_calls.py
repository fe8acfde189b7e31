"""Calls: where they go, when again, and how they end; alone, and through any sequence of events (C25).

Each ends once and in time, none spins, none waits for a request that was not sent. What the answers mean is in
test_group_offsets.py and test_admin_calls.py.
"""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.admin.topics import create_topics_call, metadata_call
from pyclient.core.calls import Again, Call, Calls, Coordinator, Done, KeyType, find_coordinator
from pyclient.core.group.offsets import commit_call
from pyclient.core.manager import Request, Use
from pyclient.descriptions.topics import NewTopic
from pyclient.errors import (
    ClientClosedError, GroupAuthorizationError, KafkaError, KafkaTimeoutError, ProtocolError, TopicExistsError, UnknownMemberIdError,
    UnknownServerError, UnsupportedVersionError, error_for,
)
from pyclient.records import OffsetAndMetadata, TopicPartition
from tests.unit.core.world import DOUBLING, Sent, World, answer, make_metadata, read_request, topic, view

A0 = TopicPartition("a", 0)
NOT_CONTROLLER, NOT_COORDINATOR, LOADING, COORDINATOR_GONE, GROUP_AUTHORIZATION, UNKNOWN_MEMBER, TOPIC_EXISTS = 41, 16, 14, 15, 30, 25, 36
VERSIONS = range(SPOKEN[Api.FIND_COORDINATOR].low, SPOKEN[Api.FIND_COORDINATOR].high + 1)


class Calling:
    """Calls and metadata in their world, and how the calls ended."""

    def __init__(self) -> None:
        self.world = World()
        self.metadata = make_metadata()
        self.calls = Calls(self.metadata, request_timeout=30.0, backoff=DOUBLING)
        self.ended: list[tuple[Any, Any]] = []

    def knows(self, *nodes: int, controller: int = 1) -> None:
        response = answer(Api.METADATA, 13, **view(nodes=nodes or (1, 2, 3), controller=controller))
        self.metadata.hint(self.metadata.cluster.updated(response))

    def finish(self, result: Any, error: BaseException | None) -> None:
        self.ended.append((result, error))

    def commits(self, group: str = "g", timeout: float | None = None) -> Call:
        return self._submit(commit_call(group, {A0: OffsetAndMetadata(1)}, self.finish, self._deadline(timeout)))

    def describes(self, timeout: float | None = None) -> Call:
        return self._submit(metadata_call(["a"], finish=self.finish, deadline=self._deadline(timeout)))

    def creates(self) -> Call:
        return self._submit(create_topics_call([NewTopic("t")], validate_only=False, timeout=1.0, finish=self.finish, deadline=None))

    def _submit(self, call: Call) -> Call:
        self.calls.submit(call)
        return call

    def _deadline(self, timeout: float | None) -> float | None:
        return None if timeout is None else self.world.now + timeout

    def turn(self) -> list[Sent]:
        return self.world.turn(self.calls)

    def after(self, seconds: float) -> list[Sent]:
        self.world.after(seconds)
        return self.turn()


@pytest.fixture
def calling() -> Calling:
    calling = Calling()
    calling.knows()
    return calling


def only(sent: list[Sent]) -> Sent:
    (one,) = sent
    return one


def found(sent: Sent, node: int = 2, code: int = 0) -> None:
    response = {"node_id": node, "host": f"broker-{node}", "port": 9092, "error_code": code, "error_message": None}
    sent.reply(coordinators=[{"key": "g", **response}], **response)


def committed(sent: Sent, code: int = 0) -> None:
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "error_code": code}]}])


# --- where they go ---------------------------------------------------------------------------------------------------


def test_M04_a_call_for_any_node_goes_to_the_one_with_least_to_do(calling: Calling) -> None:
    for _ in range(6):
        calling.describes()
    sent = calling.turn()
    assert sorted(each.node for each in sent) == [1, 1, 2, 2, 3, 3]
    for each in sent:
        each.reply(**view(topic("a", 1)))
    assert [result.topics["a"].available for result, _ in calling.ended] == [(0,)] * 6


def test_a_look_up_that_gets_no_answer_is_sent_to_another_node_after_a_fraction_of_the_timeout(calling: Calling) -> None:
    calling.commits()
    timeouts = []
    for pause in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        sent = only(calling.turn())
        assert sent.api is Api.FIND_COORDINATOR
        timeouts.append(sent.request.silence_timeout_s)
        sent.is_lost()
        calling.world.after(pause)
    assert timeouts == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0], "a slow answer must arrive at last"
    found(sent := only(calling.turn()), code=LOADING)
    assert sent.request.silence_timeout_s == 30.0
    assert only(calling.after(64.0)).request.silence_timeout_s == 2.0, "some broker answers again"


def test_what_only_one_node_can_answer_is_not_given_up_before_its_timeout(calling: Calling) -> None:
    calling.creates()
    assert only(calling.turn()).request.silence_timeout_s is None


@pytest.mark.parametrize("ready", [True, False], ids=["it does not answer", "it cannot be reached"])
def test_G04_a_coordinator_that_is_silent_is_looked_up_while_the_call_waits_for_it(calling: Calling, *, ready: bool) -> None:
    if not ready:
        calling.world.nodes.discard(2)
    calling.commits()
    found(only(calling.turn()), 2)
    sent = calling.turn()
    assert len(sent) == ready
    assert calling.after(1.9) == []
    assert calling.calls.next_deadline() == pytest.approx(calling.world.now + 0.1)
    look_up = only(calling.after(0.1))
    assert look_up.api is Api.FIND_COORDINATOR
    found(look_up, 2)
    assert calling.after(1.9) == [], "the same one: it is asked for again after another while"
    found(only(calling.after(0.1)), 3)
    elsewhere = only(calling.turn() or calling.after(1.0))
    assert (elsewhere.api, elsewhere.node) == (Api.OFFSET_COMMIT, 3)
    assert calling.world.in_flight == [elsewhere], "nothing waits for the former one any more"
    committed(elsewhere)
    assert calling.ended == [(None, None)]


def test_G04_an_answer_to_one_call_shows_that_the_coordinator_is_alive(calling: Calling) -> None:
    calling.commits()
    found(only(calling.turn()), 2)
    slow = only(calling.turn())
    calling.commits()
    quick = only(calling.after(1.5))
    committed(quick)
    assert calling.after(1.9) == []
    assert only(calling.after(0.1)).api is Api.FIND_COORDINATOR
    assert slow in calling.world.in_flight


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
    calling.creates()
    sent = calling.world.turn(calling.metadata, calling.calls)
    assert [each.api for each in sent] == [Api.METADATA]
    sent[0].reply(**view(controller=2))
    assert [(each.api, each.node) for each in calling.turn()] == [(Api.CREATE_TOPICS, 2)]


def test_a_call_for_the_controller_follows_it(calling: Calling) -> None:
    calling.creates()
    (sent,) = calling.turn()
    assert sent.node == 1
    sent.reply(topics=[{"name": "t", "error_code": NOT_CONTROLLER}])
    calling.knows(controller=3)
    (sent,) = calling.after(1.0)
    assert sent.node == 3
    sent.reply(topics=[{"name": "t", "error_code": TOPIC_EXISTS}])
    ((result, _),) = calling.ended
    assert isinstance(result["t"], TopicExistsError)


def test_a_commit_finds_its_coordinator_in_the_turn_it_is_asked_for_and_goes_there(calling: Calling) -> None:
    calling.commits()
    (find,) = calling.turn()
    assert find.api is Api.FIND_COORDINATOR
    found(find, 2)
    (commit,) = calling.turn()
    assert (commit.api, commit.node, commit.request.use) == (Api.OFFSET_COMMIT, 2, Use.COORDINATION)
    committed(commit)
    assert calling.ended == [(None, None)]
    calling.commits()
    (commit,) = calling.turn()
    assert commit.api is Api.OFFSET_COMMIT, "the coordinator is known by now"


def test_two_groups_have_two_coordinators(calling: Calling) -> None:
    calling.commits("g")
    calling.commits("h")
    first, second = calling.turn()
    found(first, 2)
    found(second, 3)
    assert [(each.body.group_id, each.node) for each in calling.turn()] == [("g", 2), ("h", 3)]


def test_one_look_up_serves_every_call_of_the_group(calling: Calling) -> None:
    for _ in range(4):
        calling.commits()
    (search,) = calling.turn()
    found(search)
    assert len(calling.turn()) == 4


# --- finding a coordinator -------------------------------------------------------------------------------------------


def classified(version: int, **response: object) -> Any:
    fields = {"node_id": 4, "host": "broker-4", "port": 9092, **response}
    message = answer(Api.FIND_COORDINATOR, version, coordinators=[{"key": "g", **fields}], **fields)
    return find_coordinator(Coordinator("g"), lambda target, node, error: None).classify(message)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_coordinator_is_asked_for_by_group_in_every_version(version: int) -> None:
    call = find_coordinator(Coordinator("g"), lambda target, node, error: None)
    body = read_request(Request(node=1, use=Use.CONTROL, api=call.api, fields=call.fields, timeout=1.0,
                                done=lambda now, outcome: None), version)
    assert (list(body.coordinator_keys) if version >= 4 else [body.key]) == ["g"]
    assert getattr(body, "key_type", 0) == 0


def test_a_transactions_coordinator_is_asked_for_by_its_transactional_id() -> None:
    call = find_coordinator(Coordinator("g", KeyType.TRANSACTION), lambda target, node, error: None)
    assert call.versions is not None
    assert call.versions.low == 1, "version 0 finds groups only"
    assert call.fields(4) == {"key_type": 1, "coordinator_keys": ("g",)}
    assert "transactional id 'g'" in call.what
    assert "not allowed to DESCRIBE transactional id 'g'" in str(call.classify(answer(Api.FIND_COORDINATOR, 6, coordinators=[
        {"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": 53, "error_message": None}])))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_of_every_version_names_it_or_says_why_not(version: int) -> None:
    assert classified(version) == Done(4)
    later = classified(version, error_code=COORDINATOR_GONE)
    assert isinstance(later, Again)
    assert type(later.error) is type(error_for(COORDINATOR_GONE))
    refused = classified(version, error_code=GROUP_AUTHORIZATION, error_message="not you")
    assert type(refused) is type(error_for(GROUP_AUTHORIZATION))
    if version >= 1:
        assert "not you" in str(refused)


def test_an_answer_that_leaves_the_group_out_is_asked_for_again() -> None:
    call = find_coordinator(Coordinator("g"), lambda target, node, error: None)
    verdict = call.classify(answer(Api.FIND_COORDINATOR, 6, coordinators=[]))
    assert isinstance(verdict, Again)
    assert isinstance(verdict.error, UnknownServerError)


@pytest.mark.parametrize("code", [NOT_COORDINATOR, COORDINATOR_GONE])
def test_C25_a_coordinator_that_moved_is_looked_up_again(calling: Calling, code: int) -> None:
    calling.commits()
    found(only(calling.turn()))
    committed(only(calling.turn()), code)
    assert calling.turn() == []
    (find,) = calling.after(1.0)
    found(find, 3)
    (commit,) = calling.turn()
    assert commit.node == 3


def test_C25_a_coordinator_that_loads_is_asked_again_after_a_pause(calling: Calling) -> None:
    calling.commits()
    found(only(calling.turn()))
    for pause in (1.0, 2.0, 4.0):
        committed(only(calling.turn() or calling.after(pause / 2)), LOADING)
        assert calling.after(pause * 0.9) == []
        calling.world.after(pause * 0.1)


def test_an_error_of_finding_the_coordinator_ends_every_call_that_waits_for_it(calling: Calling) -> None:
    calling.commits()
    calling.commits()
    (find,) = calling.turn()
    found(find, -1, GROUP_AUTHORIZATION)
    assert [type(error) for _, error in calling.ended] == [GroupAuthorizationError] * 2


def test_a_coordinator_that_is_not_in_the_cluster_is_not_looked_up_at_the_networks_speed(calling: Calling) -> None:
    calling.commits(timeout=60.0)
    finds = 0
    while not calling.ended:
        for sent in calling.turn():
            finds += 1
            found(sent, 9)
        calling.turn()
        calling.world.now = calling.calls.next_deadline() or calling.world.now
    assert finds < 80


def test_a_coordinator_is_not_looked_up_when_no_call_wants_it_any_more(calling: Calling) -> None:
    call = calling.commits()
    (find,) = calling.turn()
    found(find, -1, COORDINATOR_GONE)
    calling.calls.cancel(call)
    assert calling.after(100.0) == []
    assert calling.calls.next_deadline() is None
    calling.commits()
    assert [sent.api for sent in calling.after(100.0)] == [Api.FIND_COORDINATOR]


def test_a_look_up_ends_with_the_last_call_that_wants_it(calling: Calling) -> None:
    calling.commits(timeout=5.0)
    calling.commits(timeout=50.0)
    for pause in (1, 2, 4):
        (search,) = calling.turn()
        found(search, -1, COORDINATOR_GONE)
        calling.world.after(pause)
    (search,) = calling.turn()
    assert len(calling.ended) == 1
    found(search, -1, COORDINATOR_GONE)
    calling.world.after(50.0)
    assert calling.turn() == []
    assert [type(error) for _, error in calling.ended] == [KafkaTimeoutError] * 2
    assert calling.calls.next_deadline() is None


def test_a_look_up_that_is_answered_when_no_call_wants_it_ends_nothing(calling: Calling) -> None:
    calling.commits(timeout=5.0)
    (search,) = calling.turn()
    calling.world.after(5.0)
    calling.turn()
    found(search)
    calling.commits()
    assert [each.api for each in calling.turn()] == [Api.FIND_COORDINATOR]
    assert len(calling.ended) == 1


# --- again, and the end ----------------------------------------------------------------------------------------------


def test_an_unknown_outcome_is_tried_again_elsewhere(calling: Calling) -> None:
    calling.describes()
    (sent,) = calling.turn()
    sent.is_lost()
    assert calling.turn() == []
    (sent,) = calling.after(1.0)
    sent.reply(**view())
    assert calling.ended[0][1] is None


@pytest.mark.parametrize("lost", [True, False])
def test_what_is_to_be_tried_once_is_not_tried_again_and_the_next_one_goes_to_the_new_coordinator(calling: Calling, lost: bool) -> None:
    call = calling.commits()
    call.once = True
    found(only(calling.turn()))
    sent = only(calling.turn())
    if lost:
        sent.is_lost()
    else:
        refuse_commit(sent, NOT_COORDINATOR)
    assert calling.after(100.0) == []
    (_, error), = calling.ended
    assert isinstance(error, KafkaError)
    assert error.retriable
    calling.commits()
    assert only(calling.turn()).api is Api.FIND_COORDINATOR


def refuse_commit(sent: Sent, code: int) -> None:
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "error_code": code}]}])


@pytest.mark.parametrize(("code", "kind"), [(UNKNOWN_MEMBER, UnknownMemberIdError), (GROUP_AUTHORIZATION, GroupAuthorizationError)])
def test_C25_what_the_broker_refuses_for_good_is_raised(calling: Calling, code: int, kind: type[KafkaError]) -> None:
    calling.commits()
    found(only(calling.turn()))
    committed(only(calling.turn()), code)
    ((_, error),) = calling.ended
    assert isinstance(error, kind)


@pytest.mark.parametrize("cause", [UnsupportedVersionError("too old"), ProtocolError("nonsense"), KafkaError("cannot be encoded")])
def test_what_cannot_be_cured_ends_the_call_at_once(calling: Calling, cause: KafkaError) -> None:
    calling.describes()
    (sent,) = calling.turn()
    sent.is_not_sent(cause)
    assert calling.ended == [(None, cause)]


@pytest.mark.parametrize("raised", [ProtocolError("lacks group 'a'"), IndexError("tuple index out of range"), ValueError("9 is no state")])
def test_a_judge_that_raises_ends_the_call_and_the_same_is_not_asked_again(calling: Calling, raised: Exception) -> None:
    """Otherwise a broker with a strange answer is asked again at the network's speed."""
    def classify(message: Any) -> Any:
        raise raised

    calling.describes().classify = classify
    (sent,) = calling.turn()
    sent.reply(**view())
    ((_, error),) = calling.ended
    assert isinstance(error, ProtocolError)
    assert str(raised) in str(error)
    assert error is raised or error.__cause__ is raised
    assert calling.after(60.0) == []


@pytest.mark.parametrize(("nodes", "waited_for"), [(set(), "no broker was ready"), ({2}, "(node 2 has not answered)")])
def test_a_call_ends_at_its_deadline_and_says_what_it_waited_for(calling: Calling, nodes: set[int], waited_for: str) -> None:
    calling.world.nodes = nodes
    calling.describes(timeout=5.0)
    sent = calling.turn()
    assert calling.calls.next_deadline() == calling.world.now + 5.0
    calling.after(5.0)
    ((_, error),) = calling.ended
    assert isinstance(error, KafkaTimeoutError)
    assert "describing topics" in str(error)
    assert waited_for in str(error)
    for each in sent:
        each.reply(**view())
    assert len(calling.ended) == 1


def test_a_call_that_the_end_of_another_ended_is_not_sent(calling: Calling) -> None:

    def closes_all(result: Any, error: BaseException | None) -> None:
        calling.calls.close(ClientClosedError("closed"))

    calling.calls.submit(metadata_call(["a"], finish=closes_all, deadline=calling.world.now))
    calling.describes()
    assert calling.turn() == []
    assert [type(error) for _, error in calling.ended] == [ClientClosedError]


@pytest.mark.parametrize("answer_comes", [True, False])
@pytest.mark.parametrize("sent", [True, False])
def test_closing_ends_every_call_once_wherever_it_stands(calling: Calling, sent: bool, answer_comes: bool) -> None:
    calling.commits()
    calling.commits()
    calling.describes()
    in_flight = calling.turn() if sent else []
    closed = ClientClosedError("closed")
    calling.calls.close(closed)
    calling.calls.close(closed)
    for each in in_flight:
        if not answer_comes:
            each.is_lost()
        elif each.api is Api.FIND_COORDINATOR:
            found(each)
        else:
            each.reply(**view())
    assert calling.ended == [(None, closed)] * 3
    assert calling.turn() == []
    assert calling.calls.next_deadline() is None


# --- in any order of events ------------------------------------------------------------------------------------------


class CallRules(RuleBasedStateMachine):
    """The world checks after each turn that the next deadline lies ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.calling = Calling()
        self.calling.knows()
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
        self.calling.calls.close(ClientClosedError("closed"))
        assert all(count == 1 for count in self.outcomes.values())


TestCalls = CallRules.TestCase
TestCalls.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
