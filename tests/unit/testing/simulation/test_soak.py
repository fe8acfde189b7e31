"""Soaking: ever new seeds, past those that break, until Ctrl-C."""
from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

import attrs
import pytest

from pyclient.testing.simulation import __main__ as command
from pyclient.testing.simulation import soak as soaking
from pyclient.testing.simulation.run import Outcome, Run, run_seed
from pyclient.testing.simulation.soak import BATCH, Soaked, soak

HELD = run_seed(1, [])


def sweeping(monkeypatch: pytest.MonkeyPatch, stopped_at: int, *, breaks: frozenset[int] = frozenset()) -> list[int]:
    """Seeds cost nothing, some of them break, and the user presses Ctrl-C; returns the seeds that were run."""
    tried: list[int] = []

    def sweep(seeds: Sequence[int], *, jobs: int | None, seen: Callable[[Outcome], object], family: str) -> None:
        for seed in seeds:
            if len(tried) == stopped_at:
                raise KeyboardInterrupt
            tried.append(seed)
            seen(attrs.evolve(HELD, seed=seed, broken="M01 broke" if seed in breaks else None))
    monkeypatch.setattr(soaking, "sweep", sweep)
    return tried


def test_soaking_goes_on_past_broken_seeds_with_ever_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = sweeping(monkeypatch, stopped_at=BATCH * 2 + 10, breaks=frozenset({7, 7 + BATCH}))
    found = Soaked()
    with pytest.raises(KeyboardInterrupt):
        soak(5, found)
    assert tried == list(range(5, 5 + BATCH * 2 + 10))
    assert (found.seeds, found.broken) == (BATCH * 2 + 10, [7, 7 + BATCH])


@pytest.mark.parametrize(("breaks", "code"), [(frozenset[int](), 0), (frozenset({8}), 1)])
def test_the_exit_code_says_whether_any_seed_broke(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                                   breaks: frozenset[int], code: int) -> None:
    sweeping(monkeypatch, stopped_at=10, breaks=breaks)
    assert command.main(["--soak", "5"]) == code
    said = capsys.readouterr()
    assert f"10 seeds, {len(breaks)} broken" in said.out
    assert [int(each) for each in re.findall(r"--seed (\d+)", said.out)] == sorted(breaks)
    assert said.err.count("M01 broke") == len(breaks)


def test_ctrl_c_within_a_seed_ends_its_world(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Run) -> None:
        raise KeyboardInterrupt
    monkeypatch.setattr(Run, "_check_leftovers", interrupt)
    run = Run(1)
    with pytest.raises(KeyboardInterrupt):
        run.go()
    assert run.world.loop.is_closed()


def test_ctrl_c_ends_it_and_its_processes_in_order() -> None:
    with subprocess.Popen([sys.executable, "-m", "pyclient.testing.simulation", "--soak", "--jobs", "2"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert re.match(r"soaking from seed \d{10} on", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=60)
    assert process.returncode == 0, complaints
    assert "0 broken" in said
    assert "Traceback" not in complaints
