"""Classic groups of the fake: who is in, who leads, who is given up, and when; in virtual time."""
from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from pyclient.codec.apis import Api
from pyclient.errors import IllegalTransitionError
from pyclient.testing.fake.coordinator import Coordinator
from pyclient.testing.fake.group import TRANSITIONS, Event, Group, State
from tests.unit.testing.fake.classic_members import REBALANCE_S, SESSION_S, SOON_S, Crowd

BOTH = (("range", b"1"), ("sticky", b"2"))
STICKY_FIRST = (("sticky", b"2"), ("range", b"1"))


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    with Crowd() as found:
        yield found


# ---- joining ------------------------------------------------------------------------------------------------------------


def test_a_dynamic_member_is_sent_back_with_its_id_and_joins_with_that(crowd: Crowd) -> None:
    refused = crowd.join()
    assert (refused.error_code, refused.generation_id, refused.member_id[:5]) == (79, -1, "test-")
    joined = crowd.join(refused.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, refused.member_id)


def test_before_version_4_a_dynamic_member_joins_at_once(crowd: Crowd) -> None:
    assert crowd.join(version=3).generation_id == 1


def test_an_id_nobody_joins_with_is_forgotten_after_the_session_timeout(crowd: Crowd) -> None:
    given = crowd.id()
    crowd.advance(SESSION_S + SOON_S)
    assert crowd.join(given).error_code == 25


def test_a_rebalance_waits_for_ids_that_were_given_out(crowd: Crowd) -> None:
    crowd.stable(None)
    (first,) = crowd.group.members
    second, third = crowd.id(), crowd.id()
    joins = [crowd.joining(second), crowd.joining(first)]
    crowd.soon()
    assert not any(each.done() for each in joins)
    joins.append(crowd.joining(third))
    assert {crowd.answer(each).generation_id for each in joins} == {2}


def test_the_leader_alone_is_told_who_is_there(crowd: Crowd) -> None:
    (first,) = crowd.stable(None)
    second = crowd.id()
    follower, leader = crowd.joining(second), crowd.joining(first)
    assert [each.member_id for each in crowd.answer(leader).members] == [first, second]
    assert (crowd.answer(follower).members, crowd.answer(follower).leader) == ((), first)


def test_the_protocol_most_members_prefer_is_chosen_among_those_all_know(crowd: Crowd) -> None:
    ids = [crowd.id(protocols=BOTH) for _ in range(3)]
    first = crowd.joining(ids[0], protocols=BOTH)
    others = [crowd.joining(each, protocols=STICKY_FIRST) for each in ids[1:]]
    crowd.soon()
    assert crowd.answer(crowd.joining(ids[0], protocols=BOTH) if first.done() else first).protocol_name == "sticky"
    assert {crowd.answer(each).protocol_name for each in others} == {"sticky"}


def test_who_shares_no_protocol_with_the_others_is_refused(crowd: Crowd) -> None:
    crowd.stable(None)
    assert crowd.join(protocols=(("odd", b""),)).error_code == 23
    assert crowd.join(kind="connect").error_code == 23
    assert crowd.join(group="other", protocols=(), broker=crowd.kafka.coordinator(0, "other")).error_code == 23


@pytest.mark.parametrize("session_s", [5.9, 1801])
def test_session_timeouts_have_bounds(crowd: Crowd, session_s: float) -> None:
    assert crowd.join(session_s=session_s).error_code == 26


def test_a_full_group_takes_nobody_but_its_own_members() -> None:
    with Crowd(group_max_size=1) as crowd:
        (only,) = crowd.stable(None)
        refused = crowd.join()
        assert (refused.error_code, refused.member_id) == (81, "")
        assert crowd.join(only).error_code == 0


def test_the_first_rebalance_waits_for_others_to_come() -> None:
    with Crowd(group_initial_rebalance_delay_ms=3000) as crowd:
        first, second = crowd.joining(crowd.id()), crowd.joining(crowd.id())
        crowd.advance(2.9)
        assert not first.done()
        assert crowd.answer(first).generation_id == crowd.answer(second).generation_id == 1
        assert crowd.loop.time() == pytest.approx(6, abs=0.1)  # somebody came within the first three seconds


def test_a_follower_that_joins_again_unchanged_disturbs_nobody_but_the_leader_does(crowd: Crowd) -> None:
    leader, follower = crowd.stable("a", "b")
    again = crowd.join(follower, instance="b")
    assert (again.generation_id, crowd.group.state) == (crowd.group.generation, State.STABLE)
    crowd.joining(leader, instance="a")
    crowd.soon()
    assert crowd.group.state is State.PREPARING


