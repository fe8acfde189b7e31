"""The verdict of the durability tests counts each kind of breach, and of commits only ours."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from pyclient import TopicPartition
from tests.broker.durability.numbering import Found, Stream, Verdict, judge, value
from tests.groups import Commit, ours_go_back

STREAMS = [Stream(producer, partition) for producer in range(2) for partition in range(2)]
COUNT = 5
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
SENT = dict.fromkeys(STREAMS, COUNT)
ALL = dict.fromkeys(STREAMS, range(COUNT))


def log() -> list[Found]:
    """Two producers' records, taking turns in two partitions."""
    return [Found(stream.partition, offset, value(stream, offset // 2)) for stream in STREAMS
            for offset in range(stream.producer, 2 * COUNT, 2)]


def without_one(records: list[Found]) -> list[Found]:
    return records[:3] + records[4:]


def one_twice(records: list[Found]) -> list[Found]:
    return records[:3] + records[2:]


def two_swapped(records: list[Found]) -> list[Found]:
    return [records[1], records[0], *records[2:]]


def one_elsewhere(records: list[Found]) -> list[Found]:
    return [records[0]._replace(partition=1), *records[1:]]


def one_never_sent(records: list[Found]) -> list[Found]:
    return [*records, Found(0, 99, value(STREAMS[0], COUNT))]


def test_a_complete_log_in_order_has_no_breach() -> None:
    assert judge(ALL, SENT, log()) == Verdict(20, 0, 0, 0, 0)


@pytest.mark.parametrize(("breach", "verdict"), [
    (without_one, Verdict(19, 1, 0, 0, 0)),
    (one_twice, Verdict(21, 0, 1, 0, 0)),
    (two_swapped, Verdict(20, 0, 0, 1, 0)),
    (one_elsewhere, Verdict(20, 0, 0, 1, 0)),
    (one_never_sent, Verdict(21, 0, 0, 0, 1)),
])
def test_each_kind_of_breach_is_counted_as_its_kind(breach: Callable[[list[Found]], list[Found]], verdict: Verdict) -> None:
    assert judge(ALL, SENT, breach(log())) == verdict


def test_unacknowledged_records_may_be_stored_or_not() -> None:
    promised = {**ALL, STREAMS[0]: [0, 1, 2]}
    assert judge(promised, SENT, log()).lost == 0
    assert judge(promised, SENT, without_one(log())).lost == 0, "it was the third record of the first stream"


def test_a_repeated_run_of_records_is_doubled_but_not_out_of_order() -> None:
    records = log()
    assert judge(ALL, SENT, [*records[:4], *records[2:]]) == Verdict(22, 0, 2, 0, 0)


def test_a_commit_below_the_one_before_it_is_ours_unless_its_metadata_says_theirs() -> None:
    history = {ONE: [Commit(28, ""), Commit(76, "theirs"), Commit(1, "theirs"), Commit(2, ""), Commit(3, "")], TWO: [Commit(5, "theirs"), Commit(4, "")]}
    assert ours_go_back(history, "theirs") == {TWO: [(Commit(5, "theirs"), Commit(4, ""))]}
