"""A member of a group of the next generation: one test for each rule of how it joins, beats, reconciles and leaves (N01 to N10); `test_membership` has those of both protocols."""
from __future__ import annotations

from types import NoneType
from typing import Any
from uuid import UUID, uuid5

import pytest

from pyclient.codec.apis import Api
from pyclient.core.group.changes import ChangeKind
from pyclient.core.group.consumer_member import CONSUMER, State
from pyclient.core.group.coordinator import Identity
from pyclient.core.manager import Use
from pyclient.core.transitions import TABLES
from pyclient.errors import (
    FencedInstanceIdError, FencedMemberEpochError, GroupAuthorizationError, GroupIdNotFoundError, GroupMaxSizeReachedError,
    InvalidGroupIdError, InvalidRegularExpressionError, InvalidRequestError, KafkaError, StaleMemberEpochError,
    TopicAuthorizationError, UnknownServerError, UnreleasedInstanceIdError, UnsupportedAssignorError, UnsupportedVersionError,
)
from tests.unit.core.consumer_groups import BEAT, INTERVAL, Consumer, owned, places, said
from tests.unit.core.groups import HEARTBEAT, REBALANCE, SESSION, parts
from tests.unit.core.world import Sent, answer, topic, topic_id, view

ASSIGNED, REVOKED, LOST = ChangeKind.ASSIGNED, ChangeKind.REVOKED, ChangeKind.LOST
LOADING, NOT_COORDINATOR, TOPIC_AUTHORIZATION, GROUP_ID_NOT_FOUND, UNKNOWN_SERVER = 14, 16, 29, 69, -1
UNKNOWN_MEMBER, FENCED_INSTANCE, FENCED_EPOCH, UNRELEASED, UNSUPPORTED, BAD_PATTERN = 25, 82, 110, 111, 35, 128
LASTING = {
    42: InvalidRequestError, 24: InvalidGroupIdError, UNSUPPORTED: UnsupportedVersionError,
    81: GroupMaxSizeReachedError, FENCED_INSTANCE: FencedInstanceIdError, UNRELEASED: UnreleasedInstanceIdError,
    112: UnsupportedAssignorError, BAD_PATTERN: InvalidRegularExpressionError}


EVERYTHING = {"subscribed_topic_names", "subscribed_topic_regex", "topic_partitions", "rebalance_timeout"}


# --- who it is -------------------------------------------------------------------------------------------------------


def test_N01_the_member_makes_its_id_once_of_the_given_chance_and_keeps_it_whatever_happens() -> None:
    member = Consumer(seed=1)
    known_as = member.group.identity.member_id
    assert UUID(known_as).version == 4
    assert Consumer(seed=1).group.identity.member_id == known_as
    assert Consumer(seed=2).group.identity.member_id != known_as
    member.stable(*parts(0))
    member.refused(member.beats(INTERVAL), UNKNOWN_MEMBER)
    member.takes(LOST, *parts(0))
    assert member.beats().body.member_id == known_as
    member.group.leave("closed", nobody, None)
    assert member.beats().body.member_id == known_as
    member.subscribes()
    member.polls()
    assert member.beats().body.member_id == known_as


def nobody(result: object, error: BaseException | None) -> None:
    """Nobody waits."""


def test_N02_the_states_stand_in_a_table_of_their_own() -> None:
    assert TABLES["consumer member"] is CONSUMER


def at(state: State, instance: str | None = None) -> Consumer:
    """A member in this state; where it can have something it has partition 0, and reads 1 with its next step."""
    member = Consumer(instance=instance)
    if state is State.OUT:
        return member
    join = member.joins()
    if state in (State.JOINING, State.FAILED):
        if state is State.FAILED:
            member.refused(join, BAD_PATTERN)
        return member
    member.told_to_have(join, *parts(0))
    member.turn()
    member.takes(ASSIGNED, *parts(0))
    if state is not State.ACKNOWLEDGING:
        member.heard(member.beats(), epoch=1)
    if state in (State.RECONCILING, State.LISTENER_FAILED):
        member.told_to_have(member.beats(INTERVAL), *parts(0, 1))
        member.turn()
        if state is State.LISTENER_FAILED:
            member.takes(ASSIGNED, *parts(1), error=ValueError("the listener's"))
    elif state is State.LOSING:
        member.refused(member.beats(INTERVAL), FENCED_EPOCH)
    assert member.group.state is state
    return member


@pytest.mark.parametrize("state", State)
def test_N02_a_member_can_leave_in_every_state(state: State) -> None:
    member = at(state)
    member.group.leave("closed", nobody, None)
    assert (member.group.state, member.group.owned, member.group.change) == (State.OUT, {}, None)
    assert [each.body.member_epoch for each in member.turn()] == ([] if state in (State.OUT, State.FAILED) else [-1])
    member.joins()


