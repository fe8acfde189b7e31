"""Brokers that accept connections and answer nothing: records go on as soon as another broker leads."""
from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from pyclient.net.pool import ConnectionPool
from pyclient.testing.simulation.faults import Fault
from pyclient.testing.simulation.run import Outcome, Run
from tests.twins import needs_twins

SEEDS = range(1, 7)


def hangs(seed: int) -> Sequence[Fault]:
    """One broker after the other, for six seconds each."""
    random = Random(seed)
    return [Fault("hung", at, random.random(), 6.0) for at in (3.0, 12.0, 21.0)]


def outcome(seed: int) -> Outcome:
    return Run(seed, hangs(seed), config={"replica_lag_ms": 5, "failure_detection_ms": 300}).go()


@pytest.mark.parametrize("seed", SEEDS)
def test_records_go_on_soon_after_a_partition_has_a_live_leader(seed: int) -> None:
    found = outcome(seed)
    assert found.broken is None, found.timeline
    assert found.hits["hung"]
    assert found.evaluated["a_partition_with_a_live_leader_makes_progress"] > 30


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # clients of a broken run stay open
@needs_twins
def test_the_invariant_sees_a_client_that_waits_for_hung_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConnectionPool, "_check_silence", lambda self, now: None)
    assert any(outcome(seed).broken for seed in SEEDS)
