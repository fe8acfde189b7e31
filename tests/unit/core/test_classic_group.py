"""A member of a classic group: one test for each rule of how it joins, lives, is rebalanced and leaves (G01 to G10); `test_membership` has those of both protocols."""
from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.codec.consumer_protocol import decode_assignment, encode_assignment
from pyclient.core.group.changes import ChangeKind
from pyclient.core.group.classic_member import State
from pyclient.core.group.coordinator import Identity
from pyclient.core.group.subscription import Subscription
from pyclient.core.manager import Use
from pyclient.errors import (
    ConfigurationError, FencedInstanceIdError, GroupAuthorizationError, GroupMaxSizeReachedError, IllegalStateError,
    ProtocolError, RebalanceInProgressError, UnknownServerError,
)
from pyclient.plugins import Assignment
from pyclient.records import TopicPartition
from tests.unit.core.groups import (
    FENCED_INSTANCE, HEARTBEAT, ILLEGAL_GENERATION, MEMBER, MEMBER_ID_REQUIRED, REBALANCE, REBALANCING, SESSION, UNKNOWN_MEMBER,
    Member, OneByOne, parts, read_wishes, wishes,
)
from tests.unit.core.world import Sent

ASSIGNED, REVOKED, LOST = ChangeKind.ASSIGNED, ChangeKind.REVOKED, ChangeKind.LOST
GROUP_AUTHORIZATION, GROUP_FULL, UNKNOWN_SERVER = 30, 81, -1
RETRY_MAX = 60.0
"""Seconds: longer than any pause."""


def cooperative(name: str = "turns") -> OneByOne:
    return OneByOne(name, ("cooperative", "eager"))


# --- joining ---------------------------------------------------------------------------------------------------------


def test_G03_a_new_member_joins_once_more_with_the_id_it_was_given() -> None:
    member = Member()
    member.subscribes()
    member.polls()
    first = member.sends(Api.JOIN_GROUP)
    assert first.body.member_id == ""
    member.joined(first, error_code=MEMBER_ID_REQUIRED)
    assert member.sends(Api.JOIN_GROUP).body.member_id == MEMBER


def test_G03_a_join_may_take_as_long_as_the_rebalance_and_shares_no_connection_with_heartbeats() -> None:
    member = Member()
    member.stable(*parts(0))
    member.is_rebalancing()
    member.takes(REVOKED, *parts(0))
    join = member.sends(Api.JOIN_GROUP)
    assert join.request.timeout == REBALANCE + 5
    assert join.request.use is Use.MEMBERSHIP


def test_a_member_that_follows_gets_its_part_and_the_users_thread_takes_it_over() -> None:
    member = Member()
    member.subscribes()
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP), generation=7)
    sync = member.sends(Api.SYNC_GROUP)
    assert (sync.body.generation_id, sync.body.member_id, list(sync.body.assignments)) == (7, MEMBER, [])
    member.synced(sync, *parts(1, 3))
    assert member.news == 1
    assert not member.group.owned
    member.takes(ASSIGNED, *parts(1, 3))
    assert member.group.state is State.STABLE
    assert member.group.identity == Identity(7, MEMBER)
    assert set(member.group.owned) == set(parts(1, 3))


def test_an_empty_assignment_is_one_too() -> None:
    member = Member()
    member.subscribes()
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP))
    member.sends(Api.SYNC_GROUP).reply(protocol_type="consumer", protocol_name="turns", assignment=b"")
    member.takes(ASSIGNED)


def test_a_damaged_assignment_is_told_to_the_user_and_the_member_joins_again_after_a_pause() -> None:
    member = Member()
    member.subscribes()
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP))
    member.sends(Api.SYNC_GROUP).reply(protocol_type="consumer", protocol_name="turns", assignment=b"\0")
    assert isinstance(member.group.take_error(), ProtocolError)
    assert member.group.take_error() is None
    member.sends_nothing()
    member.world.after(1.0)
    member.sends(Api.JOIN_GROUP)


@pytest.mark.parametrize(("code", "kept"), [(UNKNOWN_MEMBER, ""), (ILLEGAL_GENERATION, MEMBER)])
def test_G03_a_join_or_sync_of_a_member_that_is_not_known_begins_anew(code: int, kept: str) -> None:
    member = Member()
    member.subscribes()
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP))
    member.refused(member.sends(Api.SYNC_GROUP), code)
    again = member.sends(Api.JOIN_GROUP)
    assert again.body.member_id == kept
    member.refused(again, code)
    assert member.sends(Api.JOIN_GROUP).body.member_id == kept


