"""Invariants of progress: a broker that hangs delays no record for long once another one has taken over."""
from __future__ import annotations

from typing import Final

from pyclient.testing.fake.model.elections import NO_LEADER
from pyclient.testing.simulation.facts import Key
from pyclient.testing.simulation.invariants import HANGS, INVARIANTS, Judge, breach, holds
from pyclient.testing.simulation.world import World

DETECTION_S: Final = 2.0
"""A client that waits longer for an answer has to look for another node."""
PROGRESS_S: Final = 2.0
"""After that: a look-up that another hung broker does not answer either, and the pause before the next one."""


@holds("second", "M05", HANGS)
def a_partition_with_a_live_leader_makes_progress(judge: Judge) -> None:
    """Where brokers only hang, a record is settled soon after its partition has a leader that does not."""
    facts, now = judge.facts, judge.world.loop.time()
    live, facts.live_since = facts.live_since, {}
    for tp, leader in _live_leaders(judge.world).items():
        known = live.get(tp)
        facts.live_since[tp] = known if known is not None and known[0] == leader else (leader, now)
    for sent in facts.unsettled.values():
        if sent.delivery is None or sent.tp not in facts.live_since:
            continue
        waited = now - max(sent.at, facts.live_since[sent.tp][1])
        if waited > DETECTION_S + PROGRESS_S:
            raise breach(a_partition_with_a_live_leader_makes_progress,
                         f"{sent.name!r} is not settled, and {sent.tp} has had a live leader for {waited:.1f} s")


def _live_leaders(world: World) -> dict[Key, tuple[int, int]]:
    """Partitions whose leader answers, with its epoch."""
    hung = world.front.paused
    return {(topic.name, each.index): (each.leader, each.leader_epoch) for topic in world.kafka.topics.values() for each in topic.partitions
            if each.leader != NO_LEADER and each.leader in world.kafka.alive and each.leader not in hung}


RULES_OF_PROGRESS: Final = (INVARIANTS[a_partition_with_a_live_leader_makes_progress.__name__],)
