"""Classic groups of the fake: who is in, who leads, who is given up, and when; in virtual time."""
from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from pyclient.codec.apis import Api
from pyclient.errors import IllegalTransitionError
from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.model.group import TRANSITIONS, Event, Group, State
from tests.unit.testing.fake.classic_members import REBALANCE_S, SESSION_S, SOON_S, ClassicMembers

BOTH = (("range", b"1"), ("sticky", b"2"))
STICKY_FIRST = (("sticky", b"2"), ("range", b"1"))


@pytest.fixture
def members() -> Iterator[ClassicMembers]:
    with ClassicMembers() as found:
        yield found


# ---- joining ---------------------------------------------------------------------------------------------------------


def test_an_unused_member_id_is_forgotten_after_the_session_timeout(members: ClassicMembers) -> None:
    given = members.id()
    members.advance(SESSION_S + SOON_S)
    assert members.join(given).error_code == 25


def test_a_rebalance_waits_for_ids_that_were_given_out(members: ClassicMembers) -> None:
    members.stable(None)
    (first,) = members.group.members
    second, third = members.id(), members.id()
    joins = [members.joining(second), members.joining(first)]
    members.soon()
    assert not any(each.done() for each in joins)
    joins.append(members.joining(third))
    assert {members.answer(each).generation_id for each in joins} == {2}


def test_the_protocol_most_members_prefer_is_chosen_among_those_all_know(members: ClassicMembers) -> None:
    ids = [members.id(protocols=BOTH) for _ in range(3)]
    first = members.joining(ids[0], protocols=BOTH)
    others = [members.joining(each, protocols=STICKY_FIRST) for each in ids[1:]]
    members.soon()
    assert members.answer(members.joining(ids[0], protocols=BOTH) if first.done() else first).protocol_name == "sticky"
    assert {members.answer(each).protocol_name for each in others} == {"sticky"}


def test_a_full_group_accepts_only_its_own_members() -> None:
    with ClassicMembers(group_max_size=1) as members:
        (only,) = members.stable(None)
        refused = members.join()
        assert (refused.error_code, refused.member_id) == (81, "")
        assert members.join(only).error_code == 0


def test_the_first_rebalance_waits_for_others_to_come() -> None:
    with ClassicMembers(group_initial_rebalance_delay_ms=3000) as members:
        first, second = members.joining(members.id()), members.joining(members.id())
        members.advance(2.9)
        assert not first.done()
        assert members.answer(first).generation_id == members.answer(second).generation_id == 1
        assert members.loop.time() == pytest.approx(6, abs=0.1)  # somebody came within the first three seconds


def test_an_unchanged_rejoin_of_a_follower_starts_no_rebalance_but_the_leaders_does(members: ClassicMembers) -> None:
    leader, follower = members.stable("a", "b")
    again = members.join(follower, instance="b")
    assert (again.generation_id, members.group.state) == (members.group.generation, State.STABLE)
    members.joining(leader, instance="a")
    members.soon()
    assert members.group.state is State.PREPARING


# ---- static members --------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_takes_its_place_without_rebalance(members: ClassicMembers) -> None:
    leader, follower = members.stable("a", "b")
    generation = members.group.generation
    back = members.join(instance="b")
    assert back.member_id not in (leader, follower)
    assert (back.generation_id, back.leader, back.skip_assignment) == (generation, leader, False)
    assert members.sync(back.member_id, generation, instance="b").assignment == b"of 1"


def test_a_waiting_join_of_the_old_self_is_answered_with_fenced(members: ClassicMembers) -> None:
    leader, _follower = members.stable("a", "b")
    waiting = members.joining(leader, instance="a")
    members.soon()
    members.joining(instance="a")
    assert members.answer(waiting).error_code == 82


def test_a_static_member_stays_when_it_misses_a_rebalance_until_its_session_ends(members: ClassicMembers) -> None:
    leader, follower = members.stable("a", "b", session_s=30)
    members.answer(members.joining(leader, instance="a", session_s=30))
    assert list(members.group.members) == [leader, follower]
    members.advance(30)
    assert follower not in members.group.members