def test_a_sync_that_a_new_rebalance_overtakes_joins_again_as_the_same_member() -> None:
    member = Member()
    member.subscribes()
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP))
    member.refused(member.sends(Api.SYNC_GROUP), REBALANCING)
    assert member.sends(Api.JOIN_GROUP).body.member_id == MEMBER


def test_who_lost_a_right_and_got_it_back_joins_under_the_id_the_group_knows() -> None:
    """Under a new one the group would wait for the old one until its session ends."""
    member = Member()
    member.subscribes()
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP))
    member.refused(member.sends(Api.SYNC_GROUP), GROUP_AUTHORIZATION)
    assert isinstance(member.group.take_error(), GroupAuthorizationError)
    member.polls()
    member.turn()
    member.world.after(RETRY_MAX)
    assert member.sends(Api.JOIN_GROUP).body.member_id == MEMBER


def test_G03_what_refuses_the_member_as_it_is_lasts_until_it_subscribes_anew() -> None:
    member = Member()
    member.subscribes()
    member.polls()
    member.refused(member.sends(Api.JOIN_GROUP), GROUP_FULL)
    for _ in range(2):
        assert isinstance(member.group.take_error(), GroupMaxSizeReachedError)
        member.polls()
        member.sends_nothing()
    member.subscribes()
    member.polls()
    member.sends(Api.JOIN_GROUP)


def test_a_failure_nobody_knows_is_told_and_the_member_joins_again_after_ever_longer_pauses() -> None:
    member = Member()
    member.subscribes()
    member.polls()
    for pause in (1.0, 2.0):
        member.refused(member.sends(Api.JOIN_GROUP), UNKNOWN_SERVER)
        assert member.group.take_error() is not None
        member.sends_nothing()
        member.world.after(pause)
    member.joined(member.sends(Api.JOIN_GROUP))
    member.synced(member.sends(Api.SYNC_GROUP))
    member.takes(ASSIGNED)
    member.is_rebalancing()
    member.refused(member.sends(Api.JOIN_GROUP), UNKNOWN_SERVER)
    member.sends_nothing()
    member.world.after(1.0)
    member.sends(Api.JOIN_GROUP)


# --- heartbeats ------------------------------------------------------------------------------------------------------


def test_G01_heartbeats_begin_with_the_generation_and_go_on_at_their_interval() -> None:
    member = Member()
    member.subscribes()
    member.polls()
    join = member.sends(Api.JOIN_GROUP)
    member.world.after(10 * HEARTBEAT)
    member.sends_nothing()
    member.joined(join)
    sync = member.sends(Api.SYNC_GROUP)
    member.beats().reply()
    member.synced(sync, *parts(0))
    for _ in range(3):
        beat = member.beats()
        assert (beat.body.generation_id, beat.body.member_id) == (1, MEMBER)
        beat.reply()


def test_G01_while_the_user_gives_partitions_up_the_member_lives_on_in_its_old_generation() -> None:
    member = Member()
    member.stable(*parts(0, 1), generation=4)
    member.is_rebalancing()
    assert member.beats().body.generation_id == 4
    assert set(member.group.owned) == set(parts(0, 1))


def test_G01_that_the_group_rebalances_is_heard_only_by_a_stable_member() -> None:
    member = Member()
    member.stable(*parts(0))
    member.is_rebalancing()
    member.is_rebalancing()
    member.takes(REVOKED, *parts(0))
    assert member.group.change is None
    member.sends(Api.JOIN_GROUP)


def test_G01_that_the_group_rebalances_is_not_heard_while_the_user_takes_over() -> None:
    member = Member()
    member.subscribes()
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP))
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0))
    member.is_rebalancing()
    member.takes(ASSIGNED, *parts(0))
    member.is_rebalancing()
    member.takes(REVOKED, *parts(0))