# ---- static members -----------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_takes_its_place_without_rebalance(crowd: Crowd) -> None:
    leader, follower = crowd.stable("a", "b")
    generation = crowd.group.generation
    back = crowd.join(instance="b")
    assert back.member_id not in (leader, follower)
    assert (back.generation_id, back.leader, back.skip_assignment) == (generation, leader, False)
    assert crowd.sync(back.member_id, generation, instance="b").assignment == b"of 1"


def test_a_static_leader_that_comes_back_need_not_assign_anew(crowd: Crowd) -> None:
    leader, _ = crowd.stable("a", "b")
    old_client = crowd.join(instance="a", version=8)
    assert (old_client.leader, old_client.members) == (leader, ())
    new_client = crowd.join(instance="a", version=9)
    assert (new_client.leader, new_client.skip_assignment, len(new_client.members)) == (new_client.member_id, True, 2)


def test_the_old_self_of_a_static_member_is_fenced(crowd: Crowd) -> None:
    old, _ = crowd.stable("a", "b")
    generation = crowd.group.generation
    crowd.join(instance="a")
    assert crowd.beat(old, generation, instance="a") == 82
    assert crowd.commit(1, member=old, generation=generation, instance="a") == 82
    assert crowd.join(old, instance="a").error_code == 82
    assert crowd.leave((old, "a")) == [82]
    assert crowd.beat(old, generation) == 25


def test_a_waiting_join_of_the_old_self_is_answered_with_fenced(crowd: Crowd) -> None:
    leader, _follower = crowd.stable("a", "b")
    waiting = crowd.joining(leader, instance="a")
    crowd.soon()
    crowd.joining(instance="a")
    assert crowd.answer(waiting).error_code == 82


def test_a_static_member_stays_when_it_misses_a_rebalance_until_its_session_ends(crowd: Crowd) -> None:
    leader, follower = crowd.stable("a", "b", session_s=30)
    crowd.answer(crowd.joining(leader, instance="a", session_s=30))
    assert list(crowd.group.members) == [leader, follower]
    crowd.advance(30)
    assert follower not in crowd.group.members


# ---- beating and expiring -----------------------------------------------------------------------------------------------


def test_heartbeats_tell_of_rebalances_and_of_the_past(crowd: Crowd) -> None:
    (first,) = crowd.stable(None)
    assert [crowd.beat(first, 1), crowd.beat(first, 0), crowd.beat("nobody", 1)] == [0, 22, 25]
    crowd.joining(crowd.id())
    crowd.soon()
    assert crowd.beat(first, 1) == 27


def test_a_silent_member_is_given_up_and_the_others_share_anew(crowd: Crowd) -> None:
    silent, loud = crowd.stable("a", "b")
    generation = crowd.group.generation
    told = []
    for _ in range(3):
        crowd.advance(SESSION_S / 2 - SOON_S)
        told.append(crowd.beat(loud, generation, instance="b"))
    assert told == [0, 0, 27]
    assert list(crowd.group.members) == [loud]
    assert crowd.join(loud, instance="b").leader == loud
    assert [each["member"] for each in crowd.told("member left")] == [silent]


def test_commits_are_signs_of_life(crowd: Crowd) -> None:
    (member,) = crowd.stable(None)
    for offset in range(5):
        crowd.advance(SESSION_S * 0.9)
        assert crowd.commit(offset, member=member, generation=1) == 0
    crowd.advance(SESSION_S + SOON_S)
    assert crowd.commit(9, member=member, generation=1) == 25


def test_a_member_that_waits_for_others_is_not_silent(crowd: Crowd) -> None:
    first, second = crowd.stable("a", "b", rebalance_s=40)
    waiting = crowd.joining(first, instance="a", rebalance_s=40)
    for _ in range(3):
        crowd.advance(SESSION_S - 1)
        assert crowd.beat(second, 1, instance="b") == 27
    assert (list(crowd.group.members), waiting.done()) == ([first, second], False)


def test_a_member_that_waited_for_its_assignment_has_a_whole_session_after_it(crowd: Crowd) -> None:
    (first,) = crowd.stable(None)
    joins = [crowd.joining(crowd.id()), crowd.joining(first)]
    second = crowd.answer(joins[0]).member_id
    waiting = crowd.syncing(second, 2)
    crowd.advance(SESSION_S - 1)
    crowd.sync(first, 2, {})
    crowd.answer(waiting)
    crowd.advance(SESSION_S - 1)
    assert crowd.beat(second, 2) == 0


def test_a_member_that_joins_again_is_known_by_what_it_says_now(crowd: Crowd) -> None:
    (first,) = crowd.stable(None)
    (told,) = crowd.join(first, protocols=(("range", b"new"),)).members
    assert told.metadata == b"new"