# ---- beating and expiring --------------------------------------------------------------------------------------------


def test_an_expired_session_removes_the_member_and_starts_a_rebalance(members: ClassicMembers) -> None:
    silent, loud = members.stable("a", "b")
    generation = members.group.generation
    codes = []
    for _ in range(3):
        members.advance(SESSION_S / 2 - SOON_S)
        codes.append(members.classic_heartbeat(loud, generation, instance="b"))
    assert codes == [0, 0, 27]
    assert list(members.group.members) == [loud]
    assert members.join(loud, instance="b").leader == loud
    assert [each["member"] for each in members.reported("member left")] == [silent]


def test_commits_are_signs_of_life(members: ClassicMembers) -> None:
    (member,) = members.stable(None)
    for offset in range(5):
        members.advance(SESSION_S * 0.9)
        assert members.commit(offset, member=member, generation=1) == 0
    members.advance(SESSION_S + SOON_S)
    assert members.commit(9, member=member, generation=1) == 25


def test_a_member_that_waits_for_others_is_not_silent(members: ClassicMembers) -> None:
    first, second = members.stable("a", "b", rebalance_s=40)
    waiting = members.joining(first, instance="a", rebalance_s=40)
    for _ in range(3):
        members.advance(SESSION_S - 1)
        assert members.classic_heartbeat(second, 1, instance="b") == 27
    assert (list(members.group.members), waiting.done()) == ([first, second], False)


def test_a_member_that_waited_for_its_assignment_has_a_whole_session_after_it(members: ClassicMembers) -> None:
    (first,) = members.stable(None)
    joins = [members.joining(members.id()), members.joining(first)]
    second = members.answer(joins[0]).member_id
    waiting = members.syncing(second, 2)
    members.advance(SESSION_S - 1)
    members.sync(first, 2, {})
    members.answer(waiting)
    members.advance(SESSION_S - 1)
    assert members.classic_heartbeat(second, 2) == 0


def test_a_rejoin_replaces_the_members_metadata(members: ClassicMembers) -> None:
    (first,) = members.stable(None)
    (described,) = members.join(first, protocols=(("range", b"new"),)).members
    assert described.metadata == b"new"


def test_a_new_member_is_waited_for_longer_than_its_session(members: ClassicMembers) -> None:
    (first,) = members.stable(None, session_s=1800, rebalance_s=1000)
    waiting = members.joining(members.id(), session_s=6)
    members.advance(299)
    assert not waiting.done()
    members.advance(2)
    assert members.answer(waiting).error_code == 25
    assert list(members.group.members) == [first]


def test_a_member_that_does_not_rejoin_within_the_rebalance_timeout_is_removed(members: ClassicMembers) -> None:
    (first,) = members.stable(None, session_s=100)
    second = members.joining(members.id())
    members.advance(REBALANCE_S - 1)
    assert not second.done()
    assert members.answer(second).leader == members.answer(second).member_id
    assert first not in members.group.members


def test_a_member_without_a_sync_within_the_rebalance_timeout_is_removed(members: ClassicMembers) -> None:
    (first,) = members.stable(None, session_s=100)
    joins = [members.joining(members.id(session_s=100), session_s=100), members.joining(first, session_s=100)]
    late = members.answer(joins[0]).member_id
    members.sync(first, 2, {first: b"all"})
    members.advance(REBALANCE_S + SOON_S)
    assert late not in members.group.members
    assert members.group.state is State.PREPARING


# ---- syncing ---------------------------------------------------------------------------------------------------------


def test_a_rebalance_while_members_wait_for_the_assignment_sends_them_back(members: ClassicMembers) -> None:
    (first,) = members.stable(None)
    joins = [members.joining(members.id()), members.joining(first)]
    waiting = members.syncing(members.answer(joins[0]).member_id, 2)
    members.joining(members.id())
    assert members.answer(waiting).error_code == 27


# ---- leaving ---------------------------------------------------------------------------------------------------------


def test_when_the_leader_leaves_another_one_leads(members: ClassicMembers) -> None:
    first, second = members.stable("a", "b")
    members.leave((first, "a"))
    assert members.join(second, instance="b").leader == second


