"""A KIP-848 group without cluster or time: epochs, assignments and answers."""
from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.consumer_group import HeartbeatRequest, ConsumerGroup, ConsumerState, Moment
from pyclient.testing.fake.model.reconciliation import MemberState
from pyclient.testing.fake.model.refusal import RefusalError
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


# ---- reconciliation --------------------------------------------------------------------------------------------------


def test_a_partition_assigned_again_during_its_revocation_stays(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", "t")
    first.step()
    second.step()
    first.heartbeat()
    second.leave()
    first.reconcile()
    first.heartbeat()
    assert topics.names(first.target) == ["t-0", "t-1", "t-2", "t-3"]  # at once: no other member can have had it
    assert group.state is ConsumerState.STABLE


def test_topics_without_subscribers_change_nothing(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t")
    first.step()
    topics.create("other", 3)
    group.on_topic_change("other", is_new=True)
    settle(first)
    assert group.epoch == 1


def test_a_deleted_topic_is_revoked_and_one_created_again_is_another_one(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t")
    first.step()
    del topics.catalog["t"]
    group.on_topic_change("t", is_new=False)
    first.heartbeat()
    assert (first.target, group.members["a"].state) == (set(), MemberState.UNREVOKED_PARTITIONS)
    first.reconcile()
    topics.create("t", 1)
    group.on_topic_change("t", is_new=True)
    settle(first)
    assert (first.has(), group.state) == (["t-0"], ConsumerState.STABLE)


# ---- subscriptions ---------------------------------------------------------------------------------------------------


def test_unsubscribed_partitions_are_revoked_before_a_new_pattern_is_resolved(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", pattern="t")
    first.step()
    group.match(topics.catalog, 0)
    first.step()
    first.resubscribe(pattern="u")
    first.heartbeat()
    assert (first.target, group.epoch, group.members["a"].state) == (set(), 2, MemberState.UNREVOKED_PARTITIONS)
    first.reconcile()
    first.heartbeat()
    assert (group.owners(), group.state) == ({}, ConsumerState.STABLE)


def test_a_member_gets_no_partition_it_unsubscribed_from_while_waiting(group: ConsumerGroup, topics: Topics) -> None:
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


def test_a_full_group_accepts_only_its_own_members(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t", most=1)
    first.step()
    assert refused(Client(group, topics, "b", "t", most=1).heartbeat) == ErrorCode.group_max_size_reached
    first.step()
    assert list(group.members) == ["a"]


# ---- fencing ---------------------------------------------------------------------------------------------------------


def heartbeat(name: str, epoch: int, **said: object) -> HeartbeatRequest:
    return HeartbeatRequest(member_id=name, epoch=epoch, **said)  # type: ignore[arg-type] # any of its fields


def test_nothing_changes_when_a_heartbeat_is_refused(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", "t", instance="i")
    first.step()
    before = (dict(group.members), group.epoch, dict(group.statics), dict(group.targets))
    for wrong in (heartbeat("a", 7, instance="i", topics=("u",)), heartbeat("b", 0, instance="i", topics=("u",)), heartbeat("b", 1, instance="i"),
                  heartbeat("c", 0, pattern="(")):
        refused(group.heartbeat, wrong, Moment(topics.catalog))
        assert (group.members, group.epoch, group.statics, group.targets) == before


# ---- static members --------------------------------------------------------------------------------------------------


def test_a_static_member_that_is_fenced_has_to_wait_for_the_end_of_its_own_session(group: ConsumerGroup, topics: Topics) -> None:
    """As it is with real brokers: who it is does not help, its instance is in use."""
    first = Client(group, topics, "a", "t", instance="i")
    first.step()
    first.abandon()
    assert refused(first.heartbeat) == ErrorCode.unreleased_instance_id


def test_a_returning_static_member_has_its_partitions_since_epoch_0(group: ConsumerGroup, topics: Topics) -> None:
    """Offsets of any epoch are committed for it: they may be those of the member before."""
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", "t", instance="i")
    settle(first, second)
    held = second.owned
    assert refused(group.check_commit, "b", 1, held) == ErrorCode.stale_member_epoch
    second.leave(for_now=True)
    second.return_as("c")
    second.step()
    group.check_commit("c", 1, held)


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


# ---- regular expressions ---------------------------------------------------------------------------------------------


def test_a_topic_that_one_names_and_another_matches_is_reassigned(group: ConsumerGroup, topics: Topics) -> None:
    first, second = Client(group, topics, "a", "t"), Client(group, topics, "b", pattern="t")
    settle(first, second)
    group.match(topics.catalog, 0)
    settle(first, second)
    assert (first.has(), second.has(), group.epoch) == (["t-0", "t-1"], ["t-2", "t-3"], 2)


def test_a_pattern_without_subscribers_is_forgotten(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", pattern="t.*")
    first.step()
    group.match(topics.catalog, 0)
    settle(first)
    first.resubscribe(pattern="")
    settle(first)
    assert (first.has(), group.patterns) == ([], {})


def test_a_member_whose_pattern_was_replaced_is_stable_without_what_the_old_one_matched(group: ConsumerGroup, topics: Topics) -> None:
    first = Client(group, topics, "a", pattern="t.*")
    first.step()
    group.match(topics.catalog, 0)
    first.resubscribe(pattern="unresolved")
    Client(group, topics, "b").step()  # the target that is computed for it still has the old pattern's topics
    first.step()
    assert (first.has(), len(group.targets["a"]), group.state) == ([], 4, ConsumerState.STABLE)


def test_new_topics_and_age_are_reasons_to_look_again_but_not_too_often(group: ConsumerGroup, topics: Topics) -> None:
    Client(group, topics, "a", pattern="t.*").step()
    group.match(topics.catalog, 100)
    assert not group.wants_match(150, 10, 600)
    group.on_topic_change("t2", is_new=True)
    assert not group.wants_match(110, 10, 600)
    assert group.wants_match(111, 10, 600)
    group.match(topics.catalog, 111)
    assert group.wants_match(712, 10, 600)