def test_a_new_member_is_waited_for_longer_than_its_session(crowd: Crowd) -> None:
    (first,) = crowd.stable(None, session_s=1800, rebalance_s=1000)
    waiting = crowd.joining(crowd.id(), session_s=6)
    crowd.advance(299)
    assert not waiting.done()
    crowd.advance(2)
    assert crowd.answer(waiting).error_code == 25
    assert list(crowd.group.members) == [first]


def test_who_does_not_join_again_within_the_rebalance_timeout_is_left_behind(crowd: Crowd) -> None:
    (first,) = crowd.stable(None, session_s=100)
    second = crowd.joining(crowd.id())
    crowd.advance(REBALANCE_S - 1)
    assert not second.done()
    assert crowd.answer(second).leader == crowd.answer(second).member_id
    assert first not in crowd.group.members


def test_who_does_not_ask_for_its_assignment_in_time_is_given_up(crowd: Crowd) -> None:
    (first,) = crowd.stable(None, session_s=100)
    joins = [crowd.joining(crowd.id(session_s=100), session_s=100), crowd.joining(first, session_s=100)]
    late = crowd.answer(joins[0]).member_id
    crowd.sync(first, 2, {first: b"all"})
    crowd.advance(REBALANCE_S + SOON_S)
    assert late not in crowd.group.members
    assert crowd.group.state is State.PREPARING


# ---- syncing ------------------------------------------------------------------------------------------------------------


def test_everybody_waits_for_the_leaders_assignment(crowd: Crowd) -> None:
    (first,) = crowd.stable(None)
    joins = [crowd.joining(crowd.id()), crowd.joining(first)]
    second = crowd.answer(joins[0]).member_id
    waiting = crowd.syncing(second, 2)
    crowd.soon()
    assert not waiting.done()
    assert crowd.sync(first, 2, {first: b"1", second: b"2", "stranger": b"3"}).assignment == b"1"
    assert crowd.answer(waiting).assignment == b"2"
    assert crowd.sync(second, 2).assignment == b"2"


def test_a_rebalance_while_members_wait_for_the_assignment_sends_them_back(crowd: Crowd) -> None:
    (first,) = crowd.stable(None)
    joins = [crowd.joining(crowd.id()), crowd.joining(first)]
    waiting = crowd.syncing(crowd.answer(joins[0]).member_id, 2)
    crowd.joining(crowd.id())
    assert crowd.answer(waiting).error_code == 27


def test_a_sync_that_does_not_fit_the_group_is_refused(crowd: Crowd) -> None:
    (first,) = crowd.stable(None)
    assert crowd.sync(first, 7).error_code == 22
    assert crowd.sync("nobody", 1).error_code == 25
    assert crowd.sync(first, 1, protocol="sticky").error_code == 23
    assert crowd.sync(first, 1, kind=None).error_code == 23
    crowd.leave((first, None))
    assert crowd.sync(first, 2).error_code == 25


# ---- leaving ------------------------------------------------------------------------------------------------------------


def test_when_the_last_member_leaves_the_group_is_empty_one_generation_on(crowd: Crowd) -> None:
    (only,) = crowd.stable(None)
    assert crowd.leave((only, None)) == [0]
    assert (crowd.group.state, crowd.group.generation, crowd.group.leader) == (State.EMPTY, 2, None)


def test_members_leave_together_and_each_is_answered_for_itself(crowd: Crowd) -> None:
    first, second, third = crowd.stable("a", "b", "c")
    assert crowd.leave((second, "b"), ("nobody", None), ("", "c"), ("", "d"), (first, "b")) == [0, 25, 0, 25, 25]
    assert list(crowd.group.members) == [first]
    assert third not in crowd.group.members


def test_when_the_leader_leaves_another_one_leads(crowd: Crowd) -> None:
    first, second = crowd.stable("a", "b")
    crowd.leave((first, "a"))
    assert crowd.join(second, instance="b").leader == second


# ---- coordinators -------------------------------------------------------------------------------------------------------


def test_a_broker_that_does_not_coordinate_the_group_says_so(crowd: Crowd) -> None:
    (member,) = crowd.stable(None)
    crowd.commit(5)
    assert crowd.join(member, broker=2).error_code == 16
    assert crowd.beat(member, 1, broker=2) == 16
    assert crowd.leave((member, None), broker=2) == [16]
    assert crowd.commit(5, broker=2) == 16
    assert crowd.committed(broker=2) == (16, {})


def test_members_and_offsets_move_with_the_group(crowd: Crowd) -> None:
    (member,) = crowd.stable(None)
    crowd.commit(5, member=member, generation=1)
    crowd.do(lambda: crowd.kafka.move_coordinator("g", 2))
    assert crowd.beat(member, 1) == 16
    assert crowd.beat(member, 1, broker=2) == 0
    assert crowd.sync(member, 1, broker=2).assignment == b"of 0"
    assert crowd.committed(broker=2) == (0, {("t", 0): 5})


