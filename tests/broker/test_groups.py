"""Groups of our consumers on a real broker: assignments, moves and commits, as the brokers and librdkafka see them."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from pyclient import Admin, Producer, SubscriptionPattern, TopicPartition
from pyclient.errors import FencedInstanceIdError, UnreleasedInstanceIdError
from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.testing import LocalCluster
from tests.broker.durability.load import load
from tests.broker.durability.numbering import Verdict, judge
from tests.groups import (
    ALL, BOTH, BY_BROKER, LIMIT_S, OFFSETS, ON_ONE_BROKER, ON_THREE_BROKERS, Ledger, Member, Terms, by_members, commits, coordinators_know, counts, describe, evenly, fill, goes_back, members, on,
    processed, settled, share_evenly, shared_out,
)
from tests.kafka import make_topic
from tests.waiting import eventually

pytestmark = [ON_ONE_BROKER, pytest.mark.timeout(180)]

CLASSIC: Final = {strategy: by_members(strategy) for strategy in ("range", "roundrobin", "sticky", "cooperative-sticky")}
NEWER: Final = {strategy: {**BY_BROKER, "group_remote_assignor": strategy} for strategy in ("uniform", "range")}
PARTITIONS: Final = 8


# --- one member ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manual", [False, True], ids=["auto", "manual"])
def test_C20_a_second_consumer_begins_at_the_offsets_the_first_has_committed(kafka_cluster: LocalCluster, topic: str, manual: bool) -> None:
    partitions = make_topic(kafka_cluster, topic, 3)
    fill(kafka_cluster, topic, 3)
    with members() as running:
        running.append(Member(kafka_cluster, topic, [topic], manual=manual).start())
        eventually(lambda: len(running[0].found) == 30, LIMIT_S)
    assert {tp: offsets[-1] for tp, offsets in commits(kafka_cluster, topic).items()} == dict.fromkeys(partitions, 10)
    fill(kafka_cluster, topic, 3)
    with members() as again:
        again.append(Member(kafka_cluster, topic, [topic], manual=manual).start())
        eventually(lambda: len(again[0].found) >= 30, LIMIT_S)
    assert [found.offset for found in processed(again[0].found)] == list(range(10, 20)) * 3
    assert len(again[0].found) == 30


# --- many members under load ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manual", [False, True, "async"], ids=["auto", "manual", "async"])
@pytest.mark.parametrize(("strategy", "terms"), [*CLASSIC.items(), *NEWER.items()], ids=[*CLASSIC, *(f"consumer-{name}" for name in NEWER)])
def test_members_join_and_leave_under_load_without_lost_records_or_lower_commits(
        kafka_cluster: LocalCluster, topic: str, strategy: str, terms: Terms, manual: bool | str) -> None:
    partitions = make_topic(kafka_cluster, topic, PARTITIONS)
    ledger = Ledger()
    everybody: list[Member] = []

    def come(count: int) -> None:
        for number in range(len(everybody), len(everybody) + count):
            everybody.append(Member(kafka_cluster, topic, [topic], ledger=ledger, manual=manual, use_async=number % 2 == 1, **terms))
            running.append(everybody[-1].start())
        quiet()

    def go(count: int, *, crash: bool = False) -> None:
        for each in [running.pop(0) for _ in range(count)]:
            each.stop(crash=crash)
        quiet()

    def quiet() -> None:
        share_evenly(running, partitions)
        before = {stream: len(deliveries) for stream, deliveries in sending.deliveries.items()}
        eventually(lambda: all(len(deliveries) > before[stream] for stream, deliveries in sending.deliveries.items()), LIMIT_S)

    with load(kafka_cluster, topic, partitions=PARTITIONS, producers=1, rate=2000) as sending, members() as running:
        come(1)
        come(3)
        come(4)
        assert counts(running) == [1] * 8
        assert describe(kafka_cluster, topic).assignor == strategy
        go(4)
        assert counts(running) == [2] * 4
        assert read_twice(everybody) == 0, "a member that leaves cleanly has committed all processed records"
        go(3, crash=True)
        come(2)
        sending.stop()
        acknowledged, sent = sending.acknowledged(), sending.sent
        eventually(lambda: len(processed(*(each.found for each in everybody))) >= sum(sent.values()), LIMIT_S)
        shares = settled(kafka_cluster, topic, partitions)
        assert sorted(map(len, shares.members.values())) == [2, 3, 3]
    found = processed(*(each.found for each in everybody))
    assert judge(acknowledged, sent, found) == Verdict(sum(sent.values()), lost=0, doubled=0, misplaced=0, strange=0)
    assert ledger.breaches == []
    assert [each.listener.of("lost") for each in everybody] == [[]] * len(everybody)
    assert [each.refused for each in everybody] == [[]] * len(everybody)
    history = commits(kafka_cluster, topic)
    assert goes_back(history) == {}
    assert {tp: offsets[-1] for tp, offsets in history.items()} == {
        tp: sum(count for stream, count in sent.items() if stream.partition == tp.partition) for tp in partitions}


def read_twice(group: Sequence[Member]) -> int:
    found = [each for member in group for each in list(member.found)]
    return len(found) - len(set(found))


# --- assignments ----------------------------------------------------------------------------------------------


def test_of_four_partitions_a_group_of_four_gets_one_each_and_a_group_of_two_gets_two_each(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 4)
    with members() as four, members() as two:
        four += [Member(kafka_cluster, f"{topic}-a", [topic]).start() for _ in range(4)]
        two += [Member(kafka_cluster, f"{topic}-b", [topic]).start() for _ in range(2)]
        eventually(lambda: shared_out(four, partitions) and counts(four) == [1, 1, 1, 1], LIMIT_S)
        eventually(lambda: shared_out(two, partitions) and counts(two) == [2, 2], LIMIT_S)
        fill(kafka_cluster, topic, 4)
        for group in (four, two):
            eventually(lambda group=group: sum(len(each.found) for each in group) == 40, LIMIT_S)  # type: ignore[misc]
            assert read_twice(group) == 0
            assert all({found.partition for found in each.found} == {tp.partition for tp in each.owned} for each in group)


@BOTH
def test_with_three_partitions_and_four_members_one_is_idle_without_error(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    partitions = make_topic(kafka_cluster, topic, 3)
    with members() as running:
        running += [Member(kafka_cluster, topic, [topic], **terms).start() for _ in range(4)]
        eventually(lambda: shared_out(running, partitions) and counts(running) == [0, 1, 1, 1] and len(describe(kafka_cluster, topic).members) == 4, LIMIT_S)
        fill(kafka_cluster, topic, 3)
        eventually(lambda: sum(len(each.found) for each in running) == 30, LIMIT_S)
        assert sorted(len(each.found) for each in running) == [0, 10, 10, 10]


def test_keys_go_where_a_java_service_puts_them_and_each_group_gets_every_record(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 3)
    with members() as one, members() as three:
        one.append(Member(kafka_cluster, f"{topic}-1", [topic]).start())
        three += [Member(kafka_cluster, f"{topic}-2", [topic]).start() for _ in range(3)]
        eventually(lambda: shared_out(one, partitions) and shared_out(three, partitions) and counts(three) == [1, 1, 1], LIMIT_S)
        with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers,
                      partitioner="examples.java_hashcode_partitioner:JavaHashCodePartitioner") as producer:
            for key in (b"1", b"2", b"3"):
                producer.send(topic, b"value", key)
        eventually(lambda: len(one[0].found) == 3 and all(len(each.found) == 1 for each in three), LIMIT_S)
        assert sorted(key or b"" for key in one[0].keys) == [b"1", b"2", b"3"]
        expected = {1: [b"1"], 2: [b"2"], 0: [b"3"]}
        assert {each.found[0].partition: each.keys for each in three} == expected


class Broadcast:
    """Assigns all partitions to every member."""

    name = "broadcast"
    protocols = ("eager",)

    def assign(self, cluster: ClusterView, group: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        return {member: Assignment(tuple(TopicPartition(topic, part.partition) for topic in view.topics for part in cluster.topics[topic]))
                for member, view in group.items()}


def test_a_users_assignor_may_assign_a_partition_to_all_members(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 2)
    with members() as running:
        running += [Member(kafka_cluster, topic, [topic], assignors=[Broadcast()]).start() for _ in range(3)]
        eventually(lambda: all(each.owned == set(partitions) for each in running) and len(describe(kafka_cluster, topic).members) == 3, LIMIT_S)
        fill(kafka_cluster, topic, 2)
        eventually(lambda: all(len(each.found) == 20 for each in running), LIMIT_S)


# --- static and cooperative members -----------------------------------------------------------------------------------


@BOTH
def test_G05_N01_a_static_member_that_restarts_moves_no_partition(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    partitions = make_topic(kafka_cluster, topic, 4)
    with members() as running:
        running += [Member(kafka_cluster, topic, [topic], group_instance_id=name, **terms).start() for name in "ab"]
        share_evenly(running, partitions)
        stays, goes = running
        had, calls_before = goes.owned, len(stays.listener.calls)
        running.remove(goes)
        goes.stop()
        fill(kafka_cluster, topic, 4)
        running.append(Member(kafka_cluster, topic, [topic], group_instance_id="b", **terms).start())
        eventually(lambda: running[1].owned == had and len(running[1].found) == 20, LIMIT_S)
        assert len(stays.listener.calls) == calls_before, "the other member's listener is not called"


def test_G03_of_two_members_with_one_instance_id_the_first_is_fenced(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 2)
    with members() as running:
        first = Member(kafka_cluster, topic, [topic], group_instance_id="one").start()
        eventually(lambda: shared_out([first], partitions), LIMIT_S)
        running.append(Member(kafka_cluster, topic, [topic], group_instance_id="one").start())
        eventually(lambda: shared_out(running, partitions), LIMIT_S)
        eventually(lambda: first.fault is not None, LIMIT_S)
        with pytest.raises(FencedInstanceIdError):
            first.stop()
        assert first.listener.of("lost") == [tuple(partitions)]
        assert shared_out(running, partitions), "it does not join again and fence the other one"


def test_N01_of_two_members_with_one_instance_id_the_second_is_refused_while_the_first_lives(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 2)
    with members() as running:
        running.append(Member(kafka_cluster, topic, [topic], group_instance_id="one", **BY_BROKER).start())
        eventually(lambda: shared_out(running, partitions), LIMIT_S)
        calls_before = len(running[0].listener.calls)
        second = Member(kafka_cluster, topic, [topic], group_instance_id="one", **BY_BROKER).start()
        eventually(lambda: second.fault is not None, LIMIT_S)
        with pytest.raises(UnreleasedInstanceIdError):
            second.stop()
        assert len(running[0].listener.calls) == calls_before, "the first one's listener is not called"
        running.pop().stop()
        running.append(Member(kafka_cluster, topic, [topic], group_instance_id="one", **BY_BROKER).start())
        eventually(lambda: shared_out(running, partitions), LIMIT_S)


@on(classic=CLASSIC["cooperative-sticky"], consumer=BY_BROKER)
def test_G06_a_cooperative_group_moves_as_few_partitions_as_possible(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    partitions = make_topic(kafka_cluster, topic, 8)
    with members() as running:
        running.append(Member(kafka_cluster, topic, [topic], **terms).start())
        share_evenly(running, partitions)
        running.append(Member(kafka_cluster, topic, [topic], **terms).start())
        share_evenly(running, partitions)
        [gone] = running[0].listener.of("revoked")
        assert len(gone) == 4
        assert running[1].owned == set(gone)


RANGE, COOPERATIVE_STICKY = CLASSIC["range"], CLASSIC["cooperative-sticky"]
ROUNDS: Final[Mapping[str, Sequence[tuple[Terms, str]]]] = {
    "eager-cooperative": [(RANGE, "range"), ({"assignors": ["cooperative-sticky", "range"]}, "cooperative-sticky"), (COOPERATIVE_STICKY, "cooperative-sticky")],
    "eager-consumer-eager": [(RANGE, "range"), (BY_BROKER, "uniform"), (RANGE, "range")],
    "cooperative-consumer-cooperative": [(COOPERATIVE_STICKY, "cooperative-sticky"), (BY_BROKER, "uniform"), (COOPERATIVE_STICKY, "cooperative-sticky")]}


@pytest.mark.parametrize("rounds", ROUNDS.values(), ids=ROUNDS)
def test_a_group_changes_its_assignor_or_its_protocol_member_by_member(
        kafka_cluster: LocalCluster, topic: str, rounds: Sequence[tuple[Terms, str]]) -> None:
    """KIP-429 restarts all members twice: first with both assignors, then without the eager one.

    KIP-848 migrates in both directions.
    """
    partitions = make_topic(kafka_cluster, topic, PARTITIONS)
    ledger = Ledger()
    everybody: list[Member] = []

    def comes(terms: Terms) -> None:
        everybody.append(Member(kafka_cluster, topic, [topic], ledger=ledger, manual=True, **terms))
        running.append(everybody[-1].start())
        share_evenly(running, partitions)
        # A group that becomes classic again removes members that do not know its newest epoch.
        settled(kafka_cluster, topic, partitions)

    with load(kafka_cluster, topic, partitions=PARTITIONS, producers=1, rate=1000) as sending, members() as running:
        for terms, used in rounds:
            for _ in range(3):
                if len(running) == 3:
                    running.pop(0).stop()
                comes(terms)
            assert describe(kafka_cluster, topic).assignor == used
        sending.stop()
        acknowledged, sent = sending.acknowledged(), sending.sent
        eventually(lambda: len(processed(*(each.found for each in everybody))) >= sum(sent.values()), LIMIT_S)
    found = processed(*(each.found for each in everybody))
    assert judge(acknowledged, sent, found) == Verdict(sum(sent.values()), lost=0, doubled=0, misplaced=0, strange=0)
    assert read_twice(everybody) == 0
    assert ledger.breaches == []
    assert goes_back(commits(kafka_cluster, topic)) == {}


# --- a coordinator that moves ----------------------------------------------------------------------------------------


@ON_THREE_BROKERS
def test_N07_a_group_goes_on_when_another_broker_becomes_its_coordinator(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 6, 3, min_insync_replicas="2")
    ledger = Ledger()
    everybody: list[Member] = []

    def comes() -> None:
        everybody.append(Member(kafka_cluster, topic, [topic], ledger=ledger, manual=True, use_async=len(everybody) % 2 == 1, **BY_BROKER))
        running.append(everybody[-1].start())

    with members() as running:
        comes()
        comes()
        share_evenly(running, partitions)
        kafka_cluster.wait_in_sync()
        with load(kafka_cluster, topic, partitions=6, producers=1, rate=600) as sending:
            gone = coordinator(kafka_cluster)
            kafka_cluster.kill(gone)
            try:
                comes()
                share_evenly(running, partitions)
                assert coordinator(kafka_cluster) != gone
            finally:
                kafka_cluster.start(gone)
            running.pop(0).stop()
            share_evenly(running, partitions)
            sending.stop()
            acknowledged, sent = sending.acknowledged(), sending.sent
        eventually(lambda: len(processed(*(each.found for each in everybody))) >= sum(sent.values()), LIMIT_S)
    found = processed(*(each.found for each in everybody))
    assert judge(acknowledged, sent, found) == Verdict(sum(sent.values()), lost=0, doubled=0, misplaced=0, strange=0)
    assert [each.listener.of("lost") for each in everybody] == [[]] * 3
    assert read_twice(everybody) == 0
    assert ledger.breaches == []
    assert goes_back(commits(kafka_cluster, topic)) == {}


def coordinator(cluster: LocalCluster) -> int:
    """The broker that leads the only partition of __consumer_offsets."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        leader = admin.describe_topics([OFFSETS])[OFFSETS].partitions[0].leader
    assert leader is not None
    return leader


