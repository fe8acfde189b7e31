"""What a group's protocol and the consumer say to each other, whichever protocol it is.

The group decides on the client's loop; what concerns the user's own code is a `Change`, which the user's thread carries out inside
``poll``. Until it has, the group waits, and stays alive meanwhile.
"""
from __future__ import annotations

import enum
from typing import Final

import attrs

from pyclient.records import NO_GENERATION, TopicPartition

NO_MEMBER: Final = ""


class ChangeKind(enum.Enum):
    """What happens to partitions."""

    REVOKED = "they must be given up, and are still owned"
    ASSIGNED = "they were added"
    LOST = "they are gone already"


@attrs.define(eq=False)
class Change:
    """One step of a rebalance for the user's thread: partitions that go or come. *begun*: it is at it."""

    kind: ChangeKind
    partitions: tuple[TopicPartition, ...]
    begun: bool = False


@attrs.frozen
class Identity:
    """As whom a member speaks: the generation (KIP-848: the member's epoch), -1 outside of a group, and the member id."""

    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER

    @property
    def joined(self) -> bool:
        """Whether this is a member of a generation."""
        return self.generation > NO_GENERATION

    def without_generation(self) -> Identity:
        """The same member, outside of any generation."""
        return Identity(member_id=self.member_id)
