"""The invariants of groups, one by one: each holds while its rule does, and is broken when the rule is."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyclient.core.group.coordinator import Identity
from pyclient.records import TopicPartition
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.view import MemberView
from pyclient.testing.simulation import group_invariants
from pyclient.testing.simulation.faults import Fault
from pyclient.testing.simulation.group_facts import GroupFacts, Member
from pyclient.testing.simulation.group_invariants import JOINS_PER_SECOND, NEWS_S, RULES_OF_GROUPS
from pyclient.testing.simulation.group_run import GroupRun
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


def listed(monkeypatch: pytest.MonkeyPatch, *members: MemberView) -> None:
    """The coordinator knows these members."""
    monkeypatch.setattr(group_invariants, "_members", lambda _judge: members)


def in_generation(judge: Judge, number: int, name: str, *partitions: TopicPartition) -> Member:
    """A member that believes itself to be in this generation with these partitions."""
    group = SimpleNamespace(identity=Identity(number, f"{name}-id"), owned=dict.fromkeys(partitions, 1), state=SimpleNamespace(name="STABLE"))
    consumer: Any = SimpleNamespace(_core=SimpleNamespace(membership=group))
    found = Member(name, consumer, frozenset({"orders"}), owned=dict.fromkeys(partitions, 5), inside="poll")
    cast("GroupFacts", judge.facts).members[name] = found
    return found


def heartbeat(kafka: Kafka, *partitions: int, epoch: int = 3) -> Any:
    """One that states partitions of the topic."""
    topic = kafka.topics.get("orders") or kafka.create_topic("orders", 2)
    return SimpleNamespace(member_id="a-id", member_epoch=epoch, topic_partitions=[SimpleNamespace(topic_id=topic.id, partitions=partitions)])


def test_G02_two_owners_in_a_generation_are_a_breach(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    newcomer, _ = in_generation(judge, 4, "a"), in_generation(judge, 4, "b", ORDERS)
    listed(monkeypatch, MemberView("a-id", "a", None, ()), MemberView("b-id", "b", None, ()))
    assert breach(judge, "listener_called", newcomer, "assigned", [ORDERS]) == "a_partition_has_one_owner_in_a_generation"


def test_G02_who_is_no_member_any_more_may_not_know_it_when_a_new_coordinator_begins_a_generation_again(
        judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 704 of groups: the coordinator moved before it had stored generation 4, and gave the member up."""
    newcomer, _ = in_generation(judge, 4, "a"), in_generation(judge, 4, "b", ORDERS)
    listed(monkeypatch, MemberView("a-id", "a", None, ()))
    judge.after("listener_called", newcomer, "assigned", [ORDERS])


def test_G06_a_member_of_a_stable_group_that_keeps_more_than_it_was_assigned_is_a_breach(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    judge.facts.stored[WHERE] = {}
    in_generation(judge, 4, "a", ORDERS)
    listed(monkeypatch, MemberView("a-id", "a", None, (ORDERS,)))
    judge.after("stable")
    listed(monkeypatch, MemberView("a-id", "a", None, ()))
    assert breach(judge, "stable") == "members_have_what_their_group_assigned"


def test_N05_a_partition_that_is_reported_as_revoked_while_its_member_has_it_is_a_breach(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = in_generation(judge, 3, "a", ORDERS)
    listed(monkeypatch, MemberView("a-id", "a", None, (), epoch=3, revoking=(ORDERS,)))
    judge.after("heartbeat", owner, heartbeat(judge.world.kafka, 0))
    judge.after("heartbeat", owner, heartbeat(judge.world.kafka, 1, epoch=2))  # which the coordinator refuses
    assert breach(judge, "heartbeat", owner, heartbeat(judge.world.kafka, 1)) == "a_partition_is_given_up_before_it_is_reported"
    owner.owned.clear()
    judge.after("heartbeat", owner, heartbeat(judge.world.kafka, 1))


def test_N04_news_that_waits_for_the_heartbeat_interval_is_a_breach(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch)
    owner, facts = in_generation(judge, 3, "a", ORDERS), cast("GroupFacts", judge.facts)
    owner.news_from = judge.world.loop.time() - 1.1 * NEWS_S
    judge.after("heartbeat", owner, heartbeat(judge.world.kafka, 0))  # something may be wrong
    facts.settled_from = judge.world.loop.time() - 1.0
    assert breach(judge, "heartbeat", owner, heartbeat(judge.world.kafka, 0)) == "news_does_not_wait_for_the_heartbeat_interval"
    owner.news_from = judge.world.loop.time() - 0.9 * NEWS_S
    judge.after("heartbeat", owner, heartbeat(judge.world.kafka, 0))


def test_G01_joins_in_a_loop_are_a_breach(judge: Judge) -> None:
    judge.facts.second.joins["a"] = JOINS_PER_SECOND
    judge.after("second")
    judge.facts.second.joins["a"] += 1
    assert breach(judge, "second") == "joins_are_bounded"


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


@pytest.mark.parametrize("kind", ["broker_restart", "broker_loss", "hung"])
def test_a_leader_that_assigned_without_a_brokers_rack_has_time_to_see_it(kind: str) -> None:
    """It joins again then (KIP-881), so a group is not at rest before."""
    run = next(found for seed in range(1, 99) if not (found := GroupRun(seed, [Fault(kind, 2.0, 0.5, 3.0)])).world.next_generation)
    assert run._racks_seen() == 5.0 + max(each["metadata_max_age_ms"] for each in run.plan.consumers) / 1000
