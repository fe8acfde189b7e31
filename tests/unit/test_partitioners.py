"""Partitioners: for each key the partition of the client that they imitate; a fair share of records without a key."""
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

from pyclient import partitioners
from pyclient.partitioners import (
    ConsistentPartitioner,
    ConsistentRandomPartitioner,
    ExplicitPartitioner,
    Fnv1aPartitioner,
    Murmur2Partitioner,
    Murmur3Partitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    fnv1a,
    murmur2,
    murmur2_partition,
)
from pyclient.plugin_loading import load_plugin
from pyclient.plugins import STICKY, Partitioner
from tests.data.partition_vectors import KEYS, answers

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "data" / "murmur2-4.3.1.bin"


class Topic:
    """Partitions as a partitioner sees them."""

    def __init__(self, count: int, available: list[int] | None = None) -> None:
        self.count = count
        self.available = list(range(count)) if available is None else available

    def __len__(self) -> int:
        return self.count


def load_twin(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_twin", Path(partitioners.__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TWIN = load_twin("murmur2")
FNV1A_TWIN = load_twin("fnv1a")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("murmur2", "partitions-java-murmur2.bin"), ("murmur2_random", "partitions-librdkafka-murmur2_random.bin"),
        ("consistent", "partitions-librdkafka-consistent.bin"), ("fnv1a", "partitions-sarama-hash.bin"),
        ("fnv1a", "partitions-librdkafka-fnv1a_random.bin"),
    ],
)
def test_P30_a_hash_partitioner_gives_12000_keys_the_partitions_of_the_client_it_imitates(name: str, file: str) -> None:
    partitioner: Partitioner = load_plugin("partitioner", name)
    expected = answers(file)
    assert len(expected) == len(KEYS) == 12_000
    assert {len(key) for key, _ in KEYS} >= set(range(190))
    assert {count for _, count in KEYS} == set(range(1, 1001))
    assert [partitioner.partition("t", key, None, Topic(count)) for key, count in KEYS] == expected


def test_consistent_random_is_consistent_but_for_empty_keys() -> None:
    expected = [None if key == b"" else there for (key, _), there in zip(KEYS, answers("partitions-librdkafka-consistent.bin"), strict=True)]
    chosen = [ConsistentRandomPartitioner().partition("t", key, None, Topic(count)) for key, count in KEYS]
    assert [None if each is STICKY else each for each in chosen] == expected


def test_murmur3_gives_12000_keys_the_partitions_of_mmh3s_hash() -> None:
    expected = [(mmh3.hash(key) & 0x7FFFFFFF) % count for key, count in KEYS]
    assert [Murmur3Partitioner().partition("t", key, None, Topic(count)) for key, count in KEYS] == expected


@pytest.mark.parametrize(
    ("partitioner", "null", "empty"),
    [
        (Murmur2Partitioner(), STICKY, murmur2(b"") % 2**31 % 7), (Murmur3Partitioner(), STICKY, 0), (ConsistentPartitioner(), 0, 0),
        (ConsistentRandomPartitioner(), STICKY, STICKY), (Fnv1aPartitioner(), STICKY, fnv1a(b"") % 7), (StickyPartitioner(), STICKY, STICKY),
    ],
    ids=lambda each: type(each).__name__,
)
def test_null_and_empty_keys_are_treated_as_by_the_client_it_imitates(partitioner: Partitioner, null: int, empty: int) -> None:
    """As librdkafka documents: consistent maps both to one partition, consistent_random draws one for both.

    The others draw one for null.
    """
    chosen = [partitioner.partition("t", key, b"", Topic(7)) for key in (None, b"")]
    assert chosen == [null, empty]
    assert [each is STICKY for each in chosen] == [null is STICKY, empty is STICKY]


def test_sticky_leaves_keyed_records_to_the_producer_too() -> None:
    assert StickyPartitioner().partition("t", b"key", b"value", Topic(3)) is STICKY


def test_explicit_refuses_a_record_that_names_no_partition_and_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"topic 't' names no partition, .* Nothing was queued\. Pass partition=0 to 5"):
        ExplicitPartitioner().partition("t", b"key", b"value", Topic(6))


@pytest.mark.parametrize("key", [b"", b"\x00", b"key", b"\xff" * 9])
def test_fnv1a_of_keys_whose_hash_is_negative_in_go_loses_the_sign(key: bytes) -> None:
    plain = 0x811C9DC5
    for byte in key:
        plain = (plain ^ byte) * 0x01000193 % 2**32
    assert fnv1a(key) == (2**32 - plain if plain > 2**31 else plain)


def test_the_same_hash_is_drawn_by_both_twins_of_fnv1a() -> None:
    assert [FNV1A_TWIN.fnv1a(key) for key, _ in KEYS[:3_000]] == [fnv1a(key) for key, _ in KEYS[:3_000]]
    assert {fnv1a(key) > 2**30 for key, _ in KEYS} == {True, False}


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