@pytest.mark.parametrize("code", [FENCED_EPOCH, BAD_PATTERN])
@pytest.mark.parametrize("state", [State.RECONCILING, State.LISTENER_FAILED, State.ACKNOWLEDGING, State.STABLE])
def test_N02_a_member_can_be_lost_or_refused_in_every_state_in_which_it_is_one(state: State, code: int) -> None:
    member = at(state)
    (sent,) = member.turn() or [member.beats(INTERVAL)]
    member.refused(sent, code)
    assert member.group.state is (State.LOSING if code == FENCED_EPOCH else State.FAILED)
    member.takes(LOST, *parts(0))


# --- joining ---------------------------------------------------------------------------------------------------------


def test_N03_who_joins_says_everything() -> None:
    member = Consumer(instance="i-1", rack="r-1", remote_assignor="uniform")
    join = member.joins()
    body = join.body
    assert (body.group_id, body.member_epoch, body.instance_id, body.rack_id, body.server_assignor) == ("g", 0, "i-1", "r-1", "uniform")
    assert (body.subscribed_topic_names, body.subscribed_topic_regex, owned(join)) == (("t",), "", set())
    assert body.rebalance_timeout.total_seconds() == REBALANCE
    assert join.request.use is Use.COORDINATION


def test_a_member_takes_over_what_it_is_told_and_says_so_at_once() -> None:
    member = Consumer()
    member.told_to_have(member.joins(), *parts(1, 3), epoch=7)
    assert member.group.state is State.STABLE
    member.sends_nothing()
    assert member.group.state is State.RECONCILING
    assert member.news == 1
    assert not member.group.owned
    member.takes(ASSIGNED, *parts(1, 3))
    assert member.group.state is State.ACKNOWLEDGING
    assert set(member.group.owned) == set(parts(1, 3))
    acknowledgement = member.beats()
    assert (acknowledgement.body.member_epoch, owned(acknowledgement)) == (7, places(*parts(1, 3)))
    assert said(acknowledgement) == {"topic_partitions"}
    member.heard(acknowledgement, epoch=7)
    assert member.group.state is State.STABLE
    assert member.group.identity == Identity(7, member.group.identity.member_id)
    member.sends_nothing()


def test_an_empty_assignment_is_told_to_the_listener_once() -> None:
    member = Consumer()
    member.told_to_have(member.joins())
    member.turn()
    member.takes(ASSIGNED)
    member.told_to_have(member.beats())
    member.sends_nothing()
    assert member.group.change is None


def test_N04_while_an_answer_is_awaited_nothing_more_is_sent() -> None:
    member = Consumer()
    member.joins()
    member.world.after(2 * INTERVAL)
    member.sends_nothing()


def test_N04_what_was_taken_over_during_a_heartbeat_is_said_as_soon_as_that_is_answered() -> None:
    member = Consumer()
    member.told_to_have(member.joins(), *parts(0))
    member.turn()
    beat = member.beats(INTERVAL)
    assert owned(beat) is None
    member.takes(ASSIGNED, *parts(0))
    member.sends_nothing()
    member.heard(beat)
    assert member.group.state is State.ACKNOWLEDGING
    assert owned(member.beats()) == places(*parts(0))


# --- heartbeats ------------------------------------------------------------------------------------------------------


def test_N03_heartbeats_go_at_the_interval_the_broker_says_and_say_nothing_that_has_not_changed() -> None:
    member = Consumer()
    member.stable(*parts(0))
    for interval in (2.0, 9.0, 2.0):
        member.world.after(INTERVAL - 0.1)
        member.sends_nothing()
        beat = member.beats(0.1)
        assert said(beat) == set()
        member.heard(beat, interval=interval)
        member.world.after(interval - 0.1)
        member.sends_nothing()
        member.heard(member.beats(0.1))


@pytest.mark.parametrize("interval", [0.0, -1.0])
def test_N03_an_interval_that_is_none_is_not_obeyed(interval: float) -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.heard(member.beats(INTERVAL), interval=interval)
    member.world.after(HEARTBEAT - 0.1)
    member.sends_nothing()
    member.heard(member.beats(0.1))


def test_N03_topics_are_said_at_once_when_they_change_and_not_again() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.subscribes("u", "t")
    beat = member.beats()
    assert said(beat) == {"subscribed_topic_names"}
    assert beat.body.subscribed_topic_names == ("t", "u")
    member.subscribes("t", "u", "v")
    member.heard(beat)
    beat = member.beats()
    assert beat.body.subscribed_topic_names == ("t", "u", "v")
    member.heard(beat)
    member.subscribes("v", "u", "t")
    member.sends_nothing()
    assert said(member.beats(INTERVAL)) == set()


