"""Which member owned which partition, judged by the members' claims, which may contradict each other.

A partition belongs to the member that claims it in the highest generation; if two claim it in the same generation, to
neither. Claims of partitions that do not exist are ignored, and so are repeated claims.
"""
from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pyclient.records import NO_GENERATION, TopicPartition

Shares: TypeAlias = dict[str, list[TopicPartition]]


class Claim(NamedTuple):
    """The partitions that one member claims to have owned, and in which generation (-1: unknown)."""

    partitions: Sequence[TopicPartition]
    generation: int


class Ownership(NamedTuple):
    """Each member's partitions, and those that several members claimed in one generation."""

    owned: Shares
    disputed: set[TopicPartition]

    def without_disputed(self) -> Ownership:
        """The same, with disputed partitions owned by no member."""
        if not self.disputed:
            return self
        return Ownership({member: [each for each in mine if each not in self.disputed] for member, mine in self.owned.items()}, self.disputed)


def resolve_claims(claims: Mapping[str, Claim], existing: Container[TopicPartition]) -> Ownership:
    """Judge the claims in their order.

    The order matters only if three members claim one partition: a dispute that a claim of a higher generation ends
    later stays in ``disputed``. Java does the same, and its assignors treat such partitions differently.
    """
    owned: dict[str, dict[TopicPartition, None]] = {member: {} for member in claims}
    holders: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    for member, claim in claims.items():
        for partition in dict.fromkeys(claim.partitions):
            if partition not in existing:
                continue
            rival = holders.get(partition)
            if rival is not None:
                if claim.generation < claims[rival].generation:
                    continue
                owned[rival].pop(partition, None)
            holders[partition] = member
            if rival is not None and claim.generation == claims[rival].generation:
                disputed.add(partition)
            else:
                owned[member][partition] = None
    return Ownership({member: list(partitions) for member, partitions in owned.items()}, disputed)


def earlier_owners(claims: Mapping[str, Claim]) -> dict[TopicPartition, str]:
    """Which member claims a partition in a generation before the newest one: that of the latest generation, the first
    among equals.
    """
    newest = max((claim.generation for claim in claims.values()), default=NO_GENERATION)
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member, claim in claims.items():
        if claim.generation < max(newest, NO_GENERATION):
            for partition in claim.partitions:
                if partition not in found or claim.generation > found[partition][0]:
                    found[partition] = claim.generation, member
    return {partition: member for partition, (_generation, member) in found.items()}