def test_a_move_ends_waiting_requests_and_forgets_the_rebalance_they_wait_for(crowd: Crowd) -> None:
    (first,) = crowd.stable(None)
    waiting = crowd.joining(crowd.id())
    crowd.soon()
    crowd.do(lambda: crowd.kafka.move_coordinator("g", 2))
    assert crowd.answer(waiting).error_code == 16
    assert (crowd.group.state, list(crowd.group.members)) == (State.STABLE, [first])


def test_a_new_coordinator_loads_first_and_nobody_is_given_up_for_that() -> None:
    with Crowd(coordinator_load_ms=9000) as crowd:
        (member,) = crowd.stable(None)
        crowd.advance(SESSION_S - 1)
        crowd.do(lambda: crowd.kafka.move_coordinator("g", 2))
        assert crowd.join(member, broker=2).error_code == 14
        assert crowd.committed(broker=2) == (14, {})
        assert crowd.beat(member, 1, broker=2) == 0  # nobody is disturbed meanwhile
        crowd.advance(9 + SESSION_S / 2)
        assert crowd.beat(member, 1, broker=2) == 0
        assert crowd.join("nobody", broker=2).error_code == 25
        crowd.advance(SESSION_S + SOON_S)
        assert crowd.beat(member, 1, broker=2) == 25


def test_the_next_coordinator_notices_silent_members(crowd: Crowd) -> None:
    crowd.stable(None)
    crowd.do(lambda: crowd.kafka.move_coordinator("g", 2))
    crowd.advance(SESSION_S + SOON_S)
    assert crowd.group.state is State.EMPTY


def test_when_the_coordinator_dies_another_broker_has_the_group_and_gives_it_back(crowd: Crowd) -> None:
    (member,) = crowd.stable(None)
    crowd.kill(1)
    assert crowd.kafka.coordinator(0, "g") == 2
    assert crowd.beat(member, 1, broker=2) == 0
    crowd.restart(1)
    assert crowd.beat(member, 1) == 0


def test_coordinators_are_told_by_key(crowd: Crowd) -> None:
    (found,) = crowd.ask(Api.FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": ["g"]}).coordinators
    assert (found.key, found.node_id, found.error_code) == ("g", 1, 0)
    crowd.kill(1, 2)
    assert crowd.ask(Api.FIND_COORDINATOR, 3, {"key_type": 0, "key": "g"}).error_code == 15


# ---- admins -------------------------------------------------------------------------------------------------------------


def test_an_empty_group_can_be_deleted_with_its_offsets_and_no_other(crowd: Crowd) -> None:
    (member,) = crowd.stable(None)
    crowd.commit(5, member=member, generation=1)

    def delete() -> int:
        return int(crowd.ask(Api.DELETE_GROUPS, 2, {"groups_names": ["g"]}).results[0].error_code)
    assert delete() == 68
    crowd.leave((member, None))
    assert [delete(), delete()] == [0, 69]
    assert crowd.committed() == (0, {})


def test_groups_are_described_and_listed(crowd: Crowd) -> None:
    (member,) = crowd.stable(None)
    (described,) = crowd.ask(Api.DESCRIBE_GROUPS, 6, {"groups": ["g"], "include_authorized_operations": False}).groups
    assert (described.group_state, described.protocol_data, described.members[0].member_id) == ("Stable", "range", member)
    (listed,) = crowd.ask(Api.LIST_GROUPS, 5, {"states_filter": ["stable"], "types_filter": []}).groups
    assert (listed.group_id, listed.group_type) == ("g", "classic")
    assert crowd.ask(Api.LIST_GROUPS, 5, {"states_filter": ["Empty"], "types_filter": []}).groups == ()
    assert crowd.ask(Api.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []}, 2).groups == ()


# ---- the table ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "event"), sorted(itertools.product(State, Event), key=str))
def test_a_change_that_is_not_in_the_table_is_a_defect(state: State, event: Event) -> None:
    group = Group("g", state)
    if (state, event) in TRANSITIONS:
        group.on(event)
        assert (group.before, group.state) == (state, TRANSITIONS[state, event])
    else:
        with pytest.raises(IllegalTransitionError):
            group.on(event)


def test_no_timer_of_a_deleted_group_is_left(crowd: Crowd) -> None:
    (member,) = crowd.stable(None)
    crowd.leave((member, None))
    crowd.ask(Api.DELETE_GROUPS, 2, {"groups_names": ["g"]})
    assert crowd.kafka.part(Coordinator).groups == {}
    crowd.advance(3600)
    assert crowd.told("defect") == []
