"""Accumulators for tests: time stands still until it is moved, chance is seeded."""
from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.delivery import Delivery, Observer
from pyclient.buffers.fast_send import Entrance, Sending
from pyclient.buffers.pool import Waiter
from pyclient.codec.compression import Compression

WALL_MS: Final = 1_700_000_000_000


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def accumulator(
    clock: Clock,
    *,
    memory: int = 1_000_000,
    batch_size: int = 16_384,
    max_request_size: int = 1_000_000,
    linger: float = 0.005,
    compression: Compression = Compression.NONE,
    observer: Observer | None = None,
    topic: str = "orders",
    partitions: int = 4,
) -> Accumulator:
    """An accumulator that knows one topic."""
    made = Accumulator(
        memory=memory, batch_size=batch_size, max_request_size=max_request_size, linger=linger, compression=compression,
        level=None, observer=observer or Observer(), clock=clock, wall=lambda: WALL_MS, random=Random(1))
    made.set_topic(topic, partitions, range(partitions))
    return made


def line_up(buffers: Accumulator, partition: int, value: bytes, notify: Callable[[], object], topic: str = "orders") -> Waiter:
    """Somebody who waits for the memory of this record."""
    queues = buffers.topic(topic)
    assert queues is not None
    waiter = Waiter(notify)
    buffers.wait(queues, partition, None, value, None, waiter)
    return waiter


class _Way(Sending):
    """A producer reduced to its compiled `send`; what is not simple ends in `_send`."""

    def __init__(self, way: Entrance) -> None:
        self._entrance = way

    def _send(self, *_record: object) -> None:
        return None


def offered(way: Entrance, **record: Any) -> Delivery | None:
    """The delivery of a record that is simple; None for any other."""
    return _Way(way).send(**record)
