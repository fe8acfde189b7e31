"""The named scenarios can fail: each finds a client that does not notice a cut."""
from __future__ import annotations

from typing import Any

import pytest

from pyclient.buffers.fetch_buffer import FetchBuffer
from pyclient.core.fetching.positions import Position
from pyclient.core.fetching.preferred_replicas import PreferredReplicas
from pyclient.core.fetching.responses import FetchResponses
from pyclient.testing.simulation.scenarios import run_scenario
from tests.twins import needs_twins

pytestmark = needs_twins

SEEDS = range(24)
WITH_A_CUT = ("acknowledged-and-lost", "diverged-logs", "epochs-0-and-1-from-120", "a-follower-is-cut-back")


@pytest.mark.parametrize("name", WITH_A_CUT)
def test_a_scenario_finds_a_client_that_names_no_epochs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Position, "epoch", -1)
    assert any(run_scenario(name, seed).broken for seed in range(10))


def test_a_scenario_finds_a_client_that_goes_back_to_where_the_other_log_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Position, "divergence", lambda position, _epoch, end: min(end, position.offset - 1))
    assert any(run_scenario("epochs-0-and-1-from-120", seed).broken for seed in SEEDS)


@pytest.mark.parametrize("name", ["a-follower-lags", "a-follower-was-cut"])
def test_a_scenario_finds_a_client_that_believes_a_follower(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_data = FetchResponses._on_data

    def of_the_leader(self: FetchResponses, now: float, position: Position, fetched: Any, leads: bool) -> None:
        on_data(self, now, position, fetched, True)

    monkeypatch.setattr(FetchResponses, "_on_data", of_the_leader)
    assert any(run_scenario(name, seed).broken for seed in SEEDS)


def test_a_scenario_finds_a_client_whose_rack_is_heard_by_a_leader_that_is_to_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreferredReplicas, "doubt", lambda self, tp, _now: self.end(tp))
    assert any(run_scenario("a-follower-is-cut-back", seed).broken for seed in SEEDS)


def test_a_scenario_finds_a_client_that_forgets_what_it_holds_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchBuffer, "unread", lambda _self, _tp: None)
    assert any(run_scenario("a-follower-is-cut-back", seed).broken for seed in SEEDS)
