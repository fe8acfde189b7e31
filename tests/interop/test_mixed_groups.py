"""Groups of ours and of other clients, each in turn as the leader: partitions move both ways, and nothing is lost."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from pyclient.plugins import Assignment, ClusterView, MemberView, load_plugin
from pyclient.testing import LocalCluster
from tests.broker.durability.load import load
from tests.broker.durability.numbering import Verdict, judge
from tests.groups import LIMIT_S, ON_ONE_BROKER, Ledger, Member, commits, describe, evenly, goes_back, members, processed, settled
from tests.interop.guests import Aio, Confluent, Guest, Java, Python
from tests.kafka import make_topic
from tests.waiting import eventually

pytestmark = [ON_ONE_BROKER, pytest.mark.timeout(300)]

PARTITIONS: Final = 6
PAIRS: Final = [(guest, strategy) for guest in (Confluent, Python, Aio, Java) for strategy in guest.strategies]


class Watched:
    """One of our assignors that counts how often this member led."""

    def __init__(self, name: str) -> None:
        self._inner = load_plugin("assignor", name)
        self.name, self.protocols = self._inner.name, self._inner.protocols
        self.led = 0

    def assign(self, cluster: ClusterView, group: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        self.led += 1
        shares: Mapping[str, Assignment] = self._inner.assign(cluster, group)
        return shares

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # the powers that only some have


@pytest.mark.parametrize(("kind", "strategy"), PAIRS, ids=[f"{guest.__name__.lower()}-{strategy}" for guest, strategy in PAIRS])
def test_ours_and_theirs_lead_in_turn_and_partitions_move_both_ways(
        kafka_cluster: LocalCluster, topic: str, kind: type[Guest], strategy: str) -> None:
    partitions = make_topic(kafka_cluster, topic, PARTITIONS)
    ledger, watched = Ledger(), list[Watched]()
    everybody: list[Any] = []

    def our_own() -> Member:
        watched.append(Watched(strategy))
        return Member(kafka_cluster, topic, [topic], ledger=ledger, manual=True, assignors=[watched[-1]])

    def theirs() -> Guest:
        return kind(kafka_cluster, topic, strategy, ledger)

    def comes(member: Any) -> Any:
        everybody.append(member)
        running.append(member.start())
        quiet()
        return member

    def goes(member: Any) -> None:
        running.remove(member)
        member.stop()
        quiet()

    def quiet() -> None:
        eventually(lambda: evenly(running, partitions), LIMIT_S)
        assert len(settled(kafka_cluster, topic, partitions).members) == len(running)
        assert describe(kafka_cluster, topic).assignor == strategy

    def led() -> int:
        return sum(each.led for each in watched)

    with load(kafka_cluster, topic, partitions=PARTITIONS, producers=1, rate=600) as sending, members() as running:
        first = comes(our_own())
        guest = comes(theirs())
        assert watched[0].led >= 2, "who comes first leads"
        third = comes(our_own())
        goes(third)
        goes(comes(theirs()))
        assert watched[1].led == 0
        goes(first)
        before = led()
        back = comes(our_own())
        other = comes(our_own())
        goes(other)
        assert led() == before, "theirs leads"
        goes(guest)
        assert led() > before
        comes(theirs())
        sending.stop()
        told, sent = sending.acknowledged(), sending.sent
        eventually(lambda: len(processed(*(each.found for each in everybody))) >= sum(sent.values()), LIMIT_S)
        assert back.listener.of("lost") == []
    found = processed(*(each.found for each in everybody))
    assert judge(told, sent, found) == Verdict(sum(sent.values()), lost=0, doubled=0, misplaced=0, strange=0)
    assert ledger.breaches == []
    assert goes_back(commits(kafka_cluster, topic)) == {}
