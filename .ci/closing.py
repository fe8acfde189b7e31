"""Print why tests of a CI run failed, then its closing line, ``N passed, N failed``, and exit accordingly.

Arguments: the names of the failed sections. It reads every JUnit file. A test that ran in two modes (on this machine's
broker, on containers) counts twice. Each failed section counts as one failure of its own, so that a section which
failed without any test failing cannot end in a green line; but not one in which only unsteady tests failed.
"""
from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Final

from junit import GOOD, RESULTS, TESTS_FAILED, Case, cases, exit_code

SUITES: Final = {"test": "test", "containers": "test-containers"}
"""Section → its file of results, where tests get a second try."""
LEFT: Final = "left to `make nightly`"
"""In the reason of a test that was skipped because CI's time was over (tests/conftest.py)."""
LINES: Final = 12
"""Of a failure: a log that keeps only its end still says what was wrong."""
WIDTH: Final = 200
PLACE: Final = re.compile(r"tests/\S+\.py:\d+: ")
PLACES: Final = 4


def described(case: Case, end: str) -> str:
    """The name of a failed test, the lines of its traceback that are marked as the error, or else the last ones, and
    the places in tests where it was raised."""
    lines = case.text.splitlines()
    marked = [line for line in lines if line.startswith(("E ", "E\t"))]
    places = [line for line in lines if PLACE.match(line)]
    shown = "\n".join(line[:WIDTH] for line in (marked[:LINES] + places[-PLACES:] if marked else lines[-LINES:]))
    return f"{case} {end}:\n{shown}\n"


def excused(section: str, found: Sequence[Case]) -> bool:
    """Whether nothing was wrong in a failed section but unsteady tests."""
    suite = SUITES.get(section, "")
    outcomes = {case.outcome for case in found if case.suite == suite}
    return exit_code(RESULTS, suite) == TESTS_FAILED and "unsteady" in outcomes and "failed" not in outcomes


def main(sections: Sequence[str]) -> None:
    found = list(cases(RESULTS))
    failed, unsteady = ([case for case in found if case.outcome == outcome] for outcome in ("failed", "unsteady"))
    broken = [section for section in sections if not excused(section, found)]
    for case in unsteady:
        print(described(case, "is unsteady: it passed twice alone. Put it into tests/unsteady.md. It had failed with"))
    for case in failed:
        print(described(case, "failed"))
    if left := sum(case.outcome == "skipped" and LEFT in case.text for case in found):
        print(f"tests {LEFT}, as CI's time was over: {left}")
    if unsteady:
        print(f"unsteady tests: {len(unsteady)}")
    if broken:
        print(f"failed sections: {' '.join(broken)}")
    passed = sum(case.outcome in GOOD for case in found)
    print(f"{passed} passed, {len(failed) + len(broken)} failed")
    sys.exit(bool(failed or broken) or not passed)


if __name__ == "__main__":
    main(sys.argv[1:])
