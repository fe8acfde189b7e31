"""How a member handles its records: after polls or within iterations; it crashes, breaks off, seeks back and pauses."""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

from pyclient.errors import WakeupError
from pyclient.records import TopicPartition
from pyclient.records.record import Record
from pyclient.testing.simulation.group_facts import GroupFacts, Member
from pyclient.testing.simulation.invariants import Judge
from pyclient.testing.simulation.world import World

ITERATES: Final = (0.0, 0.3, 0.7)
"""The share of steps that iterate; the others poll."""
CRASHES: Final = (0.01, 0.03, 0.08)
"""The probability that a member crashes while it handles what a poll returned; a fifth for each iterated record."""
GIVES_UP_SHARE: Final = 0.1
"""The probability that a step seeks back to what it has not handled."""
PAUSES_SHARE: Final = 0.15
RESUMES_SHARE: Final = 0.5
PREPARES_SHARE: Final = 0.4
"""The share of services that pause what they are assigned, as those that load the state of a partition first."""
WORKS_SHARE: Final = 0.3
WORK_S: Final = (0.005, 0.01, 0.3, 1.5)
"""How long a member works on records; long enough for automatic commits to be stored meanwhile."""
COMMITS_SHARE: Final = 0.1
"""The probability of a commit after each record of an iteration, for those who commit there."""
WAITS_S: Final = (0.0, 0.3, 2.0)
PATIENT_SHARE: Final = 0.5
"""The share of services that wait long for records at last."""
WAIT_FACTOR: Final = 1.5
"""How long they wait, in max.poll.interval.ms: waiting is not absence (G04)."""
LONGEST_LOOP: Final = (1, 5, 40)
"""After so many records an iteration is left."""


class CrashedError(Exception):
    """Raised on purpose by the code that handles records."""


