"""The named scenarios over many seeds. That they can fail: test_scenario_mutants.py."""
from __future__ import annotations

import pytest

from pyclient.testing.simulation.__main__ import main
from pyclient.testing.simulation.run import Outcome
from pyclient.testing.simulation.scenarios import SCENARIOS, Scene, run_scenario

SEEDS = range(24)
FEW_SEEDS = range(8)
NAMES = tuple(SCENARIOS)


def described(outcome: Outcome) -> str:
    return f"seed {outcome.seed}: {outcome.broken}\n{outcome.timeline}"


@pytest.mark.parametrize("seed", SEEDS)
def test_C11_a_write_acknowledged_by_a_leader_alone_and_lost_with_it_is_not_read_on_from(seed: int) -> None:
    outcome = run_scenario("acknowledged-and-lost", seed)
    assert outcome.broken is None, described(outcome)
    assert outcome.acked == outcome.sent


@pytest.mark.parametrize("seed", SEEDS)
def test_C11_of_two_logs_that_hold_different_records_at_the_same_offsets_the_one_that_leads_is_read(seed: int) -> None:
    outcome = run_scenario("diverged-logs", seed)
    assert outcome.broken is None, described(outcome)


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_C09_a_follower_that_has_less_than_its_readers_ask_for_is_no_truncated_log(seed: int) -> None:
    outcome = run_scenario("a-follower-lags", seed)
    assert outcome.broken is None, described(outcome)


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_C09_a_follower_that_lost_its_logs_end_is_no_truncated_log_for_readers_who_hold_what_they_have_not_read(seed: int) -> None:
    outcome = run_scenario("a-follower-was-cut", seed)
    assert outcome.broken is None, described(outcome)


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_C11_what_a_follower_has_lost_to_a_new_leader_and_its_readers_have_not_read_is_no_truncation_to_them(seed: int) -> None:
    outcome = run_scenario("a-follower-is-cut-back", seed)
    assert outcome.broken is None, described(outcome)


@pytest.mark.parametrize("seed", SEEDS)
def test_C11_a_reader_of_epoch_0_from_0_and_1_from_120_goes_back_to_where_its_history_and_the_log_differ(seed: int) -> None:
    outcome = run_scenario("epochs-0-and-1-from-120", seed)
    assert outcome.broken is None, described(outcome)


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_repeats_exactly(name: str) -> None:
    assert run_scenario(name, 5).digest == run_scenario(name, 5).digest


def test_S11_a_scenario_that_does_not_happen_has_failed() -> None:
    async def nothing_is_cut(scene: Scene) -> None:
        await scene.writer.write(3)
        scene.elect(2)

    assert Scene(1, nothing_is_cut).go().invariant == "S11 the_scenario_happens"


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_is_run_by_name_with_a_seed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", name, "--seed", "3"]) == 0
    assert f"scenario {name}, seed 3: everything held" in capsys.readouterr().out


def test_without_a_scenario_a_seed_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "--scenario NAME" in capsys.readouterr().err
