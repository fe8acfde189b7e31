"""A lock that Ctrl-C leaves free, wherever it comes."""
from __future__ import annotations

import threading

from pyclient.held_lock import Held
from tests.interrupted_at import interrupted_at


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