def test_G02_an_answer_to_an_older_generation_is_ignored() -> None:
    member = Member()
    member.stable(*parts(0))
    late = member.beats()
    member.group.on_commit_refused(RebalanceInProgressError(), member.group.identity)
    member.takes(REVOKED, *parts(0))
    member.joined(member.sends(Api.JOIN_GROUP), generation=2)
    late.reply(error_code=UNKNOWN_MEMBER)
    assert member.group.identity == Identity(2, MEMBER)
    assert member.group.state is State.SYNCING


@pytest.mark.parametrize(("code", "kept"), [(UNKNOWN_MEMBER, ""), (ILLEGAL_GENERATION, MEMBER)])
def test_a_member_that_the_group_went_on_without_has_lost_its_partitions_and_joins_anew(code: int, kept: str) -> None:
    member = Member()
    member.stable(*parts(0, 2))
    member.beats().reply(error_code=code)
    assert not member.group.identity.joined
    member.world.after(2 * HEARTBEAT)
    member.sends_nothing()
    member.takes(LOST, *parts(0, 2))
    assert not member.group.owned
    again = member.sends(Api.JOIN_GROUP).body
    assert (again.member_id, again.reason) == (kept, "the group went on without this member")


def test_what_the_user_is_giving_up_when_it_gets_lost_is_not_lost_once_more() -> None:
    member = Member(cooperative())
    member.stable(*parts(0, 1))
    member.is_rebalancing()
    join = member.sends(Api.JOIN_GROUP)
    member.joined(join, generation=2)
    member.synced(member.sends(Api.SYNC_GROUP), *parts(1))
    change = member.group.change
    assert change is not None
    assert change.kind is REVOKED
    assert member.group.begin(change)
    member.beats().reply(error_code=UNKNOWN_MEMBER)
    assert member.group.change is None
    member.group.complete(change)
    member.takes(LOST, *parts(1))
    member.sends(Api.JOIN_GROUP)


def test_G04_a_coordinator_that_is_silent_for_a_session_is_looked_up_again() -> None:
    member = Member()
    member.stable(*parts(0))
    silent = member.beats()
    member.group.polling = True
    member.world.after(SESSION)
    member.sends_nothing()
    silent.is_not_sent(UnknownServerError("no matter"))
    member.world.after(HEARTBEAT)
    assert [each.api for each in member.world.turn(member.group, member.calls)] == [Api.FIND_COORDINATOR]


# --- polling ---------------------------------------------------------------------------------------------------------


def test_G05_a_static_member_that_does_not_poll_only_falls_silent() -> None:
    member = Member(instance="i-1")
    member.stable(*parts(0))
    member.world.after(REBALANCE)
    member.sends_nothing()
    member.polls()
    member.takes(LOST, *parts(0))
    assert member.sends(Api.JOIN_GROUP).body.group_instance_id == "i-1"


# --- rebalances ------------------------------------------------------------------------------------------------------


def test_G06_an_eager_member_gives_everything_up_before_it_joins() -> None:
    member = Member()
    member.stable(*parts(0, 1, 2))
    member.is_rebalancing()
    member.sends_nothing()
    member.takes(REVOKED, *parts(0, 1, 2))
    join = member.sends(Api.JOIN_GROUP)
    assert read_wishes(join)["turns"].owned == ()


def test_G06_a_cooperative_member_keeps_all_gives_up_what_others_get_and_joins_again() -> None:
    member = Member(cooperative())
    member.stable(*parts(0, 1, 2))
    member.is_rebalancing()
    join = member.sends(Api.JOIN_GROUP)
    told = read_wishes(join)["turns"]
    assert (told.owned, told.generation) == (parts(0, 1, 2), 1)
    member.joined(join, generation=2)
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0, 3))
    member.takes(REVOKED, *parts(1, 2))
    member.takes(ASSIGNED, *parts(3))
    assert set(member.group.owned) == set(parts(0, 3))
    again = read_wishes(member.sends(Api.JOIN_GROUP))["turns"]
    assert (set(again.owned), again.generation) == (set(parts(0, 3)), 2)


def test_G06_a_cooperative_member_that_gives_nothing_up_does_not_join_again() -> None:
    member = Member(cooperative())
    member.stable(*parts(0))
    member.is_rebalancing()
    member.joined(member.sends(Api.JOIN_GROUP), generation=2)
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0, 3))
    member.takes(ASSIGNED, *parts(3))
    member.sends_nothing()


