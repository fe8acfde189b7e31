"""Both protocols offer the consumer the same, and one test for each rule that holds in both: it need not know which one it uses."""
from __future__ import annotations

import re
from typing import TypeAlias

import pytest

from pyclient.core.group.changes import Change, ChangeKind, ChangeQueue
from pyclient.core.group.classic_member import ClassicMember
from pyclient.core.group.consumer_member import ConsumerMember
from pyclient.core.group.coordinator import Identity
from pyclient.core.group.membership import Membership
from pyclient.core.group.subscription import Subscription
from pyclient.errors import (
    FencedInstanceIdError, FencedMemberEpochError, GroupAuthorizationError, IllegalGenerationError, KafkaError,
    TopicAuthorizationError, UnknownMemberIdError, UnknownServerError,
)
from tests.unit.core.consumer_groups import Consumer
from tests.unit.core.groups import REBALANCE, Member, parts
from tests.unit.core.world import MAX_AGE

ASSIGNED, REVOKED, LOST = ChangeKind.ASSIGNED, ChangeKind.REVOKED, ChangeKind.LOST
TOPIC_AUTHORIZATION, GROUP_AUTHORIZATION = 29, 30
RETRY_MAX = 60.0
"""Seconds: longer than any pause."""
NO_POLL = "no poll within max_poll_interval_ms"
Kind: TypeAlias = type[Member] | type[Consumer]
in_both = pytest.mark.parametrize("kind", [Member, Consumer])


def public(group: object) -> set[str]:
    return {name for name in dir(group) if not name.startswith("_")}


def test_members_of_both_protocols_have_one_surface() -> None:
    groups: tuple[Membership, ...] = (Member().group, Consumer().group)
    assert [type(each) for each in groups] == [ClassicMember, ConsumerMember]
    assert public(groups[0]) == public(groups[1]) >= {name for name in public(Membership) if not name.startswith("_")}


# --- being a member, by either protocol ------------------------------------------------------------------------------


@in_both
def test_nobody_joins_before_a_poll(kind: Kind) -> None:
    member = kind()
    assert not member.group.wants_poll
    member.subscribes()
    assert member.group.wants_poll
    member.sends_nothing()
    member.polls()
    member.is_joining()
    assert not member.group.wants_poll


@in_both
def test_G04_N08_who_does_not_poll_leaves_and_learns_with_the_next_poll_that_all_is_lost(kind: Kind) -> None:
    member = kind()
    newcomer = member.group.identity
    member.stable(*parts(0, 1))
    member.world.after(REBALANCE)
    leave = member.is_leaving(NO_POLL)
    assert (member.group.state.name, member.group.identity, member.group.change) == ("OUT", newcomer, None)
    assert member.group.wants_poll
    member.has_left(leave)
    member.world.after(REBALANCE)
    member.sends_nothing()
    member.polls()
    member.takes(LOST, *parts(0, 1))
    assert member.is_joining().body.member_id == newcomer.member_id


@in_both
def test_G04_N08_what_the_user_has_not_begun_when_it_is_put_out_is_not_to_be_done_any_more(kind: Kind) -> None:
    member = kind()
    member.is_given(*parts(0))
    change, news = member.group.change, member.news
    assert change is not None
    member.world.after(REBALANCE)
    member.is_leaving(NO_POLL)
    assert not member.group.begin(change)
    assert member.news > news, "the next poll does not wait for records"


@in_both
def test_G04_N08_what_the_user_was_at_when_it_was_put_out_goes_on_and_is_lost(kind: Kind) -> None:
    member = kind()
    member.is_given(*parts(0))
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.world.after(REBALANCE)
    member.is_leaving(NO_POLL)
    member.group.complete(change)
    member.sends_nothing()
    member.polls()
    member.takes(LOST, *parts(0))


@in_both
def test_G04_a_poll_that_waits_is_no_silence(kind: Kind) -> None:
    member = kind()
    member.stable(*parts(0))
    member.group.polling = True
    member.world.after(REBALANCE)
    member.shows_life()


