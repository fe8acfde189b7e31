"""The random runs: they hold, they are worth their name, they can be repeated, and a failing plan is made short."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from pyclient.testing.simulation.faults import Fault
from pyclient.testing.simulation.invariants import ALONE, GROUPS
from pyclient.testing.simulation.run import Outcome, run_seed
from pyclient.testing.simulation.shrink import shrunk
from pyclient.testing.simulation.sweep import Summary, sweep

pytestmark = pytest.mark.timeout(1800)  # minutes of work, done once

SEEDS = range(1, int(os.environ.get("PYCLIENT_SIMULATION_SEEDS", "100")) + 1)
GROUP_SEEDS = range(1, int(os.environ.get("PYCLIENT_SIMULATION_GROUP_SEEDS", "50")) + 1)


@pytest.fixture(scope="module", params=[ALONE, GROUPS])
def swept(request: pytest.FixtureRequest) -> Summary:
    return sweep(SEEDS if request.param == ALONE else GROUP_SEEDS, jobs=2, family=request.param)


def test_every_invariant_holds_in_every_seed(swept: Summary) -> None:
    assert swept.seeds == len(SEEDS if swept.family.name == ALONE else GROUP_SEEDS)
    assert not swept.broken, "\n".join(f"python -m pyclient.testing.simulation --family {swept.family.name} --seed {each.seed}  # {each.broken}" for each in swept.broken)


def test_the_sweep_was_honest(swept: Summary) -> None:
    assert not swept.dishonest()


def test_a_seed_gives_the_same_events_in_another_process_whatever_its_hash_seed(swept: Summary, tmp_path: Path) -> None:
    file = tmp_path / "again.json"
    subprocess.run(
        [sys.executable, "-m", "pyclient.testing.simulation", "--family", swept.family.name, "--seeds", "1..6", "--jobs", "1", "--json", file],
        env={**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"}, check=False, capture_output=True, timeout=900)
    again = [each["digest"] for each in json.loads(file.read_text())["per_seed"]]
    assert len(set(again)) == 6
    assert again == [each["digest"] for each in swept.per_seed[:6]]


def test_faults_that_a_breach_does_not_need_are_taken_away() -> None:
    def broken_by_a_slow_node(seed: int, faults: Sequence[Fault]) -> Outcome:
        guilty = [each.kind for each in faults].count("slow_node")
        return attrs.evolve(outcome, faults=list(faults), invariant="S00" if guilty else None)

    outcome = run_seed(3)
    plan = [Fault(kind, at, 0.5, 1.0) for at, kind in enumerate(("leader_move", "slow_node", "dns_change", "slow_node", "half_open"))]
    short = shrunk(attrs.evolve(outcome, faults=plan, invariant="S00"), run=broken_by_a_slow_node)
    assert [each.kind for each in short.faults] == ["slow_node"]


def test_another_breach_is_no_reason_to_take_a_fault_away() -> None:
    def another(seed: int, faults: Sequence[Fault]) -> Outcome:
        return attrs.evolve(outcome, faults=list(faults), invariant="S99")

    outcome = attrs.evolve(run_seed(3), invariant="S00")
    assert shrunk(outcome, run=another).faults == outcome.faults
