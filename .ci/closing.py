"""Print the closing line of a CI run, ``N passed, N failed``, over every JUnit file, and exit accordingly.

A test that ran in two modes (on this machine's broker, on containers) counts twice. Each failed section counts as one
failure of its own, so that a section which failed without any test failing cannot end in a green line.
"""
from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).resolve().parent.parent / "build" / "junit"


def counts(folder: Path) -> tuple[int, int]:
    """Tests passed and failed in all files of *folder*."""
    cases = [case for file in sorted(folder.glob("*.xml")) for case in ET.parse(file).getroot().iter("testcase")]
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    return len(cases) - failed - skipped, failed


def main(arguments: Sequence[str]) -> None:
    passed, failed = counts(RESULTS)
    failed += int(arguments[0])
    print(f"{passed} passed, {failed} failed")
    sys.exit(bool(failed) or not passed)


if __name__ == "__main__":
    main(sys.argv[1:])
