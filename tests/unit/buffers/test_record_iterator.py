"""`for record in consumer`: no record is returned twice, and the end of every cursor is reported once."""
from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import pytest

from pyclient.buffers.record_iterator import RecordIterator, RecordCursor
from pyclient.errors import ConcurrentUseError
from pyclient.records.record import Record


def record(offset: int) -> Record:
    return Record("t", 0, offset, 0)


class Source:
    """Cursors over consecutive records, and the calls about them."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)
        self.offset = 0
        self.cursors: list[RecordCursor] = []
        self.calls: list[str] = []
        self.iteration = RecordIterator(self.begin, lambda: self.calls.append("exhausted"), self.abandon)

    def begin(self) -> RecordCursor:
        if not self.counts:
            raise LookupError("no more")
        first, self.offset = self.offset, self.offset + self.counts.pop(0)
        self.cursors.append(RecordCursor([map(record, range(first, self.offset))]))
        return self.cursors[-1]

    def abandon(self, cursor: RecordCursor) -> None:
        self.calls.append(f"abandoned {self.cursors.index(cursor)} at {cursor.current.offset if cursor.current else None}")

    def take(self, count: int) -> list[int]:
        return [next(self.iteration).offset for _ in range(count)]


def test_a_cursor_knows_the_record_that_came_last() -> None:
    cursor = RecordCursor([map(record, range(3))])
    shown = [(each, cursor.current) for each in cursor]
    assert [offset for offset in shown if offset[0] is not offset[1]] == []
    assert cursor.current == record(2)
    assert list(cursor) == []


def test_a_stopped_cursor_shows_nothing_more_and_keeps_its_place() -> None:
    cursor = RecordCursor([map(record, range(3))])
    next(cursor)
    cursor.stop()
    assert cursor.stopped
    assert list(cursor) == []
    assert cursor.current == record(0)


def test_an_iteration_goes_through_cursor_after_cursor_and_reports_when_one_is_exhausted() -> None:
    source = Source(2, 0, 3)
    assert source.take(2) == [0, 1]
    assert source.calls == []  # the last record is still being looked at
    assert source.take(3) == [2, 3, 4]
    assert source.calls == ["exhausted"] * 2


def test_a_cursor_that_was_stopped_is_dropped_without_a_call() -> None:
    source = Source(3, 2)
    source.take(1)
    source.cursors[0].stop()
    assert source.take(2) == [3, 4]
    assert source.calls == []


def test_an_iteration_that_is_closed_abandons_its_cursor_once_and_is_at_its_end() -> None:
    source = Source(3, 2)
    source.take(2)
    source.iteration.close()
    source.iteration.close()
    assert source.calls == ["abandoned 0 at 1"]
    assert list(source.iteration) == []


def test_an_iteration_that_is_garbage_collected_abandons_its_cursor() -> None:
    source = Source(3)
    source.take(1)
    del source.iteration
    gc.collect()
    assert source.calls == ["abandoned 0 at 0"]


def test_closing_before_the_first_record_abandons_nothing() -> None:
    source = Source(3)
    source.iteration.close()
    assert source.calls == []
    assert list(source.iteration) == []


def test_an_error_of_a_record_abandons_the_cursor_and_ends_the_iteration() -> None:
    def damaged() -> Iterator[Record]:
        yield record(0)
        raise ValueError("cannot be decoded")

    abandoned: list[RecordCursor] = []
    cursor = RecordCursor([damaged()])
    iteration = RecordIterator(lambda: cursor, pytest.fail, abandoned.append)
    assert next(iteration) == record(0)
    with pytest.raises(ValueError, match="decoded"):
        next(iteration)
    assert abandoned == [cursor]
    assert list(iteration) == []


def test_an_error_between_cursors_ends_the_iteration_and_abandons_nothing() -> None:
    source = Source(1)
    source.take(1)
    with pytest.raises(LookupError):
        next(source.iteration)
    assert source.calls == ["exhausted"]
    source.counts.append(5)
    assert list(source.iteration) == []


def test_an_iteration_that_is_waiting_refuses_a_second_call_and_goes_on() -> None:
    """A second thread, or a call within the wait for records: the first loop must not end as if at the last record."""
    refused: list[BaseException | None] = []

    def begin() -> RecordCursor:
        if not refused:
            for again in (iteration.__next__, iteration.close):
                thread = threading.Thread(target=request_next, args=[again])
                thread.start()
                thread.join()
        return RecordCursor([map(record, range(2))])

    def request_next(again: Callable[[], object]) -> None:
        refused.append(None)
        try:
            again()
        except ConcurrentUseError as error:
            refused[-1] = error

    iteration = RecordIterator(begin, lambda: None, lambda _cursor: None)
    assert [next(iteration).offset for _ in range(3)] == [0, 1, 0]
    assert [type(error) for error in refused] == [ConcurrentUseError] * 2


@pytest.mark.parametrize("runs", [[], [iter(())], [iter(()), iter(())]])
def test_a_cursor_over_nothing_is_at_its_end(runs: list[Iterator[Record]]) -> None:
    cursor = RecordCursor(runs)
    assert list(cursor) == []
    assert cursor.current is None