def test_G06_a_cooperative_member_gives_up_topics_it_does_not_subscribe_to_any_more_before_it_joins() -> None:
    member = Member(cooperative())
    member.tells(t=2, u=2)
    member.subscribes("t", "u")
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP))
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0), *parts(1, name="u"))
    member.takes(ASSIGNED, *parts(0), *parts(1, name="u"))
    member.subscribes("t")
    member.turn()
    member.takes(REVOKED, *parts(1, name="u"))
    told = read_wishes(member.sends(Api.JOIN_GROUP))["turns"]
    assert (told.topics, told.owned) == (("t",), parts(0))


def test_G07_all_assignors_must_be_cooperative_for_the_member_to_be() -> None:
    member = Member(cooperative("one"), OneByOne("other"))
    member.stable(*parts(0), assignor="one")
    member.is_rebalancing()
    member.takes(REVOKED, *parts(0))
    assert list(read_wishes(member.sends(Api.JOIN_GROUP))) == ["one", "other"]


def test_G07_assignors_without_a_common_way_of_rebalancing_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="one: cooperative; other: eager"):
        Member(OneByOne("one", ("cooperative",)), OneByOne("other", ("eager",)))


def test_a_subscription_that_changes_while_the_group_rebalances_joins_again_when_it_is_stable() -> None:
    member = Member()
    member.tells(t=4, u=1)
    member.subscribes()
    member.polls()
    join = member.sends(Api.JOIN_GROUP)
    member.subscribes("t", "u")
    member.sends_nothing()
    member.joined(join)
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0))
    member.takes(ASSIGNED, *parts(0))
    member.turn()
    member.takes(REVOKED, *parts(0))
    assert read_wishes(member.sends(Api.JOIN_GROUP))["turns"].topics == ("t", "u")


def test_a_pattern_that_matches_other_topics_has_the_member_join_again() -> None:
    member = Member()
    member.group.subscribe(Subscription(pattern=re.compile("t+")))
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP))
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0))
    member.takes(ASSIGNED, *parts(0))
    member.tells(t=4, u=1)
    member.sends_nothing()
    member.tells(t=4, u=1, tt=1)
    member.turn()
    member.takes(REVOKED, *parts(0))
    assert read_wishes(member.sends(Api.JOIN_GROUP))["turns"].topics == ("t", "tt")


def test_G09_partitions_of_topics_that_are_not_subscribed_to_are_not_taken_and_the_member_joins_again() -> None:
    member = Member()
    member.subscribes()
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP))
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0), *parts(0, name="strange"))
    member.takes(ASSIGNED, *parts(0))
    member.turn()
    member.takes(REVOKED, *parts(0))
    member.sends(Api.JOIN_GROUP)


# --- the leader ------------------------------------------------------------------------------------------------------


def lead(member: Member, **members: bytes) -> None:
    member.subscribes()
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP), leader=MEMBER, members={MEMBER: wishes(), **members})


def shares_of(member: Member) -> dict[str, set[int]]:
    sync = member.sends(Api.SYNC_GROUP)
    return {each.member_id: {number for _, number in decode_assignment(bytes(each.assignment)).partitions} for each in sync.body.assignments}


def test_the_leader_shares_out_for_all_and_hands_it_in() -> None:
    member = Member()
    lead(member, zoe=wishes())
    assert shares_of(member) == {MEMBER: {0, 2}, "zoe": {1, 3}}


def test_G08_the_leader_waits_for_the_topics_of_all_members() -> None:
    member = Member()
    lead(member, zoe=wishes("u"))
    member.sends_nothing()
    member.tells(t=4, u=2)
    member.sends(Api.SYNC_GROUP)


def test_heartbeats_go_on_while_the_assignor_works_and_its_result_counts_in_its_generation_only() -> None:
    member = Member(offload_now=False)
    lead(member)
    member.turn()
    member.beats().reply(error_code=ILLEGAL_GENERATION)
    member.joined(member.sends(Api.JOIN_GROUP), generation=2)
    member.sends(Api.SYNC_GROUP)
    member.finish_offloaded()
    member.sends_nothing()


