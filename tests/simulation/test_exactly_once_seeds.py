"""Each input of a chain has one committed output, whatever a seed does to workers, brokers and connections."""
from __future__ import annotations

import os

import pytest

from pyclient.testing.simulation.chains import run_chain_seed
from pyclient.testing.simulation.invariants import TRANSACTIONS
from pyclient.testing.simulation.sweep import Summary, sweep

pytestmark = pytest.mark.timeout(3600)

SEEDS = range(1, int(os.environ.get("PYCLIENT_EXACTLY_ONCE_SEEDS", "10")) + 1)


@pytest.fixture(scope="module")
def swept() -> Summary:
    return sweep(SEEDS, jobs=2, family=TRANSACTIONS)


def test_each_input_has_one_committed_output_in_every_seed(swept: Summary) -> None:
    assert swept.seeds == len(SEEDS)
    assert not swept.broken, "\n".join(f"python -m pyclient.testing.simulation --family {TRANSACTIONS} --seed {each.seed}  # {each.broken}" for each in swept.broken)


def test_chains_are_not_spared(swept: Summary) -> None:
    assert not swept.dishonest()


def test_a_seed_gives_the_same_events_in_another_process(swept: Summary) -> None:
    assert run_chain_seed(3).digest == swept.per_seed[2]["digest"]
