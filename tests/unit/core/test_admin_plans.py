"""Plans of replicas: on different brokers, on all racks, evenly, and without needless moves."""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import TopicPartition
from pyclient.admin import ReassignmentPlan
from pyclient.core.admin.plans import spread, with_factors, without
from pyclient.errors import InvalidReplicationFactorError

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
NO_RACKS = dict.fromkeys((1, 2, 3))
Placement = Mapping[TopicPartition, tuple[int, ...]]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[int, str | None], dict[TopicPartition, tuple[int, ...]]]:
    """Brokers with or without racks, and partitions of one replication factor anywhere."""
    brokers = list(range(draw(st.integers(1, 7))))
    racks: list[str | None] = draw(st.sampled_from([[None], ["a", "b"], ["a", "b", "c"]]))
    factor = draw(st.integers(1, len(brokers)))
    placed = {TopicPartition("t", number): tuple(draw(st.permutations(brokers))[:factor]) for number in range(draw(st.integers(1, 12)))}
    return {broker: draw(st.sampled_from(racks)) for broker in brokers}, placed


def on_racks(racks: Mapping[int, str | None], replicas: tuple[int, ...]) -> int:
    return len({racks[each] or each for each in replicas})


def check(racks: Mapping[int, str | None], before: Placement, changes: Placement) -> Placement:
    """What holds of every plan; the placement after it."""
    assert all(replicas != before[tp] for tp, replicas in changes.items())
    after = {**before, **changes}
    assert all(len(set(replicas)) == len(replicas) and set(replicas) <= racks.keys() for replicas in after.values())
    return after


@given(clusters(), st.integers(1, 7))
def test_a_replication_factor_keeps_leaders_and_uses_new_racks_first(cluster: tuple[dict[int, str | None], Placement], factor: int) -> None:
    racks, placed = cluster
    if factor > len(racks):
        if factor != len(placed[ONE]):
            with pytest.raises(InvalidReplicationFactorError, match=f"{factor} replicas need as many brokers"):
                with_factors(placed, racks, {"t": factor})
        return
    for tp, replicas in check(racks, placed, with_factors(placed, racks, {"t": factor})).items():
        assert len(replicas) == factor
        assert replicas[0] == placed[tp][0]
        if factor >= len(placed[tp]):
            assert replicas[: len(placed[tp])] == placed[tp]
            added = factor - len(placed[tp])
            assert on_racks(racks, replicas) == min(on_racks(racks, placed[tp]) + added, len({rack or each for each, rack in racks.items()}))
        else:
            assert on_racks(racks, replicas) == min(on_racks(racks, placed[tp]), factor)


@given(clusters(), st.data())
def test_brokers_are_emptied_and_other_replicas_stay(cluster: tuple[dict[int, str | None], Placement], data: st.DataObject) -> None:
    racks, placed = cluster
    leaving = data.draw(st.sets(st.sampled_from(sorted(racks)), max_size=len(racks) - len(placed[ONE])))
    after = check(racks, placed, without(placed, racks, leaving))
    for tp, replicas in after.items():
        assert leaving.isdisjoint(replicas)
        assert [each for each in placed[tp] if each not in leaving] == [new for new, old in zip(replicas, placed[tp], strict=True) if old not in leaving]


@given(clusters())
def test_spread_replicas_use_all_racks_and_leaders_are_even(cluster: tuple[dict[int, str | None], Placement]) -> None:
    racks, placed = cluster
    after = check(racks, placed, spread(placed, racks))
    everywhere = on_racks(racks, tuple(racks))
    assert all(on_racks(racks, replicas) == min(len(replicas), everywhere) for replicas in after.values())
    leads = Counter(replicas[0] for replicas in after.values())
    assert all(leads[replicas[0]] - leads[each] <= 1 for replicas in after.values() for each in replicas)
    if set(racks.values()) == {None}:
        numbers = Counter(dict.fromkeys(racks, 0))
        numbers.update(each for replicas in after.values() for each in replicas)
        assert max(numbers.values()) - min(numbers.values()) <= 1
    assert spread(after, racks) == {}, "a second plan has nothing to do"


def test_what_is_even_stays_as_it_is() -> None:
    assert spread({ONE: (1, 2), TWO: (3, 1)}, {1: "a", 2: "b", 3: "b"}) == {}
    assert without({ONE: (1, 2)}, NO_RACKS, {3}) == {}
    assert with_factors({ONE: (1, 2)}, NO_RACKS, {"other": 3}) == {}


def test_brokers_that_would_be_too_few_are_named() -> None:
    with pytest.raises(InvalidReplicationFactorError, match=r"t-0: 2 replicas need as many brokers, and there are 1: \[3\]"):
        without({ONE: (1, 3)}, NO_RACKS, {1, 2})


def test_preferred_leaders_alone_are_spread_by_the_order_of_replicas() -> None:
    assert spread({ONE: (1, 2), TWO: (1, 2)}, dict.fromkeys((1, 2))) == {ONE: (2, 1)}


def test_a_plan_says_what_is_copied_for_each_partition_and_in_all() -> None:
    two, three = TopicPartition("t", 2), TopicPartition("t", 3)
    plan = ReassignmentPlan({ONE: (1,), TWO: (1, 2), two: (1, 2), three: (1,)}, {ONE: (1, 2, 3), TWO: (2, 1), two: (3, 2), three: (2,)}, {ONE: 1500, TWO: 9, two: 7})
    assert str(plan).splitlines() == [
        "t-0: 1 -> 1,2,3, copies 3,000 bytes", "t-1: 1,2 -> 2,1, copies nothing", "t-2: 1,2 -> 3,2, copies 7 bytes", "t-3: 1 -> 2, copies an unknown number of bytes"]
    assert (plan.total_bytes, plan.undo().total_bytes, plan.copied_bytes(three)) == (3007, 7, None)
    assert str(ReassignmentPlan({}, {})) == "nothing to move"
