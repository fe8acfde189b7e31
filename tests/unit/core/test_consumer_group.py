"""A member under the consumer protocol: one test for each rule of how it joins, sends heartbeats, reconciles and leaves
(N01 to N10).

The rules of both protocols are in `test_membership`.
"""
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
from pyclient.core.silence import LONGEST_SILENCE_S
from pyclient.core.transitions import TABLES
from pyclient.errors import (
    FencedInstanceIdError, FencedMemberEpochError, GroupAuthorizationError, GroupIdNotFoundError, GroupMaxSizeReachedError,
    InvalidGroupIdError, InvalidRegularExpressionError, InvalidRequestError, KafkaError, StaleMemberEpochError,
    TopicAuthorizationError, UnknownServerError, UnreleasedInstanceIdError, UnsupportedAssignorError, UnsupportedVersionError,
)
from tests.unit.core.consumer_groups import HEARTBEAT_API, INTERVAL, ConsumerHarness, owned, with_ids, changed_fields
from tests.unit.core.groups import HEARTBEAT, REBALANCE, tps
from tests.unit.core.world import Sent, answer, topic, topic_id, view

ASSIGNED, REVOKED, LOST = ChangeKind.ASSIGNED, ChangeKind.REVOKED, ChangeKind.LOST
LOADING, NOT_COORDINATOR, TOPIC_AUTHORIZATION, GROUP_ID_NOT_FOUND, UNKNOWN_SERVER = 14, 16, 29, 69, -1
UNKNOWN_MEMBER, FENCED_INSTANCE, FENCED_EPOCH, UNRELEASED, UNSUPPORTED, BAD_PATTERN = 25, 82, 110, 111, 35, 128
FATAL = {
    42: InvalidRequestError, 24: InvalidGroupIdError, UNSUPPORTED: UnsupportedVersionError,
    81: GroupMaxSizeReachedError, FENCED_INSTANCE: FencedInstanceIdError, UNRELEASED: UnreleasedInstanceIdError,
    112: UnsupportedAssignorError, BAD_PATTERN: InvalidRegularExpressionError}


EVERYTHING = {"subscribed_topic_names", "subscribed_topic_regex", "topic_partitions", "rebalance_timeout"}


# --- who it is -------------------------------------------------------------------------------------------------------


def test_N01_the_member_draws_its_id_once_and_keeps_it() -> None:
    member = ConsumerHarness(seed=1)
    known_as = member.group.identity.member_id
    assert UUID(known_as).version == 4
    assert ConsumerHarness(seed=1).group.identity.member_id == known_as
    assert ConsumerHarness(seed=2).group.identity.member_id != known_as
    member.becomes_stable(*tps(0))
    member.reply_error(member.heartbeat(INTERVAL), UNKNOWN_MEMBER)
    member.carries_out(LOST, *tps(0))
    assert member.heartbeat().body.member_id == known_as
    member.group.leave("closed", ignore_result, None)
    assert member.heartbeat().body.member_id == known_as
    member.subscribes()
    member.polls()
    assert member.heartbeat().body.member_id == known_as


def ignore_result(result: object, error: BaseException | None) -> None:
    """For requests without a waiter."""


def test_N02_the_states_have_a_table_of_their_own() -> None:
    assert TABLES["consumer member"] is CONSUMER


def at(state: State, instance: str | None = None) -> ConsumerHarness:
    """A member in this state; it owns partition 0 if it can own one, and partition 1 after its next change."""
    member = ConsumerHarness(instance=instance)
    if state is State.OUT:
        return member
    join = member.sends_join()
    if state in (State.JOINING, State.FAILED):
        if state is State.FAILED:
            member.reply_error(join, BAD_PATTERN)
        return member
    member.reply_assignment(join, *tps(0))
    member.turn()
    member.carries_out(ASSIGNED, *tps(0))
    if state is not State.ACKNOWLEDGING:
        member.reply_heartbeat(member.heartbeat(), epoch=1)
    if state in (State.RECONCILING, State.LISTENER_FAILED):
        member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 1))
        member.turn()
        if state is State.LISTENER_FAILED:
            member.carries_out(ASSIGNED, *tps(1), error=ValueError("the listener's"))
    elif state is State.LOSING:
        member.reply_error(member.heartbeat(INTERVAL), FENCED_EPOCH)
    assert member.group.state is state
    return member


@pytest.mark.parametrize("state", State)
def test_N02_a_member_can_leave_in_every_state(state: State) -> None:
    member = at(state)
    member.group.leave("closed", ignore_result, None)
    assert (member.group.state, member.group.owned, member.group.change) == (State.OUT, {}, None)
    assert [each.body.member_epoch for each in member.turn()] == ([] if state in (State.OUT, State.FAILED) else [-1])
    member.sends_join()


