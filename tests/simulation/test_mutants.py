"""The simulation can fail: a seed finds each deliberate bug, or a unit test that a table names (`make proof`)."""
from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

import pytest

from tests.simulation import rewritten, with_a_mutant
from tests.simulation.hunt import Finding, hunt
from tests.simulation.mutants import every_mutant, named
from tests.simulation.mutation import Rewrite
from tests.simulation.seen_by_unit_tests import EXEMPT
from tests.simulation.situations import seeds_for
from tests.twins import use_twins

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]
SEEDS: Final = 40
"""So many must do, of those that can show the mutant at all."""
PROCESSES: Final = 2
ROOT: Final = Path(__file__).parents[2]
FOUND_BY: Final = ROOT / "build" / "mutants.json"
"""Mutant → the seed that found it in the last run; tried first. Only a cache: without it the search takes longer."""


def test_some_seed_finds_every_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))  # the worker processes import these modules from there
    hints: dict[str, int] = json.loads(FOUND_BY.read_text()) if FOUND_BY.exists() else {}
    names = [each.name for each in every_mutant() if each.name not in EXEMPT]
    found: dict[str, Finding] = {}
    with contextlib.ExitStack() as pools:
        general = pools.enter_context(ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), use_twins))
        for search in as_completed([_pool(name, general, pools).submit(hunt, name, _seeds(name, hints.get(name))) for name in names]):
            finding = search.result()
            found[finding.mutant] = finding
            print(_line(finding), flush=True)
    FOUND_BY.parent.mkdir(exist_ok=True)
    FOUND_BY.write_text(json.dumps({name: each.seed for name, each in sorted(found.items()) if each.invariant is not None}, indent=1) + "\n")
    assert found.keys() == set(names)
    assert not [each for each in found.values() if each.defect is not None]
    assert not [each.mutant for each in found.values() if each.invariant is None]


def test_the_unit_tests_in_place_of_seeds_hold_without_a_mutant() -> None:
    assert _exit_code(*{each.test for each in EXEMPT.values()}) == pytest.ExitCode.OK


@pytest.mark.parametrize("name", EXEMPT)
def test_a_unit_test_finds_every_other_mutant(name: str) -> None:
    assert _exit_code(EXEMPT[name].test, mutant=name) == pytest.ExitCode.TESTS_FAILED


def _pool(name: str, general: ProcessPoolExecutor, pools: contextlib.ExitStack) -> ProcessPoolExecutor:
    """Of a bug in compiled code, which a process imports once, one process of its own."""
    change = named(name).change
    if not isinstance(change, Rewrite):
        return general
    return pools.enter_context(ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), rewritten.load, (change.module, rewritten.compiled(change.target, change.body))))


def _exit_code(*tests: str, mutant: str | None = None) -> int:
    plugins = [] if mutant is None else ["-p", with_a_mutant.__name__]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, *sorted(tests)], cwd=ROOT, timeout=900, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYCLIENT_PURE": "1", with_a_mutant.VARIABLE: mutant or ""})
    return done.returncode


def _seeds(name: str, hint: int | None) -> list[int]:
    seeds = [*seeds_for(named(name), SEEDS)]
    return [*dict.fromkeys(seeds if hint not in seeds else (hint, *seeds))]


def _line(finding: Finding) -> str:
    outcome = finding.defect or finding.invariant or "SURVIVED"
    return f"{finding.mutant:<80} {outcome} by seed {finding.seed}, number {finding.tried}"
