"""One seed of a group: producers, members that consume their records, and faults."""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from pyclient.codec.apis import Api
from pyclient.testing.fake.model.request import Request
from pyclient.testing.simulation.facts import Facts
from pyclient.testing.simulation.faults import OF_THEIR_OWN, KINDS, Fault
from pyclient.testing.simulation.group_facts import GroupFacts
from pyclient.testing.simulation.group_invariants import RULES_OF_GROUPS
from pyclient.testing.simulation.invariants import RECOVERY_S, Invariant
from pyclient.testing.simulation.members import GROUP, HEARTBEATS_MS, LATEST_START_S, SESSIONS_MS, MemberService, committed, group_options, member_options
from pyclient.testing.simulation.run import Outcome, Run
from pyclient.testing.simulation.workload import Plan, producer_options

NOT_FOR_GROUPS: Final = OF_THEIR_OWN | {"callback_raises", "rejection", "clock_jump"}
"""Faults that do not concern members, or have a generator of their own."""
BROKERS_LEAVE: Final = frozenset({"broker_restart", "broker_loss", "hung"})
"""Faults that take a broker, and its rack, out of the views of the cluster."""
STABLE_S: Final = 5.0
"""How long a stable group is observed."""
NEWCOMERS: Final = (1, 1, 2)
"""How many members join the stable group."""
READ_TO_THE_END_S: Final = 60.0
"""How long a stable group may take to read to the end."""
STABLE: Final = "STABLE"
GROWS: Final = 0.3
"""How many runs give a topic more partitions."""
ASSIGNMENTS_PER_S: Final = (1000.0, 1000.0, 2.0, 0.5)
"""How fast assignors are: most at once, some take seconds."""


class GroupRun(Run):
    """A run whose consumers are members of one group."""

    KINDS = tuple(kind for kind in KINDS if kind not in NOT_FOR_GROUPS)
    facts: GroupFacts

    def __init__(self, seed: int, faults: Sequence[Fault] | None = None) -> None:
        super().__init__(seed, faults)
        self.world.next_generation = "session_timeout_ms" not in self.plan.consumers[0]
        self._commits = asyncio.Event()
        self._stable = asyncio.Event()

    def _reads_near(self) -> bool:
        return False  # faults of followers are for consumers that are alone

    def _settings(self, random: Random) -> dict[str, object]:
        return {**super()._settings(random), "group.consumer.session.timeout.ms": random.choice(SESSIONS_MS),
                "group.consumer.heartbeat.interval.ms": random.choice(HEARTBEATS_MS)}

    def _new_facts(self) -> Facts:
        return GroupFacts()

    def _rules(self) -> Sequence[Invariant]:
        return (*super()._rules(), *RULES_OF_GROUPS)

    def _plan(self, random: Random) -> Plan:
        self._newcomers = random.choice(NEWCOMERS)
        topics = {f"topic-{number}": random.choice((1, 2, 3, 5)) for number in range(random.choice((1, 1, 2)))}
        shared = group_options(random)
        return Plan(topics=topics, largest_batch=1_048_588, producers=[producer_options(random)],
                    consumers=[member_options(random, shared) for _ in range(random.choice((1, 2, 2, 3, 3, 4)) + self._newcomers)],
                    records=400, working_s=random.uniform(35.0, 45.0), closes_at=None)

    def _consumers(self, done: asyncio.Event) -> Mapping[str, Any]:
        self.world.groups.append(GROUP)
        self.world.assignments_per_s = self.world.random("assignors").choice(ASSIGNMENTS_PER_S)
        longest = max(*SESSIONS_MS, *(each["max_poll_interval_ms"] for each in self.plan.consumers))
        noticed = max(self._plan_growth(), self._racks_seen())
        self.facts.settled_from = max(self.facts.calm_from, noticed) + RECOVERY_S + 2 * longest / 1000
        begins = [None] * (len(self.plan.consumers) - self._newcomers) + [self._stable] * self._newcomers
        services = [MemberService(self.world, self.facts, self.judge, self.plan, number, after) for number, after in enumerate(begins)]
        return {each.name: each.run() for each in services}

    def _plan_growth(self) -> float:
        """In some runs a topic gets more partitions (G08). Returns when every member must have noticed."""
        random = self.world.random("growth")
        if random.random() >= GROWS:
            return 0.0
        at, name, more = random.uniform(3.0, 20.0), random.choice(list(self.plan.topics)), random.choice((1, 3))
        self.world.loop.call_at(at, self._grow, name, more)
        return at + self._oldest_view()

    def _racks_seen(self) -> float:
        """When a leader must have seen the racks of all brokers. One that assigned without some of them joins again."""
        back = [each.over for each in self.faults if each.kind in BROKERS_LEAVE]
        return max(back) + self._oldest_view() if back and not self.world.next_generation else 0.0

    def _oldest_view(self) -> float:
        """Seconds after which every member has a new view of the cluster."""
        oldest: int = max(each["metadata_max_age_ms"] for each in self.plan.consumers)
        return oldest / 1000

    def _grow(self, name: str, more: int) -> None:
        kafka = self.world.kafka
        topic = kafka.topics[name]
        kafka.add_partitions(topic, kafka.placed(0, more, kafka.settings.default_replication_factor))
        kafka.report("partitions added", topic=name, partitions=len(topic.partitions))

    async def _finish(self, done: asyncio.Event) -> None:
        """After the last fault members stay; the group becomes stable, and reads to the end."""
        done.set()
        await asyncio.sleep(max(0.0, self.facts.settled_from - self.world.loop.time()))
        self.judge.after("stable")
        await asyncio.sleep(STABLE_S)
        self.judge.after("still stable")
        await self._add_newcomers()
        self.judge.after("stable")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_TO_THE_END_S):
                while not self._all_is_committed():
                    self._commits.clear()
                    await self._commits.wait()
        self.facts.finished = True
        self.judge.after("group end")

    async def _add_newcomers(self) -> None:
        """Newcomers join, with fast assignors: the slowest would exceed the rebalance timeout."""
        settling = LATEST_START_S + 2 * max(SESSIONS_MS) / 1000
        self.world.assignments_per_s = max(ASSIGNMENTS_PER_S)
        self.facts.joined_from = self.world.loop.time()
        self.facts.settled_again = self.facts.joined_from + settling
        self._stable.set()
        await asyncio.sleep(settling)

    def _in_flight(self) -> bool:
        return any(member.group.state.name != STABLE for member in self.facts.members.values())

    def _all_is_committed(self) -> bool:
        facts = self.facts
        return facts.read_to_the_end() and all(facts.highest.get(tp, 0) >= facts.done[tp] or facts.tainted(tp) for tp in facts.stored)

    def _on_request(self, asked: Request) -> None:
        super()._on_request(asked)
        member = self.facts.members.get(asked.client_id or "")
        if asked.api is Api.JOIN_GROUP:
            self.facts.second.joins[asked.client_id or ""] += 1
        elif asked.api is Api.CONSUMER_GROUP_HEARTBEAT and member is not None:
            self.judge.after("heartbeat", member, asked.body)
            member.news_from = max(member.news_from, self.world.loop.time())

    def _on_event(self, event: str, facts: Mapping[str, Any]) -> None:
        super()._on_event(event, facts)
        if event == "committed":
            committed(self.judge, self.facts, (facts["topic"], facts["partition"]), facts["offset"], facts["client"])
            self._commits.set()


def run_group_seed(seed: int, faults: Sequence[Fault] | None = None) -> Outcome:
    """Run a seed of a group, as `run_seed` does."""
    return GroupRun(seed, faults).go()