@pytest.mark.parametrize("code", [FENCED_EPOCH, BAD_PATTERN])
@pytest.mark.parametrize("state", [State.RECONCILING, State.LISTENER_FAILED, State.ACKNOWLEDGING, State.STABLE])
def test_N02_a_member_can_be_fenced_or_refused_in_every_state_with_an_epoch(state: State, code: int) -> None:
    member = at(state)
    (sent,) = member.turn() or [member.heartbeat(INTERVAL)]
    member.reply_error(sent, code)
    assert member.group.state is (State.LOSING if code == FENCED_EPOCH else State.FAILED)
    member.carries_out(LOST, *tps(0))


# --- joining ---------------------------------------------------------------------------------------------------------


def test_N03_a_join_states_everything() -> None:
    member = ConsumerHarness(instance="i-1", rack="r-1", remote_assignor="uniform")
    join = member.sends_join()
    body = join.body
    assert (body.group_id, body.member_epoch, body.instance_id, body.rack_id, body.server_assignor) == ("g", 0, "i-1", "r-1", "uniform")
    assert (body.subscribed_topic_names, body.subscribed_topic_regex, owned(join)) == (("t",), "", set())
    assert body.rebalance_timeout.total_seconds() == REBALANCE
    assert join.request.use is Use.COORDINATION


def test_a_member_acknowledges_a_carried_out_assignment_at_once() -> None:
    member = ConsumerHarness()
    member.reply_assignment(member.sends_join(), *tps(1, 3), epoch=7)
    assert member.group.state is State.STABLE
    member.sends_nothing()
    assert member.group.state is State.RECONCILING
    assert member.notifications == 1
    assert not member.group.owned
    member.carries_out(ASSIGNED, *tps(1, 3))
    assert member.group.state is State.ACKNOWLEDGING
    assert set(member.group.owned) == set(tps(1, 3))
    acknowledgement = member.heartbeat()
    assert (acknowledgement.body.member_epoch, owned(acknowledgement)) == (7, with_ids(*tps(1, 3)))
    assert changed_fields(acknowledgement) == {"topic_partitions"}
    member.reply_heartbeat(acknowledgement, epoch=7)
    assert member.group.state is State.STABLE
    assert member.group.identity == Identity(7, member.group.identity.member_id)
    member.sends_nothing()


def test_an_empty_assignment_calls_the_listener_once() -> None:
    member = ConsumerHarness()
    member.reply_assignment(member.sends_join())
    member.turn()
    member.carries_out(ASSIGNED)
    member.reply_assignment(member.heartbeat())
    member.sends_nothing()
    assert member.group.change is None


def test_N04_only_one_heartbeat_is_in_flight() -> None:
    member = ConsumerHarness()
    member.sends_join()
    member.world.after(2 * INTERVAL)
    member.sends_nothing()


def test_N04_partitions_assigned_during_a_heartbeat_are_acknowledged_right_after_its_response() -> None:
    member = ConsumerHarness()
    member.reply_assignment(member.sends_join(), *tps(0))
    member.turn()
    beat = member.heartbeat(INTERVAL)
    assert owned(beat) is None
    member.carries_out(ASSIGNED, *tps(0))
    member.sends_nothing()
    member.reply_heartbeat(beat)
    assert member.group.state is State.ACKNOWLEDGING
    assert owned(member.heartbeat()) == with_ids(*tps(0))


# --- heartbeats ------------------------------------------------------------------------------------------------------


def test_N03_heartbeats_keep_the_brokers_interval_and_leave_out_what_has_not_changed() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    for interval in (2.0, 9.0, 2.0):
        member.world.after(INTERVAL - 0.1)
        member.sends_nothing()
        beat = member.heartbeat(0.1)
        assert changed_fields(beat) == set()
        member.reply_heartbeat(beat, interval=interval)
        member.world.after(interval - 0.1)
        member.sends_nothing()
        member.reply_heartbeat(member.heartbeat(0.1))


@pytest.mark.parametrize("interval", [0.0, -1.0])
def test_N03_an_interval_that_is_not_positive_is_ignored(interval: float) -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_heartbeat(member.heartbeat(INTERVAL), interval=interval)
    member.world.after(HEARTBEAT - 0.1)
    member.sends_nothing()
    member.reply_heartbeat(member.heartbeat(0.1))


def test_N03_changed_topics_are_sent_at_once_and_only_once() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.subscribes("u", "t")
    beat = member.heartbeat()
    assert changed_fields(beat) == {"subscribed_topic_names"}
    assert beat.body.subscribed_topic_names == ("t", "u")
    member.subscribes("t", "u", "v")
    member.reply_heartbeat(beat)
    beat = member.heartbeat()
    assert beat.body.subscribed_topic_names == ("t", "u", "v")
    member.reply_heartbeat(beat)
    member.subscribes("v", "u", "t")
    member.sends_nothing()
    assert changed_fields(member.heartbeat(INTERVAL)) == set()


