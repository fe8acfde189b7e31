"""Assignments of groups small enough to be checked by hand."""
from __future__ import annotations

import pytest

from pyclient.assignors.javas_order import members_in_hash_order
from pyclient.records import TopicPartition
from tests.unit.assignors.groups import ASSIGNORS, STICKY, Group, assign, cluster, loads, numbers, shared, wanting

THREADS = ("C1-0", "C2-0", "C2-1")
FOUR_THREADS = ("C1-0", "C1-1", "C2-0", "C2-1")


def test_range_gives_ten_partitions_to_three_threads_as_four_three_and_three() -> None:
    assert numbers("range", {"t": 10}, *THREADS) == {"C1-0": {0, 1, 2, 3}, "C2-0": {4, 5, 6}, "C2-1": {7, 8, 9}}


def test_range_gives_eleven_partitions_to_three_threads_as_four_four_and_three() -> None:
    assert numbers("range", {"t": 11}, *THREADS) == {"C1-0": {0, 1, 2, 3}, "C2-0": {4, 5, 6, 7}, "C2-1": {8, 9, 10}}


def test_range_overloads_the_first_of_three_threads_by_two_when_there_are_two_topics_of_ten() -> None:
    given = shared("range", {"t1": 10, "t2": 10}, {name: wanting("t1", "t2") for name in THREADS})
    assert {name: len(each.split()) for name, each in given.items()} == {"C1-0": 8, "C2-0": 6, "C2-1": 6}
    assert given["C1-0"] == "t1-0 t1-1 t1-2 t1-3 t2-0 t2-1 t2-2 t2-3"


def test_roundrobin_gives_ten_partitions_to_four_threads_in_turn() -> None:
    assert numbers("roundrobin", {"t": 10}, *FOUR_THREADS) == {"C1-0": {0, 4, 8}, "C1-1": {1, 5, 9}, "C2-0": {2, 6}, "C2-1": {3, 7}}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_of_four_members_one_is_idle_when_there_are_three_partitions(name: str) -> None:
    assert sorted(map(len, numbers(name, {"t": 3}, *"abcd").values())) == [0, 1, 1, 1]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_group_of_four_takes_one_of_four_partitions_each_and_a_group_of_two_takes_two(name: str) -> None:
    assert sorted(map(len, numbers(name, {"t": 4}, *"abcd").values())) == [1, 1, 1, 1]
    assert sorted(map(len, numbers(name, {"t": 4}, *"ab").values())) == [2, 2]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_single_member_gets_everything(name: str) -> None:
    assert shared(name, {"a": 2, "b": 1}, {"m": wanting("a", "b")}) == {"m": "a-0 a-1 b-0"}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("topics", [(), ("absent",), ("empty",)])
def test_a_member_without_existing_topics_gets_nothing(name: str, topics: tuple[str, ...]) -> None:
    assert shared(name, {"t": 2, "empty": 0}, {"m": wanting(*topics), "n": wanting("t")}) == {"m": "", "n": "t-0 t-1"}
    assert shared(name, {"t": 2, "empty": 0}, {"m": wanting(*topics)}) == {"m": ""}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_group_without_members_gets_nothing(name: str) -> None:
    assert shared(name, {"t": 2}, {}) == {}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_topic_that_is_named_twice_counts_once(name: str) -> None:
    given = shared(name, {"t": 5}, {"a": wanting("t", "t"), "b": wanting("t")})
    assert {member: len(each.split()) for member, each in given.items()} == {"a": 3, "b": 2}


# --- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_come_first_by_their_instance_ids(name: str) -> None:
    members = {"a": wanting("t"), "x": wanting("t", instance_id="i2"), "b": wanting("t"), "y": wanting("t", instance_id="i1")}
    assert shared(name, {"t": 4}, members) == {"y": "t-0", "x": "t-1", "a": "t-2", "b": "t-3"}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_members_are_sorted_by_utf16_units_as_in_java(name: str) -> None:
    """The smiley is two surrogates, which come before the full-width tilde."""
    assert shared(name, {"t": 2}, {"\uff5e": wanting("t"), "😀": wanting("t")}) == {"😀": "t-0", "\uff5e": "t-1"}


def test_roundrobin_skips_members_that_do_not_subscribe_to_the_topic() -> None:
    members = {"c0": wanting("t0"), "c1": wanting("t0", "t1"), "c2": wanting("t0", "t1", "t2")}
    assert shared("roundrobin", {"t0": 1, "t1": 2, "t2": 3}, members) == {"c0": "t0-0", "c1": "t1-0", "c2": "t1-1 t2-0 t2-1 t2-2"}