@pytest.mark.parametrize("code", [LOADING, NOT_COORDINATOR, UNKNOWN_SERVER])
def test_N03_after_an_error_everything_is_said_again(code: int) -> None:
    member = Consumer(instance="i-1", rack="r-1", remote_assignor="range")
    member.stable(*parts(0))
    member.refused(member.beats(INTERVAL), code)
    member.sends_nothing()
    again = member.beats(1.0)
    assert said(again) == EVERYTHING | {"rack_id", "server_assignor"}
    assert (again.body.member_epoch, owned(again)) == (1, places(*parts(0)))
    member.told_to_have(again, *parts(0))
    assert said(member.beats(INTERVAL)) == set()
    assert member.group.state is State.STABLE


def test_N03_after_a_lost_answer_everything_is_said_again_and_at_longer_and_longer_distances_up_to_the_interval() -> None:
    member = Consumer()
    member.stable(*parts(0))
    beat = member.beats(INTERVAL)
    for pause in (1.0, 2.0, 4.0, INTERVAL, INTERVAL):
        member.lost(beat)
        member.world.after(pause - 0.1)
        member.sends_nothing()
        beat = member.beats(0.1)
        assert said(beat) == EVERYTHING
    member.told_to_have(beat, *parts(0))
    member.lost(member.beats(INTERVAL))
    member.sends_nothing()
    member.beats(1.0)


def test_N03_a_pattern_that_was_removed_is_removed_though_the_answer_was_lost() -> None:
    member = Consumer()
    member.matches("t.*")
    member.polls()
    member.heard(member.beats())
    member.turn()
    member.subscribes("t")
    beat = member.beats()
    assert (beat.body.subscribed_topic_names, beat.body.subscribed_topic_regex) == (("t",), "")
    member.lost(beat)
    assert member.beats(1.0).body.subscribed_topic_regex == ""


def test_a_coordinator_that_moved_is_looked_for_anew() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.refused(member.beats(INTERVAL), NOT_COORDINATOR)
    member.sends_nothing()
    member.world.after(1.0)
    look_up, = member.world.turn(member.group, member.calls)
    assert look_up.api.title == "FindCoordinator"


def test_G04_a_coordinator_that_cannot_be_reached_for_a_session_is_looked_up_again_and_the_member_keeps_trying() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.group.polling = True
    member.world.nodes.discard(1)
    member.world.after(INTERVAL)
    member.sends_nothing()
    for _ in range(3):
        member.world.after(SESSION - 0.1)
        assert member.world.turn(member.group, member.calls) == []
        member.world.after(0.1)
        look_up, = member.world.turn(member.group, member.calls)
        look_up.reply(coordinators=[{"key": "g", "node_id": 1, "host": "h", "port": 1, "error_code": 0, "error_message": None}])
        member.sends_nothing()
    member.world.nodes.add(1)
    assert owned(member.sends(BEAT)) is None


# --- reconciling -----------------------------------------------------------------------------------------------------


def test_N05_what_goes_goes_before_what_comes_and_then_the_coordinator_hears_of_it() -> None:
    member = Consumer()
    member.stable(*parts(0, 1))
    member.told_to_have(member.beats(INTERVAL), *parts(1, 2))
    member.turn()
    assert set(member.group.owned) == set(parts(0, 1))
    member.takes(REVOKED, *parts(0))
    assert set(member.group.owned) == set(parts(1))
    member.takes(ASSIGNED, *parts(2))
    assert owned(member.beats()) == places(*parts(1, 2))


def test_N05_what_is_only_given_up_is_followed_by_an_empty_assignment_as_in_java() -> None:
    member = Consumer()
    member.stable(*parts(0, 1))
    member.told_to_have(member.beats(INTERVAL), *parts(1))
    member.turn()
    member.takes(REVOKED, *parts(0))
    member.sends_nothing()
    member.takes(ASSIGNED)
    assert owned(member.beats()) == places(*parts(1))


def test_N05_while_the_user_gives_up_heartbeats_go_on_and_say_nothing_of_it() -> None:
    member = Consumer()
    member.stable(*parts(0, 1))
    member.told_to_have(member.beats(INTERVAL), *parts(1))
    member.turn()
    beat = member.beats(INTERVAL)
    assert (said(beat), set(member.group.owned)) == (set(), set(parts(0, 1)))
    member.heard(beat)
    member.takes(REVOKED, *parts(0))
    member.takes(ASSIGNED)


def test_N05_what_the_user_has_not_begun_gives_way_to_what_is_told_later() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.told_to_have(member.beats(INTERVAL), *parts(0, 1))
    member.turn()
    change = member.group.change
    assert change is not None
    member.told_to_have(member.beats(INTERVAL), *parts(0))
    assert not member.group.begin(change)
    acknowledgement = member.beats()
    assert owned(acknowledgement) == places(*parts(0)), "the coordinator waits to hear that 1 is not read"
    member.heard(acknowledgement)
    assert member.group.state is State.STABLE
    member.sends_nothing()


