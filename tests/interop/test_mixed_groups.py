"""Groups of our members and other clients, each in turn as the leader: partitions move both ways without losses."""
from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import pytest

from pyclient import TopicPartition
from pyclient.plugin_loading import load_plugin
from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.testing import LocalCluster
from tests.broker.durability.load import load
from tests.broker.durability.numbering import Found, Verdict, judge
from tests.groups import BY_BROKER, LIMIT_S, ON_ONE_BROKER, Ledger, Member, Terms, by_members, members, ours_go_back, processed, settled, share_evenly, stored_commits
from tests.interop.librdkafka_members import THEIRS, Aio, Confluent, Guest, Java, NewerConfluent, NewerJava, Python
from tests.kafka import make_topic
from tests.waiting import eventually

pytestmark = [ON_ONE_BROKER, pytest.mark.timeout(300)]

PARTITIONS: Final = 6
PAIRS: Final = [(guest, strategy) for guest in (Confluent, Python, Aio, Java) for strategy in guest.strategies]
NEWER: Final = [(guest, strategy) for guest in (NewerConfluent, NewerJava) for strategy in guest.strategies]


def named(pairs: Iterable[tuple[type[Guest], str]]) -> list[str]:
    return [f"{guest.__name__.lower()}-{strategy}" for guest, strategy in pairs]


class Watched:
    """One of our assignors, which counts how often this member was the leader."""

    def __init__(self, name: str) -> None:
        self._inner = load_plugin("assignor", name)
        self.name, self.protocols = self._inner.name, self._inner.protocols
        self.led = 0

    def assign(self, cluster: ClusterView, group: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        self.led += 1
        shares: Mapping[str, Assignment] = self._inner.assign(cluster, group)
        return shares

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # optional methods


Each = TypeVar("Each", Member, Guest)


class Group:
    """Members join and leave one at a time.

    After each step all members and the coordinator agree on the assignments.
    """

    def __init__(self, cluster: LocalCluster, topic: str, partitions: Sequence[TopicPartition], running: list[Any], assignor: str | None) -> None:
        self.everybody: list[Any] = []
        self.ledger = Ledger()
        self._cluster, self._topic, self._partitions, self._running, self._assignor = cluster, topic, partitions, running, assignor

    def our_own(self, **terms: Any) -> Member:
        return self._comes(Member(self._cluster, self._topic, [self._topic], ledger=self.ledger, manual=True, **terms))

    def theirs(self, kind: type[Guest], strategy: str) -> Guest:
        return self._comes(kind(self._cluster, self._topic, strategy, self.ledger))

    def goes(self, member: Any) -> None:
        self._running.remove(member)
        member.stop()
        self._quiet()

    def found(self) -> list[Found]:
        return processed(*(each.found for each in self.everybody))

    def _comes(self, member: Each) -> Each:
        self.everybody.append(member)
        self._running.append(member.start())
        self._quiet()
        return member

    def _quiet(self) -> None:
        share_evenly(self._running, self._partitions)
        shares = settled(self._cluster, self._topic, self._partitions)
        assert len(shares.members) == len(self._running)
        assert self._assignor in (None, shares.assignor)


@contextlib.contextmanager
def under_load(cluster: LocalCluster, topic: str, assignor: str | None = None) -> Iterator[Group]:
    """A group whose topic is written to all the time.

    Finally all records were read, by one owner at a time, and no commit went back, except those of confluent's and
    aiokafka's members. One run showed steps of one, as confluent's commit, from 76 back to 1 (librdkafka issue 3710 has
    such a restart). An offset of one generation that waits in aiokafka is committed with the number of the next.
    """
    partitions = make_topic(cluster, topic, PARTITIONS)
    with load(cluster, topic, partitions=PARTITIONS, producers=1, rate=600) as sending, members() as running:
        group = Group(cluster, topic, partitions, running, assignor)
        yield group
        sending.stop()
        acknowledged, sent = sending.acknowledged(), sending.sent
        eventually(lambda: len(group.found()) >= sum(sent.values()), LIMIT_S)
    assert judge(acknowledged, sent, group.found()) == Verdict(sum(sent.values()), lost=0, doubled=0, misplaced=0, strange=0)
    assert group.ledger.breaches == [], group.ledger.breaches
    history = stored_commits(cluster, topic)
    back = ours_go_back(history, THEIRS)
    assert back == {}, {where: history[where] for where in back}


@pytest.mark.parametrize(("kind", "strategy"), PAIRS, ids=named(PAIRS))
def test_both_clients_lead_in_turn_and_partitions_move_both_ways(
        kafka_cluster: LocalCluster, topic: str, kind: type[Guest], strategy: str) -> None:
    watched: list[Watched] = []

    def our_own() -> Member:
        watched.append(Watched(strategy))
        return group.our_own(assignors=[watched[-1]])

    def led() -> int:
        return sum(each.led for each in watched)

    with under_load(kafka_cluster, topic, strategy) as group:
        first = our_own()
        guest = group.theirs(kind, strategy)
        assert watched[0].led >= 2, "the first member leads"
        third = our_own()
        group.goes(third)
        group.goes(group.theirs(kind, strategy))
        assert watched[1].led == 0
        group.goes(first)
        before = led()
        back = our_own()
        other = our_own()
        group.goes(other)
        assert led() == before, "the other client leads"
        group.goes(guest)
        assert led() > before
        group.theirs(kind, strategy)
    assert back.listener.of("lost") == []


# --- the consumer protocol -----------------------------------------------------------------------------------


def take_turns(group: Group, terms: Terms, kind: type[Guest], strategy: str) -> list[Member]:
    """Each kind joins while the other is there, and leaves while the other stays; returns our members."""
    first = group.our_own(**terms)
    guest = group.theirs(kind, strategy)
    second = group.our_own(**terms)
    group.goes(first)
    other = group.theirs(kind, strategy)
    group.goes(guest)
    third = group.our_own(**terms)
    group.goes(other)
    group.goes(second)
    group.theirs(kind, strategy)
    return [first, second, third]


@pytest.mark.parametrize(("kind", "strategy"), NEWER, ids=named(NEWER))
def test_N05_a_broker_assigns_partitions_to_both_clients(kafka_cluster: LocalCluster, topic: str, kind: type[Guest], strategy: str) -> None:
    with under_load(kafka_cluster, topic, strategy) as group:
        ours = take_turns(group, {**BY_BROKER, "group_remote_assignor": strategy}, kind, strategy)
    assert [each.listener.of("lost") for each in ours] == [[]] * 3


@pytest.mark.parametrize(("terms", "kind", "strategy"), [
    pytest.param(BY_BROKER, Confluent, "cooperative-sticky", id="ours-beside-confluent"),
    pytest.param(BY_BROKER, Java, "range", id="ours-beside-java"),
    pytest.param(BY_BROKER, Python, "range", id="ours-beside-python"),
    pytest.param(by_members("cooperative-sticky"), NewerConfluent, "uniform", id="confluent-beside-ours"),
    pytest.param(by_members("range"), NewerJava, "uniform", id="java-beside-ours"),
])
def test_members_of_both_protocols_are_in_one_group(
        kafka_cluster: LocalCluster, topic: str, terms: Terms, kind: type[Guest], strategy: str) -> None:
    """KIP-848: the first member with the consumer protocol converts the group, and the last one converts it back."""
    with under_load(kafka_cluster, topic) as group:
        ours = take_turns(group, terms, kind, strategy)
    assert [each.listener.of("lost") for each in ours] == [[]] * 3