def test_the_result_of_an_older_generation_is_not_handed_in_for_a_newer_one() -> None:
    member = Member(offload_now=False)
    lead(member)
    member.turn()
    member.beats().reply(error_code=ILLEGAL_GENERATION)
    member.joined(member.sends(Api.JOIN_GROUP), generation=2, leader=MEMBER, members={MEMBER: wishes()})
    member.turn()
    assert len(member.offloaded) == 2
    member.finish_offloaded()
    assert member.sends(Api.SYNC_GROUP).body.generation_id == 2


def test_G02_the_result_of_a_generation_whose_number_comes_again_is_not_handed_in() -> None:
    """Found by simulation: a coordinator moved before the assignment was stored; its successor counted from the generation before."""
    member = Member(offload_now=False)
    lead(member)
    member.turn()
    (old,) = member.offloaded
    member.offloaded = []
    member.beats().reply(error_code=ILLEGAL_GENERATION)
    lead_again = member.sends(Api.JOIN_GROUP)
    member.joined(lead_again, generation=1, leader=MEMBER, members={MEMBER: wishes(), "other": wishes()})
    member.turn()
    (new,) = member.offloaded
    member.offloaded = [old]
    member.finish_offloaded()
    member.sends_nothing()
    member.offloaded = [new]
    member.finish_offloaded()
    assert len(member.sends(Api.SYNC_GROUP).body.assignments) == 2


def test_an_assignor_that_raises_is_told_to_the_user_and_the_member_joins_again_after_a_pause() -> None:
    assignor = OneByOne()
    assignor.error = ValueError("cannot share")
    member = Member(assignor)
    lead(member)
    member.sends_nothing()
    assert member.group.take_error() is assignor.error
    member.world.after(1.0)
    member.sends(Api.JOIN_GROUP)


def test_G07_a_cooperative_assignor_that_moves_what_is_owned_at_once_is_stopped() -> None:
    member = Member(cooperative())
    lead(member, a=wishes(owned=parts(1), generation=3), b=wishes(owned=parts(0), generation=3))
    member.sends_nothing()
    error = member.group.take_error()
    assert isinstance(error, IllegalStateError)
    assert "moved t-0 from b to a in one rebalance" in str(error)


def test_damaged_bytes_of_one_member_leave_the_others_their_partitions() -> None:
    member = Member()
    lead(member, broken=b"\0\1\xff")
    assert shares_of(member) == {MEMBER: {0, 1, 2, 3}, "broken": set()}


def test_G08_when_partitions_come_the_leader_has_all_join_again() -> None:
    member = Member()
    lead(member)
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0, 1, 2, 3))
    member.takes(ASSIGNED, *parts(0, 1, 2, 3))
    member.tells(t=4)
    member.sends_nothing()
    member.tells(t=5)
    member.turn()
    member.takes(REVOKED, *parts(0, 1, 2, 3))
    member.sends(Api.JOIN_GROUP)


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_G05_a_static_member_leaves_without_a_word() -> None:
    member = Member(instance="i-1")
    member.stable(*parts(0))
    ended: list[object] = []
    member.group.leave("closed", lambda result, error: ended.append(error), None)
    assert ended == [None]
    member.sends_nothing()


def test_a_fenced_instance_has_lost_all_and_does_not_come_back_by_itself() -> None:
    member = Member(instance="i-1")
    member.stable(*parts(0))
    member.beats().reply(error_code=FENCED_INSTANCE)
    member.takes(LOST, *parts(0))
    assert isinstance(member.group.take_error(), FencedInstanceIdError)
    member.polls()
    member.world.after(10 * REBALANCE)
    member.sends_nothing()


def test_G05_a_static_member_that_comes_back_to_a_cooperative_group_has_it_rebalance_once() -> None:
    """Found by simulation: it was lost between giving partitions up and joining again, was given the rest without a rebalance, and nobody got the others."""
    member = Member(OneByOne(protocols=("cooperative",)), instance="i")
    member.stable(*parts(0, 1))
    member.joined(member.sends(Api.JOIN_GROUP), generation=2)
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0, 1))
    member.takes(ChangeKind.ASSIGNED)
    member.sends_nothing()


