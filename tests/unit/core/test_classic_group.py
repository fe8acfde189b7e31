"""A member of a classic group: one test for each rule of how it joins, stays alive, rebalances and leaves (G01 to G10).

The rules of both protocols are in `test_membership`.
"""
from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.codec.consumer_protocol import decode_assignment, encode_assignment
from pyclient.core.group.changes import ChangeKind
from pyclient.core.group.classic_calls import heartbeat_call
from pyclient.core.group.classic_member import State
from pyclient.core.group.coordinator import GroupOptions, Identity
from pyclient.core.group.subscription import Subscription
from pyclient.core.manager import Use
from pyclient.core.silence import LONGEST_SILENCE_S
from pyclient.errors import (
    ConfigurationError, FencedInstanceIdError, GroupAuthorizationError, GroupMaxSizeReachedError, IllegalStateError,
    ProtocolError, RebalanceInProgressError,
)
from pyclient.plugins import Assignment
from pyclient.records import TopicPartition
from tests.unit.core.groups import (
    FENCED_INSTANCE, HEARTBEAT, ILLEGAL_GENERATION, MEMBER, MEMBER_ID_REQUIRED, REBALANCE, REBALANCING, SESSION, UNKNOWN_MEMBER,
    ClassicHarness, OneByOne, tps, subscriptions_in, subscription_of,
)
from tests.unit.core.world import Sent

ASSIGNED, REVOKED, LOST = ChangeKind.ASSIGNED, ChangeKind.REVOKED, ChangeKind.LOST
GROUP_AUTHORIZATION, GROUP_FULL, UNKNOWN_SERVER = 30, 81, -1
RETRY_MAX = 60.0
"""Seconds: longer than any pause."""


def cooperative(name: str = "turns") -> OneByOne:
    return OneByOne(name, ("cooperative", "eager"))


# --- joining ---------------------------------------------------------------------------------------------------------


def test_G03_a_new_member_joins_again_with_the_id_the_coordinator_assigned() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    first = member.sends(Api.JOIN_GROUP)
    assert first.body.member_id == ""
    member.reply_joined(first, error_code=MEMBER_ID_REQUIRED)
    assert member.sends(Api.JOIN_GROUP).body.member_id == MEMBER


def test_G03_a_join_may_take_as_long_as_the_rebalance_and_has_its_own_connection() -> None:
    member = ClassicHarness()
    member.becomes_stable(*tps(0))
    member.rebalances()
    member.carries_out(REVOKED, *tps(0))
    join = member.sends(Api.JOIN_GROUP)
    assert join.request.timeout == REBALANCE + 5
    assert join.request.use is Use.MEMBERSHIP


def test_a_follower_gets_its_assignment_and_the_users_thread_carries_it_out() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP), generation=7)
    sync = member.sends(Api.SYNC_GROUP)
    assert (sync.body.generation_id, sync.body.member_id, list(sync.body.assignments)) == (7, MEMBER, [])
    member.reply_assignment(sync, *tps(1, 3))
    assert member.notifications == 1
    assert not member.group.owned
    member.carries_out(ASSIGNED, *tps(1, 3))
    assert member.group.state is State.STABLE
    assert member.group.identity == Identity(7, MEMBER)
    assert set(member.group.owned) == set(tps(1, 3))


def test_an_empty_assignment_is_carried_out_too() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP))
    member.sends(Api.SYNC_GROUP).reply(protocol_type="consumer", protocol_name="turns", assignment=b"")
    member.carries_out(ASSIGNED)


def test_a_damaged_assignment_is_reported_and_the_member_joins_again_after_a_pause() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP))
    member.sends(Api.SYNC_GROUP).reply(protocol_type="consumer", protocol_name="turns", assignment=b"\0")
    assert isinstance(member.group.take_error(), ProtocolError)
    assert member.group.take_error() is None
    member.sends_nothing()
    member.world.after(1.0)
    member.sends(Api.JOIN_GROUP)


@pytest.mark.parametrize(("code", "kept"), [(UNKNOWN_MEMBER, ""), (ILLEGAL_GENERATION, MEMBER)])
def test_G03_a_join_or_sync_of_an_unknown_member_joins_again(code: int, kept: str) -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP))
    member.reply_error(member.sends(Api.SYNC_GROUP), code)
    again = member.sends(Api.JOIN_GROUP)
    assert again.body.member_id == kept
    member.reply_error(again, code)
    assert member.sends(Api.JOIN_GROUP).body.member_id == kept


