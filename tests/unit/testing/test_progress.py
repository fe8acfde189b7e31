from __future__ import annotations

import io

from pyclient.testing.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, steps: int) -> str:
    progress = Progress("Getting it", steps, stream)
    progress.start()
    for _ in range(steps):
        progress.step(500_000)
    return stream.getvalue()


def test_a_terminal_sees_one_line_that_changes() -> None:
    text = shown(Terminal(), 4)
    assert text.count("\n") == 1
    assert text.endswith("\r\x1b[KGetting it: 4 of 4, 2.0 MB\n")


def test_elsewhere_quick_work_takes_two_lines() -> None:
    assert shown(io.StringIO(), 90).splitlines() == ["Getting it …", "Getting it: 90 of 90, 45.0 MB"]
