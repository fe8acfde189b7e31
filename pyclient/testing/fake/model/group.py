"""A classic consumer group: members, generation and rebalance rules. No I/O, no waiting.

Timers, requests and coordinator moves are in `membership` and `coordinator`.
"""
from __future__ import annotations

import asyncio
import enum
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple, Self

import attrs

from pyclient.errors import IllegalTransitionError
from pyclient.testing.fake.model.request import Fields


class State(enum.Enum):
    """Values are Kafka's names of the states."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(enum.Enum):
    """Events of a group."""

    DISTURBED = "members came, left or changed"
    JOINED = "all members have joined"
    EMPTIED = "no member has joined"
    ASSIGNED = "the leader sent the assignment"
    DELETED = "an admin deleted it"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.EMPTY, Event.DISTURBED): State.PREPARING,
    (State.COMPLETING, Event.DISTURBED): State.PREPARING,
    (State.STABLE, Event.DISTURBED): State.PREPARING,
    (State.PREPARING, Event.JOINED): State.COMPLETING,
    (State.PREPARING, Event.EMPTIED): State.EMPTY,
    (State.COMPLETING, Event.ASSIGNED): State.STABLE,
    (State.EMPTY, Event.DELETED): State.DEAD,
}
"""(state, event) → next state; a missing pair is a defect of the model."""


@attrs.define(eq=False, kw_only=True)
class Member:
    """One member and its unanswered requests."""

    id: str
    instance: str | None
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Names and metadata, in the order of the member's preference."""
    assignment: bytes = b""
    joining: asyncio.Future[Fields] | None = None
    syncing: asyncio.Future[Fields] | None = None
    is_new: bool = True
    """It has not received a generation yet."""
    silent_at: float = 0.0
    """When its session expires."""

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for this protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    @property
    def waits(self) -> bool:
        """Whether a request of it is unanswered; that keeps the session alive."""
        return self.joining is not None or self.syncing is not None

    def answer_join(self, fields: Fields) -> None:
        """Answer its JoinGroup, if it waits for one."""
        waiting, self.joining = self.joining, None
        _settle(waiting, fields)

    def answer_sync(self, fields: Fields) -> None:
        """Answer its SyncGroup, if it waits for one."""
        waiting, self.syncing = self.syncing, None
        _settle(waiting, fields)

    def stored(self) -> Self:
        """Its persistent state, as another coordinator loads it."""
        return attrs.evolve(self, joining=None, syncing=None, is_new=False)


def _settle(waiting: asyncio.Future[Fields] | None, fields: Fields) -> None:
    if waiting is not None and not waiting.done():  # cancelled when its connection was lost
        waiting.set_result(fields)


class Committed(NamedTuple):
    """An offset that a group committed for a partition."""

    offset: int
    leader_epoch: int
    metadata: str


@attrs.define(eq=False)
class Group:
    """A group; members are in the order of joining."""

    kind: ClassVar = "classic"
    """Kafka's name of this group type."""
    id: str
    state: State = State.EMPTY
    before: State = State.EMPTY
    """The state before this one."""
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = attrs.field(factory=dict)
    pending: dict[str, float] = attrs.field(factory=dict)
    """Assigned member ids without a join yet, with their deadlines."""
    statics: dict[str, str] = attrs.field(factory=dict)
    """``group.instance.id`` → member id."""
    unsynced: dict[str, None] = attrs.field(factory=dict)
    """Members of this generation that have not sent SyncGroup."""
    offsets: dict[tuple[str, int], Committed] = attrs.field(factory=dict)
    """By topic and partition; always persistent."""
    has_new_member: bool = False
    """Another member joined during the initial rebalance delay."""
    saved: Group | None = None
    """What the next coordinator loads: written when the group is stable or empty."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is State.EMPTY

    def end(self) -> None:
        """An admin deleted it."""
        self.on(Event.DELETED)

    def on(self, event: Event) -> None:
        """Change the state."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise IllegalTransitionError(self.state, event)
        self.before, self.state = self.state, after

    # ---- membership --------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Let a member in."""
        if not self.members:
            self.protocol_type = member.protocol_type
        self.leader = self.leader or member.id
        self.members[member.id] = member
        self.pending.pop(member.id, None)
        if member.instance is not None:
            self.statics[member.instance] = member.id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member; the oldest of the others leads if it led."""
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None and member.instance is not None and self.statics.get(member.instance) == member_id:
            del self.statics[member.instance]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace(self, old: Member, member_id: str) -> Member:
        """A static member returned without its id: it gets a new id and keeps the rest."""
        new = attrs.evolve(old, id=member_id, joining=None, syncing=None)
        self.members = {new.id if each is old else key: new if each is old else each for key, each in self.members.items()}
        self.unsynced = {new.id if key == old.id else key: None for key in self.unsynced}
        self.statics[str(new.instance)] = new.id
        if self.leader == old.id:
            self.leader = new.id
        return new

    # ---- rules -------------------------------------------------------------------------------------------------------

    @property
    def awaiting(self) -> int:
        """Number of members with an unanswered JoinGroup."""
        return sum(each.joining is not None for each in self.members.values())

    @property
    def all_joined(self) -> bool:
        """Whether no member is missing."""
        return not self.pending and self.awaiting == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' timeouts."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def accepts(self, member_id: str, most: int) -> bool:
        """Whether there is room for this member."""
        if self.state is State.EMPTY:
            return True
        known = self.members.get(member_id)
        if self.state is State.PREPARING:
            return (known is not None and known.joining is not None) or self.awaiting < most
        return known is not None or len(self.members) < most

    def supports(self, protocol_type: str, names: tuple[str, ...]) -> bool:
        """Whether a member with these protocols is compatible with the others."""
        if not self.members:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and not self._common().isdisjoint(names)

    def choose(self) -> str:
        """The protocol that most members prefer among those that all support; the first vote wins a tie."""
        common = self._common()
        votes = Counter(next(name for name, _ in each.protocols if name in common) for each in self.members.values())
        return max(votes, key=votes.__getitem__)

    def _common(self) -> frozenset[str]:
        return frozenset.intersection(*(frozenset(name for name, _ in each.protocols) for each in self.members.values()))

    def elect(self) -> bool:
        """Choose a leader among the joined members; False when there is none."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.joining is None:
            leader = next((each for each in self.members.values() if each.joining is not None), None)
        if leader is None:
            return False
        self.leader = leader.id
        return True

    def begin_generation(self) -> None:
        """Start the next generation with the joined members."""
        self.generation += 1
        self.unsynced.clear()
        self.protocol = self.choose() if self.members else None
        self.on(Event.JOINED if self.members else Event.EMPTIED)

    # ---- what is kept ------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Persist the state that another coordinator would load."""
        self.saved = self._copy()

    def restored(self) -> Group:
        """The group as another coordinator loads it."""
        found = self.saved._copy() if self.saved is not None else Group(self.id, offsets=self.offsets)
        found.save()
        return found

    def _copy(self) -> Group:
        return Group(self.id, State.STABLE if self.members else State.EMPTY, generation=self.generation, protocol_type=self.protocol_type,
                     protocol=self.protocol, leader=self.leader, statics=dict(self.statics),
                     members={key: each.stored() for key, each in self.members.items()}, offsets=self.offsets)
