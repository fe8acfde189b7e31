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


@attrs.frozen(kw_only=True)
class GroupOptions:
    """The options that rule membership, in seconds."""

    group_id: str
    instance_id: str | None
    session_timeout: float
    """So long a coordinator may be silent; of a classic group also the member."""
    heartbeat_interval: float
    """KIP-848: until the broker says another one."""
    rebalance_timeout: float
    """Also the longest time between two polls."""
    request_timeout: float
    rack: str | None = None
    """KIP-848; in a classic group the assignors' subscriptions tell it."""
    remote_assignor: str | None = None
    """KIP-848: the broker's assignor; None is its own choice."""


class Membership(Protocol):
    """One consumer's membership, by whichever protocol: what the consumer may ask of it. A manager."""

    identity: Identity
    failure: BaseException | None
    """Why this cannot be a member, until it subscribes anew."""
    polling: bool
    """The user's thread waits in poll; it says so itself, and when it did last. (These, `wants_poll` and `failure` are for that thread too, all else is for the loop.)"""
    polled_at: float

    @property
    def state(self) -> enum.Enum:
        """Where it stands, in the words of its protocol."""

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        """What the user's thread was given, and by which of its assignments: a partition that comes back is another one."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to, as far as they are known."""

    def subscribe(self, subscription: Subscription) -> None:
        """Read what *subscription* names from the next rebalance on; the first poll joins."""

    @property
    def wants_poll(self) -> bool:
        """Whether a poll of the user has to be told by `polled`."""

    def polled(self) -> None:
        """The user polls."""

    @property
    def change(self) -> Change | None:
        """What the user's thread has to carry out next, unless it is at it."""

    def begin(self, change: Change) -> bool:
        """The user's thread begins with *change*; False when it is not to be done any more."""

    def carried_out(self, change: Change, error: BaseException | None = None) -> None:
        """The user's thread is done with *change*, and the user's listener raised *error*.

        In a group of the next generation partitions whose assignment it raised at are not `owned` after all (N06).
        """

    def take_trouble(self) -> BaseException | None:
        """What the user is to be told by poll: once, or each time for what lasts."""

    def leave(self, reason: str, finish: Finish, deadline: float | None) -> None:
        """Leave for good; partitions must have been given up."""

    @property
    def settled(self) -> bool:
        """Whether the coordinator may take commits; while it does not, waiting helps."""

    @property
    def joining(self) -> bool:
        """Whether the next generation may have begun without this member knowing."""

    def refused(self, error: KafkaError, sent_as: Identity) -> None:
        """The coordinator refused a commit: it may know more of this member than the heartbeats have told (C25)."""

    def poll(self, now: float, ready: Ready) -> Iterable[Request]:
        """As every manager's."""

    def next_deadline(self) -> float | None:
        """As every manager's."""