def test_a_sync_refused_by_a_new_rebalance_joins_again_with_the_same_id() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP))
    member.reply_error(member.sends(Api.SYNC_GROUP), REBALANCING)
    assert member.sends(Api.JOIN_GROUP).body.member_id == MEMBER


def test_a_member_whose_right_was_granted_again_joins_with_its_old_id() -> None:
    """With a new id the group would wait until the session of the old one times out."""
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP))
    member.reply_error(member.sends(Api.SYNC_GROUP), GROUP_AUTHORIZATION)
    assert isinstance(member.group.take_error(), GroupAuthorizationError)
    member.polls()
    member.turn()
    member.world.after(RETRY_MAX)
    assert member.sends(Api.JOIN_GROUP).body.member_id == MEMBER


def test_G03_a_fatal_error_lasts_until_the_consumer_subscribes_again() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    member.reply_error(member.sends(Api.JOIN_GROUP), GROUP_FULL)
    for _ in range(2):
        assert isinstance(member.group.take_error(), GroupMaxSizeReachedError)
        member.polls()
        member.sends_nothing()
    member.subscribes()
    member.polls()
    member.sends(Api.JOIN_GROUP)


def test_an_unknown_error_is_reported_and_the_member_joins_again_after_growing_pauses() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    for pause in (1.0, 2.0):
        member.reply_error(member.sends(Api.JOIN_GROUP), UNKNOWN_SERVER)
        assert member.group.take_error() is not None
        member.sends_nothing()
        member.world.after(pause)
    member.reply_joined(member.sends(Api.JOIN_GROUP))
    member.reply_assignment(member.sends(Api.SYNC_GROUP))
    member.carries_out(ASSIGNED)
    member.rebalances()
    member.reply_error(member.sends(Api.JOIN_GROUP), UNKNOWN_SERVER)
    member.sends_nothing()
    member.world.after(1.0)
    member.sends(Api.JOIN_GROUP)


def at(state: State) -> tuple[ClassicHarness, Sent]:
    """A member in this state, and a request of it that its coordinator may refuse now."""
    member = ClassicHarness(offload_now=False)
    if state in (State.REVOKING, State.STABLE):
        member.becomes_stable(*tps(0))
        if state is State.REVOKING:
            member.rebalances()
        return member, member.heartbeat()
    member.subscribes()
    member.polls()
    join = member.sends(Api.JOIN_GROUP)
    if state is State.JOINING:
        return member, join
    member.reply_joined(join, leader=MEMBER if state is State.ASSIGNING else "other", members={MEMBER: subscription_of("t")})
    if state is State.ASSIGNING:
        member.turn()
        return member, member.heartbeat()
    sync = member.sends(Api.SYNC_GROUP)
    if state is State.SYNCING:
        return member, sync
    member.reply_assignment(sync, *tps(0))
    return member, member.heartbeat()


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, FENCED_INSTANCE])
@pytest.mark.parametrize("state", [State.REVOKING, State.JOINING, State.ASSIGNING, State.SYNCING, State.TAKING_OVER, State.STABLE])
def test_G04_a_member_can_be_lost_or_refused_in_every_state(state: State, code: int) -> None:
    member, sent = at(state)
    assert member.group.state is state
    if sent.api is Api.HEARTBEAT:
        sent.reply(error_code=code)
    else:
        member.reply_error(sent, code)
    assert not member.group.identity.joined
    assert (member.group.state is State.FAILED) == (code == FENCED_INSTANCE)
    if state in (State.REVOKING, State.STABLE):
        member.carries_out(LOST, *tps(0))


@pytest.mark.parametrize("state", [State.REVOKING, State.JOINING, State.ASSIGNING, State.SYNCING, State.TAKING_OVER, State.STABLE])
def test_G05_a_member_can_leave_in_every_state(state: State) -> None:
    member, _ = at(state)
    member.group.leave("closed", lambda _result, _error: None, None)
    assert (member.group.state, member.group.owned, member.group.change) == (State.OUT, {}, None)


# --- heartbeats ------------------------------------------------------------------------------------------------------


