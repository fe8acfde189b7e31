"""Signals, and exceptions of other threads, that come while a step runs interpreted code: once, and when it is over."""
from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pyclient.reactor.deferred_exceptions import DeferredExceptions
from pyclient.reactor.reactor import Reactor
from tests.forks import fork
from tests.interrupted_at import interrupted_at
from tests.raised_into import Interrupt, raise_into
from tests.unit.reactor.test_reactor_order import Clock, NotedPoller

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
holds_exceptions = pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="free-threaded builds hold none")
USED = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT] if sys.platform != "win32" else []


@pytest.fixture
def seen() -> Iterator[list[int]]:
    """Signals whose handlers have run; SIGINT's raises besides."""
    found: list[int] = []

    def handler(number: int, _frame: object) -> None:
        found.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    before = [(number, signal.signal(number, handler)) for number in USED]
    yield found
    for number, each in before:
        signal.signal(number, each)


def handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in USED}


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def usr1() -> None:
    signal.raise_signal(signal.SIGUSR1)


# ---- signals --------------------------------------------------------------------------------------------------------


def test_a_signals_handler_runs_once_and_at_the_release(seen: list[int]) -> None:
    deferred, before = DeferredExceptions(), handlers()
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR2)
    step()
    assert not seen
    deferred.release()
    assert seen == [signal.SIGUSR1, signal.SIGUSR2]
    assert handlers() == before
    DeferredExceptions().release()
    assert len(seen) == 2


def test_all_that_came_is_handled_although_one_handler_raises(seen: list[int]) -> None:
    deferred = DeferredExceptions()
    for number in USED:
        signal.raise_signal(number)
    with pytest.raises(KeyboardInterrupt):
        deferred.release()
    assert sorted(seen) == sorted(USED)


def test_a_handler_that_was_set_meanwhile_is_the_one_that_runs(seen: list[int]) -> None:
    deferred, other = DeferredExceptions(), []
    deferred.release()
    signal.signal(signal.SIGUSR1, lambda *_: other.append(True))
    deferred = DeferredExceptions()
    signal.raise_signal(signal.SIGUSR1)
    deferred.release()
    assert (seen, other) == ([], [True])


def test_two_reactors_that_hold_within_each_other_release_to_the_outer_one(seen: list[int]) -> None:
    """A callback of one client that calls another client."""
    outer = DeferredExceptions()
    inner = DeferredExceptions()
    signal.raise_signal(signal.SIGUSR1)
    inner.release()
    step()
    assert not seen
    outer.release()
    assert seen == [signal.SIGUSR1]


def test_another_thread_does_not_hold_the_main_ones_signals(seen: list[int]) -> None:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with DeferredExceptions():
            held.set()
            over.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    signal.raise_signal(signal.SIGUSR1)
    assert seen == [signal.SIGUSR1]
    over.set()
    thread.join()


def test_a_block_that_is_dropped_holds_no_signal_back(seen: list[int]) -> None:
    block = DeferredExceptions()
    del block
    signal.raise_signal(signal.SIGUSR1)
    assert seen == [signal.SIGUSR1]


def test_ctrl_c_at_any_byte_code_around_a_block_loses_no_signal(seen: list[int]) -> None:
    number = 1

    def hold_and_release() -> None:
        deferred = DeferredExceptions()
        step()
        deferred.release()

    def press() -> None:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGINT)

    while interrupted_at(number, hold_and_release, press):
        assert sorted(seen) == sorted([signal.SIGUSR1, signal.SIGINT]), f"byte code {number}"
        seen.clear()
        number += 1
    assert number > 5


AT_EXIT = """
import atexit, sys

@atexit.register
def last():  # of all callbacks
    DeferredExceptions().release()
    print(0 in sys._current_exceptions())

from pyclient.reactor.deferred_exceptions import DeferredExceptions
DeferredExceptions().release()
print(0 in sys._current_exceptions())
"""
"""The state that is kept for the next block belongs to the thread 0, which is none."""


