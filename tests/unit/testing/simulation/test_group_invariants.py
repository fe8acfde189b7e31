"""The invariants of groups, one by one: each holds while its rule does, and is broken when the rule is."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyclient.records import TopicPartition
from pyclient.testing.simulation.group_facts import GroupFacts, Member
from pyclient.testing.simulation.group_invariants import RULES_OF_GROUPS
from pyclient.testing.simulation.invariants import InvariantError, Judge
from pyclient.testing.simulation.world import World

WHERE = ("orders", 0)
ORDERS = TopicPartition(*WHERE)


@pytest.fixture
def judge() -> Judge:
    return Judge(World(1), GroupFacts(), RULES_OF_GROUPS)


def breach(judge: Judge, event: str, *about: Any) -> str:
    with pytest.raises(InvariantError) as broken:
        judge.after(event, *about)
    return broken.value.invariant.split()[1]


def member(*, paused: tuple[TopicPartition, ...] = ()) -> Member:
    """The owner of a partition, of which the group had committed five records when it was assigned."""
    consumer: Any = SimpleNamespace(paused=lambda: frozenset(paused))
    return Member("member-0", consumer, frozenset({"orders"}), owned={ORDERS: 5})


def test_C01_a_record_of_a_paused_partition_is_a_breach(judge: Judge) -> None:
    record = SimpleNamespace(topic="orders", partition=0, offset=5)
    judge.facts.begin(WHERE, 5)
    judge.after("delivered", member(), record)
    assert breach(judge, "delivered", member(paused=(ORDERS,)), record) == "no_record_of_a_paused_partition_is_returned"


def test_G06_a_record_of_a_topic_that_is_not_subscribed_is_a_breach(judge: Judge) -> None:
    record, owner = SimpleNamespace(topic="orders", partition=0, offset=5), member()
    judge.facts.begin(WHERE, 5)
    judge.after("delivered", owner, record)
    owner.topics = frozenset({"payments"})
    assert breach(judge, "delivered", owner, record) == "no_record_of_a_topic_that_is_not_subscribed_is_returned"


def test_C24_a_commit_of_an_earlier_assignment_is_a_breach(judge: Judge) -> None:
    owner = member()
    judge.after("member committed", owner, WHERE, 5)
    assert breach(judge, "member committed", owner, WHERE, 6) == "a_commit_belongs_to_the_present_assignment"
    owner.next[ORDERS] = 6
    judge.after("member committed", owner, WHERE, 6)


def test_C24_retention_may_move_an_owner_before_it_has_a_record(judge: Judge) -> None:
    judge.facts.begin(WHERE, 8)
    judge.after("member committed", member(), WHERE, 8)
    assert breach(judge, "member committed", member(), WHERE, 9) == "a_commit_belongs_to_the_present_assignment"


def test_C21_the_position_of_a_member_is_behind_what_it_got(judge: Judge) -> None:
    owner = member()
    owner.next[ORDERS] = 7
    judge.after("returned to a member", owner, ORDERS, 7)
    assert breach(judge, "returned to a member", owner, ORDERS, 6) == "the_position_of_a_member_is_behind_what_was_returned"
    assert breach(judge, "returned to a member", owner, ORDERS, 9) == "the_position_of_a_member_is_behind_what_was_returned"
    judge.facts.begin(WHERE, 9)
    judge.after("returned to a member", owner, ORDERS, 9)


def test_C21_a_commit_within_an_iteration_includes_the_current_record(judge: Judge) -> None:
    record, highest = SimpleNamespace(topic="orders", partition=0, offset=7), cast("GroupFacts", judge.facts).highest
    highest[WHERE] = 8
    judge.after("committed within", member(), record)
    highest[WHERE] = 7
    assert breach(judge, "committed within", member(), record) == "a_commit_within_an_iteration_stores_the_current_record"
