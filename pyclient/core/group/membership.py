"""What a group's protocol and the consumer say to each other, whichever protocol it is.

The group decides on the client's loop; what concerns the user's own code is a `Change`, which the user's thread carries out inside
``poll``. Until it has, the group waits, and stays alive meanwhile.
"""
from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import attrs

from pyclient.core.calls import Finish
from pyclient.core.group.subscription import Subscription
from pyclient.core.manager import Ready, Request
from pyclient.errors import KafkaError
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


class Membership(Protocol):
    """A manager that keeps one consumer in its group; all but *polling*, *polled_at* and `wants_poll` is used on the loop only."""

    identity: Identity
    failure: BaseException | None
    """Why this cannot be a member, until it subscribes anew."""
    polling: bool
    """The user's thread waits in poll; it says so itself, and when it did last."""
    polled_at: float

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        """What the user's thread was given, and by which of its assignments."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to, of a pattern those that match it now."""

    @property
    def wants_poll(self) -> bool:
        """Whether a poll of the user has to be told by `polled`."""

    @property
    def change(self) -> Change | None:
        """What the user's thread has to carry out next, unless it is at it."""

    @property
    def settled(self) -> bool:
        """Whether the coordinator may take commits; while it does not, waiting helps."""

    @property
    def joining(self) -> bool:
        """Whether the next generation may have begun without this member knowing."""

    def subscribe(self, subscription: Subscription) -> None:
        """Read what *subscription* names from the next rebalance on."""

    def polled(self) -> None:
        """The user polls: join, or join again."""

    def begin(self, change: Change) -> bool:
        """The user's thread begins with *change*; False when it is not to be done any more."""

    def carried_out(self, change: Change) -> None:
        """The user's thread is done with *change*."""

    def take_trouble(self) -> BaseException | None:
        """What the user is to be told by poll: once, or each time for what lasts."""

    def leave(self, reason: str, finish: Finish, deadline: float | None) -> None:
        """Leave for good; partitions must have been given up."""

    def refused(self, error: KafkaError, sent_as: Identity) -> None:
        """The coordinator refused a commit."""

    def poll(self, now: float, ready: Ready) -> Iterable[Request]:
        """As a manager."""

    def next_deadline(self) -> float | None:
        """As a manager."""
