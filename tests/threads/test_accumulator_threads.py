"""Many threads append to one Accumulator while another drains it.

Every record is sent once, in its thread's order, and all memory returns.
"""
from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from random import Random
from typing import Any

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch, BatchState
from pyclient.buffers.queues import PartitionQueue
from pyclient.buffers.delivery import Delivery, Observer
from pyclient.codec.batches import read_batches
from pyclient.codec.compression import Compression
from pyclient.errors import ClientClosedError, KafkaError
from tests.threads.edges import Coin, EdgyAccumulator
from tests.threads.team import Team, watched
from pyclient.buffers.pool import Waiter
from tests.unit.buffers.accumulators import Clock, accumulator

THREADS = 6
RECORDS = 300
PARTITIONS = 3
GRANT_TIMEOUT_S = 0.0005
"""How long impatient senders wait: about as long as a grant takes."""


def restless(coin: Coin, **options: Any) -> Any:
    """An accumulator that tosses the coin wherever possible."""
    return EdgyAccumulator(accumulator(coin.around(Clock()), partitions=PARTITIONS, **options), coin)  # type: ignore[arg-type]  # a clock all the same


def append(buffers: Accumulator, partition: int, value: bytes, gives_up: Random | None = None) -> Delivery:
    """As a producer's send: wait while there is no memory.

    With *gives_up* it may leave the waiters and join them again.
    """
    topic = buffers.topic("orders")
    assert topic is not None
    delivery = buffers.append(topic, partition, -1, None, value, None)
    while delivery is None:
        granted = threading.Event()
        waiter = Waiter(granted.set)
        try:
            buffers.wait(topic, partition, None, value, None, waiter)
            if gives_up is not None and gives_up.random() < 0.5 and not granted.wait(GRANT_TIMEOUT_S):
                continue
            watched(granted, "memory")
            delivery = buffers.append(topic, partition, -1, None, value, None, waiter)
        finally:
            buffers.leave(waiter)
    return delivery


class Drain:
    """The loop's side: takes ready queues, retries some batches, completes the others with their offsets.

    Ends when all batches are done.
    """

    def __init__(self, buffers: Accumulator, seed: int) -> None:
        self.buffers = buffers
        self.random = Random(seed)
        self.wake = threading.Event()
        self.ended = False
        self.log: dict[int, list[bytes]] = defaultdict(list)
        self.waiting: dict[PartitionQueue, None] = {}
        buffers.on_ready = self.wake.set

    def end(self) -> None:
        """No more records follow: complete the remaining batches and stop."""
        self.ended = True
        self.wake.set()

    def run(self) -> None:
        while True:
            ended = self.ended
            self.wake.clear()
            if ended:
                self.buffers.flush_open()
            self.waiting.update(dict.fromkeys(self.buffers.take_ready(float("inf"))))
            self.buffers.next_linger()
            busy = [queue for queue in list(self.waiting) if self.serve(queue)]
            if ended and self.buffers.oldest() is None:
                return
            if not busy:
                watched(self.wake, "news for the loop")

    def serve(self, queue: PartitionQueue) -> bool:
        batch = self.buffers.head(queue)
        if batch is not None and batch.state is BatchState.SEALING:
            self.buffers.seal(batch)
        if batch is None or batch.state is not BatchState.SEALED:
            if not self.buffers.still_ready(queue):
                del self.waiting[queue]
            return queue in self.waiting
        self.buffers.start(batch)
        if self.random.random() < 0.2:
            self.buffers.retry(batch)
        else:
            self.settle(batch)
        return True

    def settle(self, batch: Batch) -> None:
        log = self.log[batch.queue.partition]
        (read,) = read_batches(b"".join(bytes(piece) for piece in batch.pieces()))
        base = len(log)
        log += [record.value or b"" for record in read.records("orders", batch.queue.partition)]
        batch.result.complete(base)
        self.buffers.release(batch)