def test_N05_what_the_user_is_at_is_ended_before_what_was_told_later() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.told_to_have(member.beats(INTERVAL), *parts(0, 1))
    member.turn()
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.told_to_have(member.beats(INTERVAL), *parts(0, 2))
    member.sends_nothing()
    assert member.group.change is None
    member.group.complete(change)
    member.takes(REVOKED, *parts(1))
    member.takes(ASSIGNED, *parts(2))
    assert owned(member.beats()) == places(*parts(0, 2))


def test_N05_who_said_what_it_has_begins_with_nothing_else_before_it_has_an_answer() -> None:
    """The coordinator takes it at its word, and may give to others what the member was told but did not say that it has."""
    member = Consumer()
    member.stable(*parts(0))
    member.told_to_have(member.beats(INTERVAL), *parts(0, 1))
    member.turn()
    change = member.group.change
    assert change is not None
    member.lost(member.beats(INTERVAL))
    assert member.group.change is change, "nothing was said of what it has"
    again = member.beats(1.0)
    assert owned(again) == places(*parts(0))
    assert not member.group.begin(change)
    member.lost(again)
    assert member.group.change is None
    again = member.beats(2.0)
    member.told_to_have(again, *parts(0, 2))
    member.turn()
    member.takes(ASSIGNED, *parts(2))


def test_N05_what_the_user_has_begun_to_take_over_is_said() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.told_to_have(member.beats(INTERVAL), *parts(0, 1))
    member.turn()
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.lost(member.beats(INTERVAL))
    assert owned(member.beats(1.0)) == places(*parts(0, 1))


def test_N05_a_lost_acknowledgement_is_said_again_and_the_listener_hears_nothing_of_it() -> None:
    member = Consumer()
    member.told_to_have(member.joins(), *parts(0))
    member.turn()
    member.takes(ASSIGNED, *parts(0))
    member.lost(member.beats())
    again = member.beats(1.0)
    assert owned(again) == places(*parts(0))
    member.told_to_have(again, *parts(0))
    member.sends_nothing()
    assert (member.group.state, member.group.change) == (State.STABLE, None)


def test_N03_what_it_has_is_said_after_each_reconciliation_even_if_it_is_what_it_was() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.told_to_have(member.beats(INTERVAL), *parts(0, 1))
    member.told_to_have(member.beats(INTERVAL), *parts(0))
    assert owned(member.beats()) == places(*parts(0))


def test_N06_what_the_listener_raised_at_is_not_owned_and_not_acknowledged_and_is_given_again_with_the_next_poll() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.told_to_have(member.beats(INTERVAL), *parts(0, 1))
    member.turn()
    member.takes(ASSIGNED, *parts(1), error=ValueError("the listener's"))
    assert set(member.group.owned) == set(parts(0))
    assert member.group.state is State.LISTENER_FAILED
    member.sends_nothing()
    assert member.group.change is None
    member.heard(member.beats(INTERVAL), epoch=2)
    member.sends_nothing()
    assert member.group.change is None
    assert member.group.wants_poll
    member.polls()
    assert not member.group.wants_poll
    member.takes(ASSIGNED, *parts(1))
    assert owned(member.beats()) == places(*parts(0, 1))


def test_N06_what_the_listener_raised_at_while_giving_up_is_given_up() -> None:
    member = Consumer()
    member.stable(*parts(0, 1))
    member.told_to_have(member.beats(INTERVAL), *parts(0))
    member.turn()
    member.takes(REVOKED, *parts(1), error=ValueError("the listener's"))
    member.takes(ASSIGNED)
    assert owned(member.beats()) == places(*parts(0))


# --- topics ----------------------------------------------------------------------------------------------------------


def asks_ids(member: Consumer) -> list[Sent]:
    """The questions for names of ids; those about ``t`` are answered."""
    sent = [each for each in member.world.turn(member.group, member.calls, member.metadata) if each.api is Api.METADATA]
    by_name = [each for each in sent if any(topic.name is not None for topic in each.body.topics) or not each.body.topics]
    for each in by_name:
        each.reply(**view(topic("t", 1, 1, 1, 1)))
    return [each for each in sent if each not in by_name] + (asks_ids(member) if by_name else [])


def ids(sent: Sent) -> set[UUID]:
    assert all(each.name is None for each in sent.body.topics)
    return {each.topic_id for each in sent.body.topics}


