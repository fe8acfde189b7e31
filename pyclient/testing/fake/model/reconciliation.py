"""Reconciliation of a member's current with its target assignment (KIP-848), one step per heartbeat.

A partition moves in three steps: it is revoked from its owner, the owner confirms, and only then it is assigned again.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias
from uuid import UUID

import attrs

Place: TypeAlias = tuple[UUID, int]
"""A topic's id and the number of a partition."""
NOTHING: Final[Mapping[Place, int]] = {}


class MemberState(enum.Enum):
    """States of a member."""

    STABLE = "it has its target"
    UNREVOKED_PARTITIONS = "it has not confirmed a revocation yet"
    UNRELEASED_PARTITIONS = "other members still hold partitions of its target"


@attrs.frozen
class Classic:
    """Fields of a classic member in a KIP-848 group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names and metadata, in the order of the member's preference."""

    @property
    def protocol(self) -> str:
        """The chosen protocol: the member's first one."""
        return self.protocols[0][0]


@attrs.frozen(kw_only=True)
class ConsumerMember:
    """A member's persistent state."""

    id: str
    epoch: int = 0
    previous_epoch: int = -1
    """The epoch before; the answer with the current one may have been lost."""
    state: MemberState = MemberState.STABLE
    instance: str | None = None
    rack: str | None = None
    client_id: str = ""
    host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    """The names it subscribed to."""
    pattern: str = ""
    """The regular expression it subscribed to; empty for none."""
    assignor: str | None = None
    assigned: Mapping[Place, int] = NOTHING
    """Current assignment: partition → epoch of its assignment."""
    revoking: Mapping[Place, int] = NOTHING
    """Partitions to revoke; it may still be using them."""
    classic: Classic | None = None
    """Set for classic members (see `classic_members`)."""

    @property
    def holds(self) -> Mapping[Place, int]:
        """Partitions that no other member may get."""
        return {**self.assigned, **self.revoking}

    def is_reconciled(self, epoch: int) -> bool:
        """Whether it has exactly its target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def at(self, epoch: int, state: MemberState, assigned: Mapping[Place, int], revoking: Mapping[Place, int] = NOTHING) -> ConsumerMember:
        """The member after one step."""
        return attrs.evolve(self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)


@attrs.frozen(kw_only=True)
class Aim:
    """A member's target, and what it may get of it."""

    epoch: int
    places: Collection[Place]
    topics: Collection[UUID]
    """Its subscribed topics; partitions of others are revoked."""
    owned: Collection[Place] | None
    """The owned partitions in its heartbeat; None when left out."""
    is_held: Callable[[Place], bool]
    """Whether a member holds this partition."""

    def is_owned(self, places: Collection[Place]) -> bool:
        """Whether it may still use any of these."""
        return self.owned is None or any(each in places for each in self.owned)


def reconciled(member: ConsumerMember, aim: Aim, *, resubscribed: bool) -> ConsumerMember:
    """The member after one heartbeat. After a new subscription, unsubscribed partitions are revoked at once."""
    waits = member.state is MemberState.UNREVOKED_PARTITIONS and aim.is_owned(member.revoking)
    if not waits and not member.is_reconciled(aim.epoch):
        return _advanced(member, aim)
    return _without_unsubscribed(member, aim) if resubscribed else member


def _advanced(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    """Revocations come first; until they are confirmed the member keeps its epoch."""
    wanted = [each for each in aim.places if each[0] in aim.topics]
    kept = {each: since for each, since in member.assigned.items() if each in wanted}
    revoking = {each: since for each, since in member.assigned.items() if each not in kept}
    if revoking and aim.is_owned(revoking):
        return member.at(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    missing = [each for each in wanted if each not in kept]
    free = [each for each in missing if each in member.revoking or not aim.is_held(each)]
    state = MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED_PARTITIONS
    return member.at(aim.epoch, state, {**kept, **dict.fromkeys(free, aim.epoch)})


def _without_unsubscribed(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    kept = {each: since for each, since in member.assigned.items() if each[0] in aim.topics}
    if len(kept) == len(member.assigned):
        return member
    revoking = {**member.revoking, **{each: since for each, since in member.assigned.items() if each not in kept}}
    if aim.is_owned(revoking):
        return member.at(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return member.at(member.epoch, member.state, kept)
