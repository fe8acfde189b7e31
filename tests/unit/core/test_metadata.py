"""When metadata is asked for, about what, and what is believed (M01, M02, M03, M06)."""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.cluster import Cluster
from pyclient.core.manager import Use
from pyclient.errors import DisconnectError, InvalidTopicError, error_for
from pyclient.records import Node, TopicPartition
from tests.unit.core.world import MAX_AGE, Sent, World, make_metadata, read_request, topic, topic_id, view

A0 = TopicPartition("a", 0)
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC, TOPIC_FORBIDDEN, REBOOTSTRAP = 3, 5, 17, 29, 129
NAME_OF = {topic_id(name): name for name in "abc"}


class Client:
    """A Metadata manager in its world, and the views it published."""

    def __init__(self, **options: Any) -> None:
        self.world = World()
        self.views: list[Cluster] = []
        self.metadata = make_metadata(on_update=self.views.append, **options)

    def want(self, *names: str) -> None:
        for name in names:
            self.metadata.want(name, self.world.now)

    def turn(self) -> list[Sent]:
        return self.world.turn(self.metadata)

    def asks(self) -> Sent:
        """The one request that comes now."""
        (sent,) = self.turn()
        assert (sent.api, sent.request.use) == (Api.METADATA, Use.CONTROL)
        return sent

    def learn(self, *topics: dict[str, object], **more: Any) -> None:
        """Want these topics, and get a response about them."""
        self.want(*(str(each["name"]) for each in topics))
        self.asks().reply(**view(*topics, **more))


def names(sent: Sent) -> list[str]:
    """What it asks about, be it by id."""
    return [each.name or NAME_OF[each.topic_id] for each in sent.body.topics]


@pytest.fixture
def client() -> Client:
    return Client()


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_M01_a_new_topic_is_asked_for_at_once_and_alone_while_the_rest_is_fresh(client: Client) -> None:
    client.learn(topic("a", 1))
    client.want("b")
    second = client.asks()
    assert names(second) == ["b"]
    second.reply(**view(topic("b", 2)))
    assert set(client.metadata.cluster.topics) == {"a", "b"}
    assert client.turn() == []


def test_M01_a_topic_that_is_known_is_not_asked_for_again_because_it_is_used(client: Client) -> None:
    client.learn(topic("a", 1))
    client.want("a")
    assert client.turn() == []


def test_M01_a_topic_added_while_a_request_is_under_way_gets_another_request_at_once(client: Client) -> None:
    client.want("a")
    first = client.asks()
    client.want("b")
    assert client.turn() == []
    first.reply(**view(topic("a", 1)))
    assert names(client.asks()) == ["b"]


def test_M01_a_new_topic_does_not_wait_for_the_back_off_of_another(client: Client) -> None:
    client.learn(topic("missing", error=UNKNOWN_TOPIC))
    assert client.turn() == []
    client.want("b")
    assert "b" in names(client.asks())


def test_M01_an_update_that_was_asked_for_is_about_every_topic(client: Client) -> None:
    client.learn(topic("a", 1), topic("b", 2))
    client.metadata.request_update()
    client.world.after(2.0)
    assert names(client.asks()) == ["a", "b"]


def test_M01_everything_is_asked_for_again_at_its_age(client: Client) -> None:
    client.learn(topic("a", 1))
    assert client.metadata.next_deadline() == client.world.now + MAX_AGE
    client.world.after(MAX_AGE)
    assert names(client.asks()) == ["a"]


def test_M01_a_partial_answer_does_not_make_the_rest_younger(client: Client) -> None:
    client.learn(topic("a", 1))
    due = client.metadata.next_deadline()
    client.world.after(10.0)
    client.learn(topic("b", 1))
    assert client.metadata.next_deadline() == due


def test_M01_a_topic_unused_for_too_long_is_no_longer_asked_for() -> None:
    client = Client(max_idle=MAX_AGE * 1.5)
    client.learn(topic("a", 1), topic("b", 1))
    client.world.after(MAX_AGE)
    client.want("b")
    again = client.asks()
    assert names(again) == ["a", "b"]
    again.reply(**view(topic("a", 1), topic("b", 1)))
    client.world.after(MAX_AGE)
    last = client.asks()
    assert names(last) == ["b"]
    last.reply(**view(topic("b", 1)))
    assert set(client.metadata.cluster.topics) == {"b"}


