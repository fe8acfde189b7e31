"""Each input of a chain has one committed output, whatever a seed does to workers, brokers and connections."""
from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.exactly_once_world import ENDINGS, INPUTS, Chain

pytestmark = pytest.mark.timeout(3600)

SEEDS = range(1, int(os.environ.get("PYCLIENT_EXACTLY_ONCE_SEEDS", "20")) + 1)
FAULTS = 10


def test_each_input_has_one_committed_output_in_every_seed() -> None:
    wrong, lives, aborted, fenced = [], Counter[str](), 0, 0
    for seed in SEEDS:
        try:
            found = Chain(seed).run(FAULTS)
        except TimeoutError:
            wrong.append(f"seed {seed}: not everything was processed")
            continue
        if found.outputs != Counter(range(INPUTS)) or found.open or found.surprises:
            amiss = {value: found.outputs[value] for value in range(INPUTS) if found.outputs[value] != 1}
            wrong.append(f"seed {seed}: {amiss} {found.open} {found.surprises}")
        lives += found.lives
        aborted, fenced = aborted + found.aborted, fenced + found.fenced
    assert not wrong, "\n".join(wrong)
    few = len(SEEDS) // 4
    assert {ending: lives[ending] for ending in (*ENDINGS, "fails") if lives[ending] < few} == {}, "chains were spared too much"
    assert min(aborted, fenced) >= few


def test_a_seed_gives_the_same_events_again() -> None:
    assert Chain(3).run(FAULTS) == Chain(3).run(FAULTS)
