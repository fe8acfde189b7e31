"""Memory that changes while it is sent, and damaged structures of the C stream interface: sent whole, or refused."""
from __future__ import annotations

from tests.fuzz.programs import fuzzed


def test_changing_buffers_and_damaged_structures_are_sent_whole_or_refused() -> None:
    report = fuzzed("damage_buffers")
    assert report["rounds"] > 100
    assert report["sent"] > 0 < report["refused"]  # both were seen
