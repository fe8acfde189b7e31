"""The members of a simulated group: they commit, stall, crash, die, leave and rejoin; the seed draws their habits."""
from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from random import Random
from typing import Any, Final

from pyclient.errors import KafkaError, WakeupError
from pyclient.records import SubscriptionPattern, TopicPartition
from pyclient.testing.simulation.facts import Key
from pyclient.testing.simulation.group_facts import GroupFacts, Member
from pyclient.testing.simulation.handling import CrashedError, Handling
from pyclient.testing.simulation.invariants import Judge
from pyclient.testing.simulation.observers import observe_consumer
from pyclient.testing.simulation.workload import READ_TO_THE_END_S, Plan
from pyclient.testing.simulation.world import World

GROUP: Final = "group"
SESSIONS_MS: Final = (6000, 9000)
POLL_INTERVALS_MS: Final = (6000, 12_000)
HEARTBEATS_MS: Final = (500, 2000)
KIP_848_SHARE: Final = 0.4
"""The share of groups that use KIP-848."""
LATEST_START_S: Final = 3.0
"""The latest start of a newcomer after *after* is set."""
RESUBSCRIBE_AFTER_S: Final = 0.3
"""The pause before a member subscribes again."""
RESUBSCRIBES_SHARE: Final = 0.005
"""The probability that a step subscribes again without a reason."""
SWITCHES_SHARE: Final = 0.03
"""The probability that a step subscribes to other topics, where there are several."""
ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")


class ListenerFailedError(Exception):
    """Raised by a rebalance listener on purpose."""


def group_options(random: Random) -> dict[str, Any]:
    """The options that all members of a group share."""
    shared = {
        "group_id": GROUP, "max_poll_interval_ms": random.choice(POLL_INTERVALS_MS), "auto_offset_reset": "earliest",
        "enable_auto_commit": random.random() < 0.5, "auto_commit_interval_ms": random.choice((0, 1000, 4000)),
    }
    if random.random() < KIP_848_SHARE:
        return {**shared, "group_protocol": "consumer", "group_remote_assignor": random.choice(("uniform", "range", None))}
    return {**shared, "session_timeout_ms": random.choice(SESSIONS_MS), "heartbeat_interval_ms": random.choice(HEARTBEATS_MS),
            "assignors": (random.choice(ASSIGNORS),)}


def member_options(random: Random, shared: dict[str, Any]) -> dict[str, Any]:
    """One member's options: it may have another assignor besides the common one, with the same protocol."""
    own = {"assignors": _with_others(random, *shared["assignors"])} if "assignors" in shared else {}
    return {
        **shared, **own,
        "client_rack": random.choice(("", "", "rack-1", "rack-2", "rack-3")), "max_poll_records": random.choice((5, 50, 500)), "fetch_max_wait_ms": random.choice((100, 500)),
        "request_timeout_ms": random.choice((2000, 4000)), "retry_backoff_ms": 50, "retry_backoff_max_ms": 1000,
        "reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 1000, "metadata_max_age_ms": random.choice((3000, 30_000)),
        "socket_connection_setup_timeout_ms": 2000, "socket_connection_setup_timeout_max_ms": 4000, "default_api_timeout_ms": 15_000,
    }


def _with_others(random: Random, common: str) -> tuple[str, ...]:
    others = [name for name in ASSIGNORS if name != common and (name == "cooperative-sticky") == (common == "cooperative-sticky")]
    more = random.sample(others, random.choice((0, 0, 1))) if others else []
    return (common, *more) if random.random() < 0.5 else (*more, common)