@in_both
def test_N01_who_leaves_tells_so_and_sends_nothing_more(kind: Kind) -> None:
    member = kind()
    member.stable(*parts(0))
    ended: list[object] = []
    member.group.leave("the consumer is closed", lambda result, error: ended.append(error), None)
    leave = member.is_leaving("the consumer is closed")
    assert not member.group.owned
    assert ended == []
    member.has_left(leave)
    assert ended == [None]
    member.world.after(10 * REBALANCE)
    member.sends_nothing()
    assert not member.group.wants_poll


@in_both
def test_who_was_never_taken_in_leaves_without_a_word(kind: Kind) -> None:
    member = kind()
    member.subscribes()
    ended: list[object] = []
    member.group.leave("closed", lambda result, error: ended.append(error), None)
    assert ended == [None]
    member.sends_nothing()


@in_both
def test_the_topics_subscribed_to_are_kept_in_the_view_and_with_a_pattern_all(kind: Kind) -> None:
    member = kind()
    member.subscribes("t", "u")
    assert member.asks_for_topics() == ["t", "u"]
    member.group.subscribe(Subscription(pattern=re.compile("t+")))
    member.world.after(MAX_AGE)
    assert member.asks_for_topics() is None


@in_both
def test_who_has_left_keeps_no_topics_in_the_view(kind: Kind) -> None:
    member = kind()
    member.stable(*parts(0))
    assert member.asks_for_topics() == ["t"]
    member.group.leave("unsubscribed", lambda result, error: None, None)
    member.world.after(MAX_AGE)
    assert member.asks_for_topics() == []


@in_both
def test_M03_a_topic_that_may_not_be_read_is_told_to_the_user_once(kind: Kind) -> None:
    member = kind()
    member.subscribes()
    member.polls()
    member.tells_error(TOPIC_AUTHORIZATION)
    member.turn()
    assert member.news == 1
    trouble = member.group.take_error()
    assert isinstance(trouble, TopicAuthorizationError)
    assert "'t'" in str(trouble)
    member.tells_error(TOPIC_AUTHORIZATION)
    member.turn()
    assert member.group.take_error() is None


@in_both
def test_who_may_not_be_in_the_group_is_told_by_each_poll_which_tries_again_after_a_pause(kind: Kind) -> None:
    """The right may be granted meanwhile."""
    member = kind()
    member.subscribes()
    member.polls()
    for _ in range(3):
        member.refused(member.is_joining(), GROUP_AUTHORIZATION)
        assert not member.group.wants_poll, "the user has not been told yet"
        member.polls()
        member.world.after(10.0)
        member.sends_nothing()
        assert isinstance(member.group.take_error(), GroupAuthorizationError)
        assert member.group.state.name == "FAILED"
        member.sends_nothing()
        assert member.group.wants_poll
        member.polls()
        member.sends_nothing()
        member.world.after(RETRY_MAX)
    member.is_joining()


# --- what a commit tells of the member -------------------------------------------------------------------------------


@in_both
@pytest.mark.parametrize("error", [TopicAuthorizationError(), GroupAuthorizationError(), UnknownServerError()])
def test_C25_a_commit_that_is_refused_for_other_reasons_leaves_the_member_in_its_group(
        kind: Kind, error: KafkaError, caplog: pytest.LogCaptureFixture) -> None:
    member = kind()
    member.stable(*parts(0))
    member.group.on_commit_refused(error, member.group.identity)
    assert (member.group.state.name, member.group.take_error()) == ("STABLE", None)
    assert caplog.messages == [], "who committed is told"


@in_both
def test_C25_a_commit_that_says_that_another_took_the_place_ends_the_membership(kind: Kind) -> None:
    member = kind(instance="i-1")
    member.stable(*parts(0))
    member.group.on_commit_refused(FencedInstanceIdError(), member.group.identity)
    assert isinstance(member.group.failure, FencedInstanceIdError)
    assert member.group.state.name == "FAILED"
    member.takes(LOST, *parts(0))