def test_N09_a_topic_that_is_not_known_yet_is_asked_for_by_its_id_and_what_is_known_is_taken_over_meanwhile() -> None:
    member = Consumer()
    member.told_to_have(member.joins(), *parts(0), *parts(1, name="new"))
    asked, = asks_ids(member)
    assert ids(asked) == {topic_id("new")}
    member.takes(ASSIGNED, *parts(0))
    acknowledgement = member.beats()
    assert owned(acknowledgement) == places(*parts(0))
    member.heard(acknowledgement, epoch=1)
    member.sends_nothing()
    assert member.group.state is State.STABLE
    asked.reply(**view(topic("new", 1, 1)))
    member.sends_nothing()
    member.takes(ASSIGNED, *parts(1, name="new"))
    assert owned(member.beats()) == places(*parts(0), *parts(1, name="new"))


def test_N09_an_assignment_is_trusted_whatever_the_subscription_says() -> None:
    member = Consumer()
    member.tells(t=1, u=1)
    member.told_to_have(member.joins(), *parts(0, name="u"))
    member.turn()
    member.takes(ASSIGNED, *parts(0, name="u"))


def test_N09_a_topic_nobody_knows_is_asked_for_at_longer_and_longer_distances_and_no_more_when_it_is_not_assigned() -> None:
    member = Consumer()
    member.told_to_have(member.joins(), *parts(0, name="gone"))
    for pause in (1.0, 2.0, 4.0):
        asked, = asks_ids(member)
        asked.reply(**view({"name": None, "topic_id": topic_id("gone"), "error_code": 100, "partitions": []}))
        member.world.after(pause - 0.1)
        assert asks_ids(member) == []
        member.world.after(0.1)
    asked, = asks_ids(member)
    asked.reply(**view({"name": None, "topic_id": topic_id("gone"), "error_code": 100, "partitions": []}))
    beat, = (each for each in member.world.in_flight if each.api is BEAT)
    member.told_to_have(beat)
    member.turn()
    member.world.after(64.0)
    assert asks_ids(member) == []


def test_N05_the_name_of_a_topic_that_the_view_has_forgotten_is_remembered_while_it_is_assigned() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.tells(u=1)
    member.told_to_have(member.beats(INTERVAL), *parts(0, 1))
    member.turn()
    member.takes(ASSIGNED, *parts(1))
    acknowledgement = member.beats()
    assert owned(acknowledgement) == places(*parts(0, 1))
    member.told_to_have(acknowledgement)
    member.turn()
    member.takes(REVOKED, *parts(0, 1))


def test_a_topic_that_was_deleted_and_made_anew_is_given_up_and_taken_over_anew() -> None:
    member = Consumer()
    member.stable(*parts(0))
    another = uuid5(topic_id("t"), "anew")
    beat = member.beats(INTERVAL)
    member.heard(beat, assignment={"topic_partitions": [{"topic_id": another, "partitions": [0]}]})
    member.metadata.hint(member.metadata.cluster.updated(_metadata(topic("t", 1, 1, id=another)), everything=True))
    member.turn()
    member.takes(REVOKED, *parts(0))
    member.takes(ASSIGNED, *parts(0))
    assert owned(member.beats()) == {(another, 0)}


def _metadata(*topics: dict[str, object]) -> Any:
    return answer(Api.METADATA, 13, **view(*topics))


def test_of_two_topics_of_one_name_the_one_that_exists_counts() -> None:
    member = Consumer()
    member.stable(*parts(0))
    another = uuid5(topic_id("t"), "anew")
    member.metadata.hint(member.metadata.cluster.updated(_metadata(topic("t", 1, 1, id=another)), everything=True))
    member.heard(member.beats(INTERVAL), assignment={"topic_partitions": [
        {"topic_id": another, "partitions": [1]}, {"topic_id": topic_id("t"), "partitions": [0, 1]}]})
    member.turn()
    member.takes(ASSIGNED, *parts(1))
    assert owned(member.beats()) == {(topic_id("t"), 0), (another, 1)}


def test_N09_a_pattern_for_the_brokers_is_said_as_it_is_and_what_it_matches_is_what_is_assigned() -> None:
    member = Consumer()
    member.matches("[tu].*")
    member.polls()
    join = member.beats()
    assert (join.body.subscribed_topic_names, join.body.subscribed_topic_regex) == ((), "[tu].*")
    member.told_to_have(join, *parts(0))
    member.turn()
    assert member.group.topics == {"t"}
    assert member.asks_for_topics() == ["t"], "what is read is kept in the view"


def test_N09_what_is_assigned_is_kept_in_the_view_though_it_is_not_subscribed_to_any_more() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.subscribes("u")
    assert member.asks_for_topics() == ["t", "u"]