def test_M01_a_topic_that_was_dropped_is_new_when_it_is_used_again() -> None:
    client = Client(max_idle=1.0)
    client.learn(topic("a", 1))
    client.world.after(MAX_AGE)
    client.asks().reply(**view())
    client.want("a")
    assert names(client.asks()) == ["a"]


def test_M02_an_answer_takes_no_topic_away_that_it_was_not_asked_for(client: Client) -> None:
    """One that is given up and taken up again while the others are asked for is known all the time."""
    client.metadata.pin(["a", "b"])
    client.asks().reply(**view(topic("a", 1), topic("b", 1)))
    client.metadata.pin(["b"])
    client.metadata.request_update()
    client.world.after(MAX_AGE)
    without = client.asks()
    client.metadata.pin(["a", "b"])
    assert names(without) == ["b"]
    without.reply(**view(topic("b", 1)))
    assert set(client.metadata.cluster.topics) == {"a", "b"}
    assert names(client.asks()) == ["a"]


def test_pinned_topics_stay_however_long_they_are_not_used() -> None:
    client = Client(max_idle=1.0)
    client.metadata.pin(["a"])
    client.asks().reply(**view(topic("a", 1)))
    client.world.after(MAX_AGE)
    assert names(client.asks()) == ["a"]


def test_pinning_others_forgets_those_pinned_before_but_not_those_in_use(client: Client) -> None:
    client.metadata.pin(["a", "b"])
    client.want("used")
    client.asks().reply(**view(topic("a", 1), topic("b", 1), topic("used", 1)))
    client.metadata.pin(["b", "c"])
    fresh = client.asks()
    assert names(fresh) == ["c"]
    fresh.reply(**view(topic("c", 1)))
    client.metadata.request_update()
    client.world.after(MAX_AGE)
    assert names(client.asks()) == ["b", "c", "used"]


def test_a_pinned_topic_that_is_also_used_stays_pinned() -> None:
    client = Client(max_idle=1.0)
    client.metadata.pin(["a"])
    client.want("a")
    client.asks().reply(**view(topic("a", 1)))
    client.world.after(MAX_AGE)
    assert names(client.asks()) == ["a"]


@pytest.mark.parametrize("name", [None, b"a", 5, "", "\ud800", "x" * 250, "é" * 125])
def test_a_name_that_no_request_can_carry_is_refused_and_harms_no_other_topic(client: Client, name: Any) -> None:
    client.want("a")
    with pytest.raises((TypeError, InvalidTopicError), match="topic"):
        client.want(name)
    with pytest.raises((TypeError, InvalidTopicError), match="topic"):
        client.metadata.pin(["b", name])
    assert names(client.asks()) == ["a"]


def test_without_topics_the_brokers_are_asked_for_and_no_topic(client: Client) -> None:
    asked = client.asks()
    assert asked.body.topics == ()
    asked.reply(**view())
    assert set(client.metadata.cluster.nodes) == {1, 2, 3}


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("version", range(SPOKEN[Api.METADATA].low, SPOKEN[Api.METADATA].high + 1))
def test_the_request_says_the_same_in_every_version(version: int, create: bool) -> None:
    client = Client(create_topics=create)
    client.want("a", "b")
    body = read_request(client.asks().request, version)
    assert [each.name for each in body.topics] == ["a", "b"]
    assert getattr(body, "allow_auto_topic_creation", create) is create  # versions before 4 create always
    assert not getattr(body, "include_topic_authorized_operations", False)


@pytest.mark.parametrize("version", range(SPOKEN[Api.METADATA].low, SPOKEN[Api.METADATA].high + 1))
def test_an_answer_of_any_version_is_understood(version: int, client: Client) -> None:
    client.world.versions[Api.METADATA] = version
    client.learn(topic("a", 1, -1, epoch=4))
    cluster = client.metadata.cluster
    assert (cluster.leader(A0), cluster.leader(TopicPartition("a", 1)), cluster.controller) == (1, None, 1)
    assert cluster.nodes[2] == Node(2, "broker-2", 9092)


# --- when ------------------------------------------------------------------------------------------------------------


def test_one_request_is_under_way_at_a_time(client: Client) -> None:
    client.want("a")
    client.asks()
    client.metadata.request_update()
    client.world.after(1000.0)
    assert client.turn() == []
    assert client.metadata.next_deadline() is None