class MemberService:
    """A service that is a member of the group, over all its lives; the first begins when *after* is set."""

    def __init__(self, world: World, facts: GroupFacts, judge: Judge, plan: Plan, number: int, after: asyncio.Event | None = None) -> None:
        self.name = f"member-{number}"
        self._after = after
        self._world, self._facts, self._judge, self._plan = world, facts, judge, plan
        self._random = world.random(self.name)
        self._switches = world.random(f"{self.name} switches topics")
        self._options = dict(plan.consumers[number])
        if self._random.random() < 0.2:
            self._options["group_instance_id"] = self.name
        self._restless = self._random.choice((0.0, 0.01, 0.03))
        """The probability that a step is the last one of this life."""
        self._stalls = self._random.choice((0.0, 0.0, 0.02))
        self._pause = self._random.choice((0.0, 0.2, 0.6))
        self._careless = self._random.random() < 0.3
        """Its listener may raise or be slow."""
        self._commits = self._random.choice((0.1, 0.5, 1.0))
        """The probability of a commit per step, without automatic commits."""
        self._handling = Handling(world, facts, judge, self.name, self._random, lambda: self._faults_are_over, self._inside, self._options)
        self._member: Member

    # ---- lives -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Live until everything was read; restless members die or leave and rejoin until the last fault is over."""
        if self._after is not None:
            await self._after.wait()
            await asyncio.sleep(self._random.uniform(0.0, LATEST_START_S))
        await self._idle(self._random.choice((0.0, 0.0, 3.0, 15.0)))
        while True:
            self._member = self._new_member()
            ending = await self._life()
            self._world.journal.note(self.name, ending)
            if ending == "is done":
                return
            await self._idle(self._random.choice((0.0, 1.0, 8.0)))

    def _new_member(self) -> Member:
        topics = frozenset(self._plan.topics)
        consumer = self._world.consumer(self.name, topics=self._names_or_pattern(topics), rebalance_listener=self, **self._options)
        observe_consumer(self.name, consumer._core, self._judge)
        return Member(self.name, consumer, topics)

    def _names_or_pattern(self, topics: Collection[str]) -> Any:
        if self._random.random() < 0.2:
            if "group_protocol" in self._options and self._random.random() < 0.5 and len(topics) == len(self._plan.topics):
                return SubscriptionPattern("topic-.*")
            return re.compile("|".join(map(re.escape, sorted(topics))))
        return sorted(topics)

    async def _life(self) -> str:
        member, consumer = self._member, self._member.consumer
        await consumer.__aenter__()
        self._facts.members[self.name] = member
        ending = await self._live()
        if ending == "dies":
            del self._facts.members[self.name]
            await consumer._portal.call(consumer._core.close)  # without a LeaveGroup, and nothing is committed
            await consumer._pending_commits.wait()
            return ending
        await self._try(lambda: self._leave(ending))
        del self._facts.members[self.name]
        return ending

    async def _leave(self, ending: str) -> None:
        """Close the consumer, as the end of its ``async with`` does."""
        crash = CrashedError("on purpose") if ending == "crashes" else None
        with self._inside("close"):
            await self._member.consumer.__aexit__(None if crash is None else type(crash), crash, None)

    async def _live(self) -> str:
        while not self._facts.finished and self._world.loop.time() < self._facts.settled_again + READ_TO_THE_END_S:
            try:
                await self._step()
            except CrashedError:
                return self._random.choice(("dies", "crashes"))
            if not self._faults_are_over and self._random.random() < self._restless:
                return self._random.choice(("dies", "leaves"))
            await self._rest()
        return "is done"

    @property
    def _faults_are_over(self) -> bool:
        return self._world.loop.time() >= self._facts.calm_from

    async def _idle(self, seconds: float) -> None:
        """Do nothing for *seconds*, at most until the last fault is over."""
        await asyncio.sleep(min(seconds, max(0.0, self._facts.calm_from - self._world.loop.time())))

    async def _rest(self) -> None:
        if not self._faults_are_over and self._random.random() < self._stalls:
            self._world.journal.note(self.name, "does not poll for long")
            await self._idle(self._random.uniform(0.5, 2.0) * self._options["max_poll_interval_ms"] / 1000)
        await asyncio.sleep(self._pause * self._random.uniform(0.5, 1.5))

    # ---- steps -------------------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        self._switch_topics()
        await self._try(lambda: self._handling.step(self._member))
        if not self._options["enable_auto_commit"] and (self._faults_are_over or self._random.random() < self._commits):
            await self._try(self._commit)
        if self._member.group.failure is not None or (not self._faults_are_over and self._random.random() < RESUBSCRIBES_SHARE):
            await self._try(self._subscribe_again)
        self._judge.after("step", self._member)

    async def _try(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except WakeupError:  # the iteration that it was meant for had ended
            self._world.journal.note(self.name, "is woken up")
        except (KafkaError, ListenerFailedError) as error:
            self._on_error(error)

    async def _subscribe_again(self) -> None:
        """An error that keeps the member out of the group lasts until it subscribes again."""
        consumer = self._member.consumer
        await asyncio.sleep(RESUBSCRIBE_AFTER_S)
        with self._inside("unsubscribe"):
            try:
                if self._random.random() < 0.5:
                    await consumer.unsubscribe()
            finally:
                consumer.subscribe(self._names_or_pattern(self._member.topics), rebalance_listener=self)

    def _switch_topics(self) -> None:
        """Subscribe to other topics, mostly for a moment only; to all of them after the last fault.

        The poll that follows at once may return nothing that was fetched before of the others.
        """
        every, now = frozenset(self._plan.topics), self._member.topics
        narrow = now == every and not self._faults_are_over
        if len(every) == 1 or (now == every if self._faults_are_over else self._switches.random() >= (SWITCHES_SHARE if narrow else 0.3)):
            return
        self._member.topics = frozenset({self._switches.choice(sorted(every))}) if narrow else every
        self._world.journal.note(self.name, f"subscribes to {sorted(self._member.topics)}")
        self._member.consumer.subscribe(self._names_or_pattern(self._member.topics))

    async def _commit(self) -> None:
        with self._inside("commit"):
            if self._random.random() < 0.3:
                self._member.consumer.commit_async()
            else:
                await self._member.consumer.commit(timeout=5.0)

    def _on_error(self, error: BaseException) -> None:
        self._world.journal.note(self.name, f"gets {error!r}")
        if isinstance(error, KafkaError):
            self._judge.after("refused", self.name, error)
            self._judge.after("refused a member", self._member, error)

    @contextlib.contextmanager
    def _inside(self, call: str) -> Iterator[None]:
        self._member.inside = call
        try:
            yield
        finally:
            self._member.inside = ""

    # ---- the listener ------------------------------------------------------------------------------------------------

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """The member owns these partitions now."""
        before = {tp: self._facts.highest.get((tp.topic, tp.partition), -1) for tp in partitions}
        try:
            async with self._callback("assigned", partitions):
                self._member.owned.update(before)
                self._handling.prepare(self._member, partitions)
        except BaseException:
            if "group_protocol" in self._options:
                self._forget(partitions)  # N06: they are given to it again
            raise

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """The member no longer owns these partitions; it may commit once more."""
        async with self._callback("revoked", partitions):
            try:
                if not self._options["enable_auto_commit"] and self._random.random() < 0.5:
                    await self._member.consumer.commit(timeout=2.0)
            except KafkaError as error:
                self._on_error(error)
            finally:
                self._forget(partitions)

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The member lost these partitions."""
        async with self._callback("lost", partitions):
            self._forget(partitions)

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            self._member.owned.pop(tp, None)
            self._member.next.pop(tp, None)

    @contextlib.asynccontextmanager
    async def _callback(self, what: str, partitions: Sequence[TopicPartition]) -> Any:
        member = self._member
        self._world.journal.note(self.name, f"{what} is called with {[str(tp) for tp in partitions]}")
        self._judge.after("listener_called", member, what, partitions)
        member.in_listener = what
        try:
            yield
            if self._careless and not self._faults_are_over and self._random.random() < 0.3:
                await self._idle(self._random.choice((0.1, 3.0, 20.0)))
        finally:
            member.in_listener = ""
            member.news_from = self._world.loop.time()
        if self._careless and not self._faults_are_over and self._random.random() < 0.2:
            raise ListenerFailedError("on purpose")


def committed(judge: Judge, facts: GroupFacts, tp: Key, offset: int, client: str | None) -> None:
    """The group's coordinator has stored an offset."""
    judge.after("group committed", tp, offset)
    if client in facts.members:
        judge.after("member committed", facts.members[client], tp, offset)
    facts.highest[tp] = max(offset, facts.highest.get(tp, -1))