@pytest.mark.parametrize("code", [LOADING, NOT_COORDINATOR, UNKNOWN_SERVER])
def test_N03_the_heartbeat_after_an_error_states_everything(code: int) -> None:
    member = ConsumerHarness(instance="i-1", rack="r-1", remote_assignor="range")
    member.becomes_stable(*tps(0))
    member.reply_error(member.heartbeat(INTERVAL), code)
    member.sends_nothing()
    again = member.heartbeat(1.0)
    assert changed_fields(again) == EVERYTHING | {"rack_id", "server_assignor"}
    assert (again.body.member_epoch, owned(again)) == (1, with_ids(*tps(0)))
    member.reply_assignment(again, *tps(0))
    assert changed_fields(member.heartbeat(INTERVAL)) == set()
    assert member.group.state is State.STABLE


def test_N03_the_heartbeat_after_a_lost_response_states_everything_after_growing_pauses_up_to_the_interval() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    beat = member.heartbeat(INTERVAL)
    for pause in (1.0, 2.0, 4.0, INTERVAL, INTERVAL):
        member.no_reply(beat)
        member.world.after(pause - 0.1)
        member.sends_nothing()
        beat = member.heartbeat(0.1)
        assert changed_fields(beat) == EVERYTHING
    member.reply_assignment(beat, *tps(0))
    member.no_reply(member.heartbeat(INTERVAL))
    member.sends_nothing()
    member.heartbeat(1.0)


def test_N03_a_removed_pattern_is_removed_though_the_response_was_lost() -> None:
    member = ConsumerHarness()
    member.subscribes_broker_pattern("t.*")
    member.polls()
    member.reply_heartbeat(member.heartbeat())
    member.turn()
    member.subscribes("t")
    beat = member.heartbeat()
    assert (beat.body.subscribed_topic_names, beat.body.subscribed_topic_regex) == (("t",), "")
    member.no_reply(beat)
    assert member.heartbeat(1.0).body.subscribed_topic_regex == ""


def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_error(member.heartbeat(INTERVAL), NOT_COORDINATOR)
    member.sends_nothing()
    member.world.after(1.0)
    look_up, = member.world.turn(member.group, member.calls)
    assert look_up.api.title == "FindCoordinator"


def test_G04_the_response_to_a_heartbeat_may_take_three_of_the_brokers_intervals() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    assert member.heartbeat(INTERVAL).request.timeout == 3 * INTERVAL


def test_G04_a_coordinator_that_cannot_be_reached_is_looked_up_again_and_again_and_heartbeats_go_on() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.group.polling = True
    member.world.nodes.discard(1)
    member.world.after(INTERVAL)
    member.sends_nothing()
    for _ in range(3):
        member.world.after(LONGEST_SILENCE_S - 0.1)
        assert member.world.turn(member.group, member.calls) == []
        member.world.after(0.1)
        look_up, = member.world.turn(member.group, member.calls)
        member.reply_coordinator(look_up, 1)
        member.sends_nothing()
    member.world.nodes.add(1)
    assert owned(member.sends(HEARTBEAT_API)) is None


# --- reconciling -----------------------------------------------------------------------------------------------------


def test_N05_partitions_are_revoked_before_others_are_assigned_and_then_acknowledged() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0, 1))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(1, 2))
    member.turn()
    assert set(member.group.owned) == set(tps(0, 1))
    member.carries_out(REVOKED, *tps(0))
    assert set(member.group.owned) == set(tps(1))
    member.carries_out(ASSIGNED, *tps(2))
    assert owned(member.heartbeat()) == with_ids(*tps(1, 2))


def test_N05_a_revocation_alone_is_followed_by_an_empty_assignment_as_in_java() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0, 1))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(1))
    member.turn()
    member.carries_out(REVOKED, *tps(0))
    member.sends_nothing()
    member.carries_out(ASSIGNED)
    assert owned(member.heartbeat()) == with_ids(*tps(1))


def test_N05_heartbeats_during_a_revocation_do_not_state_it() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0, 1))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(1))
    member.turn()
    beat = member.heartbeat(INTERVAL)
    assert (changed_fields(beat), set(member.group.owned)) == (set(), set(tps(0, 1)))
    member.reply_heartbeat(beat)
    member.carries_out(REVOKED, *tps(0))
    member.carries_out(ASSIGNED)


def test_N05_a_change_that_is_not_begun_gives_way_to_a_newer_assignment() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 1))
    member.turn()
    change = member.group.change
    assert change is not None
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0))
    assert not member.group.begin(change)
    acknowledgement = member.heartbeat()
    assert owned(acknowledgement) == with_ids(*tps(0)), "the coordinator waits to learn that partition 1 is not owned"
    member.reply_heartbeat(acknowledgement)
    assert member.group.state is State.STABLE
    member.sends_nothing()


