"""When a sweep proves too little: what must be found in how many seeds, for any block of seeds."""
from __future__ import annotations

from random import Random

import pytest

from pyclient.testing.simulation.families import FAMILIES
from pyclient.testing.simulation.sweep import NOT_TAKEN, RARE, SELDOM, UNUSUAL, USUAL, Summary, fewest, rows


@pytest.mark.parametrize("share", [UNUSUAL, USUAL, 0.75, 0.95])
@pytest.mark.parametrize("seeds", [10, 50, 100, 2000])
def test_no_block_of_seeds_falls_short_by_chance(share: float, seeds: int) -> None:
    random = Random(seeds)
    for _ in range(20):
        assert sum(random.random() < share for _ in range(seeds)) >= fewest(share, seeds)


def test_more_seeds_must_find_more() -> None:
    assert [fewest(USUAL, seeds) for seeds in (10, 100, 2000)] == [0, 1, 227]
    assert [fewest(UNUSUAL, seeds) for seeds in (100, 2000, 10_000)] == [0, 3, 56]


def found(share: float, seeds: int = 2000) -> Summary:
    """A sweep in which everything is found in this share of the seeds."""
    summary = Summary(seeds=seeds, in_flight=seeds)
    summary.found_in.update(dict.fromkeys(summary._expected(), int(share * seeds)))
    return summary


def test_a_sweep_in_which_everything_is_usual_is_honest() -> None:
    assert found(USUAL).dishonest() == []


def test_a_fault_a_rule_and_a_row_that_are_found_in_too_few_seeds_are_named() -> None:
    short = found(USUAL)
    for name in ("slow_node", "a_record_is_settled_once", "connection READY RETIRED"):
        short.found_in[name] = 100
    assert [each.split(" in ")[0] for each in short.dishonest()] == ["slow_node hit something", "a_record_is_settled_once was evaluated", "connection READY RETIRED was taken"]


def test_what_is_seldom_may_be_missing_in_a_short_sweep_and_not_in_a_long_one() -> None:
    name = next(each for each in found(1.0)._expected() if each in SELDOM)
    for seeds, complaints in ((100, 0), (2000, 1)):
        summary = found(1.0, seeds)
        del summary.found_in[name]
        assert len(summary.dishonest()) == complaints


def test_too_many_thin_seeds_are_a_complaint() -> None:
    summary = found(1.0, 100)
    summary.thin = [1]
    assert summary.dishonest() == []
    summary.thin = [*range(20)]
    assert len(summary.dishonest()) == 1


def test_a_row_that_is_listed_as_never_taken_and_was_is_a_complaint() -> None:
    summary = found(1.0)
    summary.transitions[next(iter(NOT_TAKEN))] += 1
    assert ["never taken" in each for each in summary.dishonest()] == [True]


def test_all_that_is_listed_exists() -> None:
    names = {name for family in FAMILIES.values() for name in Summary(family)._expected()}
    assert names >= SELDOM
    assert {row for family in FAMILIES.values() for row in rows(family)} >= {*NOT_TAKEN, *RARE}
