"""Print why tests of a CI run failed, then its closing line, ``N passed, N failed``, and exit accordingly.

Arguments: the names of the failed sections. It reads every JUnit file. A test that ran in two modes (on this machine's
broker, on containers) counts twice. Each failed section counts as one failure of its own, so that a section which
failed without any test failing cannot end in a green line; but not one in which only unsteady tests failed.
"""
from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from junit import RESULTS, TESTS_FAILED, Case, cases, cases_of, exit_code, unsteady

SUITES: Final = {"test": "test", "containers": "test-containers"}
"""Section → its file of results, where tests get a second try."""
LEFT: Final = "left to `make nightly`"
"""In the reason of a test that CI skipped because its time was over (tests/conftest.py)."""
LINES: Final = 12
"""Of a failure: a log that keeps only its end still says what was wrong."""
WIDTH: Final = 200


def described(case: Case, end: str) -> str:
    """The name of a failed test, and the lines of its traceback that are marked as the error, or else the last ones."""
    lines = case.text.splitlines()
    marked = [line for line in lines if line.startswith(("E ", "E\t"))]
    shown = "\n".join(line[:WIDTH] for line in (marked[:LINES] or lines[-LINES:]))
    return f"{case} {end}:\n{shown}\n"


def unsteady_cases(folder: Path) -> Iterator[Case]:
    """As they failed the first time."""
    keys = unsteady(folder)
    for suite in SUITES.values():
        file = folder / f"{suite}.xml"
        yield from (case for case in (cases_of(file) if file.exists() else ()) if case.key in keys)


def excused(section: str, folder: Path) -> bool:
    """Whether nothing was wrong in a failed section but unsteady tests."""
    suite = SUITES.get(section, "")
    found = [case for case in cases(folder) if case.suite == suite]
    ran = exit_code(folder, suite) == TESTS_FAILED
    return ran and bool(found) and all(case.outcome != "failed" for case in found)


def main(sections: Sequence[str]) -> None:
    found = list(cases(RESULTS))
    again = list(unsteady_cases(RESULTS))
    failed = [case for case in found if case.outcome == "failed"]
    broken = [section for section in sections if not excused(section, RESULTS)]
    for case in again:
        print(described(case, "is unsteady: it failed, then passed twice alone. Put it into tests/unsteady.md; it failed with"))
    for case in failed:
        print(described(case, "failed"))
    if left := sum(case.outcome == "skipped" and LEFT in case.text for case in found):
        print(f"time was over: {left} tests were {LEFT}")
    if again:
        print(f"unsteady: {len(again)} tests")
    if broken:
        print(f"failed sections: {' '.join(broken)}")
    passed = sum(case.outcome == "passed" for case in found)
    print(f"{passed} passed, {len(failed) + len(broken)} failed")
    sys.exit(bool(failed or broken) or not passed)


if __name__ == "__main__":
    main(sys.argv[1:])
