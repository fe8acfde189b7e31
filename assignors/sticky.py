"""The sticky assignors: balanced assignments in which members keep as many partitions as possible.

`sticky` is for eager rebalances: all members revoke everything before they join, so they send their old partitions to
the leader as user data. In a cooperative rebalance members go on reading, and a partition must be revoked by its owner
before another member gets it: `cooperative-sticky` leaves it unassigned at first, and assigns it in the next rebalance.
Both keep state of their own member, so each consumer needs its own assignor.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyclient.assignors.balancing import Balance
from pyclient.assignors.equal_shares import EqualShares
from pyclient.assignors.group import assignments, same_subscriptions, subscribed_topics
from pyclient.assignors.javas_order import members_in_hash_order
from pyclient.assignors.ownership import Claim, Ownership, Shares, earlier_owners, resolve_claims
from pyclient.assignors.racks import Racks
from pyclient.assignors.user_data import decode_generation, decode_previous, encode_generation, encode_previous
from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.records import NO_GENERATION, TopicPartition

MOST_REBALANCES: Final = 5
"""A group that would not be stable after so many rebalances is assigned without moves."""


class StickyAssignor:
    """Balanced, and members keep their partitions as far as the balance allows.

    No partition is read while the group rebalances.
    """

    name: str = "sticky"
    protocols: Sequence[str] = ("eager",)

    def __init__(self) -> None:
        self._user_data: bytes | None = None

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """The members' old partitions are read from their ``user_data``; data that cannot be decoded counts as none."""
        claims = {member: decode_previous(view.user_data) for member, view in members.items()}
        _ownership, shares = _balanced(cluster, members, claims, moving=True)
        return assignments(shares)

    def subscription_user_data(self, topics: Sequence[str], /) -> bytes | None:
        """The member's partitions and their generation; None before its first assignment."""
        return self._user_data

    def on_assignment(self, assignment: Assignment, generation: int, /) -> None:
        """Keep the partitions for the next rebalance."""
        self._user_data = encode_previous(assignment.partitions, generation)


class CooperativeStickyAssignor:
    """Balanced, and members keep their partitions as far as the balance allows; a partition is revoked before it moves
    (KIP-429).
    """

    name: str = "cooperative-sticky"
    protocols: Sequence[str] = ("cooperative", "eager")

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """The members' subscriptions list what they own.

        A partition that moves stays unassigned while its old owner has it.
        """
        shares, complete = assignable_now(cluster, members)
        if not complete and not same_subscriptions(members) and not _converges(cluster, members, shares):
            shares, _ = assignable_now(cluster, members, moving=False)
        return assignments(shares)

    def subscription_user_data(self, topics: Sequence[str], /) -> bytes | None:
        """The generation, for leaders that do not read it from the subscription."""
        return encode_generation(self._generation)

    def on_assignment(self, assignment: Assignment, generation: int, /) -> None:
        """Keep the generation for the next rebalance."""
        self._generation = generation


def _claim(view: MemberView) -> Claim:
    """The owned partitions, with the subscription's generation, or (before version 2) that of the user data."""
    return Claim(view.owned, view.generation if view.generation >= 0 else decode_generation(view.user_data))


def assignable_now(cluster: ClusterView, members: Mapping[str, MemberView], *, moving: bool = True) -> tuple[Shares, bool]:
    """The partitions that each member gets in this rebalance, and whether those are all; without *moving*, owned
    partitions stay.
    """
    claims = {member: _claim(view) for member, view in members.items()}
    ownership, shares = _balanced(cluster, members, claims, moving=moving)
    assignable = _without_claimed(shares, ownership, claims)
    return assignable, all(len(assignable[member]) == len(shares[member]) for member in shares)


def _converges(cluster: ClusterView, members: Mapping[str, MemberView], shares: Shares) -> bool:
    """Whether the rebalances that follow these *shares* end.

    Partitions revoked in one rebalance are assigned in the next, for which the balance may have changed. With unequal
    subscriptions this can repeat in a cycle, and the group would rebalance forever.
    """
    generation = max(view.generation for view in members.values())
    for later in range(1, MOST_REBALANCES + 1):
        joined = {member: view._replace(owned=tuple(shares[member]), generation=generation + later) for member, view in members.items()}
        shares, complete = assignable_now(cluster, joined)
        if complete:
            return True
    return False


def _balanced(cluster: ClusterView, members: Mapping[str, MemberView], claims: Mapping[str, Claim], *, moving: bool) -> tuple[Ownership, Shares]:
    """The owners, and the new assignment, regardless of partitions that must be revoked first."""
    ordered = {member: claims[member] for member in members_in_hash_order(members)}
    described = subscribed_topics(cluster, members)
    topics = {topic: [TopicPartition(topic, each.partition) for each in partitions] for topic, partitions in described.items()}
    partitions = [partition for several in topics.values() for partition in several]
    racks = Racks(cluster, members, described)
    ownership = resolve_claims(ordered, set(partitions))
    if same_subscriptions(members):
        ownership = ownership.without_disputed()
        return ownership, EqualShares(list(ordered), partitions, ownership.owned, racks).build()
    return ownership, Balance(members, topics, ownership.owned, earlier_owners(ordered), racks).build(moving=moving)


def _without_claimed(shares: Shares, ownership: Ownership, claims: Mapping[str, Claim]) -> Shares:
    """*shares* without partitions that another member owns or claims: it revokes them now, and the next rebalance
    assigns them.
    """
    claimed = {partition for claim in claims.values() for partition in claim.partitions}
    free: Shares = {}
    for member, partitions in shares.items():
        own = set(ownership.owned[member])
        free[member] = [each for each in partitions if each in own or each not in claimed]
    return free
