"""``python -m pyclient.testing.simulation``: ``--seed N`` replays a seed exactly, ``--seeds 1..500`` sweeps, ``--soak``
runs new seeds until Ctrl-C, ``--scenario NAME`` runs a named one. ``--family groups``: with the members of a group."""
from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from pathlib import Path

from pyclient.testing.simulation.families import FAMILIES
from pyclient.testing.simulation.invariants import ALONE
from pyclient.testing.simulation.run import Outcome
from pyclient.testing.simulation.scenarios import SCENARIOS, run_scenario
from pyclient.testing.simulation.shrink import shrunk
from pyclient.testing.simulation.soak import Soaked, soak
from pyclient.testing.simulation.sweep import Summary, sweep


def main(arguments: list[str] | None = None) -> int:
    """Run it; gives the exit code: 0, 1 when an invariant broke, 2 when a sweep was not honest."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.scenario is not None:
        return _scenario(options)
    if options.seed is not None:
        return _one(options)
    if options.seeds is None and options.soak is None:
        parser.error("say --seed N, --seeds FIRST..LAST, --soak or --scenario NAME")
    return _many(options) if options.seeds is not None else _soak(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyclient.testing.simulation", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=int, help="replay this seed and print what happened")
    what.add_argument("--seeds", type=_seeds, help="sweep these: FIRST..LAST")
    what.add_argument("--soak", type=int, nargs="?", const=int(time.time()), metavar="FIRST", help="run new seeds until Ctrl-C (from the clock's)")
    parser.add_argument("--scenario", choices=SCENARIOS, help="run this one, with --seed N (1)")
    parser.add_argument("--family", choices=FAMILIES, default=ALONE, help="consumers with all partitions each (alone), members of one group (groups), or workers that process exactly once (transactions)")
    parser.add_argument("--jobs", type=int, help="processes (one per core)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what the sweep counted")
    parser.add_argument("--stop-at", type=int, metavar="N", help="stop after so many broken seeds")
    parser.add_argument("--last", type=int, default=60, metavar="N", help="how many events to print (60)")
    parser.add_argument("--no-shrink", action="store_true", help="show the whole plan of a broken seed")
    return parser


def _seeds(text: str) -> range:
    first, found, last = text.partition("..")
    return range(int(first), int(last if found else first) + 1)


def _one(options: argparse.Namespace) -> int:
    run = FAMILIES[options.family].run
    outcome = run(options.seed, None)
    if outcome.broken is not None and not options.no_shrink:
        outcome = shrunk(outcome, run=run)
    print(_described(outcome, options.last))
    return 1 if outcome.broken else 0


def _scenario(options: argparse.Namespace) -> int:
    outcome = run_scenario(options.scenario, 1 if options.seed is None else options.seed)
    print(f"scenario {options.scenario}, {_described(outcome, options.last)}")
    return 1 if outcome.broken else 0


def _many(options: argparse.Namespace) -> int:
    summary = sweep(options.seeds, jobs=options.jobs, seen=_Line(len(options.seeds)), stop_at=options.stop_at, family=options.family)
    if options.json:
        options.json.write_text(json.dumps(summary.as_json(), indent=1))
    print(_summed(summary))
    if summary.broken:
        return 1
    return 2 if summary.dishonest() else 0


def _soak(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs with it ignored
    found = Soaked()
    with contextlib.suppress(KeyboardInterrupt):
        print(f"soaking from seed {options.soak} on; Ctrl-C ends it", flush=True)
        soak(options.soak, found, jobs=options.jobs, seen=_Line(None), family=options.family)
    print(f"{found.seeds} seeds, {len(found.broken)} broken")
    for seed in found.broken:
        print(f"  python -m pyclient.testing.simulation --family {options.family} --seed {seed}")
    return 1 if found.broken else 0


class _Line:
    """The progress line of a sweep; without a *total* it has no end."""

    def __init__(self, total: int | None) -> None:
        self._total, self._done, self._broken = total, 0, 0
        self._rewrites = sys.stderr.isatty()

    def __call__(self, outcome: Outcome) -> None:
        self._done += 1
        if outcome.broken:
            self._broken += 1
            print(f"seed {outcome.seed}: {outcome.broken}", file=sys.stderr)
        if self._rewrites or self._done % 100 == 0 or self._done == self._total:
            total = "" if self._total is None else f" of {self._total}"
            print(f"{self._done}{total} seeds, {self._broken} broken", file=sys.stderr, end="\r" if self._rewrites else "\n")


def _described(outcome: Outcome, last: int) -> str:
    lines = [f"seed {outcome.seed}: {outcome.broken or 'everything held'}", "faults:", *(f"  {each}" for each in outcome.faults)]
    if outcome.broken:
        lines += ["the last events:", *outcome.timeline.splitlines()[-last:]]
    lines += [
        f"{outcome.sent} records sent, {outcome.acked} acknowledged, {outcome.failed} failed, {outcome.consumed} consumed",
        f"{outcome.requests} requests, {outcome.turns} callbacks in {outcome.virtual_s:.1f} virtual seconds",
        f"hits: {outcome.hits}", f"digest {outcome.digest}"]
    return "\n".join(lines)


def _summed(summary: Summary) -> str:
    sent, consumed = (sum(each[what] for each in summary.per_seed) for what in ("sent", "consumed"))
    per_minute = 60 * summary.seeds / max(summary.seconds, 1e-9)
    lines = [f"{summary.seeds} seeds in {summary.seconds:.1f} s ({per_minute:.0f} a minute), {len(summary.broken)} broken",
             f"{sent} records sent, {consumed} consumed"]
    lines += [f"  seed {each.seed}: {each.broken}" for each in summary.broken[:20]]
    lines += [f"  not honest: {each}" for each in summary.dishonest()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
