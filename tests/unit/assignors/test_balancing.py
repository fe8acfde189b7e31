"""Evening out unequal subscriptions: it ends, helps, and moves no topic back and forth between two members."""
from __future__ import annotations

import pytest

from pyclient.assignors.javas_order import bucket, partition_hash
from pyclient.assignors.movements import Movements
from pyclient.records import TopicPartition
from tests.unit.assignors.groups import partitions, shared, wanting

T0, T1, T2 = partitions("t-0 t-1 t-2")


def test_of_a_topic_that_went_from_one_member_to_another_something_goes_back_rather_than_something_else() -> None:
    movements = Movements()
    assert movements.preferred(T0, "b", "a") == T0
    movements.moved(T1, "a", "b")
    assert movements.preferred(T0, "b", "a") == T1
    assert movements.preferred(T0, "c", "a") == T0, "nothing went from a to c"
    assert movements.preferred(TopicPartition("u", 0), "b", "a") == TopicPartition("u", 0), "nor of that topic"


def test_what_went_back_has_not_moved() -> None:
    movements = Movements()
    movements.moved(T1, "a", "b")
    movements.moved(T1, "b", "a")
    assert movements.preferred(T0, "b", "a") == T0
    assert movements.preferred(T0, "a", "b") == T0


def test_what_went_on_came_from_where_it_was_at_first() -> None:
    movements = Movements()
    movements.moved(T1, "a", "b")
    movements.moved(T1, "b", "c")
    assert movements.preferred(T0, "b", "a") == T0
    assert movements.preferred(T0, "c", "a") == T1


def test_what_has_moved_itself_counts_as_where_it_was_at_first() -> None:
    movements = Movements()
    movements.moved(T1, "a", "b")
    movements.moved(T2, "c", "a")
    assert movements.preferred(T1, "b", "c") == T2


def test_of_several_the_first_of_javas_hash_set_goes_back_however_many_there_were() -> None:
    movements = Movements()
    several = [TopicPartition("orders", number) for number in range(30)]
    for each in several:
        movements.moved(each, "a", "b")
    for each in several[4:]:
        movements.moved(each, "b", "a")
    movements.moved(several[9], "a", "b")
    left = [*several[:4], several[9]]
    first, in_a_small_table = (min(left, key=lambda each: bucket(partition_hash(each), size)) for size in (64, 16))  # used at once
    assert movements.preferred(TopicPartition("orders", 99), "b", "a") == first != in_a_small_table


@pytest.fixture
def spiteful(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Whatever is to be moved, the least sensible of its topic is."""
    moves: list[int] = []

    def preferred(self: Movements, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        moves.append(len(moves))
        return TopicPartition("t", len(moves) % 2 * 2)

    monkeypatch.setattr(Movements, "preferred", preferred)
    return moves


def test_moves_that_make_nothing_more_even_come_to_an_end_and_are_taken_back(spiteful: list[int]) -> None:
    """ "a" has too much, and only partitions of "b" are moved, to and fro."""
    members = {"a": wanting("t", "u", had="t-1 t-3 t-4", generation=1), "b": wanting("t", had="t-0", generation=1), "c": wanting("t", had="t-2", generation=1)}
    assert shared("sticky", {"t": 5}, members) == {"a": "t-1 t-3 t-4", "b": "t-0", "c": "t-2"}
    assert 10 <= len(spiteful) <= 200
