"""One call at a time, at each moment of it; `tests/threads/test_interrupts.py` has what Ctrl-C ends."""
from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from pyclient.consumer.single_user import SingleUser
from pyclient.errors import ConcurrentUseError

DEPTH: Final = 100
TRIES: Final = 50_000


@pytest.fixture
def user() -> SingleUser:
    return SingleUser(lambda: None, threading.get_ident)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def steps(depth: int, ended: threading.Event) -> Iterator[None]:
    """Generators inside each other, as in a poll: each yield takes all their frames off the stack."""
    if depth:
        yield from steps(depth - 1, ended)
    while not ended.is_set():
        yield


@pytest.mark.usefixtures("restless")
def test_a_call_that_runs_generators_is_under_way_at_each_moment(user: SingleUser) -> None:
    began, ended = threading.Event(), threading.Event()

    def poll() -> None:
        with user.outside_listeners:
            began.set()
            for _ in steps(DEPTH, ended):
                pass

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert began.wait(30)
        for _ in range(TRIES):
            try:
                with user.outside_listeners:
                    raise AssertionError("two calls at once")
            except ConcurrentUseError:
                pass
    finally:
        ended.set()
        thread.join()
    assert not user.taken()
