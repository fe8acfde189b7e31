"""Damaged Avro data and damaged Arrow structs never crash the compiled reader and writer."""
from __future__ import annotations

from tests.fuzz.programs import fuzzed


def test_random_damage_to_avro_columns_is_refused_as_for_single_records_and_no_other_memory_is_written() -> None:
    report = fuzzed("damage_avro")
    assert report["rounds"] > 100
    assert min(report.values()) > 0  # all were seen
