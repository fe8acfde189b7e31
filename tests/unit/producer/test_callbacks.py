"""Delivery callbacks run on one thread or on the loop, each once, also when another one raises."""
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
from tests.reactors import idle_portal

RAISED = "a delivery callback raised; the delivery itself is unaffected"


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
def test_P23_after_a_callback_that_raises_the_next_ones_run_on_the_same_thread(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    observer = ThreadObserver("callbacks", idle_portal().reactor)
    delivery, result = batch(observer)
    threads: list[str] = []
    delivery.add_done_callback(raising(error))
    delivery.add_done_callback(lambda _: threads.append(threading.current_thread().name))
    result.complete(0)
    observer.close(None)
    assert threads == ["callbacks"]
    assert [record.message for record in caplog.records] == [RAISED]


def test_a_callback_added_while_the_thread_ends_still_runs() -> None:
    observer = ThreadObserver("callbacks", idle_portal().reactor)
    delivery, result = batch(observer)
    running, go_on, ran = threading.Event(), threading.Event(), threading.Event()
    delivery.add_done_callback(lambda _: running.set())
    delivery.add_done_callback(lambda _: go_on.wait(20))
    result.complete(0)
    assert running.wait(20)
    closing = threading.Thread(target=observer.close, args=(None,))
    closing.start()
    eventually(lambda: observer._work.qsize() == 1)  # the end is queued
    delivery.add_done_callback(lambda _: ran.set())
    go_on.set()
    closing.join()
    assert ran.is_set()


def test_after_close_a_callback_runs_at_once_in_the_thread_that_adds_it() -> None:
    observer = ThreadObserver("callbacks", idle_portal().reactor)
    delivery, result = batch(observer)
    result.complete(0)
    observer.close(None)
    threads: list[threading.Thread] = []
    delivery.add_done_callback(lambda _: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]
    assert "callbacks" not in {each.name for each in threading.enumerate()}


def test_P23_an_async_callback_that_raises_a_BaseException_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        delivery, result = batch(LoopObserver())
        seen: list[Delivery] = []
        delivery.add_done_callback(raising(asyncio.CancelledError()))
        delivery.add_done_callback(seen.append)
        assert result.complete(0)
        await asyncio.sleep(0)
        assert seen == [delivery]

    asyncio.run(test())
    assert [record.message for record in caplog.records] == [RAISED]


def test_SystemExit_of_an_async_callback_is_raised_by_the_loop_after_the_response_was_handled() -> None:
    completed: list[bool] = []

    async def test() -> None:
        delivery, result = batch(LoopObserver())
        delivery.add_done_callback(lambda _: sys.exit(3))
        completed.append(result.complete(0))
        await asyncio.Event().wait()

    with pytest.raises(SystemExit, match="3"):
        asyncio.run(test())
    assert completed == [True]


def test_SystemExit_of_an_async_callback_added_outside_of_a_loop_is_raised_there() -> None:
    delivery, result = batch(LoopObserver())
    result.complete(0)
    with pytest.raises(SystemExit, match="3"):
        delivery.add_done_callback(lambda _: sys.exit(3))


def test_awaiting_a_delivery_repeatedly_leaks_no_callbacks() -> None:
    async def test() -> None:
        delivery, result = batch(LoopObserver())
        await await_without_time(delivery, 10)
        before = functions()
        await await_without_time(delivery, 100)
        assert functions() < before + 50  # each await would leak one; functions of earlier tests may be freed meanwhile
        asyncio.get_running_loop().call_soon(result.complete, 7)
        assert (await delivery).offset == 7

    asyncio.run(test())


async def await_without_time(delivery: Delivery, times: int) -> None:
    for _ in range(times):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await delivery


def functions() -> int:
    gc.collect()
    return sum(inspect.isfunction(each) for each in gc.get_objects())


def test_close_warns_about_a_callback_that_still_runs_and_lets_it_finish(caplog: pytest.LogCaptureFixture) -> None:
    observer = ThreadObserver("callbacks", idle_portal().reactor)
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
