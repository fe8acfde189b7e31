"""The rules that hold for members of both protocols, one test each, and the queue of changes."""
from __future__ import annotations

import re
from typing import TypeAlias

import pytest

from pyclient.core.group.changes import Change, ChangeKind, ChangeQueue
from pyclient.core.group.coordinator import Identity
from pyclient.core.group.membership import Membership
from pyclient.core.group.subscription import Subscription
from pyclient.errors import (
    FencedInstanceIdError, FencedMemberEpochError, GroupAuthorizationError, IllegalGenerationError, KafkaError,
    TopicAuthorizationError, UnknownMemberIdError, UnknownServerError,
)
from tests.unit.core.consumer_groups import ConsumerHarness
from tests.unit.core.groups import REBALANCE, ClassicHarness, tps
from tests.unit.core.world import MAX_AGE

ASSIGNED, REVOKED, LOST = ChangeKind.ASSIGNED, ChangeKind.REVOKED, ChangeKind.LOST
TOPIC_AUTHORIZATION, GROUP_AUTHORIZATION = 29, 30
RETRY_MAX = 60.0
"""Seconds: longer than any pause."""
NO_POLL = "no poll within max_poll_interval_ms"
Kind: TypeAlias = type[ClassicHarness] | type[ConsumerHarness]
in_both = pytest.mark.parametrize("kind", [ClassicHarness, ConsumerHarness])


def public(group: object) -> set[str]:
    return {name for name in dir(group) if not name.startswith("_")}


def test_both_protocols_add_no_public_names_to_membership() -> None:
    classic, consumer = ClassicHarness().group, ConsumerHarness().group
    assert public(classic) == public(consumer) >= public(Membership)


# --- membership by either protocol ------------------------------------------------------------------------------------


@in_both
def test_a_member_joins_with_the_first_poll(kind: Kind) -> None:
    member = kind()
    assert not member.group.wants_poll
    member.subscribes()
    assert member.group.wants_poll
    member.sends_nothing()
    member.polls()
    member.expect_join()
    assert not member.group.wants_poll


@in_both
def test_G04_N08_a_member_that_does_not_poll_leaves_and_its_next_poll_reports_the_partitions_as_lost(kind: Kind) -> None:
    member = kind()
    newcomer = member.group.identity
    member.becomes_stable(*tps(0, 1))
    member.world.after(REBALANCE)
    leave = member.expect_leave(NO_POLL)
    assert (member.group.state.name, member.group.identity, member.group.change) == ("OUT", newcomer, None)
    assert member.group.wants_poll
    member.reply_left(leave)
    member.world.after(REBALANCE)
    member.sends_nothing()
    member.polls()
    member.carries_out(LOST, *tps(0, 1))
    assert member.expect_join().body.member_id == newcomer.member_id


@in_both
def test_G04_N08_a_change_that_is_not_begun_is_withdrawn_when_the_member_expires(kind: Kind) -> None:
    member = kind()
    member.receives_assignment(*tps(0))
    change, news = member.group.change, member.notifications
    assert change is not None
    member.world.after(REBALANCE)
    member.expect_leave(NO_POLL)
    assert not member.group.begin(change)
    assert member.notifications > news, "the next poll returns at once"


@in_both
def test_G04_N08_a_change_that_is_begun_when_the_member_expires_is_completed_and_then_lost(kind: Kind) -> None:
    member = kind()
    member.receives_assignment(*tps(0))
    change = member.group.change
    assert change is not None
    assert member.group.begin(change)
    member.world.after(REBALANCE)
    member.expect_leave(NO_POLL)
    member.group.complete(change)
    member.sends_nothing()
    member.polls()
    member.carries_out(LOST, *tps(0))


@in_both
def test_G04_a_member_does_not_expire_while_the_user_waits_in_poll(kind: Kind) -> None:
    member = kind()
    member.becomes_stable(*tps(0))
    member.group.polling = True
    member.world.after(REBALANCE)
    member.expect_heartbeat()


@in_both
def test_N01_a_member_that_leaves_sends_one_leave_request_and_nothing_more(kind: Kind) -> None:
    member = kind()
    member.becomes_stable(*tps(0))
    ended: list[object] = []
    member.group.leave("the consumer is closed", lambda result, error: ended.append(error), None)
    leave = member.expect_leave("the consumer is closed")
    assert not member.group.owned
    assert ended == []
    member.reply_left(leave)
    assert ended == [None]
    member.world.after(10 * REBALANCE)
    member.sends_nothing()
    assert not member.group.wants_poll


@in_both
def test_a_consumer_that_never_joined_leaves_without_a_request(kind: Kind) -> None:
    member = kind()
    member.subscribes()
    ended: list[object] = []
    member.group.leave("closed", lambda result, error: ended.append(error), None)
    assert ended == [None]
    member.sends_nothing()


@in_both
def test_subscribed_topics_stay_in_the_view_and_a_pattern_keeps_all_topics(kind: Kind) -> None:
    member = kind()
    member.subscribes("t", "u")
    assert member.requested_topics() == ["t", "u"]
    member.group.subscribe(Subscription(pattern=re.compile("t+")))
    member.world.after(MAX_AGE)
    assert member.requested_topics() is None


@in_both
def test_a_member_that_left_keeps_no_topics_in_the_view(kind: Kind) -> None:
    member = kind()
    member.becomes_stable(*tps(0))
    assert member.requested_topics() == ["t"]
    member.group.leave("unsubscribed", lambda result, error: None, None)
    member.world.after(MAX_AGE)
    assert member.requested_topics() == []


