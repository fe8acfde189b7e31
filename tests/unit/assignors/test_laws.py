"""Rules that hold for every group, whatever its members claim."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.records import TopicPartition
from tests.unit.assignors.groups import (
    ASSIGNORS, EVEN, STICKY, Group, assign, cluster, groups, loads, odd_groups, owning, final_assignment, times_assigned, wanting,
)

seeds = st.integers(0, 2**32)
every = pytest.mark.parametrize("name", ASSIGNORS)
even = pytest.mark.parametrize("name", EVEN)
sticky = pytest.mark.parametrize("name", STICKY)


@every
@given(group=st.one_of(groups(), odd_groups(), odd_groups(alike=True)))
def test_A01_every_partition_with_subscribers_is_assigned_to_one_of_them(name: str, group: Group) -> None:
    answer = final_assignment(name, group, 7)
    assert set(answer) == set(group.members)
    assert times_assigned(answer) == dict.fromkeys(group.wanted, 1)
    for member, assignment in answer.items():
        assert set(assignment.partitions) <= group.wanted_by(member)
        assert assignment.user_data is None


@even
@given(group=st.one_of(groups(alike=True), odd_groups(alike=True)))
def test_A02_with_equal_subscriptions_loads_differ_by_at_most_one(name: str, group: Group) -> None:
    counts = loads(final_assignment(name, group, 7)).values()
    assert max(counts) - min(counts) <= 1


@given(group=st.one_of(groups(), odd_groups()))
def test_A02_range_assigns_equally_many_partitions_of_a_topic_plus_or_minus_one(group: Group) -> None:
    answer = assign("range", group)
    for topic in group.cluster.topics:
        takers = [member for member, view in group.members.items() if topic in view.topics]
        counts = [sum(each.topic == topic for each in answer[member].partitions) for member in takers]
        assert not counts or max(counts) - min(counts) <= 1


@sticky
@given(group=groups(racks=False))
def test_A02_no_partition_could_move_to_a_subscriber_with_two_fewer(name: str, group: Group) -> None:
    answer = final_assignment(name, group, 7)
    counts = loads(answer)
    for member, assignment in answer.items():
        for each in assignment.partitions:
            others = [counts[other] for other, view in group.members.items() if each.topic in view.topics]
            assert counts[member] <= min(others) + 1


@every
@given(group=st.one_of(groups(), odd_groups(), odd_groups(alike=True)), seed=seeds)
def test_A03_the_order_of_members_and_topics_makes_no_difference(name: str, group: Group, seed: int) -> None:
    assert assign(name, group) == assign(name, group.shuffled(seed))


# --- stickiness ------------------------------------------------------------------------------------------------------


@sticky
@given(group=groups(racks=False))
def test_A04_nothing_moves_when_nothing_changed(name: str, group: Group) -> None:
    before = final_assignment(name, group, 7)
    assert assign(name, group.after(before, 20)) == before


@sticky
@given(group=groups(alike=True, racks=False), data=st.data())
def test_A04_members_keep_as_many_partitions_as_the_balance_allows(name: str, group: Group, data: st.DataObject) -> None:
    """A member keeps all it owned up to the smaller share, and as many members as possible keep a larger share."""
    owners = data.draw(st.fixed_dictionaries({each: st.sampled_from([None, *group.members]) for each in sorted(group.wanted)}))
    had = {member: [each for each, owner in owners.items() if owner == member] for member in group.members}
    group = group._replace(members={member: owning(view, had[member], 3) for member, view in group.members.items()})
    answer = final_assignment(name, group, 7)
    low, extra = divmod(len(group.wanted), len(group.members))
    kept = [len({*had[member]} & {*answer[member].partitions}) for member in group.members]
    assert sum(kept) == sum(min(low, len(each)) for each in had.values()) + min(extra, sum(len(each) > low for each in had.values()))
    for member, number in zip(group.members, kept, strict=True):
        assert number >= min(low, len(had[member]))


@sticky
@given(group=groups(alike=True, racks=False), data=st.data())
def test_A04_members_that_stay_keep_all_partitions_when_another_leaves(name: str, group: Group, data: st.DataObject) -> None:
    before = final_assignment(name, group, 7)
    leaver = data.draw(st.sampled_from(sorted(group.members)))
    stayed = {member: view for member, view in group.after(before, 20).members.items() if member != leaver}
    if stayed:
        after = assign(name, group._replace(members=stayed))
        assert all({*before[member].partitions} <= {*after[member].partitions} for member in stayed)


@sticky
@given(group=groups(alike=True, racks=False), data=st.data())
def test_A04_a_new_member_moves_nothing_between_the_others(name: str, group: Group, data: st.DataObject) -> None:
    newcomer = data.draw(st.sampled_from(sorted(group.members)))
    first = group._replace(members={member: view for member, view in group.members.items() if member != newcomer})
    if first.members:
        before = final_assignment(name, first, 7)
        joined = group._replace(members=first.after(before, 20).members | {newcomer: group.members[newcomer]})
        after = final_assignment(name, joined, 30)
        assert all({*after[member].partitions} <= {*before[member].partitions} for member in first.members)


# --- cooperative rebalances ------------------------------------------------------------------------------------------


@given(group=st.one_of(odd_groups(), odd_groups(alike=True)))
def test_A05_no_partition_goes_to_a_new_owner_while_another_member_owns_it(group: Group) -> None:
    answer = assign("cooperative-sticky", group)
    for member, assignment in answer.items():
        for each in {*assignment.partitions} - {*group.members[member].owned}:
            assert not [other for other, view in group.members.items() if other != member and each in view.owned]


@given(group=st.one_of(odd_groups(), odd_groups(alike=True)))
def test_A05_an_unassigned_partition_is_still_owned_and_assigned_once_revoked(group: Group) -> None:
    answer = assign("cooperative-sticky", group)
    held_back = group.wanted - set(times_assigned(answer))
    assert held_back <= {each for view in group.members.values() for each in view.owned}
    assert set(times_assigned(final_assignment("cooperative-sticky", group, 7))) == group.wanted


def test_A05_a_group_whose_moves_would_form_a_cycle_becomes_stable() -> None:
    """Found by the rule above: a-0 and b-5 were swapped in every rebalance, and the group never became stable."""
    topics = {"topic-9": 2, "b": 9, "a": 8, "c": 9}
    racks = {TopicPartition("b", 7): {"east"}, TopicPartition("b", 8): {"east", "west"}, **{TopicPartition("a", number): {"east"} for number in range(2, 8)}}
    members = {
        "consumer-0": wanting("c", generation=0, rack="east"), "consumer-1": wanting("topic-9", "b", generation=0),
        "consumer-2": wanting("topic-9", "b", "a", "c", generation=0, rack="east"),
        "c-0": wanting("topic-9", "b", "a", "c", had="a-0", generation=0, rack="west"), "consumer-3": wanting("topic-9", "b", "a", "c", generation=0)}
    final_assignment("cooperative-sticky", Group(cluster(topics, racks), members), 7)
