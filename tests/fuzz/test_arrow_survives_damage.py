"""Damaged Arrow data that is sent never crashes, and nothing but the data leaves the process."""
from __future__ import annotations

from tests.fuzz.programs import fuzzed


def test_random_damage_to_arrow_data_is_refused_and_no_other_memory_is_sent() -> None:
    report = fuzzed("damage_arrow")
    assert report["rounds"] > 100
    assert report["sent"] > 0 < report["refused"]  # both were seen