def test_N05_a_change_that_is_begun_is_completed_before_a_newer_assignment() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 1))
    member.turn()
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 2))
    member.sends_nothing()
    assert member.group.change is None
    member.group.complete(change)
    member.carries_out(REVOKED, *tps(1))
    member.carries_out(ASSIGNED, *tps(2))
    assert owned(member.heartbeat()) == with_ids(*tps(0, 2))


def test_N05_after_stating_its_partitions_a_member_begins_no_change_before_the_response() -> None:
    """The coordinator relies on what a heartbeat states, and may assign all other partitions to other members."""
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 1))
    member.turn()
    change = member.group.change
    assert change is not None
    member.no_reply(member.heartbeat(INTERVAL))
    assert member.group.change is change, "nothing was changed_fields of what it has"
    again = member.heartbeat(1.0)
    assert owned(again) == with_ids(*tps(0))
    assert not member.group.begin(change)
    member.no_reply(again)
    assert member.group.change is None
    again = member.heartbeat(2.0)
    member.reply_assignment(again, *tps(0, 2))
    member.turn()
    member.carries_out(ASSIGNED, *tps(2))


def test_N05_partitions_whose_assignment_is_begun_are_stated() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 1))
    member.turn()
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.no_reply(member.heartbeat(INTERVAL))
    assert owned(member.heartbeat(1.0)) == with_ids(*tps(0, 1))


def test_N05_a_lost_acknowledgement_is_sent_again_without_calling_the_listener() -> None:
    member = ConsumerHarness()
    member.reply_assignment(member.sends_join(), *tps(0))
    member.turn()
    member.carries_out(ASSIGNED, *tps(0))
    member.no_reply(member.heartbeat())
    again = member.heartbeat(1.0)
    assert owned(again) == with_ids(*tps(0))
    member.reply_assignment(again, *tps(0))
    member.sends_nothing()
    assert (member.group.state, member.group.change) == (State.STABLE, None)


def test_N03_owned_partitions_are_stated_after_each_reconciliation_even_if_unchanged() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 1))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0))
    assert owned(member.heartbeat()) == with_ids(*tps(0))


def test_N06_partitions_at_whose_assignment_the_listener_raised_are_not_owned_and_assigned_again_with_the_next_poll() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 1))
    member.turn()
    member.carries_out(ASSIGNED, *tps(1), error=ValueError("the listener's"))
    assert set(member.group.owned) == set(tps(0))
    assert member.group.state is State.LISTENER_FAILED
    member.sends_nothing()
    assert member.group.change is None
    member.reply_heartbeat(member.heartbeat(INTERVAL), epoch=2)
    member.sends_nothing()
    assert member.group.change is None
    assert member.group.wants_poll
    member.polls()
    assert not member.group.wants_poll
    member.carries_out(ASSIGNED, *tps(1))
    assert owned(member.heartbeat()) == with_ids(*tps(0, 1))


def test_N06_an_assignment_that_came_before_the_listener_raised_is_assigned_though_the_view_dropped_its_topic() -> None:
    member = ConsumerHarness()
    member.metadata_shows(t=2)
    member.subscribes_broker_pattern("[tu].*")
    member.polls()
    member.reply_assignment(member.heartbeat())
    member.turn()
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 1))
    member.group.complete(change, ValueError("the listener's"))
    member.metadata_shows(u=1)
    member.turn()
    member.polls()
    member.carries_out(ASSIGNED, *tps(0, 1))
    assert owned(member.heartbeat()) == with_ids(*tps(0, 1))


def test_N06_partitions_at_whose_revocation_the_listener_raised_are_revoked() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0, 1))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0))
    member.turn()
    member.carries_out(REVOKED, *tps(1), error=ValueError("the listener's"))
    member.carries_out(ASSIGNED)
    assert owned(member.heartbeat()) == with_ids(*tps(0))


# --- topics ----------------------------------------------------------------------------------------------------------


def id_requests(member: ConsumerHarness) -> list[Sent]:
    """The metadata requests by topic id that are sent now; requests by name get a response with ``t``."""
    sent = [each for each in member.world.turn(member.group, member.calls, member.metadata) if each.api is Api.METADATA]
    by_name = [each for each in sent if any(topic.name is not None for topic in each.body.topics) or not each.body.topics]
    for each in by_name:
        each.reply(**view(topic("t", 1, 1, 1, 1)))
    return [each for each in sent if each not in by_name] + (id_requests(member) if by_name else [])


def ids(sent: Sent) -> set[UUID]:
    assert all(each.name is None for each in sent.body.topics)
    return {each.topic_id for each in sent.body.topics}