def test_G01_heartbeats_begin_with_the_generation_and_keep_their_interval() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    join = member.sends(Api.JOIN_GROUP)
    member.world.after(10 * HEARTBEAT)
    member.sends_nothing()
    member.reply_joined(join)
    sync = member.sends(Api.SYNC_GROUP)
    member.heartbeat().reply()
    member.reply_assignment(sync, *tps(0))
    for _ in range(3):
        beat = member.heartbeat()
        assert (beat.body.generation_id, beat.body.member_id) == (1, MEMBER)
        beat.reply()


def test_G01_the_usual_answer_to_a_heartbeat_needs_no_turn() -> None:
    member = ClassicHarness()
    member.becomes_stable(*tps(0))
    beat = member.heartbeat()
    due = member.world.now + HEARTBEAT
    assert member.group.next_deadline() == due, "known while it is in flight"
    assert beat.reply() is True
    assert member.group.next_deadline() == due
    assert not member.heartbeat().reply(error_code=REBALANCING)


def test_G01_a_heartbeat_that_is_answered_late_is_followed_by_the_next_at_once() -> None:
    member = ClassicHarness()
    member.becomes_stable(*tps(0))
    beat = member.heartbeat()
    member.group.polled_at = member.world.now
    member.world.after(HEARTBEAT + 1)
    member.sends_nothing()
    assert not beat.reply()
    member.sends(Api.HEARTBEAT)


def test_G01_heartbeats_of_the_old_generation_go_on_while_the_user_revokes() -> None:
    member = ClassicHarness()
    member.becomes_stable(*tps(0, 1), generation=4)
    member.rebalances()
    assert member.heartbeat().body.generation_id == 4
    assert set(member.group.owned) == set(tps(0, 1))


def test_G01_only_a_stable_member_reacts_to_a_rebalance() -> None:
    member = ClassicHarness()
    member.becomes_stable(*tps(0))
    member.rebalances()
    member.rebalances()
    member.carries_out(REVOKED, *tps(0))
    assert member.group.change is None
    member.sends(Api.JOIN_GROUP)


def test_G01_a_member_does_not_react_to_a_rebalance_while_the_user_carries_the_assignment_out() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP))
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0))
    member.rebalances()
    member.carries_out(ASSIGNED, *tps(0))
    member.rebalances()
    member.carries_out(REVOKED, *tps(0))


def test_G02_a_response_of_an_older_generation_is_ignored() -> None:
    member = ClassicHarness()
    member.becomes_stable(*tps(0))
    late = member.heartbeat()
    member.group.on_commit_refused(RebalanceInProgressError(), member.group.identity)
    member.carries_out(REVOKED, *tps(0))
    member.reply_joined(member.sends(Api.JOIN_GROUP), generation=2)
    late.reply(error_code=UNKNOWN_MEMBER)
    assert member.group.identity == Identity(2, MEMBER)
    assert member.group.state is State.SYNCING


@pytest.mark.parametrize(("code", "kept"), [(UNKNOWN_MEMBER, ""), (ILLEGAL_GENERATION, MEMBER)])
def test_a_member_unknown_to_its_group_loses_its_partitions_and_joins_again(code: int, kept: str) -> None:
    member = ClassicHarness()
    member.becomes_stable(*tps(0, 2))
    member.heartbeat().reply(error_code=code)
    assert not member.group.identity.joined
    member.world.after(2 * HEARTBEAT)
    member.sends_nothing()
    member.carries_out(LOST, *tps(0, 2))
    assert not member.group.owned
    again = member.sends(Api.JOIN_GROUP).body
    assert (again.member_id, again.reason) == (kept, "the group went on without this member")


def test_partitions_being_revoked_when_all_are_lost_are_not_reported_as_lost() -> None:
    member = ClassicHarness(cooperative())
    member.becomes_stable(*tps(0, 1))
    member.rebalances()
    join = member.sends(Api.JOIN_GROUP)
    member.reply_joined(join, generation=2)
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(1))
    change = member.group.change
    assert change is not None
    assert change.kind is REVOKED
    assert member.group.begin(change)
    member.heartbeat().reply(error_code=UNKNOWN_MEMBER)
    assert member.group.change is None
    member.group.complete(change)
    member.carries_out(LOST, *tps(1))
    member.sends(Api.JOIN_GROUP)


