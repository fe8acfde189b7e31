"""Prints where the model may differ from a real broker, as the closing lines of the conformance suite."""
from __future__ import annotations

import pytest

from tests.broker.conformance.allowed import lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any("test_conformance.py" in report.nodeid for report in terminalreporter.getreports("passed")):
        terminalreporter.section("where the fake cluster may differ from a real broker", sep="-")
        for line in lines():
            terminalreporter.write_line(line)