@in_both
def test_M03_a_topic_that_may_not_be_read_is_reported_once(kind: Kind) -> None:
    member = kind()
    member.subscribes()
    member.polls()
    member.metadata_shows_error(TOPIC_AUTHORIZATION)
    member.turn()
    assert member.notifications == 1
    trouble = member.group.take_error()
    assert isinstance(trouble, TopicAuthorizationError)
    assert "'t'" in str(trouble)
    member.metadata_shows_error(TOPIC_AUTHORIZATION)
    member.turn()
    assert member.group.take_error() is None


@in_both
def test_a_missing_right_to_the_group_is_raised_by_each_poll_which_joins_again_after_a_pause(kind: Kind) -> None:
    """The right may be granted meanwhile."""
    member = kind()
    member.subscribes()
    member.polls()
    for _ in range(3):
        member.reply_error(member.expect_join(), GROUP_AUTHORIZATION)
        assert not member.group.wants_poll, "poll has not raised the error yet"
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
    member.expect_join()


# --- refused commits --------------------------------------------------------------------------------------------------


@in_both
@pytest.mark.parametrize("error", [TopicAuthorizationError(), GroupAuthorizationError(), UnknownServerError()])
def test_C25_a_commit_refused_for_its_offsets_leaves_the_member_in_its_group(
        kind: Kind, error: KafkaError, caplog: pytest.LogCaptureFixture) -> None:
    member = kind()
    member.becomes_stable(*tps(0))
    member.group.on_commit_refused(error, member.group.identity)
    assert (member.group.state.name, member.group.take_error()) == ("STABLE", None)
    assert caplog.messages == [], "the commit raises the error; nothing is logged"


@in_both
def test_C25_a_commit_refused_with_a_fenced_instance_ends_the_membership(kind: Kind) -> None:
    member = kind(instance="i-1")
    member.becomes_stable(*tps(0))
    member.group.on_commit_refused(FencedInstanceIdError(), member.group.identity)
    assert isinstance(member.group.failure, FencedInstanceIdError)
    assert member.group.state.name == "FAILED"
    member.carries_out(LOST, *tps(0))


@pytest.mark.parametrize(("kind", "error"), [
    (ClassicHarness, UnknownMemberIdError()), (ClassicHarness, IllegalGenerationError()), (ConsumerHarness, UnknownMemberIdError()), (ConsumerHarness, FencedMemberEpochError())])
def test_C25_a_refused_commit_counts_only_with_the_current_identity(kind: Kind, error: KafkaError) -> None:
    member = kind()
    member.becomes_stable(*tps(0))
    member.group.on_commit_refused(error, Identity(0, member.group.identity.member_id))
    assert member.group.state.name == "STABLE"
    member.group.on_commit_refused(error, member.group.identity)
    member.carries_out(LOST, *tps(0))
    member.expect_join()


# --- the queue of changes ---------------------------------------------------------------------------------------------


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


def test_changes_are_carried_out_in_order(changes: ChangeQueue) -> None:
    changes.add(Change(ASSIGNED, tps(0, 1)))
    changes.add(Change(REVOKED, tps(0)))
    later = Change(ASSIGNED, tps(2))
    changes.add(later)
    assert not changes.begin(later)
    assert [carry_out(changes).kind for _ in range(3)] == [ASSIGNED, REVOKED, ASSIGNED]
    assert list(changes.owned) == [*tps(1), *tps(2)]
    assert not changes


def test_revoked_partitions_are_owned_until_the_change_is_completed_and_lost_ones_until_it_begins(changes: ChangeQueue) -> None:
    changes.add(Change(ASSIGNED, tps(0, 1)), Change(REVOKED, tps(0)), Change(LOST, tps(1)))
    carry_out(changes)
    for kept in (tps(0, 1), ()):
        change = changes.due
        assert change is not None
        changes.begin(change)
        assert tuple(changes.owned) == kept
        changes.complete(change)


def test_a_partition_assigned_again_gets_a_new_assignment_number(changes: ChangeQueue) -> None:
    changes.add(Change(ASSIGNED, tps(0, 1)), Change(REVOKED, tps(0)), Change(ASSIGNED, tps(0)))
    carry_out(changes)
    before = dict(changes.owned)
    carry_out(changes)
    carry_out(changes)
    zero, one = tps(0, 1)
    assert changes.owned[zero] > before[zero]
    assert changes.owned[one] == before[one]


def test_a_change_that_is_begun_is_known_until_it_is_completed(changes: ChangeQueue) -> None:
    change = Change(ASSIGNED, tps(0))
    changes.add(change)
    assert changes.begun is None
    changes.begin(change)
    assert (changes.due, changes.begun) == (None, change)
    changes.complete(change)
    assert changes.begun is None


def test_only_changes_that_are_not_begun_are_withdrawn(changes: ChangeQueue) -> None:
    first, second = Change(ASSIGNED, tps(0)), Change(ASSIGNED, tps(1))
    changes.add(first, second)
    changes.begin(first)
    changes.withdraw()
    assert not changes.begin(second)
    assert changes.complete(first)
    assert not changes


def test_partitions_still_owned_after_the_begun_change_are_reported_as_lost(changes: ChangeQueue) -> None:
    changes.add(Change(ASSIGNED, tps(0, 1)), Change(REVOKED, tps(0)), Change(ASSIGNED, tps(2)))
    carry_out(changes)
    change = changes.due
    assert change is not None
    changes.begin(change)
    changes.lose()
    assert changes.due is None
    changes.complete(change)
    lost = carry_out(changes)
    assert (lost.kind, lost.partitions) == (LOST, tps(1))
    changes.lose()
    assert not changes


def test_a_change_completed_after_clear_changes_nothing(changes: ChangeQueue) -> None:
    change = Change(ASSIGNED, tps(0))
    changes.add(change)
    changes.begin(change)
    changes.clear()
    assert not changes.complete(change)
    assert not changes.owned
