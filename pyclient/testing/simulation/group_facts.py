"""Facts about a group that no client knows: owners, delivered records, processed records. No rules are checked here."""
from __future__ import annotations

from collections import defaultdict
from typing import Any

import attrs

from pyclient.consumer.facade import AsyncConsumer
from pyclient.records import TopicPartition
from pyclient.testing.simulation.facts import Facts, Key


@attrs.define(eq=False)
class Member:
    """One life of one member, as its user sees it."""

    name: str
    consumer: AsyncConsumer
    owned: dict[TopicPartition, int] = attrs.field(factory=dict)
    """What its listener was given, and what the group had committed then (-1: nothing)."""
    next: dict[TopicPartition, int] = attrs.field(factory=dict)
    """The offset of the next record of what it has; nothing before the first one."""
    in_listener: str = ""
    """The callback that runs now."""
    inside: str = ""
    """The call of the consumer that is under way."""

    @property
    def group(self) -> Any:
        """Its membership, as the client keeps it."""
        return self.consumer._core.membership


class GroupFacts(Facts):
    """Those of a run whose readers share a group."""

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[str, Member] = {}
        """Those that live now."""
        self.done: dict[Key, int] = defaultdict(int)
        """Up to there, every record of a partition was processed by some member."""
        self.highest: dict[Key, int] = {}
        """The highest offset that the group has ever committed."""
        self.finished = False
        """All that there is was processed and committed: members may go."""
        self.generation_at_rest = 0
        """The one in which the group came to rest."""
        self.settled_from = float("inf")
        """From when on the group must have come to rest."""
        self.joined_from = float("inf")
        """When newcomers begin to come to the group at rest."""
        self.settled_again = float("inf")
        """From when on it must have come to rest with them."""

    def at_rest(self, now: float) -> bool:
        """Whether nothing must happen to the group now."""
        return self.settled_from < now < self.joined_from or (now > self.settled_again and not self.finished)

    def generations(self) -> set[int]:
        """Those that members believe to be in."""
        return {member.group.identity.generation for member in self.members.values()}

    def tainted(self, tp: Key) -> bool:
        """Whether an unclean election took something of it: offsets mean something else since then."""
        return bool(self.cuts[tp])

    def process(self, tp: Key, offset: int) -> None:
        """Some member is done with a record."""
        if self.reached(tp) >= offset:
            self.done[tp] = max(self.done[tp], offset + 1)

    def reached(self, tp: Key) -> int:
        """Up to where nothing is left to do."""
        return max(self.done[tp], self.latest_start[tp])

    def read_to_the_end(self) -> bool:
        """Whether every record of every log was processed."""
        return all(self.reached(tp) >= self.end(tp) for tp in self.stored)