# --- stickiness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STICKY)
def test_members_that_stay_keep_their_partitions_and_get_those_of_the_one_that_left(name: str) -> None:
    members = {"a": wanting("t", had="t-0 t-3", generation=1), "c": wanting("t", had="t-2 t-5", generation=1)}
    assert shared(name, {"t": 6}, members) == {"a": "t-0 t-1 t-3", "c": "t-2 t-4 t-5"}


def test_sticky_moves_partitions_to_a_new_member_at_once_and_cooperative_sticky_after_they_were_revoked() -> None:
    members = {"a": wanting("t", had="t-0 t-1 t-2", generation=1), "b": wanting("t", had="t-3 t-4 t-5", generation=1), "c": wanting("t")}
    assert shared("sticky", {"t": 6}, members) == {"a": "t-0 t-1", "b": "t-3 t-4", "c": "t-2 t-5"}
    assert shared("cooperative-sticky", {"t": 6}, members) == {"a": "t-0 t-1", "b": "t-3 t-4", "c": ""}
    given_up = {"a": wanting("t", had="t-0 t-1", generation=2), "b": wanting("t", had="t-3 t-4", generation=2), "c": wanting("t", generation=2)}
    assert shared("cooperative-sticky", {"t": 6}, given_up) == {"a": "t-0 t-1", "b": "t-3 t-4", "c": "t-2 t-5"}


@pytest.mark.parametrize("name", STICKY)
def test_a_member_keeps_its_lowest_numbers_of_all_topics(name: str) -> None:
    members = {"a": wanting("x", "y", had="x-0 x-1 x-2 y-0 y-1 y-2", generation=1), "b": wanting("x", "y")}
    assert shared(name, {"x": 3, "y": 3}, members)["a"] == "x-0 x-1 y-0"


def test_of_several_members_that_could_keep_one_more_the_first_in_javas_hash_map_does() -> None:
    """Of seven partitions two of three members have two, and one has three. "p" is in bucket 0 of 16, "a" in bucket 1.
    """
    assert members_in_hash_order(["a", "p"]) == ["p", "a"]
    members = {"a": wanting("t", had="t-0 t-1 t-2", generation=1), "p": wanting("t", had="t-3 t-4 t-5", generation=1), "c": wanting("t")}
    assert shared("sticky", {"t": 7}, members) == {"a": "t-0 t-1", "p": "t-3 t-4 t-5", "c": "t-2 t-6"}


@pytest.mark.parametrize("name", STICKY)
def test_unequal_subscriptions_are_balanced_as_far_as_possible(name: str) -> None:
    members = {"a": wanting("x"), "b": wanting("x", "y"), "c": wanting("y")}
    assert loads(assign(name, Group(cluster({"x": 3, "y": 3}), members))) == {"a": 2, "b": 2, "c": 2}


# --- conflicting claims ----------------------------------------------------------------------------------------------


def test_a_partition_claimed_by_two_members_in_one_generation_belongs_to_neither() -> None:
    members = {"a": wanting("t", had="t-0 t-1", generation=5), "b": wanting("t", had="t-1 t-2 t-3", generation=5)}
    assert shared("sticky", {"t": 4}, members) == {"a": "t-0 t-1", "b": "t-2 t-3"}
    assert shared("cooperative-sticky", {"t": 4}, members) == {"a": "t-0", "b": "t-2 t-3"}, "both claim t-1: it stays unassigned"


@pytest.mark.parametrize("name", STICKY)
@pytest.mark.parametrize("newer", ["a", "b"])
def test_of_claims_in_two_generations_the_newer_one_counts(name: str, newer: str) -> None:
    members = {member: wanting("t", had="t-0", generation=6 if member == newer else 5) for member in "ab"}
    given = shared(name, {"t": 2}, members)
    assert given[newer] == "t-0"
    assert given["b" if newer == "a" else "a"] == "t-1"


@pytest.mark.parametrize("name", STICKY)
def test_a_partition_claimed_twice_by_one_member_is_kept(name: str) -> None:
    members = {"a": wanting("t", had="t-1 t-1", generation=5), "b": wanting("t", had="t-0", generation=5)}
    assert shared(name, {"t": 2}, members) == {"a": "t-1", "b": "t-0"}


