"""The hash and the last lines of a run."""
from __future__ import annotations

import hashlib

import pytest

from pyclient.testing.simulation.journal import AT_ONCE, Journal


def _noted(lines: int, *, asked_after: int = -1) -> Journal:
    journal = Journal(lambda: journal.lines // 3 / 10)
    for number in range(lines):
        journal.note("who", f"what {number}")
        if number == asked_after:
            assert journal.digest
    return journal


@pytest.mark.parametrize("lines", [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE + 7])
def test_the_digest_is_that_of_all_lines_whenever_it_is_asked_for(lines: int) -> None:
    """However many lines are taken at once, and though the time is spelled out once for several."""
    text = "".join(f"{number // 3 / 10!r} who what {number}\n" for number in range(lines))
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert (_noted(lines).digest, _noted(lines, asked_after=lines // 2).digest) == (expected, expected)


def test_the_timeline_ends_with_the_last_line() -> None:
    """Also while it is not hashed yet."""
    assert _noted(5).timeline(2).splitlines() == ["     0.1000  who            what 3", "     0.1000  who            what 4"]
