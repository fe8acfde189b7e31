"""The compiled way in: what it takes is what the long way would have made of it; what it does not take, it leaves untouched."""
from __future__ import annotations

import asyncio
import inspect
import sys
import time
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
from pyclient.buffers.fast_send import AsyncSending, Entrance
from pyclient.codec.compression import Compression
from pyclient.config import ProducerConfig
from pyclient.errors import ClientClosedError, RecordTooLargeError
from pyclient.producer.core import Router
from tests.unit.buffers.accumulators import Clock, accumulator, offered

PARTITIONS = 7
SIMPLE: dict[str, Any] = {"topic": "orders", "value": b"v", "key": None, "partition": None, "timestamp": None, "headers": (), "on_delivery": None}


class Text(str):
    """Equal to its text, and yet something else."""

    __slots__ = ()


class Bytes(bytes):
    """A user's own bytes."""


NOT_SIMPLE: list[dict[str, Any]] = [
    {"topic": "unknown"}, {"topic": Text("orders")}, {"topic": b"orders"}, {"topic": None},
    {"value": "text"}, {"value": bytearray(b"v")}, {"value": memoryview(b"v")}, {"value": Bytes(b"v")}, {"value": 1},
    {"key": "text"}, {"key": bytearray(b"k")}, {"key": Bytes(b"k")},
    {"partition": 4}, {"partition": -1}, {"partition": True}, {"partition": 1.0}, {"partition": 2**80}, {"partition": "1"},
    {"timestamp": -1}, {"timestamp": 2**63}, {"timestamp": 2**90}, {"timestamp": True}, {"timestamp": 1.5}, {"timestamp": "now"},
    {"headers": (("h", b"1"),)}, {"headers": [("h", b"1")]}, {"headers": []}, {"headers": {"h": b"1"}},
]


def entrance(buffers: Accumulator, partitioner: str | None = None, **options: object) -> Entrance:
    made = Router(ProducerConfig.parse({}, {"bootstrap_servers": "localhost:1", "partitioner": partitioner, **options})).entrance(buffers)
    assert made is not None
    return made


def offer(way: Entrance, **changes: Any) -> Any:
    return offered(way, **{**SIMPLE, **changes})


@pytest.mark.parametrize("changes", NOT_SIMPLE, ids=[f"{number} {name} {type(value).__name__}" for number, each in enumerate(NOT_SIMPLE) for name, value in each.items()])
def test_what_is_not_simple_is_left_to_others_untouched(changes: dict[str, Any]) -> None:
    buffers = accumulator(Clock())
    assert offer(entrance(buffers), **changes) is None
    assert buffers.unsettled == 0
    assert buffers.pool.used == 0


@given(key=st.none() | st.binary(max_size=20), value=st.none() | st.binary(max_size=60), partition=st.none() | st.integers(0, PARTITIONS - 1),
       timestamp=st.none() | st.integers(0, 2**63 - 1), options=st.sampled_from([{}, {"partitioner": "fnv1a"}, {"partitioner": "murmur2"}, {"partitioner_ignore_keys": True}]))
def test_P30_what_it_takes_goes_where_the_partitioner_says_and_is_written_the_same(
    key: bytes | None, value: bytes | None, partition: int | None, timestamp: int | None, options: dict[str, Any],
) -> None:
    ours, theirs = accumulator(Clock(), partitions=PARTITIONS), accumulator(Clock(), partitions=PARTITIONS)
    router = Router(ProducerConfig.parse({}, {"bootstrap_servers": "localhost:1", **options}))
    delivery = offer(entrance(ours, **options), key=key, value=value, partition=partition, timestamp=timestamp)
    queues = theirs.topic("orders")
    assert queues is not None
    if delivery is None:
        assert router.key_hash() is None  # it runs as plain Python, and is asked itself
        return
    other = theirs.append(queues, router.partition(queues, key, value, partition), -1 if timestamp is None else timestamp, key, value, None)
    assert other is not None
    assert delivery.partition == other.partition
    ours_sealed, theirs_sealed = (_sealed(each) for each in (ours, theirs))
    assert ours_sealed == theirs_sealed


