"""Partitioners: the same partition as Java's for every key, and fair ones for records without."""
from __future__ import annotations

import hashlib
import importlib.util
import struct
from collections import Counter
from pathlib import Path
from random import Random
from types import ModuleType

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.partitioners import (
    Murmur2Partitioner,
    Murmur3Partitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    murmur2,
    murmur2_partition,
)
from pyclient.plugins import STICKY

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "data" / "murmur2-4.3.1.bin"


class Topic:
    """Partitions as a partitioner sees them."""

    def __init__(self, count: int, available: list[int] | None = None) -> None:
        self.count = count
        self.available = list(range(count)) if available is None else available

    def __len__(self) -> int:
        return self.count


def load_twin() -> ModuleType:
    spec = importlib.util.spec_from_file_location("murmur2_twin", ROOT / "partitioners" / "murmur2.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TWIN = load_twin()


def test_P30_murmur2_is_javas_for_20000_keys_of_all_lengths() -> None:
    expected = [value for (value,) in struct.iter_unpack(">I", VECTORS.read_bytes())]
    keys = [hashlib.sha512(b"%d" % number).digest()[: number % 65] for number in range(len(expected))]
    assert len(expected) == 20_000
    assert [murmur2(key) for key in keys] == expected
    assert [TWIN.murmur2(key) for key in keys[:2_000]] == expected[:2_000]


@given(st.binary(max_size=200), st.integers(1, 2**31 - 1))
def test_the_compiled_module_and_its_python_twin_agree(key: bytes, partitions: int) -> None:
    assert murmur2(key) == TWIN.murmur2(key)
    assert 0 <= murmur2(key) < 2**32
    assert murmur2_partition(key, partitions) == TWIN.murmur2_partition(key, partitions)


@given(st.lists(st.sampled_from([0x00, 0x7F, 0x80, 0xFF]), max_size=40).map(bytes))
def test_bytes_above_127_hash_alike_in_both_twins(key: bytes) -> None:
    assert murmur2(key) == TWIN.murmur2(key)


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_without_partitions_is_refused(partitions: int) -> None:
    with pytest.raises(ValueError, match="at least 1 partition"):
        murmur2_partition(b"key", partitions)


@pytest.mark.parametrize("not_bytes", [None, "text", 3])
def test_a_key_that_is_not_bytes_is_a_type_error(not_bytes: object) -> None:
    with pytest.raises(TypeError):
        murmur2(not_bytes)  # type: ignore[arg-type]


@given(st.binary(), st.integers(1, 1000))
def test_P30_a_key_keeps_its_partition_whether_or_not_it_has_a_leader(key: bytes, count: int) -> None:
    choice = Murmur2Partitioner().partition("t", key, b"", Topic(count))
    assert choice == Murmur2Partitioner().partition("t", key, None, Topic(count, available=[]))
    assert choice == (murmur2(key) & 0x7FFFFFFF) % count


@given(st.binary(), st.integers(1, 1000))
def test_murmur3_is_mmh3s_32_bit_hash_without_its_sign(key: bytes, count: int) -> None:
    assert Murmur3Partitioner().partition("t", key, b"", Topic(count)) == (mmh3.hash(key) & 0x7FFFFFFF) % count


@pytest.mark.parametrize("partitioner", [Murmur2Partitioner(), Murmur3Partitioner()], ids=lambda each: type(each).__name__)
def test_hash_partitioners_leave_records_without_a_key_to_the_producer(
    partitioner: Murmur2Partitioner | Murmur3Partitioner,
) -> None:
    assert partitioner.partition("t", None, b"value", Topic(6)) == STICKY
    assert partitioner.partition("t", b"", b"value", Topic(6)) >= 0  # an empty key is a key


def test_round_robin_takes_each_partition_with_a_leader_in_turn_for_each_topic() -> None:
    partitioner = RoundRobinPartitioner()
    taken = [(partitioner.partition("a", None, b"", Topic(4, [0, 2, 3])), partitioner.partition("b", b"k", b"", Topic(2)))
             for _ in range(6)]
    assert taken == [(0, 0), (2, 1), (3, 0), (0, 1), (2, 0), (3, 1)]


@pytest.mark.parametrize("partitioner", [RoundRobinPartitioner(), RandomPartitioner()], ids=lambda each: type(each).__name__)
def test_P34_without_any_leader_all_partitions_are_candidates(partitioner: RoundRobinPartitioner | RandomPartitioner) -> None:
    taken = {partitioner.partition("t", None, b"", Topic(3, available=[])) for _ in range(200)}
    assert taken == {0, 1, 2}


def test_random_is_repeatable_with_a_given_generator_and_reaches_only_partitions_with_a_leader() -> None:
    def draw(seed: int) -> list[int]:
        partitioner = RandomPartitioner(Random(seed))
        return [partitioner.partition("t", b"same key", b"", Topic(9, [1, 4, 8])) for _ in range(3_000)]

    assert draw(1) == draw(1) != draw(2)
    counts = Counter(draw(1))
    assert set(counts) == {1, 4, 8}
    assert min(counts.values()) > 850