def test_N09_a_broker_that_matches_no_patterns_is_told_from_one_without_the_protocol() -> None:
    member = Consumer()
    member.matches("t")
    member.polls()
    join = member.beats()
    assert join.request.versions is not None
    assert 0 not in join.request.versions
    join.is_not_sent(UnsupportedVersionError("speaks 0"))
    error = member.group.take_error()
    assert isinstance(error, UnsupportedVersionError)
    assert "re.Pattern" in str(error)


def test_N09_a_pattern_of_the_client_is_matched_here_and_names_are_sent_when_they_change() -> None:
    member = Consumer()
    member.tells(t=1, u=1, tt=1)
    member.matches_itself("t+")
    member.polls()
    join = member.beats()
    assert (join.body.subscribed_topic_names, join.body.subscribed_topic_regex) == (("t", "tt"), "")
    member.heard(join)
    member.turn()
    member.tells(t=1, u=1, tt=1, ttt=1)
    assert member.group.topics == {"t", "tt"}
    beat = member.beats()
    assert (said(beat), beat.body.subscribed_topic_names) == ({"subscribed_topic_names"}, ("t", "tt", "ttt"))
    assert member.group.topics == {"t", "tt", "ttt"}


# --- being lost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [FENCED_EPOCH, UNKNOWN_MEMBER, GROUP_ID_NOT_FOUND])
def test_N07_a_member_that_the_group_went_on_without_has_lost_its_partitions_and_joins_again_at_once(code: int) -> None:
    member = Consumer()
    member.stable(*parts(0, 2))
    member.refused(member.beats(INTERVAL), code)
    assert not member.group.identity.joined
    member.world.after(2 * INTERVAL)
    member.sends_nothing()
    member.takes(LOST, *parts(0, 2))
    again = member.beats()
    assert (again.body.member_epoch, owned(again), said(again)) == (0, set(), EVERYTHING)
    assert member.group.take_error() is None
    member.told_to_have(again, *parts(1))
    member.turn()
    member.takes(ASSIGNED, *parts(1))


def test_N07_what_the_user_was_to_take_over_is_not_taken_over_by_who_was_fenced() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.told_to_have(member.beats(INTERVAL), *parts(1))
    member.turn()
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.refused(member.beats(INTERVAL), FENCED_EPOCH)
    member.sends_nothing()
    member.group.complete(change)
    assert member.group.change is None
    assert member.beats().body.member_epoch == 0


def test_N07_a_fenced_member_is_told_of_what_it_was_at_when_that_is_done() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.told_to_have(member.beats(INTERVAL), *parts(0, 1))
    member.turn()
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.refused(member.beats(INTERVAL), FENCED_EPOCH)
    member.group.complete(change)
    member.takes(LOST, *parts(0, 1))


def test_a_join_that_is_fenced_is_tried_again_after_a_pause() -> None:
    member = Consumer()
    member.refused(member.joins(), UNKNOWN_MEMBER)
    member.sends_nothing()
    member.refused(member.beats(1.0), FENCED_EPOCH)
    member.sends_nothing()
    assert member.beats(2.0).body.member_epoch == 0
    assert member.group.take_error() is None


def test_N07_topics_that_may_not_be_read_are_told_to_the_user_and_the_member_stays_and_asks_at_the_interval() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.subscribes("t", "secret")
    for told in (False, True, True):
        refused = member.beats()
        assert said(refused) >= {"subscribed_topic_names"}
        member.refused(refused, TOPIC_AUTHORIZATION)
        member.sends_nothing()
        assert isinstance(member.group.take_error(), TopicAuthorizationError if told else NoneType), "first the metadata are asked which it is"
        assert member.asks_for_topics() == ["secret", "t"]
        member.world.after(INTERVAL - 0.1)
        member.sends_nothing()
        assert member.group.state is State.STABLE
        member.world.after(0.1)
    assert said(member.beats()) == EVERYTHING


def test_N07_a_topic_that_may_not_be_described_is_told_and_left_out_at_once_and_told_to_the_coordinator_when_it_may() -> None:
    """For one such topic the coordinator refuses everything."""
    member = Consumer()
    member.subscribes("t", "secret")
    member.polls()
    refused = member.beats()
    assert refused.body.subscribed_topic_names == ("secret", "t")
    member.refused(refused, TOPIC_AUTHORIZATION)
    member.sends_nothing()
    member.tells_error(TOPIC_AUTHORIZATION, "secret")
    join = member.beats()
    assert (join.body.member_epoch, join.body.subscribed_topic_names) == (0, ("t",))
    assert "'secret'" in str(member.group.take_error())
    member.told_to_have(join, *parts(0))
    assert member.group.topics == {"t", "secret"}
    member.turn()
    member.takes(ASSIGNED, *parts(0))
    member.heard(member.beats(), epoch=member.epoch)
    member.tells(t=4, secret=1)
    assert member.beats().body.subscribed_topic_names == ("secret", "t")
    assert member.group.take_error() is None


