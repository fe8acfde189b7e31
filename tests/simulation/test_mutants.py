"""The simulation must be able to fail: deliberate bugs, each found by some seed, or listed with the reason why none can."""
from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import pytest

from tests.simulation.hunt import Finding, hunt
from tests.simulation.mutants import BUGS, everything
from tests.simulation.mutation import Mutant, applied

SEEDS = range(1, 501)
PROCESSES = 2
ROOT = Path(__file__).parents[2]
MODE = os.environ.get("PYCLIENT_MUTANTS", "")
"""``hints``: what another seed found than last time is written down; ``anew``: all are looked for from the first seed on."""
FOUND_BY = Path(__file__).with_name("found_by.json")
"""Mutant → the seed that found it last time: it is tried first. `make mutant-hints` mends it after the client or its workload has changed, which makes
this test quick again; `make mutants` looks for all of them anew."""


@pytest.mark.parametrize("mutant", everything(), ids=lambda each: each.name)
def test_a_mutant_changes_what_stands_in_the_client_today(mutant: Mutant) -> None:
    with applied(mutant):
        pass


def test_each_area_has_three_bugs_of_the_museum_at_least() -> None:
    areas = Counter(each.area for each in BUGS if not each.survives)
    assert sum(areas.values()) >= 15
    assert all(areas[area] >= 3 for area in ("produce", "fetch", "metadata", "connection")), areas


@pytest.mark.timeout(3600)
def test_the_seeds_find_every_mutant_or_its_reason_stands_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))  # the workers look for these modules there
    hints: dict[str, int] = json.loads(FOUND_BY.read_text())
    mutants = [each.name for each in everything() if not each.survives]
    assert MODE or hints.keys() >= set(mutants), "make mutant-hints"
    wanted = {name: _first(None if MODE == "anew" else hints.get(name)) for name in mutants}
    found = {}
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for hunting in as_completed([pool.submit(hunt, name, seeds) for name, seeds in wanted.items()]):
            finding = hunting.result()
            found[finding.mutant] = finding
            print(_line(finding), flush=True)
            if MODE and finding.invariant is not None:
                hints[finding.mutant] = finding.seed
                FOUND_BY.write_text(json.dumps({name: hints[name] for name in sorted(wanted.keys() & hints.keys())}, indent=1) + "\n")
    print(*(f"{each.name:<80} survives: {each.survives}" for each in everything() if each.survives), sep="\n")
    assert found.keys() == wanted.keys()
    assert not [each.mutant for each in found.values() if each.invariant is None]


def _first(hint: int | None) -> list[int]:
    return [*SEEDS] if hint is None else [hint, *(seed for seed in SEEDS if seed != hint)]


def _line(finding: Finding) -> str:
    return f"{finding.mutant:<80} {finding.invariant or 'SURVIVED'} by seed {finding.seed}, the {finding.tried}. tried"
