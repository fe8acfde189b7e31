"""Facts about a group that no client knows: owners, delivered records, processed records. No rules are checked here."""
from __future__ import annotations

from collections import defaultdict
from typing import Any

import attrs

from pyclient.consumer.async_facade import AsyncConsumer
from pyclient.records import TopicPartition
from pyclient.testing.simulation.facts import Facts, Key


@attrs.define(eq=False)
class Member:
    """One life of one member, as its user sees it."""

    name: str
    consumer: AsyncConsumer
    topics: frozenset[str]
    """What it subscribes to, by names or by a pattern."""
    owned: dict[TopicPartition, int] = attrs.field(factory=dict)
    """What its listener was given, and what the group had committed then (-1: nothing)."""
    next: dict[TopicPartition, int] = attrs.field(factory=dict)
    """The offset of the next record of what it has; nothing before the first one."""
    in_listener: str = ""
    """The callback that runs now."""
    inside: str = ""
    """The call of the consumer that is under way."""
    news_from: float = float("inf")
    """When there last was something to state to the coordinator: a callback has ended, or a heartbeat was answered."""

    @property
    def group(self) -> Any:
        """Its membership, as the client keeps it."""
        return self.consumer._core.membership


@attrs.define(eq=False)
class GroupFacts(Facts):
    """The facts of a run whose consumers share a group."""

    members: dict[str, Member] = attrs.field(factory=dict)
    """The members that live now."""
    done: dict[Key, int] = attrs.field(factory=lambda: defaultdict(int))
    """Up to there, every record of a partition was processed by some member."""
    highest: dict[Key, int] = attrs.field(factory=dict)
    """The highest offset that the group has ever committed."""
    finished: bool = False
    """All records were processed and committed: members may leave."""
    stable_generation: int = 0
    """The generation in which the group became stable."""
    settled_from: float = float("inf")
    """From when on the group must be stable."""
    joined_from: float = float("inf")
    """When newcomers begin to join the stable group."""
    settled_again: float = float("inf")
    """From when on it must be stable with them."""

    def must_be_stable(self, now: float) -> bool:
        """Whether the group must be stable now."""
        return self.settled_from < now < self.joined_from or (now > self.settled_again and not self.finished)

    def generations(self) -> set[int]:
        """The members' generations, as they know them."""
        return {member.group.identity.generation for member in self.members.values()}

    def tainted(self, tp: Key) -> bool:
        """Whether an unclean election truncated it: its offsets mean other records since then."""
        return bool(self.cuts[tp])

    def process(self, tp: Key, offset: int) -> None:
        """Some member has processed a record."""
        if self.reached(tp) >= offset:
            self.done[tp] = max(self.done[tp], offset + 1)

    def reached(self, tp: Key) -> int:
        """The offset up to which every record was processed or deleted."""
        return max(self.done[tp], self.latest_start[tp])

    def read_to_the_end(self) -> bool:
        """Whether every record of every log was processed."""
        return all(self.reached(tp) >= self.end(tp) for tp in self.stored)
