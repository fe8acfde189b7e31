"""The simulation can fail: some seed finds each deliberate bug, or the table says why not. Part of `make proof`."""
from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.hunt import Finding, hunt
from tests.simulation.mutants import every_mutant

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]
SEEDS: Final = range(1, 501)
PROCESSES: Final = 2
ROOT: Final = Path(__file__).parents[2]
FOUND_BY: Final = ROOT / "build" / "mutants.json"
"""Mutant → the seed that found it in the last run; tried first. Only a cache: without it the search takes longer."""


def test_some_seed_finds_every_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))  # the worker processes import these modules from there
    hints: dict[str, int] = json.loads(FOUND_BY.read_text()) if FOUND_BY.exists() else {}
    names = [each.name for each in every_mutant() if not each.survives]
    found: dict[str, Finding] = {}
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for search in as_completed([pool.submit(hunt, name, _seeds(hints.get(name))) for name in names]):
            finding = search.result()
            found[finding.mutant] = finding
            print(_line(finding), flush=True)
    FOUND_BY.parent.mkdir(exist_ok=True)
    FOUND_BY.write_text(json.dumps({name: each.seed for name, each in sorted(found.items()) if each.invariant is not None}, indent=1) + "\n")
    assert found.keys() == set(names)
    assert not [each for each in found.values() if each.defect is not None]
    assert not [each.mutant for each in found.values() if each.invariant is None]


def _seeds(hint: int | None) -> list[int]:
    return [*SEEDS] if hint is None else [hint, *(seed for seed in SEEDS if seed != hint)]


def _line(finding: Finding) -> str:
    outcome = finding.defect or finding.invariant or "SURVIVED"
    return f"{finding.mutant:<80} {outcome} by seed {finding.seed}, number {finding.tried}"