# --- topics that change ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("terms", "matched_by"), [({}, re.compile), (BY_BROKER, re.compile), (BY_BROKER, SubscriptionPattern)],
                         ids=["classic", "consumer", "consumer-broker"])
def test_N09_a_pattern_reads_a_topic_that_is_created_later(
        kafka_cluster: LocalCluster, topic: str, terms: Terms, matched_by: Callable[[str], Any]) -> None:
    first = make_topic(kafka_cluster, f"{topic}-a", 2)
    coordinators_know(kafka_cluster, first)
    with members() as running:
        pattern = matched_by(re.escape(topic) + "-.")
        running += [Member(kafka_cluster, topic, pattern, metadata_max_age_ms=300, **terms).start() for _ in range(2)]
        share_evenly(running, first)
        assert running[0].consumer.subscription() == {f"{topic}-a"}
        make_topic(kafka_cluster, f"{topic}-other", 2)
        second = make_topic(kafka_cluster, f"{topic}-b", 2)
        share_evenly(running, first + second)
        fill(kafka_cluster, f"{topic}-b", 2)
        eventually(lambda: sum(len(each.found) for each in running) == 20, LIMIT_S)


@ALL
def test_G08_partitions_that_are_added_to_a_topic_are_picked_up(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    partitions = make_topic(kafka_cluster, topic, 2)
    with members() as running:
        running += [Member(kafka_cluster, topic, [topic], metadata_max_age_ms=300, **terms).start() for _ in range(2)]
        share_evenly(running, partitions)
        admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 6)])[topic].result(30)
        partitions += [TopicPartition(topic, number) for number in range(2, 6)]
        share_evenly(running, partitions)
        fill(kafka_cluster, topic, 6)
        eventually(lambda: len(processed(*(each.found for each in running))) == 60, LIMIT_S)