@pytest.mark.parametrize("name", STICKY)
def test_a_claim_of_a_partition_that_does_not_exist_is_ignored(name: str) -> None:
    members = {"a": wanting("t", had="t-0 t-9 t--1 u-0", generation=5), "b": wanting("t", had="t-1", generation=5)}
    assert shared(name, {"t": 4}, members) == {"a": "t-0 t-2", "b": "t-1 t-3"}


def test_a_partition_moves_back_to_its_owner_of_an_earlier_generation_rather_than_to_the_least_loaded_member() -> None:
    members = {
        "a": wanting("t", had="t-0 t-1 t-2 t-3 t-4 t-5", generation=5), "b": wanting("t"), "c": wanting("t", "u", had="t-1", generation=4),
    }
    assert shared("sticky", {"t": 6, "u": 1}, members) == {"a": "t-3 t-4 t-5", "b": "t-0 t-2", "c": "t-1 u-0"}


def test_a_claim_before_version_2_has_the_generation_of_the_user_data() -> None:
    """Two members without a generation in their subscriptions; cooperative-sticky reads it from the first four bytes.
    """
    old = {member: wanting("t", had="t-0")._replace(generation=-1, user_data=(5 + (member == "b")).to_bytes(4, "big")) for member in "ab"}
    assert shared("cooperative-sticky", {"t": 2}, old) == {"a": "t-1", "b": "t-0"}


# --- racks -----------------------------------------------------------------------------------------------------------

NEAR = {TopicPartition("t", number): [rack] for number, rack in enumerate(["east", "west", "east", "west"])}


@pytest.mark.parametrize("name", ["range", *STICKY])
def test_members_get_partitions_in_their_rack_if_the_assignment_stays_balanced(name: str) -> None:
    members = {"a": wanting("t", rack="west"), "b": wanting("t", rack="east")}
    assert shared(name, {"t": 4}, members, NEAR) == {"a": "t-1 t-3", "b": "t-0 t-2"}


@pytest.mark.parametrize("name", ["range", *STICKY])
def test_racks_do_not_unbalance_the_assignment(name: str) -> None:
    members = {"a": wanting("t", rack="east"), "b": wanting("t", rack="east"), "c": wanting("t", rack="west")}
    everything_east = {TopicPartition("t", number): ["east"] for number in range(5)} | {TopicPartition("t", 5): ["west"]}
    given = shared(name, {"t": 6}, members, everything_east)
    assert {member: len(each.split()) for member, each in given.items()} == {"a": 2, "b": 2, "c": 2}
    assert "t-5" in given["c"]


def test_range_keeps_topics_co_partitioned_in_spite_of_racks() -> None:
    racks = {TopicPartition(topic, number): [rack] for topic, all_racks in {"x": ["east", "west"], "y": ["east", "west"]}.items() for number, rack in enumerate(all_racks)}
    members = {"a": wanting("x", "y", rack="west"), "b": wanting("x", "y", rack="east")}
    assert shared("range", {"x": 2, "y": 2}, members, racks) == {"a": "x-1 y-1", "b": "x-0 y-0"}
    racks[TopicPartition("y", 0)], racks[TopicPartition("y", 1)] = ["west"], ["east"]
    assert shared("range", {"x": 2, "y": 2}, members, racks) == {"a": "x-0 y-0", "b": "x-1 y-1"}, "no number has both partitions in the rack of a member"


@pytest.mark.parametrize("name", ["range", *STICKY])
def test_racks_do_not_count_if_every_partition_is_in_all_of_them(name: str) -> None:
    everywhere = {TopicPartition("t", number): ["east", "west"] for number in range(4)}
    racked = {"a": wanting("t", rack="west"), "b": wanting("t", rack="east")}
    assert shared(name, {"t": 4}, racked, everywhere) == shared(name, {"t": 4}, {"a": wanting("t"), "b": wanting("t")})


@pytest.mark.parametrize("name", STICKY)
def test_a_member_does_not_keep_partitions_in_another_rack(name: str) -> None:
    members = {"a": wanting("t", had="t-0 t-2", generation=1, rack="west"), "b": wanting("t", had="t-1 t-3", generation=1, rack="east")}
    given = shared(name, {"t": 4}, members, NEAR)
    assert given == ({"a": "t-1 t-3", "b": "t-0 t-2"} if name == "sticky" else {"a": "", "b": ""})