def test_G04_a_coordinator_that_does_not_answer_a_heartbeat_is_looked_up_while_the_answer_is_awaited() -> None:
    member = ClassicHarness()
    member.becomes_stable(*tps(0))
    silent = member.heartbeat()
    assert silent.request.timeout == SESSION / 3, "the rest of the session is for the next heartbeat"
    member.group.polling = True
    member.world.after(HEARTBEAT - 0.1)
    assert not member.world.turn(member.group, member.calls)
    member.world.after(0.1)  # the next heartbeat would be due
    look_up, = member.world.turn(member.group, member.calls)
    assert look_up.api is Api.FIND_COORDINATOR
    member.reply_coordinator(look_up, 2)
    assert [(each.api, each.node) for each in member.world.turn(member.group, member.calls)] == []
    assert silent not in member.world.in_flight, "its connection is given up"
    member.world.after(1.0)
    again, = member.world.turn(member.group, member.calls)
    assert (again.api, again.node) == (Api.HEARTBEAT, 2)


def test_G04_a_coordinator_is_looked_up_before_its_heartbeat_has_failed_also_with_a_short_request_timeout() -> None:
    options = GroupOptions(group_id="g", instance_id=None, session_timeout=SESSION, heartbeat_interval=HEARTBEAT, rebalance_timeout=REBALANCE, request_timeout=2.0)
    call = heartbeat_call(options, Identity(member_id="m", generation=1), lambda _, __: None)
    assert call.timeout is not None
    assert call.silence_timeout_s < call.timeout / 2


def test_G04_a_coordinator_that_hangs_while_members_join_is_looked_up_less_often() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    join = member.sends(Api.JOIN_GROUP)
    member.world.after(LONGEST_SILENCE_S)
    assert member.world.turn(member.group, member.calls) == []
    member.world.after(LONGEST_SILENCE_S)
    look_up, = member.world.turn(member.group, member.calls)
    member.reply_coordinator(look_up, 1)
    assert member.world.turn(member.group, member.calls) == []
    assert join in member.world.in_flight, "the same coordinator: the group may be slow"


# --- polling ---------------------------------------------------------------------------------------------------------


def test_G05_a_static_member_that_does_not_poll_stops_its_heartbeats_and_does_not_leave() -> None:
    member = ClassicHarness(instance="i-1")
    member.becomes_stable(*tps(0))
    member.world.after(REBALANCE)
    member.sends_nothing()
    member.polls()
    member.carries_out(LOST, *tps(0))
    assert member.sends(Api.JOIN_GROUP).body.group_instance_id == "i-1"


# --- rebalances ------------------------------------------------------------------------------------------------------


def test_G06_an_eager_member_revokes_all_partitions_before_it_joins() -> None:
    member = ClassicHarness()
    member.becomes_stable(*tps(0, 1, 2))
    member.rebalances()
    member.sends_nothing()
    member.carries_out(REVOKED, *tps(0, 1, 2))
    join = member.sends(Api.JOIN_GROUP)
    assert subscriptions_in(join)["turns"].owned == ()


def test_G06_a_cooperative_member_keeps_its_partitions_revokes_those_assigned_to_others_and_joins_again() -> None:
    member = ClassicHarness(cooperative())
    member.becomes_stable(*tps(0, 1, 2))
    member.rebalances()
    join = member.sends(Api.JOIN_GROUP)
    sent = subscriptions_in(join)["turns"]
    assert (sent.owned, sent.generation) == (tps(0, 1, 2), 1)
    member.reply_joined(join, generation=2)
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0, 3))
    member.carries_out(REVOKED, *tps(1, 2))
    member.carries_out(ASSIGNED, *tps(3))
    assert set(member.group.owned) == set(tps(0, 3))
    again = subscriptions_in(member.sends(Api.JOIN_GROUP))["turns"]
    assert (set(again.owned), again.generation) == (set(tps(0, 3)), 2)


def test_G06_a_cooperative_member_that_revokes_nothing_does_not_join_again() -> None:
    member = ClassicHarness(cooperative())
    member.becomes_stable(*tps(0))
    member.rebalances()
    member.reply_joined(member.sends(Api.JOIN_GROUP), generation=2)
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0, 3))
    member.carries_out(ASSIGNED, *tps(3))
    member.sends_nothing()


