"""Seeds of the simulation per minute, on one process and on one per core.

A seed is a whole cluster with its producers and consumers for a minute of virtual time and more, with faults; every
invariant is evaluated after each step. A seed that breaks one is named: the figure would not be worth much.
"""
from __future__ import annotations

import argparse
import os

from pyclient.testing.simulation.sweep import Summary, sweep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=100, help="how many, for each row (100)")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Sweep, print the table, and give the figures."""
    rows = {jobs: sweep(range(1, arguments.seeds + 1), jobs=jobs) for jobs in sorted({1, os.cpu_count() or 1})}
    print(f"\n{'processes':>9} {'seeds':>6} {'seconds':>8} {'seeds/min':>10} {'virtual s/s':>12} {'requests/s':>11}")
    for jobs, found in rows.items():
        print(f"{jobs:>9} {found.seeds:>6} {found.seconds:>8.1f} {_per_second(found, None) * 60:>10.0f} "
              f"{_per_second(found, 'virtual_s'):>12.0f} {_per_second(found, 'requests'):>11.0f}")
    for seed in [each.seed for each in rows[1].broken]:
        print(f"seed {seed} breaks: python -m pyclient.testing.simulation --seed {seed}")
    return {f"processes {jobs}": {key: value for key, value in found.as_json().items() if key in ("seeds", "seconds", "seeds_per_minute")}
            for jobs, found in rows.items()}


def _per_second(found: Summary, what: str | None) -> float:
    total = found.seeds if what is None else sum(each[what] for each in found.per_seed)
    return total / max(found.seconds, 1e-9)
