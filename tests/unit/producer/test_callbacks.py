"""Where users' callbacks run: on one thread or on the loop, whatever they raise, and none is forgotten."""
from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import logging
import sys
import threading
from collections.abc import Callable

import pytest

from pyclient.buffers.delivery import BatchResult, Delivery
from pyclient.producer.callbacks import LoopObserver, ThreadObserver
from tests.unit.buffers.accumulators import Clock, accumulator
from tests.waiting import eventually

RAISED = "a delivery callback raised; the record's outcome stands"


def batch(observer: LoopObserver) -> tuple[Delivery, BatchResult]:
    """A pending record, and the result of its batch."""
    buffers = accumulator(Clock(), observer=observer)
    orders = buffers.topic("orders")
    assert orders is not None
    delivery = buffers.append(orders, 0, -1, None, b"v", None)
    assert delivery is not None
    (only,) = buffers.flush_open()
    return delivery, only.result


def raising(error: BaseException) -> Callable[[object], None]:
    def callback(_: object) -> None:
        raise error

    return callback


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), ValueError("x")], ids=repr)
def test_P23_whatever_a_callback_raises_the_next_ones_run_on_the_same_thread(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    observer = ThreadObserver("callbacks")
    delivery, result = batch(observer)
    threads: list[str] = []
    delivery.add_done_callback(raising(error))
    delivery.add_done_callback(lambda _: threads.append(threading.current_thread().name))
    result.complete(0)
    observer.close(None)
    assert threads == ["callbacks"]
    assert [record.message for record in caplog.records] == [RAISED]


def test_a_callback_added_while_the_thread_ends_is_run_all_the_same() -> None:
    observer = ThreadObserver("callbacks")
    delivery, result = batch(observer)
    running, go_on, ran = threading.Event(), threading.Event(), threading.Event()
    delivery.add_done_callback(lambda _: running.set())
    delivery.add_done_callback(lambda _: go_on.wait(20))
    result.complete(0)
    assert running.wait(20)
    closing = threading.Thread(target=observer.close, args=(None,))
    closing.start()
    eventually(lambda: observer._work.qsize() == 1)  # the end is in line
    delivery.add_done_callback(lambda _: ran.set())
    go_on.set()
    closing.join()
    assert ran.is_set()


def test_after_the_end_a_callback_runs_at_once_where_it_is_added() -> None:
    observer = ThreadObserver("callbacks")
    delivery, result = batch(observer)
    result.complete(0)
    observer.close(None)
    threads: list[threading.Thread] = []
    delivery.add_done_callback(lambda _: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]
    assert "callbacks" not in {each.name for each in threading.enumerate()}


def test_P23_an_async_callback_that_raises_what_is_no_Exception_hinders_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        delivery, result = batch(LoopObserver())
        seen: list[Delivery] = []
        delivery.add_done_callback(raising(asyncio.CancelledError()))
        delivery.add_done_callback(seen.append)
        assert result.complete(0)
        assert seen == [delivery]

    asyncio.run(test())
    assert [record.message for record in caplog.records] == [RAISED]


def test_an_async_callback_that_ends_the_program_ends_it_through_the_loop_and_not_in_the_middle_of_an_answer() -> None:
    told: list[bool] = []

    async def test() -> None:
        delivery, result = batch(LoopObserver())
        delivery.add_done_callback(lambda _: sys.exit(3))
        told.append(result.complete(0))
        await asyncio.Event().wait()

    with pytest.raises(SystemExit, match="3"):
        asyncio.run(test())
    assert told == [True]


def test_a_callback_of_an_async_producer_that_ends_the_program_where_no_loop_runs_ends_it_there() -> None:
    delivery, result = batch(LoopObserver())
    result.complete(0)
    with pytest.raises(SystemExit, match="3"):
        delivery.add_done_callback(lambda _: sys.exit(3))


def test_awaiting_again_and_again_leaves_nothing_behind() -> None:
    async def test() -> None:
        delivery, result = batch(LoopObserver())
        await impatiently(delivery, 10)
        before = functions()
        await impatiently(delivery, 100)
        assert functions() < before + 50  # each await would leave one; those of earlier tests may go meanwhile
        asyncio.get_running_loop().call_soon(result.complete, 7)
        assert (await delivery).offset == 7

    asyncio.run(test())


async def impatiently(delivery: Delivery, times: int) -> None:
    for _ in range(times):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await delivery


def functions() -> int:
    gc.collect()
    return sum(inspect.isfunction(each) for each in gc.get_objects())


def test_a_callback_that_outlives_the_close_is_named_and_does_its_work(caplog: pytest.LogCaptureFixture) -> None:
    observer = ThreadObserver("callbacks")
    delivery, result = batch(observer)
    go_on, ran = threading.Event(), threading.Event()
    delivery.add_done_callback(lambda _: go_on.wait(20))
    delivery.add_done_callback(lambda _: ran.set())
    result.complete(0)
    with caplog.at_level(logging.WARNING):
        observer.close(0)
    assert "still running" in caplog.text
    go_on.set()
    assert ran.wait(20)
    eventually(lambda: "callbacks" not in {each.name for each in threading.enumerate()})