def test_N09_an_unknown_topic_is_requested_by_id_and_known_topics_are_assigned_meanwhile() -> None:
    member = ConsumerHarness()
    member.reply_assignment(member.sends_join(), *tps(0), *tps(1, name="new"))
    asked, = id_requests(member)
    assert ids(asked) == {topic_id("new")}
    member.carries_out(ASSIGNED, *tps(0))
    acknowledgement = member.heartbeat()
    assert owned(acknowledgement) == with_ids(*tps(0))
    member.reply_heartbeat(acknowledgement, epoch=1)
    member.sends_nothing()
    assert member.group.state is State.STABLE
    asked.reply(**view(topic("new", 1, 1)))
    member.sends_nothing()
    member.carries_out(ASSIGNED, *tps(1, name="new"))
    assert owned(member.heartbeat()) == with_ids(*tps(0), *tps(1, name="new"))


def test_N09_an_assignment_counts_whatever_the_subscription_is() -> None:
    member = ConsumerHarness()
    member.metadata_shows(t=1, u=1)
    member.reply_assignment(member.sends_join(), *tps(0, name="u"))
    member.turn()
    member.carries_out(ASSIGNED, *tps(0, name="u"))


def test_N09_an_unknown_topic_is_requested_with_growing_pauses_until_it_is_not_assigned_any_more() -> None:
    member = ConsumerHarness()
    member.reply_assignment(member.sends_join(), *tps(0, name="gone"))
    for pause in (1.0, 2.0, 4.0):
        asked, = id_requests(member)
        asked.reply(**view({"name": None, "topic_id": topic_id("gone"), "error_code": 100, "partitions": []}))
        member.world.after(pause - 0.1)
        assert id_requests(member) == []
        member.world.after(0.1)
    asked, = id_requests(member)
    asked.reply(**view({"name": None, "topic_id": topic_id("gone"), "error_code": 100, "partitions": []}))
    beat, = (each for each in member.world.in_flight if each.api is HEARTBEAT_API)
    member.reply_assignment(beat)
    member.turn()
    member.world.after(64.0)
    assert id_requests(member) == []


def test_N05_the_name_of_an_assigned_topic_is_kept_when_the_view_drops_it() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.metadata_shows(u=1)
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 1))
    member.turn()
    member.carries_out(ASSIGNED, *tps(1))
    acknowledgement = member.heartbeat()
    assert owned(acknowledgement) == with_ids(*tps(0, 1))
    member.reply_assignment(acknowledgement)
    member.turn()
    member.carries_out(REVOKED, *tps(0, 1))


def test_a_topic_that_was_deleted_and_created_again_is_revoked_and_assigned_again() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    another = uuid5(topic_id("t"), "created again")
    beat = member.heartbeat(INTERVAL)
    member.reply_heartbeat(beat, assignment={"topic_partitions": [{"topic_id": another, "partitions": [0]}]})
    member.metadata.hint(member.metadata.cluster.updated(_metadata(topic("t", 1, 1, id=another)), everything=True))
    member.turn()
    member.carries_out(REVOKED, *tps(0))
    member.carries_out(ASSIGNED, *tps(0))
    assert owned(member.heartbeat()) == {(another, 0)}


def _metadata(*topics: dict[str, object]) -> Any:
    return answer(Api.METADATA, 13, **view(*topics))


def test_of_two_topics_with_one_name_the_existing_one_counts() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    another = uuid5(topic_id("t"), "created again")
    member.metadata.hint(member.metadata.cluster.updated(_metadata(topic("t", 1, 1, id=another)), everything=True))
    member.reply_heartbeat(member.heartbeat(INTERVAL), assignment={"topic_partitions": [
        {"topic_id": another, "partitions": [1]}, {"topic_id": topic_id("t"), "partitions": [0, 1]}]})
    member.turn()
    member.carries_out(ASSIGNED, *tps(1))
    assert owned(member.heartbeat()) == {(topic_id("t"), 0), (another, 1)}


def test_N09_a_pattern_for_the_brokers_is_sent_unchanged_and_the_assignment_shows_its_topics() -> None:
    member = ConsumerHarness()
    member.subscribes_broker_pattern("[tu].*")
    member.polls()
    join = member.heartbeat()
    assert (join.body.subscribed_topic_names, join.body.subscribed_topic_regex) == ((), "[tu].*")
    member.reply_assignment(join, *tps(0))
    member.turn()
    assert member.group.topics == {"t"}
    assert member.requested_topics() == ["t"], "assigned topics stay in the view"


def test_N09_assigned_topics_stay_in_the_view_after_the_subscription_dropped_them() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.subscribes("u")
    assert member.requested_topics() == ["t", "u"]


def test_N09_the_error_of_a_broker_without_patterns_differs_from_one_without_the_protocol() -> None:
    member = ConsumerHarness()
    member.subscribes_broker_pattern("t")
    member.polls()
    join = member.heartbeat()
    assert join.request.versions is not None
    assert 0 not in join.request.versions
    join.is_not_sent(UnsupportedVersionError("speaks 0"))
    error = member.group.take_error()
    assert isinstance(error, UnsupportedVersionError)
    assert "re.Pattern" in str(error)


