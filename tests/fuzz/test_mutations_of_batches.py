"""Randomly damaged batches: read or refused, without a crash, in bounded memory."""
from __future__ import annotations

from tests.fuzz.programs import fuzzed


def test_random_mutations_of_every_fixture_are_read_or_refused_within_bounded_memory() -> None:
    report = fuzzed("mutate")
    assert report["rounds"] > 100
    assert report["read"] > 0 < report["refused"]  # both paths were taken
    # A batch may decompress to 4 MiB here; records, columns and the allocator's slack come on top.
    assert report["grown_mib"] <= 64
