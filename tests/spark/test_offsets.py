"""Offsets in Spark's form and the ranges cut from them: laws that hold for any numbers."""
from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import TopicPartition
from pyclient.errors import ConfigurationError
from pyclient.integration.spark.offsets import (
    OffsetRange, complete, divided, from_json, limited, parse_offsets, parse_partitions, to_json,
)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

partitions = st.builds(TopicPartition, st.sampled_from(["orders", "clicks", "a.b-c"]), st.integers(0, 40))
offsets = st.integers(0, 2**40)
positions = st.dictionaries(partitions, offsets, max_size=12)
spans = st.dictionaries(partitions, st.tuples(offsets, st.integers(0, 10_000)), min_size=1, max_size=8)


@given(positions)
def test_offsets_survive_the_way_through_a_checkpoint(given_offsets: dict[TopicPartition, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(given_offsets)))) == given_offsets


@given(positions, st.randoms())
def test_equal_offsets_make_equal_texts_whatever_their_order(given_offsets: dict[TopicPartition, int], chance: st.DrawFn) -> None:
    """Spark compares texts: another order would be another offset, and a batch without end."""
    shuffled = list(given_offsets.items())
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' Random
    assert json.dumps(to_json(dict(shuffled))) == json.dumps(to_json(given_offsets))


def test_partitions_stand_in_the_order_of_their_numbers() -> None:
    assert list(to_json({TopicPartition("t", number): 1 for number in (10, 9, 2)})["t"]) == ["2", "9", "10"]


@given(spans, st.integers(1, 5_000))
def test_a_limited_batch_lies_between_start_and_end(span: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    start = {tp: begin for tp, (begin, _) in span.items()}
    latest = {tp: begin + size for tp, (begin, size) in span.items()}
    end = limited(start, latest, most)
    assert end.keys() == latest.keys()
    assert all(start[tp] <= end[tp] <= latest[tp] for tp in end)


@given(spans, st.integers(1, 5_000))
def test_a_limited_batch_is_no_larger_than_asked_but_for_one_record_a_partition(
    span: dict[TopicPartition, tuple[int, int]], most: int,
) -> None:
    start = {tp: begin for tp, (begin, _) in span.items()}
    end = limited(start, {tp: begin + size for tp, (begin, size) in span.items()}, most)
    assert sum(end[tp] - start[tp] for tp in end) <= most + len(span)


@given(spans, st.integers(1, 5_000))
def test_every_partition_with_records_moves(span: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    start = {tp: begin for tp, (begin, _) in span.items()}
    end = limited(start, {tp: begin + size for tp, (begin, size) in span.items()}, most)
    assert all(end[tp] > start[tp] for tp, (_, size) in span.items() if size)


def test_a_limit_is_shared_in_proportion_to_what_waits() -> None:
    assert limited({T0: 100, T1: 0, U0: 7}, {T0: 1000, T1: 100, U0: 7}, 100) == {T0: 190, T1: 10, U0: 7}


@given(spans, st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1, 3_000)))
def test_divided_ranges_cover_every_offset_once(
    span: dict[TopicPartition, tuple[int, int]], at_least: int | None, most_records: int | None,
) -> None:
    whole = [OffsetRange(tp, begin, begin + size) for tp, (begin, size) in span.items() if size]
    parts = divided(whole, at_least=at_least, most_records=most_records)
    assert all(len(part) > 0 for part in parts)
    for each in whole:
        mine = sorted((part.start, part.end) for part in parts if part.tp == each.tp)
        assert (mine[0][0], mine[-1][1]) == (each.start, each.end)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(mine))


@given(spans, st.integers(1, 3_000))
def test_no_part_has_more_records_than_allowed(span: dict[TopicPartition, tuple[int, int]], most_records: int) -> None:
    whole = [OffsetRange(tp, begin, begin + size) for tp, (begin, size) in span.items() if size]
    assert all(len(part) <= most_records for part in divided(whole, most_records=most_records))


@given(spans, st.integers(1, 60), st.one_of(st.none(), st.integers(1, 3_000)))
def test_there_are_never_fewer_parts_than_asked_for(span: dict[TopicPartition, tuple[int, int]], at_least: int, most_records: int | None) -> None:
    whole = [OffsetRange(tp, begin, begin + size) for tp, (begin, size) in span.items() if size]
    by_size = len(divided(whole, most_records=most_records))
    asked = min(at_least, sum(map(len, whole)))
    assert len(divided(whole, at_least=at_least, most_records=most_records)) == max(by_size, asked)


@pytest.mark.parametrize(("sizes", "at_least", "parts"), [
    ((900, 100), 5, [4, 1]), ((25, 25, 25, 25), 10, [3, 3, 2, 2]), ((1, 1_000), 3, [1, 2]), ((2, 2), 9, [2, 2])])
def test_the_large_ranges_are_cut_first_to_make_enough_parts(sizes: tuple[int, ...], at_least: int, parts: list[int]) -> None:
    whole = [OffsetRange(TopicPartition("t", number), 0, size) for number, size in enumerate(sizes)]
    found = divided(whole, at_least=at_least)
    assert [sum(part.tp == each.tp for part in found) for each in whole] == parts


@pytest.mark.parametrize("text", ["", "earliestt", "[]", '{"t": 5}', '{"t": {"x": 1}}', '{"t": {"0": "5"}}', '{"t": {"0": -3}}', '{"t": {"0": true}}'])
def test_offsets_that_are_none_are_refused_with_the_form_they_should_have(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r'startingOffsets = .* \{"topic": \{"0": 23\}\}'):
        parse_offsets("startingOffsets", text, lowest=-2)


def test_assigned_partitions_are_read_from_json() -> None:
    assert parse_partitions("assign", '{"u": [0], "t": [1, 0, 1]}') == (T0, T1, U0)


@pytest.mark.parametrize("text", ["", "t", '{"t": 0}', '{"t": ["0"]}', "{}", '{"t": []}', '{"t": [-1]}'])
def test_assigned_partitions_that_are_none_are_refused_with_the_form_they_should_have(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r'assign = .*\{"topic": \[0, 1\]\}'):
        parse_partitions("assign", text)


def test_offsets_for_too_few_or_too_many_partitions_name_them() -> None:
    with pytest.raises(ConfigurationError, match=r"startingOffsets lacks t-1 and names u-0"):
        complete("startingOffsets", {T0: 1, U0: 1}, [T0, T1])
