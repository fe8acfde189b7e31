"""Print why tests of a CI run failed, then its closing line, ``N passed, N failed``, and exit accordingly.

It reads every JUnit file. A test that ran in two modes (on this machine's broker, on containers) counts twice. Each
failed section counts as one failure of its own, so that a section which failed without any test failing cannot end in a
green line.
"""
from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).resolve().parent.parent / "build" / "junit"
LINES: Final = 12
"""Of a failure: a log that keeps only its end still says what was wrong."""
WIDTH: Final = 200


def reason(case: ET.Element) -> ET.Element | None:
    """The failure or error of a test, if it has one."""
    found = case.find("failure")
    return case.find("error") if found is None else found


def described(case: ET.Element, failure: ET.Element) -> str:
    """The name of a failed test, and the lines of its traceback that are marked as the error, or else the last ones."""
    lines = (failure.text or failure.get("message") or "").splitlines()
    marked = [line for line in lines if line.startswith(("E ", "E\t"))]
    shown = "\n".join(line[:WIDTH] for line in (marked[:LINES] or lines[-LINES:]))
    return f"{case.get('classname')}::{case.get('name')} failed:\n{shown}\n"


def main(arguments: Sequence[str]) -> None:
    cases = [case for file in sorted(RESULTS.glob("*.xml")) for case in ET.parse(file).getroot().iter("testcase")]
    reasons = [(case, failure) for case in cases if (failure := reason(case)) is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    for case, failure in reasons:
        print(described(case, failure))
    passed, failed = len(cases) - len(reasons) - skipped, len(reasons) + int(arguments[0])
    print(f"{passed} passed, {failed} failed")
    sys.exit(bool(failed) or not passed)


if __name__ == "__main__":
    main(sys.argv[1:])
