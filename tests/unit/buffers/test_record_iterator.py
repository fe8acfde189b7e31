"""`for record in consumer`, walk by walk: nothing shown twice, every walk's end told once, and told as what it was."""
from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import pytest

from pyclient.buffers.record_iterator import Iteration, RecordCursor
from pyclient.codec.record import Record
from pyclient.errors import ConcurrentUseError


def record(offset: int) -> Record:
    return Record("t", 0, offset, 0)


class Source:
    """Walks over consecutive records, and what was told of them."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)
        self.offset = 0
        self.walks: list[RecordCursor] = []
        self.told: list[str] = []
        self.iteration = Iteration(self.begin, lambda: self.told.append("exhausted"), self.abandon)

    def begin(self) -> RecordCursor:
        if not self.counts:
            raise LookupError("no more")
        first, self.offset = self.offset, self.offset + self.counts.pop(0)
        self.walks.append(RecordCursor([map(record, range(first, self.offset))]))
        return self.walks[-1]

    def abandon(self, walk: RecordCursor) -> None:
        self.told.append(f"abandoned {self.walks.index(walk)} at {walk.current.offset if walk.current else None}")

    def take(self, count: int) -> list[int]:
        return [next(self.iteration).offset for _ in range(count)]


def test_a_walk_knows_the_record_that_came_last() -> None:
    walk = RecordCursor([map(record, range(3))])
    shown = [(each, walk.current) for each in walk]
    assert [offset for offset in shown if offset[0] is not offset[1]] == []
    assert walk.current == record(2)
    assert list(walk) == []


def test_a_stopped_walk_shows_nothing_more_and_keeps_its_place() -> None:
    walk = RecordCursor([map(record, range(3))])
    next(walk)
    walk.stop()
    assert walk.stopped
    assert list(walk) == []
    assert walk.current == record(0)


def test_an_iteration_goes_through_walk_after_walk_and_tells_when_one_is_exhausted() -> None:
    source = Source(2, 0, 3)
    assert source.take(2) == [0, 1]
    assert source.told == []  # the last record is still being looked at
    assert source.take(3) == [2, 3, 4]
    assert source.told == ["exhausted"] * 2


def test_a_walk_that_was_stopped_is_left_without_a_word() -> None:
    source = Source(3, 2)
    source.take(1)
    source.walks[0].stop()
    assert source.take(2) == [3, 4]
    assert source.told == []


def test_an_iteration_that_is_closed_abandons_its_walk_once_and_is_at_its_end() -> None:
    source = Source(3, 2)
    source.take(2)
    source.iteration.close()
    source.iteration.close()
    assert source.told == ["abandoned 0 at 1"]
    assert list(source.iteration) == []


def test_an_iteration_nobody_holds_any_more_abandons_its_walk() -> None:
    source = Source(3)
    source.take(1)
    del source.iteration
    gc.collect()
    assert source.told == ["abandoned 0 at 0"]


def test_closing_before_the_first_record_abandons_nothing() -> None:
    source = Source(3)
    source.iteration.close()
    assert source.told == []
    assert list(source.iteration) == []


def test_an_error_of_a_record_abandons_the_walk_and_ends_the_iteration() -> None:
    def damaged() -> Iterator[Record]:
        yield record(0)
        raise ValueError("cannot be decoded")

    abandoned: list[RecordCursor] = []
    walk = RecordCursor([damaged()])
    iteration = Iteration(lambda: walk, pytest.fail, abandoned.append)
    assert next(iteration) == record(0)
    with pytest.raises(ValueError, match="decoded"):
        next(iteration)
    assert abandoned == [walk]
    assert list(iteration) == []


def test_an_error_between_walks_ends_the_iteration_and_abandons_nothing() -> None:
    source = Source(1)
    source.take(1)
    with pytest.raises(LookupError):
        next(source.iteration)
    assert source.told == ["exhausted"]
    source.counts.append(5)
    assert list(source.iteration) == []


def test_an_iteration_that_is_being_asked_refuses_a_second_asker_and_goes_on() -> None:
    """A second thread, or what runs within the wait for records: the first one's loop must not end as if there were no more."""
    refused: list[BaseException | None] = []

    def begin() -> RecordCursor:
        if not refused:
            for again in (iteration.__next__, iteration.close):
                asking = threading.Thread(target=ask, args=[again])
                asking.start()
                asking.join()
        return RecordCursor([map(record, range(2))])

    def ask(again: Callable[[], object]) -> None:
        refused.append(None)
        try:
            again()
        except ConcurrentUseError as error:
            refused[-1] = error

    iteration = Iteration(begin, lambda: None, lambda _walk: None)
    assert [next(iteration).offset for _ in range(3)] == [0, 1, 0]
    assert [type(error) for error in refused] == [ConcurrentUseError] * 2


@pytest.mark.parametrize("runs", [[], [iter(())], [iter(()), iter(())]])
def test_a_walk_over_nothing_is_at_its_end(runs: list[Iterator[Record]]) -> None:
    walk = RecordCursor(runs)
    assert list(walk) == []
    assert walk.current is None
