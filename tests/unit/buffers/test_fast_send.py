"""The compiled path of send appends what the slow path would, and changes nothing for a record it refuses."""
from __future__ import annotations

import asyncio
import inspect
import sys
import time
import unittest.mock
import weakref
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import AsyncProducer, Producer
from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.delivery import Delivery, Observer
from pyclient.buffers.fast_send import AsyncFastSend, SendPath, async_fast_send
from pyclient.codec.compression import Compression
from pyclient.config import ProducerConfig
from pyclient.errors import ClientClosedError, RecordTooLargeError
from pyclient.producer.routing import Router
from tests.unit.buffers.accumulators import Clock, accumulator, fast_append

PARTITIONS = 7
SIMPLE: dict[str, Any] = {"topic": "orders", "value": b"v", "key": None, "partition": None, "timestamp": None, "headers": (), "on_delivery": None}


class Text(str):
    """A subclass of str, equal to its text."""

    __slots__ = ()


class Bytes(bytes):
    """A subclass of bytes."""


NOT_SIMPLE: list[dict[str, Any]] = [
    {"topic": "unknown"}, {"topic": Text("orders")}, {"topic": b"orders"}, {"topic": None},
    {"value": "text"}, {"value": bytearray(b"v")}, {"value": memoryview(b"v")}, {"value": Bytes(b"v")}, {"value": 1},
    {"key": "text"}, {"key": bytearray(b"k")}, {"key": Bytes(b"k")},
    {"partition": 4}, {"partition": -1}, {"partition": True}, {"partition": 1.0}, {"partition": 2**80}, {"partition": "1"},
    {"timestamp": -1}, {"timestamp": 2**63}, {"timestamp": 2**90}, {"timestamp": True}, {"timestamp": 1.5}, {"timestamp": "now"},
    {"headers": (("h", b"1"),)}, {"headers": [("h", b"1")]}, {"headers": []}, {"headers": {"h": b"1"}},
]


def send_path(buffers: Accumulator, partitioner: str | None = None, **options: object) -> SendPath:
    made = Router(ProducerConfig.parse({}, {"bootstrap_servers": "localhost:1", "partitioner": partitioner, **options})).send_path(buffers)
    assert made is not None
    return made


def offer(path: SendPath, **changes: Any) -> Any:
    return fast_append(path, **{**SIMPLE, **changes})


NOT_SIMPLE_IDS = [f"{number} {name} {type(value).__name__}" for number, each in enumerate(NOT_SIMPLE) for name, value in each.items()]


@pytest.mark.parametrize("changes", NOT_SIMPLE, ids=NOT_SIMPLE_IDS)
def test_a_record_that_is_not_simple_is_not_appended_and_takes_no_memory(changes: dict[str, Any]) -> None:
    buffers = accumulator(Clock())
    assert offer(send_path(buffers), **changes) is None
    assert buffers.unsettled == 0
    assert buffers.pool.used == 0


@given(key=st.none() | st.binary(max_size=20), value=st.none() | st.binary(max_size=60), partition=st.none() | st.integers(0, PARTITIONS - 1),
       timestamp=st.none() | st.integers(0, 2**63 - 1),
       options=st.sampled_from([{}, {"partitioner": "fnv1a"}, {"partitioner": "murmur2"}, {"partitioner_ignore_keys": True}]))
def test_P30_the_fast_path_chooses_the_partitioners_partition_and_writes_the_same_bytes(
    key: bytes | None, value: bytes | None, partition: int | None, timestamp: int | None, options: dict[str, Any],
) -> None:
    ours, theirs = accumulator(Clock(), partitions=PARTITIONS), accumulator(Clock(), partitions=PARTITIONS)
    router = Router(ProducerConfig.parse({}, {"bootstrap_servers": "localhost:1", **options}))
    delivery = offer(send_path(ours, **options), key=key, value=value, partition=partition, timestamp=timestamp)
    queues = theirs.topic("orders")
    assert queues is not None
    if delivery is None:
        assert router.key_hash is None  # the partitioner runs as plain Python, without a C hash
        return
    other = theirs.append(queues, router.partition(queues, key, value, partition), -1 if timestamp is None else timestamp, key, value, None)
    assert other is not None
    assert delivery.partition == other.partition
    ours_sealed, theirs_sealed = (_sealed(each) for each in (ours, theirs))
    assert ours_sealed == theirs_sealed


def _sealed(buffers: Accumulator) -> list[bytes]:
    (batch,) = buffers.flush_open()
    (queue,) = buffers.take_ready(1000.0)
    assert buffers.head(queue) is batch
    buffers.seal(batch)
    return [bytes(piece) for piece in batch.pieces()]


