"""A group of the next generation (KIP-848), without cluster or time: epochs, who has what, and what is told to whom."""
from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.consumer_group import HeartbeatRequest, ConsumerGroup, ConsumerState, Moment
from pyclient.testing.fake.reconciliation import MemberState
from pyclient.testing.fake.refusal import RefusalError
from tests.unit.testing.fake.consumers import Client, Topics, settle


@pytest.fixture
def topics() -> Topics:
    return Topics(t=4)


@pytest.fixture
def group() -> ConsumerGroup:
    """As brokers before 4.3 begin one: then its epoch counts the changes."""
    return ConsumerGroup("g", 0, 0)


def refused(work: object, *args: object, **options: object) -> int:
    assert callable(work)
    with pytest.raises(RefusalError) as caught:
        work(*args, **options)
    return caught.value.code


# ---- reconciliation -----------------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_with_its_first_heartbeat(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t")
    first.step()
    assert first.has() == ["t-0", "t-1", "t-2", "t-3"]
    assert (group.epoch, group.assignment_epoch, first.epoch, group.state) == (1, 1, 1, ConsumerState.STABLE)


def test_a_partition_is_given_away_only_after_its_owner_said_that_it_gave_it_up(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", "t")
    first.step()
    second.step()
    assert (second.has(), second.epoch, group.state) == ([], 2, ConsumerState.RECONCILING)
    first.heartbeat()
    assert topics.names(first.told) == ["t-0", "t-1"]
    assert (first.epoch, group.members["a"].state) == (1, MemberState.UNREVOKED_PARTITIONS)
    for _ in range(3):  # it beats, and has not given anything up yet
        first.heartbeat()
        second.step()
    assert (second.has(), first.epoch) == ([], 1)
    first.reconcile()
    first.heartbeat()
    assert (first.epoch, group.members["a"].state) == (2, MemberState.STABLE)
    assert group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    second.step()
    assert (second.has(), group.state) == (["t-2", "t-3"], ConsumerState.STABLE)


def test_who_leaves_frees_its_partitions_and_the_others_share_them_at_their_next_heartbeat(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", "t")
    settle(first, second)
    second.leave()
    assert (group.epoch, group.assignment_epoch, group.state) == (3, 2, ConsumerState.ASSIGNING)
    first.step()
    assert (first.has(), group.state) == (["t-0", "t-1", "t-2", "t-3"], ConsumerState.STABLE)
    first.leave()
    assert (group.state, group.epoch, group.owners(), group.targets) == (ConsumerState.EMPTY, 4, {}, {})


def test_an_assignment_is_told_when_it_is_news_or_asked_for_and_not_else(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t")
    assert first.heartbeat().assignment is not None
    assert first.heartbeat().assignment is None
    first.heartbeat(lost=True)
    assert first.heartbeat().assignment is not None  # a full request
    second = Client(group, topics, "b", "t")
    assert second.heartbeat().assignment == ()
    assert second.heartbeat().assignment is None
    assert first.heartbeat().assignment is not None


def test_a_partition_that_comes_back_to_who_is_giving_it_up_stays_there(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", "t")
    first.step()
    second.step()
    first.heartbeat()
    second.leave()
    first.reconcile()
    first.heartbeat()
    assert topics.names(first.told) == ["t-0", "t-1", "t-2", "t-3"]  # at once: nobody else can have had it
    assert group.state is ConsumerState.STABLE


def test_more_partitions_are_shared_at_the_next_heartbeat_after_the_group_heard_of_them(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t")
    first.step()
    topics.grow("t")
    first.step()
    assert group.epoch == 1
    group.hear_of("t", is_new=False)
    first.step()
    assert (group.epoch, first.has()) == (2, ["t-0", "t-1", "t-2", "t-3", "t-4"])


def test_topics_nobody_is_subscribed_to_change_nothing(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t")
    first.step()
    topics.create("other", 3)
    group.hear_of("other", is_new=True)
    settle(first)
    assert group.epoch == 1


def test_a_topic_that_is_not_there_yet_is_shared_when_it_is(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "later")
    first.step()
    assert (first.has(), group.state, group.epoch) == ([], ConsumerState.STABLE, 1)
    topics.create("later", 2)
    group.hear_of("later", is_new=True)
    first.step()
    assert (first.has(), group.epoch) == (["later-0", "later-1"], 2)


def test_a_topic_that_was_deleted_is_given_up_and_made_anew_is_another_one(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t")
    first.step()
    del topics.catalog["t"]
    group.hear_of("t", is_new=False)
    first.heartbeat()
    assert (first.told, group.members["a"].state) == (set(), MemberState.UNREVOKED_PARTITIONS)
    first.reconcile()
    topics.create("t", 1)
    group.hear_of("t", is_new=True)
    settle(first)
    assert (first.has(), group.state) == (["t-0"], ConsumerState.STABLE)


# ---- subscriptions ------------------------------------------------------------------------------------------------------


def test_another_subscription_is_another_epoch_and_what_is_not_wanted_any_more_goes_at_once(group: ConsumerGroup, topics: Topics) -> None:
    topics.create("u", 2)
    first = Client(group, topics, "a", "t")
    first.step()
    first.resubscribe("u")
    first.heartbeat()
    assert (first.told, group.epoch, group.members["a"].state) == (set(), 2, MemberState.UNREVOKED_PARTITIONS)
    first.reconcile()
    first.step()
    assert (first.has(), group.state) == (["u-0", "u-1"], ConsumerState.STABLE)


def test_what_is_not_wanted_any_more_goes_before_it_is_known_what_is(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", pattern="t")
    first.step()
    group.match(topics.catalog, 0)
    first.step()
    first.resubscribe(pattern="u")
    first.heartbeat()
    assert (first.told, group.epoch, group.members["a"].state) == (set(), 2, MemberState.UNREVOKED_PARTITIONS)
    first.reconcile()
    first.heartbeat()
    assert (group.owners(), group.state) == ({}, ConsumerState.STABLE)


def test_who_waits_for_partitions_that_it_does_not_want_any_more_does_not_get_them(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", pattern="t")
    first.step()
    second.step()
    group.match(topics.catalog, 0)
    first.step()
    second.step()
    second.resubscribe(pattern="u")
    second.step()
    first.step()
    second.step()
    assert (second.has(), topics.names(group.targets["b"])) == ([], ["t-2", "t-3"])


def test_the_same_topics_in_another_order_are_the_same_subscription(group: ConsumerGroup, topics: Topics) -> None:
    topics.create("u", 2)
    first = Client(group, topics, "a", "t", "u")
    first.step()
    first.resubscribe("u", "t")
    first.step()
    assert group.epoch == 1


def test_the_assignor_most_members_ask_for_is_used_and_the_brokers_own_when_none_does(group: ConsumerGroup, topics: Topics) -> None:
    clients = [Client(group, topics, name, "t", assignor=assignor) for name, assignor in (("a", None), ("b", "range"), ("c", "range"))]
    clients[0].step()
    assert group.assignor == "uniform"
    settle(*clients)
    assert group.assignor == "range"


def test_a_full_group_takes_nobody_but_its_own_members(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t", most=1)
    first.step()
    assert refused(Client(group, topics, "b", "t", most=1).heartbeat) == ErrorCode.group_max_size_reached
    first.step()
    assert list(group.members) == ["a"]


# ---- fencing ------------------------------------------------------------------------------------------------------------


def heartbeat(name: str, epoch: int, **said: object) -> HeartbeatRequest:
    return HeartbeatRequest(member_id=name, epoch=epoch, **said)  # type: ignore[arg-type] # any of its fields


def test_who_is_not_in_the_group_is_unknown(group: ConsumerGroup, topics: Topics) -> None:
    Client(group, topics, "a", "t").step()
    assert refused(group.heartbeat, heartbeat("nobody", 1), Moment(topics.catalog)) == ErrorCode.unknown_member_id
    assert refused(group.heartbeat, heartbeat("nobody", 1, instance="i"), Moment(topics.catalog)) == ErrorCode.unknown_member_id


@pytest.mark.parametrize("epoch", [5, 2])
def test_who_is_in_another_epoch_is_fenced(group: ConsumerGroup, topics: Topics, epoch: int) -> None:
    clients = [Client(group, topics, name, "t") for name in "abc"]
    settle(*clients)
    assert group.members["a"].epoch == 3
    assert refused(group.heartbeat, heartbeat("a", epoch, owned=()), Moment(topics.catalog)) == ErrorCode.fenced_member_epoch


def test_the_epoch_before_will_do_for_who_has_nothing_that_it_may_not_have(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", "t")
    first.step()
    second.step()
    first.heartbeat()
    first.reconcile()
    first.heartbeat(lost=True)
    assert (first.epoch, group.members["a"].epoch) == (1, 2)
    everything = tuple(topics.places("t"))
    assert refused(group.heartbeat, heartbeat("a", 1), Moment(topics.catalog)) == ErrorCode.fenced_member_epoch
    assert refused(group.heartbeat, heartbeat("a", 1, owned=everything), Moment(topics.catalog)) == ErrorCode.fenced_member_epoch
    first.heartbeat()
    assert (first.epoch, first.has()) == (2, ["t-0", "t-1"])


def test_who_joins_again_under_its_id_keeps_what_it_had(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", "t")
    settle(first, second)
    first.abandon()
    first.step()
    assert (first.has(), first.epoch, group.epoch) == (["t-0", "t-1"], 2, 2)


def test_nothing_changes_when_a_heartbeat_is_refused(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t", instance="i")
    first.step()
    before = (dict(group.members), group.epoch, dict(group.statics), dict(group.targets))
    for wrong in (heartbeat("a", 7, instance="i", topics=("u",)), heartbeat("b", 0, instance="i", topics=("u",)), heartbeat("b", 1, instance="i"),
                  heartbeat("c", 0, pattern="(")):
        refused(group.heartbeat, wrong, Moment(topics.catalog))
        assert (group.members, group.epoch, group.statics, group.targets) == before


# ---- static members -----------------------------------------------------------------------------------------------------


def test_a_static_member_that_left_for_now_comes_back_to_its_partitions_without_a_new_epoch(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t", instance="i"), Client(group, topics, "b", "t")
    settle(first, second)
    first.leave(for_now=True)
    second.step()
    assert (second.has(), group.members["a"].epoch) == (["t-2", "t-3"], -2)
    first.return_as("a again")
    first.step()
    assert (first.has(), group.epoch, group.state, list(group.members)) == (["t-0", "t-1"], 2, ConsumerState.STABLE, ["a again", "b"])


def test_a_static_member_that_did_not_leave_keeps_its_instance(group: ConsumerGroup, topics: Topics) -> None:
    Client(group, topics, "a", "t", instance="i").step()
    assert refused(Client(group, topics, "b", "t", instance="i").heartbeat) == ErrorCode.unreleased_instance_id


def test_a_static_member_that_is_fenced_has_to_wait_for_the_end_of_its_own_session(group: ConsumerGroup, topics: Topics) -> None:
    """As it is with real brokers: who it is does not help, its instance is in use."""
    first = Client(group, topics, "a", "t", instance="i")
    first.step()
    first.abandon()
    assert refused(first.heartbeat) == ErrorCode.unreleased_instance_id


def test_who_comes_back_has_what_it_had_since_ever(group: ConsumerGroup, topics: Topics) -> None:
    """Offsets of any epoch are committed for it: they may be those of the member before."""
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", "t", instance="i")
    settle(first, second)
    held = second.owned
    assert refused(group.check_commit, "b", 1, held) == ErrorCode.stale_member_epoch
    second.leave(for_now=True)
    second.return_as("c")
    second.step()
    group.check_commit("c", 1, held)


def test_the_old_self_of_a_static_member_is_fenced(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t", instance="i")
    first.step()
    first.leave(for_now=True)
    Client(group, topics, "b", "t", instance="i").step()
    assert refused(group.heartbeat, heartbeat("a", 1, instance="i"), Moment(topics.catalog)) == ErrorCode.fenced_instance_id
    assert refused(group.static_member, "a", "i") == ErrorCode.fenced_instance_id


def test_a_static_member_that_returns_to_other_topics_is_another_epoch(group: ConsumerGroup, topics: Topics) -> None:
    topics.create("u", 1)
    first = Client(group, topics, "a", "t", instance="i")
    settle(first)
    first.leave(for_now=True)
    first.return_as("b")
    first.resubscribe("u")
    settle(first)
    assert (first.has(), group.epoch) == (["u-0"], 2)


def test_a_static_member_that_leaves_while_it_gives_something_up_frees_that(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t", instance="i"), Client(group, topics, "b", "t")
    first.step()
    second.step()
    first.heartbeat()
    first.leave(for_now=True)
    second.step()
    assert second.has() == ["t-2", "t-3"]


# ---- regular expressions ------------------------------------------------------------------------------------------------


def test_a_regular_expression_is_looked_at_apart_and_means_another_epoch(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", pattern="t.*")
    first.step()
    assert (first.has(), group.epoch, group.wants_match(0, 0, 600)) == ([], 1, True)
    group.match(topics.catalog, 0)
    assert (group.epoch, group.wants_match(1, 0, 600)) == (2, False)
    first.step()
    assert first.has() == ["t-0", "t-1", "t-2", "t-3"]


def test_a_regular_expression_that_others_have_is_known_at_once(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", pattern="t.*"), Client(group, topics, "b", pattern="t.*")
    first.step()
    group.match(topics.catalog, 0)
    settle(first, second)
    assert (second.has(), group.epoch) == (["t-2", "t-3"], 3)


def test_a_topic_that_others_name_and_one_matches_now_is_shared_anew(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", pattern="t")
    settle(first, second)
    group.match(topics.catalog, 0)
    settle(first, second)
    assert (first.has(), second.has(), group.epoch) == (["t-0", "t-1"], ["t-2", "t-3"], 2)


def test_one_that_nobody_wants_any_more_is_forgotten(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", pattern="t.*")
    first.step()
    group.match(topics.catalog, 0)
    settle(first)
    first.resubscribe(pattern="")
    settle(first)
    assert (first.has(), group.patterns) == ([], {})


def test_new_topics_and_age_are_reasons_to_look_again_but_not_too_often(group: ConsumerGroup, topics: Topics) -> None:
    Client(group, topics, "a", pattern="t.*").step()
    group.match(topics.catalog, 100)
    assert not group.wants_match(150, 10, 600)
    group.hear_of("t2", is_new=True)
    assert not group.wants_match(110, 10, 600)
    assert group.wants_match(111, 10, 600)
    group.match(topics.catalog, 111)
    assert group.wants_match(712, 10, 600)


def test_what_is_no_regular_expression_is_refused(group: ConsumerGroup, topics: Topics) -> None:
    assert refused(Client(group, topics, "a", pattern="[t").heartbeat) == ErrorCode.invalid_regular_expression
    assert group.is_empty


# ---- offsets ------------------------------------------------------------------------------------------------------------


def test_who_asks_for_offsets_is_in_its_epoch(group: ConsumerGroup, topics: Topics) -> None:
    Client(group, topics, "a", "t").step()
    group.check_epoch("a", 1)
    assert refused(group.check_epoch, "a", 0) == refused(group.check_epoch, "a", 2) == ErrorCode.stale_member_epoch
    assert refused(group.check_epoch, "b", 1) == ErrorCode.unknown_member_id


def test_who_commits_may_be_in_any_epoch_since_it_got_the_partitions(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", "t")
    settle(first, second)
    held, other = min(first.owned), min(second.owned)
    for epoch in (1, 2):
        group.check_commit("a", epoch, [held])
    assert refused(group.check_commit, "a", 0, [held]) == ErrorCode.stale_member_epoch
    assert refused(group.check_commit, "a", 3, [held]) == ErrorCode.stale_member_epoch
    assert refused(group.check_commit, "a", 1, [held, other]) == ErrorCode.stale_member_epoch
    assert refused(group.check_commit, "b", 1, [other]) == ErrorCode.stale_member_epoch
    assert refused(group.check_commit, "c", 1, [held]) == ErrorCode.unknown_member_id
    group.check_commit("a", 2, [other])  # in its own epoch it is not asked what it has


def test_what_has_to_be_given_up_is_still_committed(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", "t")
    first.step()
    second.step()
    first.heartbeat()
    group.check_commit("a", 1, first.owned)


# ---- sharing not too often ----------------------------------------------------------------------------------------------


def test_a_group_that_shares_every_so_often_is_assigning_until_then(group: ConsumerGroup, topics: Topics) -> None:
    def beat_at(name: str, now: float, **said: object) -> tuple[int, ConsumerState]:
        told = group.heartbeat(heartbeat(name, said.pop("epoch", 0), **said), Moment(topics.catalog, now, interval_s=10))  # type: ignore[arg-type]
        return told.member.epoch, group.state
    joining = {"topics": ("t",), "owned": (), "rebalance_timeout_ms": 1000}
    assert beat_at("a", 100, **joining) == (1, ConsumerState.STABLE)
    assert beat_at("b", 101, **joining) == (1, ConsumerState.ASSIGNING)
    assert (group.epoch, group.owners()) == (2, dict.fromkeys(topics.places("t"), "a"))
    assert beat_at("b", 109.9, epoch=1) == (1, ConsumerState.ASSIGNING)
    assert beat_at("b", 110, epoch=1) == (2, ConsumerState.RECONCILING)
