"""Batches that are small on the wire and large in memory: how much is open at once, and which thread opens it (B06)."""
from __future__ import annotations

import asyncio
import contextlib
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, Final

import pytest

import pyclient.codec.batches
from pyclient import AsyncConsumer, Consumer, TopicPartition
from pyclient.buffers.fetch_buffer import Chunk
from pyclient.buffers.records_view import memory_of
from pyclient.codec.encode import encode_batch
from pyclient.consumer.batch_decompressor import OPENING_THREAD
from pyclient.errors import CorruptRecordError, SerializationError, WakeupError
from pyclient.runtime.environment import Environment, using
from pyclient.testing import FakeCluster
from tests.unit.codec.damage import changed
from tests.unit.consumer.stored import T0, reading, store

MIB: Final = 2**20
BOMB: Final = 3 * MIB
"""Bytes that one of the batches here takes when it is open; on the wire some two hundred."""
BUDGET: Final = 7 * MIB
COUNT: Final = 12
T1: Final = TopicPartition("t", 1)
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")


def bomb(offset: int, size: int = BOMB, codec: str = "zstd") -> bytes:
    """A batch of one record of zeros."""
    return struct.pack(">q", offset) + encode_batch([(0, None, bytes(size), None)], compression=codec)[8:]


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t")
    store(fake_cluster, *((bomb(offset), 1) for offset in range(COUNT)))
    return fake_cluster


class Opened:
    """How many bytes each thread has decompressed."""

    def __init__(self) -> None:
        self.by_thread: Counter[str] = Counter()

    def spy(self, decompress: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            out = decompress(*arguments)
            self.by_thread[threading.current_thread().name] += 0 if out is None else len(out)
            return out

        return counted

    @property
    def total(self) -> int:
        return sum(self.by_thread.values())

    @property
    def on_the_loop(self) -> int:
        return self.total - self.by_thread[OPENING_THREAD]

    def since(self) -> int:
        """Bytes since the last call."""
        total = self.total
        self.by_thread.clear()
        return total


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    made = Opened()
    for name in ("decompress", "decompress_small"):
        monkeypatch.setattr(pyclient.codec.batches, name, made.spy(getattr(pyclient.codec.batches, name)))
    return made


# ---- how much is open at once ---------------------------------------------------------------------------------------


def test_B06_a_poll_opens_batches_up_to_the_buffers_memory_and_one_more(cluster: FakeCluster, opened: Opened) -> None:
    with Consumer(**reading(cluster, fetch_buffer_memory=BUDGET)) as consumer:
        consumer.assign([T0])
        sizes = []
        while consumer.position(T0) < COUNT:
            records = consumer.poll(30)
            sizes.append(len(records))
            assert opened.since() <= BUDGET + BOMB + MIB
            assert BUDGET <= memory_of(records) <= BUDGET + BOMB + MIB
            assert sum(len(value or b"") for value in records.to_arrow()["value"].to_pylist()) == BOMB * len(records)
            assert opened.since() == 0
        assert sizes == [3] * 4


def test_B06_a_poll_returns_one_batch_however_small_the_memory_is(cluster: FakeCluster) -> None:
    with Consumer(**reading(cluster, fetch_buffer_memory=1)) as consumer:
        consumer.assign([T0])
        assert [[each.offset for each in consumer.poll(30)] for _ in range(COUNT)] == [[offset] for offset in range(COUNT)]


def test_B06_an_iteration_opens_as_much_at_once_as_a_poll(cluster: FakeCluster, opened: Opened) -> None:
    with Consumer(**reading(cluster, fetch_buffer_memory=BUDGET)) as consumer:
        consumer.assign([T0])
        for record in consumer:
            if record.offset % 3 == 0:
                assert opened.since() <= BUDGET + BOMB + MIB
            assert opened.total == 0
            if record.offset == COUNT - 1:
                break


def test_B06_async_polls_and_iterations_open_as_much_at_once(cluster: FakeCluster, opened: Opened) -> None:
    async def test() -> None:
        async with AsyncConsumer(**reading(cluster, fetch_buffer_memory=BUDGET)) as consumer:
            consumer.assign([T0])
            for _ in range(2):
                assert len(await consumer.poll(30)) == 3
                assert opened.since() <= BUDGET + BOMB + MIB
            async for record in consumer:
                if record.offset % 3 == 0:
                    assert 0 < opened.since() <= BUDGET + BOMB + MIB
                if record.offset == COUNT - 1:
                    break

    asyncio.run(test())


def test_B06_records_kept_for_a_paused_partition_count_too(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t", 2)
    for tp in (T0, T1):
        store(fake_cluster, *((bomb(offset), 1) for offset in range(COUNT)), partition=tp.partition)
    with Consumer(**reading(fake_cluster, fetch_buffer_memory=BUDGET)) as consumer:
        consumer.assign([T0])
        iterator = iter(consumer)
        next(iterator)
        consumer.pause(T0)  # two records of it come first when it is resumed
        consumer.assign([T0, T1])
        assert len(consumer.poll(30)) == 1


def test_B06_records_that_a_deserializer_rejects_do_not_stay_open(fake_cluster: FakeCluster, opened: Opened) -> None:
    fake_cluster.create_topic("t", COUNT)
    for number in range(COUNT):
        store(fake_cluster, (bomb(0), 1), partition=number)

    with Consumer(**reading(fake_cluster, value_deserializer=lambda data: 1 / 0)) as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(COUNT)])
        for _ in range(2 * COUNT):
            with pytest.raises(SerializationError):
                consumer.poll(30)
        entries = consumer._core.buffer._entries
        assert sum(batch.held for entry in entries for batch in getattr(entry, "batches", ())) <= BOMB + MIB