def test_on_delivery_runs_when_the_batch_is_completed() -> None:
    buffers = accumulator(Clock())
    called: list[object] = []
    delivery = offer(send_path(buffers), on_delivery=called.append)
    (batch,) = buffers.flush_open()
    batch.result.complete(5)
    assert called == [delivery]


def test_without_memory_the_record_is_left_to_the_slow_path_which_can_wait() -> None:
    buffers = accumulator(Clock(), memory=40_000, batch_size=16_384)
    path = send_path(buffers)
    taken = 0
    while offer(path, value=b"x" * 1000) is not None:
        taken += 1
    assert 20 < taken == buffers.unsettled


def test_a_record_that_can_never_fit_raises_at_once() -> None:
    with pytest.raises(RecordTooLargeError):
        offer(send_path(accumulator(Clock(), max_request_size=5000)), value=b"x" * 6000)


def test_a_closed_accumulator_raises() -> None:
    buffers = accumulator(Clock())
    path = send_path(buffers)
    buffers.close()
    with pytest.raises(ClientClosedError):
        offer(path)


def test_after_a_fork_the_accumulator_and_its_lock_are_not_touched() -> None:
    buffers = accumulator(Clock())
    path = send_path(buffers)
    path.closed = True
    buffers.close()  # a call of it would raise
    assert offer(path) is None


SLOW = "slow path"


class AsyncSender(AsyncFastSend):
    """An async producer reduced to its `send`; the slow path notes the record's value and returns `SLOW`."""

    def __init__(self, path: SendPath | None) -> None:
        self._send_path = path
        self.slow: list[object] = []

    def bind(self) -> AsyncSender:
        assert self._send_path is not None
        self._send_path.bind(asyncio.get_running_loop())
        return self

    @async_fast_send
    async def send(self, topic: object, value: object = None, key: object = None, **_others: object) -> Any:
        self.slow.append(value)
        await asyncio.sleep(0)
        return SLOW


class ForeignLoop(asyncio.SelectorEventLoop):
    """A loop without asyncio's `_thread_id`, as uvloop's."""

    _thread_id = property(lambda _self: None, lambda _self, _thread: None)

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self


