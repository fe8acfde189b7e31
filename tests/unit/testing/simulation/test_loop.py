"""The loop with virtual time: what asyncio promises holds, and everything else is decided by the seed."""
from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any

import pytest

from pyclient.testing.simulation.loop import BUSY, BusyLoopError, SimulationLoop, SimulationStuckError


def loop_of(seed: int = 1) -> SimulationLoop:
    return SimulationLoop(Random(seed))  # type: ignore[abstract] # no loop is abstract when it runs


def test_time_moves_only_when_nothing_can_run_and_then_to_the_next_timer() -> None:
    loop, seen = loop_of(), list[float]()

    async def main() -> None:
        for seconds in (0, 3600, 0.25):
            await asyncio.sleep(seconds)
            seen.append(loop.time())

    began = time.perf_counter()
    loop.run_until_complete(main())
    assert seen == [0.0, 3600.0, 3600.25]
    assert time.perf_counter() - began < 60  # an hour has passed in it


def test_timers_of_one_instant_run_in_an_order_that_only_the_seed_decides() -> None:
    def order(seed: int) -> list[int]:
        loop, ran = loop_of(seed), list[int]()
        for number in range(6):
            loop.call_later(1.0, ran.append, number)
        loop.run_forever()
        return ran

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(20)}) > 10


def test_callbacks_of_one_origin_keep_their_order() -> None:
    for seed in range(50):
        loop, ran = loop_of(seed), list[int]()

        def schedule(loop: SimulationLoop, ran: list[int]) -> None:
            for number in range(5):
                loop.call_soon(ran.append, number)

        loop.call_soon(schedule, loop, ran)
        loop.run_forever()
        assert ran == list(range(5))


def test_callbacks_of_different_origins_may_overtake_each_other() -> None:
    def order(seed: int) -> tuple[int, ...]:
        loop, ran = loop_of(seed), list[int]()

        def schedule(number: int) -> None:
            loop.call_soon(ran.append, number)

        for number in range(4):
            loop.call_at(1.0, schedule, number)
        loop.run_forever()
        return tuple(ran)

    assert len({order(seed) for seed in range(50)}) > 10


def test_a_cancelled_callback_does_not_run() -> None:
    loop, ran = loop_of(), list[str]()
    loop.call_soon(ran.append, "soon").cancel()
    loop.call_later(1.0, ran.append, "later").cancel()
    loop.run_forever()
    assert ran == []


def test_timeouts_locks_queues_and_task_groups_of_asyncio_work() -> None:
    async def main() -> list[Any]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        lock, got = asyncio.Lock(), list[Any]()

        async def put() -> None:
            for number in range(5):
                await asyncio.sleep(1)
                await queue.put(number)

        async def get() -> None:
            for _ in range(5):
                async with lock:
                    got.append(await queue.get())

        async with asyncio.TaskGroup() as group:
            group.create_task(put())
            group.create_task(get())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.sleep(11)
        return [*got, asyncio.get_running_loop().time(), await asyncio.to_thread(lambda: "worked")]

    for seed in range(20):
        assert loop_of(seed).run_until_complete(main()) == [0, 1, 2, 3, 4, 15.0, "worked"]


def test_waiting_for_what_can_never_happen_is_an_error_at_once() -> None:
    loop = loop_of()
    with pytest.raises(SimulationStuckError, match="still waits"):
        loop.run_until_complete(loop.create_future())


def test_a_loop_that_schedules_itself_without_end_is_found() -> None:
    loop = loop_of()

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(BusyLoopError, match=str(BUSY)):
        loop.run_forever()


def test_an_unobserved_failure_is_kept() -> None:
    loop = loop_of()
    loop.call_soon(lambda: 1 / 0)
    loop.run_forever()
    assert isinstance(loop.defects[0]["exception"], ZeroDivisionError)


def test_a_simulation_inside_a_running_loop_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="inside a running event loop"):
            loop_of().run_forever()

    asyncio.run(main())
