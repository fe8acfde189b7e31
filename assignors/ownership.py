"""Who had which partition before, by what the members say; they may all say the same one.

A partition belongs to the member that claims it in the highest generation; claimed by two in the same generation, to neither. Claims of
partitions that are not there count for nothing, nor does claiming one twice.
"""
from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pyclient.records import NO_GENERATION, TopicPartition

Shares: TypeAlias = dict[str, list[TopicPartition]]


class Claim(NamedTuple):
    """What one member says it had, and in which generation (-1: it does not know)."""

    partitions: Sequence[TopicPartition]
    generation: int


class Ownership(NamedTuple):
    """Each member's rightful partitions, and those that several have claimed in one generation."""

    owned: Shares
    disputed: set[TopicPartition]

    def without_disputed(self) -> Ownership:
        """Nobody has owned what was ever disputed."""
        if not self.disputed:
            return self
        return Ownership({member: [each for each in mine if each not in self.disputed] for member, mine in self.owned.items()}, self.disputed)


def settled(claims: Mapping[str, Claim], existing: Container[TopicPartition]) -> Ownership:
    """Judge the claims in their order.

    It matters only where three members claim one partition. Then a dispute that a member of a higher generation ends afterwards stays
    in ``disputed``, as in Java, whose assignors differ in what they make of it.
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
    """Who says to have had a partition before the newest generation that anybody tells of: the latest of them, the first among equals."""
    newest = max((claim.generation for claim in claims.values()), default=NO_GENERATION)
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member, claim in claims.items():
        if claim.generation < max(newest, NO_GENERATION):
            for partition in claim.partitions:
                if partition not in found or claim.generation > found[partition][0]:
                    found[partition] = claim.generation, member
    return {partition: member for partition, (_generation, member) in found.items()}