def test_G06_a_cooperative_member_revokes_unsubscribed_topics_before_it_joins() -> None:
    member = ClassicHarness(cooperative())
    member.metadata_shows(t=2, u=2)
    member.subscribes("t", "u")
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP))
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0), *tps(1, name="u"))
    member.carries_out(ASSIGNED, *tps(0), *tps(1, name="u"))
    member.subscribes("t")
    member.turn()
    member.carries_out(REVOKED, *tps(1, name="u"))
    sent = subscriptions_in(member.sends(Api.JOIN_GROUP))["turns"]
    assert (sent.topics, sent.owned) == (("t",), tps(0))


def test_G07_a_member_is_cooperative_only_if_all_its_assignors_are() -> None:
    member = ClassicHarness(cooperative("one"), OneByOne("other"))
    member.becomes_stable(*tps(0), assignor="one")
    member.rebalances()
    member.carries_out(REVOKED, *tps(0))
    assert list(subscriptions_in(member.sends(Api.JOIN_GROUP))) == ["one", "other"]


def test_G07_assignors_without_a_common_rebalance_protocol_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="one: cooperative; other: eager"):
        ClassicHarness(OneByOne("one", ("cooperative",)), OneByOne("other", ("eager",)))


def test_a_subscription_changed_during_a_rebalance_joins_again_once_stable() -> None:
    member = ClassicHarness()
    member.metadata_shows(t=4, u=1)
    member.subscribes()
    member.polls()
    join = member.sends(Api.JOIN_GROUP)
    member.subscribes("t", "u")
    member.sends_nothing()
    member.reply_joined(join)
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0))
    member.carries_out(ASSIGNED, *tps(0))
    member.turn()
    member.carries_out(REVOKED, *tps(0))
    assert subscriptions_in(member.sends(Api.JOIN_GROUP))["turns"].topics == ("t", "u")


def test_a_pattern_that_matches_other_topics_makes_the_member_join_again() -> None:
    member = ClassicHarness()
    member.group.subscribe(Subscription(pattern=re.compile("t+")))
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP))
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0))
    member.carries_out(ASSIGNED, *tps(0))
    member.metadata_shows(t=4, u=1)
    member.sends_nothing()
    member.metadata_shows(t=4, u=1, tt=1)
    member.turn()
    member.carries_out(REVOKED, *tps(0))
    assert subscriptions_in(member.sends(Api.JOIN_GROUP))["turns"].topics == ("t", "tt")


def test_G09_partitions_of_topics_not_subscribed_to_are_not_accepted_and_the_member_joins_again() -> None:
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP))
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0), *tps(0, name="other"))
    member.carries_out(ASSIGNED, *tps(0))
    member.turn()
    member.carries_out(REVOKED, *tps(0))
    member.sends(Api.JOIN_GROUP)


# --- the leader ------------------------------------------------------------------------------------------------------


def lead(member: ClassicHarness, **members: bytes) -> None:
    member.subscribes()
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP), leader=MEMBER, members={MEMBER: subscription_of(), **members})


def assignments_of(member: ClassicHarness) -> dict[str, set[int]]:
    sync = member.sends(Api.SYNC_GROUP)
    return {each.member_id: {number for _, number in decode_assignment(bytes(each.assignment)).partitions} for each in sync.body.assignments}


def test_the_leader_sends_the_assignments_of_all_members() -> None:
    member = ClassicHarness()
    lead(member, zoe=subscription_of())
    assert assignments_of(member) == {MEMBER: {0, 2}, "zoe": {1, 3}}


def test_G08_the_leader_waits_for_the_metadata_of_all_members_topics() -> None:
    member = ClassicHarness()
    lead(member, zoe=subscription_of("u"))
    member.sends_nothing()
    member.metadata_shows(t=4, u=2)
    member.sends(Api.SYNC_GROUP)


def test_heartbeats_go_on_while_the_assignor_works_and_its_result_counts_only_in_its_generation() -> None:
    member = ClassicHarness(offload_now=False)
    lead(member)
    member.turn()
    member.heartbeat().reply(error_code=ILLEGAL_GENERATION)
    member.reply_joined(member.sends(Api.JOIN_GROUP), generation=2)
    member.sends(Api.SYNC_GROUP)
    member.finish_offloaded()
    member.sends_nothing()


def test_the_assignments_of_an_older_generation_are_not_sent_for_a_newer_one() -> None:
    member = ClassicHarness(offload_now=False)
    lead(member)
    member.turn()
    member.heartbeat().reply(error_code=ILLEGAL_GENERATION)
    member.reply_joined(member.sends(Api.JOIN_GROUP), generation=2, leader=MEMBER, members={MEMBER: subscription_of()})
    member.turn()
    assert len(member.offloaded) == 2
    member.finish_offloaded()
    assert member.sends(Api.SYNC_GROUP).body.generation_id == 2