def test_N09_a_pattern_of_the_client_sends_topic_names_when_they_change() -> None:
    member = ConsumerHarness()
    member.metadata_shows(t=1, u=1, tt=1)
    member.subscribes_client_pattern("t+")
    member.polls()
    join = member.heartbeat()
    assert (join.body.subscribed_topic_names, join.body.subscribed_topic_regex) == (("t", "tt"), "")
    member.reply_heartbeat(join)
    member.turn()
    member.metadata_shows(t=1, u=1, tt=1, ttt=1)
    assert member.group.topics == {"t", "tt"}
    beat = member.heartbeat()
    assert (changed_fields(beat), beat.body.subscribed_topic_names) == ({"subscribed_topic_names"}, ("t", "tt", "ttt"))
    assert member.group.topics == {"t", "tt", "ttt"}


# --- being lost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [FENCED_EPOCH, UNKNOWN_MEMBER, GROUP_ID_NOT_FOUND])
def test_N07_a_fenced_member_loses_its_partitions_and_joins_again_at_once(code: int) -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0, 2))
    member.reply_error(member.heartbeat(INTERVAL), code)
    assert not member.group.identity.joined
    member.world.after(2 * INTERVAL)
    member.sends_nothing()
    member.carries_out(LOST, *tps(0, 2))
    again = member.heartbeat()
    assert (again.body.member_epoch, owned(again), changed_fields(again)) == (0, set(), EVERYTHING)
    assert member.group.take_error() is None
    member.reply_assignment(again, *tps(1))
    member.turn()
    member.carries_out(ASSIGNED, *tps(1))


def test_N07_a_pending_assignment_is_withdrawn_when_the_member_is_fenced() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(1))
    member.turn()
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.reply_error(member.heartbeat(INTERVAL), FENCED_EPOCH)
    member.sends_nothing()
    member.group.complete(change)
    assert member.group.change is None
    assert member.heartbeat().body.member_epoch == 0


def test_N07_a_change_that_is_begun_when_the_member_is_fenced_is_completed_and_then_lost() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_assignment(member.heartbeat(INTERVAL), *tps(0, 1))
    member.turn()
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.reply_error(member.heartbeat(INTERVAL), FENCED_EPOCH)
    member.group.complete(change)
    member.carries_out(LOST, *tps(0, 1))


def test_a_fenced_join_is_retried_after_a_pause() -> None:
    member = ConsumerHarness()
    member.reply_error(member.sends_join(), UNKNOWN_MEMBER)
    member.sends_nothing()
    member.reply_error(member.heartbeat(1.0), FENCED_EPOCH)
    member.sends_nothing()
    assert member.heartbeat(2.0).body.member_epoch == 0
    assert member.group.take_error() is None


def test_N07_topics_that_may_not_be_read_are_reported_and_the_member_stays_and_retries_at_the_interval() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.subscribes("t", "secret")
    for reported in (False, True, True):
        refused = member.heartbeat()
        assert changed_fields(refused) >= {"subscribed_topic_names"}
        member.reply_error(refused, TOPIC_AUTHORIZATION)
        member.sends_nothing()
        assert isinstance(member.group.take_error(), TopicAuthorizationError if reported else NoneType), "metadata may show the topic first"
        assert member.requested_topics() == ["secret", "t"]
        member.world.after(INTERVAL - 0.1)
        member.sends_nothing()
        assert member.group.state is State.STABLE
        member.world.after(0.1)
    assert changed_fields(member.heartbeat()) == EVERYTHING


def test_N07_a_topic_that_may_not_be_described_is_reported_and_left_out_until_it_may() -> None:
    """The coordinator refuses the whole subscription for one such topic."""
    member = ConsumerHarness()
    member.subscribes("t", "secret")
    member.polls()
    refused = member.heartbeat()
    assert refused.body.subscribed_topic_names == ("secret", "t")
    member.reply_error(refused, TOPIC_AUTHORIZATION)
    member.sends_nothing()
    member.metadata_shows_error(TOPIC_AUTHORIZATION, "secret")
    join = member.heartbeat()
    assert (join.body.member_epoch, join.body.subscribed_topic_names) == (0, ("t",))
    assert "'secret'" in str(member.group.take_error())
    member.reply_assignment(join, *tps(0))
    assert member.group.topics == {"t", "secret"}
    member.turn()
    member.carries_out(ASSIGNED, *tps(0))
    member.reply_heartbeat(member.heartbeat(), epoch=member.epoch)
    member.metadata_shows(t=4, secret=1)
    assert member.heartbeat().body.subscribed_topic_names == ("secret", "t")
    assert member.group.take_error() is None