def comes_back_as_leader(*partitions: TopicPartition) -> tuple[Member, Sent]:
    """A static member that leads an eager group as before, has nothing to share out, and asks what is."""
    member = Member(instance="i")
    member.tells(t=3)
    member.subscribes()
    member.polls()
    member.joined(member.sends(Api.JOIN_GROUP), leader=MEMBER, members={MEMBER: wishes("t"), "other": wishes("t")}, skips=True)
    sync, survey = sorted(member.turn(), key=lambda sent: sent.api is Api.DESCRIBE_GROUPS)
    assert list(sync.body.assignments) == []
    member.synced(sync, *partitions)
    member.takes(ASSIGNED, *partitions)
    assert (survey.api, list(survey.body.groups)) == (Api.DESCRIBE_GROUPS, ["g"])
    return member, survey


def surveyed(survey: Sent, *shares: Sequence[TopicPartition], state: str = "Stable", error_code: int = 0, damaged: bool = False) -> None:
    members = [{"member_id": str(number), "group_instance_id": None, "client_id": "", "client_host": "", "member_metadata": b"",
                "member_assignment": b"\0" if damaged else encode_assignment(Assignment(tuple(share)))} for number, share in enumerate(shares)]
    survey.reply(groups=[{"error_code": error_code, "group_id": "g", "group_state": state, "protocol_type": "consumer", "protocol_data": "turns",
                          "members": members, "authorized_operations": 0}])


def test_G08_a_leader_that_comes_back_to_partitions_without_owner_shares_them_out() -> None:
    """Found by simulation: they came while the leader was away, and it took what it saw for what was shared out."""
    member, survey = comes_back_as_leader(*parts(0))
    surveyed(survey, parts(0), parts(1))
    member.sends_nothing()
    member.takes(REVOKED, *parts(0))
    assert "partitions" in member.sends(Api.JOIN_GROUP).body.reason


def test_G08_a_leader_that_comes_back_to_a_group_that_has_everything_disturbs_nobody() -> None:
    member, survey = comes_back_as_leader(*parts(0))
    surveyed(survey, parts(0), parts(1, 2))
    member.sends_nothing()
    assert member.group.change is None


@pytest.mark.parametrize("gone", [parts(3), parts(0, name="deleted")], ids=["a topic made anew with fewer", "a topic"])
def test_G08_a_leader_that_comes_back_finds_what_is_gone(gone: Sequence[TopicPartition]) -> None:
    member, survey = comes_back_as_leader(*parts(0))
    surveyed(survey, parts(0), [*parts(1, 2), *gone])
    member.sends_nothing()
    member.takes(REVOKED, *parts(0))
    member.sends(Api.JOIN_GROUP)


@pytest.mark.parametrize("answer", [{"state": "PreparingRebalance"}, {"error_code": GROUP_AUTHORIZATION}, {"damaged": True}])
def test_G08_a_leader_that_cannot_learn_what_is_shared_out_says_so_and_watches_what_it_sees(answer: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pyclient")
    member, survey = comes_back_as_leader(*parts(0))
    surveyed(survey, parts(0), **answer)
    assert "the assignments made before this leader came back are not known" in caplog.text
    member.sends_nothing()
    member.tells(t=4)
    member.sends_nothing()
    member.takes(REVOKED, *parts(0))
    member.sends(Api.JOIN_GROUP)


def test_G08_what_was_shared_out_before_says_nothing_of_the_next_generation() -> None:
    member, survey = comes_back_as_leader(*parts(0))
    member.is_rebalancing()
    member.takes(REVOKED, *parts(0))
    member.joined(member.sends(Api.JOIN_GROUP), generation=2, leader=MEMBER, members={MEMBER: wishes("t")})
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0, 1, 2))
    member.takes(ASSIGNED, *parts(0, 1, 2))
    surveyed(survey, parts(0))
    member.sends_nothing()
    assert member.group.change is None


def test_G05_a_static_member_that_comes_back_to_an_eager_group_disturbs_nobody() -> None:
    member = Member(instance="i")
    member.stable(*parts(0, 1))
    member.sends_nothing()


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCING, MEMBER_ID_REQUIRED])
def test_a_coordinator_that_says_the_same_again_and_again_is_not_asked_at_the_networks_speed(code: int) -> None:
    """Found by simulation: four hundred JoinGroup requests in a second."""
    member = Member()
    member.subscribes()
    member.polls()
    for _ in range(3):
        member.refused(member.sends(Api.JOIN_GROUP), code)
    member.sends_nothing()
    member.world.after(60.0)
    member.polls()
    member.sends(Api.JOIN_GROUP)
