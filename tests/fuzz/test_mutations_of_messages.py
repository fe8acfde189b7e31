"""Randomly damaged responses: read or refused with ProtocolError, without a crash, in bounded memory."""
from __future__ import annotations

from tests.fuzz.programs import SECONDS, fuzzed


def test_M12_random_damage_to_responses_never_crashes_and_takes_no_growing_memory() -> None:
    report = fuzzed("damage_messages")
    assert report["rounds"] > 30 * SECONDS
    assert report["read"] > 0 < report["refused"]  # both were seen
    assert report["grown_mib"] < 32