def test_while_no_node_is_ready_only_an_event_can_change_anything(client: Client) -> None:
    client.world.nodes.clear()
    client.want("a")
    assert client.turn() == []
    assert client.metadata.next_deadline() is None
    client.world.nodes.add(1)
    assert names(client.asks()) == ["a"]


@pytest.mark.parametrize("failure", ["lost", "not sent", "no brokers"])
def test_M01_after_each_failure_the_next_request_waits_twice_as_long(client: Client, failure: str) -> None:
    client.want("a")
    for wait in (1, 2, 4, 8):
        fail(client.asks(), failure)
        assert client.turn() == []
        assert client.metadata.next_deadline() == client.world.now + wait
        client.world.after(wait)
    assert names(client.asks()) == ["a"]


def test_M04_a_request_waits_for_an_answer_twice_as_long_after_each_that_got_none(client: Client) -> None:
    client.want("a")
    timeouts = []
    for _ in range(6):
        sent = client.asks()
        timeouts.append(sent.request.silence_timeout_s)
        sent.is_lost()
        client.world.after(60)
    assert timeouts == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0], "an answer that takes longer must come at last"
    client.asks().reply(**view(topic("a", 1)))
    client.want("b")
    sent = client.asks()
    assert sent.request.silence_timeout_s == 2.0
    sent.is_not_sent()
    client.world.after(60)
    assert client.asks().request.silence_timeout_s == 2.0, "it was not sent: no broker was silent"


def fail(sent: Sent, how: str) -> None:
    match how:
        case "lost":
            sent.is_lost()
        case "not sent":
            sent.is_not_sent()
        case _:
            sent.reply(**view(nodes=()))