@BOTH
def test_G08_a_deleted_topic_is_given_up_and_the_others_are_read_on(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    stays, goes = (make_topic(kafka_cluster, f"{topic}-{name}", 2) for name in "ab")
    for name in "ab":
        fill(kafka_cluster, f"{topic}-{name}", 2)
    with members() as running:
        running += [Member(kafka_cluster, topic, [f"{topic}-a", f"{topic}-b"], metadata_max_age_ms=300, allow_auto_create_topics=False,
                           auto_commit_interval_ms=60_000, **terms).start() for _ in range(2)]
        eventually(lambda: evenly(running, stays + goes) and sum(len(each.found) for each in running) == 40, LIMIT_S)
        with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
            admin.delete_topics([f"{topic}-b"])
        # An automatic commit that waited for the deleted topic would take a minute.
        eventually(lambda: evenly(running, stays), LIMIT_S / 2)
        fill(kafka_cluster, f"{topic}-a", 2)
        eventually(lambda: sum(len(each.found) for each in running) == 60, LIMIT_S)
    assert [offsets[-1] for tp, offsets in sorted(commits(kafka_cluster, topic).items()) if tp in stays] == [20, 20]


@BOTH
def test_a_topic_created_after_its_subscribers_is_read(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    with members() as running:
        running += [Member(kafka_cluster, topic, [topic], metadata_max_age_ms=300, allow_auto_create_topics=False, **terms).start() for _ in range(2)]
        eventually(lambda: len(describe(kafka_cluster, topic).members) == 2, LIMIT_S)
        partitions = make_topic(kafka_cluster, topic, 2)
        fill(kafka_cluster, topic, 2)
        share_evenly(running, partitions)
        eventually(lambda: sum(len(each.found) for each in running) == 20, LIMIT_S)