@pytest.mark.parametrize(("kind", "error"), [
    (Member, UnknownMemberIdError()), (Member, IllegalGenerationError()), (Consumer, UnknownMemberIdError()), (Consumer, FencedMemberEpochError())])
def test_C25_a_commit_may_tell_that_the_group_went_on_without_the_member_as_it_is_now(kind: Kind, error: KafkaError) -> None:
    member = kind()
    member.stable(*parts(0))
    member.group.on_commit_refused(error, Identity(0, member.group.identity.member_id))
    assert member.group.state.name == "STABLE"
    member.group.on_commit_refused(error, member.group.identity)
    member.takes(LOST, *parts(0))
    member.is_joining()


# --- what the user's thread has to carry out -------------------------------------------------------------------------


@pytest.fixture
def changes() -> ChangeQueue:
    return ChangeQueue()


def carry_out(changes: ChangeQueue) -> Change:
    change = changes.due
    assert change is not None
    assert changes.begin(change)
    assert changes.due is None
    assert changes.complete(change)
    return change


def test_changes_are_carried_out_one_after_the_other(changes: ChangeQueue) -> None:
    changes.add(Change(ASSIGNED, parts(0, 1)))
    changes.add(Change(REVOKED, parts(0)))
    later = Change(ASSIGNED, parts(2))
    changes.add(later)
    assert not changes.begin(later)
    assert [carry_out(changes).kind for _ in range(3)] == [ASSIGNED, REVOKED, ASSIGNED]
    assert list(changes.owned) == [*parts(1), *parts(2)]
    assert not changes


def test_what_is_given_up_is_owned_until_that_is_done_and_what_is_lost_is_not(changes: ChangeQueue) -> None:
    changes.add(Change(ASSIGNED, parts(0, 1)), Change(REVOKED, parts(0)), Change(LOST, parts(1)))
    carry_out(changes)
    for kept in (parts(0, 1), ()):
        change = changes.due
        assert change is not None
        changes.begin(change)
        assert tuple(changes.owned) == kept
        changes.complete(change)


def test_a_partition_that_comes_back_is_another_assignment(changes: ChangeQueue) -> None:
    changes.add(Change(ASSIGNED, parts(0, 1)), Change(REVOKED, parts(0)), Change(ASSIGNED, parts(0)))
    carry_out(changes)
    before = dict(changes.owned)
    carry_out(changes)
    carry_out(changes)
    zero, one = parts(0, 1)
    assert changes.owned[zero] > before[zero]
    assert changes.owned[one] == before[one]


def test_what_was_not_begun_is_withdrawn_and_what_was_goes_on(changes: ChangeQueue) -> None:
    first, second = Change(ASSIGNED, parts(0)), Change(ASSIGNED, parts(1))
    changes.add(first, second)
    changes.begin(first)
    changes.withdraw()
    assert not changes.begin(second)
    assert changes.complete(first)
    assert not changes


def test_who_loses_all_is_told_of_what_it_still_has_when_it_is_done_with_what_it_is_at(changes: ChangeQueue) -> None:
    changes.add(Change(ASSIGNED, parts(0, 1)), Change(REVOKED, parts(0)), Change(ASSIGNED, parts(2)))
    carry_out(changes)
    change = changes.due
    assert change is not None
    changes.begin(change)
    changes.lose()
    assert changes.due is None
    changes.complete(change)
    lost = carry_out(changes)
    assert (lost.kind, lost.partitions) == (LOST, parts(1))
    changes.lose()
    assert not changes


def test_what_is_ended_after_all_was_cleared_changes_nothing(changes: ChangeQueue) -> None:
    change = Change(ASSIGNED, parts(0))
    changes.add(change)
    changes.begin(change)
    changes.clear()
    assert not changes.complete(change)
    assert not changes.owned
