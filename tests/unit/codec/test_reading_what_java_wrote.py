"""Batches written by Java's `MemoryRecordsBuilder` decode to what Java's own reader says of them (tests/fixtures)."""
from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from pyclient.codec.batches import RecordBatch, read_batches
from pyclient.codec.columns import to_arrow
from pyclient.records.record import Record

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "batches"
EXPECTED: dict[str, list[dict[str, Any]]] = json.loads((FIXTURES / "expected.json").read_text())
CASES = pytest.mark.parametrize("name", EXPECTED)


def fixture(name: str) -> bytes:
    return (FIXTURES / f"{name}.bin").read_bytes()


def shown(content: bytes | None) -> str | None:
    """Bytes as the generator writes them."""
    if content is None or len(content) <= 256:
        return None if content is None else content.hex()
    return "sha256:" + hashlib.sha256(content).hexdigest()


def fields(record: Record) -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [[name, shown(value)] for name, value in record.headers],
    }


def opened(name: str) -> list[RecordBatch]:
    """The batches; before one of an old format is opened, it does not know its first offset."""
    batches = read_batches(fixture(name))
    for batch in batches:
        batch.open()
    return batches


def together(expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Uncompressed messages of the formats 0 and 1, which Java takes for a batch each, are one here."""
    if expected[0]["count"] is not None:
        return expected
    records = [record for batch in expected for record in batch["records"]]
    ends = {field: expected[-1][field] for field in ("last_offset", "next_offset")}
    sums = {"size": sum(batch["size"] for batch in expected), "count": len(records), "records": records,
            "max_timestamp": max(batch["max_timestamp"] for batch in expected)}
    return [expected[0] | ends | sums]


def described(batch: RecordBatch) -> list[dict[str, object]]:
    control = {"control_type": batch.control_type()} if batch.is_control else {}
    return [fields(record) | control for record in batch.records("t", 0)]


def test_every_fixture_file_has_its_expectation() -> None:
    files = {path.stem for path in FIXTURES.glob("*.bin")}
    assert files == set(EXPECTED)


@CASES
def test_the_header_of_a_batch_that_java_wrote_is_read_as_java_reads_it(name: str) -> None:
    for batch, expected in zip(opened(name), together(EXPECTED[name]), strict=True):
        for field, value in expected.items():
            if field != "records":
                assert getattr(batch, field) == value, field


@CASES
def test_the_records_of_a_batch_that_java_wrote_are_read_as_java_reads_them(name: str) -> None:
    for batch, expected in zip(read_batches(fixture(name)), together(EXPECTED[name]), strict=True):
        assert described(batch) == expected["records"]


@CASES
def test_arrow_columns_of_a_batch_that_java_wrote_hold_the_same_records(name: str) -> None:
    batches = read_batches(fixture(name))
    table = to_arrow([("t", 0, batch, 0, None) for batch in batches])
    table.validate(full=True)
    expected = [record for batch in EXPECTED[name] for record in batch["records"]]
    assert table.column("offset").to_pylist() == [record["offset"] for record in expected]
    assert table.column("timestamp").cast(pyarrow.int64()).to_pylist() == [record["timestamp"] for record in expected]
    assert [shown(key) for key in table.column("key").to_pylist()] == [record["key"] for record in expected]
    assert [shown(value) for value in table.column("value").to_pylist()] == [record["value"] for record in expected]
    headers = [[[pair["key"], shown(pair["value"])] for pair in pairs or ()] for pairs in table.column("headers").to_pylist()]
    assert headers == [record["headers"] for record in expected]
