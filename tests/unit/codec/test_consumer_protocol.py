"""Subscriptions and assignments: Java's bytes written and read, other versions read, damage refused."""
from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.consumer_protocol import decode_assignment, decode_subscription, encode_assignment, encode_subscription
from pyclient.errors import ProtocolError
from pyclient.plugins import Assignment, MemberView
from pyclient.records import NO_GENERATION, TopicPartition

FIXTURES: Final = Path(__file__).parents[2] / "data" / "consumer-protocol-4.3.1.txt"
NEWEST: Final = 3
INT32: Final = st.integers(-(2**31), 2**31 - 1)


class Written(NamedTuple):
    """A line of what Java wrote."""

    kind: str
    version: int
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]
    generation: int
    rack: str | None
    user_data: bytes | None
    data: bytes


def written(*kinds: str) -> Iterator[Written]:
    for line in FIXTURES.read_text("utf-8").splitlines():
        kind, version, topics, partitions, generation, rack, user_data, data = line.split("\t")
        if kind in kinds:
            pairs = (each.split(":") for each in _several(partitions))
            yield Written(
                kind, int(version), tuple(_several(topics)), tuple(TopicPartition(topic, int(number)) for topic, number in pairs),
                int(generation), None if rack == "-" else rack, _bytes(user_data), _bytes(data) or b"")


def _several(word: str) -> list[str]:
    return [] if word == "-" else word.split(",")


def _bytes(word: str) -> bytes | None:
    return None if word == "-" else bytes.fromhex(word[1:])


SUBSCRIPTIONS: Final = list(written("subscription"))
ASSIGNMENTS: Final = list(written("assignment"))


def test_the_fixtures_have_every_version_of_both() -> None:
    assert {each.version for each in SUBSCRIPTIONS} == {each.version for each in ASSIGNMENTS} == {0, 1, 2, 3}


@pytest.mark.parametrize("java", [each for each in SUBSCRIPTIONS if each.version == NEWEST])
def test_A10_a_subscription_has_the_bytes_that_java_writes(java: Written) -> None:
    member = MemberView(java.topics, java.partitions, java.generation, "not written", java.rack, java.user_data)
    assert encode_subscription(member) == java.data


@pytest.mark.parametrize("java", [each for each in ASSIGNMENTS if each.version == NEWEST])
def test_A10_an_assignment_has_the_bytes_that_java_writes(java: Written) -> None:
    assert encode_assignment(Assignment(java.partitions, java.user_data)) == java.data


@pytest.mark.parametrize("java", SUBSCRIPTIONS)
def test_A11_a_subscription_of_any_version_is_read(java: Written) -> None:
    read = decode_subscription(java.data, "i1")
    assert read == MemberView(
        tuple(sorted(java.topics)), tuple(sorted(java.partitions)) if java.version >= 1 else (),
        java.generation if java.version >= 2 else NO_GENERATION, "i1", java.rack if java.version >= 3 else None, java.user_data)
    assert decode_subscription(java.data).instance_id is None


@pytest.mark.parametrize("java", ASSIGNMENTS)
def test_A11_an_assignment_of_any_version_is_read(java: Written) -> None:
    read = decode_assignment(java.data)
    assert sorted(read.partitions) == sorted(java.partitions)
    assert read.user_data == java.user_data


@pytest.mark.parametrize("version", [4, 7, 2**15 - 1])
def test_A11_a_newer_version_is_read_as_the_newest_known_and_appended_fields_are_ignored(version: int) -> None:
    member = MemberView(("a", "b"), (TopicPartition("a", 1),), 5, None, "east", b"\0")
    newer = struct.pack(">h", version) + encode_subscription(member)[2:] + b"appended"
    assert decode_subscription(newer) == member
    assignment = Assignment((TopicPartition("a", 1), TopicPartition("b", 0)), b"mine")
    assert decode_assignment(struct.pack(">h", version) + encode_assignment(assignment)[2:] + b"appended") == assignment


def test_an_empty_rack_is_none_and_no_generation_is_below_minus_one() -> None:
    read = decode_subscription(encode_subscription(MemberView(("t",), generation=-7, rack="")))
    assert (read.generation, read.rack) == (NO_GENERATION, None)


@pytest.mark.parametrize("data", [b"", b"\0"])
def test_A12_fewer_bytes_than_a_version_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=rf"a member's subscription begins with a version of 2 B, but this one has only {len(data)} B"):
        decode_subscription(data)
    with pytest.raises(ProtocolError, match="a member's assignment begins with"):
        decode_assignment(data)


def test_A12_a_version_below_0_is_refused() -> None:
    for decode in (decode_subscription, decode_assignment):
        with pytest.raises(ProtocolError, match="has version -1; versions begin at 0"):
            decode(struct.pack(">h", -1) + bytes(100))


@pytest.mark.parametrize("java", [*SUBSCRIPTIONS, *ASSIGNMENTS])
def test_A12_every_truncation_is_rejected(java: Written) -> None:
    decode = decode_subscription if java.kind == "subscription" else decode_assignment
    for size in range(len(java.data)):
        with pytest.raises(ProtocolError):
            decode(java.data[:size])


@pytest.mark.parametrize("count", [2**31 - 1, 2**24, -1, -(2**31)])
def test_A12_a_hostile_count_is_refused_before_memory_is_taken_for_it(count: int) -> None:
    subscriptions = [
        struct.pack(">hi", 3, count),  # topics
        struct.pack(">hii", 3, 0, count if count != -1 else -2),  # user data; -1 is none
        struct.pack(">hiii", 3, 0, -1, count),  # owned topics
        struct.pack(">hiiih1si", 3, 0, -1, 1, 1, b"t", count),  # their partitions
    ]
    assignments = [
        struct.pack(">hi", 3, count),  # topics
        struct.pack(">hih1si", 3, 1, 1, b"t", count),  # their partitions
        struct.pack(">hii", 3, 0, count if count != -1 else -2),  # user data
    ]
    tracemalloc.start()
    for decode, several in ((decode_subscription, subscriptions), (decode_assignment, assignments)):
        for data in several:
            with pytest.raises(ProtocolError):
                decode(data)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@given(st.binary(max_size=80), st.integers(0, 4))
def test_A12_any_bytes_are_read_or_refused(data: bytes, version: int) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            read = decode(struct.pack(">h", version) + data)
        except ProtocolError:
            continue
        assert isinstance(read, (MemberView, Assignment))


names = st.text(st.characters(codec="utf-8").filter(str.isprintable), min_size=1, max_size=12)
owned = st.lists(st.builds(TopicPartition, names, INT32), max_size=12).map(tuple)


@given(st.lists(names).map(tuple), owned, INT32, st.none() | names, st.none() | st.binary())
def test_a_subscription_survives_the_round_trip(
    topics: tuple[str, ...], partitions: tuple[TopicPartition, ...], generation: int, rack: str | None, user_data: bytes | None,
) -> None:
    read = decode_subscription(encode_subscription(MemberView(topics, partitions, generation, None, rack, user_data)))
    assert read == MemberView(tuple(sorted(topics)), tuple(sorted(partitions)), max(-1, generation), None, rack, user_data)
    back = decode_assignment(encode_assignment(Assignment(partitions, user_data)))
    assert (sorted(back.partitions), back.user_data) == (sorted(partitions), user_data)


def test_a_value_that_does_not_fit_its_field_is_named() -> None:
    with pytest.raises(ValueError, match="generation_id is 2147483648"):
        encode_subscription(MemberView(("t",), generation=2**31))
