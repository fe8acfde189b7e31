"""Ctrl-C before any byte code of a call into a loop: the loop goes on, and the next call works."""
from __future__ import annotations

import asyncio
import threading

import pytest

from pyclient.held_lock import Held
from pyclient.runtime.loop_thread import Portal
from tests.interrupted_at import interrupted_at


# Ctrl-C in what the garbage collector calls is printed; a coroutine that nothing awaits would be printed too.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <function WeakSet:pytest.PytestUnraisableExceptionWarning")


async def one() -> int:
    return 1


def works(portal: Portal) -> bool:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(portal.call(one)), daemon=True)
    thread.start()
    thread.join(20)
    return found == [1]


def test_ctrl_c_at_any_byte_code_of_a_call_leaves_a_loop_that_takes_the_next_one() -> None:
    portal, number = Portal("portal"), 1
    while interrupted_at(number, lambda: portal.call(one)):
        assert works(portal), f"byte code {number}"
        number += 1
    assert number > 50
    portal.stop()


def test_a_call_that_ctrl_c_ended_does_nothing_behind_the_next_one() -> None:
    portal, number, going_on = Portal("portal"), 1, True
    did: list[str] = []

    async def work() -> None:
        did.append("began")
        try:
            for _ in range(20):
                await asyncio.sleep(0)
        finally:
            did.append("ended")

    while going_on:
        going_on = interrupted_at(number, lambda: portal.call(work))
        before = list(did)
        portal.call(one)
        assert did == before, f"byte code {number}"
        number += 1
    portal.stop()


def test_ctrl_c_at_any_byte_code_of_an_end_is_made_up_for_by_the_next_end() -> None:
    number, going_on = 1, True
    while going_on:
        portal = Portal("portal")
        going_on = interrupted_at(number, lambda portal=portal: portal.end(one))  # type: ignore[misc]
        portal.end(one)
        assert portal.join(0), f"byte code {number}"
        number += 7  # each has a thread of its own
    assert number > 50


def test_ctrl_c_at_any_byte_code_around_a_block_does_not_leave_its_lock_held() -> None:
    lock, number = threading.Lock(), 1

    def block() -> None:
        with Held(lock):
            assert lock.locked()

    while interrupted_at(number, block):
        assert not lock.locked(), f"byte code {number}"
        number += 1
    assert number > 5


def test_a_lock_that_another_one_holds_is_not_held_after_the_timeout_and_stays_with_the_other() -> None:
    lock = threading.Lock()
    lock.acquire()
    for timeout in (0, 0.001):
        with Held(lock, timeout) as held:
            assert not held
        assert lock.locked()
