"""Bulks for tests: rows loaded and appended as a producer does, by a loop of the test's own when memory is short."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.deliveries import Deliveries, finish
from pyclient.buffers.delivery import Observer
from pyclient.buffers.pool import Waiter
from pyclient.buffers.rows import CHUNK, Rows
from tests.unit.buffers.accumulators import WALL_MS


def no_conversion(what: str, item: Any) -> Any:
    """Timestamps and partitions are numbers already; anything else is refused."""
    if what in ("timestamp", "partition"):
        return item
    raise TypeError(f"{what} is {type(item).__name__}")


def rows_of(buffers: Accumulator, observer: Observer, key_hash: object = None) -> Rows:
    """Rows for the topic of these tests."""
    return Rows(Deliveries(observer), [buffers.topic("orders") or LookupError("orders")], ["orders"], no_conversion, key_hash)


def send_many(buffers: Accumulator, observer: Observer, values: Sequence[Any], *, partition: int = -1, keys: Sequence[Any] | None = None,
              headers: Sequence[Any] | None = None, stamps: Sequence[int] | None = None, partitions: Sequence[Any] | None = None,
              key_hash: object = None, starved: Callable[[Rows], None] | None = None) -> Deliveries:
    """Append *values*; *starved* makes room when there is none."""
    rows = rows_of(buffers, observer, key_hash)

    def part(items: Sequence[Any] | None, first: int) -> list[Any] | None:
        return None if items is None else list(items[first:first + CHUNK])

    for first in range(0, len(values), CHUNK):
        rows.load(first, part(values, first) or [], part(keys, first), part(headers, first), part(stamps, first),
                  part(partitions, first), None, partition, WALL_MS)
        while not buffers.append_rows(rows):
            assert starved is not None, "there is no memory left"
            starved(rows)
    return finish(rows.deliveries, len(values))


def wait_in_line(buffers: Accumulator, rows: Rows, wait: Callable[[Waiter], None], notify: Callable[[], object]) -> None:
    """Wait for memory as a producer does, and append with it."""
    waiter = Waiter(notify)
    try:
        buffers.wait_rows(rows, waiter)
        wait(waiter)
        buffers.append_rows(rows, waiter)
    finally:
        buffers.leave(waiter)
