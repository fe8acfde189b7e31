"""What the JUnit files under build/junit say: each test case with its outcome, and how the run of a file ended."""
from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "build" / "junit"
UNSTEADY: Final = "unsteady.json"
"""In the folder of results: the cases that failed once and then passed twice, written by second_try.py."""
GOOD: Final = ("passed", "unsteady")
"""Outcomes of tests that are not broken."""
TESTS_FAILED: Final = 1
"""pytest's exit code when every test ran and some failed."""


class Case(NamedTuple):
    """One test with its parameters, in one file of results."""

    suite: str
    """The file's name without suffix: a test may run in two modes."""
    classname: str
    name: str
    outcome: str
    """``passed``, ``unsteady`` (failed, then passed twice), ``skipped``, or ``failed`` (an error of a fixture, too)."""
    text: str
    """Traceback of a failure, reason of a skip."""

    def __str__(self) -> str:
        return f"{self.classname}::{self.name}"

    @property
    def key(self) -> list[str]:
        """What identifies it in the list of unsteady cases."""
        return [self.suite, self.classname, self.name]


def cases(folder: Path) -> Iterator[Case]:
    """The cases of all files, after the second tries."""
    keys = unsteady(folder)
    for file in sorted(folder.glob("*.xml")):
        for case in cases_of(file):
            yield case._replace(outcome="unsteady") if case.key in keys else case


def cases_of(file: Path) -> Iterator[Case]:
    """The cases of one file, as they ran first."""
    for element in ET.parse(file).getroot().iter("testcase"):
        yield Case(file.stem, element.get("classname", ""), element.get("name", ""), *ended(element))


def ended(element: ET.Element) -> tuple[str, str]:
    for tag, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if (found := element.find(tag)) is not None:
            return outcome, (found.text if tag != "skipped" and found.text else found.get("message")) or ""
    return "passed", ""


def unsteady(folder: Path) -> list[list[str]]:
    """The keys of the unsteady cases."""
    file = folder / UNSTEADY
    return json.loads(file.read_text()) if file.exists() else []


def exit_code(folder: Path, suite: str) -> int | None:
    """The exit code of the run that wrote the file; None if it did not get so far. Written by tests/conftest.py."""
    file = folder / f"{suite}.exit"
    return int(file.read_text()) if file.exists() else None