def test_G02_the_assignments_of_an_older_generation_with_the_same_number_are_not_sent() -> None:
    """Found by simulation: a coordinator moved before the assignments were stored, and the new one counted from the
    generation before.
    """
    member = ClassicHarness(offload_now=False)
    lead(member)
    member.turn()
    (old,) = member.offloaded
    member.offloaded = []
    member.heartbeat().reply(error_code=ILLEGAL_GENERATION)
    lead_again = member.sends(Api.JOIN_GROUP)
    member.reply_joined(lead_again, generation=1, leader=MEMBER, members={MEMBER: subscription_of(), "other": subscription_of()})
    member.turn()
    (new,) = member.offloaded
    member.offloaded = [old]
    member.finish_offloaded()
    member.sends_nothing()
    member.offloaded = [new]
    member.finish_offloaded()
    assert len(member.sends(Api.SYNC_GROUP).body.assignments) == 2


def test_an_assignors_error_is_reported_and_the_member_joins_again_after_a_pause() -> None:
    assignor = OneByOne()
    assignor.error = ValueError("cannot assign")
    member = ClassicHarness(assignor)
    lead(member)
    member.sends_nothing()
    assert member.group.take_error() is assignor.error
    member.world.after(1.0)
    member.sends(Api.JOIN_GROUP)


def test_G07_a_cooperative_assignor_that_moves_an_owned_partition_in_one_rebalance_fails() -> None:
    member = ClassicHarness(cooperative())
    lead(member, a=subscription_of(owned=tps(1), generation=3), b=subscription_of(owned=tps(0), generation=3))
    member.sends_nothing()
    error = member.group.take_error()
    assert isinstance(error, IllegalStateError)
    assert "moved t-0 from b to a in one rebalance" in str(error)


def test_a_damaged_subscription_leaves_the_other_members_their_partitions() -> None:
    member = ClassicHarness()
    lead(member, broken=b"\0\1\xff")
    assert assignments_of(member) == {MEMBER: {0, 1, 2, 3}, "broken": set()}


def test_G08_the_leader_starts_a_rebalance_when_partitions_are_added() -> None:
    member = ClassicHarness()
    lead(member)
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0, 1, 2, 3))
    member.carries_out(ASSIGNED, *tps(0, 1, 2, 3))
    member.metadata_shows(t=4)
    member.sends_nothing()
    member.metadata_shows(t=5)
    member.turn()
    member.carries_out(REVOKED, *tps(0, 1, 2, 3))
    member.sends(Api.JOIN_GROUP)


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_G05_a_static_member_leaves_without_a_request() -> None:
    member = ClassicHarness(instance="i-1")
    member.becomes_stable(*tps(0))
    ended: list[object] = []
    member.group.leave("closed", lambda result, error: ended.append(error), None)
    assert ended == [None]
    member.sends_nothing()


def test_a_fenced_instance_loses_its_partitions_and_does_not_join_again() -> None:
    member = ClassicHarness(instance="i-1")
    member.becomes_stable(*tps(0))
    member.heartbeat().reply(error_code=FENCED_INSTANCE)
    member.carries_out(LOST, *tps(0))
    assert isinstance(member.group.take_error(), FencedInstanceIdError)
    member.polls()
    member.world.after(10 * REBALANCE)
    member.sends_nothing()


def test_G05_a_static_member_that_returns_to_a_cooperative_group_starts_one_rebalance() -> None:
    """Found by simulation: it was lost between revoking and joining again, got the rest without a rebalance, and no
    member got the others.
    """
    member = ClassicHarness(OneByOne(protocols=("cooperative",)), instance="i")
    member.becomes_stable(*tps(0, 1))
    member.reply_joined(member.sends(Api.JOIN_GROUP), generation=2)
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0, 1))
    member.carries_out(ChangeKind.ASSIGNED)
    member.sends_nothing()


