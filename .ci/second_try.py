"""Run again what failed on real brokers, processes and clocks: are the tests unsteady or broken?

Each such test runs twice more, alone. If it passes both times it is *unsteady*: the closing line names it, but does not
count it as failed. Its cause is the next work: tests/unsteady.md. Units, simulation and fuzz get no second try.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from junit import RESULTS, ROOT, UNSTEADY, Case, cases_of

PLACES: Final = ("tests.broker.", "tests.containers.", "tests.interop.", "tests.spark.", "tests.threads.", "tests.test_packaging")
"""Beginnings of the class names of tests that depend on brokers, processes or clocks."""
MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "test": {"PYCLIENT_BROKERS": "embedded", "PYCLIENT_DIST": str(ROOT / "dist")},
    "test-containers": {"PYCLIENT_BROKERS": "container"},
}
"""Suite → the environment in which CI runs it."""
MOST: Final = 5
"""If more tests failed than this, none gets a second try: the cause is not chance."""
TRIES: Final = 2
LIMIT_S: Final = 900.0


def failed_cases(folder: Path) -> list[Case]:
    """The failed tests that get a second try."""
    found = [case for file in sorted(folder.glob("*.xml")) if file.stem in MODES for case in cases_of(file)]
    return [case for case in found if case.outcome == "failed" and case.classname.startswith(PLACES)]


def node_id(case: Case, root: Path) -> str:
    """The name by which pytest runs it: the file that the class name begins with, then classes, then the test."""
    parts = case.classname.split(".")
    for end in range(len(parts), 0, -1):
        file = Path(*parts[:end]).with_suffix(".py")
        if (root / file).exists():
            return "::".join([file.as_posix(), *parts[end:], case.name])
    sys.exit(f"{case} is in no file of {root}")


def passes(case: Case) -> bool:
    """Run it once more, alone; a skip is no pass."""
    result = ROOT / "build" / "second-try.xml"
    result.unlink(missing_ok=True)
    command = [str(Path(sys.executable).with_name("pytest")), "-q", f"--junitxml={result}", node_id(case, ROOT)]
    try:
        subprocess.run(command, cwd=ROOT, env={**os.environ, **MODES[case.suite]}, timeout=LIMIT_S, check=True)
    except subprocess.SubprocessError as fault:
        print(f"second try: {fault}", flush=True)
        return False
    return [each.outcome for each in cases_of(result)] == ["passed"]


def unsteady_of(failed: Sequence[Case]) -> list[Case]:
    """Those that pass each time when they run again."""
    if len(failed) > MOST:
        print(f"second try: {len(failed)} tests failed, more than {MOST}: none runs again")
        return []
    return [case for case in failed if all(passes(case) for _ in range(TRIES))]


def main() -> None:
    found = unsteady_of(failed_cases(RESULTS))
    (RESULTS / UNSTEADY).write_text(json.dumps([case.key for case in found]))
    print(f"second try: {len(found)} unsteady tests")


if __name__ == "__main__":
    main()