def test_N07_a_subscription_without_describable_topics_is_sent_whole() -> None:
    member = ConsumerHarness()
    member.metadata_shows_error(TOPIC_AUTHORIZATION)
    member.subscribes()
    member.polls()
    assert member.heartbeat().body.subscribed_topic_names == ("t",)


@pytest.mark.parametrize("code", FATAL)
def test_N07_a_fatal_error_lasts_until_the_consumer_subscribes_again(code: int) -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.reply_error(member.heartbeat(INTERVAL), code, "so it is")
    member.carries_out(LOST, *tps(0))
    for _ in range(2):
        error = member.group.take_error()
        assert isinstance(error, FATAL[code])
        assert "so it is" in str(error.__cause__ or error)
        member.polls()
        member.world.after(10 * REBALANCE)
        member.sends_nothing()
    assert member.group.state is State.FAILED
    member.subscribes()
    assert member.group.take_error() is None
    member.polls()
    assert member.heartbeat().body.member_epoch == 0


def test_N07_the_error_of_brokers_without_the_protocol_names_both_ways_out() -> None:
    member = ConsumerHarness()
    member.sends_join().is_not_sent(UnsupportedVersionError("none"))
    error = member.group.take_error()
    assert isinstance(error, UnsupportedVersionError)
    assert 'group_protocol="classic"' in str(error)
    assert "Kafka 4.0" in str(error)