REAL: Final = """
import resource, sys
from pyclient import Consumer
from pyclient.testing import FakeCluster
from tests.unit.consumer.stored import T0, reading, store
from tests.unit.consumer.test_large_batches import MIB, bomb

with FakeCluster() as cluster:
    cluster.create_topic("t")
    data = bomb(0, 60 * MIB)
    store(cluster, *((number.to_bytes(8, "big") + data[8:], 1) for number in range(40)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Consumer(**reading(cluster)) as consumer:
        consumer.assign([T0])
        while consumer.position(T0) < 40:
            consumer.poll(60)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux")
def test_B06_forty_records_of_60_MiB_take_a_few_hundred_MiB_and_not_all_of_them() -> None:
    run = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 700  # two polls of two batches each, the response, and slack; all would be 2,400


# ---- who opens it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_is_opened_beside_the_loop(fake_cluster: FakeCluster, opened: Opened, codec: str) -> None:
    fake_cluster.create_topic("t")
    store(fake_cluster, (bomb(0, codec=codec), 1), (bomb(1, 1000, codec), 1))

    async def test() -> None:
        async with AsyncConsumer(**reading(fake_cluster)) as consumer:
            consumer.assign([T0])
            assert [len(record.value or b"") for record in await polled(consumer, 2)] == [BOMB, 1000]

    asyncio.run(test())
    assert opened.by_thread[OPENING_THREAD] >= BOMB
    assert opened.on_the_loop < MIB


def test_a_gzip_batch_that_lies_about_its_size_is_opened_beside_the_loop(fake_cluster: FakeCluster, opened: Opened) -> None:
    small, large = (encode_batch([(0, None, bytes(size), None)], compression="gzip") for size in (1000, BOMB))
    fake_cluster.create_topic("t")
    store(fake_cluster, (changed(large + small[61:], {"length": len(large + small[61:]) - 12}), 1))

    async def test() -> None:
        async with AsyncConsumer(**reading(fake_cluster)) as consumer:
            consumer.assign([T0])
            with pytest.raises(CorruptRecordError, match="bytes follow the last"):
                await consumer.poll(30)

    asyncio.run(test())
    assert opened.on_the_loop == 0
    assert opened.by_thread[OPENING_THREAD] >= BOMB


def test_one_poll_opens_at_most_one_MiB_on_the_loop(fake_cluster: FakeCluster, opened: Opened) -> None:
    fake_cluster.create_topic("t")
    store(fake_cluster, *((bomb(offset, MIB // 2), 1) for offset in range(20)))

    async def test() -> None:
        async with AsyncConsumer(**reading(fake_cluster)) as consumer:
            consumer.assign([T0])
            for _ in range(10):
                assert 0 < len(await consumer.poll(30)) <= 2
                assert opened.since() <= MIB

    asyncio.run(test())


def test_small_batches_need_no_worker(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    store(fake_cluster, *((bomb(offset, 1000), 1) for offset in range(100)))

    async def test() -> None:
        with held() as workers:
            async with AsyncConsumer(**reading(fake_cluster)) as consumer:
                consumer.assign([T0])
                assert len(await polled(consumer, 100)) == 100
                assert not workers.jobs

    asyncio.run(test())


# ---- what happens meanwhile -----------------------------------------------------------------------------------------


class HeldWorkers(Executor):
    """Work waits here until a test does it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.came = asyncio.Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, lambda: fn(*args, **kwargs)))
        self.came.set()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What waits is never done."""

    def work(self) -> None:
        """Do the first work."""
        future, work = self.jobs.pop(0)
        self.came.clear()
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 the result of the work
            future.set_exception(error)


@contextlib.contextmanager
def held() -> Iterator[HeldWorkers]:
    """Consumers created in the block have these workers."""
    workers = HeldWorkers()
    with using(Environment(workers=lambda _name: workers)):
        yield workers


async def polled(consumer: AsyncConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += await consumer.poll(30)
    return found


async def begun(workers: HeldWorkers) -> None:
    """Return when work waits."""
    async with asyncio.timeout(30):
        await workers.came.wait()


class Reading:
    """A consumer of two partitions of large batches; a poll that waits for the first of them."""

    def __init__(self, workers: HeldWorkers, consumer: AsyncConsumer) -> None:
        self.workers = workers
        self.consumer = consumer
        self.poll = asyncio.ensure_future(consumer.poll(30))


@pytest.fixture
def two(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t", 2)
    store(fake_cluster, *((bomb(offset), 1) for offset in range(COUNT)))
    store(fake_cluster, *((bomb(offset, 1000), 1) for offset in range(COUNT)), partition=1)
    return fake_cluster


def while_opening(cluster: FakeCluster, body: Callable[[Reading], Any], **options: Any) -> None:
    """Run *body* while a poll waits for a worker that has not begun."""
    async def test() -> None:
        with held() as workers:
            async with AsyncConsumer(**reading(cluster, **options)) as consumer:
                consumer.assign([T0])
                made = Reading(workers, consumer)
                await begun(workers)
                await body(made)
                made.poll.cancel()

    asyncio.run(test())


def offsets(records: Any) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


def test_a_poll_returns_what_was_opened_in_order(two: FakeCluster) -> None:
    async def body(it: Reading) -> None:
        it.workers.work()
        assert offsets(await it.poll) == [(0, at) for at in range(COUNT)]

    while_opening(two, body)


def test_a_poll_that_ends_before_the_batch_is_open_returns_nothing_and_a_later_one_all(two: FakeCluster) -> None:
    async def body(it: Reading) -> None:
        it.poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await it.poll
        assert not await it.consumer.poll(0)
        assert await it.consumer.position(T0) == 0
        assert len(it.workers.jobs) == 1  # the work is not asked for twice
        it.workers.work()
        assert offsets(await it.consumer.poll(30))[0] == (0, 0)

    while_opening(two, body)


def test_a_seek_while_a_batch_is_opened_counts(two: FakeCluster) -> None:
    async def body(it: Reading) -> None:
        it.poll.cancel()
        await asyncio.wait([it.poll])
        it.consumer.seek(T0, 5)
        it.workers.work()
        again = asyncio.ensure_future(it.consumer.poll(30))
        await begun(it.workers)
        it.workers.work()
        assert offsets(await again)[0] == (0, 5)

    while_opening(two, body)


def test_data_of_a_paused_partition_is_not_left_open(two: FakeCluster) -> None:
    async def body(it: Reading) -> None:
        it.poll.cancel()
        await asyncio.wait([it.poll])
        chunk = it.consumer._core.buffer.next()
        assert isinstance(chunk, Chunk)
        it.consumer.pause(T0)
        it.consumer._core.assign([T0, T1])
        assert offsets(await polled(it.consumer, COUNT)) == [(1, at) for at in range(COUNT)]
        it.workers.work()
        await asyncio.sleep(0)
        assert sum(batch.held for batch in chunk.batches) == 0
        it.consumer.resume(T0)
        again = asyncio.ensure_future(it.consumer.poll(30))
        await begun(it.workers)
        it.workers.work()
        assert offsets(await again)[0] == (0, 0)

    while_opening(two, body)


def test_wakeup_ends_a_poll_that_waits_for_a_worker(two: FakeCluster) -> None:
    async def body(it: Reading) -> None:
        it.consumer.wakeup()
        with pytest.raises(WakeupError):
            await it.poll

    while_opening(two, body)


def test_a_consumer_closes_while_a_batch_is_opened(two: FakeCluster) -> None:
    async def body(it: Reading) -> None:
        it.poll.cancel()
        await asyncio.wait([it.poll])
        await it.consumer.close()
        it.workers.work()
        await asyncio.sleep(0)

    while_opening(two, body)


def test_damage_that_a_worker_finds_is_raised_in_its_place_by_each_poll(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    bad = changed(bomb(1), {"count": 2, "last_offset_delta": 1})
    store(fake_cluster, (bomb(0), 1), (bad, 2))

    async def test() -> None:
        async with AsyncConsumer(**reading(fake_cluster)) as consumer:
            consumer.assign([T0])
            assert offsets(await consumer.poll(30)) == [(0, 0)]
            for _ in range(2):
                with pytest.raises(CorruptRecordError, match="t-0 from offset 1 on"):
                    await consumer.poll(30)
            assert await consumer.position(T0) == 1

    asyncio.run(test())
