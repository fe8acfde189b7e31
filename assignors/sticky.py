"""The sticky assignors: even shares of which each member keeps as much as it can.

`sticky` is for eager rebalances: everybody gives everything up before it joins, so members tell the leader what they had. In a cooperative
rebalance members go on reading what they own, and a partition must be given up by its owner before another may have it:
`cooperative-sticky` leaves it out at first, and gives it in the rebalance that follows.
Both remember something of their own member, so each consumer needs an assignor of its own.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyclient.assignors.balancing import Balance
from pyclient.assignors.equal_shares import EqualShares
from pyclient.assignors.group import assignments, want_the_same, wanted_topics
from pyclient.assignors.javas_order import members_in_hash_order
from pyclient.assignors.ownership import Claim, Ownership, Shares, earlier_owners, settled
from pyclient.assignors.racks import Racks
from pyclient.assignors.user_data import decode_generation, decode_previous, encode_generation, encode_previous
from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.records import NO_GENERATION, TopicPartition

MOST_REBALANCES: Final = 5
"""A group that is not at rest after so many goes without the moves that it would take."""


class StickyAssignor:
    """Even shares, and everybody keeps what it had as far as these allow. All partitions stop while the group rebalances."""

    name: str = "sticky"
    protocols: Sequence[str] = ("eager",)

    def __init__(self) -> None:
        self._user_data: bytes | None = None

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """What members had is read from their ``user_data``; what cannot be read counts as nothing."""
        claims = {member: decode_previous(view.user_data) for member, view in members.items()}
        _ownership, shares = _shared_out(cluster, members, claims, moving=True)
        return assignments(shares)

    def subscription_user_data(self, topics: Sequence[str], /) -> bytes | None:
        """What the member had, and in which generation; nothing before its first assignment."""
        return self._user_data

    def on_assignment(self, assignment: Assignment, generation: int, /) -> None:
        """Remember it for the next rebalance."""
        self._user_data = encode_previous(assignment.partitions, generation)


class CooperativeStickyAssignor:
    """Even shares, and everybody keeps what it had as far as these allow; what goes to another member is first given up (KIP-429)."""

    name: str = "cooperative-sticky"
    protocols: Sequence[str] = ("cooperative", "eager")

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """What members own stands in their subscriptions. A partition that another member still owns is given to nobody yet."""
        shares, complete = given_now(cluster, members)
        if not complete and not want_the_same(members) and not _comes_to_rest(cluster, members, shares):
            shares, _ = given_now(cluster, members, moving=False)
        return assignments(shares)

    def subscription_user_data(self, topics: Sequence[str], /) -> bytes | None:
        """The generation, for leaders that do not find it in the subscription."""
        return encode_generation(self._generation)

    def on_assignment(self, assignment: Assignment, generation: int, /) -> None:
        """Remember the generation for the next rebalance."""
        self._generation = generation


def _claim(view: MemberView) -> Claim:
    """The subscription's generation, else (before version 2) that of the user data."""
    return Claim(view.owned, view.generation if view.generation >= 0 else decode_generation(view.user_data))


def given_now(cluster: ClusterView, members: Mapping[str, MemberView], *, moving: bool = True) -> tuple[Shares, bool]:
    """What each member gets in this rebalance, and whether that is all there is; without *moving*, what is owned stays where it is."""
    claims = {member: _claim(view) for member, view in members.items()}
    ownership, shares = _shared_out(cluster, members, claims, moving=moving)
    given = _what_is_free(shares, ownership, claims)
    return given, all(len(given[member]) == len(shares[member]) for member in shares)


def _comes_to_rest(cluster: ClusterView, members: Mapping[str, MemberView], shares: Shares) -> bool:
    """Whether the rebalances that follow these *shares* end.

    What is given up in one is shared out anew in the next, where others have moved meanwhile: with unequal subscriptions that can go round in a
    circle, and the group would rebalance for ever.
    """
    generation = max(view.generation for view in members.values())
    for later in range(1, MOST_REBALANCES + 1):
        joined = {member: view._replace(owned=tuple(shares[member]), generation=generation + later) for member, view in members.items()}
        shares, complete = given_now(cluster, joined)
        if complete:
            return True
    return False


def _shared_out(cluster: ClusterView, members: Mapping[str, MemberView], claims: Mapping[str, Claim], *, moving: bool) -> tuple[Ownership, Shares]:
    """Who had what, and who gets what, without a look at who must give it up first."""
    ordered = {member: claims[member] for member in members_in_hash_order(members)}
    described = wanted_topics(cluster, members)
    topics = {topic: [TopicPartition(topic, each.partition) for each in partitions] for topic, partitions in described.items()}
    partitions = [partition for several in topics.values() for partition in several]
    racks = Racks(cluster, members, described)
    ownership = settled(ordered, set(partitions))
    if want_the_same(members):
        ownership = ownership.without_disputed()
        return ownership, EqualShares(list(ordered), partitions, ownership.owned, racks).made()
    return ownership, Balance(members, topics, ownership.owned, earlier_owners(ordered), racks).made(moving=moving)


def _what_is_free(shares: Shares, ownership: Ownership, claims: Mapping[str, Claim]) -> Shares:
    """*shares* without the partitions that somebody else owns or believes to own: it gives them up now, and the next rebalance gives them on."""
    claimed = {partition for claim in claims.values() for partition in claim.partitions}
    free: Shares = {}
    for member, partitions in shares.items():
        own = set(ownership.owned[member])
        free[member] = [each for each in partitions if each in own or each not in claimed]
    return free