def test_the_error_of_a_classic_group_that_cannot_change_protocol_names_the_ways_out() -> None:
    member = ConsumerHarness()
    member.reply_error(member.sends_join(), GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")
    error = member.group.take_error()
    assert isinstance(error, GroupIdNotFoundError)
    assert 'group_protocol="classic"' in str(error)
    assert "Group g is not a consumer group." in str(error.__cause__)


def test_a_missing_right_to_the_group_is_reported_by_the_look_up_of_its_coordinator() -> None:
    member = ConsumerHarness()
    member.subscribes()
    member.polls()
    look_up, = member.world.turn(member.group, member.calls)
    look_up.reply(coordinators=[{"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": 30, "error_message": None}])
    assert isinstance(member.group.take_error(), GroupAuthorizationError)
    assert member.group.state is State.FAILED


def test_an_unknown_error_is_reported_and_the_member_stays() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    news = member.notifications
    member.reply_error(member.heartbeat(INTERVAL), UNKNOWN_SERVER)
    assert isinstance(member.group.take_error(), UnknownServerError)
    assert member.notifications > news
    assert (member.group.state, set(member.group.owned)) == (State.STABLE, set(tps(0)))


# --- polling ---------------------------------------------------------------------------------------------------------


def test_N08_a_leave_without_a_response_is_not_sent_again_after_the_member_joined_again() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    member.world.after(REBALANCE)
    leave = member.sends(HEARTBEAT_API)
    member.polls()
    member.carries_out(LOST, *tps(0))
    join = member.heartbeat()
    assert join.body.member_epoch == 0
    leave.is_lost()
    member.world.after(2.0)
    member.sends_nothing()


def test_N08_a_waiting_leave_ends_when_the_member_joins_again() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    ended: list[object] = []
    member.group.leave("unsubscribed", lambda result, error: ended.append(error), None)
    leave = member.sends(HEARTBEAT_API)
    member.subscribes()
    member.polls()
    assert ended == [None]
    assert member.heartbeat().body.member_epoch == 0
    member.reply_error(leave, NOT_COORDINATOR)
    member.world.after(2.0)
    member.sends_nothing()
    assert ended == [None]


# --- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, GROUP_ID_NOT_FOUND, FENCED_EPOCH, FENCED_INSTANCE])
def test_a_leave_of_an_unknown_member_succeeds(code: int) -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    ended: list[object] = []
    member.group.leave("closed", lambda result, error: ended.append(error), None)
    member.reply_error(member.sends(HEARTBEAT_API), code)
    assert ended == [None]


def test_a_leave_refused_by_an_old_coordinator_is_sent_again_within_its_deadline() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    ended: list[Any] = []
    member.group.leave("closed", lambda result, error: ended.append(error), member.world.now + 1.5)
    member.reply_error(member.sends(HEARTBEAT_API), NOT_COORDINATOR)
    member.world.after(1.0)
    assert member.sends(HEARTBEAT_API).body.member_epoch == -1
    member.world.after(0.5)
    member.turn()
    assert isinstance(ended[0], KafkaError)


def test_a_member_whose_join_had_no_response_sends_a_leave_request() -> None:
    member = ConsumerHarness()
    member.sends_join()
    member.group.leave("closed", ignore_result, None)
    member.expect_leave("closed")


def test_N01_a_static_member_leaves_temporarily_and_joins_again() -> None:
    member = ConsumerHarness(instance="i-1")
    member.becomes_stable(*tps(0))
    member.group.leave("closed", ignore_result, None)
    leave = member.sends(HEARTBEAT_API)
    assert (leave.body.member_epoch, leave.body.instance_id) == (-2, "i-1")
    member.reply_heartbeat(leave, epoch=-2)
    assert member.sends_join().body.member_epoch == 0


def test_N08_a_static_member_that_does_not_poll_leaves_temporarily() -> None:
    member = ConsumerHarness(instance="i-1")
    member.becomes_stable(*tps(0))
    member.world.after(REBALANCE)
    leave = member.sends(HEARTBEAT_API)
    assert leave.body.member_epoch == -2
    member.reply_heartbeat(leave, epoch=-2)
    member.polls()
    member.carries_out(LOST, *tps(0))
    assert member.heartbeat().body.member_epoch == 0


def test_a_static_member_whose_leave_had_no_response_leaves_again_before_it_joins() -> None:
    member = ConsumerHarness(instance="i-1")
    member.becomes_stable(*tps(0))
    member.world.after(REBALANCE)
    member.no_reply(member.sends(HEARTBEAT_API))
    member.polls()
    member.carries_out(LOST, *tps(0))
    again = member.heartbeat()
    assert again.body.member_epoch == -2
    member.reply_heartbeat(again, epoch=-2)
    assert member.heartbeat().body.member_epoch == 0


@pytest.mark.parametrize("answers", ["yes", "unknown", "other"])
def test_a_static_member_whose_join_had_no_response_leaves_before_it_joins_again(answers: str) -> None:
    """The coordinator would not release the instance id, not even to the member that holds it (N07)."""
    member = ConsumerHarness(instance="i-1")
    member.no_reply(member.sends_join())
    back = member.heartbeat(1.0)
    assert (back.body.member_epoch, changed_fields(back)) == (-2, set())
    member.no_reply(back)
    back = member.heartbeat(2.0)
    if answers == "yes":
        member.reply_heartbeat(back, epoch=-2)
    else:
        member.reply_error(back, {"unknown": UNKNOWN_MEMBER, "other": FENCED_INSTANCE}[answers])
    assert member.heartbeat().body.member_epoch == 0


def test_a_static_member_whose_join_was_refused_does_not_leave_first() -> None:
    member = ConsumerHarness(instance="i-1")
    member.reply_error(member.sends_join(), LOADING)
    member.sends_nothing()
    assert member.heartbeat(1.0).body.member_epoch == 0


def test_a_fenced_static_member_leaves_before_it_joins_again() -> None:
    member = ConsumerHarness(instance="i-1")
    member.becomes_stable(*tps(0))
    member.reply_error(member.heartbeat(INTERVAL), FENCED_EPOCH)
    member.carries_out(LOST, *tps(0))
    member.reply_heartbeat(member.heartbeat(), epoch=-2)
    assert member.heartbeat().body.member_epoch == 0


def test_an_unknown_static_member_joins_again_at_once() -> None:
    member = ConsumerHarness(instance="i-1")
    member.becomes_stable(*tps(0))
    member.reply_error(member.heartbeat(INTERVAL), UNKNOWN_MEMBER)
    member.carries_out(LOST, *tps(0))
    assert member.heartbeat().body.member_epoch == 0


def test_a_static_member_whose_leave_is_not_authorized_fails() -> None:
    member = ConsumerHarness(instance="i-1")
    member.no_reply(member.sends_join())
    member.reply_error(member.heartbeat(1.0), 30)
    assert isinstance(member.group.take_error(), GroupAuthorizationError)


# --- commits ---------------------------------------------------------------------------------------------------------


def test_N10_a_commit_refused_for_a_stale_epoch_sends_a_heartbeat_at_once() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    before = member.group.identity
    member.group.on_commit_refused(StaleMemberEpochError(), before)
    assert member.group.accepts_commits
    beat = member.heartbeat()
    assert changed_fields(beat) == set()
    member.group.on_commit_refused(StaleMemberEpochError(), before)
    member.reply_heartbeat(beat, epoch=9)
    assert (member.group.identity.generation, set(member.group.owned)) == (9, set(tps(0)))
    member.reply_heartbeat(member.heartbeat(), epoch=9)
    member.sends_nothing()
    member.group.on_commit_refused(StaleMemberEpochError(), before)
    member.sends_nothing()


def test_the_response_to_a_heartbeat_sent_before_the_member_was_lost_is_ignored() -> None:
    member = ConsumerHarness()
    member.becomes_stable(*tps(0))
    late = member.heartbeat(INTERVAL)
    member.group.on_commit_refused(FencedMemberEpochError(), member.group.identity)
    member.carries_out(LOST, *tps(0))
    join = member.heartbeat()
    member.reply_assignment(late, *tps(0, 1, 2), epoch=9)
    member.sends_nothing()
    assert not member.group.identity.joined
    member.reply_assignment(join, *tps(3), epoch=10)
    member.turn()
    member.carries_out(ASSIGNED, *tps(3))
