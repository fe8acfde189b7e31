"""Balancing unequal subscriptions: it ends, improves the balance, and swaps no partitions of one topic."""
from __future__ import annotations

import pytest

from pyclient.assignors.javas_order import bucket, partition_hash
from pyclient.assignors.movements import Movements
from pyclient.records import TopicPartition
from tests.unit.assignors.groups import partitions, shared, wanting

T0, T1, T2 = partitions("t-0 t-1 t-2")


def test_a_move_prefers_a_partition_of_the_same_topic_that_came_from_the_target() -> None:
    movements = Movements()
    assert movements.preferred(T0, "b", "a") == T0
    movements.moved(T1, "a", "b")
    assert movements.preferred(T0, "b", "a") == T1
    assert movements.preferred(T0, "c", "a") == T0, "no partition moved from a to c"
    assert movements.preferred(TopicPartition("u", 0), "b", "a") == TopicPartition("u", 0), "none of that topic moved"


def test_a_partition_that_moved_back_has_not_moved() -> None:
    movements = Movements()
    movements.moved(T1, "a", "b")
    movements.moved(T1, "b", "a")
    assert movements.preferred(T0, "b", "a") == T0
    assert movements.preferred(T0, "a", "b") == T0


def test_a_partition_that_moved_twice_counts_from_its_first_owner() -> None:
    movements = Movements()
    movements.moved(T1, "a", "b")
    movements.moved(T1, "b", "c")
    assert movements.preferred(T0, "b", "a") == T0
    assert movements.preferred(T0, "c", "a") == T1


def test_the_partition_to_move_counts_from_its_first_owner() -> None:
    movements = Movements()
    movements.moved(T1, "a", "b")
    movements.moved(T2, "c", "a")
    assert movements.preferred(T1, "b", "c") == T2


def test_of_several_partitions_the_first_of_javas_hash_set_moves_back() -> None:
    movements = Movements()
    several = [TopicPartition("orders", number) for number in range(30)]
    for each in several:
        movements.moved(each, "a", "b")
    for each in several[4:]:
        movements.moved(each, "b", "a")
    movements.moved(several[9], "a", "b")
    left = [*several[:4], several[9]]
    # Used at once.
    first, in_a_small_table = (min(left, key=lambda each: bucket(partition_hash(each), size)) for size in (64, 16))
    assert movements.preferred(TopicPartition("orders", 99), "b", "a") == first != in_a_small_table


@pytest.fixture
def worst_moves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every move takes the worst partition of the topic."""
    moves: list[int] = []

    def preferred(self: Movements, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        moves.append(len(moves))
        return TopicPartition("t", len(moves) % 2 * 2)

    monkeypatch.setattr(Movements, "preferred", preferred)
    return moves


def test_moves_that_do_not_improve_the_balance_end_and_are_undone(worst_moves: list[int]) -> None:
    """Member a has too many, and only partitions of b are moved, back and forth."""
    members = {"a": wanting("t", "u", had="t-1 t-3 t-4", generation=1), "b": wanting("t", had="t-0", generation=1), "c": wanting("t", had="t-2", generation=1)}
    assert shared("sticky", {"t": 5}, members) == {"a": "t-1 t-3 t-4", "b": "t-0", "c": "t-2"}
    assert 10 <= len(worst_moves) <= 200