def _sealed(buffers: Accumulator) -> list[bytes]:
    (batch,) = buffers.hurry()
    (queue,) = buffers.take_ready(1000.0)
    assert buffers.head(queue) is batch
    buffers.seal(batch)
    return [bytes(piece) for piece in batch.pieces()]


def test_callbacks_are_added_before_anybody_can_append_behind() -> None:
    buffers = accumulator(Clock())
    told: list[object] = []
    delivery = offer(entrance(buffers), on_delivery=told.append)
    (batch,) = buffers.hurry()
    batch.result.complete(5)
    assert told == [delivery]


def test_without_memory_it_leaves_the_record_to_who_can_wait() -> None:
    buffers = accumulator(Clock(), memory=40_000, batch_size=16_384)
    way = entrance(buffers)
    taken = 0
    while offer(way, value=b"x" * 1000) is not None:
        taken += 1
    assert 20 < taken == buffers.unsettled


def test_what_can_never_fit_is_refused_here_and_now() -> None:
    with pytest.raises(RecordTooLargeError):
        offer(entrance(accumulator(Clock(), max_request_size=5000)), value=b"x" * 6000)


def test_a_closed_accumulator_refuses_here_too() -> None:
    buffers = accumulator(Clock())
    way = entrance(buffers)
    buffers.close()
    with pytest.raises(ClientClosedError):
        offer(way)


def test_after_a_fork_no_lock_is_touched() -> None:
    buffers = accumulator(Clock())
    way = entrance(buffers)
    way.closed = True
    buffers.close()  # who asked it would be told so
    assert offer(way) is None


class AsyncWay(AsyncSending):
    """An async producer reduced to its `send`; what is not simple ends in `_send`."""

    def __init__(self, way: Entrance) -> None:
        self._entrance = way

    async def _send(self, *_record: object) -> str:
        return "the long way"


class Foreign(asyncio.SelectorEventLoop):
    """A loop that does not note its thread where asyncio's own do."""

    _thread_id = property(lambda _self: None, lambda _self, _thread: None)

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self