class Handling:
    """Handles the records of the members of service *name*, one after the other.

    ``calm()``: nothing may fail any more. Without automatic commits some commit within iterations.
    """

    def __init__(self, world: World, facts: GroupFacts, judge: Judge, name: str, random: Random, calm: Callable[[], bool],
                 inside: Callable[[str], contextlib.AbstractContextManager[None]], options: Mapping[str, Any]) -> None:
        self._world, self._facts, self._judge, self._random = world, facts, judge, random
        self._calm = calm
        self._inside = inside
        self._iterates = random.choice(ITERATES)
        self._crashes = random.choice(CRASHES)
        self._loops = world.random(f"{name} in loops")
        self._commits_within = not options["enable_auto_commit"] and self._loops.random() < 0.5
        self._prepares = world.random(f"{name} prepares").random() < PREPARES_SHARE
        self._longest_wait = WAIT_FACTOR * options["max_poll_interval_ms"] / 1000 if world.random(f"{name} waits").random() < PATIENT_SHARE else max(WAITS_S)
        """Of a poll, when nothing may fail any more."""
        self._member: Member

    async def step(self, member: Member) -> None:
        """Get some records and handle them. Raises CrashedError, and what the consumer raises."""
        self._member = member
        self._resume()
        if self._random.random() < self._iterates:
            await self._iterate()
        else:
            await self._poll()
        if self._happens(PAUSES_SHARE):
            self._pause(self._random.choice(sorted(member.consumer.assignment()) or [None]))

    def _happens(self, chance: float) -> bool:
        return not self._calm() and self._random.random() < chance

    # ---- polls -------------------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        with self._inside("poll"):
            records = list(await self._member.consumer.poll(self._wait()))
        for record in records:
            self._on_record(record)
        self._check_positions({TopicPartition(record.topic, record.partition) for record in records})
        handled = self._random.randrange(len(records) + 1) if records and self._is_interrupted() else len(records)
        await self._handle(records[:handled])
        if handled < len(records):
            self._fail(records[handled:])

    def _wait(self) -> float:
        wait = self._random.choice(WAITS_S)
        return self._longest_wait if self._calm() and wait == max(WAITS_S) else wait

    def _is_interrupted(self) -> bool:
        return self._happens(self._crashes + GIVES_UP_SHARE)

    async def _handle(self, records: Sequence[Record]) -> None:
        at = self._random.randrange(len(records) + 1) if self._random.random() < WORKS_SHARE else None
        for number, record in enumerate(records):
            if number == at:
                await self._work()
            self._facts.process((record.topic, record.partition), record.offset)

    async def _work(self) -> None:
        await asyncio.sleep(self._random.choice(WORK_S[:2] if self._calm() else WORK_S))

    def _fail(self, rest: Sequence[Record]) -> None:
        """The code that handles records fails: it crashes, or seeks back to what it has not handled."""
        if self._random.random() * (self._crashes + GIVES_UP_SHARE) < self._crashes:
            raise CrashedError(f"before it has handled {len(rest)} records")
        for record in reversed(rest):
            self._seek(record)

    # ---- iterations --------------------------------------------------------------------------------------------------

    async def _iterate(self) -> None:
        """Iterate until a wakeup, or break off after some records."""
        wakeup = self._world.loop.call_later(self._random.choice(WAITS_S), self._member.consumer.wakeup)
        records: Any = aiter(self._member.consumer)
        try:
            for _ in range(self._random.choice(LONGEST_LOOP)):
                await self._handle_next(records)
        except WakeupError:
            self._world.journal.note(self._member.name, "is woken up")
        finally:
            wakeup.cancel()
            if self._random.random() < 0.5:
                await records.aclose()

    async def _handle_next(self, records: AsyncIterator[Record]) -> None:
        with self._inside("poll"):
            record = await anext(records)
        self._on_record(record)
        self._check_positions([TopicPartition(record.topic, record.partition)])
        if self._happens(self._crashes / 5):
            raise CrashedError(f"before it has handled offset {record.offset}")
        if self._random.random() < WORKS_SHARE / 10:
            await self._work()
        if self._happens(GIVES_UP_SHARE / 5):
            self._seek(record)
            return
        self._facts.process((record.topic, record.partition), record.offset)
        if self._commits_within and self._loops.random() < COMMITS_SHARE:
            await self._commit(record)
        if self._happens(PAUSES_SHARE / 5):
            self._pause(TopicPartition(record.topic, record.partition))

    async def _commit(self, record: Record) -> None:
        """Commit within the body of the iteration, after *record* was handled."""
        with self._inside("commit"):
            await self._member.consumer.commit(timeout=5.0)
        self._judge.after("committed within", self._member, record)

    # ---- on the way --------------------------------------------------------------------------------------------------

    def _on_record(self, record: Record) -> None:
        member, tp = self._member, TopicPartition(record.topic, record.partition)
        self._facts.consumed += 1
        self._facts.second.records += 1
        self._world.journal.note(member.name, f"got offset {record.offset} of {tp}")
        self._judge.after("delivered", member, record)
        member.next[tp] = record.offset + 1

    def _check_positions(self, partitions: Iterable[TopicPartition]) -> None:
        """Evaluate what `position` returns without waiting."""
        for tp in sorted(partitions):
            position = self._member.consumer._consumed_positions.position(tp)
            if position is not None:
                self._judge.after("returned to a member", self._member, tp, position)

    def _seek(self, record: Record) -> None:
        """Read on from this record, which was not handled."""
        tp = TopicPartition(record.topic, record.partition)
        self._world.journal.note(self._member.name, f"seeks back to {record.offset} of {tp}")
        self._member.consumer.seek(tp, record.offset)
        self._member.next[tp] = record.offset

    def _pause(self, tp: TopicPartition | None) -> None:
        if tp is not None:
            self._world.journal.note(self._member.name, f"pauses {tp}")
            self._member.consumer.pause(tp)

    def prepare(self, member: Member, partitions: Sequence[TopicPartition]) -> None:
        """Some services read what they are assigned only later: commits of the assignment before may end meanwhile."""
        if partitions and self._prepares and not self._calm():
            self._world.journal.note(member.name, f"prepares for {[str(tp) for tp in partitions]}")
            member.consumer.pause(*partitions)

    def _resume(self) -> None:
        paused = sorted(self._member.consumer.paused())
        if paused and (self._calm() or self._random.random() < RESUMES_SHARE):
            self._world.journal.note(self._member.name, f"resumes {[str(tp) for tp in paused]}")
            self._member.consumer.resume(*paused)
