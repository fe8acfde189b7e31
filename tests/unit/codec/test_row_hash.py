"""Rows of Arrow columns as numbers: their shares by XXH64, their digests by all that they hold."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow
import pytest
from hypothesis import given, strategies as st

from pyclient.codec.arrow_columns import Column
from pyclient.codec.arrow_input import digest
from pyclient.codec.row_hash import digest_rows

HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
KINDS = {"key": pyarrow.binary(), "value": pyarrow.binary(), "topic": pyarrow.string(), "partition": pyarrow.int32(),
         "timestamp": pyarrow.timestamp("us", tz="UTC"), "headers": HEADERS}
ROW: dict[str, Any] = {"key": b"k", "value": b"v", "topic": "t", "partition": 1, "timestamp": 7, "headers": [{"key": "h", "value": b"w"}]}
WHOLE = 2**62
"""So many shares that a share is the hash itself, but for two bits."""
ONE, TWO, THREE, FOUR, FIVE = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MASK = 2**64 - 1


def batch(*rows: Mapping[str, Any]) -> Any:
    """Rows that all have the same columns."""
    return pyarrow.RecordBatch.from_pydict({name: pyarrow.array([row[name] for row in rows], KINDS[name]) for name in rows[0]})


def turned(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & MASK


def mixed(state: int, word: int) -> int:
    return turned((state + word * TWO) & MASK, 31) * ONE & MASK


def xxh64(data: bytes, seed: int = 42) -> int:
    """As its specification has it."""
    at = len(data) // 32 * 32
    lanes = [(seed + ONE + TWO) & MASK, (seed + TWO) & MASK, seed, (seed - ONE) & MASK]
    for start in range(0, at, 8):
        lanes[start // 8 % 4] = mixed(lanes[start // 8 % 4], int.from_bytes(data[start:start + 8], "little"))
    state = (seed + FIVE) & MASK
    if at:
        state = sum(map(turned, lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            state = ((state ^ mixed(0, lane)) * ONE + FOUR) & MASK
    state = (state + len(data)) & MASK
    while at + 8 <= len(data):
        state = (turned(state ^ mixed(0, int.from_bytes(data[at:at + 8], "little")), 27) * ONE + FOUR) & MASK
        at += 8
    if at + 4 <= len(data):
        state = (turned(state ^ int.from_bytes(data[at:at + 4], "little") * ONE & MASK, 23) * TWO + THREE) & MASK
        at += 4
    for byte in data[at:]:
        state = turned(state ^ byte * FIVE & MASK, 11) * ONE & MASK
    state = (state ^ state >> 33) * TWO & MASK
    state = (state ^ state >> 29) * THREE & MASK
    return state ^ state >> 32


def signed(number: int) -> int:
    return number - 2**64 if number >> 63 else number


def test_the_specification_here_has_its_known_values() -> None:
    assert (xxh64(b"", 0), xxh64(b"abc", 0)) == (0xEF46DB3751D8E999, 0x44BC2CF5AD770999)


@given(st.binary(max_size=100), st.integers(1, 2**62))
def test_a_share_is_the_keys_hash_with_the_seed_of_spark(key: bytes, shares: int) -> None:
    [low, high] = digest(batch({**ROW, "key": key}), shares)[1:]
    assert low == high == signed(xxh64(key)) % shares


@given(st.none() | st.binary(max_size=40))
def test_without_a_key_it_is_the_values(value: bytes | None) -> None:
    wanted = (42 if value is None else signed(xxh64(value))) % WHOLE
    for row in ({"key": None, "value": value}, {"value": value}):
        assert digest(batch(row), WHOLE)[1:] == (wanted, wanted)


def test_the_lowest_and_highest_share_of_a_batch_are_found() -> None:
    rows = [{"key": b"%d" % number, "value": b""} for number in range(20)]
    each = [digest(batch(row), 1000)[1] for row in rows]
    assert digest(batch(*rows), 1000)[1:] == (min(each), max(each))


def test_no_row_belongs_to_no_share() -> None:
    assert digest(batch(ROW).slice(0, 0), 8) == (0, 8, -1)


@given(st.permutations(range(9)), st.integers(0, 9))
def test_the_digest_is_the_same_in_any_order_and_in_any_batches(order: list[int], cut: int) -> None:
    rows = [{**ROW, "key": b"%d" % (number % 3), "timestamp": number} for number in range(9)]
    mixed_up = batch(*(rows[at] for at in order))
    parts = [digest(part, 8)[0] for part in (mixed_up.slice(0, cut), mixed_up.slice(cut))]
    assert sum(parts) & MASK == digest(batch(*rows), 8)[0]


@pytest.mark.parametrize("other", [
    {"key": None}, {"key": b""}, {"key": b"kv", "value": b""}, {"value": None}, {"value": b""}, {"value": b"V"}, {"topic": None}, {"topic": "T"},
    {"partition": None}, {"partition": 0}, {"timestamp": None}, {"timestamp": 8}, {"headers": None}, {"headers": [{"key": "h", "value": None}]},
    {"headers": [{"key": "h", "value": b""}]}, {"headers": [{"key": "hw", "value": b""}]}, {"headers": ROW["headers"] * 2}], ids=str)
def test_whatever_differs_in_a_row_changes_the_digest(other: dict[str, Any]) -> None:
    assert digest(batch({**ROW, **other}), 8)[0] != digest(batch(ROW), 8)[0]


def test_bytes_count_with_the_column_they_are_in() -> None:
    assert digest(batch({"key": b"a", "value": None}), 8)[0] != digest(batch({"key": None, "value": b"a"}), 8)[0]


def test_no_headers_are_the_same_as_null() -> None:
    assert digest(batch({**ROW, "headers": []}), 8) == digest(batch({**ROW, "headers": None}), 8)


def test_text_counts_as_its_bytes() -> None:
    text = pyarrow.RecordBatch.from_pydict({"key": ["ä"], "value": pyarrow.array(["ö"], pyarrow.large_string())})
    assert digest(text, 8) == digest(batch({"key": "ä".encode(), "value": "ö".encode()}), 8)


@pytest.mark.parametrize("place", ["key", "value", "other"])
def test_offsets_beyond_a_column_are_refused(place: str) -> None:
    offsets, data = (pyarrow.py_buffer(each) for each in (bytes(4) + (99).to_bytes(4, "little"), b"ab"))
    column = Column((offsets, data), 1, 0, 0, offsets.address, data.address, high=2)
    columns = {name: column if name == place else None for name in ("key", "value")}
    with pytest.raises(ValueError, match="the offsets of its keys, values or topics"):
        digest_rows(1, 8, columns["key"], columns["value"], (column,) if place == "other" else (), None)