@pytest.mark.parametrize("make", [asyncio.SelectorEventLoop, Foreign])
def test_a_bound_one_takes_records_in_its_thread_while_its_loop_runs(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    buffers = accumulator(Clock())
    way = AsyncWay(entrance(buffers))

    async def send() -> object:
        return await way.send(**SIMPLE)

    async def main() -> object:
        assert await send() == "the long way", "not bound yet"
        assert way._entrance is not None
        way._entrance.bind(asyncio.get_running_loop())
        assert await asyncio.to_thread(asyncio.run, send()) == "the long way", "in another thread and another loop"
        return await send()

    loop = make()
    try:
        assert isinstance(loop.run_until_complete(main()), Delivery)
        assert asyncio.run(send()) == "the long way", "in this thread, but in another loop"
    finally:
        loop.close()
    assert buffers.unsettled == 1


def queued(buffers: Accumulator, **changes: Any) -> Coroutine[Any, Any, Delivery]:
    """What ``send`` gives inside the loop."""
    way = AsyncWay(entrance(buffers))

    async def main() -> Coroutine[Any, Any, Delivery]:
        assert way._entrance is not None
        way._entrance.bind(asyncio.get_running_loop())
        return way.send(**{**SIMPLE, **changes})

    return asyncio.run(main())


def test_what_async_send_gives_can_be_used_wherever_a_coroutine_can() -> None:
    buffers = accumulator(Clock())

    async def main() -> list[Delivery]:
        way = AsyncWay(entrance(buffers))
        assert way._entrance is not None
        way._entrance.bind(asyncio.get_running_loop())
        each = [way.send(**SIMPLE) for _ in range(4)]
        assert all(map(asyncio.iscoroutine, each))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(each[0])
        return [task.result(), await asyncio.wait_for(each[1], 5), *await asyncio.gather(each[2], each[3])]

    found = asyncio.run(main())
    assert len({id(one) for one in found}) == 4
    assert all(isinstance(one, Delivery) for one in found)
    assert buffers.unsettled == 4


def test_no_simple_record_overtakes_one_whose_coroutine_was_made_before_it_and_has_yet_to_begin() -> None:
    buffers = accumulator(Clock())
    begun: list[object] = []

    class Ordered(AsyncWay):
        async def _send(self, *record: object) -> str:
            begun.append(record[1])
            return "the long way"

    async def main() -> None:
        way = Ordered(entrance(buffers))
        assert way._entrance is not None
        way._entrance.bind(asyncio.get_running_loop())
        async with asyncio.TaskGroup() as group:
            group.create_task(way.send("orders", b"1", headers=(("h", b""),)))
            group.create_task(way.send("orders", b"2"))
        assert begun == [b"1", b"2"]
        assert isinstance(await way.send("orders", b"3"), Delivery), "those before it have begun"
        task = asyncio.get_running_loop().create_task(way.send("orders", b"4", headers=(("h", b""),)))
        task.cancel()
        await asyncio.wait([task])
        assert isinstance(await way.send("orders", b"5"), Delivery), "the one before it never will"
        assert begun == [b"1", b"2"]

    asyncio.run(main())


def test_where_no_record_is_simple_nothing_is_kept_of_those_that_were_sent() -> None:
    class NeverSimple(AsyncSending):
        _entrance = None

        async def _send(self, *_record: object) -> None:
            pass

    coroutine = NeverSimple().send("orders", b"v")
    assert weakref.getweakrefcount(coroutine) == 0
    coroutine.close()


def test_it_ends_for_those_too_who_drive_coroutines_by_hand_and_under_a_profiler() -> None:
    buffers = accumulator(Clock())
    with pytest.raises(StopIteration) as ended:
        queued(buffers).send(None)
    assert isinstance(ended.value.value, Delivery)
    with pytest.raises(ZeroDivisionError):
        queued(buffers).throw(ZeroDivisionError())
    queued(buffers).close()

    async def main() -> Delivery:
        return await queued_here

    queued_here = queued(buffers)
    sys.setprofile(lambda *_: None)
    try:
        assert isinstance(asyncio.run(main()), Delivery)
    finally:
        sys.setprofile(None)


def test_a_record_whose_send_nobody_awaits_is_queued_and_the_forgotten_await_is_warned_of() -> None:
    buffers = accumulator(Clock())
    forgotten = [queued(buffers)]
    with pytest.warns(RuntimeWarning, match="never awaited"):
        forgotten.clear()
    assert buffers.unsettled == 1


def test_what_a_record_is_refused_for_is_raised_where_it_is_awaited() -> None:
    buffers = accumulator(Clock())
    refused = queued(buffers, value=b"x" * 2_000_000)

    async def main() -> Any:
        return await refused

    assert asyncio.run(main()) == "the long way", "which raises it"
    assert buffers.unsettled == 0


@pytest.mark.parametrize("options", [{"value_serializer": "string"}, {"key_serializer": "string"}])
def test_with_a_serializer_no_record_is_simple(options: dict[str, Any]) -> None:
    assert Router(ProducerConfig.parse({}, {"bootstrap_servers": "localhost:1", **options})).entrance(accumulator(Clock())) is None


def test_a_partitioner_in_python_is_asked_for_every_record_without_a_partition() -> None:
    buffers = accumulator(Clock())
    way = Entrance(buffers, ignore_keys=False, keyless_stick=False)
    assert offer(way, key=b"k") is None
    assert offer(way) is None
    assert offer(way, partition=3) is not None


def test_the_systems_clock_is_read_where_no_other_is_given() -> None:
    buffers = Accumulator(memory=1_000_000, batch_size=16_384, max_request_size=1_000_000, linger=0.0, compression=Compression.NONE, level=None,
                          observer=Observer(), clock=Clock(), wall=None, random=Random(1))
    buffers.set_topic("orders", 1, range(1))
    before = time.time_ns() // 1_000_000
    offer(entrance(buffers))
    (batch,) = buffers.hurry()
    assert before <= batch.max_timestamp <= time.time_ns() // 1_000_000


def test_send_has_one_signature_and_one_text_in_both_producers() -> None:
    sync, asynchronous = (list(inspect.signature(each.send).parameters) for each in (Producer, AsyncProducer))
    assert sync == asynchronous == ["self", "topic", "value", "key", "partition", "timestamp", "headers", "on_delivery"]
    assert "BufferExhaustedError" in (Producer.send.__doc__ or "")