@holds_exceptions
def test_behind_the_callbacks_of_the_exit_no_state_is_kept_since_the_interpreter_frees_all_before_it_runs_finalizers() -> None:
    ended = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=True)
    assert (ended.stdout.split(), ended.stderr) == (["True", "False"], "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_does_not_use_the_state_that_the_parent_has_kept() -> None:
    DeferredExceptions().release()
    if not (child := fork()):
        ok = False
        with contextlib.suppress(BaseException):
            before = len(sys._current_exceptions())
            with DeferredExceptions():
                ok = len(sys._current_exceptions()) == before + (not bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_handles_its_own_signals_and_not_those_that_the_parent_holds_back(seen: list[int]) -> None:
    deferred = DeferredExceptions()
    signal.raise_signal(signal.SIGUSR1)
    if not (child := fork()):
        ok = False
        with contextlib.suppress(BaseException):
            ok = not seen
            signal.raise_signal(signal.SIGUSR2)
            ok = ok and seen == [signal.SIGUSR2]
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    deferred.release()
    assert seen == [signal.SIGUSR1]


# ---- exceptions of other threads ------------------------------------------------------------------------------------


def step() -> None:
    """One at which Python raises what was raised into the thread."""


@holds_exceptions
def test_an_exception_of_another_thread_is_raised_behind_the_block() -> None:
    log: list[str] = []

    def work() -> None:
        with DeferredExceptions():
            with DeferredExceptions():
                other = threading.Thread(target=raise_into, args=(threading.main_thread().ident, Interrupt))
                other.start()
                other.join()
                step()
                log.append("inner")
            step()
            log.append("outer")
        step()
        log.append("behind")

    with pytest.raises(Interrupt):
        work()
    assert log == ["inner", "outer"]
    step()


@holds_exceptions
def test_a_block_that_is_dropped_holds_no_exception_back() -> None:
    block = DeferredExceptions()
    del block
    with pytest.raises(Interrupt):
        _raise_here()


def _raise_here() -> None:
    raise_into(threading.get_ident(), Interrupt)
    step()
    raise AssertionError("held back")


# ---- a step of a reactor --------------------------------------------------------------------------------------------


class Steps:
    """A guarded reactor whose callbacks are hit."""

    def __init__(self) -> None:
        self.reactor = Reactor(NotedPoller(), Clock(), defers=True)
        self.ran: list[int] = []

    def post(self, number: int, hits: list[Callable[[], object]]) -> None:
        def callback() -> None:
            for hit in hits:
                hit()
            self.ran.append(number)

        self.reactor.post(callback)


@settings(max_examples=40, deadline=None)
@given(hits=st.lists(st.lists(st.sampled_from([ctrl_c, usr1]), max_size=2), min_size=1, max_size=4))
def test_a_signal_in_a_step_is_handled_once_when_the_step_is_over(hits: list[list[Callable[[], object]]]) -> None:
    """Whatever it raises: each callback has run, and the reactor takes the next call. Of one number once, as always."""
    seen: list[tuple[int, bool]] = []

    def handler(number: int, _frame: object) -> None:
        seen.append((number, steps.reactor.leads))
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    steps = Steps()
    before = [(number, signal.signal(number, handler)) for number in USED]
    try:
        for number, each in enumerate(hits):
            steps.post(number, each)
        with pytest.raises(KeyboardInterrupt) if any(ctrl_c in each for each in hits) else contextlib.nullcontext():
            steps.reactor.step()
        assert all(signal.getsignal(number) is handler for number in USED)
        steps.reactor.call_soon(lambda: steps.ran.append(-1))
    finally:
        for number, old in before:
            signal.signal(number, old)
    assert steps.ran == [*range(len(hits)), -1]
    assert sorted(seen) == sorted({(signal.SIGINT if hit is ctrl_c else signal.SIGUSR1, False) for each in hits for hit in each})


@holds_exceptions
def test_an_exception_of_another_thread_in_a_step_is_raised_when_the_step_is_over() -> None:
    steps = Steps()
    steps.post(1, [lambda: raise_into(threading.get_ident(), Interrupt), step])
    steps.post(2, [step])

    def lead() -> None:
        steps.reactor.step()
        step()

    with pytest.raises(Interrupt):
        lead()
    assert steps.ran == [1, 2]
    steps.reactor.call_soon(step)


def test_ctrl_c_at_any_byte_code_of_a_step_loses_no_callback(seen: list[int]) -> None:
    number = 1
    while True:
        steps = Steps()
        for each in range(3):
            steps.post(each, [step])
        if not interrupted_at(number, steps.reactor.step, ctrl_c):
            break
        steps.reactor.step()
        assert steps.ran == [0, 1, 2], f"byte code {number}"
        assert not steps.reactor.leads
        number += 1
    assert number > 30
    assert len(seen) == number - 1