def test_N07_who_may_describe_none_of_its_topics_lets_the_coordinator_say_so() -> None:
    member = Consumer()
    member.tells_error(TOPIC_AUTHORIZATION)
    member.subscribes()
    member.polls()
    assert member.beats().body.subscribed_topic_names == ("t",)


@pytest.mark.parametrize("code", LASTING)
def test_N07_what_refuses_the_member_as_it_is_lasts_until_it_subscribes_anew(code: int) -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.refused(member.beats(INTERVAL), code, "so it is")
    member.takes(LOST, *parts(0))
    for _ in range(2):
        error = member.group.take_error()
        assert isinstance(error, LASTING[code])
        assert "so it is" in str(error.__cause__ or error)
        member.polls()
        member.world.after(10 * REBALANCE)
        member.sends_nothing()
    assert member.group.state is State.FAILED
    member.subscribes()
    assert member.group.take_error() is None
    member.polls()
    assert member.beats().body.member_epoch == 0


def test_N07_brokers_without_the_protocol_are_told_with_both_ways_out() -> None:
    member = Consumer()
    member.joins().is_not_sent(UnsupportedVersionError("none"))
    error = member.group.take_error()
    assert isinstance(error, UnsupportedVersionError)
    assert 'group_protocol="classic"' in str(error)
    assert "Kafka 4.0" in str(error)


