"""KIP-848 groups at the fake's coordinators, in virtual time: requests, timers, moves, and what others see of them."""
from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from pyclient.codec.apis import Api
from pyclient.records import TopicPartition
from pyclient.testing.fake import view
from pyclient.testing.fake.model.consumer_group import ConsumerState
from pyclient.testing.fake.model.group import Group
from pyclient.testing.fake.model.profiles import PROFILES
from tests.unit.testing.fake.classic_members import SOON_S
from tests.unit.testing.fake.consumer_members import REBALANCE_S, SESSION_S, ConsumerMembers


@pytest.fixture
def members() -> Iterator[ConsumerMembers]:
    with ConsumerMembers() as found:
        yield found


# ---- requests --------------------------------------------------------------------------------------------------------


def test_a_full_group_rejects_a_new_member() -> None:
    with ConsumerMembers(group_consumer_max_size=1) as members:
        members.enter("a")
        assert members.enter("b").error_code == 81
        assert members.heartbeat("a").error_code == 0


def test_a_release_without_the_protocol_answers_unsupported_version(members: ConsumerMembers) -> None:
    members.kafka.profile = PROFILES["3.9"]
    assert members.enter("a", version=0).error_code == 35
    assert members.described(version=0).error_code == 35


# ---- time ------------------------------------------------------------------------------------------------------------


def test_an_expired_session_frees_the_members_partitions(members: ConsumerMembers) -> None:
    members.pair()
    for _ in range(4):
        members.advance(SESSION_S / 3)
        members.heartbeat("a")
    assert list(members.consumers.members) == ["a"]
    assert members.given(members.heartbeat("a", owned=(0, 1))) in ([0, 1, 2, 3], None)
    assert sorted(index for _, index in members.consumers.owners()) == [0, 1, 2, 3]
    assert members.heartbeat("b").error_code == 25
    assert [each["member"] for each in members.reported("member left")] == ["b"]


def test_a_member_that_revoked_in_time_is_not_fenced(members: ConsumerMembers) -> None:
    members.pair()
    for _ in range(10):
        members.advance(REBALANCE_S / 2)
        assert [members.heartbeat(each).error_code for each in "ab"] == [0, 0]


def test_a_member_that_revoked_without_a_new_epoch_is_not_fenced(members: ConsumerMembers) -> None:
    members.enter("a", None, subscribed_topic_regex="t")
    members.soon()
    members.heartbeat("a")
    members.enter("b")  # it names the topic: what the other one wants is no news to the group
    members.heartbeat("a")
    members.heartbeat("a", owned=(0, 1))
    epoch = members.epochs["a"]
    assert members.given(members.heartbeat("a", subscribed_topic_regex="nothing")) == []
    members.soon()
    assert members.heartbeat("a", owned=()).member_epoch == epoch
    members.advance(REBALANCE_S + 1)
    assert members.heartbeat("a").error_code == 0


def test_the_session_of_a_static_member_that_does_not_return_expires(members: ConsumerMembers) -> None:
    members.enter("a", instance_id="i")
    members.advance(SESSION_S / 2)
    assert members.heartbeat("a", -2, instance_id="i").member_epoch == -2
    members.advance(SESSION_S / 2 - SOON_S)
    assert list(members.consumers.members) == ["a"]
    members.advance(2 * SOON_S)
    assert members.consumers.is_empty


def test_a_static_member_that_comes_back_in_time_stays(members: ConsumerMembers) -> None:
    members.enter("a", instance_id="i")
    members.heartbeat("a", -2, instance_id="i")
    members.advance(SESSION_S - 1)
    assert members.given(members.enter("b", instance_id="i")) == [0, 1, 2, 3]
    members.advance(SESSION_S - 1)
    assert list(members.consumers.members) == ["b"]


def test_a_member_that_returned_has_its_own_timers(members: ConsumerMembers) -> None:
    """What was set for the member of before must not end the one that has its partitions now."""
    members.enter("a")
    members.enter("b")
    members.heartbeat("a")
    members.heartbeat("a", -1)
    members.enter("a")
    members.advance(REBALANCE_S + 1)
    assert "a" in members.consumers.members


# ---- topics ----------------------------------------------------------------------------------------------------------


def test_a_real_brokers_pace_for_regular_expressions_can_be_set() -> None:
    with ConsumerMembers(regex_refresh_min_ms=10_000) as members:
        members.enter("a", None, subscribed_topic_regex="[a-z]")
        members.soon()
        members.heartbeat("a")
        members.do(lambda: members.kafka.create_topic("u", replicas=[[1]]))
        members.heartbeat("a")
        members.soon()
        assert members.heartbeat("a").assignment is None
        members.advance(10)
        members.heartbeat("a")
        members.soon()
        assert len(members.heartbeat("a").assignment.topic_partitions) == 2


# ---- coordinators ----------------------------------------------------------------------------------------------------


def test_another_broker_answers_not_coordinator(members: ConsumerMembers) -> None:
    members.enter("a")
    assert members.heartbeat("a", broker=2).error_code == 16
    assert members.described(broker=2).error_code == 16


def test_members_epochs_and_partitions_move_with_the_group(members: ConsumerMembers) -> None:
    members.enter("a")
    members.enter("b")
    members.heartbeat("a")
    members.do(lambda: members.kafka.move_coordinator("g", 2))
    assert members.heartbeat("a").error_code == 16
    assert members.given(members.heartbeat("a", owned=(0, 1), broker=2)) is None
    assert members.given(members.heartbeat("b", broker=2)) == [2, 3]
    assert members.consumers.state is ConsumerState.STABLE


