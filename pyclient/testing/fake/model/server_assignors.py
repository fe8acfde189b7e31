"""The brokers' assignors (KIP-848). Deterministic for the same members in the same order.

``uniform`` balances counts and moves little; ``range`` gives each member a contiguous range of every topic, so that
equal partition numbers of several topics meet. Racks are ignored.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from pyclient.testing.fake.model.reconciliation import Place

Sizes: TypeAlias = Mapping[UUID, int]
"""How many partitions each topic has."""
Shares: TypeAlias = dict[str, tuple[Place, ...]]


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    topics: Collection[UUID]
    had: Collection[Place]
    """Its target until now."""
    instance: str | None = None


Subscribers: TypeAlias = Mapping[str, Subscriber]


def uniform(members: Subscribers, sizes: Sizes) -> Shares:
    """No member has two partitions more than another one that could take one of them."""
    alike = len({frozenset(each.topics) for each in members.values()}) == 1
    shares = _in_equal_parts(members, sizes) if alike else _in_balance(members, sizes)
    return {name: tuple(places) for name, places in shares.items()}


def by_range(members: Subscribers, sizes: Sizes) -> Shares:
    """Contiguous ranges of every topic, the first ones one longer; members by name, static ones first."""
    shares: dict[str, list[Place]] = {name: [] for name in members}
    order = sorted(members, key=lambda name: (members[name].instance is None, members[name].instance or "", name))
    for topic in _topics(members, sizes):
        asking = [name for name in order if topic in members[name].topics]
        parts = iter((topic, index) for index in range(sizes[topic]))
        for name, quota in zip(asking, _quotas(sizes[topic], len(asking)), strict=True):
            shares[name].extend(next(parts) for _ in range(quota))
    return {name: tuple(places) for name, places in shares.items()}


ASSIGNORS: Final[Mapping[str, Callable[[Subscribers, Sizes], Shares]]] = {"uniform": uniform, "range": by_range}
"""By the names that members request; the first is the default."""
DEFAULT: Final = "uniform"


def _topics(members: Subscribers, sizes: Sizes) -> list[UUID]:
    """The existing topics with a subscriber."""
    return [each for each in dict.fromkeys(topic for member in members.values() for topic in member.topics) if each in sizes]


def _places(topics: Iterable[UUID], sizes: Sizes) -> Iterator[Place]:
    return ((topic, index) for topic in topics for index in range(sizes[topic]))


def _quotas(count: int, parts: int) -> list[int]:
    """Numbers as equal as can be, the larger ones first."""
    least, larger = divmod(count, parts)
    return [least + (place < larger) for place in range(parts)]


def _kept(members: Subscribers, sizes: Sizes) -> dict[str, list[Place]]:
    """What each member may keep of its previous target, by topic and partition."""
    order = {topic: place for place, topic in enumerate(_topics(members, sizes))}
    return {name: sorted([each for each in member.had if each[0] in member.topics and each[1] < sizes.get(each[0], 0)],
                         key=lambda place: (order[place[0]], place[1])) for name, member in members.items()}


# ---- all subscribed to the same --------------------------------------------------------------------------------------


def _in_equal_parts(members: Subscribers, sizes: Sizes) -> dict[str, list[Place]]:
    """Unassigned partitions first, then those above a member's quota."""
    places = list(_places(_topics(members, sizes), sizes))
    shares = _kept(members, sizes)
    had = {place for mine in shares.values() for place in mine}
    quotas = _sticky_quotas(shares, len(places))
    spare = [place for name, mine in shares.items() for place in mine[quotas[name]:]]
    free = iter([*(place for place in places if place not in had), *spare])
    return {name: [*mine[:quotas[name]], *(next(free) for _ in range(quotas[name] - len(mine)))] for name, mine in shares.items()}


def _sticky_quotas(shares: Mapping[str, list[Place]], count: int) -> dict[str, int]:
    """Of an uneven rest, members that have more keep one more; then the newest members get one more."""
    least, larger = divmod(count, len(shares))
    rich = [name for name, mine in shares.items() if len(mine) > least][:larger]
    rest = [name for name in shares if name not in rich]
    lucky = {*rich, *rest[len(rest) - (larger - len(rich)):]}
    return {name: least + (name in lucky) for name in shares}


# ---- each subscribed to something of its own -------------------------------------------------------------------------


def _in_balance(members: Subscribers, sizes: Sizes) -> dict[str, list[Place]]:
    """Topics with few subscribers first; then partitions move to members with fewer while that balances."""
    shares = _kept(members, sizes)
    taken = {place for mine in shares.values() for place in mine}
    asking = {topic: [name for name, each in members.items() if topic in each.topics] for topic in _topics(members, sizes)}
    for topic, index in _places(sorted(asking, key=lambda each: len(asking[each])), sizes):
        if (topic, index) not in taken:
            shares[min(asking[topic], key=lambda name: len(shares[name]))].append((topic, index))
    while (move := _helpful_move(shares, asking)) is not None:
        place, giver, taker = move
        shares[giver].remove(place)
        shares[taker].append(place)
    return shares


def _helpful_move(shares: Mapping[str, list[Place]], asking: Mapping[UUID, list[str]]) -> tuple[Place, str, str] | None:
    """A partition of a member with at least two more than another one that could take it."""
    for giver in sorted(shares, key=lambda name: -len(shares[name])):
        for place in reversed(shares[giver]):
            taker = min(asking[place[0]], key=lambda name: len(shares[name]))
            if len(shares[taker]) + 2 <= len(shares[giver]):
                return place, giver, taker
    return None
