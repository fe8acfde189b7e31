"""The user data and the state of sticky assignors: encoded as in Java, and harmless when damaged."""
from __future__ import annotations

import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.assignors import CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from pyclient.assignors.ownership import Claim
from pyclient.assignors.user_data import decode_generation, decode_previous, encode_generation, encode_previous
from pyclient.plugins import Assignment, SeesAssignment, SendsUserData
from pyclient.records import TopicPartition
from tests.unit.assignors.groups import cluster, partitions, wanting
from tests.unit.codec.test_consumer_protocol import Written, written

INT32: Final = st.integers(-(2**31), 2**31 - 1)
NOTHING: Final = Claim((), -1)


@pytest.mark.parametrize("java", [each for each in written("sticky") if each.generation >= 0])
def test_A13_sticky_sends_the_assignment_and_its_generation_as_java_does(java: Written) -> None:
    assignor = StickyAssignor()
    assignor.on_assignment(Assignment(java.partitions), java.generation)
    assert assignor.subscription_user_data(["t"]) == java.data
    claim = decode_previous(java.data)
    assert (sorted(claim.partitions), claim.generation) == (sorted(java.partitions), java.generation)


@pytest.mark.parametrize("java", [each for each in written("cooperative-sticky") if each.generation >= 0])
def test_A13_cooperative_sticky_sends_the_generation_as_java_does(java: Written) -> None:
    assignor = CooperativeStickyAssignor()
    assignor.on_assignment(Assignment(java.partitions), java.generation)
    assert assignor.subscription_user_data(["t"]) == java.data == encode_generation(java.generation)
    assert decode_generation(java.data) == java.generation


def test_A13_before_the_first_assignment_sticky_sends_nothing_and_cooperative_sticky_minus_one() -> None:
    before = {java.kind: java.data or None for java in written("sticky", "cooperative-sticky") if java.generation < 0}
    assert before == {"sticky": None, "cooperative-sticky": b"\xff\xff\xff\xff"}
    assert StickyAssignor().subscription_user_data(["t"]) is None
    assert CooperativeStickyAssignor().subscription_user_data(["t"]) == b"\xff\xff\xff\xff"


def test_A13_two_assignors_in_one_process_share_no_state() -> None:
    one, other = StickyAssignor(), StickyAssignor()
    one.on_assignment(Assignment(partitions("t-0")), 1)
    assert other.subscription_user_data(["t"]) is None
    first, second = CooperativeStickyAssignor(), CooperativeStickyAssignor()
    first.on_assignment(Assignment(()), 4)
    assert decode_generation(second.subscription_user_data(["t"])) == -1


def test_leading_a_group_does_not_change_the_user_data_of_the_own_member() -> None:
    for assignor in (StickyAssignor(), CooperativeStickyAssignor()):
        assignor.on_assignment(Assignment(partitions("t-0")), 1)
        before = assignor.subscription_user_data(["t"])
        assignor.assign(cluster({"t": 3}), {"a": wanting("t", had="t-1", generation=9), "b": wanting("t")})
        assert assignor.subscription_user_data(["t"]) == before


def test_range_and_roundrobin_have_no_user_data_and_no_state() -> None:
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        assert not isinstance(assignor, SendsUserData | SeesAssignment)


def test_user_data_of_the_older_version_has_no_generation() -> None:
    older = encode_previous(partitions("t-0 t-1"), 5)[:-4]
    assert decode_previous(older) == Claim(partitions("t-0 t-1"), -1)


@pytest.mark.parametrize("data", [None, b"", b"\0", struct.pack(">i", 2**31 - 1), struct.pack(">i", -1), struct.pack(">ih1si", 1, 1, b"t", 2**30), b"\xff" * 50])
def test_A14_user_data_that_cannot_be_decoded_counts_as_none(data: bytes | None) -> None:
    assert decode_previous(data) == NOTHING


def test_A14_truncated_user_data_counts_as_none_or_as_the_older_version() -> None:
    whole = encode_previous(partitions("t-0 t-1"), 5)
    for size in range(len(whole)):
        assert decode_previous(whole[:size]) in (NOTHING, Claim(partitions("t-0 t-1"), -1))


@pytest.mark.parametrize(("data", "generation"), [(None, -1), (b"", -1), (b"\0\0\5", -1), (b"\0\0\0\5", 5), (b"\0\0\0\5more", 5), (b"\xff" * 4, -1)])
def test_A14_a_generation_is_the_first_four_bytes_or_none(data: bytes | None, generation: int) -> None:
    assert decode_generation(data) == generation


@given(st.none() | st.binary(max_size=60))
def test_A14_any_user_data_is_decoded_or_counts_as_none(data: bytes | None) -> None:
    assert decode_previous(data).generation >= -(2**31)
    assert decode_generation(data) >= -(2**31)


def test_A14_cooperative_sticky_reads_the_field_before_any_user_data() -> None:
    """franz-go sends the user data of sticky with it, whose first four bytes would count as a generation."""
    assignor = CooperativeStickyAssignor()
    foreign = encode_previous(partitions("x-0 x-1"), 99)
    members = {
        "a": wanting("t", had="t-0", generation=5)._replace(user_data=foreign), "b": wanting("t", had="t-0", generation=6)._replace(user_data=b""),
    }
    answer = assignor.assign(cluster({"t": 1}), members)
    assert {member: each.partitions for member, each in answer.items()} == {"a": (), "b": partitions("t-0")}


@given(st.lists(st.builds(TopicPartition, st.text(max_size=8), INT32), unique=True, max_size=12), INT32)
def test_user_data_of_sticky_survives_the_round_trip(had: list[TopicPartition], generation: int) -> None:
    claim = decode_previous(encode_previous(had, generation))
    assert (sorted(claim.partitions), claim.generation) == (sorted(had), generation)