def test_a_new_coordinator_loads_first_and_no_session_expires_meanwhile() -> None:
    with ConsumerMembers(coordinator_load_ms=9000) as members:
        members.enter("a")
        members.advance(SESSION_S - 1)
        members.do(lambda: members.kafka.move_coordinator("g", 2))
        assert members.heartbeat("a", broker=2).error_code == 14
        members.advance(9 + SESSION_S / 2)
        assert members.heartbeat("a", broker=2).error_code == 0


def test_the_next_coordinator_notices_silent_members_and_those_that_give_nothing_up(members: ConsumerMembers) -> None:
    members.enter("a")
    members.enter("b")
    members.heartbeat("a")
    members.do(lambda: members.kafka.move_coordinator("g", 2))
    members.advance(REBALANCE_S + SOON_S)
    assert list(members.consumers.members) == ["b"]
    members.advance(SESSION_S - REBALANCE_S)
    assert members.consumers.state is ConsumerState.EMPTY


def test_topic_changes_during_a_move_are_noticed(members: ConsumerMembers) -> None:
    members.enter("a")
    members.do(lambda: members.kafka.move_coordinator("g", 2))
    members.do(lambda: members.kafka.add_partitions(members.topic, [[1, 2]]))
    assert members.given(members.heartbeat("a", broker=2)) == [0, 1, 2, 3, 4]


def test_when_the_coordinator_dies_another_broker_has_the_group(members: ConsumerMembers) -> None:
    members.pair()
    members.kill(1)
    assert members.given(members.heartbeat("a", broker=2)) is None
    members.restart(1)
    assert members.given(members.heartbeat("b")) is None


# ---- offsets ---------------------------------------------------------------------------------------------------------


def test_before_4_3_members_commit_in_their_very_epoch_only_and_groups_begin_with_0(members: ConsumerMembers) -> None:
    members.kafka.profile = PROFILES["4.2"]
    members.pair()
    assert [members.commit(each, member="a", generation=each) for each in (1, 2, 3)] == [113, 0, 113]


def test_commits_are_no_signs_of_life(members: ConsumerMembers) -> None:
    members.enter("a")
    members.advance(SESSION_S - 1)
    assert members.commit(5, member="a", generation=2) == 0
    members.advance(2)
    assert members.consumers.is_empty


# ---- the other kind --------------------------------------------------------------------------------------------------


def test_a_rejected_member_converts_no_classic_group(members: ConsumerMembers) -> None:
    members.commit(5)
    assert members.enter("a", None, subscribed_topic_regex="(").error_code == 128
    assert isinstance(members.group, Group)


def test_no_timer_of_a_group_that_became_another_one_is_left(members: ConsumerMembers) -> None:
    (member,) = members.stable(None)
    members.leave((member, None))
    members.enter("a")
    members.heartbeat("a", -1)
    members.stable(None)
    members.advance(3600)
    assert members.reported("defect") == []


# ---- admins ----------------------------------------------------------------------------------------------------------


def test_a_group_view_has_owners_revocations_and_targets(members: ConsumerMembers) -> None:
    members.enter("a")
    members.enter("b")
    members.heartbeat("a")
    found = members.do(lambda: view.group(members.kafka, members.consumers))
    assert (found.type, found.state, found.generation, found.assignment_epoch, found.protocol) == ("consumer", "Reconciling", 3, 3, "uniform")
    first, second = found.members
    assert [[each.partition for each in places] for places in (first.partitions, first.revoking, first.target)] == [[0, 1], [2, 3], [0, 1]]
    assert [[each.partition for each in places] for places in (second.partitions, second.revoking, second.target)] == [[], [], [2, 3]]
    assert (first.epoch, second.epoch) == (2, 3)
    assert found.owners == {TopicPartition("t", index): "a" for index in range(4)}


def test_classic_admins_see_that_it_is_no_classic_group(members: ConsumerMembers) -> None:
    members.enter("a")
    for version, code in ((5, 0), (6, 69)):
        (found,) = members.call(Api.DESCRIBE_GROUPS, version, {"groups": ["g"], "include_authorized_operations": False}).groups
        assert (found.group_state, found.error_code) == ("Dead", code)


# ---- chance ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_every_partition_is_assigned_in_any_order_of_heartbeats(members: ConsumerMembers, seed: int) -> None:
    random = Random(seed)
    owned: dict[str, list[int]] = {}
    names = "abcde"
    for _ in range(60):
        name = random.choice(names)
        answer = members.heartbeat(name, owned=owned[name]) if name in owned else members.enter(name)
        if answer.error_code == 25 or random.random() < 0.05:
            members.heartbeat(name, -1)
            owned.pop(name, None)
        elif (assigned := members.given(answer)) is not None:
            owned[name] = assigned
        members.advance(random.random())
        assert len({index for each in owned.values() for index in each}) == sum(len(each) for each in owned.values())
    for name in [*owned, *owned, *owned, *owned]:
        assigned = members.given(members.heartbeat(name, owned=owned[name]))
        owned[name] = owned[name] if assigned is None else assigned
    if owned:
        assert sorted(index for each in owned.values() for index in each) == [0, 1, 2, 3]
        assert members.consumers.state is ConsumerState.STABLE