# ---- coordinators ----------------------------------------------------------------------------------------------------


def test_another_broker_answers_not_coordinator(members: ClassicMembers) -> None:
    (member,) = members.stable(None)
    members.commit(5)
    assert members.join(member, broker=2).error_code == 16
    assert members.classic_heartbeat(member, 1, broker=2) == 16
    assert members.leave((member, None), broker=2) == [16]
    assert members.commit(5, broker=2) == 16
    assert members.committed(broker=2) == (16, {})
    assert members.call(Api.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []}, 2).groups == ()


def test_members_and_offsets_move_with_the_group(members: ClassicMembers) -> None:
    (member,) = members.stable(None)
    members.commit(5, member=member, generation=1)
    members.do(lambda: members.kafka.move_coordinator("g", 2))
    assert members.classic_heartbeat(member, 1) == 16
    assert members.classic_heartbeat(member, 1, broker=2) == 0
    assert members.sync(member, 1, broker=2).assignment == b"of 0"
    assert members.committed(broker=2) == (0, {("t", 0): 5})


def test_a_move_ends_waiting_requests_and_forgets_the_rebalance_they_wait_for(members: ClassicMembers) -> None:
    (first,) = members.stable(None)
    waiting = members.joining(members.id())
    members.soon()
    members.do(lambda: members.kafka.move_coordinator("g", 2))
    assert members.answer(waiting).error_code == 16
    assert (members.group.state, list(members.group.members)) == (State.STABLE, [first])


def test_a_new_coordinator_loads_first_and_no_session_expires_meanwhile() -> None:
    with ClassicMembers(coordinator_load_ms=9000) as members:
        (member,) = members.stable(None)
        members.advance(SESSION_S - 1)
        members.do(lambda: members.kafka.move_coordinator("g", 2))
        assert members.join(member, broker=2).error_code == 14
        assert members.committed(broker=2) == (14, {})
        assert members.classic_heartbeat(member, 1, broker=2) == 0  # members are not disturbed while it loads
        members.advance(9 + SESSION_S / 2)
        assert members.classic_heartbeat(member, 1, broker=2) == 0
        assert members.join("unknown", broker=2).error_code == 25
        members.advance(SESSION_S + SOON_S)
        assert members.classic_heartbeat(member, 1, broker=2) == 25


def test_the_next_coordinator_notices_silent_members(members: ClassicMembers) -> None:
    members.stable(None)
    members.do(lambda: members.kafka.move_coordinator("g", 2))
    members.advance(SESSION_S + SOON_S)
    assert members.group.state is State.EMPTY


def test_when_the_coordinator_dies_another_broker_has_the_group_and_gives_it_back(members: ClassicMembers) -> None:
    (member,) = members.stable(None)
    members.kill(1)
    assert members.kafka.coordinator(0, "g") == 2
    assert members.classic_heartbeat(member, 1, broker=2) == 0
    members.restart(1)
    assert members.classic_heartbeat(member, 1) == 0


def test_no_coordinator_is_available_while_no_broker_runs(members: ClassicMembers) -> None:
    members.kill(1, 2)
    assert members.call(Api.FIND_COORDINATOR, 3, {"key_type": 0, "key": "g"}).error_code == 15


# ---- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "event"), sorted(itertools.product(State, Event), key=str))
def test_a_change_that_is_not_in_the_table_is_a_defect(state: State, event: Event) -> None:
    group = Group("g", state)
    if (state, event) in TRANSITIONS:
        group.on(event)
        assert (group.before, group.state) == (state, TRANSITIONS[state, event])
    else:
        with pytest.raises(IllegalTransitionError):
            group.on(event)


def test_no_timer_of_a_deleted_group_is_left(members: ClassicMembers) -> None:
    (member,) = members.stable(None)
    members.leave((member, None))
    members.call(Api.DELETE_GROUPS, 2, {"groups_names": ["g"]})
    assert members.kafka.part(Coordinator).groups == {}
    members.advance(3600)
    assert members.reported("defect") == []
