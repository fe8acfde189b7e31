"""Many threads append to one Accumulator while another drains it: every record once, in its thread's order, all memory back."""
from __future__ import annotations

import faulthandler
import random
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest

from pyclient.buffers.accumulator import Accumulator, Batch, BatchState, PartitionQueue, TopicQueues
from pyclient.buffers.delivery import Delivery, Observer
from pyclient.codec.batches import read_batches
from pyclient.codec.compression import Compression
from pyclient.errors import ClientClosed, KafkaError
from tests.unit.buffers.accumulators import Clock, accumulator

THREADS = 6
RECORDS = 400
LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _hurried_and_watched() -> Iterator[None]:
    """Threads change places as often as they can; a hang shows every stack."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    faulthandler.dump_traceback_later(LIMIT_S * 2, exit=False)
    yield
    faulthandler.cancel_dump_traceback_later()
    sys.setswitchinterval(before)


def topic_of(buffers: Accumulator) -> TopicQueues:
    topic = buffers.topic("orders")
    assert topic is not None
    return topic


def append(buffers: Accumulator, partition: int, value: bytes) -> Delivery:
    """As a producer's send does: wait in line while there is no memory."""
    topic = topic_of(buffers)
    delivery = buffers.append(topic, partition, -1, None, value, None)
    while delivery is None:
        granted = threading.Event()
        waiter = buffers.wait(topic, partition, None, value, None, granted.set)
        try:
            assert granted.wait(LIMIT_S), "nobody granted memory"
            delivery = buffers.append(topic, partition, -1, None, value, None, waiter)
        finally:
            buffers.leave(waiter)
    return delivery


class Drain:
    """The loop's part, in one thread: takes what is ready, sends some again, settles the rest with true offsets."""

    def __init__(self, buffers: Accumulator, seed: int) -> None:
        self.buffers = buffers
        self.random = random.Random(seed)
        self.wake = threading.Event()
        self.ended = False
        self.log: dict[int, list[bytes | None]] = defaultdict(list)
        self.waiting: dict[PartitionQueue, None] = {}
        self.given_up = 0
        buffers.on_ready = self.wake.set
        self.thread = threading.Thread(target=self.run, name="drain")

    def run(self) -> None:
        while True:
            ended = self.ended
            if ended:
                self.buffers.hurry()
            self.wake.clear()
            self.waiting.update(dict.fromkeys(self.buffers.take_ready(float("inf"))))
            busy = [queue for queue in list(self.waiting) if self.serve(queue)]
            if ended and self.buffers.oldest() is None:
                return
            if not busy:
                self.wake.wait(0.01)

    def serve(self, queue: PartitionQueue) -> bool:
        batch = self.buffers.head(queue)
        if batch is not None and batch.state is BatchState.SEALING:
            self.buffers.seal(batch)
        if batch is None or batch.state is not BatchState.SEALED:
            del self.waiting[queue]
            return False
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
        log += [record.value for record in read.records("orders", batch.queue.partition)]
        batch.result.complete(base)
        self.buffers.release(batch)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize("memory", [1_000_000, 12_000])
def test_every_record_arrives_once_in_its_threads_order_and_learns_its_offset(codec: Compression, memory: int) -> None:
    buffers = accumulator(Clock(), memory=memory, batch_size=2_000, linger=0.001, compression=codec, partitions=3)
    drain = Drain(buffers, seed=1)
    made: dict[bytes, Delivery] = {}
    errors: list[BaseException] = []

    def send(number: int) -> None:
        try:
            chance = random.Random(number)
            for count in range(RECORDS):
                value = f"{number}:{count}:".encode().ljust(chance.randint(10, 150), b"x")
                made[value] = append(buffers, chance.choice([-1, 0, 1, 2]), value)
        except BaseException as error:  # noqa: BLE001 told by the test itself
            errors.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(THREADS)]
    drain.thread.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    drain.ended = True
    drain.wake.set()
    drain.thread.join(LIMIT_S)
    assert not errors
    assert not drain.thread.is_alive()
    stored = [value for log in drain.log.values() for value in log]
    assert sorted(value or b"" for value in stored) == sorted(made)
    for partition, log in drain.log.items():
        assert_order_of_threads(log)
        for offset, value in enumerate(log):
            told = made[value or b""].result(0)
            assert (told.partition, told.offset) == (partition, offset)
    assert buffers.pool.used == 0
    assert buffers.pool.waiting == 0


def assert_order_of_threads(log: list[bytes | None]) -> None:
    last: dict[bytes, int] = defaultdict(lambda: -1)
    for value in log:
        thread, count, _ = (value or b"").split(b":")
        assert int(count) > last[thread]
        last[thread] = int(count)


def test_batches_given_up_while_others_fill_and_seal_them_give_every_byte_back() -> None:
    """The one who expires batches races with those who fill and seal them; no failed record goes uncounted."""
    observer = Observer()
    buffers = accumulator(Clock(), memory=40_000, batch_size=1_000, compression=Compression.ZSTD, partitions=2, observer=observer)
    stop = threading.Event()
    made: list[Delivery] = []

    def expire() -> None:
        while not (stop.is_set() and buffers.oldest() is None):
            batch = buffers.oldest()
            if batch is not None:
                buffers.drop(batch)
                batch.result.fail(KafkaError("late"))

    def send(number: int) -> None:
        mine = [append(buffers, count % 2, b"x" * (50 + number)) for count in range(RECORDS)]
        made.extend(mine)

    expirer = threading.Thread(target=expire)
    senders = [threading.Thread(target=send, args=(number,)) for number in range(THREADS)]
    for thread in (expirer, *senders):
        thread.start()
    for thread in senders:
        thread.join(LIMIT_S)
    stop.set()
    expirer.join(LIMIT_S)
    assert not expirer.is_alive()
    assert len(made) == THREADS * RECORDS
    assert all(delivery.done() for delivery in made)
    assert observer.take_failures()[0] == THREADS * RECORDS
    assert buffers.pool.used == 0


def test_P08_close_wakes_every_thread_that_waits_for_memory() -> None:
    buffers = accumulator(Clock(), memory=4_096, batch_size=4_096)
    append(buffers, 0, b"x" * 3_000)
    refused: list[BaseException] = []

    def send() -> None:
        try:
            append(buffers, 0, b"x" * 3_000)
        except ClientClosed as error:
            refused.append(error)

    threads = [threading.Thread(target=send) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    buffers.close()
    for thread in threads:
        thread.join(LIMIT_S)
    assert len(refused) == THREADS
    assert buffers.pool.waiting == 0