def returns_as_leader(*partitions: TopicPartition) -> tuple[ClassicHarness, Sent]:
    """A static member that leads an eager group as before, keeps the assignments, and looks them up."""
    member = ClassicHarness(instance="i")
    member.metadata_shows(t=3)
    member.subscribes()
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP), leader=MEMBER, members={MEMBER: subscription_of("t"), "other": subscription_of("t")}, skips=True)
    sync, lookup = sorted(member.turn(), key=lambda sent: sent.api is Api.DESCRIBE_GROUPS)
    assert list(sync.body.assignments) == []
    member.reply_assignment(sync, *partitions)
    member.carries_out(ASSIGNED, *partitions)
    assert (lookup.api, list(lookup.body.groups)) == (Api.DESCRIBE_GROUPS, ["g"])
    return member, lookup


def described(lookup: Sent, *shares: Sequence[TopicPartition], state: str = "Stable", error_code: int = 0, damaged: bool = False) -> None:
    members = [{"member_id": str(number), "group_instance_id": None, "client_id": "", "client_host": "", "member_metadata": b"",
                "member_assignment": b"\0" if damaged else encode_assignment(Assignment(tuple(share)))} for number, share in enumerate(shares)]
    lookup.reply(groups=[{"error_code": error_code, "group_id": "g", "group_state": state, "protocol_type": "consumer", "protocol_data": "turns",
                          "members": members, "authorized_operations": 0}])


def test_G08_a_leader_that_returns_starts_a_rebalance_for_partitions_without_an_owner() -> None:
    """Found by simulation: they were added while the leader was away, and it assumed that they were assigned."""
    member, lookup = returns_as_leader(*tps(0))
    described(lookup, tps(0), tps(1))
    member.sends_nothing()
    member.carries_out(REVOKED, *tps(0))
    assert "partitions" in member.sends(Api.JOIN_GROUP).body.reason


def test_G08_a_leader_that_returns_to_complete_assignments_starts_no_rebalance() -> None:
    member, lookup = returns_as_leader(*tps(0))
    described(lookup, tps(0), tps(1, 2))
    member.sends_nothing()
    assert member.group.change is None


@pytest.mark.parametrize("gone", [tps(3), tps(0, name="deleted")], ids=["of a topic created again with fewer", "of a deleted topic"])
def test_G08_a_leader_that_returns_starts_a_rebalance_for_partitions_that_do_not_exist_any_more(gone: Sequence[TopicPartition]) -> None:
    member, lookup = returns_as_leader(*tps(0))
    described(lookup, tps(0), [*tps(1, 2), *gone])
    member.sends_nothing()
    member.carries_out(REVOKED, *tps(0))
    member.sends(Api.JOIN_GROUP)


@pytest.mark.parametrize("answer", [{"state": "PreparingRebalance"}, {"error_code": GROUP_AUTHORIZATION}, {"damaged": True}])
def test_G08_a_leader_that_cannot_look_up_the_assignments_logs_that_and_takes_them_for_complete(answer: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pyclient")
    member, lookup = returns_as_leader(*tps(0))
    described(lookup, tps(0), **answer)
    assert "the assignments made before this leader came back are not known" in caplog.text
    member.sends_nothing()
    member.metadata_shows(t=4)
    member.sends_nothing()
    member.carries_out(REVOKED, *tps(0))
    member.sends(Api.JOIN_GROUP)


def test_G08_looked_up_assignments_do_not_count_in_the_next_generation() -> None:
    member, lookup = returns_as_leader(*tps(0))
    member.rebalances()
    member.carries_out(REVOKED, *tps(0))
    member.reply_joined(member.sends(Api.JOIN_GROUP), generation=2, leader=MEMBER, members={MEMBER: subscription_of("t")})
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0, 1, 2))
    member.carries_out(ASSIGNED, *tps(0, 1, 2))
    described(lookup, tps(0))
    member.sends_nothing()
    assert member.group.change is None


def test_G05_a_static_member_that_returns_to_an_eager_group_starts_no_rebalance() -> None:
    member = ClassicHarness(instance="i")
    member.becomes_stable(*tps(0, 1))
    member.sends_nothing()


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCING, MEMBER_ID_REQUIRED])
def test_repeated_join_errors_are_retried_with_pauses(code: int) -> None:
    """Found by simulation: four hundred JoinGroup requests in a second."""
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    for _ in range(3):
        member.reply_error(member.sends(Api.JOIN_GROUP), code)
    member.sends_nothing()
    member.world.after(60.0)
    member.polls()
    member.sends(Api.JOIN_GROUP)