def test_M01_answers_without_news_make_the_next_request_wait_longer(client: Client) -> None:
    client.learn(topic("a", 1))
    for wait in (1, 2, 4, 8):
        client.metadata.request_update()
        assert client.metadata.next_deadline() == client.world.now + max(1, wait // 2)
        client.world.after(max(1, wait // 2))
        client.asks().reply(**view(topic("a", 1)))
    client.metadata.request_update()
    client.world.after(8)
    client.asks().reply(**view(topic("a", 2, epoch=1)))
    client.metadata.request_update()
    assert client.metadata.next_deadline() == client.world.now + 1


@pytest.mark.parametrize("answered", [topic("a", error=UNKNOWN_TOPIC), topic("a", error=LEADER_NOT_AVAILABLE), topic("a", 1, -1)])
def test_M01_a_topic_that_cannot_be_used_yet_is_asked_for_again_after_the_back_off(client: Client, answered: Any) -> None:
    client.learn(answered)
    assert client.turn() == []
    assert client.metadata.next_deadline() == client.world.now + 1
    client.world.after(1)
    client.asks().reply(**view(answered))
    assert client.metadata.next_deadline() == client.world.now + 2


def test_M01_an_update_asked_for_while_a_request_is_under_way_is_not_answered_by_it(client: Client) -> None:
    client.learn(topic("a", 1))
    client.metadata.request_update()
    client.world.after(1)
    in_flight = client.asks()
    client.metadata.request_update()  # what it is for may have happened after the broker wrote its answer
    in_flight.reply(**view(topic("a", 2, epoch=1)))
    client.world.after(1)
    client.asks().reply(**view(topic("a", 3, epoch=2)))
    assert client.metadata.cluster.leader(A0) == 3


def test_a_topic_that_an_answer_leaves_out_is_asked_for_again(client: Client) -> None:
    client.want("a")
    client.asks().reply(**view())
    client.world.after(1)
    assert names(client.asks()) == ["a"]


# --- what is believed ------------------------------------------------------------------------------------------------


def test_M02_an_older_answer_keeps_the_known_epoch(client: Client) -> None:
    client.learn(topic("a", 1, epoch=5))
    client.metadata.request_update()
    client.world.after(1)
    client.asks().reply(**view(topic("a", 2, epoch=4)))
    assert client.metadata.cluster.leader(A0) == 1


def test_M02_every_view_is_new_and_none_changes(client: Client) -> None:
    client.learn(topic("a", 1))
    first = client.metadata.cluster
    client.metadata.request_update()
    client.world.after(1)
    client.asks().reply(**view(topic("a", 2, epoch=1)))
    assert first.leader(A0) == 1
    assert [each.version for each in client.views] == [1, 2]
    assert client.views[-1] is client.metadata.cluster


@pytest.mark.parametrize("code", [INVALID_TOPIC, TOPIC_FORBIDDEN])
def test_M03_a_forbidden_or_invalid_topic_is_an_error_of_that_topic_and_stops_no_other(client: Client, code: int) -> None:
    client.learn(topic("a", 1), topic("bad", error=code))
    assert client.metadata.cluster.topics["bad"].error == code
    assert client.metadata.usable("bad") is None
    assert client.metadata.usable("a") is not None
    assert client.turn() == []
    assert client.metadata.next_deadline() == client.world.now + MAX_AGE  # waiting cannot cure it: no faster
    client.want("b")
    assert names(client.asks()) == ["b"]


def test_M03_the_error_is_gone_when_a_later_answer_does_not_have_it(client: Client) -> None:
    client.learn(topic("a", error=TOPIC_FORBIDDEN))
    client.metadata.request_update()
    client.world.after(1)
    client.asks().reply(**view(topic("a", 1)))
    assert client.metadata.usable("a") is not None
    assert client.metadata.cluster.topics["a"].error == 0


def test_the_cause_of_a_failure_is_kept_until_an_answer_comes(client: Client) -> None:
    cause = DisconnectError("cut")
    client.asks().is_lost(cause)
    assert client.metadata.last_error is cause
    client.world.after(1)
    client.asks().reply(**view())
    assert client.metadata.last_error is None


def test_C12_a_hint_of_a_newer_leader_is_published_and_the_same_view_is_not(client: Client) -> None:
    client.learn(topic("a", 1, epoch=5))
    client.metadata.hint(client.metadata.cluster)
    assert len(client.views) == 1
    client.metadata.hint(client.metadata.cluster.moved(A0, 2, 6))
    assert client.views[-1].leader(A0) == 2


def test_C12_an_answer_that_was_under_way_does_not_undo_a_newer_hint(client: Client) -> None:
    client.learn(topic("a", 1, epoch=5))
    client.metadata.request_update()
    client.world.after(1)
    late = client.asks()
    client.metadata.hint(client.metadata.cluster.moved(A0, 2, 6))
    late.reply(**view(topic("a", 1, epoch=5)))
    assert client.metadata.cluster.leader(A0) == 2


# --- starting over ---------------------------------------------------------------------------------------------------


def test_M06_when_no_broker_answered_for_too_long_the_bootstrap_addresses_are_asked() -> None:
    client = Client(rebootstrap_after=60.0)
    client.learn(topic("a", 1))
    client.world.nodes.clear()
    client.metadata.request_update()
    client.world.after(1)
    began = client.world.now
    client.turn()
    assert client.metadata.next_deadline() == began + 60
    client.world.after(59.9)
    client.turn()
    assert client.metadata.cluster.nodes
    client.world.after(0.1)
    client.turn()
    assert not client.metadata.cluster.nodes
    assert client.views[-1] is client.metadata.cluster
    assert client.metadata.next_deadline() is None
    client.world.nodes.add(-2)
    client.asks().reply(**view(topic("a", 7), nodes=(7,), controller=7))
    assert client.metadata.cluster.leader(A0) == 7


def test_M06_topics_and_epochs_outlive_starting_over() -> None:
    client = Client(rebootstrap_after=60.0)
    client.learn(topic("a", 1, epoch=9))
    client.metadata.request_update()
    for _ in range(7):
        client.world.after(16)
        for sent in client.turn():
            sent.is_lost()
    assert not client.metadata.cluster.nodes
    assert client.metadata.cluster.topics["a"].partitions[0].epoch == 9
    assert client.metadata.cluster.leader(A0) is None


def test_M06_an_answer_in_time_starts_the_clock_again() -> None:
    client = Client(rebootstrap_after=60.0)
    client.learn(topic("a", 1))
    for _ in range(5):
        client.metadata.request_update()
        client.world.after(30)
        client.asks().reply(**view(topic("a", 1)))
    assert client.metadata.cluster.nodes


def test_M06_a_quiet_client_is_not_overdue() -> None:
    client = Client(rebootstrap_after=60.0)
    client.learn(topic("a", 1))
    client.world.after(200)
    client.turn()
    assert client.metadata.cluster.nodes


def test_M06_without_the_strategy_the_known_addresses_are_kept_permanently(client: Client) -> None:
    client.learn(topic("a", 1))
    client.world.nodes.clear()
    client.metadata.request_update()
    for _ in range(10):
        client.world.after(1000)
        client.turn()
    assert client.metadata.cluster.nodes


def test_M06_a_broker_may_ask_for_it(client: Client) -> None:
    client.learn(topic("a", 1))
    client.metadata.request_update()
    client.world.after(1)
    client.asks().reply(**view(nodes=()), error_code=REBOOTSTRAP)
    assert not client.metadata.cluster.nodes
    client.world.after(1)
    assert names(client.asks()) == ["a"]


def test_M06_brokers_that_ask_for_it_again_and_again_are_asked_ever_more_slowly(client: Client) -> None:
    for wait in (1, 2, 4):
        client.asks().reply(**view(nodes=()), error_code=REBOOTSTRAP)
        assert client.turn() == []
        assert client.metadata.next_deadline() == client.world.now + wait
        client.world.after(wait)


# --- under any events ------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
ANSWERS = st.sampled_from(["fine", "leaderless", "unknown", "forbidden", "left out"])


class AnyEvents(RuleBasedStateMachine):
    """Whatever happens in whatever order: no spinning (`World.turn` checks), and what is wanted becomes known in the
    end."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Client(max_idle=500.0, rebootstrap_after=100.0)
        self.epochs: dict[str, int] = {}
        self.pinned: set[str] = set()
        self.identified: set[str] = set()

    @rule(name=NAMES)
    def want(self, name: str) -> None:
        self.client.want(name)

    @rule(pinned=st.sets(NAMES))
    def pin(self, pinned: set[str]) -> None:
        self.client.metadata.pin(pinned)
        self.pinned = pinned

    @rule(wanted=st.sets(NAMES))
    def identify(self, wanted: set[str]) -> None:
        self.client.metadata.identify(topic_id(name) for name in wanted)
        self.identified = wanted

    @rule()
    def request_update(self) -> None:
        self.client.metadata.request_update()

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 10.0, 100.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.client.world.after(seconds)

    @rule(nodes=st.sets(st.sampled_from([1, 2, -2])))
    def nodes_become_ready_or_not(self, nodes: set[int]) -> None:
        self.client.world.nodes = nodes

    @precondition(lambda self: self.client.world.in_flight)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        sent = self.client.world.in_flight[0]
        sent.reply(**view(*(each for name in names(sent) for each in self.answers(name, data.draw(ANSWERS)))))

    def answers(self, name: str, how: str) -> list[dict[str, object]]:
        self.epochs[name] = self.epochs.get(name, 0) + 1
        match how:
            case "fine":
                return [topic(name, 1, epoch=self.epochs[name])]
            case "leaderless":
                return [topic(name, -1, epoch=self.epochs[name])]
            case "left out":
                return []
            case _:
                return [topic(name, error=UNKNOWN_TOPIC if how == "unknown" else TOPIC_FORBIDDEN)]

    @precondition(lambda self: self.client.world.in_flight)
    @rule(how=st.sampled_from(["lost", "not sent", "no brokers", "rebootstrap"]))
    def fail(self, how: str) -> None:
        sent = self.client.world.in_flight[0]
        if how == "rebootstrap":
            sent.reply(**view(nodes=()), error_code=REBOOTSTRAP)
        else:
            fail(sent, how)

    @invariant()
    def it_rests(self) -> None:
        self.client.turn()
        assert len(self.client.world.in_flight) <= 1

    def teardown(self) -> None:
        """Once nothing fails any more, every pinned topic and every id that is wanted is known in a few rounds."""
        client = self.client
        client.world.nodes = {1}
        for _ in range(10):
            for sent in [*client.turn(), *client.world.in_flight]:
                if sent in client.world.in_flight:
                    sent.reply(**view(*(topic(name, 1, epoch=100) for name in names(sent))))
            if all(client.metadata.usable(name) for name in self.pinned) and client.metadata.cluster.names.keys() >= set(map(topic_id, self.identified)):
                return
            client.world.after(64)
        raise AssertionError(f"{self.pinned | self.identified} never became known: {client.metadata.cluster.topics}")


TestAnyEvents = AnyEvents.TestCase
TestAnyEvents.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


def test_an_error_that_waiting_may_cure_is_recognized_by_its_code() -> None:
    assert error_for(UNKNOWN_TOPIC).retriable
    assert not error_for(TOPIC_FORBIDDEN).retriable
