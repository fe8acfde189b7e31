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
from pyclient.codec.record import Record
from pyclient.errors import CorruptRecordError

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


def described(batch: RecordBatch) -> list[dict[str, object]]:
    control = {"control_type": batch.control_type()} if batch.is_control else {}
    return [fields(record) | control for record in batch.records("t", 0)]


def test_every_fixture_file_has_its_expectation() -> None:
    files = {path.stem for path in FIXTURES.glob("*.bin")}
    assert {name for name in files if not name.startswith("legacy")} == set(EXPECTED)


@CASES
def test_the_header_of_a_batch_that_java_wrote_is_read_as_java_reads_it(name: str) -> None:
    for batch, expected in zip(read_batches(fixture(name)), EXPECTED[name], strict=True):
        for field, value in expected.items():
            if field != "records":
                assert getattr(batch, field) == value, field


@CASES
def test_the_records_of_a_batch_that_java_wrote_are_read_as_java_reads_them(name: str) -> None:
    for batch, expected in zip(read_batches(fixture(name)), EXPECTED[name], strict=True):
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


@pytest.mark.parametrize("name", ["legacy-magic-0", "legacy-magic-1"])
def test_message_formats_before_0_11_are_refused_by_their_number(name: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"message format is {name[-1]}, which Kafka stopped writing in 0.11"):
        read_batches(fixture(name))
