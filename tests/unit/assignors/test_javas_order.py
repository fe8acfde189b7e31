"""Java's orders: hash codes and the order of a HashMap, as Java prints them."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.assignors.javas_order import bucket, hash_code, hash_order, members_in_hash_order, partition_hash, table_size, text_key
from pyclient.records import TopicPartition


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("Aa", 2112), ("BB", 2112), ("hello world", 1_794_106_052), ("polygenelubricants", 2**31), ("😀", 1_772_899)],
)
def test_the_hash_of_a_text_is_javas(text: str, expected: int) -> None:
    assert hash_code(text) == expected


def test_the_hash_of_a_partition_is_javas() -> None:
    assert partition_hash(TopicPartition("t", 0)) == 31 * 31 + ord("t")
    assert partition_hash(TopicPartition("t", -40)) == (31 * (31 - 40) + ord("t")) % 2**32


@pytest.mark.parametrize(("count", "size"), [(0, 16), (12, 16), (13, 32), (24, 32), (25, 64), (1_000, 2_048), (1_536, 2_048), (1_537, 4_096)])
def test_a_table_doubles_above_its_load_factor(count: int, size: int) -> None:
    assert table_size(count) == size


def test_the_upper_half_of_a_hash_counts_too() -> None:
    assert bucket(0x0003_0001, 16) == 2


def test_keys_of_one_bucket_keep_their_insertion_order() -> None:
    assert hash_order(["BB", "Aa", "a"], hash_code) == ["BB", "Aa", "a"]
    assert members_in_hash_order(["b", "BB", "a", "Aa"]) == ["Aa", "BB", "a", "b"]


@given(st.lists(st.text()))
def test_texts_sort_by_their_utf16_units(texts: list[str]) -> None:
    def units(text: str) -> list[int]:
        data = text.encode("utf-16-be", "surrogatepass")
        return [int.from_bytes(data[at:at + 2], "big") for at in range(0, len(data), 2)]

    assert sorted(texts, key=text_key) == sorted(texts, key=units)
