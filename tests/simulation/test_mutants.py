"""The simulation must be able to fail: deliberate bugs, each found by some seed, or listed with the reason why none can."""
from __future__ import annotations

import functools
import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.simulation.hunt import Finding, hunt
from tests.simulation.mutants import BUGS, everything
from tests.simulation.mutation import Mutant, applied

SEEDS = range(1, 501)
PROCESSES = 2
ROOT = Path(__file__).parents[2]
ALL = os.environ.get("PYCLIENT_MUTANTS") == "all"
QUICK = frozenset({
    "a failed batch makes room for the next one before it is sent again", "a lost answer counts as stored",
    "every error of a partition counts as stored", "memory of a stored batch is never given back", "overdue batches wait for ever",
    "after a failure the batch is sent again without a pause", "the position does not move over what was fetched",
    "the position moves one too far", "a partition with an error is never asked for again", "a drained partition is not asked for again",
})
"""What the first seeds find, at most two or three."""


@pytest.mark.parametrize("mutant", everything(), ids=lambda each: each.name)
def test_a_mutant_changes_what_stands_in_the_client_today(mutant: Mutant) -> None:
    with applied(mutant):
        pass


def test_each_area_has_three_bugs_of_the_museum_at_least() -> None:
    areas = Counter(each.area for each in BUGS if not each.survives)
    assert sum(areas.values()) >= 15
    assert all(areas[area] >= 3 for area in ("produce", "fetch", "metadata", "connection")), areas


@pytest.mark.timeout(3600)
def test_the_seeds_find_the_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the suite those of `QUICK`; all of them by `make mutants`."""
    monkeypatch.syspath_prepend(str(ROOT))  # the workers look for these modules there
    wanted = [each.name for each in everything() if not each.survives and (ALL or each.name in QUICK)]
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(functools.partial(hunt, seeds=SEEDS), wanted))
    print(*map(_line, sorted(found, key=lambda each: each.mutant)), sep="\n")
    assert len(found) >= len(QUICK)
    assert not [each.mutant for each in found if each.invariant is None]


def _line(finding: Finding) -> str:
    return f"{finding.mutant:<80} {finding.invariant or 'SURVIVED'} after {finding.seeds}"
