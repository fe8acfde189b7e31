"""What several threads may share without a lock of their own: a GIL made that safe, and without one the client must."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import pytest

from pyclient.buffers.record_iterator import RecordCursor, RecordIterator
from pyclient.codec.batches import RecordBatch, read_batches
from pyclient.codec.compression import Compression
from pyclient.codec.encode import encode_batch
from pyclient.errors import ClientClosedError, ConcurrentUseError
from tests.threads.team import Team
from tests.unit.buffers.accumulators import Clock, accumulator

THREADS: Final = 4
RECORDS: Final = 2_000
TURNS: Final = 2_000


def batch(codec: str = "none") -> RecordBatch:
    sent: list[Any] = [(1_700_000_000_000, None, b"value %d" % number, []) for number in range(RECORDS)]
    (made,) = read_batches(encode_batch(sent, compression=Compression.named(codec)))
    return made


def one_by_one() -> Iterator[Any]:
    return batch().iter_records("orders", 0)


def by_cursor() -> Iterator[Any]:
    return RecordCursor([one_by_one()])


def as_a_consumer() -> Iterator[Any]:
    def begin() -> RecordCursor:
        if not cursors:
            raise IndexError
        return cursors.pop()

    cursors = [RecordCursor([one_by_one()])]
    return RecordIterator(begin, lambda: None, lambda cursor: None)


@pytest.mark.parametrize("make", [one_by_one, by_cursor, as_a_consumer])
def test_threads_that_share_an_iterator_get_each_record_once(make: Any) -> None:
    records, team = make(), Team()
    taken: list[int] = []

    def take(_number: int) -> None:
        with contextlib.suppress(IndexError, ConcurrentUseError):  # raised while another thread waits for the next records
            taken.extend(record.offset for record in records)

    team.add_many(THREADS, take)
    team.run()
    assert sorted(taken) == list(range(RECORDS))


def test_threads_may_open_and_close_one_batch_at_once() -> None:
    for _ in range(50):
        shared, team = batch("zstd"), Team()
        sizes: list[int] = []

        def read(number: int, shared: RecordBatch = shared, sizes: list[int] = sizes) -> None:
            shared.closed()
            sizes.append(len(shared.records("orders", number)))
            shared.forget_source()

        team.add_many(THREADS, read)
        team.run()
        assert sizes == [RECORDS] * THREADS


def test_a_partitioner_may_look_at_partitions_with_a_leader_while_they_change() -> None:
    buffers, team = accumulator(Clock(), partitions=8), Team()
    topic = buffers.topic("orders")
    assert topic is not None

    def change(_number: int) -> None:
        for turn in range(TURNS):
            buffers.set_topic("orders", 8, range(turn % 8))

    def look(_number: int) -> None:
        for _ in range(TURNS):
            assert max(topic.available) < 8

    team.add_many(1, change)
    team.add_many(THREADS - 1, look)
    team.run()


def test_a_gate_may_be_asked_while_it_changes() -> None:
    buffers, team = accumulator(Clock()), Team()

    def change(_number: int) -> None:
        for turn in range(TURNS):
            buffers.set_gate(ClientClosedError(f"turn {turn}"))
            buffers.set_gate(None)

    def ask(_number: int) -> None:
        for _ in range(TURNS):
            with contextlib.suppress(ClientClosedError):
                buffers.check_gate()

    team.add_many(1, change)
    team.add_many(THREADS - 1, ask)
    team.run()
