"""Accumulators for tests, and what tests do with them: the test moves the clock, and randomness is seeded."""
from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch, BatchState
from pyclient.buffers.delivery import Delivery, Observer
from pyclient.buffers.fast_send import FastSend, SendPath, fast_send
from pyclient.buffers.pool import Waiter
from pyclient.buffers.queues import PartitionQueue, TopicQueues
from pyclient.codec.compression import Compression
from pyclient.codec.encode import encode_headers

WALL_MS: Final = 1_700_000_000_000


class Clock:
    """Seconds that pass when the test sets them."""

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
    """An accumulator with one topic."""
    made = Accumulator(
        memory=memory, batch_size=batch_size, max_request_size=max_request_size, linger=linger, compression=compression,
        level=None, observer=observer or Observer(), clock=clock, wall=lambda: WALL_MS, random=Random(1))
    made.set_topic(topic, partitions, range(partitions))
    return made


def topic_of(buffers: Accumulator) -> TopicQueues:
    """The topic of `accumulator`."""
    topic = buffers.topic("orders")
    assert topic is not None
    return topic


def put(buffers: Accumulator, value: bytes | None = b"v", *, partition: int = 0, key: bytes | None = None, timestamp: int = -1,
        headers: Any = ()) -> Delivery | None:
    """Append one record to that topic."""
    return buffers.append(topic_of(buffers), partition, timestamp, key, value, encode_headers(headers) if headers else None)


def drain(buffers: Accumulator, queue: PartitionQueue) -> Batch | None:
    """The head of a queue, sealed."""
    batch = buffers.head(queue)
    if batch is not None and batch.state is BatchState.SEALING:
        buffers.seal(batch)
    return batch


def add_waiter(buffers: Accumulator, partition: int, value: bytes, notify: Callable[[], object], topic: str = "orders") -> Waiter:
    """A waiter for the memory of this record."""
    queues = buffers.topic(topic)
    assert queues is not None
    waiter = Waiter(notify)
    buffers.wait(queues, partition, None, value, None, waiter)
    return waiter


class _FastProducer(FastSend):
    """A producer reduced to its fast path: `send` returns None for a record that is not simple."""

    def __init__(self, path: SendPath) -> None:
        self._send_path = path

    @fast_send
    def send(self, topic: Any, value: Any = None, key: Any = None, **_others: Any) -> Delivery | None:
        return None


def fast_append(path: SendPath, **record: Any) -> Delivery | None:
    """The delivery of a simple record; None for any other."""
    return _FastProducer(path).send(**record)