def test_a_classic_group_that_cannot_become_one_of_the_next_generation_is_told_with_the_ways_out() -> None:
    member = Consumer()
    member.refused(member.joins(), GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")
    error = member.group.take_error()
    assert isinstance(error, GroupIdNotFoundError)
    assert 'group_protocol="classic"' in str(error)
    assert "Group g is not a consumer group." in str(error.__cause__)


def test_a_group_that_may_not_be_used_is_told_by_the_look_up_of_its_coordinator() -> None:
    member = Consumer()
    member.subscribes()
    member.polls()
    look_up, = member.world.turn(member.group, member.calls)
    look_up.reply(coordinators=[{"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": 30, "error_message": None}])
    assert isinstance(member.group.take_error(), GroupAuthorizationError)
    assert member.group.state is State.FAILED


def test_a_failure_nobody_knows_is_told_and_the_member_stays() -> None:
    member = Consumer()
    member.stable(*parts(0))
    news = member.news
    member.refused(member.beats(INTERVAL), UNKNOWN_SERVER)
    assert isinstance(member.group.take_error(), UnknownServerError)
    assert member.news > news
    assert (member.group.state, set(member.group.owned)) == (State.STABLE, set(parts(0)))


# --- polling ---------------------------------------------------------------------------------------------------------


def test_N08_a_leave_that_nobody_answered_is_not_sent_again_to_who_has_joined_anew() -> None:
    member = Consumer()
    member.stable(*parts(0))
    member.world.after(REBALANCE)
    leave = member.sends(BEAT)
    member.polls()
    member.takes(LOST, *parts(0))
    join = member.beats()
    assert join.body.member_epoch == 0
    leave.is_lost()
    member.world.after(2.0)
    member.sends_nothing()


def test_N08_whoever_waits_for_a_leave_is_done_when_the_member_joins_again() -> None:
    member = Consumer()
    member.stable(*parts(0))
    ended: list[object] = []
    member.group.leave("unsubscribed", lambda result, error: ended.append(error), None)
    leave = member.sends(BEAT)
    member.subscribes()
    member.polls()
    assert ended == [None]
    assert member.beats().body.member_epoch == 0
    member.refused(leave, NOT_COORDINATOR)
    member.world.after(2.0)
    member.sends_nothing()
    assert ended == [None]


# --- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, GROUP_ID_NOT_FOUND, FENCED_EPOCH, FENCED_INSTANCE])
def test_who_leaves_and_is_not_known_has_left(code: int) -> None:
    member = Consumer()
    member.stable(*parts(0))
    ended: list[object] = []
    member.group.leave("closed", lambda result, error: ended.append(error), None)
    member.refused(member.sends(BEAT), code)
    assert ended == [None]


def test_a_leave_that_a_new_coordinator_may_take_is_sent_again_within_its_time() -> None:
    member = Consumer()
    member.stable(*parts(0))
    ended: list[Any] = []
    member.group.leave("closed", lambda result, error: ended.append(error), member.world.now + 1.5)
    member.refused(member.sends(BEAT), NOT_COORDINATOR)
    member.world.after(1.0)
    assert member.sends(BEAT).body.member_epoch == -1
    member.world.after(0.5)
    member.turn()
    assert isinstance(ended[0], KafkaError)


def test_who_may_have_been_taken_in_leaves_with_a_word() -> None:
    member = Consumer()
    member.joins()
    member.group.leave("closed", nobody, None)
    member.is_leaving("closed")


def test_N01_a_static_member_leaves_for_now_and_comes_back() -> None:
    member = Consumer(instance="i-1")
    member.stable(*parts(0))
    member.group.leave("closed", nobody, None)
    leave = member.sends(BEAT)
    assert (leave.body.member_epoch, leave.body.instance_id) == (-2, "i-1")
    member.heard(leave, epoch=-2)
    assert member.joins().body.member_epoch == 0


def test_N08_a_static_member_that_does_not_poll_leaves_for_now() -> None:
    member = Consumer(instance="i-1")
    member.stable(*parts(0))
    member.world.after(REBALANCE)
    leave = member.sends(BEAT)
    assert leave.body.member_epoch == -2
    member.heard(leave, epoch=-2)
    member.polls()
    member.takes(LOST, *parts(0))
    assert member.beats().body.member_epoch == 0


def test_a_static_member_whose_leave_nobody_answered_leaves_once_more_before_it_joins_again() -> None:
    member = Consumer(instance="i-1")
    member.stable(*parts(0))
    member.world.after(REBALANCE)
    member.lost(member.sends(BEAT))
    member.polls()
    member.takes(LOST, *parts(0))
    again = member.beats()
    assert again.body.member_epoch == -2
    member.heard(again, epoch=-2)
    assert member.beats().body.member_epoch == 0


@pytest.mark.parametrize("answers", ["yes", "unknown", "other"])
def test_a_static_member_whose_join_was_lost_takes_it_back_before_it_joins_again(answers: str) -> None:
    """The coordinator would not give the instance id away, not even to the member that has it (N07)."""
    member = Consumer(instance="i-1")
    member.lost(member.joins())
    back = member.beats(1.0)
    assert (back.body.member_epoch, said(back)) == (-2, set())
    member.lost(back)
    back = member.beats(2.0)
    if answers == "yes":
        member.heard(back, epoch=-2)
    else:
        member.refused(back, {"unknown": UNKNOWN_MEMBER, "other": FENCED_INSTANCE}[answers])
    assert member.beats().body.member_epoch == 0


def test_a_static_member_whose_join_was_refused_has_nothing_to_take_back() -> None:
    member = Consumer(instance="i-1")
    member.refused(member.joins(), LOADING)
    member.sends_nothing()
    assert member.beats(1.0).body.member_epoch == 0


def test_a_static_member_that_was_fenced_takes_its_old_self_back_before_it_joins_again() -> None:
    member = Consumer(instance="i-1")
    member.stable(*parts(0))
    member.refused(member.beats(INTERVAL), FENCED_EPOCH)
    member.takes(LOST, *parts(0))
    member.heard(member.beats(), epoch=-2)
    assert member.beats().body.member_epoch == 0


def test_a_static_member_that_nobody_knows_joins_again_at_once() -> None:
    member = Consumer(instance="i-1")
    member.stable(*parts(0))
    member.refused(member.beats(INTERVAL), UNKNOWN_MEMBER)
    member.takes(LOST, *parts(0))
    assert member.beats().body.member_epoch == 0


def test_a_static_member_that_may_not_take_its_join_back_fails() -> None:
    member = Consumer(instance="i-1")
    member.lost(member.joins())
    member.refused(member.beats(1.0), 30)
    assert isinstance(member.group.take_error(), GroupAuthorizationError)


# --- commits ---------------------------------------------------------------------------------------------------------


def test_N10_a_commit_in_an_older_epoch_has_the_newer_one_asked_for_at_once_and_changes_nothing_else() -> None:
    member = Consumer()
    member.stable(*parts(0))
    before = member.group.identity
    member.group.on_commit_refused(StaleMemberEpochError(), before)
    assert member.group.accepts_commits
    beat = member.beats()
    assert said(beat) == set()
    member.group.on_commit_refused(StaleMemberEpochError(), before)
    member.heard(beat, epoch=9)
    assert (member.group.identity.generation, set(member.group.owned)) == (9, set(parts(0)))
    member.heard(member.beats(), epoch=9)
    member.sends_nothing()
    member.group.on_commit_refused(StaleMemberEpochError(), before)
    member.sends_nothing()


def test_the_answer_to_a_heartbeat_of_who_was_lost_meanwhile_does_not_count() -> None:
    member = Consumer()
    member.stable(*parts(0))
    late = member.beats(INTERVAL)
    member.group.on_commit_refused(FencedMemberEpochError(), member.group.identity)
    member.takes(LOST, *parts(0))
    join = member.beats()
    member.told_to_have(late, *parts(0, 1, 2), epoch=9)
    member.sends_nothing()
    assert not member.group.identity.joined
    member.told_to_have(join, *parts(3), epoch=10)
    member.turn()
    member.takes(ASSIGNED, *parts(3))
