"""How a member comes from what it has to what it is to have (KIP-848). Pure: one step for each heartbeat.

A partition changes hands in three steps: its owner is told to give it up, says that it has, and only then somebody else gets it.
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
    """What a member waits for."""

    STABLE = "nothing"
    UNREVOKED_PARTITIONS = "it has to give something up, and has not said that it did"
    UNRELEASED_PARTITIONS = "what it is to have, others have not given up yet"


@attrs.frozen
class Classic:
    """What a member says that speaks the classic protocol in a group of the next generation."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names and metadata, in the order of the member's preference."""

    @property
    def protocol(self) -> str:
        """The one it is told; what the others prefer does not matter here."""
        return self.protocols[0][0]


@attrs.frozen(kw_only=True)
class ConsumerMember:
    """One member, as its coordinator has written it down."""

    id: str
    epoch: int = 0
    previous_epoch: int = -1
    """The epoch before: the answer that told it the new one may have been lost."""
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
    """What it may use, each with the epoch at which it got it."""
    revoking: Mapping[Place, int] = NOTHING
    """What it has to give up, and may still be using."""
    classic: Classic | None = None
    """Set for members that speak the classic protocol (see `guests`)."""

    @property
    def holds(self) -> Mapping[Place, int]:
        """What nobody else may have."""
        return {**self.assigned, **self.revoking}

    def is_reconciled(self, epoch: int) -> bool:
        """Whether it has all that it is to have at this epoch, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def at(self, epoch: int, state: MemberState, assigned: Mapping[Place, int], revoking: Mapping[Place, int] = NOTHING) -> ConsumerMember:
        """The same member after a step."""
        return attrs.evolve(self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)


@attrs.frozen(kw_only=True)
class Aim:
    """Where a member is to go, and what stands in its way."""

    epoch: int
    places: Collection[Place]
    topics: Collection[UUID]
    """What it is subscribed to now: it keeps nothing else, whatever it was to have."""
    owned: Collection[Place] | None
    """What it says that it has; None when it says nothing of that."""
    is_held: Callable[[Place], bool]
    """Whether some member holds this."""

    def is_owned(self, places: Collection[Place]) -> bool:
        """Whether it may still be using any of these."""
        return self.owned is None or any(each in places for each in self.owned)


def reconciled(member: ConsumerMember, aim: Aim, *, resubscribed: bool) -> ConsumerMember:
    """The member after one heartbeat. Who *resubscribed* loses at once what it is not subscribed to any more."""
    waits = member.state is MemberState.UNREVOKED_PARTITIONS and aim.is_owned(member.revoking)
    if not waits and not member.is_reconciled(aim.epoch):
        return _advanced(member, aim)
    return _without_unsubscribed(member, aim) if resubscribed else member


def _advanced(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    """What has to go goes first: until then the member stays in its epoch."""
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