@pytest.mark.parametrize("make", [asyncio.SelectorEventLoop, ForeignLoop])
def test_the_fast_path_is_used_only_on_the_bound_loop(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    buffers = accumulator(Clock())
    producer = AsyncSender(send_path(buffers))

    async def send() -> object:
        return await producer.send(**SIMPLE)

    async def main() -> object:
        assert await send() == SLOW, "not bound yet"
        producer.bind()
        assert await asyncio.to_thread(asyncio.run, send()) == SLOW, "in another thread and another loop"
        return await send()

    loop = make()
    try:
        assert isinstance(loop.run_until_complete(main()), Delivery)
        assert asyncio.run(send()) == SLOW, "in this thread, but in another loop"
    finally:
        loop.close()
    assert buffers.unsettled == 1


def completed_send(buffers: Accumulator, **changes: Any) -> Coroutine[Any, Any, Delivery]:
    """What ``send`` returns inside the loop."""
    async def main() -> Coroutine[Any, Any, Delivery]:
        return AsyncSender(send_path(buffers)).bind().send(**{**SIMPLE, **changes})

    return asyncio.run(main())


def test_the_result_of_async_send_works_as_a_coroutine_in_tasks_wait_for_and_gather() -> None:
    buffers = accumulator(Clock())

    async def main() -> list[Delivery]:
        producer = AsyncSender(send_path(buffers)).bind()
        each = [producer.send(**SIMPLE) for _ in range(4)]
        assert all(map(asyncio.iscoroutine, each))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(each[0])
        return [task.result(), await asyncio.wait_for(each[1], 5), *await asyncio.gather(each[2], each[3])]

    found = asyncio.run(main())
    assert len({id(one) for one in found}) == 4
    assert all(isinstance(one, Delivery) for one in found)
    assert buffers.unsettled == 4


def test_no_simple_record_overtakes_an_earlier_one_whose_coroutine_has_not_ended() -> None:
    async def main() -> None:
        producer = AsyncSender(send_path(accumulator(Clock()))).bind()
        async with asyncio.TaskGroup() as group:
            group.create_task(producer.send("orders", b"1", headers=(("h", b""),)))
            await asyncio.sleep(0)
            group.create_task(producer.send("orders", b"2"))
        assert producer.slow == [b"1", b"2"], "the first one waited"
        assert isinstance(await producer.send("orders", b"3"), Delivery), "the earlier ones have ended"
        task = asyncio.get_running_loop().create_task(producer.send("orders", b"4", headers=(("h", b""),)))
        task.cancel()
        await asyncio.wait([task])
        assert isinstance(await producer.send("orders", b"5"), Delivery), "the earlier one was cancelled and will not start"
        assert producer.slow == [b"1", b"2"]

    asyncio.run(main())


def test_without_a_fast_path_no_reference_to_coroutines_is_kept() -> None:
    coroutine = AsyncSender(None).send("orders", b"v")
    assert weakref.getweakrefcount(coroutine) == 0
    coroutine.close()


def test_the_completed_coroutine_can_be_driven_by_hand_and_under_a_profiler() -> None:
    buffers = accumulator(Clock())
    with pytest.raises(StopIteration) as ended:
        completed_send(buffers).send(None)
    assert isinstance(ended.value.value, Delivery)
    with pytest.raises(ZeroDivisionError):
        completed_send(buffers).throw(ZeroDivisionError())
    completed_send(buffers).close()

    async def main() -> Delivery:
        return await pending

    pending = completed_send(buffers)
    sys.setprofile(lambda *_: None)
    try:
        assert isinstance(asyncio.run(main()), Delivery)
    finally:
        sys.setprofile(None)


def test_without_await_the_record_is_queued_and_a_RuntimeWarning_names_the_missing_await() -> None:
    buffers = accumulator(Clock())
    forgotten = [completed_send(buffers)]
    with pytest.warns(RuntimeWarning, match="never awaited"):
        forgotten.clear()
    assert buffers.unsettled == 1


def test_an_error_of_the_fast_path_is_left_to_the_slow_path_which_raises_it_where_it_is_awaited() -> None:
    buffers = accumulator(Clock())
    too_large = completed_send(buffers, value=b"x" * 2_000_000)

    async def main() -> Any:
        return await too_large

    assert asyncio.run(main()) == SLOW
    assert buffers.unsettled == 0


@pytest.mark.parametrize("options", [{"value_serializer": "string"}, {"key_serializer": "string"}])
def test_a_producer_with_a_serializer_has_no_fast_path(options: dict[str, Any]) -> None:
    assert Router(ProducerConfig.parse({}, {"bootstrap_servers": "localhost:1", **options})).send_path(accumulator(Clock())) is None


def test_without_a_C_hash_only_records_with_a_partition_are_simple() -> None:
    buffers = accumulator(Clock())
    path = SendPath(buffers, ignore_keys=False, keyless_sticky=False)
    assert offer(path, key=b"k") is None
    assert offer(path) is None
    assert offer(path, partition=3) is not None


def test_the_system_clock_stamps_records_when_no_wall_clock_is_given() -> None:
    buffers = Accumulator(memory=1_000_000, batch_size=16_384, max_request_size=1_000_000, linger=0.0, compression=Compression.NONE, level=None,
                          observer=Observer(), clock=Clock(), wall=None, random=Random(1))
    buffers.set_topic("orders", 1, range(1))
    before = time.time_ns() // 1_000_000
    offer(send_path(buffers))
    (batch,) = buffers.flush_open()
    assert before <= batch.max_timestamp <= time.time_ns() // 1_000_000


def test_both_producers_declare_send_with_types_and_docstring_in_the_facade() -> None:
    sync, asynchronous = (inspect.signature(each.send) for each in (Producer, AsyncProducer))
    assert list(sync.parameters) == ["self", "topic", "value", "key", "partition", "timestamp", "headers", "on_delivery"]
    assert sync == asynchronous
    assert sync.return_annotation == "Delivery"
    assert "BufferExhaustedError" in (Producer.send.__doc__ or "")
    assert Producer.send.__qualname__ == "Producer.send"
    assert "def send(self, topic: str" in inspect.getsource(Producer.send)


def test_async_send_is_a_coroutine_function_to_inspect_and_mock() -> None:
    is_coroutine_function = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else asyncio.iscoroutinefunction
    assert is_coroutine_function(AsyncProducer.send)
    assert isinstance(unittest.mock.create_autospec(AsyncProducer).send, unittest.mock.AsyncMock)


def test_wrong_arguments_raise_a_TypeError_that_names_send() -> None:
    with pytest.raises(TypeError, match=r"^send\(\)"):
        Producer.send()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Producer.send(object(), "orders")  # type: ignore[arg-type]
