"""The brokers' own assignors: everything is shared, evenly, and little is moved."""
from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from pyclient.testing.fake.model.reconciliation import Place
from pyclient.testing.fake.model.server_assignors import Shares, Sizes, Subscriber, by_range, uniform

T, U, V = UUID(int=1), UUID(int=2), UUID(int=3)


def members(*names: str, topics: tuple[UUID, ...] = (T,), had: Mapping[str, tuple[Place, ...]] | None = None) -> dict[str, Subscriber]:
    return {name: Subscriber(topics, (had or {}).get(name, ())) for name in names}


def indexes(shares: Shares) -> dict[str, list[int]]:
    return {name: sorted(index for _, index in places) for name, places in shares.items()}


# ---- uniform ---------------------------------------------------------------------------------------------------------


def test_uniform_keeps_a_balanced_assignment() -> None:
    had = {"a": ((T, 4),), "b": ((T, 0), (T, 1)), "c": ((T, 2), (T, 3))}
    assert uniform(members("a", "b", "c", had=had), {T: 5}) == had


def test_uniform_assigns_unowned_partitions_first() -> None:
    had = {"a": ((T, 0), (T, 1), (T, 2), (T, 3))}
    assert indexes(uniform(members("a", "b", "c", had=had), {T: 6})) == {"a": [0, 1], "b": [4, 5], "c": [2, 3]}


def test_uniform_gives_what_few_want_to_them_and_evens_out_with_the_rest() -> None:
    asking = {"a": Subscriber((T, U), ()), "b": Subscriber((T,), ())}
    shares = uniform(asking, {T: 2, U: 2})
    assert shares == {"a": ((U, 0), (U, 1)), "b": ((T, 0), (T, 1))}


def test_uniform_moves_partitions_to_other_subscribers_for_balance() -> None:
    asking = {"a": Subscriber((T,), ((T, 0), (T, 1), (T, 2))), "b": Subscriber((T, U), ())}
    assert indexes(uniform(asking, {T: 3, U: 0})) == {"a": [0, 1], "b": [2]}


# ---- all -------------------------------------------------------------------------------------------------------------

topics = st.lists(st.sampled_from((T, U, V)), unique=True, max_size=3).map(tuple)
sizes = st.fixed_dictionaries({}, optional={each: st.integers(1, 9) for each in (T, U, V)})
groups = st.lists(topics, min_size=1, max_size=6)


def wanted(asking: Mapping[str, Subscriber], known: Sizes) -> set[Place]:
    return {(topic, index) for each in asking.values() for topic in each.topics for index in range(known.get(topic, 0))}


def check(asking: Mapping[str, Subscriber], shares: Shares, known: Sizes) -> None:
    given_out = [place for places in shares.values() for place in places]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == wanted(asking, known)
    assert all(topic in asking[name].topics for name, places in shares.items() for topic, _ in places)
    assert set(shares) == set(asking)


def is_even(asking: Mapping[str, Subscriber], shares: Shares) -> bool:
    return all(len(shares[taker]) + 1 >= len(places) for places in shares.values() for topic, _ in places
               for taker in asking if topic in asking[taker].topics)


@given(groups, sizes, st.lists(topics, max_size=3), sizes)
def test_every_subscribed_partition_is_assigned_also_after_changes(group: list[tuple[UUID, ...]], known: dict[UUID, int],
                                                                        more: list[tuple[UUID, ...]], later: dict[UUID, int]) -> None:
    for assign in (uniform, by_range):
        asking = {f"m{number}": Subscriber(each, ()) for number, each in enumerate(group)}
        shares = assign(asking, known)
        check(asking, shares, known)
        then = {f"m{number}": Subscriber(each, shares.get(f"m{number}", ())) for number, each in enumerate([*group[1:], *more], 1)}
        if then:
            after = assign(then, later)
            check(then, after, later)
            assert assign is by_range or is_even(then, after)
            again = {name: each._replace(had=after[name]) for name, each in then.items()}
            assert {name: set(places) for name, places in assign(again, later).items()} == {name: set(each) for name, each in after.items()}


@given(st.integers(1, 6), st.integers(1, 20), st.integers(0, 5))
def test_uniform_moves_no_more_than_it_has_to(count: int, partitions: int, leaver: int) -> None:
    """When somebody leaves, only what it had moves; when somebody comes, only what it gets."""
    asking = members(*(f"m{number}" for number in range(count + 1)))
    before = uniform(asking, {T: partitions})
    gone = f"m{leaver % (count + 1)}"
    left = {name: Subscriber((T,), before[name]) for name in asking if name != gone}
    after = uniform(left, {T: partitions})
    assert all(set(before[name]) <= set(after[name]) for name in left)
    back = uniform({**{name: Subscriber((T,), after[name]) for name in left}, gone: Subscriber((T,), ())}, {T: partitions})
    moved = sum(len(set(back[name]) - set(after[name])) for name in left)
    assert moved == 0
