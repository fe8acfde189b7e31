"""Arrow data with damaged offsets, lengths and indices, and data that changes while it is sent: all is refused."""
from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

import pyarrow
import pytest

from tests.unit.buffers.accumulators import Clock, accumulator
from tests.unit.codec.hostile_arrow import (
    HUGE, LONG, PAIR, PAIRS, WORDS, Made, Writable, cases, of_bytes, of_header_parts, of_headers, of_partitions, outcomes)

CASES: Final = [name for name, _ in cases()]
OURS: Final = {word.decode() for word in [*WORDS, *LONG]}
LISTS: Final = {(pair["key"], pair["value"].decode()) for pairs in PAIRS for pair in pairs}


@pytest.fixture(scope="module")
def results() -> dict[str, list[Any]]:
    """By case: as a whole, two rows at a time, by the compiled path, as lists."""
    done = subprocess.run([sys.executable, "-m", "tests.unit.codec.hostile_arrow"], capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, list[Any]] = {}
    for line in done.stdout.splitlines():
        name, _, result = json.loads(line)
        found.setdefault(name, []).append(result)
    return found


def is_refused(result: Any) -> bool:
    return isinstance(result, str) and "is damaged" in result


def is_ours(row: Any) -> bool:
    value, key, headers = row
    return value in OURS and (key is None or key in OURS) and all(tuple(pair) in LISTS for pair in headers)


@pytest.mark.parametrize("name", CASES)
def test_damaged_data_is_refused_and_no_other_memory_is_sent(results: dict[str, list[Any]], name: str) -> None:
    *columns, lists = results[name]
    for result in columns:
        rows = [result] if isinstance(result, str) else result
        assert any(map(is_refused, rows))
        assert all(is_refused(row) or is_ours(row) for row in rows)
    assert is_refused(lists)


@pytest.mark.parametrize("kind", [pyarrow.binary(), pyarrow.large_binary()], ids=str)
@pytest.mark.parametrize("number", [-1, HUGE])
def test_offsets_that_change_while_a_bulk_is_sent_are_compared_when_they_are_read(kind: Any, number: int) -> None:
    refused = changed(of_bytes("value", kind, 3, number), change_at=2)
    assert [is_refused(row) for row in refused] == [False, False, True, True, False]


@pytest.mark.parametrize(("made", "rows"), [
    (of_headers(3, HUGE), [2, 3]), (of_headers(3, -1), [2, 3]), (of_header_parts("key", 5, HUGE), [2]),
    (of_header_parts("value", 5, -HUGE), [2])], ids=["after", "before", "names", "values"])
def test_headers_that_change_while_a_bulk_is_sent_are_compared_when_they_are_read(made: Made, rows: list[int]) -> None:
    refused = changed(made, change_at=2)
    assert [at for at, row in enumerate(refused) if is_refused(row)] == rows


@pytest.mark.parametrize("number", [-1, 1, HUGE])
def test_partitions_that_change_while_a_bulk_is_sent_are_compared_when_they_are_read(number: int) -> None:
    refused = changed(of_partitions(number, pyarrow.int64()), change_at=2)
    assert [isinstance(row, str) for row in refused] == [False, False, True, False, False]
    assert f"topic orders has 1 partitions, numbered from 0; there is no {number}" in refused[2]


@pytest.mark.parametrize("number", [-1, 1, HUGE, -HUGE])
@pytest.mark.parametrize("kind", [pyarrow.int32(), pyarrow.int64()], ids=str)
def test_a_partition_that_its_topic_does_not_have_refuses_its_row_alone(kind: Any, number: int) -> None:
    data, change = of_partitions(number, kind)
    change()
    refused = outcomes(data.batch, accumulator(Clock(), memory=8_000_000, partitions=1))
    assert [isinstance(row, str) for row in refused] == [False, False, True, False, False]


def changed(made: Made, change_at: int) -> list[Any]:
    """Send two rows at a time, and damage the data before the second chunk."""
    data, change = made
    chunks = iter(range(0, 5, 2))

    def before_chunk() -> None:
        if next(chunks) == change_at:
            change()

    return outcomes(data.batch, accumulator(Clock(), memory=8_000_000, partitions=1), chunk=2, before_chunk=before_chunk)


def test_lists_of_headers_that_overlap_do_not_write_past_their_memory() -> None:
    pairs = [[{"key": "h", "value": b"x" * 1000}] * 2] * 5
    data = Writable({"value": WORDS, "headers": pyarrow.array(pairs, pyarrow.list_(PAIR))})
    offsets = data.numbers(data.column("headers"))
    offsets[1], offsets[2], offsets[3] = 10, 0, 10  # the first and the third list have all ten headers
    refused = outcomes(data.batch, accumulator(Clock(), memory=8_000_000, partitions=1))
    assert "the lists of its headers overlap" in refused[2]
    assert [is_refused(row) for row in refused] == [False, True, True, True, True]


def test_a_stream_that_is_not_pyarrows_is_compared_too() -> None:
    class Stream:
        schema = pyarrow.schema([("value", pyarrow.binary())])

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            table: Any = pyarrow.Table.from_batches([data.batch])
            return table.__arrow_c_stream__(requested_schema)

    data, change = of_bytes("value", pyarrow.binary(), 2, 900_000)
    change()
    refused = outcomes(Stream(), accumulator(Clock(), memory=8_000_000, partitions=1))
    assert [is_refused(row) for row in refused] == [False, True, True, False, False]
