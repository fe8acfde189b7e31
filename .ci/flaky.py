"""Run tests many times under load and count how often they fail: ``make flaky TESTS="..." TIMES=200 JOBS=6``.

Several pytest processes run at once, more than the machine has cores, so that the order of events varies. The output of
each failed run is kept under build/flaky; the closing line counts runs and failures. With ``EACH=20`` a
process runs the tests twenty times, on the same shared brokers: ``TIMES=10 EACH=20`` is 200 runs of each test in ten
processes.
"""
from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = ROOT / "build" / "flaky"
LIMIT_S: Final = 1800.0


def run(number: int, tests: Sequence[str], options: Sequence[str]) -> bool:
    """One run; keeps its output when it fails."""
    command = [str(Path(sys.executable).with_name("pytest")), "-q", "-p", "no:cacheprovider", *options, *tests]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
        passed, output = done.returncode == 0, done.stdout
    except subprocess.TimeoutExpired as late:
        passed, output = False, f"{late}\n{(late.output or b'').decode(errors='replace')}"
    if not passed:
        (KEPT / f"run-{number}.txt").write_text(output)
    return passed


def main(arguments: Sequence[str]) -> None:
    """Read the command line, run, and exit with 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="make flaky", description=__doc__)
    parser.add_argument("--times", type=int, default=200, help="how many runs (default: 200)")
    parser.add_argument("--jobs", type=int, default=6, help="how many at once (default: 6)")
    parser.add_argument("--each", type=int, default=1, help="how often a process runs each test (default: 1)")
    parser.add_argument("--option", action="append", default=[], help="an option of pytest, such as --option=-k=seek")
    parser.add_argument("tests", nargs="+", help="files or node ids of tests")
    asked = parser.parse_args(arguments)
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    options = [f"--repeat={asked.each}", *asked.option]
    began, failed = time.monotonic(), 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        runs = {pool.submit(run, number, asked.tests, options): number for number in range(1, asked.times + 1)}
        for ended in as_completed(runs):
            if not ended.result():
                failed += 1
                print(f"run {runs[ended]} failed: {KEPT.relative_to(ROOT)}/run-{runs[ended]}.txt", flush=True)
    print(f"flaky: {asked.times} runs of {asked.each}, {failed} failed, {time.monotonic() - began:.0f} s with {asked.jobs} at once")
    sys.exit(bool(failed) or not asked.times)


if __name__ == "__main__":
    main(sys.argv[1:])