class Senders:
    """The records that threads have sent, and their outcomes."""

    def __init__(self, buffers: Accumulator, seed: int) -> None:
        self.buffers = buffers
        self.seed = seed
        self.made: dict[bytes, Delivery] = {}
        self.refused = 0
        self.left = THREADS
        self.last = threading.Event()

    def send(self, number: int) -> None:
        chance = Random(f"{self.seed}:{number}")
        try:
            for count in range(RECORDS):
                value = f"{number}:{count}:".encode().ljust(chance.randint(10, 300), b"x")
                self.made[value] = append(self.buffers, chance.choice([-1, 0, 1, 2]), value, chance)
        except ClientClosedError:
            self.refused += 1
        finally:
            self.left -= 1
            if not self.left:
                self.last.set()

    def assert_stored(self, drain: Drain) -> None:
        """Each accepted record once, in its thread's order, at the offset of its delivery; all memory is returned."""
        stored = [value for log in drain.log.values() for value in log]
        assert sorted(stored) == sorted(self.made)
        for partition, log in drain.log.items():
            assert_order_of_threads(log)
            for offset, value in enumerate(log):
                metadata = self.made[value].result(0)
                assert (metadata.partition, metadata.offset) == (partition, offset)
        assert self.buffers.pool.used == 0
        assert self.buffers.pool.waiting == 0


def assert_order_of_threads(log: list[bytes]) -> None:
    last: dict[bytes, int] = defaultdict(lambda: -1)
    for value in log:
        thread, count, _ = value.split(b":")
        assert int(count) > last[thread]
        last[thread] = int(count)


def kind(seed: int) -> dict[str, Any]:
    """Much or little memory, compressed or not: the combination depends on the seed."""
    return {"memory": 12_000 if seed & 1 else 1_000_000, "compression": Compression.LZ4 if seed & 2 else Compression.NONE}


def test_every_record_is_stored_once_in_its_threads_order_and_its_delivery_has_its_offset(seed: int, coin: Coin) -> None:
    buffers = restless(coin, batch_size=2_000, linger=0.001, **kind(seed))
    drain, senders = Drain(buffers, seed), Senders(buffers, seed)
    team = Team()

    def look() -> None:
        """Metrics, flushes and metadata updates, concurrently."""
        chance = Random(seed)
        while not senders.last.is_set():
            assert 0 <= buffers.pool.used <= buffers.pool.total
            buffers.set_topic("orders", PARTITIONS, [n for n in range(PARTITIONS) if chance.random() < 0.7])
            buffers.flush_open()
            drain.wake.set()
        buffers.set_topic("orders", PARTITIONS, range(PARTITIONS))
        drain.end()

    team.add("drain", drain.run)
    team.add("look", look)
    team.add_many(THREADS, senders.send)
    team.run()
    assert len(senders.made) == THREADS * RECORDS
    senders.assert_stored(drain)


def test_a_record_sent_while_another_thread_closes_is_delivered_or_rejected(seed: int, coin: Coin) -> None:
    buffers = restless(coin, batch_size=2_000, linger=0.001, **kind(seed))
    drain, senders = Drain(buffers, seed), Senders(buffers, seed)
    team = Team()
    enough = Random(seed).randrange(THREADS * RECORDS // 2)

    def close() -> None:
        while len(senders.made) < enough:
            coin()
        buffers.close()
        watched(senders.last, "the end of every sender")
        drain.end()

    team.add("drain", drain.run)
    team.add("close", close)
    team.add_many(THREADS, senders.send)
    team.run()
    assert senders.refused
    senders.assert_stored(drain)


def test_batches_dropped_while_other_threads_fill_and_seal_them_return_all_memory(seed: int, coin: Coin) -> None:
    """One thread expires batches that others fill and seal; every failed record is counted."""
    observer = Observer()
    buffers = restless(coin, memory=40_000, batch_size=1_000, compression=Compression.ZSTD, observer=observer)
    senders = Senders(buffers, seed)
    team = Team()

    def expire() -> None:
        while not (senders.last.is_set() and buffers.oldest() is None):
            batch = buffers.oldest()
            if batch is not None:
                buffers.drop(batch)
                batch.result.fail(KafkaError("late"))

    team.add("expire", expire)
    team.add_many(THREADS, senders.send)
    team.run()
    assert len(senders.made) == THREADS * RECORDS
    assert all(delivery.done() for delivery in senders.made.values())
    assert observer.take_failures()[0] == THREADS * RECORDS
    assert buffers.pool.used == 0


def test_P08_close_wakes_every_thread_that_waits_for_memory(seed: int, coin: Coin) -> None:
    buffers = restless(coin, memory=4_096, batch_size=4_096)
    append(buffers, 0, b"x" * 3_000)
    refused: list[int] = []
    team = Team()

    def send(number: int) -> None:
        with contextlib.suppress(ClientClosedError):
            append(buffers, 0, b"x" * 3_000)
        refused.append(number)

    def close() -> None:
        coin()
        buffers.close()

    team.add_many(THREADS, send)
    team.add("close", close)
    team.run()
    assert len(refused) == THREADS
    assert buffers.pool.waiting == 0
